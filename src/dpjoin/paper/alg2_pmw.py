"""Algorithm 2, PMW: private multiplicative weights with the paper's constants.

As the paper has it, where that is right. Where it is not: the exponential mechanism prefers large errors
(the paper's sign is reversed), each update is renormalised to the noisy join size, constant queries are
not candidates (no normalised update can improve them, so they would be chosen for ever), measurements are
clamped so that the update stays below one, and the average is of F_0 … F_{k-1}, which is what the proof bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpjoin.measure.progress import Progress
from dpjoin.model.model import Model
from dpjoin.model.multiplicative_weights import Iterate
from dpjoin.model.terms import Domain, FloatArray
from dpjoin.privacy.accounting import Approximate, Pure
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.numbers import Numbers
from dpjoin.privacy.sensitivity import weight_ranges
from dpjoin.spec.workload import Group, Kronecker

MAX_ROUNDS = 2000


def paper_rounds(*, total: float, bound: int, epsilon: float, delta: float, cells: int, queries: int) -> int:
    """k = n eps sqrt(ln D) / (Delta ln Q sqrt(ln 1/delta)), at least 1 and at most MAX_ROUNDS: public numbers."""
    spread = bound * math.log(max(queries, 3)) * math.sqrt(math.log(1 / delta))
    return max(1, min(MAX_ROUNDS, int(total * epsilon * math.sqrt(math.log(max(cells, 2))) / spread)))


def pmw(
    curator: Curator, groups: Sequence[Group], domain: Domain, bound: Bound, budget: Approximate, progress: Progress
) -> tuple[Model, int, int]:
    """Run Algorithm 2 within `budget`; returns the model, the noisy join size and the number of rounds."""
    scopes = tuple(frozenset(g.scope) for g in groups)
    if not any((weight_ranges(g).width > 0).any() for g in groups):
        # Only the join size is asked for: all of the budget goes there.
        noisy_total = max(1, curator.join_size(bound, budget).noisy)
        uniform = np.full((domain.rows, domain.columns), noisy_total / domain.cells)
        return Model(domain, float(noisy_total), plain=uniform, floor=float(noisy_total), known=scopes), noisy_total, 0
    half = Approximate(budget.epsilon / 2, budget.delta / 2)
    noisy_total = max(1, curator.join_size(bound, half).noisy)
    total = float(noisy_total)
    epsilon, delta = float(budget.epsilon), float(budget.delta)
    queries = sum(len(g) for g in groups)
    count = paper_rounds(
        total=total, bound=bound.value, epsilon=epsilon, delta=delta, cells=domain.cells, queries=queries
    )
    each = Pure(_round_down(epsilon / (16 * math.sqrt(count * math.log(1 / delta)))))
    curator.prepare(list(groups))
    curator.reserve_rounds(2 * count, each, half)

    rounds = Rounds(curator, groups, Iterate(domain, total, [g.scope for g in groups]), bound, each)
    misses = []
    for done in range(count):
        if done % 10 == 0:
            progress("rounds", done, count)
        learned = rounds.ask()
        misses.append(learned.miss)
        if done < count - 1:  # the average is of the tables that were asked
            rounds.follow(learned)
    progress("rounds", count, count)
    # What a round measures is mostly its own noise here, and so is this bar: wide, but it covers.
    floor = min(total, float(np.median(misses)))
    average = rounds.table.sum_of_tables()
    average /= count
    return Model(domain, total, plain=average, floor=floor, known=scopes), noisy_total, count


def _round_down(epsilon: float) -> Fraction:
    """A short fraction just below."""
    scale = 2**60
    return Fraction(int(epsilon * scale * (1 - 1e-12)), scale)


def _whole(answers: FloatArray) -> Numbers:
    """Answers rounded to the group's grid: public whole numbers."""
    rounded = np.rint(np.asarray(answers, dtype=np.float64))
    if rounded.min(initial=0.0) > -(2.0**60) and rounded.max(initial=0.0) < 2.0**60:
        return rounded.astype(np.int64)
    return np.array([int(v) for v in rounded], dtype=object)


@dataclass(frozen=True)
class Learned:
    """What a round has found out: a query, how far to step along its weights, and how far off the model was."""

    group: Group
    index: int
    step: float
    miss: float


class Rounds:
    """The rounds of Algorithm 2 on one table: choose a query and measure it, then update."""

    def __init__(self, curator: Curator, groups: Sequence[Group], table: Iterate, bound: Bound, each: Pure) -> None:
        self.curator, self.groups, self.table, self.bound, self.each = curator, groups, table, bound, each

    def ask(self) -> Learned:
        """Choose the worst query, about, and measure it."""
        groups, table = self.groups, self.table
        answers = [_whole(table.answers(group)) for group in groups]
        g, i = self.curator.worst_query(groups, answers, self.bound, self.each)
        group = groups[g]
        found = self.curator.measure_query(group, i, self.bound, self.each)
        answer = int(answers[g][i]) / group.max_abs
        noisy = float(found.values[0]) / (group.max_abs * float(group.unit))
        noisy = min(max(noisy, -table.total), table.total)
        return Learned(group, i, (noisy - answer) / (2 * table.total), abs(noisy - answer))

    def follow(self, learned: Learned) -> None:
        """Move the table towards what was measured."""
        self.table.update(query_weights(learned.group, learned.index), learned.step)


def query_weights(group: Group, index: int) -> dict[tuple[str, ...], FloatArray]:
    """One query's weights by attributes; their product is its weight at a cell, in [-1, 1]."""
    rows: dict[tuple[str, ...], FloatArray]
    if isinstance(group, Kronecker):
        rows = {(a,): w.astype(np.float64) for a, w in zip(group.scope, group.question(index), strict=True)}
    else:
        rows = {attributes: weights[index].astype(np.float64) for attributes, weights in group.parts}
    first, *_ = rows
    rows[first] = rows[first] / group.max_abs
    return rows
