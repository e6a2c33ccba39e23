"""Minimise a smooth function of many variables: L-BFGS.

scipy has the same method and takes as many steps, but importing it takes a third of a second of processor time, which
is a third of a small release.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpjoin.model.terms import FloatArray

Objective = Callable[[FloatArray], tuple[float, FloatArray]]
"""The value at a point, and the gradient."""

ENOUGH_DECREASE, ENOUGH_FLATTENING = 1e-4, 0.9
"""Of what the slope promises: how much must be gained by a step, and how much of the slope may be left (Wolfe)."""
LINE_TRIALS = 12
SLOW_STEPS = 2
"""So many steps in a row must gain too little to end a search: one may be poor because earlier ones mislead."""
SLOPE_TOLERANCE = 1e-2
"""A search ends where no entry of the gradient is larger."""
ROUNDING = 1e-7
"""Values this close (relatively) are alike: what single precision can tell."""


def minimise(
    objective: Objective, start: FloatArray, *, steps: int, remembered: int, tolerance: float = 1e-5
) -> FloatArray:
    """The lowest point found within so many steps.

    Variables are in units in which the function bends by about one, so that the gradient is a first step by itself. The
    search ends sooner where steps gain less than `tolerance` of the value (or of one, if that is more).
    """
    x, slow = start, 0
    value, gradient = objective(x)
    known: list[
        tuple[FloatArray, FloatArray, float]
    ] = []  # steps, how the gradient changed along them, 1 / their product
    for _ in range(steps):
        if np.abs(gradient).max(initial=0.0) <= SLOPE_TOLERANCE:
            break
        direction = -_newton_step(known, gradient)
        if float(direction @ gradient) >= 0.0:
            known, direction = [], -gradient
        length, there, there_gradient = _line_search(objective, x, value, gradient, direction)
        if length == 0.0:
            break
        step, change = length * direction, there_gradient - gradient
        if (bend := float(step @ change)) > 0.0:
            known = [*known, (step, change, 1.0 / bend)][-remembered:]
        gained, scale = value - there, max(abs(value), abs(there), 1.0)
        x, value, gradient = x + step, there, there_gradient
        slow = slow + 1 if gained <= tolerance * scale else 0
        if slow == SLOW_STEPS:
            break
    return x


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


def _line_search(
    objective: Objective, x: FloatArray, value: float, gradient: FloatArray, direction: FloatArray
) -> tuple[float, float, FloatArray]:
    """A length that gains enough and leaves little slope, and what is there.

    Longer while too short, else between what is known; zero if nothing gains.
    """
    slope = float(direction @ gradient)
    short, long, length = 0.0, np.inf, 1.0
    best = (0.0, value, gradient)
    for _ in range(LINE_TRIALS):
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
        best = (length, there, there_gradient)
        if there_slope >= ENOUGH_FLATTENING * slope:
            break
        short = length
        if np.isfinite(long):
            length = 0.5 * (short + long)
        else:  # how much longer, from how much the slope has changed along the step
            length *= float(np.clip(slope / (slope - there_slope), 2.0, 100.0)) if there_slope > slope else 10.0
    return best
