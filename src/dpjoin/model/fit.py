"""Fit a log-linear model to noisy measurements: the most probable potentials, given Gaussian noise.

    minimise  sum_t |y_t - answers_t(F)|² / (2 sigma_t²)  +  sum_g |potentials_g|² / (2 tau_g²)

over F = total * softmax(logits). With tau → ∞ this is the maximum-entropy distribution that fits the
measurements best (the refit of Private-PGM); a finite tau_g pulls the interactions below
the noise towards independence, and leaves alone those that stand out. tau_g is learnt per group from the
same noisy measurements (evidence maximisation), so nothing needs tuning. All of it is post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Generic, TypeVar

import numpy as np

from dpjoin import constants
from dpjoin.model.coordinates import Coordinates
from dpjoin.model.junction import JunctionTree, Passes
from dpjoin.model.lbfgs import minimise
from dpjoin.model.terms import DenseOracle, FloatArray, Marginals, Scope, Terms

MANY_TERMS = 2**14
"""With this many potentials the optimiser's own bookkeeping takes half of the time."""
CLOSE, LOOSE = 1e-5, 1e-2
"""A search ends where steps gain less than this share of the objective. That is a log-probability, about half a unit
for each term in the end, so the first is far below what noise can tell, and the second still a hundredth of it."""
FEW_CELLS = 2**17
"""Above so many cells a step takes milliseconds, and a loose search, then a closer one, will do. (Few steps will not:
with 100 times the rows of benchmarks/large.py on 10^6 cells 8 at a time left errors eight times as large.)"""
TINY = 1e-100
FURTHEST = 4.0
"""A search begins no further from zero than this: where a probability is all but zero, it has no slope."""
FEW_GROUPS, SWEEPS, CELL_STEPS = 6, 3, 10
"""A search begins near measured cells where so few groups of terms were measured: each costs a sum over all cells, so
many times, and as many steps for its cells, each by itself."""


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


S = TypeVar("S", bound=Terms | JunctionTree)
"""The terms of a model and a way to sum over its cells: `Terms` write these down, a `JunctionTree` does not. Both have
an oracle, which tells means, variances and covariances of the terms for one vector of potentials after the other."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Fit(Generic[S]):
    """A fitted model: potentials, and the prior widths they were fitted with."""

    terms: S
    total: float
    potentials: FloatArray
    tau: FloatArray
    """One per term group."""
    oracle: DenseOracle | Passes
    """Shared by all fits that come from one."""
    free: tuple[int, ...] = ()
    """Term groups whose prior stays as wide as it is."""
    tails: FloatArray | None = None
    """How many times as wide as its group's each potential's prior is; None: all alike."""

    @property
    def cliques(self) -> tuple[Scope, ...]:
        return self.terms.cliques

    @property
    def slices(self) -> tuple[slice, ...]:
        return self.terms.slices

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """How many values each attribute of a term group has; all potentials of other groups lie along one axis."""
        others = ((s.stop - s.start,) for s in self.slices[len(self.cliques) :])
        return (*(tuple(self.terms.sizes[a] for a in clique) for clique in self.cliques), *others)

    @property
    def single(self) -> tuple[bool, ...]:
        """Whether each term group is a one-way marginal."""
        return tuple(n < len(self.cliques) and len(self.cliques[n]) == 1 for n in range(len(self.slices)))

    @property
    def tau_each(self) -> FloatArray:
        """The prior width of each potential."""
        each: FloatArray = np.repeat(self.tau, [s.stop - s.start for s in self.slices])
        return each if self.tails is None else each * self.tails

    @cached_property
    def means(self) -> FloatArray:
        """What each term is on average."""
        return self.oracle.means(self.potentials)

    @cached_property
    def curvature(self) -> FloatArray:
        """How fast each term's own total moves with its own potential: total * variance of the term."""
        return np.maximum(self.total * self.oracle.variances(self.potentials), 0.0)

    @cached_property
    def marginal(self) -> Marginals:
        """Any marginal of the model, in rows."""
        return self.terms.marginals(self.potentials, self.total)


def start(terms: S, total: float, *, free: Sequence[Scope] = ()) -> Fit[S]:
    """The uniform distribution (on the support), before anything is measured; `free` cliques keep their wide priors."""
    tau = np.ones(len(terms.slices))
    for n, clique in enumerate(terms.cliques):
        tau[n] = constants.SINGLE_START if len(clique) == 1 else constants.PRIOR_START
    loose = tuple(terms.cliques.index(c) for c in free)
    tau[list(loose)] = constants.FREE_PRIOR
    potentials = np.zeros(terms.size)
    return Fit(terms=terms, total=total, potentials=potentials, tau=tau, oracle=terms.oracle(), free=loose)


