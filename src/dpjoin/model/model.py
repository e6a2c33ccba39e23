"""The released model: a non-negative table over the cells that the workload looks at, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np

from dpjoin.model.fit import (
    CLOSE,
    DEAR_CELLS,
    DEAR_TERMS,
    FEW_CELLS,
    SINGLE_CELLS,
    SINGLE_NOISE,
    Evidence,
    F,
    maximise,
    moves_apart,
    table_of,
    widths_by_value,
)
from dpjoin.model.terms import BoolArray, Domain, DType, FloatArray, Terms
from dpjoin.model.threads import one_blas_thread
from dpjoin.spec.workload import Group, Kronecker

ASTRAY = 10.0
"""A member whose search did not come back from where a wide prior drew it moves something measured by so many
deviations of its noise. It is searched for again, with a prior that draws it less far."""
NEARER = (1.0, 0.5, 0.25, 0.0)
"""How far, one after the other."""
MEMBERS = 12
"""How many plausible models stand for the uncertainty; the spread of 12 is known to about a fifth."""
MEMBER_STEPS = 8
"""How many steps a member takes on a large domain, from the fit on, whose curvature it inherits. With 8 the spread is
0 to 9 % wider than with 100 (benchmarks/large.py): what is left of where members start."""
MEMBER_TOLERANCE = 2e-3
"""Of many potentials: where steps gain less than this share of the objective, about half a unit for each, members are
as far from the fit as they will be."""
PRECISE = 5e-4
"""Noise below this share of the total lets members stray further in units of their width: they take twice the steps.
With 100 times the rows of benchmarks/large.py, 8 steps leave 90 % bars that cover 85 %."""
STRETCH = 1.2
"""Bars are this much longer than the members' spread: twelve members know it roughly, the prior widths are
estimated themselves, and real interactions have longer tails than a Gaussian."""
PRODUCT_STRETCH = 1.65
"""The same for product queries, which sum over many cells: without it 90 % bars held three quarters of them."""


@dataclass(frozen=True, eq=False)
class Model:
    """A log-linear model (`terms`, `potentials`) or a plain table, scaled to `total`.

    `members` are further potentials and totals that the noisy measurements make about as plausible: their
    spread is the error bar. `floor` is added to every bar, for what the spread cannot know.
    """

    domain: Domain
    total: float
    terms: Terms | None = None
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
    evidence: Evidence | None = None
    """The noisy numbers that it was fitted to, as they are; not kept in files."""
    certain: bool = False
    """Whether the cells are those of a public table, as they are; not kept in files."""

    @cached_property
    def table(self) -> FloatArray:
        """Cells as a matrix, left by right."""
        return self.tabulated()

    def tabulated(self) -> FloatArray:
        """The table, worked out anew and not kept."""
        if self.plain is not None:
            return self.plain
        assert self.terms is not None
        assert self.potentials is not None
        return table_of(self.terms, self.potentials, self.total)

    @cached_property
    def _member_tables(self) -> list[FloatArray]:
        if not self.members:
            return []
        assert self.terms is not None
        # Members only say how far off answers are: where noise is far above what single precision loses, that will do.
        single = (
            self.domain.cells > SINGLE_CELLS
            and not self.terms.products
            and min(self.deviations, default=0.0) > SINGLE_NOISE * self.total
        )
        kind: DType = np.float32 if single else np.float64
        with one_blas_thread():
            return [table_of(self.terms, potentials, total, kind) for potentials, total in self.members]

    @cached_property
    def variants(self) -> list[FloatArray]:
        """Tables about as plausible as the model's: its members', or with the total off as far as it may be."""
        if self.members or not self.unsure:
            return self._member_tables
        share = self.unsure / self.total
        return [self.table * (1.0 + share), self.table * (1.0 - share)]

    def scaled(self, factor: float, member_factors: Sequence[float]) -> Model:
        """The same shape with this many times the size, and each member likewise."""
        members = tuple((p, total * own) for (p, total), own in zip(self.members, member_factors, strict=True))
        plain = None if self.plain is None else self.plain * factor
        floor, unsure = self.floor * factor, self.unsure * factor
        return replace(self, total=self.total * factor, plain=plain, members=members, floor=floor, unsure=unsure)

    @property
    def support(self) -> BoolArray | None:
        """The cells outside which the model is known to be empty; None: all of them."""
        return self.terms.support if self.terms is not None else None

    @property
    def single_terms(self) -> dict[str, slice]:
        """By attribute, where the potentials of its one-way marginal lie."""
        terms = self.terms
        if terms is None:
            return {}
        return {c[0]: where for c, where in zip(terms.cliques, terms.slices, strict=False) if len(c) == 1}

    def knows(self, scope: Sequence[str]) -> bool:
        """Whether error bars are known within a scope."""
        return any(set(scope) <= known for known in self.known)

    def counted(self, scope: Sequence[str]) -> tuple[FloatArray, float] | None:
        """A scope's cells as noise left them, and the variance of that noise; None if nothing measured contains it.

        Unbiased, and where there are few rows often below zero: every measured clique's sums, weighed by precision.
        """
        if self.certain:
            return self.domain.marginal(self.table, scope), 0.0
        if self.terms is None or self.evidence is None:
            return None
        found, precision = np.zeros([self.domain.sizes[a] for a in scope]), 0.0
        for clique, where in zip(self.terms.cliques, self.terms.slices, strict=False):
            own = float(self.evidence.precision[where.start])
            if not set(scope) <= set(clique) or not own:
                continue
            cells = self.evidence.noisy[where].reshape([self.domain.sizes[a] for a in clique])
            sums = np.moveaxis(cells, [clique.index(a) for a in scope], range(len(scope)))
            sums = sums.sum(axis=tuple(range(len(scope), len(clique))))
            own *= sums.size / cells.size
            found, precision = found + own * sums, precision + own
        return (found / precision, 1.0 / precision) if precision else None

    def answer(self, group: Group) -> FloatArray:
        """The group's answers on the model."""
        return answers_on(self.domain, self.table, group)

    def error(self, group: Group, coverage: float) -> FloatArray:
        """Half-widths that cover the exact answers with about this probability; nan where nothing is known."""
        return half_widths(self, group, coverage)

    def spread(self, group: Group) -> FloatArray | None:
        """How far each member's answers are from the model's, members x queries."""
        if not self.members:
            return np.outer([1.0, -1.0], self.answer(group) * (self.unsure / self.total)) if self.unsure else None
        answers = np.array([answers_on(self.domain, table, group) for table in self._member_tables])
        return answers - self.answer(group)

    def spreads(self, group: Group) -> list[FloatArray]:
        """The spread, if there is one, as the only independent part."""
        spread = self.spread(group)
        return [] if spread is None else [spread]

    def width(self, group: Group) -> FloatArray | None:
        """About how far off each answer is, root mean square; None where only the floor tells."""
        spread = self.spread(group)
        return None if spread is None else np.sqrt((spread**2).mean(axis=0))

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
            slack[answers_on(self.domain, self.support.astype(np.float64), group) == 0] = 0.0
        return slack

    def noise(self, group: Kronecker) -> FloatArray:
        """The standard deviation with which each cell of a marginal was measured, directly or as a sum."""
        found = self._looks(group.scope)
        return np.sqrt(np.min(found, axis=0)) if found else np.zeros(group.cells)

    def measured(self, group: Kronecker) -> FloatArray:
        """The variance with which each cell of a marginal was measured, by all that was measured of it together."""
        return _together(self._looks(group.scope), group.cells)

    def variance(self, scope: Sequence[str]) -> FloatArray:
        """The least of the variances with which a scope's cells were measured; infinite where nothing contains it."""
        shape, found = [self.domain.sizes[a] for a in scope], self._looks(scope)
        return np.asarray(np.min(found, axis=0)).reshape(shape) if found else np.full(shape, math.inf)

    def _looks(self, scope: Sequence[str]) -> list[FloatArray]:
        """The variance of each cell of a scope in every measured marginal that contains it, directly or as a sum."""
        terms = self.terms or Terms(self.domain, ())
        found = []
        for i, (clique, deviation) in enumerate(zip(terms.cliques, self.deviations, strict=False)):
            if set(scope) <= set(clique):
                # What is known to be empty has no noise, even where nothing was measured.
                inside = terms.inside(i, tuple(scope))
                found.append(np.where(inside > 0, deviation, 0.0) ** 2 * inside)
        return found


