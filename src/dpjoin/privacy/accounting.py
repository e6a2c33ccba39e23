"""What may be spent, what a mechanism costs, and the two accountants that refuse to overspend.

All amounts are exact fractions. A float *is* a dyadic fraction, so epsilon = 0.1 means exactly the
float 0.1; shares are fractions of that, and nothing is compared through floating point.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from dpjoin.canonical import flag, fraction, instance, items, real
from dpjoin.errors import BudgetError, SpecError
from dpjoin.privacy.conversion import advanced_composition_epsilon, largest_rho
from dpjoin.privacy.gaussian import (
    GRAIN,
    LARGEST_DELTA,
    SMALLEST_EPSILON,
    largest_gaussian_rho,
    tail_delta,
)
from dpjoin.privacy.truncated import gaussian_delta, gaussian_half_width


@dataclass(frozen=True)
class Composition:
    """How Concentrated costs add up, and what Gaussian noise a cost asks for. Proof: P-66, P-67."""

    name: str
    grain: int
    """Added to the variance, in steps of the noise's grid squared."""

    def variance(self, square: Fraction | int, rho: Fraction) -> Fraction:
        """Of the noise that hides values which one row moves so far, squared, for this rho."""
        if rho <= 0:
            raise BudgetError("Gaussian noise must have some rho to spend; nothing was drawn")
        return Fraction(square) / (2 * rho) + self.grain

    def half_width(self, rho: Fraction, delta: Fraction, *, moves: int) -> int:
        """Of truncated noise that costs at most (rho, delta)."""
        width = gaussian_half_width(variance=self.variance(moves**2, rho), delta=delta, sensitivity=moves)
        while self.truncation_delta(rho, width, moves=moves) > delta:
            width += 1
        return width

    def truncation_delta(self, rho: Fraction, half_width: int, *, moves: int) -> Fraction:
        """What truncated noise of this rho and half-width costs in delta."""
        variance = self.variance(moves**2, rho)
        tails = moves * tail_delta(variance=variance, half_width=half_width) if self.grain else 0
        return gaussian_delta(variance=variance, sensitivity=moves, half_width=half_width) + tails

    def covers(self, mechanism: str) -> bool:
        """Whether costs of this mechanism may be added up so."""
        return not self.grain or mechanism in ("discrete Gaussian", "truncated discrete Gaussian")

    def largest_rho(self, *, epsilon: Fraction, delta: Fraction) -> Fraction:
        """What (epsilon, delta) buys."""
        if self.grain:
            return largest_gaussian_rho(epsilon=epsilon, delta=delta)
        return largest_rho(epsilon=epsilon, delta=delta)[0]


ZERO_CONCENTRATED = Composition("zero-concentrated", 0)
"""For anything: Gaussian noise, and choices by the exponential mechanism."""
GAUSSIAN = Composition("Gaussian", GRAIN)
"""For Gaussian noise alone; rho is then half the square of the mu of Gaussian differential privacy."""


