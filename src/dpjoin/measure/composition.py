"""What a budget is going to be spent on: public decisions. Ring 1 checks what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dpjoin.privacy.accounting import GAUSSIAN, ZERO_CONCENTRATED, Budget
from dpjoin.privacy.gaussian import SMALLEST_EPSILON


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
