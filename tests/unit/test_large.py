"""Domains too large to write down: end to end, privately, and as the dense model would where both can serve."""

from __future__ import annotations

import itertools
import tracemalloc
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpjoin as dj
from dpjoin.auto.plan import check_feasible, layout, plan
from dpjoin.auto.registry import METHODS as ALL_METHODS
from dpjoin.auto.registry import chosen_method
from dpjoin.errors import ReleaseError, SpecError
from dpjoin.evaluation import evaluate
from dpjoin.measure import join as as_one
from dpjoin.measure import large_domains as chosen
from dpjoin.measure.large_domains import cells_limit, looked_at
from dpjoin.measure.marginals import wanted_cliques
from dpjoin.methods.as_one import as_one_shares
from dpjoin.methods.method import gaussian_only
from dpjoin.model.model import Model
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.schema import Schema
from dpjoin.spec.toml import Spec
from dpjoin.spec.workload import product_group
from support.large import SHARP, names_of, one_table, pair_of_tables

BUDGET = Budget(epsilon=1.0, delta=1e-6)


def rows_of(count: int, values: int, rows: int, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """A hidden class drives every column, and a column often repeats the last one."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4, rows)
    data, before = {}, rng.integers(0, values, rows)
    for name in names_of(count):
        own = np.minimum(rng.geometric(0.35, rows) - 1 + kind, values - 1)
        before = np.where(rng.random(rows) < 0.4, before, own)
        data[name] = before
    return data


def pair_rows(count: int, values: int, rows: int) -> dict[str, pa.Table]:
    """Half of the columns in each table; a key value has one or two rows in each."""
    data = rows_of(count, values, rows)
    columns = list(data.items())
    rng = np.random.default_rng(1)
    return {
        "r": pa.table({"k": rng.permutation(rows) // 2, **dict(columns[: count // 2])}),
        "s": pa.table({"k": np.arange(rows), **dict(columns[count // 2 :])}),
    }


def counted(table: pa.Table, scope: tuple[str, ...], values: int) -> np.ndarray[Any, Any]:
    flat = np.zeros(table.num_rows, dtype=np.int64)
    for a in scope:
        flat = flat * values + table.column(a).to_numpy()
    return np.bincount(flat, minlength=values ** len(scope))


# End to end ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def million_million() -> tuple[dj.Release, dict[str, pa.Table]]:
    schema = one_table(12, 10)
    tables = {"t": pa.table(rows_of(12, 10, 10_000))}
    tracemalloc.start()
    made = dj.release(schema, dj.Workload.marginals(schema, 2), tables, BUDGET)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300e6
    return made, tables


def test_one_table_of_a_million_million_cells(million_million: tuple[dj.Release, dict[str, pa.Table]]) -> None:
    """All pairs of 12 attributes: better than independent columns, and bars that hold."""
    release, tables = million_million
    assert isinstance(release.model, Model)
    assert release.model.tree is not None
    assert release.model.tree.cells <= chosen.TREE_CELLS
    assert "66 wider marginals looked at" in release.facts["strategy"]
    found = evaluate(release, tables)
    singles = {a: counted(tables["t"], (a,), 10) / 10_000 for a in release.attributes}
    independent = [
        np.abs(10_000 * np.outer(singles[a], singles[b]).reshape(-1) - counted(tables["t"], (a, b), 10)).mean()
        for a, b in itertools.combinations(release.attributes, 2)
    ]
    assert found.mean_error < 0.7 * float(np.mean(independent))
    assert 0.85 <= found.covered <= 0.99


def test_it_can_be_saved_loaded_and_asked(
    million_million: tuple[dj.Release, dict[str, pa.Table]], tmp_path: Path
) -> None:
    release, _ = million_million
    loaded = dj.load(release.save(tmp_path / "out"))
    assert release.manifest()["format"] == 3
    assert np.array_equal(loaded.answer(), release.answer())
    assert np.array_equal(loaded.error(), release.error())
    assert loaded.sample(100, seed=3).equals(release.sample(100, seed=3))
    assert pq.read_table(tmp_path / "out" / "synthetic.parquet").equals(loaded.synthetic)
    three = dj.Workload.marginals(release.schema, [("x00", "x05", "x11")])
    assert loaded.answer(three).sum() == pytest.approx(release.join_size)
    assert np.isnan(loaded.error(three)).all()
    sums = dj.Workload.marginals(release.schema, [("x03",)]) + dj.Workload.prefixes(release.schema, ["x00", "x11"])
    assert np.isfinite(loaded.error(sums)).all()
    nine = dj.Workload.marginals(release.schema, [names_of(9)])
    with pytest.raises(ReleaseError, match=r"cells needed .* must be at most .*; ask for fewer attributes at once$"):
        loaded.answer(nine)
    from dpjoin.released.query import ask

    assert len(ask(loaded, "SELECT x00, x11, COUNT(*) FROM joined GROUP BY ALL").rows) == 100


def test_synthetic_rows_are_close_to_the_model(million_million: tuple[dj.Release, dict[str, pa.Table]]) -> None:
    """Whole rows, as many as the noisy join size; a cell strays from the model less than independent draws would."""
    release, _ = million_million
    assert release.synthetic.num_rows == release.join_size
    off = drawn = 0.0
    for group in release.workload.groups:
        model = release.answer(dj.Workload(release.schema, (group,)))
        off += float(np.abs(counted(release.synthetic, group.scope, 10) - model).sum())
        drawn += float(np.sqrt(2 / np.pi * model).sum())
    assert off < drawn
    assert release.sample(0, seed=1).num_rows == 0


def test_rows_come_in_chunks(
    million_million: tuple[dj.Release, dict[str, pa.Table]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpjoin.released.rows.CHUNK_ROWS", 700)
    release, _ = million_million
    table = release.sample(2000, seed=1)
    assert (table.num_rows, table.num_columns) == (2000, 12)


def test_the_ledger_adds_up(million_million: tuple[dj.Release, dict[str, pa.Table]]) -> None:
    release, _ = million_million
    shares = as_one_shares(gaussian_only(BUDGET, release.workload), release.schema)
    assert release.ledger.rho == shares.split.rho
    assert sum((e.cost.rho for e in release.ledger.events), Fraction(0)) == shares.split.rho  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["auto", "capped", "two_table"])
def test_a_joined_pair(method: str, tmp_path: Path) -> None:
    schema = pair_of_tables(12, 10)
    tables = pair_rows(12, 10, 4000)
    release = dj.release(schema, dj.Workload.marginals(schema, 2), tables, Budget(epsilon=4, delta=1e-6), method=method)
    assert isinstance(release.model, Model)
    assert release.model.tree is not None
    assert release.method == ("capped" if method == "auto" else method)
    found = evaluate(release, tables)
    assert found.covered >= 0.8
    assert found.mean_error < 60
    loaded = dj.load(release.save(tmp_path / "out"))
    assert np.array_equal(loaded.answer(), release.answer())
    assert loaded.synthetic.num_rows == release.join_size


def test_a_long_chain_takes_all_marginals() -> None:
    """30 attributes and the pairs of neighbours: nothing needs to be chosen."""
    schema = one_table(30, 10)
    names = names_of(30)
    tables = {"t": pa.table(rows_of(30, 10, 10_000))}
    release = dj.release(schema, dj.Workload.marginals(schema, list(itertools.pairwise(names))), tables, BUDGET)
    assert isinstance(release.model, Model)
    assert release.model.tree is not None
    assert release.model.misfits == ()
    assert release.facts["strategy"].startswith("59 marginals")
    found = evaluate(release, tables)
    assert 0.85 <= found.covered <= 0.99


def test_only_one_way_marginals() -> None:
    schema = one_table(12, 10)
    tables = {"t": pa.table(rows_of(12, 10, 2000))}
    release = dj.release(schema, dj.Workload.marginals(schema, 1), tables, BUDGET)
    assert evaluate(release, tables).max_error < 200
    assert release.ledger.rho == as_one_shares(gaussian_only(BUDGET, release.workload), schema).split.rho


# The same as the dense model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("all_cells", [2**19, 1])
def test_a_small_domain_answers_like_the_dense_model(all_cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = one_table(5, 4)
    workload = dj.Workload.marginals(schema, 2)
    tables = {"t": pa.table(rows_of(5, 4, 10_000))}
    monkeypatch.setattr("dpjoin.methods.as_one.laplace_pays", lambda *_: False)  # the same noise for both
    dense = dj.release(schema, workload, tables, SHARP)
    monkeypatch.setattr(as_one, "DENSE_CELLS", 10)
    monkeypatch.setattr(chosen, "ALL_CELLS", all_cells)
    loose = dj.release(schema, workload, tables, SHARP)
    assert type(dense.model) is Model
    assert isinstance(loose.model, Model)
    assert loose.model.tree is not None
    assert np.abs(loose.answer() - dense.answer()).mean() < 1.5 * dense.error().mean()
    assert loose.model.table.sum() == pytest.approx(loose.join_size)
    first, second = evaluate(dense, tables), evaluate(loose, tables)
    assert second.mean_error < 2 * first.mean_error


# What is public beforehand -------------------------------------------------------------------------------------------


def spec_of(schema: Schema, workload: dj.Workload, **more: Any) -> Spec:
    return Spec(schema=schema, workload=workload, budget=BUDGET, **more)


def test_plan_says_how_the_model_is_kept() -> None:
    wide = one_table(12, 10)
    told = plan(spec_of(wide, dj.Workload.marginals(wide, 2)))
    assert "chosen after a noisy look at the 66 wider ones" in told.model
    assert told.cells == 10**12
    assert told.memory < 1e9
    chain = dj.Workload.marginals(wide, list(itertools.pairwise(names_of(12))))
    assert layout(chain).words == "factored: all marginals, in parts of at most 100 cells"
    small = one_table(3, 4)
    assert plan(spec_of(small, dj.Workload.marginals(small, 2))).model.startswith("dense")


def test_what_cannot_work_is_refused() -> None:
    wide = one_table(12, 10)
    large = dj.Workload.marginals(wide, [names_of(12)[:7]]) + dj.Workload.marginals(wide, 1)
    with pytest.raises(SpecError, match=r"the marginal of x00, .* has 10,000,000 cells .* must be at most .* coarser"):
        check_feasible(wide, large)
    weights = np.linspace(0, 1, 100).reshape(1, 10, 10)
    group = product_group(wide, {"t": (("x00", "x01"), weights)})
    with pytest.raises(SpecError, match=r"product queries .* ask for marginals instead"):
        check_feasible(wide, dj.Workload.marginals(wide, 2) + dj.Workload(wide, (group,)))


def test_a_join_of_models_is_not_written_down(tmp_path: Path) -> None:
    """A path of three tables with three attributes of ten values each: auto goes table by table, rows and all."""
    rng = np.random.default_rng(0)
    tables: dict[str, pa.Table] = {}
    for t, keys in {"r": "k", "s": "kl", "t": "l"}.items():
        columns = {key: rng.integers(0, 8, 6_000) for key in keys}
        first = columns[keys[0]]
        own = {f"{t}{i}": np.where(rng.random(6_000) < 0.5, first, rng.integers(0, 10, 6_000)) for i in range(3)}
        tables[t] = pa.table({**columns, **own})
    names = [a for x in tables.values() for a in x.column_names if len(a) > 1]
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x.column_names)) for t, x in tables.items()),
        (*(dj.Attribute(name=k, range=(0, 7)) for k in "kl"), *(dj.Attribute(name=a, range=(0, 9)) for a in names)),
    )
    workload = dj.Workload.marginals(schema, [("r0", "s0"), ("s1", "t1"), ("r2", "t2"), *((a,) for a in names)])
    assert workload.cells == 10**9
    budget = dj.Budget(epsilon=1.0, delta=1e-6)
    made = dj.release(schema, workload, tables, budget)
    assert made.method == "per_table"
    found = dj.evaluate(made, tables)
    assert found.mean_total_variation is not None
    assert found.mean_total_variation < 0.06
    again = dj.load(made.save(tmp_path / "release"))
    np.testing.assert_array_equal(again.answer(), made.answer())
    rows = again.sample(50_000, seed=3)
    assert rows.column_names == list(made.attributes)
    pairs = np.zeros((10, 10))
    np.add.at(pairs, (rows["r2"].to_numpy(), rows["t2"].to_numpy()), 1)
    (asked,) = [g for g in workload.groups if g.scope == ("r2", "t2")]
    model = made.model.answer(asked).reshape(10, 10)
    assert np.abs(pairs / 50_000 - model / model.sum()).sum() < 0.06
    kept = layout(workload, method="per_table")
    assert "one for each table, of at most 64,000 cells" in kept.words


def test_methods_that_write_the_domain_down_refuse() -> None:
    schema = pair_of_tables(12, 10)
    workload = dj.Workload.marginals(schema, 2)
    for method in ("heavy_light", "uniformize"):
        assert not ALL_METHODS[method].one_model
        with pytest.raises(
            SpecError, match=f"method '{method}' must have a workload over at most .* use method 'auto'"
        ):
            chosen_method(schema, method, "tight", workload)
    with pytest.raises(SpecError, match="profile 'paper' must have a workload"):
        chosen_method(schema, "two_table", "paper", workload)
    assert chosen_method(schema, "auto", "tight", workload).name == "auto"


def test_too_many_marginals_are_not_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A public choice, always the same, that connects all attributes."""
    schema = one_table(20, 10)
    wide = [c for c in wanted_cliques(dj.Workload.marginals(schema, 2)) if len(c) > 1]
    assert looked_at(wide) == wide
    monkeypatch.setattr(chosen, "MOST_LOOKS", 25)
    taken = looked_at(wide)
    assert taken == looked_at(wide)
    assert len(taken) == 25
    reached = {"x00"}
    for _ in range(20):
        reached |= {a for c in taken if reached & set(c) for a in c}
    assert reached == set(names_of(20))
    assert layout(dj.Workload.marginals(schema, 2)).words.startswith(
        "factored: marginals are chosen after a noisy look at 25 of the 190 wider ones"
    )
    tables = {"t": pa.table(rows_of(20, 10, 2000))}
    release = dj.release(schema, dj.Workload.marginals(schema, 2), tables, BUDGET)
    assert "25 of 190" in release.facts["strategy"]
    asked = [np.isnan(release.error(dj.Workload(schema, (g,)))).all() for g in release.workload.groups]
    assert sum(asked) >= 190 - 25 - 60


def test_one_large_marginal_has_room() -> None:
    assert cells_limit([100, 200]) == chosen.TREE_CELLS
    assert cells_limit([100, chosen.TREE_CELLS]) == 2 * chosen.TREE_CELLS
