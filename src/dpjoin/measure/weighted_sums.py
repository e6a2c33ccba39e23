"""Sums over the listed values of a table's key, each weighed by the rows that the other tables have of it.

At a listed value the join is a cross product, so an answer adds up, over the values, a table's rows times the other
tables'. Measured value by value, each of many values brings noise of its own, as large as its weight: together the
root of the sum of the squares. A sum that has the weights in it brings the noise of the largest weight alone. So
both are measured: sums for what most answers are made of, single values for where they differ, and for what the few
largest weights have beyond the others.

The weights are public: they are noisy degrees. They say what is worth measuring; the fit takes a sum for what it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpjoin.measure.cliques import clique_groups, clique_importance, with_singles
from dpjoin.measure.join import noise_of
from dpjoin.measure.laplace import Spread, laplace_unit, measure_once, once_shares
from dpjoin.measure.marginals import Fitted, measure_marginals, split
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import round_down
from dpjoin.measure.totals import NoisyTotal
from dpjoin.model.ensemble import ensemble
from dpjoin.model.fit import Evidence, Fit, learn, start
from dpjoin.model.model import Model, clique_scopes
from dpjoin.model.terms import Domain, FloatArray, Terms, WeightedSums
from dpjoin.privacy.accounting import Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.parts import LISTED
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import CELLS, WEIGHT_BITS, Factor, Group, Kronecker, Workload, kronecker

FIRST_SUMS = Fraction(1, 5)
"""Of what a table spends on its listed values, before the pilot."""
PILOT = Fraction(3, 10)
"""Of the rest, for a first look at the values one by one."""
LEFT = Fraction(6, 10)
"""At most so much of what is left then goes to sums. Often the shape of all values together deserves the remainder."""
ONCE_SUMS = Fraction(4, 10)
"""Of Laplace noise, which is not measured in stages, what goes to sums."""
USUAL_SHARE = 0.5
"""What sums get in the end, for forecasts."""

SHAPES_DIFFER = 0.15
"""Of what a value contributes, the part (squared) that is not as at the other values: a guess, for forecasts."""


def weighed_noise(each: FloatArray) -> FloatArray:
    """By how many of the first values are listed, the variance of an answer that has these variances by value.

    What all values have in common comes from the sums, with the noise of the largest; how they differ, value by value.
    """
    spread, largest, weights = np.cumsum(each), np.sqrt(np.maximum.accumulate(each)), np.sqrt(each)
    together = np.full(len(each), np.inf)
    for level in np.append(np.geomspace(1 / 16, 1.0, 17) * float(weights.max(initial=0.0)), np.inf):
        beyond = np.cumsum(np.maximum(weights - level, 0.0) ** 2)
        together = np.minimum(together, np.minimum(largest, level) ** 2 / USUAL_SHARE + beyond / (1 - USUAL_SHARE))
    return np.minimum(spread, together + SHAPES_DIFFER * spread / (1 - USUAL_SHARE))


def cut_weights(weights: FloatArray) -> FloatArray:
    """Weights cut off at the level c that leaves an answer the least noise: c² + the sum of the squares cut off.

    Its slope vanishes where c is the sum of what is cut off: with k weights above it, c = their sum / (k + 1).
    """
    largest_first = np.sort(weights)[::-1]
    level = float((np.cumsum(largest_first) / np.arange(2, len(weights) + 2)).max())
    return np.minimum(weights, level)


def weighed_sums(schema: Schema, scopes: Sequence[tuple[str, ...]], weights: FloatArray) -> tuple[Kronecker, ...]:
    """The marginals over each scope (without the listed value), summed over listed values with these weights."""
    assert schema.attributes[0].name == LISTED, "the listed value comes first in the schema of a table alone"
    scaled = np.rint(np.ldexp(weights / weights.max(), WEIGHT_BITS)).astype(np.int64)
    row = Factor("weights", tuple(scaled.tolist()), Fraction(1, 2**WEIGHT_BITS))
    return tuple(
        kronecker(schema, {LISTED: row, **dict.fromkeys(scope, CELLS)}, name=f"{', '.join(scope)}, weighed")
        for scope in scopes
        if scope
    )


def measure_weighed(
    curator: Curator,
    workload: Workload,
    scopes: Sequence[tuple[str, ...]],
    weights: FloatArray,
    bound: Bound,
    total: NoisyTotal,
    progress: Progress,
    *,
    seed: int,
) -> Model:
    """A model of a table's marginals by listed value, with sums of them. Spends all that the Curator has left."""
    cliques = with_singles(clique_scopes(workload.groups))
    sums = weighed_sums(workload.schema, scopes, cut_weights(weights))
    terms = sum_terms(workload, cliques, sums)
    # Degrees may differ by any factor, and the join size is a sum of products of them: to pull them together makes it
    # too small.
    fit = start(terms, float(total.whole), free=[(LISTED,)])
    groups, importance = clique_groups(workload.schema, cliques), clique_importance(workload, cliques)
    if curator.laplace_left:
        fitted = _measured_once(curator, [*groups, *sums], fit, importance, bound, progress)
        return _weighed_model(fitted, cliques, total, progress, seed=seed)
    rho = curator.rho_left

    def measured(evidence: Evidence, cost: Fraction) -> Evidence:
        for group, where, part in zip(sums, terms.slices[len(cliques) :], split(cost, [1.0] * len(sums)), strict=True):
            found = curator.measure(group, bound, Concentrated(part))
            evidence = evidence.add(where, found.values, found.noise_variance)
        return evidence

    first = round_down(rho * FIRST_SUMS)

    def more_sums(pilot: Fitted, left: Fraction) -> tuple[Evidence, Fraction]:
        wanted = round_down(rho * Fraction(best_share(terms, weights, pilot.fit.tau)).limit_denominator(1000)) - first
        cost = min(wanted, round_down(left * LEFT))
        return (measured(pilot.evidence, cost), cost) if cost > 0 else (pilot.evidence, Fraction(0))

    fitted = measure_marginals(
        curator,
        groups,
        Fitted(fit, measured(Evidence.none(terms.size), first)),
        importance,
        bound,
        curator.rho_left,
        progress,
        skipped=[c for c in cliques if len(c) == 1 and c != (LISTED,)],
        pilot=PILOT,
        between=more_sums,
    )
    return _weighed_model(fitted, cliques, total, progress, seed=seed)


