"""Algorithm 2 in plain loops over the whole table: the judge of the incremental one. Never to be optimised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpjoin.model.fit import Fit
from dpjoin.model.terms import Domain, FloatArray, Terms
from dpjoin.spec.workload import Group, Kronecker


def cell_weights(domain: Domain, group: Group, index: int) -> FloatArray:
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


def naive_answers(domain: Domain, table: FloatArray, group: Group) -> FloatArray:
    """Every query's sum of weight times cell, in units."""
    every = [float((cell_weights(domain, group, i) * table).sum()) for i in range(len(group))]
    return np.array(every) * group.max_abs


def naive_rounds(
    curator: Any, groups: Sequence[Group], domain: Domain, total: float, count: int, bound: Any, each: Any
) -> tuple[FloatArray, list[tuple[int, int]]]:
    """The average of the tables that were asked, and the queries chosen."""
    table = np.full((domain.rows, domain.columns), total / domain.cells)
    average = np.zeros_like(table)
    chosen = []
    for _ in range(count):
        average += table
        model = [np.rint(naive_answers(domain, table, group)) for group in groups]
        g, i = curator.worst_query(groups, model, bound, each)
        chosen.append((g, i))
        found = curator.measure_query(groups[g], i, bound, each)
        largest = groups[g].max_abs * float(groups[g].unit)
        answer = float(model[g][i]) * float(groups[g].unit) / largest
        noisy = min(max(float(found.values[0]) / largest, -total), total)
        table = table * np.exp(cell_weights(domain, groups[g], i) * ((noisy - answer) / (2 * total)))
        table *= total / table.sum()
    return average / count, chosen


def table_of(fit: Fit[Terms]) -> FloatArray:
    """A fit's cells, rows x columns."""
    return fit.terms.table(fit.potentials, fit.total)