def with_sums(fit: Fit[S], evidence: Evidence, *, every: bool = False) -> Evidence:
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


def at_independence(fit: Fit[S], evidence: Evidence) -> Fit[S]:
    """Where to begin: one-way marginals about as they were measured, and nothing else."""
    potentials = fit.potentials.copy()
    for where, single in zip(fit.slices, fit.single, strict=True):
        if single and bool((evidence.precision[where] > 0).all()):
            least = 2.0 / np.sqrt(evidence.precision[where])
            noisy = evidence.noisy[where]
            small = noisy < least
            begun = np.maximum(noisy, least)
            if begun[small].sum() > begun[~small].sum() / 4:
                # One by one they are all noise; together they are not, and have not so many rows.
                begun[small] = max(float(noisy[small].mean()), float(least.min()) / 100)
            logs = np.log(begun)
            potentials[where] = np.maximum(logs - logs.mean(), -FURTHEST)
    return replace(fit, potentials=potentials)


def near_cells(fit: Fit[S], evidence: Evidence) -> Fit[S]:
    """From independence on, every measured cell is moved near its noisy value, marginal by marginal.

    Where an attribute is all but determined by another, cells differ from independence by more than a search from there
    gets to in its steps, and then neither they nor their sums are met. One-way marginals come last.
    """
    groups = [
        where for where in reversed(fit.slices[: len(fit.cliques)]) if bool((evidence.precision[where] > 0).all())
    ]
    if len(groups) > FEW_GROUPS or not groups or all(fit.single):
        return fit
    potentials, tau = fit.potentials.copy(), fit.tau_each
    for _ in range(SWEEPS):
        for where in groups:
            cells = fit.total * fit.oracle.means(potentials)[where]
            noisy, precision = evidence.noisy[where], evidence.precision[where]
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
    fit: Fit[S], evidence: Evidence, *, steps: int, prior_mean: FloatArray | None = None, tolerance: float = CLOSE
) -> Fit[S]:
    """The most probable potentials for the given prior widths, from where `fit` stands."""
    implied = with_sums(fit, evidence)
    if not fit.potentials.any():
        fit = near_cells(at_independence(fit, implied), implied)
    prior = 1.0 / fit.tau_each**2
    width = 1.0 / np.sqrt(fit.curvature**2 * implied.precision + prior)
    at = Coordinates.of(fit.cliques, fit.shapes, fit.means, width)

    def objective(x: FloatArray) -> tuple[float, FloatArray]:
        potentials = at.potentials(x)
        miss = fit.total * fit.oracle.means(potentials) - evidence.noisy
        pull = miss * evidence.precision
        away = potentials if prior_mean is None else potentials - prior_mean
        gradient = fit.total * fit.oracle.covariances(pull) + prior * away
        return 0.5 * float(miss @ pull + away @ (prior * away)), at.slopes(gradient)

    remembered = 8 if len(fit.potentials) > MANY_TERMS else 20
    x = minimise(objective, at.inverse(fit.potentials), steps=steps, remembered=remembered, tolerance=tolerance)
    return replace(fit, potentials=at.potentials(x))


def relearn_prior(fit: Fit[S], evidence: Evidence) -> Fit[S]:
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
        weight, width = constants.SINGLE_PSEUDO if single else constants.PRIOR_PSEUDO
        energy = float((fit.potentials[where] ** 2).sum()) + weight * width**2
        tau[g] = np.clip(np.sqrt(energy / (float(share[where].sum()) + weight)), *constants.PRIOR_RANGE)
        if not single:
            sure = moved[where] ** 2 * evidence.precision[where] > constants.SURE**2
            wider = constants.TAILS * np.abs(fit.potentials[where]) / tau[g]
            tails[where] = np.where(sure, np.maximum(1.0, wider), 1.0)
    return replace(fit, tau=tau, tails=tails)


