"""The two ideas that the paper shows to be natural and flawed, and the attack on each (Section 3.1, Example 3.1).

Both run single-table multiplicative weights on the exact join of Figure 1: n results that share b_0 and c_0, or none.
Nothing here is private: the tables are the figure's. Do not release anything this way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpjoin.privacy import noise
from dpjoin.privacy.accounting import Budget
from dpjoin.privacy.truncated import paper_laplace_half_width


def best_guess(budget: Budget) -> float:
    """How often an attacker can be right about two equally likely neighbours if (ε, δ) holds."""
    return (math.exp(budget.epsilon) + budget.delta) / (1 + math.exp(budget.epsilon))


def idea_one(size: int, n: int, budget: Budget) -> bool:
    """Multiplicative weights on the join. Attack: is anything released at all?"""
    return size > 0.5  # the total of the weights is the exact size


def idea_two(size: int, n: int, budget: Budget) -> bool:
    """The same, and dummy rows added afterwards to hide the size. Attack: is anything released where the join can be?

    The join's results lie in n of the n³ combinations (dom(A) x b_0 x c_0); few dummy rows fall there.
    """
    half, delta = Fraction(budget.epsilon) / 2, Fraction(budget.delta) / 2

    def noisy(sensitivity: int) -> int:
        width = paper_laplace_half_width(epsilon=half, delta=delta, sensitivity=sensitivity)
        return noise.DiscreteLaplace(sensitivity / half, width).one()

    padding = noisy(n + noisy(1))
    dummies = np.random.default_rng(noise.uniform_below(2**62)).binomial(padding, n / n**3)
    return bool(_found(size, n / n**3) + dummies > 0.5)


def success(idea: Callable[[int, int, Budget], bool], n: int, budget: Budget, runs: int) -> float:
    """The share of right guesses "the join has results" on Figure 1's two neighbours, each `runs` times."""
    right = sum(idea(n, n, budget) for _ in range(runs)) + sum(not idea(0, n, budget) for _ in range(runs))
    return right / (2 * runs)


def _found(size: int, share: float) -> float:
    """Single-table multiplicative weights: of an exact total, what ends where the join is, from a uniform start."""
    inside = size * share
    for _ in range(20 if size else 0):
        measured = size + noise.DiscreteLaplace(Fraction(1)).one()
        grown = inside * math.exp((measured - inside) / (2 * size))
        inside = size * grown / (grown + size - inside)
    return inside
