"""Algorithm 1, TwoTable: bound the sensitivity of the join, then release the join as one table.

Also serves a single table and a private table beside a public one, where the bound costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpjoin.algorithms.marginals import Fitted, measure_marginals
from dpjoin.algorithms.pmw import pmw
from dpjoin.algorithms.progress import Progress
from dpjoin.algorithms.rounds import measure_products, prospect, run_rounds
from dpjoin.algorithms.shares import TightShares, round_down
from dpjoin.model.fit import Evidence, start
from dpjoin.model.model import Model, clique_scopes, plausible
from dpjoin.model.terms import Domain, Terms
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.budget import Approximate, Budget
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.sensitivity import weight_ranges
from dpjoin.schema import Schema
from dpjoin.workload import CELLS, Group, Kronecker, Products, Workload, kronecker


@dataclass(frozen=True, eq=False)
class Outcome:
    """A model and the public facts of how it came about."""

    model: Model
    sensitivity: int
    noisy_total: int
    strategy: str


def two_table_paper(curator: Curator, workload: Workload, budget: Budget, progress: Progress) -> Outcome:
    """The `paper` profile: half the budget on the bound (truncated Laplace), half on Algorithm 2."""
    progress("sensitivity", 0, 1)
    whole = budget.exact
    bound = curator.public_bound()
    if bound is None:
        half = Approximate(whole.epsilon / 2, whole.delta / 2)
        bound, whole = curator.sensitivity_bound(half), half
    progress("sensitivity", 1, 1)
    groups = list(workload.groups)
    domain = Domain.split(_sizes(workload))
    with one_blas_thread():
        model, noisy_total, count = pmw(curator, groups, domain, bound, whole, progress)
    return Outcome(model, bound.value, noisy_total, f"multiplicative weights, {count} rounds")


def two_table_tight(curator: Curator, workload: Workload, shares: TightShares, progress: Progress) -> Outcome:
    """The `tight` profile: truncated Gaussian bound, Gaussian measurements, one fit. Spends the budget exactly."""
    progress("sensitivity", 0, 1)
    if shares.bound is None:
        bound = curator.public_bound()
        assert bound is not None, "a bound that costs nothing was planned"
    else:
        bound = curator.sensitivity_bound(shares.bound, half_width=shares.half_width)
    progress("sensitivity", 1, 1)
    with one_blas_thread():
        return _tight_after_bound(curator, workload, shares, bound, progress)


def _tight_after_bound(
    curator: Curator, workload: Workload, shares: TightShares, bound: Bound, progress: Progress
) -> Outcome:
    noisy_total = max(1, curator.join_size(bound, shares.count))
    total_deviation = bound.value / math.sqrt(2 * float(shares.count.rho))
    rho = curator.rho_left

    # Queries with one weight for all join results follow from the join size.
    products = tuple(
        g for g in workload.groups if isinstance(g, Products) and any(low < high for low, high in weight_ranges(g))
    )
    cliques = clique_scopes(workload.groups)
    sizes = _sizes(workload)
    ways = prospect(products, total=noisy_total, bound=bound.value, rho=rho, cells=workload.cells) if products else None
    if products and ways is not None and ways.best == "histogram":
        union = workload.schema.in_order(a for g in products for a in g.scope)
        cliques = [c for c in cliques if not set(c) <= set(union)] + [union]
        products = ()
    domain = Domain.split(sizes, products)
    cliques = _with_singles(cliques)
    terms = Terms(domain, tuple(cliques))
    groups = clique_groups(workload.schema, cliques)

    floor = 0.0
    part = rho if not products else round_down(rho / 2) if cliques else Fraction(0)
    if cliques:
        fitted = measure_marginals(curator, groups, terms, bound, part, float(noisy_total), progress)
    else:
        fitted = Fitted(start(terms, float(noisy_total)), Evidence.none(terms.size))
    strategy = f"{len(groups)} marginals, pilot then by expected gain" if cliques else ""
    if products and ways is not None:
        if ways.best == "measure all":
            fitted = measure_products(curator, products, fitted, bound, rho - part, progress)
            strategy += f"{', ' if strategy else ''}all {sum(map(len, products))} product queries once"
        else:
            fitted, floor = run_rounds(curator, products, fitted, bound, rho - part, ways.count, progress)
            strategy += f"{', ' if strategy else ''}{ways.count} adaptive rounds of product queries"
    elif not cliques:
        # Only the join size is asked for: what is left goes into a second look at it.
        noisy_total, total_deviation = _again(curator, bound, rho, noisy_total, total_deviation)
        fitted = Fitted(start(terms, float(noisy_total)), Evidence.none(terms.size))
        strategy = "the join size alone"
    progress("error bars", 0, 1)
    members = plausible(fitted.fit, fitted.evidence, total_deviation=total_deviation)
    progress("error bars", 1, 1)
    known = tuple(frozenset(s) for s in [*cliques, *(g.scope for g in workload.groups)])
    model = Model(
        domain,
        float(noisy_total),
        terms=fitted.fit.terms,
        potentials=fitted.fit.potentials,
        members=members,
        floor=floor,
        known=known,
        deviations=tuple(float(fitted.evidence.precision[w.start] ** -0.5) for w in terms.slices),
    )
    return Outcome(model, bound.value, noisy_total, strategy)


def clique_groups(schema: Schema, cliques: Sequence[tuple[str, ...]]) -> list[Group]:
    """Each clique as the marginal that is measured."""
    groups: list[Group] = []
    for clique in cliques:
        group: Kronecker = kronecker(schema, dict.fromkeys(clique, CELLS))
        assert group.scope == clique, "cliques are in the order of the schema"
        groups.append(group)
    return groups


def _with_singles(cliques: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Add the one-way marginals of every attribute that is in a wider one."""
    singles = dict.fromkeys((a,) for c in cliques if len(c) > 1 for a in c)
    return [*singles, *(c for c in cliques if c not in singles)]


def _sizes(workload: Workload) -> dict[str, int]:
    return dict(zip(workload.attributes, workload.schema.shape(workload.attributes), strict=True))


def _again(curator: Curator, bound: Bound, rho: Fraction, noisy: int, deviation: float) -> tuple[int, float]:
    """A second, independent look at the join size, combined with the first by precision."""
    from dpjoin.privacy.budget import Concentrated

    second = curator.join_size(bound, Concentrated(rho))
    second_deviation = bound.value / math.sqrt(2 * float(rho))
    weights = np.array([deviation**-2, second_deviation**-2])
    combined = float(weights @ np.array([noisy, second], dtype=float) / weights.sum())
    return max(1, round(combined)), float(weights.sum() ** -0.5)
