"""Averages of every kind of model: a sum over a count, and bars that cover."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.model.averages import average_half_widths, averages
from dpjoin.model.union import Union
from dpjoin.released.query import ask
from dpjoin.spec.sql import read_query
from dpjoin.spec.workload import Average

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
GROUPS, VALUES = 8, 20
ONE_TABLE = dj.Schema(
    [dj.Table(name="r", attributes=["a", "g", "x"])],
    [
        dj.Attribute(name="a", range=(0, 3)),
        dj.Attribute(name="g", range=(0, GROUPS - 1)),
        dj.Attribute(name="x", range=(0, VALUES - 1), other=True),
    ],
)
TWO_TABLES = dj.Schema(
    [dj.Table(name="r", attributes=["k", "g", "x"]), dj.Table(name="s", attributes=["k", "a"])],
    [dj.Attribute(name="k", key=True), *ONE_TABLE.attributes],
)
STATEMENTS = (
    "SELECT AVG(x) FROM joined",
    "SELECT AVG(x) FROM joined WHERE x >= 4",
    "SELECT g, AVG(x) FROM joined GROUP BY g",
)


def _rows(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values that rise with their group, which a fit that pulls cells together gets wrong; some are `other`."""
    rng = np.random.default_rng(seed)
    share = 0.7 ** np.arange(GROUPS)
    g = rng.choice(GROUPS, rows, p=share / share.sum())
    x = np.clip(np.rint(4 + g + rng.normal(0, 2, rows)), 0, VALUES - 1).astype(int)
    return rng.integers(0, 4, rows), g, np.where(rng.random(rows) < 0.05, 99, x)


def _asked(schema: dj.Schema, statement: str) -> Average:
    (measure,) = read_query(schema, statement).measures
    assert isinstance(measure.asked, Average)
    return measure.asked


def _off(release: dj.Release, g: np.ndarray, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The errors of all statements, in lengths of their bars; each row counts as often as its key joins."""
    known = x < VALUES
    masks = [known, known & (x >= 4), *(known & (g == i) for i in range(GROUPS))]
    truth = np.array([np.average(x[m], weights=weights[m]) if weights[m].any() else np.nan for m in masks])
    found = np.concatenate([release.answer(s) for s in STATEMENTS])
    bars = np.concatenate([release.error(s) for s in STATEMENTS])
    return np.abs(found - truth) / bars


@pytest.mark.statistical
@pytest.mark.parametrize("rows", [2_000, 20_000])
def test_bars_of_averages_cover(rows: int) -> None:
    """Over ten releases of one table, with groups of all sizes and values that go with them."""
    workload, off = dj.Workload.marginals(ONE_TABLE, 2), []
    for seed in range(10):
        a, g, x = _rows(rows, seed)
        release = dj.release(ONE_TABLE, workload, {"r": pa.table({"a": a, "g": g, "x": x})}, BUDGET)
        off.append(_off(release, g, x, np.ones(rows)))
    covered = np.array(off) <= 1.0
    assert covered.mean() >= 0.85
    assert np.median(off) >= 0.15  # bars that say something


@pytest.mark.statistical
def test_bars_of_averages_over_a_join_cover() -> None:
    """The same where rows count as often as their key joins."""
    workload, off = dj.Workload.marginals(TWO_TABLES, 2), []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        a, g, x = _rows(5_000, seed)
        k, m = rng.integers(0, 400, 5_000), rng.integers(0, 400, 2_000)
        tables = {"r": pa.table({"k": k, "g": g, "x": x}), "s": pa.table({"k": m, "a": a[:2_000]})}
        release = dj.release(TWO_TABLES, workload, tables, BUDGET)
        off.append(_off(release, g, x, np.bincount(m, minlength=400)[k]))
    assert (np.array(off) <= 1.0).mean() >= 0.85


@pytest.fixture(scope="module")
def released() -> dj.Release:
    a, g, x = _rows(3_000, 0)
    return dj.release(ONE_TABLE, dj.Workload.marginals(ONE_TABLE, 2), {"r": pa.table({"a": a, "g": g, "x": x})}, BUDGET)


def test_the_average_of_two_equal_parts_is_that_of_one(released: dj.Release) -> None:
    """Parts of a union are independent: the average stays, and its bar is not longer than that of one part."""
    asked, one = _asked(ONE_TABLE, STATEMENTS[2]), released.model
    both = Union((one, one), ("first", "second"))
    assert averages(both, asked) == pytest.approx(averages(one, asked))
    bars, single = average_half_widths(both, asked, 0.9), average_half_widths(one, asked, 0.9)
    assert (bars <= single + 1e-9).all()
    assert (bars > 0.5 * single).all()


def test_bars_of_averages_end_where_values_do(released: dj.Release) -> None:
    """No average is outside its values, so no bar need be longer; rows that may not be there may have any average."""
    asked = _asked(ONE_TABLE, STATEMENTS[2])
    unsure = replace(released.model, floor=1e6)
    found = averages(unsure, asked)
    assert average_half_widths(unsure, asked, 0.9) == pytest.approx(np.maximum(found, VALUES - 1 - found))


def test_averages_over_what_was_never_measured_have_no_bars(released: dj.Release) -> None:
    """As counts have none."""
    (row,) = ask(released, "SELECT AVG(x) FROM joined WHERE g = 1 AND a = 1").rows
    assert 0 <= row[1][0] <= VALUES - 1
    assert row[2] == (None,)


def test_averages_of_nothing_are_missing_and_come_last(released: dj.Release) -> None:
    """Where the model has no rows at all there is no average, and it sorts as DuckDB sorts what is missing."""
    table = released.model.table.copy()
    cells = table.reshape(released.model.domain.shape)
    axis = released.model.domain.attributes.index("g")
    np.moveaxis(cells, axis, 0)[3] = 0.0
    empty = replace(released, model=replace(released.model, terms=None, potentials=None, members=(), plain=table))
    for order in ("ASC", "DESC"):
        rows = ask(empty, f"SELECT g, AVG(x) FROM joined GROUP BY g ORDER BY 2 {order}").rows
        numbers = [row[1][0] for row in rows]
        assert rows[-1][0] == (3,)
        assert np.isnan(numbers[-1])
        assert rows[-1][2] == (None,)
        assert numbers[:-1] == sorted(numbers[:-1], reverse=order == "DESC")
