"""Mechanisms: which law hides a value that one row moves so far, at which cost.

A mechanism is a frozen value. `hiding` and `choosing` are the only functions that pick one, and they refuse a law whose
price exceeds the cost. Only the gate draws from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Generic, TypeVar

from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import Approximate, Composition, Concentrated, Cost, Pure, is_laplace
from dpjoin.privacy.conversion import selection_epsilon
from dpjoin.privacy.noise import DiscreteGaussian, DiscreteLaplace, Exponential, Noise
from dpjoin.privacy.truncated import laplace_delta, paper_laplace_half_width

L = TypeVar("L", Noise, Exponential)


@dataclass(frozen=True)
class Mechanism(Generic[L]):
    """A law with what it costs to hide this move; a choice hides scores that move so far each. Proof: P-76."""

    law: L
    cost: Cost
    moves: int | Fraction


@dataclass(frozen=True)
class Move:
    """How far one row moves an answer, in l2 and in l1; for a single number they are the same."""

    euclidean: int | Fraction
    absolute: int
    numbers: int = 1
    """How many numbers move, equally far, where noise is one-sided."""


def hiding(
    move: Move | int, cost: Cost, composition: Composition | None, *, half_width: int | None = None
) -> Mechanism[Noise]:
    """The noise that hides a move at this cost. Proof: P-77.

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
        each = l1 // move.numbers
        variance = composition.variance(move.numbers * each**2, cost.rho)
        price = partial(composition.truncation_delta, cost.rho, half_width, moves=each, values=move.numbers)
        return _affordable(Mechanism(DiscreteGaussian(variance, half_width), cost, l2), cost.delta, price)
    if not cost.epsilon or (isinstance(cost, Approximate) and not 0 < cost.delta < 1):
        raise BudgetError("Laplace noise must have some epsilon, and a delta if it is one-sided; nothing was drawn")
    scale = l1 / cost.epsilon
    if isinstance(cost, Approximate):
        if half_width is None:
            half_width = paper_laplace_half_width(epsilon=cost.epsilon, delta=cost.delta, sensitivity=l1)
        price = partial(laplace_delta, epsilon=cost.epsilon, sensitivity=l1, half_width=half_width)
        return _affordable(Mechanism(DiscreteLaplace(scale, half_width), cost, l1), cost.delta, price)
    if half_width is not None:
        raise BudgetError("one-sided noise must not be paid for as Laplace noise; nothing was drawn")
    return Mechanism(DiscreteLaplace(scale), cost, l1)


def _affordable(mechanism: Mechanism[Noise], delta: Fraction, price: Callable[[], Fraction]) -> Mechanism[Noise]:
    """The mechanism, if its price in delta is within the cost."""
    try:
        needed = price()
    except ValueError as error:  # of public numbers: too narrow for its proof
        raise BudgetError(str(error)) from None
    if needed > delta:
        width = mechanism.law.half_width
        raise BudgetError(f"half_width ({width}) must be large enough for delta {float(delta):.3g}")
    return mechanism


def choosing(moves: int, cost: Pure | Concentrated, composition: Composition | None) -> Mechanism[Exponential]:
    """The exponential mechanism at this cost, where one row moves every score by at most `moves`. Proof: P-32."""
    if isinstance(cost, Pure):
        return Mechanism(Exponential(cost.epsilon), cost, moves)
    if composition is None or is_laplace(cost) or not cost.rho:
        raise BudgetError("a choice must be paid for with rho, or by a reserved round; nothing was drawn")
    if not composition.covers(Exponential.kind):
        raise BudgetError(f"{Exponential.kind} does not go with {composition.value} composition; nothing was drawn")
    return Mechanism(Exponential(selection_epsilon(cost.rho)), cost, moves)
