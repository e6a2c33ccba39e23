"""What may be spent, what a mechanism costs, and the two accountants that refuse to overspend.

All amounts are exact fractions. A float *is* a dyadic fraction, so epsilon = 0.1 means exactly the
float 0.1; shares are fractions of that, and nothing is compared through floating point.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import cached_property

from dpjoin.canonical import flag, fraction, instance, items, real
from dpjoin.errors import BudgetError, SpecError
from dpjoin.privacy.conversion import advanced_composition_epsilon, largest_rho
from dpjoin.privacy.gaussian import GRAIN, LARGEST_DELTA, SMALLEST_EPSILON, largest_gaussian_rho, tail_delta
from dpjoin.privacy.truncated import gaussian_delta


class Composition(Enum):
    """How Concentrated costs add up, and what Gaussian noise a cost asks for: there are two. Proof: P-66, P-67."""

    ZERO_CONCENTRATED = "zero-concentrated"
    """For anything: Gaussian noise, and choices by the exponential mechanism."""
    GAUSSIAN = "Gaussian"
    """For Gaussian noise alone; rho is then half the square of the mu of Gaussian differential privacy."""

    @property
    def grain(self) -> int:
        """Added to the variance, in steps of the noise's grid squared."""
        return GRAIN if self is Composition.GAUSSIAN else 0

    def variance(self, square: Fraction | int, rho: Fraction) -> Fraction:
        """Of the noise that hides values which one row moves so far, squared, for this rho."""
        if rho <= 0:
            raise BudgetError("Gaussian noise must have some rho to spend; nothing was drawn")
        return Fraction(square) / (2 * rho) + self.grain

    def truncation_delta(self, rho: Fraction, half_width: int, *, moves: int, values: int = 1) -> Fraction:
        """What truncated noise of this rho and half-width costs in delta, where so many values move so far each."""
        variance = self.variance(values * moves**2, rho)
        tails = moves * tail_delta(variance=variance, half_width=half_width) if self.grain else 0
        return values * (gaussian_delta(variance=variance, sensitivity=moves, half_width=half_width) + tails)

    def covers(self, mechanism: str) -> bool:
        """Whether costs of this mechanism may be added up so."""
        return not self.grain or mechanism in ("discrete Gaussian", "truncated discrete Gaussian")

    def largest_rho(self, *, epsilon: Fraction, delta: Fraction) -> Fraction:
        """What (epsilon, delta) buys."""
        if self.grain:
            return largest_gaussian_rho(epsilon=epsilon, delta=delta)
        return largest_rho(epsilon=epsilon, delta=delta)[0]


ZERO_CONCENTRATED, GAUSSIAN = Composition
PAPER = "paper"
"""What the ledger calls the paper's way of adding up: (epsilon, delta) stages, and blocks of rounds."""
OPTION_SHARE = Fraction(1, 16)
"""Of delta, for each case in which rho is exchanged for Laplace noise; the rest is for the case that it is not."""


@dataclass(frozen=True)
class Budget:
    """The (epsilon, delta) of a whole release.

    Neighbours differ by one row added to or removed from one private table.
    """

    epsilon: float = math.nan
    delta: float = math.nan
    """Both have to be given: what is no number, as these are, is refused in our words."""
    _: KW_ONLY
    composition: Composition = field(default=ZERO_CONCENTRATED, repr=False, compare=False)
    """How the tight profile adds costs up; a release decides it by what it is going to run."""
    laplace: Fraction = field(default=Fraction(0), repr=False, compare=False)
    """Of epsilon, what the tight profile spends on Laplace noise; decided likewise."""
    options: tuple[Fraction, ...] = field(default=(), repr=False, compare=False)
    """Of epsilon, for how much Laplace noise the tight profile may exchange what is left of rho after a look: more, if
    less was spent before. One of these at most is taken."""
    domains: Concentrated | None = field(default=None, repr=False, compare=False)
    """What the tight profile spends on learning domains, before anything else."""

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, real(getattr(self, name), name))
        object.__setattr__(self, "laplace", fraction(self.laplace, "Laplace noise", negative=True))
        options = tuple(
            fraction(x, "an option on Laplace noise", negative=True) for x in items(self.options, "options")
        )
        object.__setattr__(self, "options", options)
        instance(self.composition, Composition, "composition")
        if self.domains is not None:
            object.__setattr__(self, "domains", replace(instance(self.domains, Concentrated, "domains")))
            if self.laplace or self.options or self.for_domains.epsilon:
                raise SpecError("domains must be learned with Gaussian noise, and nothing exchanged for Laplace noise")
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
        if self.composition is GAUSSIAN and not self.gaussian_serves:
            raise SpecError(
                f"Gaussian composition must have epsilon at least {float(SMALLEST_EPSILON):.3g} and delta at most "
                f"{float(LARGEST_DELTA):.3g}, not ({float(self.concentrated):.3g}, {self.delta}); use "
                "zero-concentrated composition"
            )

    @property
    def exact(self) -> Approximate:
        return Approximate(Fraction(self.epsilon), Fraction(self.delta))

    @property
    def concentrated(self) -> Fraction:
        """Of epsilon, what is not for Laplace noise."""
        return self.exact.epsilon - self.laplace

    @property
    def gaussian_serves(self) -> bool:
        """Whether the proofs of Gaussian composition hold: of all of delta, what truncation gets included."""
        least = self.concentrated - max(self.options, default=0)
        return least >= SMALLEST_EPSILON and self.exact.delta <= LARGEST_DELTA

    def rho(self, *, truncation_delta: Fraction = Fraction(0)) -> Fraction:
        """What there is to spend, beside domains, if so much of delta is set aside for truncated noise."""
        if not self.concentrated:
            return Fraction(0)
        domains = self.for_domains
        aside = truncation_delta + domains.delta
        delta = (self.exact.delta - aside) * (1 - OPTION_SHARE * len(self.options))
        return self.composition.largest_rho(epsilon=self.concentrated, delta=delta) - domains.rho

    @property
    def for_domains(self) -> Concentrated:
        """What is spent on learning domains; nothing where all are declared."""
        return Concentrated(Fraction(0)) if self.domains is None else self.domains

    def rho_before_exchange(self, option: Fraction, *, truncation_delta: Fraction = Fraction(0)) -> Fraction:
        """What there is to spend, all in all, where the rest is exchanged for so much Laplace noise."""
        delta = (self.exact.delta - truncation_delta) * OPTION_SHARE
        return self.composition.largest_rho(epsilon=self.concentrated - option, delta=delta)


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


