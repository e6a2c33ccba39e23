"""Measure a join, or a part of it, as one table under a known sensitivity bound, and fit a model to what was found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from dpjoin.measure.laplace import ByValue, Spread, laplace_shares, laplace_unit, measure_laplace, total_of
from dpjoin.measure.large_domains import measure_all_laplace, measure_chosen
from dpjoin.measure.marginals import (
    Fitted,
    clique_groups,
    clique_importance,
    measure_marginals,
    wanted_cliques,
    with_singles,
)
from dpjoin.measure.product_queries import measure_products, prospect, run_rounds
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import results_of, round_down
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.model.clear_cells import keep_clear_cells
from dpjoin.model.ensemble import ensemble
from dpjoin.model.fit import Evidence, learn, start, with_sums
from dpjoin.model.model import Model, clique_scopes
from dpjoin.model.terms import BoolArray, Domain, Terms
from dpjoin.privacy.accounting import Concentrated, laplace_cost
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.sensitivity import weight_ranges
from dpjoin.spec.workload import Products, Workload


def varying_products(workload: Workload) -> tuple[Products, ...]:
    """The product queries that the join size does not answer."""
    return tuple(g for g in workload.groups if isinstance(g, Products) and (weight_ranges(g).width > 0).any())


def domain_of(workload: Workload) -> Domain:
    """The cells of the workload, laid out for its queries."""
    sizes = dict(zip(workload.attributes, workload.schema.shape(workload.attributes), strict=True))
    return Domain.split(sizes, varying_products(workload))


DENSE_CELLS = 2**22
"""Up to so many cells the model is a table of all of them; beyond that it is factored. Measured with 2^21 cells and all
pairs: a table's errors are a twelfth smaller on average for ten times the time. With 2^24 it takes minutes."""


def is_large(workload: Workload) -> bool:
    """Whether the model of a workload is too large to write down. A public number decides."""
    return workload.cells > DENSE_CELLS


