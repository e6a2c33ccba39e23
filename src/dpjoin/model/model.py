"""The released model: a non-negative table over the cells that the workload looks at, and how sure it is.

Cells are written down where there are few; where there are many, marginals come from a junction tree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from dpjoin import constants
from dpjoin.model.junction import Calibrated, JunctionTree
from dpjoin.model.terms import SINGLE_CELLS, BoolArray, Domain, DType, FloatArray, Marginals, Scope, Terms
from dpjoin.model.threads import one_blas_thread
from dpjoin.spec.workload import Group, IntArray, Kronecker, marginal_of, widest

if TYPE_CHECKING:
    from dpjoin.model.fit import Evidence

SINGLE_NOISE = 1e-4
"""Noise that is more than this share of the total is far above what single precision loses."""
TABULATED_CELLS = 2**19
"""A factored model of more cells is not written down."""


class Estimate(ABC):
    """What answers and has error bars: a `Model`, a `Joined` of one per table, or a `Union` of such parts."""

    @abstractmethod
    def knows(self, scope: Sequence[str]) -> bool:
        """Whether error bars are known within a scope."""

    @abstractmethod
    def answer(self, group: Group) -> FloatArray: ...

    @abstractmethod
    def spreads(self, group: Group) -> list[FloatArray]:
        """For each independent part that has members, how far their answers are from its own, members x queries."""

    @abstractmethod
    def slack(self, group: Group) -> FloatArray:
        """What floors add to each query's bar."""

    def unfitted(self, group: Group) -> FloatArray | float:
        """The variance of each answer that members do not have."""
        return 0.0

    def unfitted_cells(self, scope: Sequence[str]) -> FloatArray | None:
        """The variance in each cell of a scope of what no clique could fit; None where nothing is known of it."""
        return None

    def measured(self, group: Kronecker) -> FloatArray:
        """The variance with which each cell of a marginal was measured, by all that was measured of it together."""
        return np.zeros(group.cells)

    def noise(self, group: Kronecker) -> FloatArray:
        """The standard deviation with which each cell of a marginal was measured best; zero where none was."""
        return np.zeros(group.cells)

    def width(self, group: Group) -> FloatArray | None:
        """About how far off each answer is, root mean square; None where only floors tell."""
        spreads = self.spreads(group)
        return np.sqrt(combined(spreads) + self.unfitted(group)) if spreads else None

    @property
    @abstractmethod
    def shared(self) -> float:
        """Which share of a cell's squared error all cells of a sum have in common."""

    def common(self, group: Group) -> FloatArray | float:
        """The variance of sums over several cells that members do not have: for what their cells have in common.

        A prior draws cells apart one by one, so members do not see a fit that is too high in all of many small cells,
        or too low. It stays near what was measured, so that noise tells how far off that is at most.
        """
        if not isinstance(group, Kronecker) or group.is_marginal or not self.shared:
            return 0.0
        cells, unit = marginal_of(group), float(group.unit)
        width = self.width(cells)
        if width is None:
            return 0.0
        found = self.shared * (group.lengths(width) * unit) ** 2
        noise = group.variances(self.measured(cells)) * unit**2
        return np.where(noise > 0, np.minimum(found, noise), found)

    def error(self, group: Group, coverage: float) -> FloatArray:
        """Half-widths that cover the exact answers with about this probability; nan where nothing is known."""
        if not self.knows(group.scope):
            return np.full(len(group), np.nan)
        slack, width = self.slack(group), self.width(group)
        if width is None:
            return slack
        quantile, size = NormalDist().inv_cdf(0.5 + coverage / 2), np.abs(self.answer(group))
        # Twelve members tell the width only roughly; pooling with the group's own rule of width against
        # size keeps a cell whose members happen to agree from getting a bar that is too short.
        stretch = constants.STRETCH if isinstance(group, Kronecker) else constants.PRODUCT_STRETCH
        width = np.sqrt(pooled(width, size) ** 2 + self.common(group))
        bars = stretch * quantile * width + slack
        if isinstance(group, Kronecker) and group.is_marginal:
            # A small cell that the noise cannot tell from an empty one may be empty.
            bars = np.where(size < quantile * self.noise(group), np.maximum(bars, size), bars)
        return bars


