"""Certified bounds against Decimal at 80 digits, a second implementation."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpjoin.privacy.rational import _quotient, exp_lower, exp_upper, log_lower, log_upper, sqrt_lower, sqrt_upper


@pytest.mark.parametrize("x", [Fraction(-(10**6)), Fraction(-(10**100)), Fraction(-(10**30), 7)])
def test_hugely_negative_exponents_stay_cheap(x: Fraction) -> None:
    """exp of a hugely negative number is 0 from below and tiny from above, in few bits."""
    assert exp_lower(x) == 0
    assert 0 < exp_upper(x) < Fraction(1, 2**10000)
    assert exp_upper(x).denominator.bit_length() < 12000


def test_exact_points_are_exact() -> None:
    """exp(0), ln(1) and roots of squares carry no error."""
    assert exp_lower(Fraction(0)) == exp_upper(Fraction(0)) == 1
    assert log_lower(Fraction(1)) == log_upper(Fraction(1)) == 0
    assert sqrt_lower(Fraction(49, 4)) == sqrt_upper(Fraction(49, 4)) == Fraction(7, 2)
    assert sqrt_lower(Fraction(0)) == sqrt_upper(Fraction(0)) == 0


@pytest.mark.parametrize(("top", "down", "up"), [(6, 2, 2), (7, 2, 3), (0, 0, 0), (-7, -3, -2)])
def test_quotients_are_the_nearest_whole_numbers_on_either_side(top: int, down: int, up: int) -> None:
    assert (_quotient(top, 3, 0), _quotient(top, 3, 1)) == (down, up)


def test_arguments_without_a_value_are_refused() -> None:
    """ln of zero, roots of negative numbers and absurd exponents raise."""
    with pytest.raises(ValueError, match=r"x \(0\) must be positive"):
        log_lower(Fraction(0))
    with pytest.raises(ValueError, match=r"x \(-1\) must not be negative"):
        sqrt_upper(Fraction(-1))
    with pytest.raises(ValueError, match="must be at most"):
        exp_upper(Fraction(10**9))
