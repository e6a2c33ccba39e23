"""Error bars: an ensemble of models that the noisy measurements make about as plausible as the fitted one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dpjoin import constants
from dpjoin.model.fit import CLOSE, FEW_CELLS, MANY_TERMS, Evidence, Fit, S, maximise, moves_apart, widths_by_value
from dpjoin.model.terms import FloatArray

NEARER = (1.0, 0.5, 0.25, 0.0)
"""How far, one after the other."""
MEMBERS = 12
"""How many there are; the spread of 12 is known to about a fifth."""
LARGE_CELLS = 2**19
"""Above this many cells a step takes several milliseconds, and half as many members must do."""
MEMBER_STEPS = 8
"""How many steps a member takes on a large domain, from the fit on. With 8 the spread is 0 to 9 % wider than with 100
(benchmarks/large.py): what is left of where members start."""
MEMBER_TOLERANCE = 2e-3
"""Of many potentials: where steps gain less than this share of the objective, about half a unit for each, members are
as far from the fit as they will be."""
PRECISE = 5e-4
"""Noise below this share of the total lets members stray further in units of their width: they take twice the steps.
With 100 times the rows of benchmarks/large.py, 8 steps leave 90 % bars that cover 85 %."""


def ensemble(
    fit: Fit[S],
    evidence: Evidence,
    *,
    total_deviation: float,
    members: int = MEMBERS,
    steps: int = 25,
    seed: int = 0,
    after: Callable[[Fit[S], Evidence], Fit[S]] | None = None,
) -> tuple[tuple[FloatArray, float], ...]:
    """Potentials and totals drawn from about the posterior: perturb the measurements and the prior, and fit again.

    Public randomness with a fixed seed: everything here is post-processing, and the release stays a
    function of the noisy answers. Independent models that are added up want different seeds: their members
    would otherwise be off together. What is done to the fit `after` the search is done to each of them.
    """
    rng = np.random.default_rng(seed)
    many = len(fit.potentials) > MANY_TERMS
    if many:
        steps //= 2
    if fit.terms.cells > FEW_CELLS:
        steps = min(steps, member_steps(evidence, fit.total))
    if fit.terms.cells > LARGE_CELLS or many:
        members //= 2
    deviation = np.where(evidence.precision > 0, 1.0 / np.sqrt(np.maximum(evidence.precision, 1e-300)), 0.0)
    widths, nearer = widths_by_value(fit, evidence), list(NEARER)
    tolerance = MEMBER_TOLERANCE if many else CLOSE
    found = []
    for _ in range(members):
        jittered = Evidence(evidence.noisy + deviation * rng.standard_normal(len(deviation)), evidence.precision)
        centre = widths * rng.standard_normal(len(deviation))
        moved = maximise(fit, jittered, prior_mean=nearer[0] * centre, steps=steps, tolerance=tolerance)
        while len(nearer) > 1 and moves_apart(fit, moved, evidence) > constants.ASTRAY:
            del nearer[0]  # for those to come as well: where one goes astray most do, and every search takes time
            moved = maximise(fit, jittered, prior_mean=nearer[0] * centre, steps=steps, tolerance=tolerance)
        if after is not None:
            moved = after(moved, jittered)
        found.append((moved.potentials, max(1.0, fit.total + total_deviation * float(rng.standard_normal()))))
    return tuple(found)


def member_steps(evidence: Evidence, total: float) -> int:
    """How many steps a member takes on a large domain."""
    precision = float(evidence.precision.max(initial=0.0))
    return MEMBER_STEPS if precision * (PRECISE * total) ** 2 < 1.0 else 2 * MEMBER_STEPS