OPTION_SHARE = Fraction(1, 16)
"""Of delta, for each case in which rho is exchanged for Laplace noise; the rest is for the case that it is not."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The (epsilon, delta) of a whole release.

    Neighbours differ by one row added to or removed from one private table.
    """

    epsilon: float
    delta: float
    composition: Composition = field(default=ZERO_CONCENTRATED, repr=False, compare=False)
    """How the tight profile adds costs up; a release decides it by what it is going to run."""
    laplace: Fraction = field(default=Fraction(0), repr=False, compare=False)
    """Of epsilon, what the tight profile spends on Laplace noise; decided likewise."""
    options: tuple[Fraction, ...] = field(default=(), repr=False, compare=False)
    """Of epsilon, for how much Laplace noise the tight profile may exchange what is left of rho after a look: more, if
    less was spent before. One of these at most is taken."""

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, real(getattr(self, name), name))
        object.__setattr__(self, "laplace", fraction(self.laplace, "Laplace noise", negative=True))
        options = tuple(
            fraction(x, "an option on Laplace noise", negative=True) for x in items(self.options, "options")
        )
        object.__setattr__(self, "options", options)
        instance(self.composition, Composition, "composition")
        if not (math.isfinite(self.epsilon) and 0 < self.epsilon <= 50):
            raise SpecError(
                f"epsilon ({self.epsilon}) must be greater than 0 and at most 50; 1 is a common choice, "
                "more protects nobody"
            )
        if not (1e-15 <= self.delta <= 0.1):
            raise SpecError(
                f"delta ({self.delta}) must lie between 1e-15 and 0.1; choose it well below one over the number of rows"
            )
        most = self.laplace + max(self.options, default=0)
        if not 0 <= self.laplace <= most <= self.exact.epsilon or any(option <= 0 for option in self.options):
            raise SpecError(f"Laplace noise ({float(most):.3g}) must take between none and all of epsilon")
        if self.composition not in (ZERO_CONCENTRATED, GAUSSIAN):
            raise SpecError(
                f"composition ({self.composition.name!r}, grain {self.composition.grain}) must be one that is proved: "
                "zero-concentrated or Gaussian"
            )
        if self.composition.grain and not self._gaussian_serves:
            raise SpecError(
                f"Gaussian composition must have epsilon at least {float(SMALLEST_EPSILON):.3g} and delta at most "
                f"{float(LARGEST_DELTA):.3g}, not ({float(self._concentrated):.3g}, {self.delta}); use "
                "zero-concentrated composition"
            )

    @property
    def exact(self) -> Approximate:
        return Approximate(Fraction(self.epsilon), Fraction(self.delta))

    @property
    def _concentrated(self) -> Fraction:
        """Of epsilon, what is not for Laplace noise."""
        return self.exact.epsilon - self.laplace

    @property
    def _gaussian_serves(self) -> bool:
        """Whether the proofs of Gaussian composition hold: of all of delta, what truncation gets included."""
        least = self._concentrated - max(self.options, default=0)
        return least >= SMALLEST_EPSILON and self.exact.delta <= LARGEST_DELTA

    def without_choices(self) -> Budget:
        """The same for a release that makes no choice by the exponential mechanism: Gaussian where that buys more.

        The grain of its noise matters only where one row moves a number by one and nearly all is spent on it.
        """
        if not self._gaussian_serves:
            return self
        epsilon, delta = self._concentrated, self.exact.delta
        gaussian = GAUSSIAN.largest_rho(epsilon=epsilon, delta=delta)
        other = ZERO_CONCENTRATED.largest_rho(epsilon=epsilon, delta=delta)
        return replace(self, composition=GAUSSIAN) if gaussian > other * (1 + gaussian) else self

    def with_options(self, shares: Sequence[Fraction]) -> Budget:
        """The same with options on these shares of epsilon as Laplace noise; not if what is left would buy nothing."""
        rest = self.exact.epsilon * (1 - max(shares, default=Fraction(0))) - self.laplace
        if rest < SMALLEST_EPSILON:
            return self
        return replace(self, options=tuple(self.exact.epsilon * share for share in shares))

    def rho(self, *, truncation_delta: Fraction = Fraction(0)) -> Fraction:
        """What there is to spend if so much of delta is set aside for truncated noise."""
        if not self._concentrated:
            return Fraction(0)
        delta = (self.exact.delta - truncation_delta) * (1 - OPTION_SHARE * len(self.options))
        return self.composition.largest_rho(epsilon=self._concentrated, delta=delta)

    def rho_before_exchange(self, option: Fraction, *, truncation_delta: Fraction = Fraction(0)) -> Fraction:
        """What there is to spend, all in all, where the rest is exchanged for so much Laplace noise."""
        delta = (self.exact.delta - truncation_delta) * OPTION_SHARE
        return self.composition.largest_rho(epsilon=self._concentrated - option, delta=delta)

    def one_sided(self, rho: Fraction, delta: Fraction, *, moves: int) -> tuple[Concentrated, int]:
        """The cost, of delta at most what is given, and the half-width of truncated noise for this rho."""
        width = self.composition.half_width(rho, delta, moves=moves)
        return Concentrated(rho, self.composition.truncation_delta(rho, width, moves=moves)), width


