"""Minimise a smooth function of many variables: L-BFGS, with curvature that is handed on from fit to fit.

scipy has the same method; this one takes no second to import, and it starts from what earlier fits have learnt of the
curvature, so that fits that differ little take few steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Objective = Callable[[FloatArray], tuple[float, FloatArray]]
Pairs = tuple[tuple[FloatArray, FloatArray], ...]
"""Steps and how the gradient changed along them, oldest first."""

ENOUGH_DECREASE, ENOUGH_FLATTENING = 1e-4, 0.9
"""Of what the slope promises: how much must be gained by a step, and how much of the slope may be left (Wolfe)."""
LINE_TRIALS = 12
SLOW_STEPS = 2
"""So many steps in a row must gain too little to end a search: one may be poor because what was seen misleads."""
ROUNDING = 1e-7
"""Values this close (relatively) are alike: what single precision can tell."""


@dataclass(frozen=True, eq=False)
class Found:
    """Where the search ended, and the curvature it has seen on the way."""

    x: FloatArray
    value: float
    evaluations: int
    pairs: Pairs


def minimise(
    objective: Objective,
    start: FloatArray,
    *,
    steps: int,
    remembered: int,
    pairs: Pairs = (),
    value_tolerance: float = 1e-5,
    slope_tolerance: float = 1e-2,
    unit_step: bool = False,
) -> Found:
    """The lowest point found within so many steps.

    It ends sooner where steps gain less than `value_tolerance` of the value (or of one, if that is more), or where no
    entry of the gradient is above `slope_tolerance`. With `unit_step` variables are in units in which the function
    bends by about one, so that without pairs the gradient is a step by itself.
    """
    x = start
    value, gradient = objective(x)
    evaluations, slow = 1, 0
    known = [(s, y, 1.0 / float(s @ y)) for s, y in pairs if float(s @ y) > 0.0][-remembered:]
    for _ in range(steps):
        if np.abs(gradient).max(initial=0.0) <= slope_tolerance:
            break
        direction = -_newton_step(known, gradient)
        if float(direction @ gradient) >= 0.0:
            known, direction = [], -gradient
        # Without curvature the length of a step is anyone's guess: a short one, which the line search makes longer.
        first = 1.0 if known or unit_step else min(1.0, 1.0 / float(np.abs(gradient).sum()))
        found = _line_search(objective, x, value, gradient, direction, first)
        evaluations += found.evaluations
        if found.length == 0.0:
            break
        step, change = found.length * direction, found.gradient - gradient
        if (bend := float(step @ change)) > 0.0:
            known = [*known, (step, change, 1.0 / bend)][-remembered:]
        gained, scale = value - found.value, max(abs(value), abs(found.value), 1.0)
        x, value, gradient = x + step, found.value, found.gradient
        slow = slow + 1 if gained <= value_tolerance * scale else 0
        if slow == SLOW_STEPS:
            break
    return Found(x, value, evaluations, tuple((s, y) for s, y, _ in known))


def _newton_step(known: list[tuple[FloatArray, FloatArray, float]], gradient: FloatArray) -> FloatArray:
    """The gradient times the inverse curvature, as far as it is known (two loops over the pairs)."""
    out = gradient.copy()
    weights = []
    for step, change, inverse in reversed(known):
        weights.append(inverse * float(step @ out))
        out -= weights[-1] * change
    if known:
        _, change, inverse = known[-1]
        out /= inverse * float(change @ change)
    for (step, change, inverse), weight in zip(known, reversed(weights), strict=True):
        out += (weight - inverse * float(change @ out)) * step
    return out


@dataclass(frozen=True, eq=False)
class _Line:
    length: float
    value: float
    gradient: FloatArray
    evaluations: int


def _line_search(
    objective: Objective, x: FloatArray, value: float, gradient: FloatArray, direction: FloatArray, first: float
) -> _Line:
    """A length that gains enough and leaves little slope: longer while too short, else between what is known."""
    slope = float(direction @ gradient)
    short, long = 0.0, np.inf
    best = _Line(0.0, value, gradient, 0)
    length = first
    for trial in range(1, LINE_TRIALS + 1):
        there, there_gradient = objective(x + length * direction)
        there_slope = float(there_gradient @ direction)
        lower = there <= value + ENOUGH_DECREASE * length * slope
        # What single precision cannot tell apart is judged by the slope.
        alike = there <= value + ROUNDING * abs(value) and abs(there_slope) <= 0.5 * abs(slope)
        if not (lower or alike):
            long = length
            # Where the parabola through both values has its lowest point, within reason.
            bend = there - value - length * slope
            guess = -0.5 * slope * length**2 / bend if np.isfinite(bend) and bend > 0 else 0.0
            length = float(np.clip(guess, short + 0.1 * (long - short), short + 0.5 * (long - short)))
            continue
        best = _Line(length, there, there_gradient, trial)
        if there_slope >= ENOUGH_FLATTENING * slope:
            return best
        short = length
        length = 0.5 * (short + long) if np.isfinite(long) else length * _growth(slope, there_slope)
    return _Line(best.length, best.value, best.gradient, LINE_TRIALS)


def _growth(slope: float, there: float) -> float:
    """How much longer a step may be that was too short, from how much the slope has changed along it."""
    return float(np.clip(slope / (slope - there), 2.0, 100.0)) if there > slope else 10.0
