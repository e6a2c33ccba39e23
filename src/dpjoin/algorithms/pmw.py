"""Algorithm 2, PMW: private multiplicative weights with the paper's constants.

As the paper has it, where that is right. Where it is not: the exponential mechanism prefers large errors
(the paper's sign is reversed), each update is renormalised to the noisy join size, constant queries are
not candidates (no normalised update can improve them, so they would be chosen for ever), measurements are
clamped so that the update stays below one, and the average is of F_0 … F_{k-1}, which is what the proof bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from dpjoin.algorithms.progress import Progress
from dpjoin.model.model import Model
from dpjoin.model.terms import Domain, FloatArray, Terms
from dpjoin.privacy.budget import Approximate, Pure
from dpjoin.privacy.curator import Bound, Curator, Numbers
from dpjoin.privacy.sensitivity import weight_ranges
from dpjoin.workload import Group, Kronecker

MAX_ROUNDS = 2000


def paper_rounds(*, total: float, bound: int, epsilon: float, delta: float, cells: int, queries: int) -> int:
    """k = n eps sqrt(ln D) / (Delta ln Q sqrt(ln 1/delta)), at least 1 and at most MAX_ROUNDS: public numbers."""
    spread = bound * math.log(max(queries, 3)) * math.sqrt(math.log(1 / delta))
    return max(1, min(MAX_ROUNDS, int(total * epsilon * math.sqrt(math.log(max(cells, 2))) / spread)))


def pmw(
    curator: Curator, groups: Sequence[Group], domain: Domain, bound: Bound, budget: Approximate, progress: Progress
) -> tuple[Model, int, int]:
    """Run Algorithm 2 within `budget`; returns the model, the noisy join size and the number of rounds."""
    known = tuple(frozenset(g.scope) for g in groups)
    if not any(low < high for g in groups for low, high in weight_ranges(g)):
        # Only the join size is asked for: all of the budget goes there.
        noisy_total = max(1, curator.join_size(bound, budget))
        uniform = np.full((domain.rows, domain.columns), noisy_total / domain.cells)
        return Model(domain, float(noisy_total), plain=uniform, floor=float(noisy_total), known=known), noisy_total, 0
    half = Approximate(budget.epsilon / 2, budget.delta / 2)
    noisy_total = max(1, curator.join_size(bound, half))
    total = float(noisy_total)
    queries = sum(len(g) for g in groups)
    epsilon, delta = float(budget.epsilon), float(budget.delta)
    count = paper_rounds(
        total=total, bound=bound.value, epsilon=epsilon, delta=delta, cells=domain.cells, queries=queries
    )
    each = Pure(_round_down(epsilon / (16 * math.sqrt(count * math.log(1 / delta)))))
    curator.prepare(list(groups))
    curator.reserve_rounds(2 * count, each, half)

    answers_of = _answering(domain, groups)
    table: FloatArray = np.full((domain.rows, domain.columns), total / domain.cells)
    average = np.zeros_like(table)
    misses = []
    for done in range(count):
        if done % 10 == 0:
            progress("rounds", done, count)
        average += table
        model = answers_of(table)
        g, i = curator.worst_query(groups, model, bound, each)
        group = groups[g]
        found = curator.measure_query(group, i, bound, each)
        largest = group.max_abs * float(group.unit)
        answer = float(model[g][i]) * float(group.unit) / largest
        noisy = min(max(float(found.values[0]) / largest, -total), total)
        misses.append(abs(noisy - answer))
        step = (noisy - answer) / (2 * total)
        table = table * np.exp(_query_weights(domain, group, i) * step)
        table *= total / table.sum()
    progress("rounds", count, count)
    # What a round measures is mostly its own noise here, and so is this bar: wide, but it covers.
    floor = min(total, float(np.median(misses)))
    return Model(domain, total, plain=average / count, floor=floor, known=known), noisy_total, count


def _round_down(epsilon: float) -> Fraction:
    """A short fraction just below."""
    scale = 2**60
    return Fraction(int(epsilon * scale * (1 - 1e-12)), scale)


def _answering(domain: Domain, groups: Sequence[Group]) -> Callable[[FloatArray], list[Numbers]]:
    """A function from a table to every group's answers; all marginals come out of one pass over the table."""
    scopes = tuple(dict.fromkeys(g.scope for g in groups if isinstance(g, Kronecker) and g.scope))
    terms = Terms(domain, scopes)
    slices = dict(zip(scopes, terms.slices, strict=True))

    def answers(table: FloatArray) -> list[Numbers]:
        flat = terms.answers(table)
        found = []
        for group in groups:
            where = slices.get(group.scope) if isinstance(group, Kronecker) else None
            marginal = flat[where] if where is not None else domain.marginal(table, group.scope)
            found.append(_whole(group.apply(marginal)))
        return found

    return answers


def _whole(answers: FloatArray) -> Numbers:
    """Answers rounded to the group's grid: public whole numbers."""
    rounded = np.rint(np.asarray(answers, dtype=np.float64))
    if not len(rounded) or float(np.abs(rounded).max()) < 2**60:
        return rounded.astype(np.int64)
    return np.array([int(v) for v in rounded], dtype=object)


def _query_weights(domain: Domain, group: Group, index: int) -> FloatArray:
    """One query's weight at every cell (rows x columns), in [-1, 1]."""
    if isinstance(group, Kronecker):
        position = np.unravel_index(index, group.answer_shape) if group.scope else ()
        vectors = {
            a: f.matrix(n)[p].astype(np.float64)
            for a, f, n, p in zip(group.scope, group.factors, group.shape, position, strict=True)
        }
        weights = np.ones(())
        for attribute in domain.attributes:
            vector = vectors.get(attribute, np.ones(domain.sizes[attribute]))
            weights = np.multiply.outer(weights, vector)
    else:
        weights = np.ones(domain.shape)
        for attributes, rows in group.parts:
            part = rows[index].astype(np.float64).reshape([domain.sizes[a] for a in attributes])
            order = [a for a in domain.attributes if a in attributes]
            part = np.transpose(part, [attributes.index(a) for a in order])
            weights = weights * part.reshape([domain.sizes[a] if a in attributes else 1 for a in domain.attributes])
    scaled: FloatArray = weights.reshape(domain.rows, domain.columns) / group.max_abs
    return scaled
