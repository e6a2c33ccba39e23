"""The least half-width of one-sided noise. Ring 1 checks what comes out, so a mistake here costs accuracy only."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor, isqrt, sqrt
from statistics import NormalDist

from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import Budget, Composition, Concentrated


def one_sided(budget: Budget, rho: Fraction, delta: Fraction, *, moves: int) -> tuple[Concentrated, int]:
    """The cost, of delta at most what is given, and the half-width of truncated Gaussian noise for this rho."""
    composition = budget.composition
    width = half_width(composition, rho, delta, moves=moves)
    return Concentrated(rho, composition.truncation_delta(rho, width, moves=moves)), width


def half_width(composition: Composition, rho: Fraction, delta: Fraction, *, moves: int, values: int = 1) -> int:
    """The least half-width of truncated Gaussian noise that costs at most (rho, delta); for so many values that move.

    >>> from dpjoin.privacy.accounting import ZERO_CONCENTRATED
    >>> half_width(ZERO_CONCENTRATED, Fraction(1, 200), Fraction(1, 10**6), moves=1)
    47
    """
    if not 0 < delta < 1:
        raise BudgetError(f"delta ({delta}) of one-sided noise must be between 0 and 1")
    variance = composition.variance(values * moves**2, rho)
    square = ceil(variance)
    smallest = moves + 1 + isqrt(square - 1) + 1  # what the proof asks for: (s - moves - 1)² >= variance
    sigma = isqrt(floor(variance)) if variance > 1 << 60 else sqrt(variance)
    quantile = -NormalDist().inv_cdf(min(0.5, max(float(delta / values), 1e-300)))
    guess = moves + ceil(sigma * Fraction(quantile))

    def passes(width: int) -> bool:
        return composition.truncation_delta(rho, width, moves=moves, values=values) <= delta

    return _least(passes, smallest=smallest, guess=guess, stride=1 + isqrt(floor(variance)) // 64)


def _least(passes: Callable[[int], bool], *, smallest: int, guess: int, stride: int) -> int:
    """A half-width that passes while the one below it fails or is below `smallest`."""
    high = max(smallest, guess)
    step = stride
    while not passes(high):
        high += step
        step *= 2
    low, step = high, stride  # now walk down to one that fails, or off the end
    while low >= smallest and passes(low):
        high = low
        low -= step
        step *= 2
    low = max(low, smallest - 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high
