"""Fit a log-linear model to noisy measurements: the most probable potentials, given Gaussian noise.

    minimise  sum_t |y_t - answers_t(F)|² / (2 sigma_t²)  +  sum_g |potentials_g|² / (2 tau_g²)

over F = total * softmax(logits). With tau → ∞ this is the maximum-entropy distribution that fits the
measurements best (the refit of Private-PGM); a finite tau_g pulls the interactions that the noise
drowns towards independence, and leaves alone those that stand out. tau_g is learnt per group from the
same noisy measurements (evidence maximisation), so nothing needs tuning. All of it is post-processing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpjoin.model.coordinates import Coordinates
from dpjoin.model.lbfgs import Pairs, minimise
from dpjoin.model.terms import DType, FloatArray, RealArray, Terms

PRIOR_START = 0.4
"""Where each group's tau starts. Log-odds interactions in tabular data are mostly below one."""
PRIOR_PSEUDO = (0.5, 0.1)
"""(weight in effective potentials, tau) of the pseudo-observation that keeps an empty group's tau finite."""
PRIOR_RANGE = (0.02, 4.0)
DEAR_CELLS = 2**19
"""Above this many cells a step takes several milliseconds, so error bars come from fewer members."""
DEAR_TERMS = 2**14
"""Likewise with this many potentials: there the optimiser's own bookkeeping takes half of the time."""
SINGLE_NOISE = 1e-4
"""Noise that is more than this share of the total is far above what single precision loses."""
SINGLE_CELLS = 2**14
"""Above this many cells a fit sums in single precision: probabilities come out to about 1e-6. What is fitted is double,
and so are answers."""
CLOSE, LOOSE = 1e-5, 1e-2
"""A search ends where steps gain less than this share of the objective. That is a log-probability, about half a unit
for each term in the end, so the first is far below what noise can tell, and the second still a hundredth of it."""
STUCK = 10.0
"""A fit that misses what was measured by this many times the noise's variance, on average, has gone astray."""
FAR = 4.0
"""Likewise for one marginal, after a loose search: a closer one follows."""
FEW_CELLS = 2**17
"""Above so many cells a step takes milliseconds, and a loose search, then a closer one, will do. (Few steps will not:
with 100 times the rows of benchmarks/large.py on 10^6 cells 8 at a time left errors eight times as large.)"""
OF_ONE_VALUE = 16
"""From so many potentials on that look at one value of an attribute, their own width shows in what the fit misses."""
WIDEST = 5.0
"""How many times as wide as their group they may turn out to be."""
TINY = 1e-100
FURTHEST = 4.0
"""A search begins no further from zero than this: where a probability is all but zero, it has no slope."""
TAILS, SURE = 2.0, 4.0
"""A potential that moves its cell by so many deviations of the noise (the second) surely is that far from zero, and its
prior is the first times as wide. Cells that are all but empty are common, and a prior that suits the other cells would
fill them."""
FEW_GROUPS, SWEEPS, CELL_STEPS = 6, 3, 10
"""A search begins near measured cells where so few groups of terms were measured: each costs a sum over all cells, so
many times, and as many steps for its cells, each by itself."""
FREE = 5.0
"""The prior width of a free clique: cells may differ by any factor."""
SINGLE_START, SINGLE_PSEUDO = 1.5, (1.0, 1.5)
"""The same for one-way terms, whose log-odds are larger."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of each term: a noisy value and its precision 1/variance (zero: not measured)."""

    noisy: FloatArray
    precision: FloatArray

    @classmethod
    def none(cls, size: int) -> Evidence:
        return cls(np.zeros(size), np.zeros(size))

    def add(self, where: slice, noisy: FloatArray, variance: float) -> Evidence:
        """Combine with a further independent measurement, weighted by precision."""
        values, precision = self.noisy.copy(), self.precision.copy()
        extra = 1.0 / variance
        total = precision[where] + extra
        values[where] = (values[where] * precision[where] + noisy * extra) / total
        precision[where] = total
        return Evidence(values, precision)


