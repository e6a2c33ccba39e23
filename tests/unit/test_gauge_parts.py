"""Parts of the gauge and of residual sensitivity, each against what its docstring says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate, combinations, product

import numpy as np
import pytest

from dpjoin.privacy.gauge import (
    Boundaries,
    Curve,
    _added,
    _at,
    _at_points,
    _bounded_sum,
    _chosen,
    _first_violation,
    _Growth,
    _layout,
    _least_below,
    _least_with,
    _need,
    _running_least,
    _sign_changes,
    _sorted_form,
    _swapped,
    _tidy,
    _times,
    gauge_bound,
    ls_gauge,
)
from dpjoin.privacy.rational import exp_lower
from dpjoin.privacy.residual import (
    _forms,
    form_at,
    local_sensitivity,
    majorant,
    moved_form,
    residual_sensitivity,
    sensitivity_forms,
    star,
    variable_count,
)

FORM = (3, 1, 4, 1, 5, 9, 2, 6)


def splits(k: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Whole numbers that sum to k."""
    if parts == 1:
        yield (k,)
    else:
        yield from ((first, *rest) for first in range(k + 1) for rest in splits(k - first, parts - 1))


def local_sensitivity_at(b: Boundaries, k: int) -> int:
    """LŜ^k: the largest value of the forms at points that sum to k."""
    return max(
        min(form_at(form, point) for form in forms)
        for forms in sensitivity_forms(b)
        for point in splits(k, variable_count(forms[0]))
    )


@pytest.mark.parametrize("bit", [0, 1])
def test_swapped_variables_change_places(bit: int) -> None:
    """The form with two variables exchanged has, at a point with the same two exchanged, the same value."""
    for point in product(range(3), repeat=3):
        other = list(point)
        other[bit], other[bit + 1] = point[bit + 1], point[bit]
        assert form_at(_swapped(FORM, bit), other) == form_at(FORM, point)


def test_sorted_forms_are_the_same_up_to_names() -> None:
    """Forms that differ in the names of their variables only become one."""
    assert len({_sorted_form(FORM), _sorted_form(_swapped(FORM, 0)), _sorted_form(_swapped(FORM, 1))}) == 1


def test_what_a_point_needs_is_the_least_level() -> None:
    """form(s) <= G(level + sum of s) holds there and not one level below, from `at_least` on."""
    growth = _Growth(1, 3)
    for point in product(range(3), repeat=3):
        value, total = form_at(FORM, point), sum(point)
        for at_least in (0, 2, 9):
            need = _need(FORM, point, growth, at_least)
            assert value <= growth(need + total)
            assert need == at_least or value > growth(need - 1 + total)


def test_searches_find_the_least() -> None:
    """By doubling from a start, and by bisection up to an end, which is returned if nothing before it holds."""
    for least in range(20):
        assert _least_with(lambda n, least=least: n >= least, 3) == max(3, least)
        assert _least_below(lambda n, least=least: n >= least, 11) == min(11, least)


def test_a_violation_is_found_where_there_is_one() -> None:
    """A line above the growth somewhere in a box, in loops over all its points; also where its ends are below."""
    rng, found = np.random.default_rng(7), [0, 0]
    for _ in range(400):
        variables = int(rng.integers(1, 4))
        widths, slopes = (tuple(int(x) for x in rng.integers(0, top, variables)) for top in (6, 30))
        constant, unit, z = int(rng.integers(0, 12)), int(rng.integers(1, 4)), int(rng.integers(0, 9))
        growth = _Growth(1, int(rng.integers(1, 4)))

        def violated(u: Sequence[int]) -> bool:
            above = constant + sum(slope * n for slope, n in zip(slopes, u, strict=True))  # noqa: B023
            return above > unit * growth(z + sum(u))  # noqa: B023

        point = _first_violation(constant, slopes, unit, widths, growth, z)
        there = any(violated(u) for u in product(*(range(w + 1) for w in widths)))
        assert (point is not None) == there
        if point is not None:
            assert violated(point)
            assert all(n <= width for n, width in zip(point, widths, strict=True))
        found[there] += 1
    assert min(found) > 40


@pytest.mark.parametrize("variables", [1, 2, 3, 4])
def test_corners_and_pairs_of_sides(variables: int) -> None:
    """Each corner once; for each pair of sides a sign by which corners enter their mixed difference."""
    corners, signs, members = _layout(variables)
    assert sorted(map(tuple, corners.tolist())) == sorted(product((0.0, 1.0), repeat=variables))
    pairs = [tuple(np.flatnonzero(row)) for row in members]
    assert pairs == list(combinations(range(variables), 2))
    for (i, j), row in zip(pairs, signs, strict=True):
        assert row.tolist() == [1.0 if corner[i] == corner[j] else -1.0 for corner in corners]


def test_residual_sensitivity_of_numbers_beyond_floats() -> None:
    """One table's partners are few and another's are 10^400: the larger one counts."""
    huge, beta = 10**400, Fraction(1, 3)
    b = star((huge, 1))
    bounded = Boundaries(tables=b.tables, private=b.private, values=b.values, caps={frozenset("2"): 5})
    for known in (b, bounded):
        assert residual_sensitivity(known, beta) >= huge
        assert residual_sensitivity(known, beta) <= huge + 1


@pytest.mark.parametrize("degrees", [(1000, 1, 1), (7, 5), (3, 4, 5)])
@pytest.mark.parametrize("beta", [Fraction(1, 3), Fraction(1, 7)])
def test_residual_sensitivity_is_rounded_up(degrees: tuple[int, ...], beta: Fraction) -> None:
    """It is at least exp(-beta·k)·LŜ^k for every k, to 600 bits, where its own precision is 128."""
    b = star(degrees)
    reached = max(local_sensitivity_at(b, k) * exp_lower(-beta * k, bits=600) for k in range(25))
    assert reached <= residual_sensitivity(b, beta) <= reached * (1 + Fraction(1, 2**60))