def is_laplace(cost: Cost) -> bool:
    """Whether this is a cost of Laplace noise beside rho, and of nothing else."""
    if not isinstance(cost, Concentrated) or not cost.epsilon:
        return False
    if cost.rho or cost.delta:
        raise BudgetError("one mechanism must have a cost of one kind; charge Laplace noise apart")
    return True


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


class Accountant:
    """Adds costs up, and refuses what exceeds the limit. Proof: P-23, P-24, P-69.

    Concentrated costs add up by a composition. Approximate ones (the paper's) add up as they are, and pay for reserved
    blocks of Pure rounds.
    """

    def __init__(
        self,
        limit: Approximate | Concentrated,
        composition: Composition | None = None,
        options: tuple[Concentrated, ...] = (),
    ) -> None:
        self.limit, self.composition, self.options = replace(limit), composition, options
        self._spent = type(limit)(**dict.fromkeys(vars(limit), Fraction(0)))
        self._each: Pure | None = None
        self._rounds = 0

    @property
    def name(self) -> str:
        return PAPER if self.composition is None else self.composition.value

    @property
    def left(self) -> Concentrated:
        """What is not spent yet, of rho, delta and the epsilon of Laplace noise."""
        if not isinstance(self.limit, Concentrated):
            raise BudgetError("the paper's accountant has no rho; use its reserved rounds")
        spent = vars(self._spent)
        return Concentrated(**{name: amount - spent[name] for name, amount in vars(self.limit).items()})

    def allowance(self, cost: Approximate | Concentrated) -> Accountant:
        """For a sub-instance that has so much: it adds up as this one does."""
        self._require_kind(cost)
        return Accountant(cost, self.composition)

    def spend(self, cost: Cost) -> None:
        """Record a charge, or raise BudgetError and record nothing."""
        if isinstance(cost, Pure):
            if self._rounds < 1 or cost != self._each:
                raise BudgetError("a round must be reserved before it is spent; nothing was drawn")
            self._rounds -= 1
            return
        self._require_kind(cost)
        after = {name: amount + getattr(cost, name) for name, amount in vars(self._spent).items()}
        if any(amount > getattr(self.limit, name) for name, amount in after.items()):
            asked = ", ".join(f"{name} {float(amount):.3g}" for name, amount in vars(cost).items())
            limit = ", ".join(f"{name} {float(amount):.3g}" for name, amount in vars(self.limit).items())
            raise BudgetError(f"a charge of {asked} exceeds what is left of {limit}; nothing was drawn")
        self._spent = type(self.limit)(**after)

    def _require_kind(self, cost: Cost) -> None:
        if type(cost) is not type(self.limit):
            kind, other = type(self.limit).__name__, type(cost).__name__
            raise BudgetError(f"a {other} charge needs another accountant than this; use {kind}")

    def reserve(self, count: int, each: Pure, cost: Approximate) -> None:
        """Pay once for `count` mechanisms of `each`; advanced composition certifies that `cost` is enough."""
        self._require_kind(cost)
        if advanced_composition_epsilon(count=count, epsilon_each=each.epsilon, delta=cost.delta) > cost.epsilon:
            raise BudgetError(
                f"{count} rounds of epsilon {float(each.epsilon):.3g} do not fit into "
                f"({float(cost.epsilon):.3g}, {float(cost.delta):.3g}); reserve fewer or smaller rounds"
            )
        if self._rounds:
            raise BudgetError("rounds are already reserved; spend them first")
        self.spend(cost)
        self._each, self._rounds = each, count

    @property
    def offer(self) -> Concentrated | None:
        """The most Laplace noise of the options for which not too much was spent, and what it leaves. Proof: P-70."""
        spent: Fraction = getattr(self._spent, "rho", Fraction(0))
        left = [replace(option, rho=option.rho - spent) for option in self.options if spent <= option.rho]
        return max(left, key=lambda option: option.epsilon, default=None)

    def exchange(self) -> Fraction:
        """Give up most of rho for Laplace noise, once; returns for how much. Proof: P-70."""
        offer, left = self.offer, self.left
        if offer is None or not isinstance(self.limit, Concentrated):
            raise BudgetError("rho must be exchanged where that was planned, and before too much of it is spent")
        rho = self.limit.rho - left.rho + offer.rho
        self.limit = Concentrated(rho, self.limit.delta, self.limit.epsilon + offer.epsilon)
        self.options = ()
        return offer.epsilon


def accountant_of(split: Split) -> Accountant:
    """The accountant of a whole release. Proof: P-74."""
    if split.paper:
        return Accountant(split.budget.exact)
    domains = split.budget.for_domains
    limit = Concentrated(split.rho + domains.rho, split.truncation_delta + domains.delta, split.budget.laplace)
    return Accountant(limit, split.budget.composition, split.options)
