"""Fit a log-linear model to noisy measurements: the most probable potentials, given Gaussian noise.

    minimise  sum_t |y_t - answers_t(F)|² / (2 sigma_t²)  +  sum_g |potentials_g|² / (2 tau_g²)

over F = total * softmax(logits). With tau → ∞ this is the maximum-entropy distribution that fits the
measurements best (the refit of Private-PGM); a finite tau_g pulls the interactions that the noise
drowns towards independence, and leaves alone those that stand out. tau_g is learnt per group from the
same noisy measurements (evidence maximisation), so nothing needs tuning. All of it is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dpjoin.model.terms import FloatArray, Terms

PRIOR_START = 0.4
"""Where each group's tau starts. Log-odds interactions in tabular data are mostly below one."""
PRIOR_PSEUDO = (0.5, 0.1)
"""(weight in effective potentials, tau) of the pseudo-observation that keeps an empty group's tau finite."""
PRIOR_RANGE = (0.02, 4.0)
DEAR_CELLS = 2**19
"""Above this many cells a step takes a tenth of a second and more, so fewer are taken."""
DEAR_TERMS = 2**14
"""Likewise with this many potentials: there the optimiser's own bookkeeping takes half of the time."""
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


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model: potentials and the prior widths they were fitted with."""

    terms: Terms
    total: float
    potentials: FloatArray
    tau: FloatArray
    """One per term group."""

    @property
    def table(self) -> FloatArray:
        return table_of(self.terms, self.potentials, self.total)

    @property
    def tau_each(self) -> FloatArray:
        return spread(self.terms, self.tau)


def spread(terms: Terms, per_group: FloatArray) -> FloatArray:
    """A number per term group, repeated for each of its potentials."""
    return np.repeat(per_group, [s.stop - s.start for s in terms.slices])


def table_of(terms: Terms, potentials: FloatArray, total: float) -> FloatArray:
    """total * softmax of the logits, as a matrix of cells; nothing outside the support."""
    logits = terms.logits(potentials)
    if terms.outside is not None:
        # Before the maximum is taken: a large logit out there must not push the ones inside to zero.
        np.copyto(logits, -np.inf, where=terms.outside)
    table: FloatArray = np.exp(logits - logits.max())
    table *= total / table.sum()
    return table


def start(terms: Terms, total: float) -> Fit:
    """The uniform distribution (on the support), before anything is measured."""
    tau = np.array([SINGLE_START if len(c) == 1 else PRIOR_START for c in terms.cliques] + [1.0] * len(terms.products))
    return Fit(terms, total, np.zeros(terms.size), tau)


def maximise(fit: Fit, evidence: Evidence, *, steps: int, prior_mean: FloatArray | None = None) -> Fit:
    """The most probable potentials for the given prior widths, from where `fit` stands."""
    from scipy.optimize import minimize

    terms, total = fit.terms, fit.total
    prior = 1.0 / fit.tau_each**2
    centre = np.zeros(terms.size) if prior_mean is None else prior_mean
    # Potentials are measured in units of their posterior width: this is what makes few steps enough.
    width = 1.0 / np.sqrt(terms.curvature(fit.table) ** 2 * evidence.precision + prior)

    def objective(scaled: FloatArray) -> tuple[float, FloatArray]:
        potentials = scaled * width
        table = table_of(terms, potentials, total)
        miss = terms.answers(table) - evidence.noisy
        pull = miss * evidence.precision
        slope = terms.logits(pull)
        slope -= float((table * slope).sum()) / total
        slope *= table
        away = potentials - centre
        gradient = terms.answers(slope) + prior * away
        return 0.5 * float(miss @ pull + away @ (prior * away)), gradient * width

    # The objective is a log-probability: a relative change of 1e-5 is far below what the noise can tell.
    remembered = 8 if terms.size > DEAR_TERMS else 20
    options = {"maxiter": steps, "maxcor": remembered, "ftol": 1e-5, "gtol": 1e-2}
    found = minimize(objective, fit.potentials / width, jac=True, method="L-BFGS-B", options=options)
    return replace(fit, potentials=found.x * width)


def relearn_prior(fit: Fit, evidence: Evidence) -> Fit:
    """One step of evidence maximisation: tau² = |potentials|² / (number of potentials the data determine)."""
    terms = fit.terms
    known = terms.curvature(fit.table) ** 2 * evidence.precision
    share = known / (known + 1.0 / fit.tau_each**2)
    tau = fit.tau.copy()
    for g, where in enumerate(terms.slices):
        single = g < len(terms.cliques) and len(terms.cliques[g]) == 1
        weight, width = SINGLE_PSEUDO if single else PRIOR_PSEUDO
        energy = float((fit.potentials[where] ** 2).sum()) + weight * width**2
        tau[g] = np.clip(np.sqrt(energy / (float(share[where].sum()) + weight)), *PRIOR_RANGE)
    return replace(fit, tau=tau)


def learn(fit: Fit, evidence: Evidence, *, rounds: int = 4, steps: int = 60) -> Fit:
    """Alternate between the potentials and the prior widths; less often where a step is dear."""
    if fit.terms.domain.cells > DEAR_CELLS:
        rounds, steps = 2, steps // 2
    for _ in range(rounds - 1):
        fit = relearn_prior(maximise(fit, evidence, steps=steps), evidence)
    return maximise(fit, evidence, steps=2 * steps)


def posterior_width(fit: Fit, evidence: Evidence, extra_precision: FloatArray | None = None) -> FloatArray:
    """About how uncertain each term's total is, in counts, now or after `extra_precision` more."""
    curvature = fit.terms.curvature(fit.table)
    precision = evidence.precision if extra_precision is None else evidence.precision + extra_precision
    return curvature / np.sqrt(curvature**2 * precision + 1.0 / fit.tau_each**2)