def _measured_once(
    curator: Curator,
    groups: Sequence[Group],
    fit: Fit[Terms],
    importance: Sequence[float],
    bound: Bound,
    progress: Progress,
) -> Fitted:
    """All of a model's cliques, and all sums, with Laplace noise."""
    cliques, sums = fit.terms.cliques, len(groups) - len(fit.terms.cliques)
    spread = Spread(fit.total / laplace_unit(curator, bound))
    shares, _ = once_shares(cliques, importance, {c: curator.schema.cells(c) for c in cliques}, spread)
    every = [*((1 - ONCE_SUMS) * s for s in shares), *([ONCE_SUMS / sums] * sums)]
    evidence = measure_once(curator, groups, fit.terms.slices, every, bound, progress)
    return Fitted(learn(fit, evidence), evidence)


def _weighed_model(
    fitted: Fitted, cliques: Sequence[tuple[str, ...]], total: NoisyTotal, progress: Progress, *, seed: int
) -> Model:
    """With error bars; the sums are folded into the cliques."""
    terms = fitted.fit.terms
    progress("error bars", 0, 1)
    members = ensemble(fitted.fit, fitted.evidence, total_deviation=total.deviation, seed=seed)
    progress("error bars", 1, 1)
    return Model(
        terms.domain,
        float(total.whole),
        terms=Terms(terms.domain, terms.cliques),
        potentials=terms.folded(fitted.fit.potentials),
        members=tuple((terms.folded(potentials), size) for potentials, size in members),
        known=tuple(map(frozenset, cliques)),
        deviations=tuple(noise_of(fitted.evidence, where) for where in terms.slices[: len(cliques)]),
    )


def best_share(terms: Terms, weights: FloatArray, tau: FloatArray) -> float:
    """Which share of the budget sums deserve, where values have shapes that differ this much (prior widths).

    With share s the variance of an answer is about c² / s for what values have in common, c the largest weight in it.
    The rest is measured value by value: what is cut off the weights, and tau² of their squares for how values differ,
    together / (1 - s).
    """
    level = float(cut_weights(weights).max())
    assert terms.sums is not None
    differ = float(np.mean([tau[terms.cliques.index((LISTED, *scope))] for scope in terms.sums.scopes]))
    spread = math.sqrt(float((np.maximum(weights - level, 0.0) ** 2).sum() + differ**2 * (weights**2).sum()))
    return 1.0 / (1.0 + spread / level)


def sum_terms(workload: Workload, cliques: Sequence[tuple[str, ...]], sums: Sequence[Kronecker]) -> Terms:
    """A model's terms: cliques and sums over listed values."""
    sizes = dict(zip(workload.attributes, workload.schema.shape(workload.attributes), strict=True))
    domain = Domain((LISTED,), tuple(a for a in sizes if a != LISTED), sizes)
    weights = np.array(sums[0].factors[0].row, dtype=np.float64) * float(sums[0].factors[0].unit)
    scopes = tuple(group.scope[1:] for group in sums)
    return Terms(domain, tuple(cliques), sums=WeightedSums(weights, scopes))
