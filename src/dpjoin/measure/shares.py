"""How a budget is split: public numbers, fixed before any data is opened."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpjoin import constants
from dpjoin.measure.half_widths import one_sided
from dpjoin.privacy.accounting import Budget, Concentrated, Split, laplace_cost
from dpjoin.privacy.curator import Bound, Curator

DYADIC = 2**40
"""Shares of rho are rounded down to multiples of 1/DYADIC times a power of two, to keep fractions short."""


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