def _together(variances: Sequence[FloatArray], cells: int) -> FloatArray:
    """The variance of what was measured several times, weighed by precision; zero where it was never measured."""
    if not variances:
        return np.zeros(cells)
    certain = np.min(variances, axis=0) == 0
    precision = sum((1.0 / np.where(certain, 1.0, v) for v in variances), start=np.zeros(cells))
    return np.where(certain, 0.0, 1.0 / precision)


class Estimate(Protocol):
    """What answers and error bars need: a `Model`, a `Joined` of one per table, or a `Union` of such parts."""

    @property
    def domain(self) -> Domain: ...
    @property
    def total(self) -> float: ...
    @property
    def table(self) -> FloatArray: ...
    @property
    def known(self) -> tuple[frozenset[str], ...]: ...
    def knows(self, scope: Sequence[str]) -> bool: ...
    def answer(self, group: Group) -> FloatArray: ...
    def error(self, group: Group, coverage: float) -> FloatArray: ...
    def spreads(self, group: Group) -> list[FloatArray]: ...
    def width(self, group: Group) -> FloatArray | None: ...
    def slack(self, group: Group) -> FloatArray: ...
    def noise(self, group: Kronecker) -> FloatArray: ...
    def measured(self, group: Kronecker) -> FloatArray: ...


