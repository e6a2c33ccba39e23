"""The log-linear model of `fit` and `model` on domains too large to write down.

Same potentials, same objective, same learnt prior widths; sums over all cells are taken by a junction tree.
The functions have the names they have in `fit` and `model`. What a tree cannot do: product queries as terms of
the model (their scope would be a clique), and a support.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from dpjoin.model.fit import (
    CLOSE,
    DEAR_CELLS,
    FEW_CELLS,
    PRIOR_PSEUDO,
    PRIOR_RANGE,
    PRIOR_START,
    SINGLE_CELLS,
    SINGLE_PSEUDO,
    SINGLE_START,
    Evidence,
    Posterior,
    tolerances,
)
from dpjoin.model.junction import Calibrated, IntArray, JunctionTree, Passes, Scope
from dpjoin.model.lbfgs import Pairs
from dpjoin.model.model import MEMBERS, Model, member_steps
from dpjoin.model.terms import FloatArray
from dpjoin.workload import Group, Kronecker


@dataclass(frozen=True, eq=False)
class FactoredFit:
    """A fitted model: potentials and the prior widths they were fitted with."""

    tree: JunctionTree
    total: float
    potentials: FloatArray
    tau: FloatArray
    """One per clique."""
    sums: Passes
    """Room for its sums, shared by all fits that come from one."""
    seen: Pairs = ()
    """How the objective bends, as far as the optimiser has seen."""

    @cached_property
    def calibrated(self) -> Calibrated:
        return self.tree.calibrate(self.tree.split(self.potentials))

    @property
    def tau_each(self) -> FloatArray:
        """The prior width of each potential."""
        return np.repeat(self.tau, [s.stop - s.start for s in self.tree.slices])

    @cached_property
    def curvature(self) -> FloatArray:
        """How fast each clique cell's own count moves with its own potential: total * Var(indicator)."""
        mean = self.sums.means(self.potentials)
        return np.maximum(self.total * mean * (1.0 - mean), 0.0)


def start(tree: JunctionTree, total: float) -> FactoredFit:
    """The uniform distribution, before anything is measured."""
    tau = np.array([SINGLE_START if len(c) == 1 else PRIOR_START for c in tree.cliques])
    sums = Passes(tree, np.float32 if tree.cells > SINGLE_CELLS else np.float64)
    return FactoredFit(tree, total, np.zeros(tree.size), tau, sums)


def maximise(
    fit: FactoredFit, evidence: Evidence, *, steps: int, prior_mean: FloatArray | None = None, tolerance: float = CLOSE
) -> FactoredFit:
    """The most probable potentials for the given prior widths, from where `fit` stands; see `fit.maximise`."""
    posterior = Posterior(fit.total, evidence, 1.0 / fit.tau_each**2, prior_mean)
    potentials, seen = posterior.descended(
        fit.sums, fit.potentials, fit.curvature, fit.seen, steps=steps, tolerance=tolerance
    )
    return replace(fit, potentials=potentials, seen=seen)


def relearn_prior(fit: FactoredFit, evidence: Evidence) -> FactoredFit:
    """One step of evidence maximisation; see `fit.relearn_prior`."""
    known = fit.curvature**2 * evidence.precision
    share = known / (known + 1.0 / fit.tau_each**2)
    tau = fit.tau.copy()
    for g, (clique, where) in enumerate(zip(fit.tree.cliques, fit.tree.slices, strict=True)):
        weight, width = SINGLE_PSEUDO if len(clique) == 1 else PRIOR_PSEUDO
        energy = float((fit.potentials[where] ** 2).sum()) + weight * width**2
        tau[g] = np.clip(np.sqrt(energy / (float(share[where].sum()) + weight)), *PRIOR_RANGE)
    return replace(fit, tau=tau)


def learn(fit: FactoredFit, evidence: Evidence, *, rounds: int = 4, steps: int = 60) -> FactoredFit:
    """Alternate between the potentials and the prior widths; less often where a step is dear."""
    first, last = tolerances(fit.tree.cells)
    for _ in range(rounds - 1):
        fit = relearn_prior(maximise(fit, evidence, steps=steps, tolerance=first), evidence)
    return maximise(fit, evidence, steps=2 * steps, tolerance=last)


def posterior_width(fit: FactoredFit, evidence: Evidence, extra_precision: FloatArray | None = None) -> FloatArray:
    """About how uncertain each clique cell's count is, now or after `extra_precision` more."""
    precision = evidence.precision if extra_precision is None else evidence.precision + extra_precision
    return fit.curvature / np.sqrt(fit.curvature**2 * precision + 1.0 / fit.tau_each**2)


