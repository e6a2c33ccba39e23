"""Averages of every kind of model: a sum over a count, and bars that cover."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from support.averages import BUDGET, GROUPS, ONE_TABLE, STATEMENTS, VALUES, _rows

TWO_TABLES = dj.Schema(
    [dj.Table(name="r", attributes=["k", "g", "x"]), dj.Table(name="s", attributes=["k", "a"])],
    [dj.Attribute(name="k", key=True), *ONE_TABLE.attributes],
)


def _off(release: dj.Release, g: np.ndarray, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The errors of all statements, in lengths of their bars; each row counts as often as its key joins."""
    known = x < VALUES
    masks = [known, known & (x >= 4), *(known & (g == i) for i in range(GROUPS))]
    truth = np.array([np.average(x[m], weights=weights[m]) if weights[m].any() else np.nan for m in masks])
    found = np.concatenate([release.answer(s) for s in STATEMENTS])
    bars = np.concatenate([release.error(s) for s in STATEMENTS])
    return np.abs(found - truth) / bars


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