class Exact:
    """Amounts that add up without error: no float, of which nan is one, and nothing negative."""

    def __post_init__(self) -> None:
        for name, amount in tuple(vars(self).items()):
            object.__setattr__(self, name, fraction(amount, name, error=BudgetError))


@dataclass(frozen=True)
class Pure(Exact):
    """epsilon-differential privacy, inside a reserved block of rounds."""

    epsilon: Fraction


@dataclass(frozen=True)
class Approximate(Exact):
    """(epsilon, delta)-differential privacy."""

    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True)
class Concentrated(Exact):
    """delta-approximate rho-zero-concentrated differential privacy; with Gaussian composition mu²/2 for rho.

    Beside it stands an epsilon of Laplace noise, which adds up by itself.
    """

    rho: Fraction
    delta: Fraction = Fraction(0)
    epsilon: Fraction = Fraction(0)


def laplace_cost(epsilon: Fraction) -> Concentrated:
    """Of Laplace noise alone."""
    return Concentrated(Fraction(0), epsilon=epsilon)


Cost = Pure | Approximate | Concentrated


@dataclass(frozen=True, kw_only=True)
class Split:
    """A budget and how a method divides it: public numbers, from which a Curator makes its own accountant.

    Of the budget's delta, `truncation_delta` is set aside for truncated noise. `paper`: stages add up as in the paper.
    """

    budget: Budget
    truncation_delta: Fraction = Fraction(0)
    paper: bool = False

    def __post_init__(self) -> None:
        instance(self.budget, Budget, "the budget of a split", error=BudgetError)
        aside = fraction(self.truncation_delta, "truncation_delta", error=BudgetError)
        object.__setattr__(self, "truncation_delta", aside)
        object.__setattr__(self, "paper", flag(self.paper, "paper", error=BudgetError))
        if aside > self.budget.exact.delta:
            raise BudgetError(f"truncation_delta ({float(aside):.3g}) must be at most the budget's delta")

    @cached_property
    def rho(self) -> Fraction:
        """What there is to spend in the tight profile."""
        return self.budget.rho(truncation_delta=self.truncation_delta)

    @property
    def laplace(self) -> Fraction:
        """What there is of Laplace noise, without an exchange."""
        return self.budget.laplace

    @cached_property
    def options(self) -> tuple[Concentrated, ...]:
        """What each exchange for Laplace noise leaves in all, with what is spent before."""
        aside = self.truncation_delta
        return tuple(
            Concentrated(self.budget.rho_before_exchange(option, truncation_delta=aside), epsilon=option)
            for option in self.budget.options
        )


class ConcentratedAllowance:
    """Adds up rho, delta and epsilon, and refuses what exceeds the given amounts. Proof: P-23, P-69."""

    def __init__(
        self,
        rho: Fraction,
        truncation_delta: Fraction,
        composition: Composition = ZERO_CONCENTRATED,
        laplace: Fraction = Fraction(0),
    ) -> None:
        given = Concentrated(rho, truncation_delta, laplace)  # which refuses what is not exact
        self.rho, self.truncation_delta, self.laplace = given.rho, given.delta, given.epsilon
        self.composition = composition
        self._spent = Concentrated(Fraction(0))

    @property
    def name(self) -> str:
        return self.composition.name

    @property
    def left(self) -> Fraction:
        """The rho that is not spent yet."""
        return self.rho - self._spent.rho

    @property
    def laplace_left(self) -> Fraction:
        """The epsilon of Laplace noise that is not spent yet."""
        return self.laplace - self._spent.epsilon

    def spend(self, cost: Cost) -> None:
        """Record a charge, or raise BudgetError and record nothing."""
        if not isinstance(cost, Concentrated):
            raise BudgetError(f"a {type(cost).__name__} charge needs the paper's accountant; use Concentrated")
        before = self._spent
        after = Concentrated(before.rho + cost.rho, before.delta + cost.delta, before.epsilon + cost.epsilon)
        if after.rho > self.rho or after.delta > self.truncation_delta or after.epsilon > self.laplace:
            raise BudgetError(
                f"a charge of rho {float(cost.rho):.3g}, delta {float(cost.delta):.3g} and epsilon "
                f"{float(cost.epsilon):.3g} exceeds what is left ({float(self.left):.3g}, "
                f"{float(self.truncation_delta - before.delta):.3g}, {float(self.laplace_left):.3g}); nothing was drawn"
            )
        self._spent = after

    def reserve(self, count: int, each: Pure, cost: Approximate) -> None:
        raise BudgetError("rounds are reserved with the paper's accountant only")


