"""How a budget is split: public numbers, fixed before any data is opened. Ring 1 checks what comes out.

First what the budget is spent on, then the splits, then the least half-width of one-sided noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, floor, isqrt, sqrt
from statistics import NormalDist

from dpjoin import constants
from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import (
    GAUSSIAN,
    ZERO_CONCENTRATED,
    Budget,
    Composition,
    Concentrated,
    Split,
    laplace_cost,
)
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.gaussian import SMALLEST_EPSILON

DYADIC = 2**40
"""Shares of rho are rounded down to multiples of 1/DYADIC times a power of two, to keep fractions short."""


def without_choices(budget: Budget) -> Budget:
    """The same for a release that makes no choice by the exponential mechanism: Gaussian where that buys more.

    The grain of its noise matters only where one row moves a number by one and nearly all is spent on it.
    """
    if not budget.gaussian_serves:
        return budget
    epsilon, delta = budget.concentrated, budget.exact.delta
    gaussian = GAUSSIAN.largest_rho(epsilon=epsilon, delta=delta)
    other = ZERO_CONCENTRATED.largest_rho(epsilon=epsilon, delta=delta)
    return replace(budget, composition=GAUSSIAN) if gaussian > other * (1 + gaussian) else budget


def with_laplace_options(budget: Budget, shares: Sequence[Fraction]) -> Budget:
    """The same with options on these shares of epsilon as Laplace noise; not if what is left would buy nothing."""
    rest = budget.exact.epsilon * (1 - max(shares, default=Fraction(0))) - budget.laplace
    if rest < SMALLEST_EPSILON:
        return budget
    return replace(budget, options=tuple(budget.exact.epsilon * share for share in shares))


@dataclass(frozen=True)
class TightShares:
    """The tight profile's split: the bound (none when it is public), then the join size, then the queries."""

    split: Split
    bound: Concentrated | None
    half_width: int | None
    """The shift of the noisy bound: it exceeds the largest degree by this much on average."""
    count: Concentrated

    @property
    def queries(self) -> Fraction:
        return self.split.rho - (self.bound.rho if self.bound else 0) - self.count.rho


def round_down(rho: Fraction) -> Fraction:
    """A short fraction just below rho (relative error below 2^-40)."""
    if rho <= 0:
        return Fraction(0)  # which no mechanism accepts as a cost
    scale = DYADIC
    while rho * scale < DYADIC:
        scale *= 2
    return Fraction(int(rho * scale), scale)


def tight_shares(budget: Budget, *, noisy_bound: bool, sensitivity: int = 1) -> TightShares:
    """Split a budget. With a noisy bound, exactly the delta that its truncation needs is set aside.

    `sensitivity` is by how much one row can move what the bound hides: one, unless bounds are enforced.
    """
    if not noisy_bound:
        split = Split(budget=budget)
        laplace = laplace_cost(round_down(split.laplace * constants.COUNT_SHARE))
        return TightShares(split, None, None, laplace if split.laplace else _count(split.rho))
    aside = budget.exact.delta * constants.TRUNCATION_SHARE
    share = round_down(budget.rho(truncation_delta=aside) * constants.SENSITIVITY_SHARE)
    bound, half_width = one_sided(budget, share, aside, moves=sensitivity)
    split = Split(budget=budget, truncation_delta=bound.delta)
    return TightShares(split, bound, half_width, _count(split.rho - bound.rho))


def _count(left: Fraction) -> Concentrated:
    return Concentrated(round_down(left * constants.COUNT_SHARE))


@dataclass(frozen=True)
class PartitionShares:
    """The tight profile's split for a partition: noisy degrees, then per part a bound (or none), counts, queries."""

    split: Split
    degrees: Concentrated
    """Of one question; a row takes part in one."""
    degrees_width: int
    bound: Concentrated | None
    bound_width: int | None
    count: Concentrated

    @property
    def queries(self) -> Fraction:
        return self.split.rho - self.degrees.rho - (self.bound.rho if self.bound else 0) - self.count.rho


def partition_shares(budget: Budget, *, gauge: bool, sensitivity: int = 1) -> PartitionShares:
    """Split a budget for a partition; with `gauge` each part also gets a noisy sensitivity bound.

    `sensitivity` is how far one row moves degrees and bounds: one, unless bounds are enforced.
    """
    aside = budget.exact.delta * constants.TRUNCATION_SHARE
    rho = budget.rho(truncation_delta=aside)
    each = aside / (2 if gauge else 1)

    def one_sided_of(share: Fraction, delta: Fraction) -> tuple[Concentrated, int]:
        return one_sided(budget, round_down(share), delta, moves=sensitivity)

    degrees, degrees_width = one_sided_of(rho * constants.SENSITIVITY_SHARE, each)
    bound, bound_width = one_sided_of(rho * constants.GAUGE_SHARE, each) if gauge else (None, None)
    split = Split(budget=budget, truncation_delta=degrees.delta + (bound.delta if bound else 0))
    count = _count(split.rho - degrees.rho - (bound.rho if bound else 0))
    return PartitionShares(split, degrees, degrees_width, bound, bound_width, count)


def results_of(curator: Curator, bound: Bound) -> float:
    """How many join results one row can change, at most."""
    return float(bound.value * curator.unit)


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