class Sums(Protocol):
    """Sums over all cells, for one vector of potentials after the other."""

    def means(self, potentials: FloatArray) -> FloatArray:
        """What each term is on average: for a clique cell, its probability."""
        ...

    def covariances(self, direction: FloatArray) -> FloatArray:
        """At the potentials of the last call of `means`: how fast the means move when potentials move like this."""
        ...


class DenseSums:
    """Sums over a table of cells that is written down, in room that is used again and again."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        single = terms.domain.cells > SINGLE_CELLS and not terms.others
        self._designs = terms.designs(np.float32 if single else np.float64)
        shape = (terms.domain.rows, terms.domain.columns)
        self._table: RealArray = np.empty(shape, np.float32 if single else np.float64)
        self._slope = np.empty_like(self._table)
        self._mass = 1.0
        self._at: FloatArray | None = None
        self._mean = np.zeros(0)

    def means(self, potentials: FloatArray) -> FloatArray:
        """See `Sums`. Asked twice at the same place, it works them out once."""
        if self._at is not None and np.array_equal(potentials, self._at):
            return self._mean
        table = self._table
        self.terms.logits_by(self._designs, potentials, table)
        if self.terms.outside is not None:
            np.copyto(table, -np.inf, where=self.terms.outside)
        table -= table.max()
        np.exp(table, out=table)
        sums = self.terms.answers_by(self._designs, table)
        # A marginal's cells add up to all cells, and are fewer.
        self._mass = float(sums[self.terms.slices[0]].sum() if self.terms.cliques else table.sum())
        self._mean = sums / self._mass
        self._at = potentials.copy()
        return self._mean

    def covariances(self, direction: FloatArray) -> FloatArray:
        """See `Sums`."""
        self.terms.logits_by(self._designs, direction, self._slope)
        self._slope *= self._table
        return (
            self.terms.answers_by(self._designs, self._slope) / self._mass - float(direction @ self._mean) * self._mean
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class LogLinear(ABC):
    """A fitted model, however its cells are summed: potentials, and the prior widths they were fitted with."""

    total: float
    potentials: FloatArray
    tau: FloatArray
    """One per term group."""
    sums: Sums
    """Room for its sums, shared by all fits that come from one."""
    free: tuple[int, ...] = ()
    """Term groups whose prior stays as wide as it is."""
    seen: Pairs = ()
    """How the objective bends, as far as the optimiser has seen."""
    tails: FloatArray | None = None
    """How many times as wide as its group's each potential's prior is; None: all alike."""

    @property
    @abstractmethod
    def slices(self) -> tuple[slice, ...]:
        """Where each term group's potentials lie."""

    @property
    @abstractmethod
    def cliques(self) -> tuple[tuple[str, ...], ...]:
        """The term groups that are marginals; others come after them."""

    @property
    @abstractmethod
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """How many values each attribute of a term group has; all potentials of other groups lie along one axis."""

    @property
    @abstractmethod
    def single(self) -> tuple[bool, ...]:
        """Whether each term group is a one-way marginal."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """How many numbers one sum goes over."""

    @property
    def tau_each(self) -> FloatArray:
        """The prior width of each potential."""
        each: FloatArray = np.repeat(self.tau, [s.stop - s.start for s in self.slices])
        return each if self.tails is None else each * self.tails

    @cached_property
    def means(self) -> FloatArray:
        """What each term is on average."""
        return self.sums.means(self.potentials)

    @cached_property
    def curvature(self) -> FloatArray:
        """How fast each term's own total moves with its own potential: total * Var(indicator)."""
        return np.maximum(self.total * self.means * (1.0 - self.means), 0.0)


