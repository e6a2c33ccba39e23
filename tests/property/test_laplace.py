"""Few marginals are measured once, with Laplace noise: what it costs, what is promised, and how good it is."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpjoin as dj
from dpjoin.measure.laplace import (
    GRID,
    on_grid,
)
from dpjoin.privacy.sensitivity import absolute_norm, squared_norm
from dpjoin.spec.workload import CELLS, Factor, kronecker, product_group
from support.audit import ledger_violations
from support.laplace import BUDGET, marginals_of
from support.one_table import rows_of, schema_of


@given(st.lists(st.integers(-9, 9), min_size=3, max_size=3))
def test_norms_are_those_of_the_weights_written_out(row: list[int]) -> None:
    """Of the longest column: the sum of absolute weights, and of their squares."""
    group = kronecker(schema_of(2, 3), {"x0": Factor("weights", tuple(row), Fraction(1)), "x1": CELLS}, name="crossed")
    columns = np.kron(np.array([row]), np.eye(3, dtype=int))
    assert absolute_norm(group) == np.abs(columns).sum(axis=0).max()
    assert squared_norm(group) == (columns**2).sum(axis=0).max()


@given(st.lists(st.lists(st.integers(-1, 1), min_size=3, max_size=3), min_size=1, max_size=4))
def test_norms_of_product_queries_are_never_below(rows: list[list[int]]) -> None:
    group = product_group(schema_of(2, 3), {"t": (("x0",), np.array(rows))})
    ((_, weights),) = group.parts
    assert np.abs(weights).sum(axis=0).max() <= absolute_norm(group) == np.abs(weights).max(axis=1).sum()
    assert (weights**2).sum(axis=0).max() <= squared_norm(group)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=1500).filter(any))
def test_shares_on_the_grid_are_near_and_add_up(weights: list[float]) -> None:
    exact = [w / sum(weights) for w in weights]
    shares = on_grid(exact)
    assert sum(shares) == 1
    assert all(abs(float(s) - e) < 1.001 / GRID for s, e in zip(shares, exact, strict=True))
    assert min(shares) >= 0
    assert all(not s for s, e in zip(shares, exact, strict=True) if not e)


@pytest.mark.parametrize(("columns", "size", "worse"), [(1, 10, 1.3), (2, 8, 1.3), (3, 6, 1.35)])
def test_as_good_as_a_histogram_with_laplace_noise(columns: int, size: int, worse: float) -> None:
    """What anybody would do with a few marginals of one table: each with an equal share of epsilon."""
    schema = schema_of(columns, size)
    tables = rows_of(schema, 20_000, columns)
    names = [a.name for a in schema.attributes]
    scopes = list(itertools.combinations(names, min(columns, 2)))
    workload = dj.Workload.marginals(schema, scopes)
    exact = np.concatenate(marginals_of(tables, scopes, size))
    rng = np.random.default_rng(0)
    naive = np.mean([np.abs(rng.laplace(0, len(scopes), len(exact))).mean() for _ in range(50)])
    ours, inside = [], []
    for _ in range(12):
        release = dj.release(schema, workload, tables, BUDGET)
        assert release.ledger.epsilon == 1
        assert ledger_violations(release.ledger, BUDGET) == []
        off = np.abs(release.answer() - exact)
        ours.append(off.mean())
        inside.append((off <= release.error(coverage=0.9)).mean())
    assert np.mean(ours) < worse * naive
    assert 0.8 < np.mean(inside) <= 1.0
