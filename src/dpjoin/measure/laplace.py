"""Few marginals: each is measured once, with Laplace noise.

Gaussian noise is made for many answers: k marginals have √k times the noise of one. Laplace noise grows with k, from a
level that is several times lower, since it needs no delta. So up to about eight marginals at (1, 1e-6) it is the
smaller one. Two looks at the same marginal cost as much as one with half the noise, where Gaussian looks add up: there
is no pilot, and what is measured is decided beforehand, from public numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpjoin import constants
from dpjoin.measure.marginals import clique_importance, wanted_cliques
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import results_of
from dpjoin.measure.totals import NoisyTotal
from dpjoin.model.fit import Evidence
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.accounting import Budget, laplace_cost
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.degree_bounds import churn
from dpjoin.spec.workload import Group, Scope, Workload

MANY_MARGINALS = 64
"""With more marginals of several attributes Gaussian noise is smaller for every budget that protects anybody."""
ANY_CORRELATION = (0.0, 1.0)
"""Degrees of tables may be correlated or not: nothing is known of that."""
GRID = 1000
"""Shares of epsilon are multiples of one over this."""


def laplace_pays(budget: Budget, workload: Workload) -> bool:
    """Whether Laplace noise with all of epsilon leaves less of a workload's marginals than Gaussian noise would."""
    schema, cliques = workload.schema, wanted_cliques(workload)
    if sum(len(c) > 1 for c in cliques) > MANY_MARGINALS:
        return False
    importance, cells = clique_importance(workload, cliques), {c: schema.cells(c) for c in cliques}
    if not cliques:  # the join size alone
        laplace, gaussian = math.sqrt(2), 1.0
    else:
        laplace, gaussian = laplace_shares(cliques, importance, cells)[1], gaussian_error(cliques, importance, cells)
    # Where bounds are enforced one row changes several, in l1 as many, in l2 the root of it.
    rows = churn(schema)
    laplace *= (1 + rows) / math.sqrt(1 + rows**2)
    return laplace / budget.epsilon < gaussian / math.sqrt(2 * float(budget.rho()))


@dataclass(frozen=True, eq=False)
class ByValue:
    """About how many rows each value of a key has, the most first."""

    key: Scope
    rows: FloatArray
    correlation: tuple[float, float] = ANY_CORRELATION
    """Between which bounds the correlation with the degrees of other tables lies."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How what is measured is spread over its cells, in multiples of the scale of Laplace noise."""

    size: float
    """In all."""
    by_value: ByValue | None = None
    """None: that is not known."""
    values: int = 1
    """How many values the key has."""
    correlation: float = 1.0
    """How correlated degrees are with those of other tables."""

    def left(self, clique: Scope, cells: Mapping[Scope, int], precisions: Mapping[Scope, float]) -> float:
        """What noise of these precisions leaves of a marginal: no cell is off by more than it differs from others.

        Where values of a key are known, it is what is left in a join with a table like this one. If that had equally
        many rows of all values, it would be what is left of all of them together; single values count by how far it
        has more, and where noise hides them they are as all together.
        """
        key = self.by_value.key if self.by_value is not None else ()
        differ = constants.ONE_WAY if len(clique) == 1 or clique == key else constants.INTERACTION
        n = cells[clique]
        everywhere = n / math.sqrt(precisions[clique] + (n / (differ * self.size)) ** 2)
        if self.by_value is None:
            return everywhere
        rows, mean = self.by_value.rows[self.by_value.rows > 0][: self.values], self.size / self.values
        same = (rows - mean) ** 2
        alike = (float(same.sum()) + (self.values - len(rows)) * mean**2) / self.values
        more = self.correlation * same + (1 - self.correlation) * alike
        if set(key) <= set(clique):
            each = n / self.values
            held = differ * rows / each
            return each * math.sqrt(float((more / (precisions[clique] + held**-2.0)).sum()))
        wider = [c for c in precisions if {*key, *clique} <= set(c)]
        if not wider:
            return everywhere * (mean + float(more.sum()) / self.size)
        at_values = max(wider, key=precisions.__getitem__)
        held = constants.INTERACTION * rows * self.values / cells[at_values]
        hidden = 1.0 / (1.0 + precisions[at_values] * held**2)
        return everywhere * (mean + self.correlation * float((hidden * same).sum()) / self.size)