F = TypeVar("F", bound=LogLinear)


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit(LogLinear):
    """On a table of all cells."""

    terms: Terms

    @property
    def slices(self) -> tuple[slice, ...]:
        return self.terms.slices

    @property
    def cliques(self) -> tuple[tuple[str, ...], ...]:
        return self.terms.cliques

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        sizes, cliques = self.terms.domain.sizes, self.terms.cliques
        others = ((s.stop - s.start,) for s in self.slices[len(cliques) :])
        return (*(tuple(sizes[a] for a in clique) for clique in cliques), *others)

    @property
    def single(self) -> tuple[bool, ...]:
        return (*(len(c) == 1 for c in self.terms.cliques), *(False for _ in range(self.terms.others)))

    @property
    def cells(self) -> int:
        return self.terms.domain.cells

    @property
    def table(self) -> FloatArray:
        return table_of(self.terms, self.potentials, self.total)

    @cached_property
    def curvature(self) -> FloatArray:
        """The same; product queries and sums are no indicators."""
        return self.terms.curvature(self.table) if self.terms.others else super().curvature


def table_of(terms: Terms, potentials: FloatArray, total: float, dtype: DType = np.float64) -> NDArray[Any]:
    """total * softmax of the logits, as a matrix of cells; nothing outside the support."""
    logits: RealArray = np.empty((terms.domain.rows, terms.domain.columns), dtype)
    terms.logits_by(terms.designs(dtype), potentials, logits)
    if terms.outside is not None:
        # Before the maximum is taken: a large logit out there must not push the ones inside to zero.
        np.copyto(logits, -np.inf, where=terms.outside)
    logits -= logits.max()
    table: RealArray = np.exp(logits, out=logits)
    table *= total / float(table.sum())
    return table


