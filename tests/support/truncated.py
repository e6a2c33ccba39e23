"""Truncated noise in decimals of sixty digits."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import count
from math import floor, isqrt

from dpjoin.measure.shares import half_width as least_half_width
from dpjoin.privacy.accounting import ZERO_CONCENTRATED
from dpjoin.privacy.truncated import (
    laplace_delta,
)


def gaussian_half_width(*, variance: Fraction, delta: Fraction, sensitivity: int) -> int:
    """As ring 3 looks for it."""
    return least_half_width(ZERO_CONCENTRATED, Fraction(sensitivity**2) / (2 * variance), delta, moves=sensitivity)


def gaussian_smallest_half_width(*, variance: Fraction, sensitivity: int) -> int:
    """What the theorem asks for, whatever delta is."""
    return next(s for s in count(sensitivity + 1 + isqrt(floor(variance))) if (s - sensitivity - 1) ** 2 >= variance)


def laplace_half_width(*, epsilon: Fraction, delta: Fraction, sensitivity: int) -> int:
    """The least that passes, by bisection."""
    low, high = sensitivity - 2, sensitivity - 1
    while laplace_delta(epsilon=epsilon, sensitivity=sensitivity, half_width=high) > delta:
        low, high = high, 2 * high + 1
    while high - low > 1:
        middle = (low + high) // 2
        passes = laplace_delta(epsilon=epsilon, sensitivity=sensitivity, half_width=middle) <= delta
        low, high = (low, middle) if passes else (middle, high)
    return high


LAPLACE_GRID = [
    (Fraction(epsilon), Fraction(delta), sensitivity)
    for epsilon in ("0.1", "1", "3")
    for delta in ("1e-3", "1e-6", "1e-12")
    for sensitivity in (1, 2, 7)
]


def decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)
