"""Mechanisms: which law hides a value that one row moves so far, at which cost.

A mechanism is a frozen value. `hiding` and `choosing` are the only functions that pick one, and they refuse a law whose
price exceeds the cost. Only the gate draws from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import ClassVar

from dpjoin.errors import BudgetError
from dpjoin.privacy import noise
from dpjoin.privacy.accounting import Approximate, Composition, Concentrated, Cost, Pure, is_laplace
from dpjoin.privacy.conversion import selection_epsilon
from dpjoin.privacy.numbers import Numbers, root_up
from dpjoin.privacy.truncated import laplace_delta, paper_laplace_half_width


class Law:
    """A law of noise on whole numbers; its fields are its parameters. Proof: P-76."""

    name: ClassVar[str]
    variance: Fraction
    sampler: ClassVar[Callable[..., int]]
    sampler_of_many: ClassVar[Callable[..., Numbers]]

    @property
    def parameters(self) -> dict[str, Fraction | int | str]:
        """What the ledger says about it."""
        return dict(vars(self))

    def one(self) -> int:
        """A draw."""
        return type(self).sampler(**vars(self))

    def draw(self, size: int) -> Numbers:
        """Independent draws."""
        return type(self).sampler_of_many(**vars(self), size=size)


@dataclass(frozen=True)
class DiscreteGaussian(Law):
    variance: Fraction
    name: ClassVar[str] = "discrete Gaussian"
    sampler: ClassVar[Callable[..., int]] = noise.discrete_gaussian
    sampler_of_many: ClassVar[Callable[..., Numbers]] = noise.discrete_gaussian_array


@dataclass(frozen=True)
class DiscreteLaplace(Law):
    scale: Fraction
    name: ClassVar[str] = "discrete Laplace"
    sampler: ClassVar[Callable[..., int]] = noise.discrete_laplace
    sampler_of_many: ClassVar[Callable[..., Numbers]] = noise.discrete_laplace_array

    @property
    def variance(self) -> Fraction:  # type: ignore[override]
        """At most."""
        return 2 * self.scale**2


@dataclass(frozen=True)
class TruncatedGaussian(DiscreteGaussian):
    """From 0 to twice the half-width, so adding it never lowers a value."""

    half_width: int
    name: ClassVar[str] = "truncated discrete Gaussian"
    sampler: ClassVar[Callable[..., int]] = noise.truncated_discrete_gaussian
    sampler_of_many: ClassVar[Callable[..., Numbers]] = noise.truncated_discrete_gaussian_array


@dataclass(frozen=True)
class TruncatedLaplace(DiscreteLaplace):
    """From 0 to twice the half-width, so adding it never lowers a value."""

    half_width: int
    name: ClassVar[str] = "truncated discrete Laplace"
    sampler: ClassVar[Callable[..., int]] = noise.truncated_discrete_laplace
    sampler_of_many: ClassVar[Callable[..., Numbers]] = noise.truncated_discrete_laplace_array


@dataclass(frozen=True)
class Exponential:
    """The exponential mechanism: candidates with probability proportional to exp(epsilon·score/(2·move of a score))."""

    epsilon: Fraction
    name: ClassVar[str] = "exponential mechanism"

    @property
    def parameters(self) -> dict[str, Fraction | int | str]:
        return dict(vars(self))


@dataclass(frozen=True)
class Mechanism:
    """A law of noise with what it costs to hide this move. Proof: P-76."""

    law: Law
    cost: Cost
    moves: int | Fraction


@dataclass(frozen=True)
class Choice:
    """The exponential mechanism with what it costs where one row moves every score this far. Proof: P-32."""

    law: Exponential
    cost: Cost
    moves: int

    @property
    def rate(self) -> Fraction:
        return self.law.epsilon / (2 * self.moves)


@dataclass(frozen=True)
class Move:
    """How far one row moves an answer, in l2 and in l1; for a single number they are the same."""

    euclidean: int | Fraction
    absolute: int


def hiding(
    move: Move | int, cost: Cost, composition: Composition | None, *, half_width: int | None = None
) -> Mechanism:
    """The noise that hides a move at this cost. Proof: P-76.

    Concentrated: the discrete Gaussian, or one-sided, the truncated one, if a half-width is given. Concentrated with an
    epsilon in place of rho, and Pure: the discrete Laplace. Approximate: one-sided, the truncated Laplace, with the
    paper's half-width unless one is given.
    """
    move = Move(move, move) if isinstance(move, int) else move
    l2, l1 = max(1, move.euclidean), max(1, move.absolute)
    if isinstance(cost, Concentrated) and not is_laplace(cost):
        if composition is None:
            raise BudgetError("a Concentrated cost needs the concentrated accountant; use Approximate or Pure")
        if half_width is None:
            return Mechanism(DiscreteGaussian(composition.variance(l2**2, cost.rho)), cost, l2)
        whole = math.ceil(l2)
        variance = composition.variance(whole**2, cost.rho)
        price = partial(composition.truncation_delta, cost.rho, half_width, moves=whole)
        return _affordable(Mechanism(TruncatedGaussian(variance, half_width), cost, whole), cost.delta, price)
    if not cost.epsilon or (isinstance(cost, Approximate) and not 0 < cost.delta < 1):
        raise BudgetError("Laplace noise must have some epsilon, and a delta if it is one-sided; nothing was drawn")
    scale = l1 / cost.epsilon
    if isinstance(cost, Approximate):
        if half_width is None:
            half_width = paper_laplace_half_width(epsilon=cost.epsilon, delta=cost.delta, sensitivity=l1)
        price = partial(laplace_delta, epsilon=cost.epsilon, sensitivity=l1, half_width=half_width)
        return _affordable(Mechanism(TruncatedLaplace(scale, half_width), cost, l1), cost.delta, price)
    if half_width is not None:
        raise BudgetError("one-sided noise must not be paid for as Laplace noise; nothing was drawn")
    return Mechanism(DiscreteLaplace(scale), cost, l1)


def hiding_each(values: int, cost: Cost, composition: Composition | None, half_width: int) -> Mechanism:
    """The one-sided noise that hides so many counts that move by one each at this cost. Proof: P-82."""
    if composition is None or not isinstance(cost, Concentrated) or is_laplace(cost):
        raise BudgetError("a list of values must be paid for with rho; nothing was drawn")
    variance = composition.variance(values, cost.rho)
    price = partial(composition.truncation_delta, cost.rho, half_width, moves=1, values=values)
    return _affordable(Mechanism(TruncatedGaussian(variance, half_width), cost, root(values)), cost.delta, price)


def root(square: int) -> Fraction:
    """A fraction whose square is no less, by very little; the root itself of a square. Proof: P-82."""
    return Fraction(root_up(square * 10**12), 10**6)


def _affordable(mechanism: Mechanism, delta: Fraction, price: Callable[[], Fraction]) -> Mechanism:
    """The mechanism, if its price in delta is within the cost."""
    try:
        needed = price()
    except ValueError as error:  # of public numbers: too narrow for its proof
        raise BudgetError(str(error)) from None
    if needed > delta:
        width = mechanism.law.parameters["half_width"]
        raise BudgetError(f"half_width ({width}) must be large enough for delta {float(delta):.3g}")
    return mechanism


def choosing(moves: int, cost: Pure | Concentrated, composition: Composition | None) -> Choice:
    """The exponential mechanism at this cost, where one row moves every score by at most `moves`. Proof: P-32."""
    if isinstance(cost, Concentrated):
        if composition is None or is_laplace(cost) or not cost.rho:
            raise BudgetError("a choice must be paid for with rho, or by a reserved round; nothing was drawn")
        if not composition.covers(Exponential.name):
            raise BudgetError(f"{Exponential.name} does not go with {composition.value} composition; nothing was drawn")
        return Choice(Exponential(selection_epsilon(cost.rho)), cost, moves)
    return Choice(Exponential(cost.epsilon), cost, moves)