def start(terms: Terms, total: float, *, free: Sequence[tuple[str, ...]] = ()) -> Fit:
    """The uniform distribution (on the support), before anything is measured; `free` cliques keep their wide priors."""
    tau = np.array([SINGLE_START if len(c) == 1 else PRIOR_START for c in terms.cliques] + [1.0] * terms.others)
    loose = tuple(terms.cliques.index(c) for c in free)
    tau[list(loose)] = FREE
    return Fit(terms=terms, total=total, potentials=np.zeros(terms.size), tau=tau, sums=DenseSums(terms), free=loose)


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is to be minimised: how far off measurements and prior are."""

    total: float
    evidence: Evidence
    prior: FloatArray
    """1 / tau² of each potential."""
    centre: FloatArray | None = None
    """Where the prior has its mean; None: at zero."""

    def descended(
        self,
        sums: Sums,
        start: FloatArray,
        at: Coordinates,
        seen: Pairs,
        *,
        steps: int,
        tolerance: float,
        unit_step: bool = False,
    ) -> tuple[FloatArray, Pairs]:
        """Better potentials, and pairs of steps and slopes (without the prior's) that say how the objective bends."""
        evidence, prior = self.evidence, self.prior

        def objective(x: FloatArray) -> tuple[float, FloatArray]:
            potentials = at.potentials(x)
            miss = self.total * sums.means(potentials) - evidence.noisy
            pull = miss * evidence.precision
            away = potentials if self.centre is None else potentials - self.centre
            gradient = self.total * sums.covariances(pull) + prior * away
            return 0.5 * float(miss @ pull + away @ (prior * away)), at.slopes(gradient)

        remembered = 8 if len(start) > DEAR_TERMS else 20
        pairs = tuple((at.inverse(step), at.slopes(change + prior * step)) for step, change in seen)
        found = minimise(
            objective,
            at.inverse(start),
            steps=steps,
            remembered=remembered,
            pairs=pairs,
            value_tolerance=tolerance,
            unit_step=unit_step,
        )
        if unit_step:  # nobody asks for them, and of many potentials they are large
            return at.potentials(found.x), ()
        steps_seen = [(at.potentials(step), at.gradient(change)) for step, change in found.pairs]
        return at.potentials(found.x), tuple((step, change - prior * step) for step, change in steps_seen)


def with_sums(fit: LogLinear, evidence: Evidence, *, every: bool = False) -> Evidence:
    """The same, with marginals that were not measured, or `every` one-way one, as sums of wider ones that were.

    Nothing new, so most fits do not count it again; but it says where the search may begin, how far to step, and how
    many potentials are determined.
    """
    measured = evidence
    for clique, where in zip(fit.cliques, fit.slices, strict=False):
        if len(clique) > 1 if every else measured.precision[where].any():
            continue
        for other, there, shape in zip(fit.cliques, fit.slices, fit.shapes, strict=False):
            if set(clique) < set(other) and measured.precision[there].all():
                axes = tuple(i for i, a in enumerate(other) if a not in clique)
                left = [a for a in other if a in clique]
                noisy = measured.noisy[there].reshape(shape).sum(axis=axes)
                noisy = noisy.transpose([left.index(a) for a in clique]).reshape(-1)
                variance = (1.0 / measured.precision[there]).reshape(shape).sum(axis=axes)
                evidence = evidence.add(where, noisy, float(variance.mean()))
    return evidence


def at_independence(fit: F, evidence: Evidence) -> F:
    """Where to begin: one-way marginals about as they were measured, and nothing else."""
    potentials = fit.potentials.copy()
    for where, single in zip(fit.slices, fit.single, strict=True):
        if single and bool((evidence.precision[where] > 0).all()):
            least = 2.0 / np.sqrt(evidence.precision[where])
            noisy = evidence.noisy[where]
            drowned = noisy < least
            begun = np.maximum(noisy, least)
            if begun[drowned].sum() > begun[~drowned].sum() / 4:
                # One by one they are all noise; together they are not, and have not so many rows.
                begun[drowned] = max(float(noisy[drowned].mean()), float(least.min()) / 100)
            logs = np.log(begun)
            potentials[where] = np.maximum(logs - logs.mean(), -FURTHEST)
    return replace(fit, potentials=potentials)


def near_cells(fit: F, told: Evidence) -> F:
    """From independence on, every measured cell is moved near its noisy value, marginal by marginal.

    Where an attribute is all but determined by another, cells differ from independence by more than a search from there
    gets to in its steps, and then neither they nor their sums are met. One-way marginals come last.
    """
    groups = [where for where in reversed(fit.slices[: len(fit.cliques)]) if bool((told.precision[where] > 0).all())]
    if len(groups) > FEW_GROUPS or not groups or all(fit.single):
        return fit
    potentials, tau = fit.potentials.copy(), fit.tau_each
    for _ in range(SWEEPS):
        for where in groups:
            cells = fit.total * fit.sums.means(potentials)[where]
            noisy, precision = told.noisy[where], told.precision[where]
            potentials[where] += moved_near(cells, noisy, precision, potentials[where], 1.0 / tau[where] ** 2)
    return replace(fit, potentials=potentials)


def moved_near(
    cells: FloatArray, noisy: FloatArray, precision: FloatArray, potentials: FloatArray, prior: FloatArray
) -> FloatArray:
    """By how much each potential is to move, if it moves its own cell only and in proportion (Gauss-Newton)."""
    clear = 2.0 / np.sqrt(precision)
    move = np.clip(np.log(np.maximum(noisy, clear) / np.maximum(cells, clear)), -FURTHEST, FURTHEST)
    for _ in range(CELL_STEPS):
        there = cells * np.exp(move)
        slope = (there - noisy) * there * precision + (potentials + move) * prior
        step = slope / (there**2 * precision + prior)
        move = np.clip(move - np.clip(step, -1.0, 1.0), -FURTHEST, FURTHEST)
    return move


def maximise(
    fit: F,
    evidence: Evidence,
    *,
    steps: int,
    prior_mean: FloatArray | None = None,
    tolerance: float = CLOSE,
    unit_step: bool = False,
) -> F:
    """The most probable potentials for the given prior widths, from where `fit` stands.

    With `unit_step` the first step goes where every potential would by itself; the curvature that `fit` has seen is not
    used.
    """
    told = with_sums(fit, evidence)
    if not fit.potentials.any():
        fit = near_cells(at_independence(fit, told), told)
    prior = 1.0 / fit.tau_each**2
    width = 1.0 / np.sqrt(fit.curvature**2 * told.precision + prior)
    at = Coordinates.of(fit.cliques, fit.shapes, fit.means, width)
    posterior = Posterior(fit.total, evidence, prior, prior_mean)
    known = () if unit_step else fit.seen
    potentials, seen = posterior.descended(
        fit.sums, fit.potentials, at, known, steps=steps, tolerance=tolerance, unit_step=unit_step
    )
    return replace(fit, potentials=potentials, seen=seen)


def relearn_prior(fit: F, evidence: Evidence) -> F:
    """One step of evidence maximisation: tau² = |potentials|² / (number of potentials the data determine).

    Single potentials that are surely far from zero have wider priors than their group.
    """
    known = fit.curvature**2 * with_sums(fit, evidence).precision
    share = known / (known + 1.0 / fit.tau_each**2)
    tau, tails = fit.tau.copy(), np.ones(len(fit.potentials))
    moved = fit.total * fit.means * np.expm1(np.clip(-fit.potentials, -FURTHEST, FURTHEST))
    for g, (where, single) in enumerate(zip(fit.slices, fit.single, strict=True)):
        if g in fit.free:
            continue
        weight, width = SINGLE_PSEUDO if single else PRIOR_PSEUDO
        energy = float((fit.potentials[where] ** 2).sum()) + weight * width**2
        tau[g] = np.clip(np.sqrt(energy / (float(share[where].sum()) + weight)), *PRIOR_RANGE)
        if not single:
            sure = moved[where] ** 2 * evidence.precision[where] > SURE**2
            tails[where] = np.where(sure, np.maximum(1.0, TAILS * np.abs(fit.potentials[where]) / tau[g]), 1.0)
    return replace(fit, tau=tau, tails=tails)


def widths_by_value(fit: LogLinear, evidence: Evidence) -> FloatArray:
    """About how far each potential really is from zero, where that shows: for error bars, not for the fit.

    One width serves a whole group in the fit. Interactions with rare values often are wider, and then the fit pulls too
    hard there. A potential of width t whose term moves by c for a unit of it, measured with noise s, is fitted with
    prior width tau; what the fit then misses of the measurement has about the variance

        (1 - share)² (s² + c² t²),   share = c² tau² / (s² + c² tau²).

    Summed over all potentials with the same value of an attribute this gives t, as far as it stands out of noise, and
    never below tau. (A fit with these widths is no better: where noise drowns cells, it takes noise for rare
    interactions.)
    """
    known = fit.curvature**2 * evidence.precision
    pulled = (1.0 + known * fit.tau_each**2) ** -2.0
    missed = (fit.total * fit.means - evidence.noisy) ** 2 * evidence.precision
    wider = np.ones(len(fit.potentials))
    for g, (where, shape) in enumerate(zip(fit.slices, fit.shapes, strict=True)):
        if g in fit.free:
            continue
        for axis, size in enumerate(shape):
            if (where.stop - where.start) // size < OF_ONE_VALUE:
                continue

            def by_value(each: FloatArray, axes: tuple[int, ...] = shape, kept: int = axis) -> FloatArray:
                others = tuple(a for a in range(len(axes)) if a != kept)
                return np.asarray(each.reshape(axes).sum(axis=others, keepdims=True))

            noise = np.sqrt(2.0 * by_value(pulled[where] ** 2))
            more = by_value(missed[where] - pulled[where])
            signal = np.maximum(by_value(pulled[where] * known[where]) * fit.tau[g] ** 2, TINY)
            # Noise that would drown even the widest of them is all there is, unless they surely stand out.
            told = 1.0 / (1.0 + (noise / (WIDEST**2 * signal)) ** 2)
            told = np.where(more > SURE * noise, 1.0, told)
            # By chance, one value at most stands out of noise so far.
            by_chance = max(1.0, NormalDist().inv_cdf(1.0 - 1.0 / max(2, size))) * noise
            ratio = np.sqrt(1.0 + told * np.maximum((more - by_chance) / signal - 1.0, 0.0))
            # What is missed is that of a value of one attribute or another: it does not count for both.
            own = np.broadcast_to(np.clip(ratio, 1.0, WIDEST), shape).reshape(-1)
            wider[where] = np.maximum(wider[where], own)
    return fit.tau_each * wider


def moves_apart(fit: LogLinear, other: LogLinear, evidence: Evidence) -> float:
    """By how many deviations of its noise the measured term that differs most between two fits does."""
    moved = fit.total * np.abs(fit.means - other.means)
    return float((moved * np.sqrt(evidence.precision)).max(initial=0.0))


def learn(fit: F, evidence: Evidence, *, rounds: int = 4, steps: int = 60) -> F:
    """Alternate between the potentials and the prior widths; less often where a step is dear.

    Probabilities that are all but zero have no slope, so a step that is far too long may end where no other leads out.
    Such a search begins again, with narrow priors that keep its first steps short.
    """
    found = _alternate(fit, evidence, rounds=rounds, steps=steps)
    if misfit(found, evidence) <= STUCK:
        return found
    narrow = replace(
        fit,
        potentials=np.zeros_like(fit.potentials),
        tau=np.minimum(fit.tau, PRIOR_START),
        tails=None,
        seen=(),
        free=(),
    )
    near = replace(maximise(narrow, evidence, steps=2 * steps), tau=fit.tau, free=fit.free)
    again = _alternate(near, evidence, rounds=rounds, steps=steps)
    return min(found, again, key=lambda one: misfit(one, evidence))


def misfit(fit: LogLinear, evidence: Evidence) -> float:
    """How far the model is from what was measured, in units of the noise: the mean square."""
    miss = fit.total * fit.means - evidence.noisy
    return float(miss**2 @ evidence.precision) / max(1, int(np.count_nonzero(evidence.precision)))


def _alternate(fit: F, evidence: Evidence, *, rounds: int, steps: int) -> F:
    def searched(begin: F, first: float, last: float) -> F:
        for _ in range(rounds - 1):
            begin = relearn_prior(maximise(begin, evidence, steps=steps, tolerance=first), evidence)
        return maximise(begin, evidence, steps=2 * steps, tolerance=last)

    if fit.cells <= FEW_CELLS:
        return searched(fit, CLOSE, CLOSE)
    # A loose search ends where all terms together gain little. The few cells that noise does not drown may still be far
    # off, and so may a small marginal among large ones.
    found = searched(fit, LOOSE, LOOSE / 4)
    if clear_misfit(found, evidence) > FAR:
        return searched(found, CLOSE, CLOSE)
    return maximise(found, evidence, steps=2 * steps) if worst_misfit(found, evidence) > FAR else found


def worst_misfit(fit: LogLinear, evidence: Evidence) -> float:
    """The misfit of the term group that is furthest off."""
    squares = (fit.total * fit.means - evidence.noisy) ** 2 * evidence.precision
    return max(float(squares[where].mean()) for where in fit.slices)


def clear_misfit(fit: LogLinear, evidence: Evidence) -> float:
    """The misfit of terms that noise does not drown."""
    means = fit.total * fit.means
    clear = means**2 * evidence.precision > SURE**2
    return float(((means - evidence.noisy)[clear] ** 2 @ evidence.precision[clear]) / max(1, int(clear.sum())))
