"""What each method promises, from noisy ranks and noisy join sizes alone: public numbers, before any of them runs.

Noisy ranks tell how many values have how many rows in each table, though not which. That is enough to work out about
how large the noise of each method would be. Errors are in join results, on average over the workload's marginals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from dpjoin.algorithms.hybrid import best_cut
from dpjoin.algorithms.ranks import MOST_VALUES, degree_sequence
from dpjoin.algorithms.uniformize import common_attributes
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.gauge import Boundaries, gauge, gauge_bound
from dpjoin.privacy.partition import NoisyDegrees, NoisyRanks, Question, Value
from dpjoin.privacy.public_bounds import degree_caps, degree_factors, subsets
from dpjoin.schema import Schema
from dpjoin.workload import Workload

MOST_RESULTS = 2**200
"""More than any table has rows, and any row has join results."""
MOST_LISTED = 2048
"""How many of the most frequent values the forecast of the hybrid looks at one by one."""


def common_degrees(schema: Schema, ranks: Sequence[NoisyRanks]) -> dict[str, FloatArray]:
    """About each table's degrees by the attributes that all tables share; empty unless all are known."""
    common = common_attributes(schema)
    found = {next(iter(r.question.rules)): degree_sequence(r) for r in ranks if r.question.by == common}
    return found if len(found) == len(schema.tables) else {}


def hybrid_error(
    workload: Workload, degrees: Mapping[str, FloatArray], *, half_width: int, rho: Fraction, aligned: bool, size: float
) -> float:
    """What the hybrid would predict of itself, if noisy degrees were about these, on a join of about this size.

    Marginals with the key have many cells, of which a fit leaves far less noise than there was.
    """
    common = common_attributes(workload.schema)
    asked = size if set(common) & set(workload.attributes) else None
    listed = {}
    for n, (table, found) in enumerate(degrees.items()):
        # Values of one rank are taken to be the same in all tables, or never the same.
        names = range(len(found)) if aligned else range(n * MOST_VALUES, n * MOST_VALUES + len(found))
        seen: dict[Value, int] = {
            (name,): int(d) + half_width for name, d in zip(names, found[:MOST_LISTED], strict=False)
        }
        question = Question(name=table, rules={table: {}}, by=common)
        over = {value: d for value, d in seen.items() if d > 2 * half_width}
        listed[table] = NoisyDegrees(question, 2 * half_width, over)
    return best_cut(workload, listed, half_width=half_width, rho=rho, size=asked).error


def likely_bound(schema: Schema, ranks: Sequence[NoisyRanks], half_width: int) -> int:
    """About what one noisy bound for the whole join would be: by the largest degrees that ranks show, and its shift.

    Degrees are multiplied where several tables meet, as if the most frequent values were the same in all of them: for
    circles of tables this is far too large.
    """
    largest: dict[str, int] = {}
    for r in ranks:
        table = next(iter(r.question.rules))
        most = max(1, int(degree_sequence(r).max(initial=0.0)))
        largest[table] = min(most, largest.get(table, most))
    expected = boundaries_of(schema, largest)
    return max(1, gauge_bound(expected, gauge(expected) + half_width))


def boundaries_of(schema: Schema, largest: Mapping[str, int]) -> Boundaries:
    """Boundary values if tables have these largest degrees, where the most frequent values are the same in all."""
    caps = degree_caps(schema)
    values = {
        tables: min(math.prod(largest.get(t, 1) for t in tables), caps.get(tables, MOST_RESULTS))
        for tables in subsets(schema)
    }
    return Boundaries(
        tables=tuple(t.name for t in schema.tables),
        private=frozenset(schema.private_tables),
        values=values,
        caps=caps,
        factors=degree_factors(schema),
    )


def rounded(errors: Mapping[str, float]) -> dict[str, float]:
    """As a manifest tells them."""
    return {name: float(f"{error:.3g}") for name, error in errors.items()}
