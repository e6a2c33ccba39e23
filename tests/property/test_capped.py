"""Capped: rows go by public rules, one row more moves no more than declared, and noisy numbers alone decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.measure.ranks import falling_fits
from dpjoin.methods.capped import CAPPED, best_caps, measure_sizes
from dpjoin.methods.look import (
    cap_attributes,
    cap_bounds,
    measure_levels,
    measure_ranks,
    public_bound_of,
)
from dpjoin.privacy.accounting import Budget
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import rows_by_rank
from dpjoin.spec.schema import Attribute, Schema, Table
from support.brute import BruteEngine
from support.capped import ANY, schema_of
from support.skewed import skewed_rows


@given(st.lists(st.integers(1, 60), max_size=20), st.sets(st.integers(1, 50), min_size=1, max_size=6))
def test_rows_by_rank_is_what_it_says(degrees: list[int], edges: set[int]) -> None:
    """Every row has a rank from 1 to the degree of its value; a row more adds one row of one rank."""
    lows = [0, *sorted(edges)]
    expected = [0] * len(lows)
    for degree in degrees:
        for rank in range(1, degree + 1):
            expected[max(k for k, low in enumerate(lows) if rank > low)] += 1
    found = rows_by_rank(np.array(degrees, dtype=np.int64), sorted(edges))
    assert found.tolist() == expected
    more = rows_by_rank(np.array([*degrees[:-1], degrees[-1] + 1] if degrees else [1]), sorted(edges))
    assert np.abs(more - found).sum() == 1


def test_the_bound_of_caps_is_that_of_the_join_they_leave() -> None:
    """No row of a capped instance is in more join results than the bound says, and some caps attain it."""
    rng = np.random.default_rng(6)
    for shape in ANY:
        schema = schema_of(shape)
        names = frozenset(t.name for t in schema.tables)
        for _ in range(5):
            rows = skewed_rows(schema, rng)
            caps = {(t, by): int(rng.integers(1, 4)) for t, s in cap_attributes(schema).items() for by in s}
            engine = BruteEngine(schema, rows).capped(cap_bounds(caps))
            largest = max(engine.exact_boundary(names - {t}) for t in names)
            assert largest <= public_bound_of(schema, caps)


@pytest.mark.parametrize("seed", range(20))
def test_falling_fits_are_those_of_scipy(seed: int) -> None:
    """For every prefix; ties and negative numbers included."""
    from scipy.optimize import isotonic_regression

    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 8, 30).astype(float) if seed % 2 else rng.normal(0, 5, 30)
    weights = rng.integers(1, 50, 30).astype(float)
    fits = falling_fits(values, weights)
    assert len(fits) == 31
    assert not fits[0].any()
    for n in range(1, 31):
        exact = isotonic_regression(values[:n], weights=weights[:n], increasing=False).x
        assert np.allclose(fits[n][:n], exact, atol=1e-9)
        assert not fits[n][n:].any()


def test_joins_of_three_skewed_tables_are_not_far_too_small() -> None:
    """Frequent values are the same in all tables, so strict caps lose far more of the join than of any table."""
    rng = np.random.default_rng(0)
    popular = 1 / np.arange(1, 201) ** 0.9

    def keys(rows: int) -> Any:
        return rng.choice(200, rows, p=popular / popular.sum())

    tables = {
        "r": pa.table({"k": keys(20_000), "a": rng.integers(0, 3, 20_000)}),
        "s": pa.table({"k": keys(10_000), "l": keys(10_000)}),
        "t": pa.table({"l": keys(10_000), "b": rng.integers(0, 3, 10_000)}),
    }
    schema = Schema(
        tuple(Table(name=t, attributes=tuple(x.column_names)) for t, x in tables.items()),
        (*(Attribute(name=k, key=True) for k in "kl"), *(Attribute(name=a, range=(0, 2)) for a in "ab")),
    )
    workload = dj.Workload.marginals(schema, [("a", "b")])
    engine = DuckEngine(schema, tables, attributes=workload.attributes)
    found = []
    for _ in range(11):
        shares = CAPPED.split(Budget(epsilon=1.0, delta=1e-6), schema)
        curator = Curator(engine, shares.split)
        ranks = measure_ranks(curator, shares.look.ranks)
        levels = measure_levels(curator, workload, ranks, shares.look.size)
        best = best_caps(workload, levels, curator.rho_left).candidate
        found.append(measure_sizes(levels, best, shares.count)[0])
    exact = engine.exact_join_size()
    assert np.median([f.noisy for f in found]) == pytest.approx(exact, rel=0.12)
    assert np.mean([abs(f.noisy - exact) < 1.645 * f.deviation for f in found]) >= 0.5
