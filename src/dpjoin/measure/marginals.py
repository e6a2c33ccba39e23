"""The marginals that a model is made of, measured in two stages: a pilot of all, then more where it helps most.

They are those that the workload needs, and the one-way marginals in them.

The pilot tells (publicly) which interactions stand out of the noise. The rest of the budget goes, in
small pieces, to whatever marginal the model is expected to gain most from. When all are alike this is
measuring everything once; when a few matter it is adaptive selection, without paying for a selection.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpjoin import constants
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import results_of, round_down
from dpjoin.model.fit import FEW_CELLS, LOOSE, Evidence, Fit, S, learn, maximise, relearn_prior
from dpjoin.model.model import clique_scopes
from dpjoin.model.terms import FloatArray, Terms
from dpjoin.privacy.accounting import Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import CELLS, Group, Kronecker, Workload, kronecker


def wanted_cliques(workload: Workload) -> list[tuple[str, ...]]:
    """All of them, one-way ones first."""
    return with_singles(clique_scopes(workload.groups))


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


def pilot_share(wide: int) -> Fraction:
    """Of the marginals' rho, for measuring each of so many wider marginals once.

    The mean error is flat from 0.1 to 0.9 where there are many, and the largest is smaller when more is measured
    evenly. Where there are few, one-way marginals may deserve more than their share, and what is left goes to them.
    """
    return Fraction(min(7, 4 + wide), 10)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model fitted to what has been measured so far, all of it public."""

    fit: Fit[Terms]
    evidence: Evidence


def measure_marginals(
    curator: Curator,
    groups: list[Group],
    before: Fitted,
    importance: Sequence[float],
    bound: Bound,
    rho: Fraction,
    progress: Progress,
    *,
    skipped: Collection[tuple[str, ...]] = (),
) -> Fitted:
    """Spend exactly `rho` on a model's cliques, on top of what is known before; `groups` are the cliques as queries.

    Marginals may be `skipped` at first, where something else tells of them.
    """
    fit, evidence = before.fit, before.evidence
    terms = fit.terms
    curator.prepare(groups)
    wide = [i for i, c in enumerate(terms.cliques) if len(c) > 1 and c not in skipped]
    single = [i for i, c in enumerate(terms.cliques) if len(c) == 1 and c not in skipped]

    def measured(evidence: Evidence, which: list[int], costs: list[Fraction]) -> Evidence:
        for i, cost in zip(which, costs, strict=True):
            found = curator.measure(groups[i], bound, Concentrated(cost))
            evidence = evidence.add(terms.slices[i], found.values, found.noise_variance)
        return evidence

    if not wide:
        evidence = measured(evidence, single, split(rho, [importance[i] for i in single]))
        return Fitted(learn(fit, evidence), evidence)

    progress("measure", 0, 3)
    first = split(round_down(rho * constants.SINGLES_SHARE), [importance[i] for i in single])
    second = split(round_down(rho * pilot_share(len(wide))), [importance[i] for i in wide])
    evidence = measured(evidence, single, first)
    evidence = measured(evidence, wide, second)
    progress("measure", 1, 3)
    if terms.domain.cells > FEW_CELLS:
        # Steps are dear, so roughly: this only says where more is worth measuring, and the last fit starts from it.
        fit = relearn_prior(maximise(fit, evidence, steps=60, tolerance=LOOSE), evidence)
    else:
        fit = learn(fit, evidence)
    progress("measure", 2, 3)

    rest = rho - sum(first, Fraction(0)) - sum(second, Fraction(0))
    costs = costs_by_gain(fit, evidence, importance, rest, results_of(curator, bound))
    evidence = measured(evidence, [*costs], [*costs.values()])
    fit = learn(fit, evidence)
    progress("measure", 3, 3)
    return Fitted(fit, evidence)


def split(rho: Fraction, importance: Sequence[float]) -> list[Fraction]:
    """Parts that add up to exactly rho: equal ones, or by importance so that the sum of weighted errors is least.

    With cost ρ_i an error is about ρ_i^-½; Σ w_i ρ_i^-½ is least where ρ_i grows with w_i^⅔.
    """
    if not importance:
        return []
    parts = [Fraction(round(w ** (2 / 3) * 2**20)) for w in importance]
    costs = [round_down(rho * part / sum(parts)) for part in parts]
    return [*costs[:-1], rho - sum(costs[:-1], Fraction(0))]


def costs_by_gain(
    fit: Fit[S], evidence: Evidence, importance: Sequence[float], rest: Fraction, results: float
) -> dict[int, Fraction]:
    """What cliques get of the rest of rho, in pieces: greedily, by the expected drop in total absolute error.

    `results` is how many join results one row can change.
    """
    precision, prior = float(2 * rest / constants.PIECES) / results**2, 1.0 / fit.tau_each**2

    def expected(i: int, pieces: int) -> float:
        w = fit.slices[i]
        c: FloatArray = fit.curvature[w]
        width = c / np.sqrt(c**2 * (evidence.precision[w] + pieces * precision) + prior[w])
        return importance[i] * float(width.sum())

    cliques = range(len(fit.cliques))
    pieces = [0] * len(cliques)
    now = np.array([expected(i, 0) for i in cliques])
    after = np.array([expected(i, 1) for i in cliques])
    for _ in range(constants.PIECES):
        best = int(np.argmax(now - after))
        pieces[best] += 1
        now[best] = after[best]
        after[best] = expected(best, pieces[best] + 1)
    costs = {i: round_down(rest * n / constants.PIECES) for i, n in enumerate(pieces) if n}
    costs[max(costs)] += rest - sum(costs.values(), Fraction(0))
    return costs
