"""What truncated noise costs in delta: rational upper bounds in exact arithmetic.

A half-width that is one too small breaks the guarantee, and floats are not to be trusted with that one.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor, isqrt

from dpjoin.privacy.numbers import root_up
from dpjoin.privacy.rational import exp_lower, exp_upper, log_upper, positive

_SCALE = 256
"""Fractional bits of the running terms in a Gaussian sum."""

_BLOCKS = 1024
"""Blocks per standard deviation in the tail, a quarter of it in the bulk; this costs about 1 % of delta."""


def laplace_delta(*, epsilon: Fraction, sensitivity: int, half_width: int) -> Fraction:
    """An upper bound on delta of the truncated discrete Laplace with scale sensitivity/epsilon. Proof: P-13.

    Postcondition: for inputs at distance at most `sensitivity`, either way, the hockey-stick divergence of
    the two outputs at exp(epsilon) is at most the result, and at distance `sensitivity` nearly equal to it.

    >>> delta = Fraction(1, 10**6)
    >>> laplace_delta(epsilon=Fraction(1), sensitivity=1, half_width=14) <= delta
    True
    >>> laplace_delta(epsilon=Fraction(1), sensitivity=1, half_width=13) <= delta
    False
    """
    positive(epsilon=epsilon, sensitivity=sensitivity)
    if half_width < sensitivity - 1:
        raise ValueError(
            f"half_width ({half_width}) must be at least sensitivity - 1 ({sensitivity - 1}); widen the noise"
        )
    step = epsilon / sensitivity
    bits = _laplace_bits(step)
    tail = exp_upper(-(half_width + 1) * step, bits=bits)
    whole = 1 + exp_lower(-step, bits=bits) - 2 * tail
    if whole <= 0:
        return Fraction(1)
    return min(Fraction(1), tail * (exp_upper(epsilon, bits=bits) - 1) / whole)


def paper_laplace_half_width(*, epsilon: Fraction, delta: Fraction, sensitivity: int) -> int:
    """The paper's τ = (Δ/ε)·ln(1 + (e^ε - 1)/δ), rounded up. About twice as private as asked. Proof: P-15.

    >>> paper_laplace_half_width(epsilon=Fraction(1), delta=Fraction(1, 10**6), sensitivity=1)
    15
    """
    positive(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    step = epsilon / sensitivity
    bits = _laplace_bits(step)
    return ceil(log_upper(1 + (exp_upper(epsilon, bits=bits) - 1) / delta, bits=bits) / step)


def gaussian_delta(*, variance: Fraction, sensitivity: int, half_width: int) -> Fraction:
    """An upper bound on δ₁ = P[X < sensitivity] for X a truncated discrete Gaussian (TDG). Proof: P-16.

    Postcondition: for inputs at distance at most `sensitivity`, TDG noise with these parameters is
    δ₁-approximate (sensitivity²/(2·variance))-zCDP. Refused when half_width is too small for that theorem.

    >>> delta = gaussian_delta(variance=Fraction(100), sensitivity=1, half_width=50)
    >>> Fraction(1, 10**7) < delta < Fraction(2, 10**7)
    True
    """
    positive(variance=variance, sensitivity=sensitivity)
    room = half_width - sensitivity - 1
    if room < 0 or room**2 < variance:
        raise ValueError(
            f"half_width ({half_width}) must be at least sensitivity + 1 + sqrt(variance) "
            f"({sensitivity + 1 + root_up(ceil(variance))}); widen the noise"
        )
    first = half_width - sensitivity + 1
    sigma = isqrt(floor(variance))
    cap = _cap_sum(first, sensitivity, max(1, sigma // _BLOCKS), variance)
    edge = exp_upper(-(first**2) / (2 * variance)) * cap
    return min(Fraction(1), edge / _whole_sum(half_width, max(1, 4 * sigma // _BLOCKS), variance))


def _cap_sum(first: int, count: int, block: int, variance: Fraction) -> Fraction:
    """At least the sum of g(first + i)/g(first), i < count, where g(j) = exp(-j²/(2·variance)).

    Every term of a block counts as its first, which is the largest. Consecutive firsts have ratios that
    shrink by one fixed factor, so two integer products, rounded up, lead from one to the next.
    """
    one = 1 << _SCALE
    ratio = ceil(exp_upper(Fraction(-(2 * first * block + block**2)) / (2 * variance), bits=_SCALE) * one)
    shrink = ceil(exp_upper(Fraction(-(block**2)) / variance, bits=_SCALE) * one)
    term, total = one, 0
    while count > 0 and term * count >> (_SCALE - 64):
        total += min(block, count) * term
        count -= block
        term = (term * ratio >> _SCALE) + 1
        ratio = (ratio * shrink >> _SCALE) + 1
    return Fraction(total + max(0, count) * term, one)


def _whole_sum(half_width: int, block: int, variance: Fraction) -> Fraction:
    """At most the sum of g(j), |j| <= half_width: every term of a block counts as its last."""
    one = 1 << _SCALE
    ratio = floor(exp_lower(Fraction(-(block**2)) / (2 * variance), bits=_SCALE) * one)
    shrink = floor(exp_lower(Fraction(-(block**2)) / variance, bits=_SCALE) * one)
    term, total = one, 0
    for _ in range(half_width // block):
        term = term * ratio >> _SCALE
        ratio = ratio * shrink >> _SCALE
        total += block * term
        if term >> (_SCALE - 64) == 0:
            break
    return 1 + Fraction(2 * total, one)


def _laplace_bits(step: Fraction) -> int:
    """Enough bits that 1 - exp(-step) keeps 128 of them for a small step, and exp(step) for a large one."""
    return 192 + step.denominator.bit_length() + step.numerator.bit_length()
