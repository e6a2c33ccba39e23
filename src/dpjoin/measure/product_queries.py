"""Product queries: measure the histogram, or every query, or run adaptive rounds, whichever promises the least error.

The promise is computed from public numbers only: the noisy join size, the sensitivity bound, the size of
the domain and the weights of the queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpjoin import constants
from dpjoin.measure.marginals import Fitted
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import round_down
from dpjoin.model.fit import Evidence, learn, maximise, start
from dpjoin.model.terms import FloatArray, Terms
from dpjoin.privacy.accounting import Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.numbers import Numbers
from dpjoin.privacy.sensitivity import weight_ranges
from dpjoin.spec.workload import Products

HISTOGRAM_CELLS = 2**18
PRODUCT_ROUNDS = 200


@dataclass(frozen=True)
class Prospect:
    """What each way of answering product queries promises: the largest error, as a share of the join size."""

    histogram: float
    measure_all: float
    rounds: float
    count: int
    """How many rounds the last one means."""

    @property
    def best(self) -> str:
        ways = {"histogram": self.histogram, "measure all": self.measure_all, "rounds": self.rounds}
        return min(ways, key=ways.__getitem__)


def prospect(groups: Sequence[Products], *, total: float, bound: float, rho: Fraction, cells: int) -> Prospect:
    """Predict the largest error of each way, from public numbers."""
    queries = sum(len(g) for g in groups)
    budget = float(rho)
    half, norm = 0.0, 0.0
    for group in groups:
        unit = float(group.unit)
        half = max(half, int(weight_ranges(group).width.max()) * unit / 2)
        squares = np.ones(len(group))
        for _, weights in group.parts:
            squares = squares * (np.ldexp(weights.astype(np.float64), -16) ** 2).sum(axis=1)
        others = cells / group.cells
        norm = max(norm, math.sqrt(float(squares.max()) * others))
    many = math.sqrt(2 * math.log(2 * queries + 2))
    histogram = bound / math.sqrt(2 * budget) * norm * many / total
    measure_all = bound * half * math.sqrt(queries / (2 * budget)) * many / total
    count = (
        total
        * math.sqrt(4 * float(constants.SELECT_SHARE) * budget * math.log(cells + 1))
        / (bound * math.log(queries + 2))
    )
    count = max(1, min(PRODUCT_ROUNDS, queries, int(count)))
    share = budget / count
    select = 2 * half * bound / math.sqrt(8 * share * float(constants.SELECT_SHARE)) * math.log(queries + 1) / total
    measure = bound * half / math.sqrt(2 * share * (1 - float(constants.SELECT_SHARE))) / total
    rounds = constants.ROUND_FACTOR * 2 * half * math.sqrt(math.log(cells + 1) / (2 * count)) + select + measure
    if cells > HISTOGRAM_CELLS:
        histogram = math.inf
    return Prospect(histogram, measure_all, min(rounds, 1e9), count)


def measure_products(
    curator: Curator, groups: Sequence[Products], before: Fitted, bound: Bound, rho: Fraction, progress: Progress
) -> Fitted:
    """Every query once, centred, in one fit. Spends exactly rho."""
    whole = [(g, i) for g, group in enumerate(groups) for i in range(len(group)) if _varies(group, i)]
    each = round_down(rho / len(whole))
    costs = [each] * (len(whole) - 1) + [rho - each * (len(whole) - 1)]
    log = _Log(tuple(groups), before)
    for done, ((g, i), cost) in enumerate(zip(whole, costs, strict=True)):
        if done % 256 == 0:
            progress("measure", done, len(whole))
        log.measure(curator, g, i, bound, cost)
    return log.fitted(learned=True)


def run_rounds(
    curator: Curator,
    groups: Sequence[Products],
    before: Fitted,
    bound: Bound,
    rho: Fraction,
    count: int,
    progress: Progress,
) -> tuple[Fitted, float]:
    """Private multiplicative weights with refitting: choose the worst query, measure it, fit again. Spends rho.

    Also returns how far off the chosen queries were in the last quarter of the rounds, in weights up to one:
    what the model may still miss.
    """
    curator.prepare(list(groups))
    log = _Log(tuple(groups), before)
    current = before
    misses: list[float] = []
    each = round_down(rho / count)
    for done in range(count):
        progress("rounds", done, count)
        cost = each if done < count - 1 else rho - each * (count - 1)
        select = round_down(cost * constants.SELECT_SHARE)
        model = [_centred_answers(current, group, curator.unit) for group in groups]
        g, i = curator.worst_query(groups, model, bound, Concentrated(select))
        noisy, variance = log.measure(curator, g, i, bound, cost - select)
        guess = float(model[g][i]) * float(groups[g].unit * curator.unit) / 2
        low, high = weight_ranges(groups[g]).of(i)
        width = (high - low) * float(groups[g].unit) / 2
        misses.append(math.sqrt(max(0.0, (noisy - guess) ** 2 - variance)) / width)
        current = log.fitted(learned=done % 5 == 4 or done == count - 1)
    progress("rounds", count, count)
    return current, float(np.median(misses[-max(1, count // 4) :]))


class _Log:
    """The product queries measured so far, on top of a fitted model of marginals."""

    def __init__(self, groups: tuple[Products, ...], before: Fitted) -> None:
        self.groups, self.before = groups, before
        self.found: dict[tuple[int, int], tuple[float, float]] = {}
        self.warm: dict[tuple[int, int], float] = {}
        self.tau = [1.0] * len(groups)
        self.clique_potentials = before.fit.potentials

    def measure(self, curator: Curator, g: int, i: int, bound: Bound, cost: Fraction) -> tuple[float, float]:
        """One more measurement; returns its centred value and the variance of its noise."""
        found = curator.measure_query(self.groups[g], i, bound, Concentrated(cost))
        value, variance = float(found.values[0]), found.noise_variance
        if (g, i) in self.found:
            old, old_variance = self.found[g, i]
            weight = 1 / variance + 1 / old_variance
            self.found[g, i] = ((value / variance + old / old_variance) / weight, 1 / weight)
        else:
            self.found[g, i] = (value, variance)
        return value, variance

    def fitted(self, *, learned: bool) -> Fitted:
        """Fit everything measured so far, from where the last fit stood."""
        old, total = self.before.fit.terms, self.before.fit.total
        used = [g for g in range(len(self.groups)) if any(h == g for h, _ in self.found)]
        order = [(g, i) for g in used for (h, i) in sorted(self.found) if h == g]
        rows = tuple(self.groups[g].rows([i for h, i in order if h == g]) for g in used)
        terms = Terms(old.domain, old.cliques, rows, old.support)
        middle = [_middle(self.groups[g], i) * total for g, i in order]
        values = np.array([self.found[k][0] + m for k, m in zip(order, middle, strict=True)])
        precision = np.array([1.0 / self.found[k][1] for k in order])
        evidence = Evidence(
            np.concatenate([self.before.evidence.noisy, values]),
            np.concatenate([self.before.evidence.precision, precision]),
        )
        fit = start(terms, total)
        fit.potentials[:] = np.concatenate([self.clique_potentials, [self.warm.get(k, 0.0) for k in order]])
        fit.tau[:] = np.concatenate([self.before.fit.tau, [self.tau[g] for g in used]])
        fit = learn(fit, evidence, rounds=3, steps=40) if learned else maximise(fit, evidence, steps=40)
        self.clique_potentials = fit.potentials[: old.size]
        self.warm = dict(zip(order, fit.potentials[old.size :].tolist(), strict=True))
        for g, tau in zip(used, fit.tau[len(old.cliques) :], strict=True):
            self.tau[g] = float(tau)
        return Fitted(fit, evidence)


def _varies(group: Products, i: int) -> bool:
    low, high = weight_ranges(group).of(i)
    return low < high


def _middle(group: Products, i: int) -> float:
    low, high = weight_ranges(group).of(i)
    return (low + high) / 2 * float(group.unit)


def _centred_answers(current: Fitted, group: Products, unit: Fraction) -> Numbers:
    """The model's centred answers, rounded to the grid of half units of a count's unit: public whole numbers."""
    answers: FloatArray = np.asarray(group.apply(current.fit.marginal(group.scope)), dtype=np.float64)
    middles = weight_ranges(group).sum.astype(np.float64)
    centred = np.rint((2 * answers - middles * current.fit.total) / float(unit))
    if len(centred) and float(np.abs(centred).max()) < 2**60:
        return centred.astype(np.int64)
    return np.array([int(v) for v in centred], dtype=object)
