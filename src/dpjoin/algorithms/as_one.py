"""Measure a join, or a part of it, as one table under a known sensitivity bound, and fit a model to what was found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpjoin.algorithms.chosen import measure_chosen
from dpjoin.algorithms.marginals import Fitted, measure_marginals
from dpjoin.algorithms.progress import Progress
from dpjoin.algorithms.rounds import measure_products, prospect, run_rounds
from dpjoin.algorithms.shares import round_down
from dpjoin.model.factored import FactoredModel
from dpjoin.model.fit import Evidence, start
from dpjoin.model.model import Model, clique_scopes, plausible
from dpjoin.model.terms import BoolArray, Domain, Terms
from dpjoin.privacy.budget import Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.sensitivity import weight_ranges
from dpjoin.schema import Schema
from dpjoin.workload import CELLS, Group, Kronecker, Products, Workload, kronecker


@dataclass(frozen=True)
class NoisyTotal:
    """A noisy join size, and how far off it typically is."""

    noisy: float
    deviation: float

    @property
    def whole(self) -> int:
        return max(1, round(self.noisy))

    def combined(self, other: NoisyTotal) -> NoisyTotal:
        """Both by precision."""
        ours, theirs = self.deviation**-2, other.deviation**-2
        return NoisyTotal((self.noisy * ours + other.noisy * theirs) / (ours + theirs), (ours + theirs) ** -0.5)


def measure_total(curator: Curator, bound: Bound, rho: Fraction) -> NoisyTotal:
    """The join size, by the discrete Gaussian."""
    noisy, unit = curator.join_size(bound, Concentrated(rho)), float(curator.unit)
    return NoisyTotal(noisy * unit, unit * math.sqrt(float(curator.ledger.events[-1].parameters["variance"])))


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


def wanted_cliques(workload: Workload) -> list[tuple[str, ...]]:
    """The marginals that a factored model is made of, one-way ones first."""
    return with_singles(clique_scopes(workload.groups))


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
    seed: int = 0,
) -> tuple[Model, str]:
    """Spend all that the Curator has left on the workload's queries; the model, and how it came about in words.

    Beside the marginals asked for, and the one-way marginals in them, `also` these are measured, parts of others: what
    shows in many cells together, noise drowns in each of them. `implied` ones are parts of others, too: the model has
    terms for them, and they are measured only where that pays.
    """
    if is_large(workload):
        return _measure_large(curator, workload, bound, total, progress, seed=seed)
    rho, noisy_total = curator.rho_left, total.whole
    products = varying_products(workload)
    cliques = clique_scopes(workload.groups)
    domain = domain_of(workload)
    ways = prospect(products, total=noisy_total, bound=bound.value, rho=rho, cells=workload.cells) if products else None
    if products and ways is not None and ways.best == "histogram":
        union = workload.schema.in_order(a for g in products for a in g.scope)
        cliques = [c for c in cliques if not set(c) <= set(union)] + [union]
        products = ()
    cliques = with_singles(cliques)
    cliques += [c for c in (*also, *implied) if c not in cliques]
    terms = Terms(domain, tuple(cliques), support=support)
    groups = clique_groups(workload.schema, cliques)

    floor = 0.0
    part = rho if not products else round_down(rho / 2) if cliques else Fraction(0)
    fitted = Fitted(start(terms, float(noisy_total)), Evidence.none(terms.size))
    if cliques:
        importance = clique_importance(workload, cliques)
        fitted = measure_marginals(curator, groups, fitted, importance, bound, part, progress, skipped=implied)
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
        total = total.combined(measure_total(curator, bound, rho))
        noisy_total = total.whole
        fitted = Fitted(start(terms, float(noisy_total)), Evidence.none(terms.size))
        strategy = "the join size alone"
    progress("error bars", 0, 1)
    members = plausible(fitted.fit, fitted.evidence, total_deviation=total.deviation, seed=seed)
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
        deviations=tuple(noise_of(fitted.evidence, where) for where in terms.slices),
    )
    return model, strategy


def _measure_large(
    curator: Curator, workload: Workload, bound: Bound, total: NoisyTotal, progress: Progress, *, seed: int
) -> tuple[FactoredModel, str]:
    """The same on a domain too large to write down: `check_feasible` has seen that there are marginals only."""
    noisy_total = float(total.whole)
    cliques = wanted_cliques(workload)
    groups = dict(zip(cliques, clique_groups(workload.schema, cliques), strict=True))
    domain = domain_of(workload)
    sizes = {a: domain.sizes[a] for a in workload.attributes}
    importance = dict(zip(cliques, clique_importance(workload, cliques), strict=True))
    chosen = measure_chosen(curator, groups, sizes, importance, bound, curator.rho_left, noisy_total, progress)
    progress("error bars", 0, 1)
    members = plausible(chosen.fit, chosen.evidence, total_deviation=total.deviation, seed=seed)
    progress("error bars", 1, 1)
    tree = chosen.fit.tree
    seen = [*tree.cliques, *(m.scope for m in chosen.misfits)]
    model = FactoredModel(
        domain,
        noisy_total,
        potentials=chosen.fit.potentials,
        members=members,
        known=tuple(frozenset(s) for s in seen),
        deviations=tuple(noise_of(chosen.evidence, where) for where in tree.slices),
        tree=tree,
        misfits=chosen.misfits,
    )
    return model, chosen.strategy


def noise_of(evidence: Evidence, where: slice) -> float:
    """The standard deviation of a clique's cells as they were measured; infinite if they were not."""
    precision = float(evidence.precision[where.start])
    return precision**-0.5 if precision else math.inf


def clique_importance(workload: Workload, cliques: Sequence[tuple[str, ...]]) -> list[float]:
    """How much each clique's errors count: as the most important group that it answers and no smaller one does."""
    found = []
    for clique in cliques:
        smaller = [set(c) for c in cliques if set(c) < set(clique)]
        own = [
            workload.importance_of(g)
            for g in workload.groups
            if set(g.scope) <= set(clique) and not any(set(g.scope) <= c for c in smaller)
        ]
        found.append(max(own, default=1.0))
    return found


def clique_groups(schema: Schema, cliques: Sequence[tuple[str, ...]]) -> list[Group]:
    """Each clique as the marginal that is measured."""
    groups: list[Group] = []
    for clique in cliques:
        group: Kronecker = kronecker(schema, dict.fromkeys(clique, CELLS))
        assert group.scope == clique, "cliques are in the order of the schema"
        groups.append(group)
    return groups


def with_singles(cliques: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Add the one-way marginals of every attribute that is in a wider one."""
    singles = dict.fromkeys((a,) for c in cliques if len(c) > 1 for a in c)
    return [*singles, *(c for c in cliques if c not in singles)]
