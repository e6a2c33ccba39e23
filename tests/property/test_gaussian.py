"""Gaussian composition: certified numbers against floats, and discrete Gaussians against what is claimed of them."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import special

from dpjoin.privacy.conversion import largest_rho
from dpjoin.privacy.gaussian import (
    LARGEST_DELTA,
    SLACK,
    gaussian_conversion_delta,
    largest_gaussian_rho,
    mills,
    tail_delta,
)
from support.audit import numeric_gaussian_delta
from support.gaussian import discrete_gaussian


@given(st.fractions(Fraction(1, 4), Fraction(40), max_denominator=1000))
def test_continued_fractions_enclose_the_mills_ratio(x: Fraction) -> None:
    truth = float(special.erfcx(float(x) / math.sqrt(2)) * math.sqrt(math.pi / 2))
    low, high = float(mills(x, 101)), float(mills(x, 100))
    assert low * (1 - 1e-12) <= truth <= high * (1 + 1e-12)
    assert high - low < (0.05 if x < 1 else 1e-7) * truth


@given(st.floats(0.01, 4), st.floats(0.05, 20))
def test_the_conversion_bounds_its_formula(mu: float, epsilon: float) -> None:
    assume(epsilon >= mu**2 / 2 + mu)
    truth = numeric_gaussian_delta(mu**2 / 2, epsilon)
    found = float(gaussian_conversion_delta(mu=Fraction(mu), epsilon=Fraction(epsilon)))
    if truth > 1e-14:
        assert truth * (1 - 1e-6) <= found <= truth * (1 + 1e-5)


@given(st.floats(0.01, 50), st.floats(1e-15, 1e-4))
def test_the_largest_rho_is_certified_and_nearly_optimal(epsilon: float, delta: float) -> None:
    rho = largest_gaussian_rho(epsilon=Fraction(epsilon), delta=Fraction(delta))
    mu = Fraction(math.isqrt(int(2 * rho * 2**200)), 2**100)
    kept = Fraction(epsilon) * (1 - SLACK)
    assert gaussian_conversion_delta(mu=mu, epsilon=kept) <= Fraction(delta) * (1 - SLACK)
    assert gaussian_conversion_delta(mu=mu * Fraction(1001, 1000), epsilon=Fraction(epsilon)) > Fraction(delta)
    assert rho > largest_rho(epsilon=Fraction(epsilon), delta=Fraction(delta))[0]


@given(st.fractions(Fraction(1), Fraction(10**4), max_denominator=50), st.integers(1, 8))
def test_tails_are_paid_for(variance: Fraction, deviations: int) -> None:
    """P-67: with at most half cut off, a conversion's delta below the largest grows by no more than this."""
    width = deviations * math.isqrt(math.ceil(variance))
    noise = discrete_gaussian(float(variance), 9 * math.isqrt(math.ceil(variance)) + width + 20)
    middle = len(noise) // 2
    outside = 2 * float(noise[: middle - width].sum())
    if outside <= 0.5:
        paid = float(tail_delta(variance=variance, half_width=width))
        assert float(LARGEST_DELTA) * outside / (1 - outside) <= paid * (1 + 1e-9)
