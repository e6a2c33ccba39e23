"""After a fit, cells that stand out of noise are as measured, and drowned ones have together what is left."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.measure.laplace import ByValue
from dpjoin.methods.table_models import stands_out, without_hidden
from dpjoin.model import fit as fits
from dpjoin.model.clear_cells import _by_rank, _clear, keep_clear_cells
from dpjoin.model.ensemble import ensemble
from dpjoin.model.fit import Evidence, Fit, learn, with_sums
from dpjoin.model.terms import FloatArray, Terms
from support.clear_cells import DEVIATION, VALUES, measured
from support.naive import table_of


def determined(keys: int, rows: float) -> FloatArray:
    """Keys with frequencies as one over their rank; each has three of ten values of the attribute."""
    by_key = rows / np.arange(1, keys + 1)
    table = np.zeros((keys, VALUES))
    for shift in range(3):
        table[np.arange(keys), (np.arange(keys) + shift) % VALUES] = np.round(by_key / 3)
    return table


def fitted(table: FloatArray, seed: int) -> tuple[Fit[Terms], Evidence]:
    begun, evidence = measured(table, seed)
    return learn(begun, with_sums(begun, evidence, every=True)), evidence


def test_a_search_begins_near_measured_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attribute that keys all but determine: from independence, a search does not get to its sums in its steps."""
    table = determined(2_000, 12_000)
    near, _ = fitted(table, 0)
    monkeypatch.setattr(fits, "near_cells", lambda begun, _: begun)
    far, _ = fitted(table, 0)
    assert float(np.abs(table_of(near) - table)[:20].max()) < 5 * DEVIATION
    off = [float(np.abs((table_of(f) - table).sum(axis=0)).max()) for f in (near, far)]
    assert off[0] < off[1] / 2  # where the far search stops depends on the processor