def laplace_shares(
    cliques: Sequence[Scope], importance: Sequence[float], cells: Mapping[Scope, int], spread: Spread | None = None
) -> tuple[list[Fraction], float]:
    """Each marginal's share of epsilon, and the error they leave in all, if Laplace noise of one alone had scale one.

    The errors of a marginal of n cells, with importance w and share s, add up to about w·n/s. Their sum over marginals
    is least for s as √(w·n), and the largest error of a cell for s as w: so s is as √w times the fourth root of n.
    Where only the size is known, it may be spread evenly, or a few cells may hold it all; and how far other tables have
    the same frequent values is known to lie in a range. What is close to the best in both cases is taken.
    """
    narrow = [any(set(c) < set(other) for other in cliques) for c in cliques]
    weights = [w**0.5 * cells[c] ** 0.25 for c, w in zip(cliques, importance, strict=True)]
    sums = [sum(x for x, kind in zip(weights, narrow, strict=True) if kind == is_narrow) for is_narrow in (False, True)]
    spreads = [None, spread]
    if spread is not None and spread.by_value is not None:
        spreads = [replace(spread, correlation=end) for end in spread.by_value.correlation]
    found: list[list[Fraction]] = []
    errors: list[list[float]] = []
    for part in constants.NARROW_SHARES if any(narrow) else constants.NARROW_SHARES[:1]:
        each = [x / sums[kind] * (part if kind else 1 - part) for x, kind in zip(weights, narrow, strict=True)]
        shares = on_grid(each)
        variances = [2 / float(s) ** 2 if s else math.inf for s in shares]
        found.append(shares)
        errors.append([_error(cliques, importance, cells, variances, s) for s in spreads])
    least = [min(column) for column in zip(*errors, strict=True)]
    best = min(range(len(found)), key=lambda i: max(e / least[n] for n, e in enumerate(errors[i])))
    return found[best], errors[best][0]


def on_grid(shares: Sequence[float]) -> list[Fraction]:
    """Shares as multiples of 1/GRID that add up to exactly one: rounded down, and the rest to those that lose most."""
    steps = [math.floor(share * GRID) for share in shares]
    by_cut = sorted(range(len(shares)), key=lambda i: steps[i] - shares[i] * GRID)
    for i in by_cut[: GRID - sum(steps)]:
        steps[i] += 1
    return [Fraction(n, GRID) for n in steps]


def gaussian_error(cliques: Sequence[Scope], importance: Sequence[float], cells: Mapping[Scope, int]) -> float:
    """The error of Gaussian noise, which would have a variance of one if it were for one marginal only."""
    single = [len(c) == 1 for c in cliques]
    mixed = any(single) and not all(single)
    variances = []
    for one_way in single:
        share = (float(constants.SINGLES_SHARE) if one_way else 1 - float(constants.SINGLES_SHARE)) if mixed else 1.0
        variances.append(single.count(one_way) / share)
    return _error(cliques, importance, cells, variances)


def _error(
    cliques: Sequence[Scope],
    importance: Sequence[float],
    cells: Mapping[Scope, int],
    variances: Sequence[float],
    spread: Spread | None = None,
) -> float:
    """What noise of these variances leaves of all marginals, each from all that contain it, weighed and added up."""
    precisions = {
        c: sum(cells[c] / cells[o] / v for o, v in zip(cliques, variances, strict=True) if set(c) <= set(o))
        for c in cliques
    }
    if spread is None:
        return sum(w * cells[c] / math.sqrt(precisions[c]) for c, w in zip(cliques, importance, strict=True))
    return sum(w * spread.left(c, cells, precisions) for c, w in zip(cliques, importance, strict=True))


def laplace_unit(curator: Curator, bound: Bound) -> float:
    """The scale of Laplace noise on one marginal, if all that is left of epsilon went to it, in join results."""
    return results_of(curator, bound) / float(curator.laplace_left)


def measure_laplace(
    curator: Curator,
    groups: Sequence[Group],
    slices: Sequence[slice],
    shares: Sequence[Fraction],
    bound: Bound,
    progress: Progress,
) -> Evidence:
    """Spend all epsilon that is left for Laplace noise on a model's terms; `groups` are these as queries."""
    epsilon, evidence = curator.laplace_left, Evidence.none(slices[-1].stop)
    progress("measure", 0, 1)
    curator.prepare([g for g, share in zip(groups, shares, strict=True) if share])
    for group, where, share in zip(groups, slices, shares, strict=True):
        if share:
            found = curator.measure(group, bound, laplace_cost(epsilon * share))
            evidence = evidence.add(where, found.values, found.noise_variance)
    progress("measure", 1, 1)
    return evidence


def total_of(evidence: Evidence, marginals: Sequence[slice], total: NoisyTotal) -> NoisyTotal:
    """The join size, better known after marginals were measured: each of them adds up to it."""
    for where in marginals:
        precision = evidence.precision[where]
        if precision.all():
            deviation = math.sqrt(float((1.0 / precision).sum()))
            total = total.combined(NoisyTotal(float(evidence.noisy[where].sum()), deviation))
    return total
