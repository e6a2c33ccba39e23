"""Parts of the gauge and of residual sensitivity, each against what its docstring says."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from dpjoin.privacy.gauge import _Growth, _least_below, _least_with, _need, _sorted_form, _swapped
from dpjoin.privacy.rational import exp_lower
from dpjoin.privacy.residual import form_at, local_sensitivity_at, residual_sensitivity, star

FORM = (3, 1, 4, 1, 5, 9, 2, 6)


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


def test_growth_is_the_largest_of_its_curves() -> None:
    """4 + z lies above C(z, 2) at first, and below it later."""
    growth = _Growth([((0, (4, 1)),), ((0, (0, 0, 1)),)])
    assert [growth(z) for z in range(8)] == [max(4 + z, z * (z - 1) // 2) for z in range(8)]
    assert [growth.step(z) for z in range(7)] == [growth(z + 1) - growth(z) for z in range(7)]


def test_what_a_point_needs_is_the_least_level() -> None:
    """form(s) <= G(level + sum of s) holds there and not one level below, from `at_least` on."""
    growth = _Growth([((0, (0, 0, 0, 1)),)])  # C(z, 3)
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


@pytest.mark.parametrize("degrees", [(1000, 1, 1), (7, 5), (3, 4, 5)])
@pytest.mark.parametrize("beta", [Fraction(1, 3), Fraction(1, 7)])
def test_residual_sensitivity_is_rounded_up(degrees: tuple[int, ...], beta: Fraction) -> None:
    """It is at least exp(-beta·k)·LŜ^k for every k, to 600 bits, where its own precision is 128."""
    b = star(degrees)
    reached = max(local_sensitivity_at(b, k) * exp_lower(-beta * k, bits=600) for k in range(25))
    assert reached <= residual_sensitivity(b, beta) <= reached * (1 + Fraction(1, 2**60))
