"""Gauges and residual sensitivity against their definitions in loops, and on every neighbour of small instances."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from dpjoin.privacy.gauge import gauge, gauge_bound, ls_gauge, t_gauge
from dpjoin.privacy.residual import (
    Boundaries,
    local_sensitivity,
    proper_subsets,
    residual_bound,
    residual_level,
    residual_sensitivity,
    star,
)
from support.gauge import (
    BETAS,
    SHAPES,
    Tables,
    all_neighbours,
    bound_by_loops,
    boundaries_of,
    growth_by_loops,
    ls_at_by_loops,
    ls_gauge_by_loops,
    random_boundaries,
    random_rows,
    schema_of,
)


def t_gauge_by_loops(b: Boundaries, last: int) -> int:
    curves = growth_by_loops(b, last)
    needed = [f for f in curves if b.private - f]
    return next(z for z in range(last + 1) if all(b.values[f] <= curves[f][z] for f in needed))


def with_knowledge(rng: np.random.Generator, b: Boundaries) -> Boundaries:
    """The same with random caps and factors, and values cut down until all of them hold."""
    subsets = [f for f in proper_subsets(b.tables) if f & b.private]
    caps = {f: int(rng.integers(0, 30)) for f in subsets if rng.random() < 0.3}
    factors = tuple((f, j, int(rng.integers(1, 4))) for f in subsets for j in sorted(f) if rng.random() < 0.2)
    values = dict(b.values)
    for f in subsets:
        values[f] = min([values[f], *([caps[f]] if f in caps else [])])
        values[f] = min([values[f], *(c * values[g - {j}] for g, j, c in factors if g == f)])
    for f in subsets:  # what real tables satisfy: nothing joins with nothing
        if any(values[f - {j}] == 0 for j in f):
            values[f] = 0
    return Boundaries(tables=b.tables, private=b.private, values=values, caps=caps, factors=factors)


@cache
def numbers(shape: str, private: str | None, key: tuple[int, ...]) -> tuple[int, int | None, int, int, int]:
    """T-gauge, LŜ-gauge, gauge, residual level at beta = 3/10 and LS for the boundary values in `key`."""
    schema = schema_of(shape, private=private)
    names = tuple(t.name for t in schema.tables)
    values = dict(zip(proper_subsets(names), key, strict=True))
    b = Boundaries(tables=names, private=frozenset(schema.private_tables), values=values)
    level = residual_level(b, beta=BETAS[1], steps=3)
    assert gauge_bound(b, gauge(b)) >= local_sensitivity(b)
    assert residual_bound(level, beta=BETAS[1], steps=3) >= local_sensitivity(b)
    return t_gauge(b), ls_gauge(b), gauge(b), level, local_sensitivity(b)


@pytest.mark.parametrize("m", [2, 3, 4, 5])
@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("knowledge", [False, True])
def test_growth_is_its_recurrence(m: int, public: bool, knowledge: bool) -> None:
    """Piecewise polynomials equal the recurrence step by step, with caps, factors and public tables."""
    rng = np.random.default_rng(10 + m)
    for _ in range(15):
        b = random_boundaries(rng, m, top=3, public=public)
        b = with_knowledge(rng, b) if knowledge else b
        assert [gauge_bound(b, z) for z in range(41)] == bound_by_loops(b, 40)


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("public", [False, True])
def test_t_gauge_is_its_definition(m: int, public: bool) -> None:
    """Bisection finds the first level at which every curve is high enough."""
    rng = np.random.default_rng(20 + m)
    for _ in range(25):
        b = random_boundaries(rng, m, top=4, public=public)
        assert t_gauge(b) == t_gauge_by_loops(b, 300)


@pytest.mark.parametrize(("m", "top", "last"), [(2, 20, 40), (3, 4, 60), (4, 2, 24)])
@pytest.mark.parametrize("public", [False, True])
def test_ls_gauge_is_its_definition(m: int, top: int, last: int, public: bool) -> None:
    """The search over boxes finds the least level that covers every k."""
    rng = np.random.default_rng(30 + m)
    for _ in range(12):
        b = random_boundaries(rng, m, top=top, public=public)
        assert ls_gauge(b) == ls_gauge_by_loops(b, last)


@pytest.mark.parametrize("m", [3, 4, 5])
@pytest.mark.parametrize("instances", [10, pytest.param(100, marks=pytest.mark.full)])
def test_floats_lose_nothing(m: int, instances: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search that drops boxes by floats finds what the search in whole numbers alone finds."""
    rng = np.random.default_rng(120 + m)
    found = []
    for n in range(instances):
        b = random_boundaries(rng, m, top=int(rng.integers(1, 8)), public=n % 3 == 0)
        if n % 2:
            b = star([int(10**x) for x in rng.uniform(0, 5 - m / 2, m)])
        found.append((b, ls_gauge(b)))
    monkeypatch.setattr("dpjoin.privacy.gauge._LAST", 0)
    assert [ls_gauge(b) for b, _ in found] == [level for _, level in found]


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("knowledge", [False, True])
def test_residual_sensitivity_is_its_definition(beta: Fraction, knowledge: bool) -> None:
    """RS equals the maximum over k in loops, to 50 binary digits, and its level is the first that covers it."""
    rng = np.random.default_rng(40)
    for m, top in ((2, 9), (3, 5), (4, 3)):
        for _ in range(3):
            b = random_boundaries(rng, m, top=top, public=bool(rng.random() < 0.3))
            b = with_knowledge(rng, b) if knowledge else b
            last = min((m - 1) * math.ceil(1 / math.expm1(beta)), 24 if m == 4 else 60)
            reached = [ls_at_by_loops(b, k) for k in range(last + 1)]
            expected = max(math.exp(-beta * k) * v for k, v in enumerate(reached))
            found = residual_sensitivity(b, beta)
            if last == (m - 1) * math.ceil(1 / math.expm1(beta)):
                assert float(found) == pytest.approx(expected, rel=1e-12)
            assert found >= Fraction(expected) * (1 - Fraction(1, 10**12))
            level = residual_level(b, beta=beta, steps=5)
            grid = [residual_bound(z, beta=beta, steps=5) for z in (level + 5 * k for k in range(last + 1))]
            assert all(v <= g for v, g in zip(reached, grid, strict=True))
            assert level == max(0, math.ceil(math.log(found) * 5 / beta - 1e-9) if found else 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_instances_equal_the_definitions(shape: str) -> None:
    """The fast functions equal the loops on boundary values of real joins."""
    rng = np.random.default_rng(50)
    schema = schema_of(shape)
    for _ in range(4):
        b = boundaries_of(schema, random_rows(rng, schema))
        assert t_gauge(b) == t_gauge_by_loops(b, 100)
        assert ls_gauge(b) == ls_gauge_by_loops(b, 20)


@pytest.mark.parametrize(
    ("shape", "private"),
    [*((shape, None) for shape in SHAPES), ("path3", "12"), ("path3", "13"), ("star3", "12"), ("cycle4", "134")],
)
@pytest.mark.parametrize("instances", [20, pytest.param(200, marks=pytest.mark.full)])
def test_no_neighbour_moves_a_gauge_by_more_than_one(shape: str, private: str | None, instances: int) -> None:
    """On every neighbour of the instances the gauges move by at most 1, the residual level by at most 3 steps."""
    rng = np.random.default_rng(60)
    schema = schema_of(shape, private=private)
    names = tuple(t.name for t in schema.tables)

    def measured(tables: Tables) -> tuple[int, int | None, int, int, int]:
        b = boundaries_of(schema, tables)
        return numbers(shape, private, tuple(b.values[f] for f in proper_subsets(names)))

    for _ in range(instances):
        tables = random_rows(rng, schema)
        t, ls, both, level, _ = measured(tables)
        for other in all_neighbours(schema, tables):
            t2, ls2, both2, level2, _ = measured(other)
            assert abs(t - t2) <= 1
            assert ls is not None
            assert ls2 is not None
            assert abs(ls - ls2) <= 1
            assert abs(both - both2) <= 1
            assert abs(level - level2) <= 3


@pytest.mark.parametrize("shape", ["two", "path3", "triangle", "star3", "middle"])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("instances", [3, pytest.param(70, marks=pytest.mark.full)])
def test_residual_sensitivity_is_smooth(shape: str, beta: Fraction, instances: int) -> None:
    """RS is at least LS and grows by at most a factor exp(beta) between neighbours."""
    rng = np.random.default_rng(70)
    schema = schema_of(shape)
    factor = math.exp(beta) * (1 + 1e-12)
    for _ in range(instances):
        tables = random_rows(rng, schema)
        b = boundaries_of(schema, tables)
        here = residual_sensitivity(b, beta)
        assert here >= local_sensitivity(b)
        for other in itertools.islice(all_neighbours(schema, tables), 0, None, 3):
            there = residual_sensitivity(boundaries_of(schema, other), beta)
            assert here <= there * Fraction(factor)
            assert there <= here * Fraction(factor)
