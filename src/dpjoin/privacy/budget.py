"""What may be spent, what a mechanism costs, and the two accountants that refuse to overspend.

All amounts are exact fractions. A float *is* a dyadic fraction, so epsilon = 0.1 means exactly the
float 0.1; shares are fractions of that, and nothing is compared through floating point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction

from dpjoin.errors import BudgetError, SpecError
from dpjoin.privacy.accountant import advanced_composition_epsilon, largest_rho
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


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The (epsilon, delta) of a whole release.

    Neighbours differ by one row added to or removed from one private table.
    """

    epsilon: float
    delta: float
    composition: Composition = field(default=ZERO_CONCENTRATED, repr=False, compare=False)
    """How the tight profile adds costs up; a release decides it by what it is going to run."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and 0 < self.epsilon <= 50):
            raise SpecError(
                f"epsilon ({self.epsilon}) must be greater than 0 and at most 50; 1 is a common choice, "
                "more protects nobody"
            )
        if not (1e-15 <= self.delta <= 0.1):
            raise SpecError(
                f"delta ({self.delta}) must lie between 1e-15 and 0.1; choose it well below one over the number of rows"
            )

        if self.composition.grain and not self._gaussian_serves:
            raise SpecError(
                f"Gaussian composition must have epsilon at least {float(SMALLEST_EPSILON):.3g} and delta at most "
                f"{float(LARGEST_DELTA):.3g}, not ({self.epsilon}, {self.delta}); use zero-concentrated composition"
            )

    @property
    def exact(self) -> Approximate:
        return Approximate(Fraction(self.epsilon), Fraction(self.delta))

    @property
    def _gaussian_serves(self) -> bool:
        """Whether the proofs of Gaussian composition hold: of all of delta, what truncation gets included."""
        return self.exact.epsilon >= SMALLEST_EPSILON and self.exact.delta <= LARGEST_DELTA

    def without_choices(self) -> Budget:
        """The same for a release that makes no choice by the exponential mechanism: Gaussian where that buys more.

        The grain of its noise matters only where one row moves a number by one and nearly all is spent on it.
        """
        whole = self.exact
        if not self._gaussian_serves:
            return self
        gaussian = GAUSSIAN.largest_rho(epsilon=whole.epsilon, delta=whole.delta)
        other = ZERO_CONCENTRATED.largest_rho(epsilon=whole.epsilon, delta=whole.delta)
        return replace(self, composition=GAUSSIAN) if gaussian > other * (1 + gaussian) else self

    def rho(self, *, truncation_delta: Fraction = Fraction(0)) -> Fraction:
        """What there is to spend if so much of delta is set aside for truncated noise."""
        return self.composition.largest_rho(epsilon=self.exact.epsilon, delta=self.exact.delta - truncation_delta)

    def one_sided(self, rho: Fraction, delta: Fraction, *, moves: int) -> tuple[Concentrated, int]:
        """The cost, of delta at most what is given, and the half-width of truncated noise for this rho."""
        width = self.composition.half_width(rho, delta, moves=moves)
        return Concentrated(rho, self.composition.truncation_delta(rho, width, moves=moves)), width


@dataclass(frozen=True)
class Pure:
    """epsilon-differential privacy, inside a reserved block of rounds."""

    epsilon: Fraction


@dataclass(frozen=True)
class Approximate:
    """(epsilon, delta)-differential privacy."""

    epsilon: Fraction
    delta: Fraction


@dataclass(frozen=True)
class Concentrated:
    """delta-approximate rho-zero-concentrated differential privacy; with Gaussian composition mu²/2 for rho."""

    rho: Fraction
    delta: Fraction = Fraction(0)


Cost = Pure | Approximate | Concentrated


class ConcentratedAllowance:
    """Adds up rho and delta, and refuses what exceeds the given amounts. Proof: P-23."""

    def __init__(self, rho: Fraction, truncation_delta: Fraction, composition: Composition = ZERO_CONCENTRATED) -> None:
        self.rho = rho
        self.truncation_delta = truncation_delta
        self.composition = composition
        self._spent = Concentrated(Fraction(0))

    @property
    def name(self) -> str:
        return self.composition.name

    @property
    def left(self) -> Fraction:
        """The rho that is not spent yet."""
        return self.rho - self._spent.rho

    def spend(self, cost: Cost) -> None:
        """Record a charge, or raise BudgetError and record nothing."""
        if not isinstance(cost, Concentrated):
            raise BudgetError(f"a {type(cost).__name__} charge needs the paper's accountant; use Concentrated")
        if cost.rho < 0 or cost.delta < 0:
            raise BudgetError("a charge must not be negative")
        after = Concentrated(self._spent.rho + cost.rho, self._spent.delta + cost.delta)
        if after.rho > self.rho or after.delta > self.truncation_delta:
            raise BudgetError(
                f"a charge of rho {float(cost.rho):.3g}, delta {float(cost.delta):.3g} exceeds what is left "
                f"({float(self.left):.3g}, {float(self.truncation_delta - self._spent.delta):.3g}); nothing was drawn"
            )
        self._spent = after

    def reserve(self, count: int, each: Pure, cost: Approximate) -> None:
        raise BudgetError("rounds are reserved with the paper's accountant only")


class ConcentratedAccountant(ConcentratedAllowance):
    """An allowance that follows from a budget by one conversion. Proof: P-23.

    Of the budget's delta, `truncation_delta` is set aside for truncated noise; the rest pays for the
    conversion and fixes how much rho there is.
    """

    def __init__(self, budget: Budget, *, truncation_delta: Fraction = Fraction(0)) -> None:
        self.budget = budget
        super().__init__(budget.rho(truncation_delta=truncation_delta), truncation_delta, budget.composition)


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
        if cost.epsilon < 0 or cost.delta < 0:
            raise BudgetError("a charge must not be negative")
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