def measure_join(
    curator: Curator,
    workload: Workload,
    bound: Bound,
    total: NoisyTotal,
    progress: Progress,
    *,
    support: BoolArray | None = None,
    also: Sequence[tuple[str, ...]] = (),
    implied: Sequence[tuple[str, ...]] = (),
    by_value: ByValue | None = None,
    to_join: bool = False,
    seed: int = 0,
) -> tuple[Model, str]:
    """Spend all that the Curator has left on the workload's queries; the model, and how it came about in words.

    With the marginals asked for, and the one-way marginals in them, `also` these are measured, parts of others: what
    is clear in many cells together, noise hides in each of them. `implied` ones are parts of others, too: the model has
    terms for them, and they are measured only where that pays. `by_value` tells about how many rows the values of a key
    have. A model `to_join` with others must not have rows that noise made: others multiply them.
    """
    if is_large(workload):
        return _measure_large(curator, workload, bound, total, progress, seed=seed)
    rho, noisy_total = curator.rho_left, total.whole
    products = varying_products(workload)
    cliques = clique_scopes(workload.groups)
    domain = domain_of(workload)
    ways = (
        prospect(products, total=noisy_total, bound=results_of(curator, bound), rho=rho, cells=workload.cells)
        if products
        else None
    )
    if products and ways is not None and ways.best == "histogram":
        union = workload.schema.in_order(a for g in products for a in g.scope)
        cliques = [c for c in cliques if not set(c) <= set(union)] + [union]
        products = ()
    cliques = with_singles(cliques)
    cliques += [c for c in (*also, *implied) if c not in cliques]
    terms = Terms(domain, tuple(cliques), support=support)
    groups = clique_groups(workload.schema, cliques)

    floor, strategy = 0.0, ""
    laplace = bool(cliques) and curator.laplace_left > 0
    part = rho if not products else round_down(rho / 2) if cliques else Fraction(0)
    fitted = Fitted(start(terms, float(noisy_total)), Evidence.none(terms.size))
    importance = clique_importance(workload, cliques)
    if laplace:
        cells, unit = {c: workload.schema.cells(c) for c in cliques}, laplace_unit(curator, bound)
        spread = Spread(total.whole / unit)
        if by_value is not None and by_value.rows.any():
            values = workload.schema.cells(by_value.key)
            spread = replace(spread, by_value=replace(by_value, rows=by_value.rows / unit), values=values)
        shares, _ = laplace_shares(cliques, importance, cells, spread)
        evidence = measure_laplace(curator, groups, terms.slices, shares, bound, progress)
        total = total_of(evidence, terms.slices, total)
        noisy_total = total.whole
        begun = start(terms, float(noisy_total))
        # Where noise hides most cells, those of a fit do not add up to what the noisy ones add up to, unless told so.
        fitted = Fitted(learn(begun, with_sums(begun, evidence, every=True)), evidence)
        measured = sum(share > 0 for share in shares)
        strategy = f"{'a marginal' if measured == 1 else f'{measured} marginals'} once, with Laplace noise"
    elif cliques:
        fitted = measure_marginals(curator, groups, fitted, importance, bound, part, progress, skipped=implied)
        strategy = f"{len(groups)} marginals, pilot then by expected gain"
    if products and ways is not None:
        if ways.best == "measure all":
            fitted = measure_products(curator, products, fitted, bound, rho - part, progress)
            strategy += f"{', ' if strategy else ''}all {sum(map(len, products))} product queries once"
        else:
            fitted, floor = run_rounds(curator, products, fitted, bound, rho - part, ways.count, progress)
            strategy += f"{', ' if strategy else ''}{ways.count} adaptive rounds of product queries"
    elif not cliques:
        # Only the join size is asked for: what is left goes into a second look at it.
        left = laplace_cost(curator.laplace_left) if curator.laplace_left else Concentrated(rho)
        total = total.combined(measure_total(curator, bound, left))
        noisy_total = total.whole
        fitted = Fitted(start(terms, float(noisy_total)), Evidence.none(terms.size))
        strategy = "the join size alone"
    progress("error bars", 0, 1)
    after = keep_clear_cells if to_join and laplace and not products else None
    members = ensemble(fitted.fit, fitted.evidence, total_deviation=total.deviation, seed=seed, after=after)
    found = fitted.fit if after is None else after(fitted.fit, fitted.evidence)
    progress("error bars", 1, 1)
    known = tuple(frozenset(s) for s in [*cliques, *(g.scope for g in workload.groups)])
    model = Model(
        domain,
        float(noisy_total),
        terms=found.terms,
        potentials=found.potentials,
        members=members,
        floor=floor,
        known=known,
        deviations=tuple(noise_of(fitted.evidence, where) for where in terms.slices),
        evidence=fitted.evidence,
    )
    return model, strategy


def _measure_large(
    curator: Curator, workload: Workload, bound: Bound, total: NoisyTotal, progress: Progress, *, seed: int
) -> tuple[Model, str]:
    """The same on a domain too large to write down: `check_feasible` has seen that there are marginals only."""
    cliques = wanted_cliques(workload)
    groups = dict(zip(cliques, clique_groups(workload.schema, cliques), strict=True))
    domain = domain_of(workload)
    sizes = {a: domain.sizes[a] for a in workload.attributes}
    importance = dict(zip(cliques, clique_importance(workload, cliques), strict=True))
    if curator.laplace_left:
        chosen, total = measure_all_laplace(curator, groups, sizes, importance, bound, total, progress)
    else:
        rho = curator.rho_left
        chosen = measure_chosen(curator, groups, sizes, importance, bound, rho, float(total.whole), progress)
    progress("error bars", 0, 1)
    members = ensemble(chosen.fit, chosen.evidence, total_deviation=total.deviation, seed=seed)
    progress("error bars", 1, 1)
    tree = chosen.fit.terms
    seen = [*tree.cliques, *(m.scope for m in chosen.misfits)]
    model = Model(
        domain,
        float(total.whole),
        terms=tree,
        potentials=chosen.fit.potentials,
        members=members,
        known=tuple(frozenset(s) for s in seen),
        deviations=tuple(noise_of(chosen.evidence, where) for where in tree.slices),
        misfits=chosen.misfits,
    )
    return model, chosen.strategy


def noise_of(evidence: Evidence, where: slice) -> float:
    """The standard deviation of a clique's cells as they were measured; infinite if they were not."""
    precision = float(evidence.precision[where.start])
    return precision**-0.5 if precision else math.inf