class ConcentratedAccountant(ConcentratedAllowance):
    """An allowance that follows from a budget by one conversion. Proof: P-23, P-69.

    Of the budget's delta, `truncation_delta` is set aside for truncated noise, and of its epsilon what is for Laplace
    noise; the rest pays for the conversion and fixes how much rho there is.
    """

    def __init__(self, split: Split) -> None:
        budget = split.budget
        super().__init__(split.rho, split.truncation_delta, budget.composition, budget.laplace)
        self._options = split.options

    @property
    def options(self) -> tuple[Concentrated, ...]:
        """What each exchange leaves in all, with what is spent before."""
        return self._options

    @property
    def offer(self) -> Concentrated | None:
        """What an exchange for Laplace noise would leave to spend; None where there is none to be had, or no more."""
        best = self._best_option
        return None if best is None else Concentrated(best.rho - self._spent.rho, epsilon=best.epsilon)

    @property
    def _best_option(self) -> Concentrated | None:
        """The most Laplace noise of the options for which not too much was spent."""
        open_still = [o for o in self._options if self._spent.rho <= o.rho]
        return max(open_still, key=lambda o: o.epsilon, default=None)

    def exchange(self) -> None:
        """Give up most of rho for Laplace noise, once. Proof: P-70."""
        best = self._best_option
        if best is None:
            raise BudgetError("rho must be exchanged where that was planned, and before too much of it is spent")
        self.rho, self.laplace, self._options = best.rho, self.laplace + best.epsilon, ()


class PaperAccountant:
    """Basic composition of (epsilon, delta) stages; one stage is a block of rounds under advanced composition.

    Proof: P-24.
    """

    name = "paper"

    def __init__(self, budget: Budget | Approximate) -> None:
        self.whole = budget.exact if isinstance(budget, Budget) else budget
        self._spent = Approximate(Fraction(0), Fraction(0))
        self._each: Pure | None = None
        self._rounds = 0

    def spend(self, cost: Cost) -> None:
        """Record a charge, or raise BudgetError and record nothing."""
        if isinstance(cost, Pure):
            if self._rounds < 1 or cost != self._each:
                raise BudgetError("a round must be reserved before it is spent; nothing was drawn")
            self._rounds -= 1
            return
        if not isinstance(cost, Approximate):
            raise BudgetError(f"a {type(cost).__name__} charge needs the concentrated accountant; use Approximate")
        after = Approximate(self._spent.epsilon + cost.epsilon, self._spent.delta + cost.delta)
        whole = self.whole
        if after.epsilon > whole.epsilon or after.delta > whole.delta:
            raise BudgetError(
                f"a charge of ({float(cost.epsilon):.3g}, {float(cost.delta):.3g}) exceeds what is left of "
                f"({float(whole.epsilon):g}, {float(whole.delta):g}); nothing was drawn"
            )
        self._spent = after

    def reserve(self, count: int, each: Pure, cost: Approximate) -> None:
        """Pay once for `count` mechanisms of `each`; advanced composition certifies that `cost` is enough."""
        if advanced_composition_epsilon(count=count, epsilon_each=each.epsilon, delta=cost.delta) > cost.epsilon:
            raise BudgetError(
                f"{count} rounds of epsilon {float(each.epsilon):.3g} do not fit into "
                f"({float(cost.epsilon):.3g}, {float(cost.delta):.3g}); reserve fewer or smaller rounds"
            )
        if self._rounds:
            raise BudgetError("rounds are already reserved; spend them first")
        self.spend(cost)
        self._each, self._rounds = each, count


Accountant = ConcentratedAllowance | PaperAccountant


def accountant_of(split: Split) -> Accountant:
    """The accountant of a whole release. Proof: P-74."""
    if split.paper:
        return PaperAccountant(split.budget)
    return ConcentratedAccountant(split)
