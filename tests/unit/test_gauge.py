"""Gauges and residual sensitivity against their definitions in loops, and on every neighbour of small instances."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dpjoin.privacy.degree_bounds import degree_caps
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
    Rows,
    Tables,
    all_neighbours,
    bound_by_loops,
    boundaries_of,
    largest_move,
    ls_at_by_loops,
    ls_gauge_by_loops,
    random_boundaries,
    random_rows,
    schema_of,
)


def ls_at_by_grid(b: Boundaries, last: int) -> list[int]:
    """LŜ^0, …, LŜ^last by evaluating all s with sum at most `last`; values must fit in 62 bits."""
    reached = np.zeros(last + 1, dtype=np.int64)
    for i in sorted(b.private):
        others = [j for j in b.tables if j != i and j in b.private]
        points = np.zeros((1, 0), dtype=np.int64)
        for _ in others:  # every point, once for each value that its sum leaves to the next coordinate
            room = last + 1 - points.sum(axis=1)
            ends = np.cumsum(room)
            values = np.arange(ends[-1]) - np.repeat(ends - room, room)
            points = np.column_stack([np.repeat(points, room, axis=0), values])
        total = np.zeros(len(points), dtype=np.int64)
        for size in range(len(others) + 1):
            for taken in itertools.combinations(range(len(others)), size):
                rest = frozenset(b.tables) - {i} - {others[n] for n in taken}
                total += b.values[rest] * points[:, list(taken)].prod(axis=1)
        if others:
            np.maximum.at(reached, points.sum(axis=1), total)
        else:
            reached = np.maximum(reached, total[0])
    return [int(x) for x in reached]


@pytest.mark.parametrize(
    ("degrees", "last"), [((3, 1, 1), 30), ((4, 4, 4), 30), ((1, 5, 1), 30), ((4, 1, 1, 1), 24), ((2, 2, 2, 1), 24)]
)
def test_ls_gauge_of_exchangeable_tables(degrees: tuple[int, ...], last: int) -> None:
    """Tables that can be exchanged are searched in one order only, and nothing is lost."""
    assert ls_gauge(star(degrees)) == ls_gauge_by_loops(star(degrees), last)


def six_tables(rng: np.random.Generator, n: int) -> Boundaries:
    """Small values of six tables: stars, joins whose T_F is the largest product over keys, and no joins at all."""
    if n % 3 == 0:
        return star([int(x) for x in rng.integers(1, 4, 6)])
    if n % 3 == 1:
        return random_boundaries(rng, 6, top=1 if n % 2 else 2, public=n % 4 == 0)
    degrees = rng.integers(0, 4, (6, 3))
    products = {f: degrees[[int(t) - 1 for t in f]].prod(axis=0).max() for f in proper_subsets("123456")}
    values = {f: int(x) for f, x in products.items()}
    return Boundaries(tables=tuple("123456"), private=frozenset("123456"), values=values)


@pytest.mark.parametrize("n", range(9))
def test_six_tables_equal_the_grid(n: int) -> None:
    """Both searches for six tables equal the maximum over every s with sum up to 24."""
    b = six_tables(np.random.default_rng(110 + n), n)
    reached = ls_at_by_grid(b, 24)
    curve = bound_by_loops(b, 100)
    level = ls_gauge(b)
    assert level == next(z for z in range(70) if all(v <= curve[z + k] for k, v in enumerate(reached)))
    for beta in BETAS[1:]:
        expected = max(math.exp(-beta * k) * v for k, v in enumerate(reached))
        assert float(residual_sensitivity(b, beta)) == pytest.approx(expected, rel=1e-12)


def test_six_tables_of_very_unequal_degrees() -> None:
    """Figures that the search in whole numbers found too, in seconds each; large ones are searched without floats."""
    assert ls_gauge(star((1000, 1, 1, 1, 1, 1))) == 45
    assert ls_gauge(star((100_000, 1, 1, 1, 1, 1))) == 3847
    assert (
        ls_gauge(star((100_000, 10_000, 1000, 100, 10, 1))) == gauge(star((1, 10, 100, 1000, 10_000, 100_000))) == 13506
    )
    assert ls_gauge(star((10**17, 1, 1))) == 5 * 10**16 + 2


def test_releases_without_declared_bounds_take_the_smaller_gauge() -> None:
    """What a schema without bounds says of no tables (at most one result) is no bound: a star of degrees 1000, 1, 1."""
    schema = schema_of("star3")
    assert degree_caps(schema) == {frozenset(): 1}
    b = star((1000, 1, 1))
    assert gauge(replace(b, caps=degree_caps(schema))) == gauge(b) == 502


@pytest.mark.parametrize("degrees", [(0, 0), (1, 0), (7, 7), (38, 2), (1000, 1), (10**9, 3)])
def test_of_two_tables_the_first_gauge_is_no_larger(degrees: tuple[int, int]) -> None:
    """So that the second is not asked for."""
    other = ls_gauge(star(degrees))
    assert other is None or other >= t_gauge(star(degrees)) == gauge(star(degrees))


def unique_on_b(rows: Rows) -> bool:
    return len({row["B"] for row in rows}) == len(rows)


def test_public_bounds_keep_the_gauge_stable() -> None:
    """A path whose middle table has one row per B: neighbours that keep it so move the gauge by at most 1."""
    rng = np.random.default_rng(80)
    schema = schema_of("path3")
    known = {"caps": {frozenset({"R2"}): 1}, "factors": ((frozenset({"R2", "R3"}), "R2", 1),)}

    def bounded(tables: Tables) -> Boundaries:
        b = boundaries_of(schema, tables)
        return Boundaries(tables=b.tables, private=b.private, values=b.values, **known)  # type: ignore[arg-type]

    pairs = 0
    while pairs < 300:
        tables = random_rows(rng, schema)
        if not unique_on_b(tables["R2"]):
            continue
        b = bounded(tables)
        assert gauge_bound(b, gauge(b)) >= local_sensitivity(b)
        for other in all_neighbours(schema, tables):
            if unique_on_b(other["R2"]):
                assert largest_move(b, bounded(other), gauge) <= 1
                pairs += 1


@pytest.mark.parametrize(
    ("degrees", "by_t", "by_ls", "hidden"),
    [
        ((1000, 1, 1), 561_270, 157_641, 61_000),
        ((38, 2, 2), 4_753, 3_321, 2_500),
        ((500, 20, 5), 156_520, 54_615, 40_000),
        ((100, 100, 100), 20_301, 20_301, 16_900),
    ],
)
def test_worked_numbers(degrees: tuple[int, ...], by_t: int, by_ls: int, hidden: int) -> None:
    """Bounds at noise 60 for three tables whose pairs have the products of the degrees."""
    b = star(degrees)
    level = ls_gauge(b)
    assert level is not None
    assert gauge_bound(b, t_gauge(b) + 60) == by_t
    assert gauge_bound(b, level + 60) == by_ls
    assert ls_at_by_loops(b, 60) == hidden


def test_worked_number_with_a_public_table() -> None:
    """With T_3 = 1 public and T_1 = T_2 = 100, both gauges give 160 at noise 60."""
    b = star((100, 100, 1), private=(1, 2))
    assert t_gauge(b) == ls_gauge(b) == gauge(b) == 100
    assert gauge_bound(b, gauge(b) + 60) == 160


def test_worked_number_with_declared_bounds() -> None:
    """Degrees (38, 2, 2), the last two declared to be at most 2 wherever they are reached: 196 instead of 3,321."""
    one, two, three = "123"
    b = Boundaries(
        tables=("1", "2", "3"),
        private=frozenset("123"),
        values=star((38, 2, 2)).values,
        caps={frozenset(two): 2, frozenset(three): 2, frozenset({two, three}): 4},
        factors=((frozenset({one, two}), two, 2), (frozenset({one, three}), three, 2)),
    )
    assert gauge_bound(b, gauge(b) + 60) == 196


def test_two_tables_are_the_larger_degree() -> None:
    """For two private tables the gauge is max(T_1, T_2) and the bound is the level itself."""
    b = star((7, 10**9))
    assert gauge(b) == t_gauge(b) == ls_gauge(b) == 10**9
    assert gauge_bound(b, 10**9 + 60) == 10**9 + 60


def test_one_private_table_has_a_public_bound() -> None:
    """With one private table the level is 0 and the bound is T of the public tables."""
    b = star((5, 7, 11), private=(2,))
    assert gauge(b) == 0
    assert gauge_bound(b, 0) == gauge_bound(b, 99) == local_sensitivity(b) == 55
    assert residual_sensitivity(b, Fraction(1)) == 55


def test_large_degrees_do_not_loop() -> None:
    """Degrees of a thousand million beside public tables and caps are found by bisection."""
    b = star((10**9, 10**9, 3), private=(1, 2))
    assert gauge(b) == 10**9
    known = Boundaries(
        tables=b.tables, private=frozenset("123"), values=star((10**9, 2, 2)).values, caps={frozenset("23"): 4}
    )
    assert t_gauge(known) == 10**9
    assert ls_gauge(known) is None


def test_level_zero_covers_empty_tables() -> None:
    """Empty tables have residual level 0 when RS is below 1, and the bound is 1."""
    b = star((0, 0))
    assert float(residual_sensitivity(b, Fraction(1))) == pytest.approx(math.exp(-1))
    assert residual_level(b, beta=Fraction(1), steps=4) == 0
    assert residual_bound(0, beta=Fraction(1), steps=4) == 1


def test_public_tables_that_join_to_nothing() -> None:
    """If the public tables are empty the gauge is 0; values that no instance has give infinity."""
    b = star((5, 5, 0), private=(1, 2))
    assert ls_gauge(b) == gauge_bound(b, 9) == 0
    odd = {**b.values, frozenset("13"): 2}
    assert ls_gauge(Boundaries(tables=b.tables, private=b.private, values=odd)) is None


def test_refusals() -> None:
    """Every guard says what must hold."""
    good = star((2, 2))
    with pytest.raises(ValueError, match="at least one of the tables"):
        Boundaries(tables=good.tables, private=frozenset(), values=good.values)
    with pytest.raises(ValueError, match="every proper subset"):
        Boundaries(tables=good.tables, private=good.private, values={frozenset(): 1})
    with pytest.raises(ValueError, match="1 for the empty set"):
        Boundaries(tables=good.tables, private=good.private, values={**good.values, frozenset(): 2})
    with pytest.raises(ValueError, match="caps and factors must not be negative"):
        Boundaries(tables=good.tables, private=good.private, values=good.values, caps={frozenset("1"): -1})
    with pytest.raises(ValueError, match="a declared bound is too small"):
        t_gauge(Boundaries(tables=good.tables, private=good.private, values=good.values, caps={frozenset("1"): 1}))
    with pytest.raises(ValueError, match=r"beta .* must be positive"):
        residual_sensitivity(good, Fraction(0))
    with pytest.raises(ValueError, match=r"beta .* at most 16"):
        residual_sensitivity(good, Fraction(17))
    with pytest.raises(ValueError, match=r"beta .* must be positive"):
        residual_bound(1, beta=Fraction(0), steps=1)
    with pytest.raises(ValueError, match=r"steps .* must be at least 1"):
        residual_level(good, beta=Fraction(1), steps=0)