def answers_on(domain: Domain, table: FloatArray, group: Group) -> FloatArray:
    """The group's answers on a table of cells."""
    answers = group.apply(domain.marginal(table, group.scope))
    return np.asarray(answers, dtype=np.float64) * float(group.unit)


def half_widths(estimate: Estimate, group: Group, coverage: float) -> FloatArray:
    """Half-widths that cover the exact answers with about this probability; nan where nothing is known."""
    if not estimate.knows(group.scope):
        return np.full(len(group), np.nan)
    quantile = NormalDist().inv_cdf(0.5 + coverage / 2)
    slack, width = estimate.slack(group), estimate.width(group)
    if width is None:
        return slack
    size = np.abs(estimate.answer(group))
    # Twelve members tell the width only roughly; pooling with the group's own rule of width against
    # size keeps a cell whose members happen to agree from getting a bar that is too short.
    stretch = STRETCH if isinstance(group, Kronecker) else PRODUCT_STRETCH
    bars = stretch * quantile * pooled(width, size) + slack
    if isinstance(group, Kronecker) and group.is_marginal:
        # A small cell that the noise cannot tell from an empty one may be empty.
        bars = np.where(size < quantile * estimate.noise(group), np.maximum(bars, size), bars)
    return bars


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


def plausible(
    fit: F,
    evidence: Evidence,
    *,
    total_deviation: float,
    members: int = MEMBERS,
    steps: int = 25,
    seed: int = 0,
    after: Callable[[F, Evidence], F] | None = None,
) -> tuple[tuple[FloatArray, float], ...]:
    """Potentials drawn from about the posterior: perturb the measurements and the prior, and fit again.

    Public randomness with a fixed seed: everything here is post-processing, and the release stays a
    function of the noisy answers. Independent models that are added up want different seeds: their members
    would otherwise be off together. What is done to the fit `after` the search is done to each of them.
    """
    rng = np.random.default_rng(seed)
    many = len(fit.potentials) > DEAR_TERMS
    if many:
        steps //= 2
    if fit.cells > FEW_CELLS:
        steps = min(steps, member_steps(evidence, fit.total))
    if fit.cells > DEAR_CELLS or many:
        members //= 2
    deviation = np.where(evidence.precision > 0, 1.0 / np.sqrt(np.maximum(evidence.precision, 1e-300)), 0.0)
    widths, out = widths_by_value(fit, evidence), []
    nearer = list(NEARER)
    # Most of many potentials are drowned and go where their prior draws them, each by itself: one step for all of them.
    search = partial(maximise, steps=steps, unit_step=many, tolerance=MEMBER_TOLERANCE if many else CLOSE)
    for _ in range(members):
        jittered = Evidence(evidence.noisy + deviation * rng.standard_normal(len(deviation)), evidence.precision)
        centre = widths * rng.standard_normal(len(deviation))
        moved = search(fit, jittered, prior_mean=nearer[0] * centre)
        while len(nearer) > 1 and moves_apart(fit, moved, evidence) > ASTRAY:
            del nearer[0]  # for those to come as well: where one goes astray most do, and every search takes time
            moved = search(fit, jittered, prior_mean=nearer[0] * centre)
        if after is not None:
            moved = after(moved, jittered)
        out.append((moved.potentials, max(1.0, fit.total + total_deviation * float(rng.standard_normal()))))
    return tuple(out)


def member_steps(evidence: Evidence, total: float) -> int:
    """How many steps a member takes on a large domain."""
    precision = float(evidence.precision.max(initial=0.0))
    return MEMBER_STEPS if precision * (PRECISE * total) ** 2 < 1.0 else 2 * MEMBER_STEPS


def clique_scopes(groups: Sequence[Group]) -> list[tuple[str, ...]]:
    """The scopes of the groups that lie in no other group's scope."""
    scopes = list(dict.fromkeys(g.scope for g in groups if isinstance(g, Kronecker) and g.scope))
    return [s for s in scopes if not any(set(s) < set(t) for t in scopes)]


def state_of(model: Model) -> dict[str, Any]:
    """The arrays of a model, for saving."""
    state: dict[str, Any] = {"total": np.array([model.total]), "floor": np.array([model.floor])}
    state["deviations"] = np.array(model.deviations)
    if model.unsure:
        state["unsure"] = np.array([model.unsure])
    if model.plain is not None:
        state["plain"] = model.plain
    if model.support is not None:
        state["support"] = np.packbits(model.support)
    if model.potentials is not None:
        state["potentials"] = model.potentials
    if model.members:
        state["member_potentials"] = np.array([p for p, _ in model.members])
        state["member_totals"] = np.array([t for _, t in model.members])
    return state