def plausible(
    fit: FactoredFit,
    evidence: Evidence,
    *,
    total_deviation: float,
    members: int = MEMBERS,
    steps: int = 25,
    seed: int = 0,
) -> tuple[tuple[FloatArray, float], ...]:
    """Potentials drawn from about the posterior, in the same order of draws as `model.plausible`."""
    rng = np.random.default_rng(seed)
    if fit.tree.cells > FEW_CELLS:
        steps = min(steps, member_steps(evidence, fit.total))
    if fit.tree.cells > DEAR_CELLS:
        members //= 2
    deviation = np.where(evidence.precision > 0, 1.0 / np.sqrt(np.maximum(evidence.precision, 1e-300)), 0.0)
    out = []
    for _ in range(members):
        jittered = Evidence(evidence.noisy + deviation * rng.standard_normal(len(deviation)), evidence.precision)
        centre = fit.tau_each * rng.standard_normal(len(deviation))
        moved = maximise(fit, jittered, steps=steps, prior_mean=centre)
        out.append((moved.potentials, max(1.0, fit.total + total_deviation * float(rng.standard_normal()))))
    return tuple(out)


@dataclass(frozen=True)
class Misfit:
    """How far off a model is, about, at a marginal that was looked at but is no clique of it."""

    scope: Scope
    ratio: float
    """The squared error of a cell, per `cell_errors` of what the model has in it."""
    deviation: float
    """The standard deviation of the look's noise."""


def cell_errors(model: FloatArray) -> FloatArray:
    """How squared errors grow with what a model has in a cell, where an interaction is missing.

    They would grow with its square if interactions were alike everywhere. Frequent values are nearer to independent:
    with this power 90 % bars cover large and small cells about alike.
    """
    return np.maximum(model, 0.0) ** 1.5


@dataclass(frozen=True, eq=False)
class FactoredModel(Model):
    """A `Model` whose cells are never written down: potentials on a junction tree. It also draws rows."""

    tree: JunctionTree = field(kw_only=True)
    misfits: tuple[Misfit, ...] = ()

    @cached_property
    def calibrated(self) -> Calibrated:
        """The model's distribution."""
        return self.tree.calibrate(self.tree.split(self._potentials))

    @property
    def _potentials(self) -> FloatArray:
        if self.potentials is None:
            raise ValueError("a factored model must have potentials")
        return self.potentials

    @cached_property
    def _variants(self) -> list[tuple[Calibrated, float]]:
        return [(self.tree.calibrate(self.tree.split(potentials)), total) for potentials, total in self.members]

    def tabulated(self) -> FloatArray:
        """Cells as a matrix, left by right: for small domains only."""
        if self.domain.cells > DEAR_CELLS:
            raise ValueError(
                f"cells of the domain ({self.domain.cells}) must be at most {DEAR_CELLS} to be written down; "
                "ask for answers or rows instead"
            )
        cells = self.total * self.calibrated.marginal(self.domain.attributes)
        return cells.reshape(self.domain.rows, self.domain.columns)

    def answer(self, group: Group) -> FloatArray:
        """The group's answers on the model."""
        return answers_on(self.calibrated, self.total, group)

    def spread(self, group: Group) -> FloatArray | None:
        """How far each member's answers are from the model's, members x queries."""
        if not self.members:
            return None
        answers = np.array([answers_on(calibrated, total, group) for calibrated, total in self._variants])
        return answers - self.answer(group)

    def width(self, group: Group) -> FloatArray | None:
        """About how far off each answer is, root mean square: the members' spread, and what no clique could fit."""
        width = super().width(group)
        misfit = self._misfit(group.scope)
        if width is None or misfit is None:
            return width
        # Errors of cells are taken to be independent. A weight's square is at most itself times the largest.
        each = misfit.ratio * cell_errors(self.total * self.calibrated.marginal(group.scope))
        squares = np.abs(np.asarray(group.apply(each), dtype=np.float64)) * group.max_abs * float(group.unit) ** 2
        return np.sqrt(width**2 + squares)

    def _misfit(self, scope: Sequence[str]) -> Misfit | None:
        """What is known to be off within a scope that no clique holds."""
        if any(set(scope) <= set(clique) for clique in self.tree.cliques):
            return None
        inside = [m for m in self.misfits if set(scope) <= set(m.scope)]
        return min(inside, key=lambda m: m.ratio, default=None)

    def noise(self, group: Kronecker) -> FloatArray:
        """The standard deviation with which each cell of a marginal was measured, directly or as a sum."""
        looks = list(zip(self.tree.cliques, self.deviations, strict=False))
        looks += [(m.scope, m.deviation) for m in self.misfits]
        found = [
            deviation * math.sqrt(math.prod(self.tree.sizes[a] for a in scope if a not in group.scope))
            for scope, deviation in looks
            if set(group.scope) <= set(scope)
        ]
        return np.full(group.cells, min(found, default=0.0))

    def rows(self, rows: int, rng: np.random.Generator, *, even: bool = False) -> dict[str, IntArray]:
        """Synthetic rows, one array of codes per attribute; `even` as in `Calibrated.sample`."""
        return self.calibrated.sample(rows, rng, even=even)


def answers_on(calibrated: Calibrated, total: float, group: Group) -> FloatArray:
    """The group's answers on a distribution over so many rows."""
    answers = group.apply(total * calibrated.marginal(group.scope))
    return np.asarray(answers, dtype=np.float64) * float(group.unit)
