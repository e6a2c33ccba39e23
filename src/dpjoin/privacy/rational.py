"""Certified rational bounds of exp, log and sqrt.

Privacy decisions must not hang on a rounding error, so they are made on rationals that provably lie on
the safe side. Every bound here is a dyadic rational at relative distance below 2**-bits from the truth.
All intermediate numbers are integers at a fixed scale, rounded outward at each step, so they stay small.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import floor, isqrt

BITS = 128
"""Relative precision of a bound when the caller does not ask for another."""

_GUARD = 32
"""Extra bits of the working scale; a series has fewer than 2**24 terms, each loses at most one unit."""

_LARGEST_EXPONENT = 1 << 20
"""exp of more than this is refused: no probability or budget comes near it."""


def exp_lower(x: Fraction, *, bits: int = BITS) -> Fraction:
    """A rational at most exp(x). Below exp(-64·bits) it is 0. Proof: P-1.

    >>> float(exp_lower(Fraction(1)))
    2.718281828459045
    >>> exp_lower(Fraction(-10**30))
    Fraction(0, 1)
    """
    return _exp_interval(x, bits)[0]


def exp_upper(x: Fraction, *, bits: int = BITS) -> Fraction:
    """A rational at least exp(x), never below 2**(-92·bits). Proof: P-1.

    >>> exp_upper(Fraction(0))
    Fraction(1, 1)
    >>> exp_upper(Fraction(1)) - exp_lower(Fraction(1)) < Fraction(1, 2**128)
    True
    """
    return _exp_interval(x, bits)[1]


def log_lower(x: Fraction, *, bits: int = BITS) -> Fraction:
    """A rational at most ln(x), x > 0. Proof: P-2.

    >>> float(log_lower(Fraction(10)))
    2.302585092994046
    """
    return _log_interval(x, bits)[0]


def log_upper(x: Fraction, *, bits: int = BITS) -> Fraction:
    """A rational at least ln(x), x > 0. Proof: P-2.

    >>> log_upper(Fraction(1))
    Fraction(0, 1)
    >>> log_upper(Fraction(1, 10)) == -log_lower(Fraction(10))
    True
    """
    return _log_interval(x, bits)[1]


def sqrt_lower(x: Fraction, *, bits: int = BITS) -> Fraction:
    """A rational at most the square root of x, x >= 0. Proof: P-3.

    >>> sqrt_lower(Fraction(9, 4))
    Fraction(3, 2)
    """
    shift = _sqrt_shift(x, bits)
    return Fraction(isqrt(floor(x * (1 << 2 * shift))), 1 << shift)


def sqrt_upper(x: Fraction, *, bits: int = BITS) -> Fraction:
    """A rational at least the square root of x, x >= 0. Proof: P-3.

    >>> sqrt_upper(Fraction(2)) ** 2 > 2 > sqrt_lower(Fraction(2)) ** 2
    True
    """
    shift = _sqrt_shift(x, bits)
    square = -floor(-x * (1 << 2 * shift))
    root = isqrt(square)
    return Fraction(root if root * root == square else root + 1, 1 << shift)


def _sqrt_shift(x: Fraction, bits: int) -> int:
    """Scale at which the integer root of x·4**shift has more than `bits` bits."""
    if x < 0:
        raise ValueError(f"x ({x}) must not be negative to have a square root")
    return max(0, bits + 2 + (x.denominator.bit_length() - x.numerator.bit_length()) // 2)


def _exp_interval(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """exp(x) = 2**k · exp(r) with r = x - k·ln 2 in [0, 1), and a Taylor sum for exp(r)."""
    if x == 0:
        return Fraction(1), Fraction(1)
    if x > _LARGEST_EXPONENT:
        raise ValueError(f"x must be at most {_LARGEST_EXPONENT} for exp(x)")
    if x < -64 * bits:  # exp(-64) < 2**-92
        return Fraction(0), Fraction(1, 1 << 92 * bits)
    precision = bits + _GUARD
    extra = abs(floor(x)).bit_length() + 2
    two_low, two_high = _log_two(precision + extra)
    scaled = floor(x * (1 << precision + extra))
    k = scaled // two_high
    if scaled - k * (two_high if k >= 0 else two_low) < 0:
        k -= 1
    rest_low = (scaled - k * (two_high if k >= 0 else two_low)) >> extra
    rest_high = ((scaled + 1 - k * (two_low if k >= 0 else two_high)) >> extra) + 1
    unit = Fraction(2) ** (k - precision)
    return _taylor_exp(rest_low, precision, up=0) * unit, _taylor_exp(rest_high, precision, up=1) * unit


def _taylor_exp(rest: int, precision: int, *, up: int) -> int:
    """A bound of exp at `rest` in [0, 1), both at scale 2**precision: from below, or (up = 1) from above."""
    term = total = 1 << precision
    n = 0
    while term > up:
        n += 1
        term = _quotient(term * rest, n << precision, up)
        total += term
    return total + up * term  # what is left out sums to less than the last term


def _log_interval(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """ln(x) = k·ln 2 + 2·atanh((m - 1)/(m + 1)) with x = m·2**k, 1 <= m < 2."""
    if x <= 0:
        raise ValueError(f"x ({x}) must be positive to have a logarithm")
    if x < 1:
        inverse_low, inverse_high = _log_interval(1 / x, bits)
        return -inverse_high, -inverse_low
    top, bottom = x.numerator, x.denominator
    k = top.bit_length() - bottom.bit_length()
    if top < bottom << k:
        k -= 1
    bottom <<= k
    part, whole = top - bottom, top + bottom
    # Near x = 1 the result is as small as part/whole: widen the scale by as many bits.
    precision = bits + _GUARD + (whole.bit_length() - part.bit_length() if k == 0 else 0)
    low, high = (2 * _atanh(part, whole, precision, up=up) + k * _log_two(precision)[up] for up in (0, 1))
    return Fraction(low, 1 << precision), Fraction(high, 1 << precision)


@lru_cache(maxsize=256)
def _log_two(precision: int) -> tuple[int, int]:
    """Integers around ln 2 · 2**precision."""
    return 2 * _atanh(1, 3, precision, up=0), 2 * _atanh(1, 3, precision, up=1)


def _atanh(part: int, whole: int, precision: int, *, up: int) -> int:
    """An integer below (up = 1: above) atanh(part/whole) · 2**precision, for 0 <= part/whole <= 1/3."""
    if part == 0:
        return 0
    power = (part << precision) // whole + up
    square = (power * power >> precision) + up
    total, n = 2 * up, 1  # the powers left out fall by 1/9 or so from one unit: less than two units
    while power > up:
        total += _quotient(power, n, up)
        power = (power * square >> precision) + up
        n += 2
    return total


def _quotient(top: int, bottom: int, up: int) -> int:
    """top/bottom, rounded down, or (up = 1) up."""
    return (top + up * (bottom - 1)) // bottom


def positive(**numbers: Fraction | int) -> None:
    """Refuse parameters that are not; a delta must be below 1 as well."""
    for name, number in numbers.items():
        if number <= 0 or (name == "delta" and number >= 1):
            raise ValueError(f"{name} ({number}) must be positive{', and below 1' if name == 'delta' else ''}")
