"""The log-linear model of `fit` and `model` on domains too large to write down.

Same potentials, same objective, same learnt prior widths; sums over all cells are taken by a junction tree.
What a tree cannot do: product queries as terms of the model (their scope would be a clique), and a support.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from dpjoin.model.fit import DEAR_CELLS, PRIOR_START, SINGLE_CELLS, SINGLE_START, LogLinear
from dpjoin.model.junction import Calibrated, IntArray, JunctionTree, Passes, Scope
from dpjoin.model.model import Model
from dpjoin.model.terms import FloatArray
from dpjoin.spec.workload import Group


@dataclass(frozen=True, eq=False, kw_only=True)
class FactoredFit(LogLinear):
    """A fit whose cells are never written down: sums are passed along a junction tree."""

    tree: JunctionTree

    @property
    def slices(self) -> tuple[slice, ...]:
        return self.tree.slices

    @property
    def cliques(self) -> tuple[tuple[str, ...], ...]:
        return self.tree.cliques

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(self.tree.sizes[a] for a in clique) for clique in self.tree.cliques)

    @property
    def single(self) -> tuple[bool, ...]:
        return tuple(len(c) == 1 for c in self.tree.cliques)

    @property
    def cells(self) -> int:
        return self.tree.cells

    @cached_property
    def calibrated(self) -> Calibrated:
        return self.tree.calibrate(self.tree.split(self.potentials))


def start(tree: JunctionTree, total: float) -> FactoredFit:
    """The uniform distribution, before anything is measured."""
    tau = np.array([SINGLE_START if len(c) == 1 else PRIOR_START for c in tree.cliques])
    sums = Passes(tree, np.float32 if tree.cells > SINGLE_CELLS else np.float64)
    return FactoredFit(tree=tree, total=total, potentials=np.zeros(tree.size), tau=tau, sums=sums)


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
    def single_terms(self) -> dict[str, slice]:
        """By attribute, where the potentials of its one-way marginal lie."""
        return {c[0]: where for c, where in zip(self.tree.cliques, self.tree.slices, strict=True) if len(c) == 1}

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
        each = self.unfitted(group.scope)
        if width is None or each is None:
            return width
        # Errors of cells are taken to be independent. A weight's square is at most itself times the largest.
        squares = np.abs(np.asarray(group.apply(each), dtype=np.float64)) * group.max_abs * float(group.unit) ** 2
        return np.sqrt(width**2 + squares)

    def unfitted(self, scope: Sequence[str]) -> FloatArray | None:
        """The variance in each cell of a scope of what no clique could fit; None where one could."""
        misfit = self._misfit(scope)
        return None if misfit is None else misfit.ratio * cell_errors(self.total * self.calibrated.marginal(scope))

    def _misfit(self, scope: Sequence[str]) -> Misfit | None:
        """What is known to be off within a scope that no clique holds."""
        if any(set(scope) <= set(clique) for clique in self.tree.cliques):
            return None
        inside = [m for m in self.misfits if set(scope) <= set(m.scope)]
        return min(inside, key=lambda m: m.ratio, default=None)

    def _looks(self, scope: Sequence[str]) -> list[FloatArray]:
        """The variance of each cell of a scope in every measured marginal that contains it, directly or as a sum."""
        looks = list(zip(self.tree.cliques, self.deviations, strict=False))
        looks += [(m.scope, m.deviation) for m in self.misfits]
        cells = math.prod(self.tree.sizes[a] for a in scope)
        return [
            np.full(cells, deviation**2 * math.prod(self.tree.sizes[a] for a in look if a not in scope))
            for look, deviation in looks
            if set(scope) <= set(look)
        ]

    def rows(self, rows: int, rng: np.random.Generator, *, even: bool = False) -> dict[str, IntArray]:
        """Synthetic rows, one array of codes per attribute; `even` as in `Calibrated.sample`."""
        return self.calibrated.sample(rows, rng, even=even)


def answers_on(calibrated: Calibrated, total: float, group: Group) -> FloatArray:
    """The group's answers on a distribution over so many rows."""
    answers = group.apply(total * calibrated.marginal(group.scope))
    return np.asarray(answers, dtype=np.float64) * float(group.unit)