def widths_by_value(fit: Fit[S], evidence: Evidence) -> FloatArray:
    """About how far each potential really is from zero, where that shows: for error bars, not for the fit.

    One width serves a whole group in the fit. Interactions with rare values often are wider, and then the fit pulls too
    hard there. A potential of width t whose term moves by c for a unit of it, measured with noise s, is fitted with
    prior width tau; what the fit then misses of the measurement has about the variance

        (1 - share)² (s² + c² t²),   share = c² tau² / (s² + c² tau²).

    Summed over all potentials with the same value of an attribute this gives t, as far as it stands out of noise, and
    never below tau. (A fit with these widths is no better: where cells are below the noise, it takes noise for rare
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
            if (where.stop - where.start) // size < constants.OF_ONE_VALUE:
                continue

            def by_value(each: FloatArray, axes: tuple[int, ...] = shape, kept: int = axis) -> FloatArray:
                others = tuple(a for a in range(len(axes)) if a != kept)
                return np.asarray(each.reshape(axes).sum(axis=others, keepdims=True))

            noise = np.sqrt(2.0 * by_value(pulled[where] ** 2))
            more = by_value(missed[where] - pulled[where])
            signal = np.maximum(by_value(pulled[where] * known[where]) * fit.tau[g] ** 2, TINY)
            # Noise beyond even the widest of them is all there is, unless they surely stand out.
            trust = 1.0 / (1.0 + (noise / (constants.WIDEST_PRIOR**2 * signal)) ** 2)
            trust = np.where(more > constants.SURE * noise, 1.0, trust)
            # By chance, one value at most stands out of noise so far.
            by_chance = max(1.0, NormalDist().inv_cdf(1.0 - 1.0 / max(2, size))) * noise
            ratio = np.sqrt(1.0 + trust * np.maximum((more - by_chance) / signal - 1.0, 0.0))
            # What is missed is that of a value of one attribute or another: it does not count for both.
            own = np.broadcast_to(np.clip(ratio, 1.0, constants.WIDEST_PRIOR), shape).reshape(-1)
            wider[where] = np.maximum(wider[where], own)
    return fit.tau_each * wider


def moves_apart(fit: Fit[S], other: Fit[S], evidence: Evidence) -> float:
    """By how many deviations of its noise the measured term that differs most between two fits does."""
    moved = fit.total * np.abs(fit.means - other.means)
    return float((moved * np.sqrt(evidence.precision)).max(initial=0.0))


def learn(fit: Fit[S], evidence: Evidence, *, rounds: int = 4, steps: int = 60) -> Fit[S]:
    """Alternate between the potentials and the prior widths; less often where a step is dear.

    Probabilities that are all but zero have no slope, so a step that is far too long may end where no other leads out.
    Such a search begins again, with narrow priors that keep its first steps short.
    """
    found = _alternate(fit, evidence, rounds=rounds, steps=steps)
    if misfit(found, evidence) <= constants.STUCK:
        return found
    nothing, narrow = np.zeros_like(fit.potentials), np.minimum(fit.tau, constants.PRIOR_START)
    narrow_fit = replace(fit, potentials=nothing, tau=narrow, tails=None, free=())
    near = replace(maximise(narrow_fit, evidence, steps=2 * steps), tau=fit.tau, free=fit.free)
    again = _alternate(near, evidence, rounds=rounds, steps=steps)
    return min(found, again, key=lambda one: misfit(one, evidence))


def misfit(fit: Fit[S], evidence: Evidence) -> float:
    """How far the model is from what was measured, in units of the noise: the mean square."""
    miss = fit.total * fit.means - evidence.noisy
    return float(miss**2 @ evidence.precision) / max(1, int(np.count_nonzero(evidence.precision)))


def _alternate(fit: Fit[S], evidence: Evidence, *, rounds: int, steps: int) -> Fit[S]:
    def searched(begin: Fit[S], first: float, last: float) -> Fit[S]:
        for _ in range(rounds - 1):
            begin = relearn_prior(maximise(begin, evidence, steps=steps, tolerance=first), evidence)
        return maximise(begin, evidence, steps=2 * steps, tolerance=last)

    if fit.terms.cells <= FEW_CELLS:
        return searched(fit, CLOSE, CLOSE)
    # A loose search ends where all terms together gain little. The few cells far above the noise may still be far
    # off, and so may a small marginal among large ones.
    found = searched(fit, LOOSE, LOOSE / 4)
    if clear_misfit(found, evidence) > constants.FAR:
        return searched(found, CLOSE, CLOSE)
    return maximise(found, evidence, steps=2 * steps) if worst_misfit(found, evidence) > constants.FAR else found


def worst_misfit(fit: Fit[S], evidence: Evidence) -> float:
    """The misfit of the term group that is furthest off."""
    squares = (fit.total * fit.means - evidence.noisy) ** 2 * evidence.precision
    return max(float(squares[where].mean()) for where in fit.slices)


def clear_misfit(fit: Fit[S], evidence: Evidence) -> float:
    """The misfit of terms far above the noise."""
    means = fit.total * fit.means
    clear = means**2 * evidence.precision > constants.SURE**2
    return float(((means - evidence.noisy)[clear] ** 2 @ evidence.precision[clear]) / max(1, int(clear.sum())))