def combined(spreads: Sequence[FloatArray]) -> FloatArray:
    """The mean square of what independent parts are off together.

    What scatters adds up in squares. Where the members lie to one side (small cells cannot be negative) every part does
    so alike, and that adds up as it is.
    """
    scatter, shift = (np.sum([how(s, axis=0) for s in spreads], axis=0) for how in (np.var, np.mean))
    return np.asarray(scatter + shift**2)


def pooled(width: FloatArray, size: FloatArray) -> FloatArray:
    """Average each width with the widths of answers of similar size (in squares)."""
    live = (width > 0) | (size > 0)
    if not live.all():
        # Cells known to be empty are certain, and say nothing of the small ones beside them.
        out = np.zeros_like(width)
        out[live] = pooled(width[live], size[live])
        return out
    if len(width) < 4:
        return width
    order = np.argsort(size)
    squares = width[order] ** 2
    window = min(9, len(width)) | 1
    padded = np.pad(squares, window // 2, mode="edge")
    smooth = np.convolve(padded, np.ones(window) / window, mode="valid")[: len(width)]
    out = np.empty_like(width)
    out[order] = np.sqrt((squares + smooth) / 2)
    return out


@dataclass(frozen=True)
class Misfit:
    """How far off a model is, about, at a marginal that was measured but is no clique of it."""

    scope: Scope
    ratio: float
    """The squared error of a cell, per `cell_errors` of what the model has in it."""
    deviation: float
    """The standard deviation of the measurement's noise."""


def cell_errors(model: FloatArray) -> FloatArray:
    """How squared errors grow with what a model has in a cell, where an interaction is missing.

    They would grow with its square if interactions were alike everywhere. Frequent values are nearer to independent:
    with this power 90 % bars cover large and small cells about alike.
    """
    return np.maximum(model, 0.0) ** 1.5


@dataclass(frozen=True, eq=False)
class Model(Estimate):
    """A log-linear model (`terms`, `potentials`) or a plain table, scaled to `total`.

    `members` are further potentials and totals that the noisy measurements make about as plausible: their
    spread is the error bar. `floor` is added to every bar, for what the spread cannot know.
    """

    domain: Domain
    total: float
    terms: Terms | JunctionTree | None = None
    potentials: FloatArray | None = None
    plain: FloatArray | None = None
    members: tuple[tuple[FloatArray, float], ...] = ()
    floor: float = 0.0
    """Half-width that holds for a query with weights up to one, beyond the spread of the members."""
    known: tuple[frozenset[str], ...] = ()
    """Sets of attributes within which error bars are known."""
    deviations: tuple[float, ...] = ()
    """The noise's standard deviation in a cell of each clique."""
    unsure: float = 0.0
    """Of a model without members: how far off its total may be, in join results; every answer is off in proportion."""
    misfits: tuple[Misfit, ...] = ()
    """Of a factored model: marginals that were measured and left out."""
    evidence: Evidence | None = None
    """The noisy numbers that it was fitted to, as they are; not kept in files."""
    shared: float = constants.IN_COMMON
    """Which share of a cell's squared error all cells of a sum have in common; none in folders of 0.1."""
    certain: bool = False
    """Whether the cells are those of a public table, as they are; not kept in files."""

    def __post_init__(self) -> None:
        if self.terms is not None and self.potentials is None:
            raise ValueError("a model with terms must have potentials")

    @property
    def tree(self) -> JunctionTree | None:
        """The junction tree of a factored model, whose cells are not written down."""
        return self.terms if isinstance(self.terms, JunctionTree) else None

    @cached_property
    def table(self) -> FloatArray:
        """Cells as a matrix, left by right."""
        return self.tabulated()

    def tabulated(self) -> FloatArray:
        """The table, worked out anew and not kept; of a factored model for small domains only."""
        if self.plain is not None:
            return self.plain
        assert self.terms is not None
        assert self.potentials is not None
        if isinstance(self.terms, Terms):
            return self.terms.table(self.potentials, self.total)
        if self.domain.cells > TABULATED_CELLS:
            raise ValueError(
                f"cells of the domain ({self.domain.cells}) must be at most {TABULATED_CELLS} to be written down; "
                "ask for answers or rows instead"
            )
        return self.marginal(self.domain.attributes).reshape(self.domain.rows, self.domain.columns)

    @cached_property
    def marginal(self) -> Marginals:
        """Any scope's cells, axes in its order."""
        if self.tree is not None:
            return partial(self.calibrated.counts, self.total)
        return partial(self.domain.marginal, self.table)

    @cached_property
    def calibrated(self) -> Calibrated:
        """The distribution of a factored model."""
        assert self.tree is not None
        assert self.potentials is not None
        return self.tree.calibrate(self.potentials)

    @cached_property
    def variants(self) -> list[Marginals]:
        """Models about as plausible: the members, or with the total off as far as it may be."""
        if not self.members:
            off = self.unsure / self.total if self.unsure else 0.0
            return [partial(self._times, 1.0 + off), partial(self._times, 1.0 - off)] if off else []
        with one_blas_thread():
            if isinstance(self.terms, Terms):
                # Members only say how far off answers are: single precision will do where noise is far above rounding.
                noise, many = min(self.deviations, default=0.0), self.domain.cells > SINGLE_CELLS
                single = many and not self.terms.products and noise > SINGLE_NOISE * self.total
                precision: DType = np.float32 if single else np.float64
                return [self.terms.marginals(*member, precision) for member in self.members]
            assert self.terms is not None
            return [self.terms.marginals(*member) for member in self.members]

    def _times(self, factor: float, scope: Sequence[str]) -> FloatArray:
        return factor * self.marginal(scope)

    def scaled(self, factor: float, member_factors: Sequence[float]) -> Model:
        """The same shape with this many times the size, and each member likewise."""
        members = tuple((p, total * own) for (p, total), own in zip(self.members, member_factors, strict=True))
        plain = None if self.plain is None else self.plain * factor
        floor, unsure = self.floor * factor, self.unsure * factor
        return replace(self, total=self.total * factor, plain=plain, members=members, floor=floor, unsure=unsure)

    @property
    def support(self) -> BoolArray | None:
        """The cells outside which the model is known to be empty; None: all of them."""
        return self.terms.support if isinstance(self.terms, Terms) else None

    @property
    def _cliques(self) -> list[tuple[Scope, slice]]:
        """Each clique, and where its potentials lie."""
        return list(zip(self.terms.cliques, self.terms.slices, strict=False)) if self.terms is not None else []

    @property
    def single_terms(self) -> dict[str, slice]:
        """By attribute, where the potentials of its one-way marginal lie."""
        return {clique[0]: where for clique, where in self._cliques if len(clique) == 1}

    def knows(self, scope: Sequence[str]) -> bool:
        """Whether error bars are known within a scope."""
        return any(set(scope) <= known for known in self.known)

    def counted(self, scope: Sequence[str]) -> tuple[FloatArray, float] | None:
        """A scope's cells as noise left them, and the variance of that noise; None if nothing measured contains it.

        Unbiased, and where there are few rows often below zero: every measured clique's sums, weighed by precision.
        """
        if self.certain:
            return self.marginal(scope), 0.0
        if self.evidence is None:
            return None
        found, precision = np.zeros([self.domain.sizes[a] for a in scope]), 0.0
        for clique, where in self._cliques:
            own = float(self.evidence.precision[where.start])
            if set(scope) <= set(clique) and own:
                sums = Domain(clique, (), self.domain.sizes).marginal(self.evidence.noisy[where], scope)
                own *= sums.size / (where.stop - where.start)
                found, precision = found + own * sums, precision + own
        return (found / precision, 1.0 / precision) if precision else None

    def answer(self, group: Group) -> FloatArray:
        """The group's answers on the model."""
        return answers_on(self.marginal, group)

    def spreads(self, group: Group) -> list[FloatArray]:
        """See `Estimate`: one part."""
        if not self.variants:
            return []
        return [np.array([answers_on(variant, group) for variant in self.variants]) - self.answer(group)]

    def unfitted(self, group: Group) -> FloatArray | float:
        """See `Estimate`: what no clique could fit."""
        each = self.unfitted_cells(group.scope)
        if each is None:
            return 0.0
        # Errors of cells are taken to be independent. A weight's square is at most itself times the largest.
        return np.abs(np.asarray(group.apply(each), dtype=np.float64)) * group.max_abs * float(group.unit) ** 2

    def unfitted_cells(self, scope: Sequence[str]) -> FloatArray | None:
        """See `Estimate`: known where a measured marginal was left out of a factored model."""
        if any(set(scope) <= set(clique) for clique, _ in self._cliques):
            return None
        ratios = [m.ratio for m in self.misfits if set(scope) <= set(m.scope)]
        return min(ratios) * cell_errors(self.marginal(scope)) if ratios else None

    def slack(self, group: Group) -> FloatArray:
        """What the floor adds to each query's bar; nothing to a query that looks at cells known to be empty only."""
        slack = np.full(len(group), self.floor * group.max_abs * float(group.unit))
        if (
            self.floor
            and self.support is not None
            and isinstance(group, Kronecker)
            and all(f.kind in ("cells", "prefixes", "ranges") for f in group.factors)
        ):
            # The weights are zeros and ones, so a query that looks at any of the support's cells counts them.
            inside = partial(self.domain.marginal, self.support.astype(np.float64))
            slack[answers_on(inside, group) == 0] = 0.0
        return slack

    def noise(self, group: Kronecker) -> FloatArray:
        """See `Estimate`."""
        found = self._variances(group.scope)
        return np.sqrt(np.min(found, axis=0)) if found else np.zeros(group.cells)

    def measured(self, group: Kronecker) -> FloatArray:
        """See `Estimate`: by precision; zero where it was never measured."""
        variances = self._variances(group.scope)
        if not variances:
            return np.zeros(group.cells)
        certain = np.min(variances, axis=0) == 0
        precision = sum((1.0 / np.where(certain, 1.0, v) for v in variances), start=np.zeros(group.cells))
        return np.where(certain, 0.0, 1.0 / precision)

    def variance(self, scope: Sequence[str]) -> FloatArray:
        """The least of the variances with which a scope's cells were measured; infinite where nothing contains it."""
        shape, found = [self.domain.sizes[a] for a in scope], self._variances(scope)
        return np.asarray(np.min(found, axis=0)).reshape(shape) if found else np.full(shape, math.inf)

    def _variances(self, scope: Sequence[str]) -> list[FloatArray]:
        """The variance of each cell of a scope in every measured marginal that contains it, directly or as a sum."""
        found = []
        for i, ((clique, _), deviation) in enumerate(zip(self._cliques, self.deviations, strict=False)):
            if set(scope) <= set(clique) and self.terms is not None:
                # What is known to be empty has no noise, even where nothing was measured.
                inside = self.terms.inside(i, tuple(scope))
                found.append(np.where(inside > 0, deviation, 0.0) ** 2 * inside)
        cells = math.prod(self.domain.sizes[a] for a in scope)
        for misfit in self.misfits:
            if set(scope) <= set(misfit.scope):
                inside_one = math.prod(self.domain.sizes[a] for a in misfit.scope if a not in scope)
                found.append(np.full(cells, misfit.deviation**2 * inside_one))
        return found

    def rows(self, rows: int, rng: np.random.Generator, *, even: bool = False) -> dict[str, IntArray]:
        """Synthetic rows of a factored model, one array of codes per attribute; `even` as in `Calibrated.sample`."""
        return self.calibrated.sample(rows, rng, even=even)


def answers_on(marginal: Marginals, group: Group) -> FloatArray:
    """The group's answers, from a model's marginal."""
    return np.asarray(group.apply(marginal(group.scope)), dtype=np.float64) * float(group.unit)


def clique_scopes(groups: Sequence[Group]) -> list[Scope]:
    """The scopes of the groups that lie in no other group's scope."""
    return widest(g.scope for g in groups if isinstance(g, Kronecker) and g.scope)


def state_of(model: Model) -> dict[str, Any]:
    """The arrays of a model, for saving."""
    state: dict[str, Any] = {"total": np.array([model.total]), "floor": np.array([model.floor])}
    state["deviations"] = np.array(model.deviations)
    if model.unsure:
        state["unsure"] = np.array([model.unsure])
    if model.members:
        state["shared"] = np.array([model.shared])
    if model.plain is not None:
        state["plain"] = model.plain
    if model.support is not None:
        state["support"] = np.packbits(model.support)
    if model.potentials is not None:
        state["potentials"] = model.potentials
    if model.members:
        state["member_potentials"] = np.array([p for p, _ in model.members])
        state["member_totals"] = np.array([t for _, t in model.members])
    if model.tree is not None:
        state["misfits"] = np.array([(m.ratio, m.deviation) for m in model.misfits]).reshape(-1, 2)
    return state
