"""Gaussian composition: what discrete Gaussians cost together, with no detour through Rényi divergences.

A release that adds only Gaussian noise is exactly as private as one Gaussian of the same total, and that buys about
15 % more than the same costs added up as zCDP (0.0280 against 0.0244 at epsilon 1, delta 1e-6). Ours are discrete.
A discrete Gaussian whose variance is larger by a small `GRAIN` is a continuous one, rounded, but for a factor next to
one, which a little slack pays for. Truncated tails have a price in delta. Other mechanisms may not run beside them.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import erfc, exp, frexp, sqrt

from dpjoin.privacy.rational import exp_upper, positive, sqrt_lower

GRAIN = 3
"""What is added to the variance of a discrete Gaussian, in steps of its grid squared: for rounding. Proof: P-66."""
SLACK = Fraction(1, 2**16)
"""Of epsilon, and of the conversion's delta, for the factor between rounded and discrete Gaussians."""
SMALLEST_EPSILON = Fraction(1, 2**10)
LARGEST_DELTA = Fraction(1, 2**13)
"""Where the slack is enough, and the continued fractions below are close to what they stand for."""

_PI_LOWER = Fraction(314159265358979323846, 10**20)
_DEPTH = 100
_MU_BITS = 40


def gaussian_conversion_delta(*, mu: Fraction, epsilon: Fraction) -> Fraction:
    """An upper bound on Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2), for ε > μ²/2. Proof: P-65.

    Postcondition: telling N(0, 1) from N(μ, 1) is (epsilon, result)-DP.

    >>> f"{float(gaussian_conversion_delta(mu=Fraction(1, 4), epsilon=Fraction(1))):.3e}"
    '2.924e-06'
    """
    positive(mu=mu, epsilon=epsilon)
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if near <= 0:
        raise ValueError(f"epsilon ({float(epsilon):.3g}) must exceed mu²/2 ({float(mu**2 / 2):.3g})")
    density = exp_upper(-(near**2) / 2) / sqrt_lower(2 * _PI_LOWER)
    return min(Fraction(1), density * (mills(near, _DEPTH) - mills(far, _DEPTH + 1)))


@lru_cache(maxsize=256)
def largest_gaussian_rho(*, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Nearly the largest rho = μ²/2 that the slack leaves within (epsilon, delta). Proof: P-65.

    >>> f"{float(largest_gaussian_rho(epsilon=Fraction(1), delta=Fraction(1, 10**6))):.5f}"
    '0.02801'
    """
    if not (epsilon >= SMALLEST_EPSILON and 0 < delta <= LARGEST_DELTA):
        raise ValueError(f"epsilon ({float(epsilon):.3g}) is too small, or delta ({float(delta):.3g}) too large")
    kept_epsilon, kept_delta = epsilon * (1 - SLACK), delta * (1 - SLACK)
    mantissa, exponent = frexp(_guess_mu(float(kept_epsilon), float(kept_delta)))
    steps, back = int(mantissa * 2**_MU_BITS), 1
    unit = Fraction(2) ** (exponent - _MU_BITS)
    while gaussian_conversion_delta(mu=steps * unit, epsilon=kept_epsilon) > kept_delta:
        steps, back = steps - back, 2 * back
    return (steps * unit) ** 2 / 2


def tail_delta(*, variance: Fraction, half_width: int) -> Fraction:
    """What it costs in delta that truncation cuts off the tails of one discrete Gaussian. Proof: P-67.

    >>> f"{float(tail_delta(variance=Fraction(100), half_width=47)):.1e}"
    '4.8e-09'
    """
    return LARGEST_DELTA * 4 * exp_upper(-Fraction((half_width + 1) ** 2) / (2 * variance))


def mills(x: Fraction, depth: int) -> Fraction:
    """A bound of R(x) = (1 - Φ(x))/φ(x), x > 0: from above at an even depth, from below at an odd one. Proof: P-64.

    Φ and φ are those of the standard normal law. R(x) is the continued fraction 1/(x + 1/(x + 2/(x + …))), which is
    cut off after `depth` of its numerators 1, 2, …

    >>> 0 < float(mills(Fraction(4), 100) - mills(Fraction(4), 101)) < 1e-15
    True
    """
    positive(x=x)
    inside = x
    for k in range(depth, 0, -1):
        inside = x + k / inside
    return 1 / inside


def _guess_mu(epsilon: float, delta: float) -> float:
    """The μ whose conversion gives delta, in floats: a start, with no claim on privacy."""
    low, high = 0.0, sqrt(2 * epsilon)
    for _ in range(100):
        mu = (low + high) / 2
        near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        found = (erfc(near / sqrt(2)) - exp(epsilon) * erfc(far / sqrt(2))) / 2
        low, high = (mu, high) if found <= delta else (low, mu)
    return low
