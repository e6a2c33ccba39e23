"""How a budget is split: public numbers, fixed before any data is opened."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpjoin.measure.half_widths import one_sided
from dpjoin.privacy.accounting import Budget, Concentrated, Split, laplace_cost
from dpjoin.privacy.curator import Bound, Curator

SENSITIVITY_SHARE = Fraction(35, 100)
"""Of rho, for the noisy sensitivity bound.

The noise of everything else grows with (Delta + shift) / sqrt(1 - share), and the shift with 1 / sqrt(share).
The best share is 1/2 when degrees are tiny and falls as they grow; 0.35 is within 5 % of the best for every
largest degree from 0 to 150 at (1, 1e-6), and 14 % worse at 1000.
"""
TRUNCATION_SHARE = Fraction(1, 4)
"""Of delta, for the truncation of that bound's noise. Flat between 0.1 and 0.5."""
COUNT_SHARE = Fraction(5, 100)
"""Of what is left of rho, for the join size."""
GAUGE_SHARE = Fraction(25, 100)
"""Of rho, for a noisy bound inside each part of a partition, on top of the share for the partition's degrees."""
DYADIC = 2**40
"""Shares of rho are rounded down to multiples of 1/DYADIC times a power of two, to keep fractions short."""


@dataclass(frozen=True)
class TightShares:
    """The tight profile's split: the bound (none when it is public), then the join size, then the queries."""

    split: Split
    bound: Concentrated | None
    half_width: int | None
    """The shift of the noisy bound: it exceeds the largest degree by this much on average."""

    @property
    def count(self) -> Concentrated:
        if self.split.laplace:
            return laplace_cost(round_down(self.split.laplace * COUNT_SHARE))
        return Concentrated(round_down(self.after_bound * COUNT_SHARE))

    @property
    def after_bound(self) -> Fraction:
        return self.split.rho - (self.bound.rho if self.bound else 0)

    @property
    def queries(self) -> Fraction:
        return self.after_bound - self.count.rho


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
        return TightShares(Split(budget=budget), None, None)
    aside = budget.exact.delta * TRUNCATION_SHARE
    share = round_down(budget.rho(truncation_delta=aside) * SENSITIVITY_SHARE)
    bound, half_width = one_sided(budget, share, aside, moves=sensitivity)
    return TightShares(Split(budget=budget, truncation_delta=bound.delta), bound, half_width)


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


def partition_shares(budget: Budget, *, gauge: bool, sensitivity: int = 1, questions: int = 1) -> PartitionShares:
    """Split a budget for a partition; with `gauge` each part also gets a noisy sensitivity bound.

    `sensitivity` is how far one row moves degrees and bounds: one, unless bounds are enforced. `questions` is how many
    of the noisy degrees' questions one row can take part in.
    """
    aside = budget.exact.delta * TRUNCATION_SHARE
    rho = budget.rho(truncation_delta=aside)
    each = aside / (2 if gauge else 1)

    def one_sided_of(share: Fraction, delta: Fraction) -> tuple[Concentrated, int]:
        return one_sided(budget, round_down(share), delta, moves=sensitivity)

    degrees, degrees_width = one_sided_of(rho * SENSITIVITY_SHARE / questions, each / questions)
    bound, bound_width = one_sided_of(rho * GAUGE_SHARE, each) if gauge else (None, None)
    needed = degrees.delta * questions + (bound.delta if bound else 0)
    split = Split(budget=budget, truncation_delta=needed)
    left = split.rho - degrees.rho * questions - (bound.rho if bound else 0)
    count = Concentrated(round_down(left * COUNT_SHARE))
    return PartitionShares(split, degrees, degrees_width, bound, bound_width, count)


def results_of(curator: Curator, bound: Bound) -> float:
    """How many join results one row can change, at most."""
    return float(bound.value * curator.unit)
