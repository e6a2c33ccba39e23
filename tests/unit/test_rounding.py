"""Which way is rounded: bounds lie on their side of the truth by less than a unit, and margins cover the error."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import log

import numpy as np
import pytest

from dpjoin.privacy import noise
from dpjoin.privacy.rational import _atanh, _taylor_exp, exp_lower, exp_upper, log_lower, log_upper
from dpjoin.privacy.truncated import _cap_sum, _whole_sum, laplace_delta


class Ones:
    """Random bits that are all ones: a uniform number as near to 1 as its bits allow."""

    def randbits(self, k: int) -> int:
        return (1 << k) - 1


def gaussian_weights(first: int, count: int, variance: Fraction) -> list[Fraction]:
    """exp(-j²/(2·variance)) for j = first, first + 1, …, to 120 digits."""
    with localcontext() as context:
        context.prec = 120
        scale = Decimal(2 * variance.numerator) / variance.denominator
        return [Fraction((-Decimal(j * j) / scale).exp()) for j in range(first, first + count)]


VARIANCES = [Fraction(n, 7) for n in range(15, 600, 3)]


def test_the_tail_of_a_gaussian_is_never_below_its_sum() -> None:
    """With a unit of 2**-256, over 195 variances: a product rounded down would fall below in some of them."""
    for variance in VARIANCES:
        weights = gaussian_weights(3, 4, variance)
        assert _cap_sum(3, 4, 1, variance) >= sum(weights) / weights[0] * (1 - Fraction(1, 10**100)), variance


def test_the_whole_of_a_gaussian_is_never_above_its_sum() -> None:
    """Likewise from below."""
    for variance in VARIANCES:
        weights = gaussian_weights(0, 5, variance)
        assert _whole_sum(4, 1, variance) <= (2 * sum(weights) - 1) * (1 + Fraction(1, 10**100)), variance


def test_a_draw_is_kept_only_if_it_lies_surely_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """width·U with U next to 1 and width a little above exp(-1) is above exp(-1), however small that little is."""
    monkeypatch.setattr(noise, "secrets", Ones())
    width = exp_upper(Fraction(-1), bits=96)
    assert not noise._below_exp(2**32 - 1, 32, Fraction(1), width)


def test_the_margin_of_a_logarithm_covers_its_error() -> None:
    """P-8: 2**-44 of numpy's logarithm, half a unit of the bits drawn, two roundings; as a share of the scale."""
    largest = log(2.0**63 / noise._SMALL_WORD)
    error = 2.0**-44 * largest + 0.5 / noise._SMALL_WORD * (1 + 2.0**-20) + 2.0**-51 * (largest + 1)
    assert error < noise._LOG_MARGIN


def test_the_margin_of_an_exponential_covers_its_error() -> None:
    """P-9: half a unit of 32 bits and 2**-43 for numpy's exponential and its argument."""
    assert noise._EXP_MARGIN > 2.0**-33 + 2.0**-43


def test_floats_serve_where_the_proofs_say() -> None:
    """P-8, P-9: up to a scale of 2**30, and from a variance of 2**-500 to below 2**104; beyond, Python integers."""
    assert noise.DiscreteLaplace(Fraction(1 << 30))._serves_floats()
    assert not noise.DiscreteLaplace(Fraction((1 << 30) + 1))._serves_floats()
    for power, serves in ((-501, False), (-500, True), (103, True), (104, False)):
        assert noise.DiscreteGaussian(Fraction(2) ** power)._serves_floats() == serves


def test_a_variance_too_small_for_floats_gives_zeros() -> None:
    """P-9: below 2**-500 no float is divided by another that has become 0."""
    assert noise.DiscreteGaussian(Fraction(1, 1 << 1200)).many(5).tolist() == [0] * 5
    drawn = noise.DiscreteGaussian(Fraction(1, 1 << 1200), 3).many(5)
    assert drawn.tolist() == [3] * 5


@pytest.mark.parametrize("precision", range(40, 60))
def test_series_enclose_what_they_sum(precision: int) -> None:
    """exp(1/3) and atanh(1/3), in units of 2**-precision: the truth lies between, and the ends are near."""
    with localcontext() as context:
        context.prec = 60
        third, unit = Decimal(1) / 3, Decimal(2**precision)
        exponential, tangent = third.exp() * unit, (Decimal(2).ln() / 2) * unit
    rest = 2**precision // 3
    low, high = _taylor_exp(rest, precision, up=0), _taylor_exp(rest + 1, precision, up=1)
    assert low <= exponential <= high <= low + 100
    low, high = _atanh(1, 3, precision, up=0), _atanh(1, 3, precision, up=1)
    assert low <= tangent <= high <= low + 100


@pytest.mark.parametrize("x", [1, 100, 200, 1000])
def test_large_exponentials_and_their_logarithms(x: int) -> None:
    """Beyond 2**128 as below it: the bounds enclose exp(x), whose logarithm is x."""
    low, high = exp_lower(Fraction(x)), exp_upper(Fraction(x))
    assert low < high < low * (1 + Fraction(1, 2**120))
    assert log_lower(low) <= x <= log_upper(high)
    assert log_lower(high) > log_lower(low)


def test_exponents_of_wide_gaps_are_cut_off_high_up() -> None:
    """rate·gap as it is, and 2**20 where it is larger, which is 0 after exp."""
    assert noise._exponents(np.array([0, 3, 10**30], dtype=object), Fraction(1, 2)).tolist() == [0.0, 1.5, 2.0**20]
    assert noise._exponents(np.array([0, 3]), Fraction(1, 2)).tolist() == [0.0, 1.5]


def test_the_certificate_is_tight_for_a_tiny_epsilon() -> None:
    """Nearly uniform noise on 21 values: below the first shift lies one of them."""
    delta = laplace_delta(epsilon=Fraction(1, 2**300), sensitivity=1, half_width=10)
    assert Fraction(1, 21) <= delta < Fraction(1, 21) * (1 + Fraction(1, 10**9))