def test_many_marginals_begin_at_independence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would cost a sum over all cells, several times."""
    begun, evidence = measured(determined(50, 1_000), 0)
    told = with_sums(begun, evidence)
    assert (fits.near_cells(begun, told).potentials != begun.potentials).any()
    monkeypatch.setattr(fits, "FEW_GROUPS", 2)
    assert fits.near_cells(begun, told) is begun


def test_joins_of_fits_with_clear_cells_are_closer() -> None:
    """Where noise drowns cells of frequent keys, a fit has a few rows that a join multiplies."""
    table = determined(1_000, 6_000)
    true = table.T @ table
    off: list[list[float]] = [[], []]
    for seed in range(3):
        both = [fitted(table, 2 * seed + n) for n in range(2)]
        for n, (one, other) in enumerate(([f for f, _ in both], [keep_clear_cells(f, e) for f, e in both])):
            joined = table_of(one).T @ table_of(other)
            off[n].append(float(np.abs(joined / joined.sum() - true / true.sum()).sum() / 2))
    assert np.mean(off[1]) < 0.6 * np.mean(off[0])


def test_clear_cells_are_as_measured_and_all_add_up() -> None:
    table = determined(1_000, 6_000)
    found, evidence = fitted(table, 0)
    after = keep_clear_cells(found, evidence)
    noisy = evidence.noisy[found.terms.slices[2]].reshape(table.shape)
    clear = table > 100
    assert table_of(after)[clear] == pytest.approx(noisy[clear], rel=1e-3)
    assert table_of(after).sum() == pytest.approx(found.total)
    # Without bias, where the fit has rows in cells of frequent keys that have none.
    empty = (table == 0) & (np.arange(len(table)) < 100)[:, None]
    assert table_of(after)[empty].mean() < table_of(found)[empty].mean() / 2


def test_nothing_stands_out_of_noise_alone() -> None:
    """Of a hundred thousand empty cells Laplace noise lifts some above any fixed number of its deviations."""
    rng = np.random.default_rng(0)
    noise, ones = rng.laplace(0, 2**-0.5, 100_000), np.ones(100_000)
    assert (noise > 4).sum() > 50
    assert not _clear(noise, ones, ones).any()
    some = noise.copy()
    some[:2_000] += 8
    assert _clear(some, ones, ones)[:2_000].mean() > 0.9
    assert _clear(some, ones, ones)[2_000:].sum() < 300
    assert not _clear(some, ones, 0.1 * ones).any(), "cells that are much alike are known best together"


def test_a_fit_without_clear_cells_stays_as_it_is() -> None:
    """Nor where clear cells have few of the rows: a fit knows more of drowned cells than they do together."""
    few = np.full((400, VALUES), 1.0)
    for table in (few, few + 30.0 * (np.arange(400) < 3)[:, None]):
        found, evidence = fitted(table, 0)
        assert np.array_equal(keep_clear_cells(found, evidence).potentials, found.potentials)


def test_values_are_together_by_rank() -> None:
    assert _by_rank(np.array([5.0, 9.0, 1.0, 7.0, 0.5, 0.0, 0.1, -1.0])).tolist() == [1, 0, 2, 1, 2, 2, 2, 3]


def test_members_keep_clear_cells_like_the_fit() -> None:
    """What is clear is off by its noise in each of them."""
    table = determined(300, 3_000)
    found, evidence = fitted(table, 0)
    after = keep_clear_cells(found, evidence)
    members = ensemble(found, evidence, total_deviation=0.0, after=keep_clear_cells)
    tables = np.array([found.terms.table(potentials, total) for potentials, total in members])
    clear = table > 100
    spread = np.sqrt(((tables - table_of(after))[:, clear] ** 2).mean())
    assert 0.8 * DEVIATION < spread < 1.3 * DEVIATION


def test_rows_stand_out_where_frequent_values_count() -> None:
    heavy, flat = np.array([1_000.0, 500.0, 300.0] + [1.0] * 3_000), np.full(1_000, 4.0)
    assert stands_out(ByValue(("k",), heavy, (1.0, 1.0)), cells=40_000, values=4_000)
    assert not stands_out(ByValue(("k",), heavy, (0.0, 0.0)), cells=40_000, values=4_000)
    assert not stands_out(ByValue(("k",), flat, (1.0, 1.0)), cells=10_000, values=1_000)
    assert not stands_out(ByValue(("k",), np.zeros(0)), cells=10_000, values=1_000)


def test_what_two_links_determine_together_is_measured() -> None:
    """More cells than rows, but frequent values have most of what the join has: their cells stand out."""
    rng, keys, rows = np.random.default_rng(5), 500, 5_000
    chance = 1 / np.arange(1, keys + 1)

    def table(*names: str) -> pa.Table:
        found = {
            n: rng.choice(keys, rows, p=chance / chance.sum()) if n == "k" else rng.integers(0, 6, rows)
            for n in names[:-1]
        }
        found[names[-1]] = sum(found.values()) % 4
        return pa.table(found)

    tables = {"r": table("k", "l", "a"), "s": table("k", "l", "b"), "t": table("k", "c")}
    sizes = {"k": keys, "l": 6, "a": 4, "b": 4, "c": 4}
    schema = dj.Schema(
        tuple(dj.Table(name=n, attributes=tuple(t.column_names)) for n, t in tables.items()),
        tuple(dj.Attribute(name=a, range=(0, n - 1)) for a, n in sizes.items()),
    )
    workload = dj.Workload.marginals(schema, [("a", "b"), ("b", "c")])
    release = dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6), method="per_table")
    assert schema.cells(("k", "l", "a")) > rows
    found = dj.evaluate(release, tables)
    assert found.mean_total_variation is not None
    assert found.mean_total_variation < 0.03
    assert found.covered > 0.6


def keyed_schema(keys: int) -> dj.Schema:
    sizes = {"k": keys, "a": 10, "b": 8, "c": 4, "d": 3}
    return dj.Schema(
        (dj.Table(name="r", attributes=("k", "a", "b", "c")), dj.Table(name="s", attributes=("k", "d"))),
        tuple(dj.Attribute(name=name, range=(0, size - 1)) for name, size in sizes.items()),
    )


def test_marginals_below_the_noise_are_replaced_by_their_parts() -> None:
    """Large ones with few rows in a cell, unless frequent values stand out; small ones are left to the fit."""
    asked = [("k", "a", "b"), ("k", "a", "c"), ("k", "b", "c")]
    parts = [("k", "a"), ("k", "b"), ("k", "c")]
    large, small = keyed_schema(4_000), keyed_schema(100)
    assert without_hidden(large, asked, ("k",), (), rows=1_000.0) == parts
    assert without_hidden(large, asked, ("k",), (), rows=1e6) == asked
    assert without_hidden(small, asked, ("k",), (), rows=1.0) == asked
    # 320,000 cells are drowned, 160,000 and 128,000 are not: what is part of these is not asked for once more.
    assert without_hidden(large, asked, ("k",), (), rows=50_000.0) == asked[1:]
    heavy = ByValue(("k",), np.array([3_000.0] + [1.0] * 3_000), (1.0, 1.0))
    assert without_hidden(large, asked, ("k",), (heavy,), rows=1_000.0) == asked
    assert without_hidden(large, parts, ("k",), (), rows=1.0) == parts


def test_what_is_asked_of_drowned_marginals_has_answers_and_bars() -> None:
    rng = np.random.default_rng(0)
    schema = keyed_schema(500)
    tables = {
        t.name: pa.table({a: rng.integers(0, schema.cells((a,)), 3_000) for a in t.attributes}) for t in schema.tables
    }
    workload = dj.Workload.marginals(schema, [("a", "b"), ("a", "c"), ("b", "c"), ("a", "d")])
    made = dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6), method="per_table")
    terms = made.model.tables[0].terms
    assert ("k", "a", "b") not in terms.cliques
    assert {("k", "a"), ("k", "b"), ("a", "b")} <= set(terms.cliques)
    assert all(np.isfinite(made.model.error(g, 0.9)).all() for g in workload.groups)