# Curves ---------------------------------------------------------------------------------------------------------

LAST = 40


RNG = np.random.default_rng(0)


def curve(*, least: int = -3) -> Curve:
    """Up to four pieces of degree up to two, with small whole numbers."""
    starts = sorted({0, *(int(x) for x in RNG.integers(1, 12, size=int(RNG.integers(0, 4))))})
    return tuple(
        (start, tuple(int(c) for c in RNG.integers(least, 4, size=int(RNG.integers(1, 4))))) for start in starts
    )


PAIRS = [(curve(), curve()) for _ in range(150)]


def values(of: Curve) -> list[int]:
    return [_at(of, z) for z in range(LAST)]


def test_curves_are_combined_point_by_point() -> None:
    """Largest, least, sum and multiple, and the same curve with fewer pieces."""
    for one, two in PAIRS:
        both = list(zip(values(one), values(two), strict=True))
        assert values(_chosen(one, two, larger=True)) == [max(pair) for pair in both]
        assert values(_chosen(one, two, larger=False)) == [min(pair) for pair in both]
        assert values(_added(one, two)) == [sum(pair) for pair in both]
        assert values(_times(one, -2)) == [-2 * x for x in values(one)]
        assert values(_tidy(one)) == values(one)
        assert len(_tidy(one)) <= len(one)


def test_the_running_least_is_the_least_so_far() -> None:
    """0 at 0, and from there the least of 0 and the values from 1 on."""
    for one, _ in PAIRS:
        assert values(_running_least(one)) == [0, *accumulate([min(0, values(one)[1]), *values(one)[2:]], min)]


def test_a_bounded_sum_takes_steps_up_to_its_ceilings() -> None:
    """P(0) = 0 and P(z + 1) = min(ceilings(z + 1), P(z) + steps(z))."""
    for steps, one in PAIRS:
        for ceilings in ([], [one], [one, steps]):
            expected = [0]
            for z in range(LAST - 1):
                expected.append(min([expected[-1] + _at(steps, z), *(_at(ceiling, z + 1) for ceiling in ceilings)]))
            assert values(_bounded_sum(steps, ceilings)) == expected


def test_sign_changes_are_where_the_sign_changes() -> None:
    """Of polynomials of degree up to three, within a length and without one."""
    for _ in range(200):
        piece = tuple(int(c) for c in RNG.integers(-9, 10, size=4))
        signs = [_at(((0, piece),), z) >= 0 for z in range(200)]
        changes = [z for z in range(1, 200) if signs[z] != signs[z - 1]]
        assert _sign_changes(piece, None) == changes
        assert _sign_changes(piece, 7) == [z for z in changes if z < 7]


def test_forms_at_many_points_are_forms_at_each() -> None:
    """In floats, as in whole numbers."""
    points = np.array(list(product(range(4), repeat=3)), dtype=np.float64)
    found = _at_points(np.array(FORM, dtype=np.float64), points)
    assert found.tolist() == [form_at(FORM, [int(x) for x in point]) for point in points]


@pytest.mark.parametrize(
    "values",
    [
        {"a": 3, "b": 0, "c": 137, "ab": 159, "ac": 3, "bc": 0},
        {"a": 1, "b": 2, "c": 30, "ab": 40, "ac": 1, "bc": 2},
        {"a": 5, "b": 5, "c": 5, "ab": 25, "ac": 25, "bc": 25},
    ],
)
def test_the_gauge_holds_far_away(values: dict[str, int]) -> None:
    """The least level with LŜ^k <= G(level + k) for every k: the worst k can be far out, where terms of k rule."""
    subsets = {frozenset(): 1, **{frozenset(names): value for names, value in values.items()}}
    b = Boundaries(tables=("a", "b", "c"), private=frozenset("abc"), values=subsets)
    level = ls_gauge(b)
    assert level is not None
    gaps = [[gauge_bound(b, at + k) - local_sensitivity_at(b, k) for k in range(130)] for at in (level, level - 1)]
    assert min(gaps[0]) >= 0 > min(gaps[1])


def test_local_sensitivity_is_that_of_the_worst_table() -> None:
    """A row of the second or third table joins the 1000 rows of the first; one of the first, a single one."""
    assert local_sensitivity(star((1000, 1, 1))) == 1000
    assert local_sensitivity(star((1000, 1, 1), private=[1])) == 1


def test_a_majorant_is_nowhere_below_its_form() -> None:
    """At all points of a box, and equal at its lowest corner."""
    widths, low = (2, 3, 1), (1, 0, 2)
    constant, slopes, unit = majorant(moved_form(FORM, low), widths)
    assert constant == unit * form_at(FORM, low)
    for u in product(*(range(width + 1) for width in widths)):
        value = form_at(FORM, [x + y for x, y in zip(low, u, strict=True)])
        assert constant + sum(x * y for x, y in zip(slopes, u, strict=True)) >= unit * value


def test_of_several_chains_of_factors_the_least_counts() -> None:
    """r then s costs 2·3, s then r costs 5·4; nothing else is as small, so one form is left."""
    rs, r, s, none = (frozenset(tables) for tables in ("rs", "r", "s", ""))
    factors = ((rs, "s", 2), (rs, "r", 5), (r, "r", 3), (s, "s", 4))
    values = {**{frozenset(some): 100 for n in (1, 2) for some in combinations("prs", n)}, none: 1}
    b = Boundaries(tables=("p", "r", "s"), private=frozenset("p"), values=values, caps={}, factors=factors)
    assert _forms(b, rs) == [(6,)]
