"""Certified bounds against Decimal at 80 digits, a second implementation."""

from __future__ import annotations

from decimal import Context, Decimal, localcontext
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dpjoin.privacy.rational import exp_lower, exp_upper, log_lower, log_upper, sqrt_lower, sqrt_upper

DIGITS = Context(prec=80, Emin=-(10**6), Emax=10**6)


SLACK = Fraction(1, 10**75)  # the reference's own error


NEAR = Fraction(1, 2**100)


small = st.fractions(min_value=-700, max_value=700, max_denominator=10**12)


positive = st.fractions(min_value=Fraction(1, 10**30), max_value=10**30)


def reference(function: str, x: Fraction) -> Fraction:
    with localcontext(DIGITS):
        return Fraction(getattr(Decimal(x.numerator) / Decimal(x.denominator), function)())


@given(small)
def test_exp_lies_between_its_bounds(x: Fraction) -> None:
    """exp_lower <= exp <= exp_upper, and they are within 2**-100 of each other."""
    low, high, true = exp_lower(x), exp_upper(x), reference("exp", x)
    assert low <= true * (1 + 700 * SLACK)
    assert true * (1 - 700 * SLACK) <= high
    assert low <= high <= low * (1 + NEAR)


@given(positive)
def test_log_lies_between_its_bounds(x: Fraction) -> None:
    """log_lower <= ln <= log_upper, with relative precision 2**-100."""
    low, high, true = log_lower(x), log_upper(x), reference("ln", x)
    assert low - SLACK * 100 <= true <= high + SLACK * 100
    assert low <= high
    assert high - low <= NEAR * abs(high)


@given(st.integers(min_value=1, max_value=200), st.sampled_from([-1, 1]))
def test_log_near_one_keeps_its_relative_precision(k: int, sign: int) -> None:
    """ln(1 ± 2**-k) is about ±2**-k and its bounds still agree to 100 bits."""
    x = 1 + sign * Fraction(1, 2**k + 1)
    low, high = log_lower(x), log_upper(x)
    assert low < high
    assert high - low <= NEAR * abs(low)
    assert 1 - 1 / x <= high  # 1 - 1/x <= ln(x) <= x - 1
    assert low <= x - 1


@given(st.fractions(min_value=0, max_value=10**40))
def test_sqrt_lies_between_its_bounds(x: Fraction) -> None:
    """The squares of the bounds enclose x tightly."""
    low, high = sqrt_lower(x), sqrt_upper(x)
    assert low**2 <= x <= high**2
    assert high - low <= NEAR * high


@given(small, st.integers(min_value=16, max_value=400))
def test_more_bits_only_tighten(x: Fraction, bits: int) -> None:
    """Bounds at any precision enclose those at a higher one, to the precision asked for."""
    low, high = exp_lower(x, bits=bits), exp_upper(x, bits=bits)
    assert low <= exp_lower(x, bits=500) <= exp_upper(x, bits=500) <= high
    assert high <= low * (1 + Fraction(2, 2**bits))


@given(small)
def test_bounds_are_short_dyadics(x: Fraction) -> None:
    """Denominators are powers of two and mantissas stay below 170 bits, whatever x looks like."""
    for bound in (exp_lower(x), exp_upper(x)):
        denominator = bound.denominator
        assert denominator & (denominator - 1) == 0
        odd = bound.numerator // (bound.numerator & -bound.numerator)
        assert odd.bit_length() < 170
