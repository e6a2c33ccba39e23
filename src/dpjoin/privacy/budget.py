"""What may be spent, what a mechanism costs, and the two accountants that refuse to overspend.

All amounts are exact fractions. A float *is* a dyadic fraction, so epsilon = 0.1 means exactly the
float 0.1; shares are fractions of that, and nothing is compared through floating point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpjoin.errors import BudgetError, SpecError
from dpjoin.privacy.accountant import advanced_composition_epsilon, largest_rho


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The (epsilon, delta) of a whole release.

    Neighbours differ by one row added to or removed from one private table.
    """

    epsilon: float
    delta: float

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

    @property
    def exact(self) -> Approximate:
        return Approximate(Fraction(self.epsilon), Fraction(self.delta))


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
    """delta-approximate rho-zero-concentrated differential privacy."""

    rho: Fraction
    delta: Fraction = Fraction(0)


Cost = Pure | Approximate | Concentrated


class ConcentratedAllowance:
    """Adds up rho and delta, and refuses what exceeds the given amounts. Proof: P-23."""

    name = "zero-concentrated"

    def __init__(self, rho: Fraction, truncation_delta: Fraction) -> None:
        self.rho = rho
        self.truncation_delta = truncation_delta
        self._spent = Concentrated(Fraction(0))

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
        self.conversion_delta = budget.exact.delta - truncation_delta
        rho, self.order = largest_rho(epsilon=budget.exact.epsilon, delta=self.conversion_delta)
        super().__init__(rho, truncation_delta)


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
