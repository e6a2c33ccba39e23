"""Sums over the listed values of a table's key, each weighed by the rows that the other tables have of it.

At a listed value the join is a cross product, so an answer adds up, over the values, a table's rows times the other
tables'. Measured value by value, each of many values brings noise of its own, as large as its weight: together the
root of the sum of the squares. A sum that has the weights in it brings the noise of the largest weight alone. So
both are measured: sums for what most answers are made of, single values for where they differ.

The weights are public: they are noisy degrees. They say what is worth measuring; the fit takes a sum for what it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpjoin.algorithms.as_one import NoisyTotal, clique_groups, clique_importance, noise_of, with_singles
from dpjoin.algorithms.marginals import Fitted, measure_marginals, split
from dpjoin.algorithms.progress import Progress
from dpjoin.algorithms.shares import round_down
from dpjoin.model.fit import Evidence, start
from dpjoin.model.model import Model, clique_scopes, plausible
from dpjoin.model.terms import Domain, FloatArray, Terms
from dpjoin.privacy.budget import Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.partition import LISTED
from dpjoin.schema import Schema
from dpjoin.workload import CELLS, WEIGHT_BITS, Factor, Kronecker, Products, Workload, kronecker

SUMS_SHARE = Fraction(1, 2)
"""Of what a table spends on its listed values."""

SHAPES_DIFFER = 0.15
"""Of what a value contributes, the part (squared) that is not as at the other values: a guess, for forecasts."""


def weighed_noise(each: FloatArray) -> FloatArray:
    """By how many of the first values are listed, the variance of an answer that has these variances by value.

    What all values have in common comes from the sums, with the noise of the largest; how they differ, value by value.
    """
    spread, largest = np.cumsum(each), np.maximum.accumulate(each)
    share = float(SUMS_SHARE)
    return np.minimum(spread, largest / share + SHAPES_DIFFER * spread / (1 - share))


def weighed_sums(schema: Schema, scopes: Sequence[tuple[str, ...]], weights: FloatArray) -> tuple[Kronecker, ...]:
    """The marginals over each scope (without the listed value), summed over listed values with these weights."""
    scaled = np.rint(np.ldexp(weights / weights.max(), WEIGHT_BITS)).astype(np.int64)
    row = Factor("weights", tuple(scaled.tolist()), Fraction(1, 2**WEIGHT_BITS))
    return tuple(
        kronecker(schema, {LISTED: row, **dict.fromkeys(scope, CELLS)}, name=f"{', '.join(scope)}, weighed")
        for scope in scopes
        if scope
    )


def as_products(group: Kronecker) -> Products:
    """The same queries as a model's terms."""
    assert group.scope[0] == LISTED, "the listed value comes first in the schema of a table alone"
    cells = math.prod(group.shape[1:])
    weights = np.tile(np.array(group.factors[0].row, dtype=np.int64), (cells, 1))
    one = np.eye(cells, dtype=np.int64) << WEIGHT_BITS
    parts = (((LISTED,), weights), (group.scope[1:], one))
    return Products(group.name, group.scope, group.shape, parts, Fraction(1, 2 ** (2 * WEIGHT_BITS)))


def folded(terms: Terms, potentials: FloatArray) -> FloatArray:
    """Potentials of the cliques alone that make the same model: a sum's potential is a part of its marginal's."""
    out = potentials[: terms.slices[len(terms.cliques)].start].copy()
    for group, where in zip(terms.products, terms.slices[len(terms.cliques) :], strict=True):
        (_, weights), _ = group.parts
        at = terms.slices[terms.cliques.index(group.scope)]
        out[at] += np.outer(np.ldexp(weights[0].astype(np.float64), -WEIGHT_BITS), potentials[where]).reshape(-1)
    return out


def measure_weighed(
    curator: Curator,
    workload: Workload,
    sums: Sequence[Kronecker],
    bound: Bound,
    total: NoisyTotal,
    progress: Progress,
    *,
    seed: int,
) -> Model:
    """A model of a table's marginals by listed value, with sums of them. Spends all that the Curator has left."""
    cliques = with_singles(clique_scopes(workload.groups))
    sizes = dict(zip(workload.attributes, workload.schema.shape(workload.attributes), strict=True))
    products = tuple(map(as_products, sums))
    terms = Terms(Domain.split(sizes, products), tuple(cliques), products)
    # Degrees may differ by any factor, and the join size is a sum of products of them: to pull them together makes it
    # too small.
    fit, evidence = start(terms, float(total.whole), free=[(LISTED,)]), Evidence.none(terms.size)
    cost = round_down(curator.rho_left * SUMS_SHARE)
    for group, where, part in zip(sums, terms.slices[len(cliques) :], split(cost, [1.0] * len(sums)), strict=True):
        found = curator.measure(group, bound, Concentrated(part))
        evidence = evidence.add(where, found.values, found.noise_variance)
    groups, importance = clique_groups(workload.schema, cliques), clique_importance(workload, cliques)
    before = Fitted(fit, evidence)
    fitted = measure_marginals(curator, groups, before, importance, bound, curator.rho_left, progress, singles=False)
    progress("error bars", 0, 1)
    members = plausible(fitted.fit, fitted.evidence, total_deviation=total.deviation, seed=seed)
    progress("error bars", 1, 1)
    return Model(
        terms.domain,
        float(total.whole),
        terms=replace(terms, products=()),
        potentials=folded(terms, fitted.fit.potentials),
        members=tuple((folded(terms, potentials), size) for potentials, size in members),
        known=tuple(map(frozenset, cliques)),
        deviations=tuple(noise_of(fitted.evidence, where) for where in terms.slices[: len(cliques)]),
    )
