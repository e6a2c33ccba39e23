"""What each method promises, from noisy ranks and noisy join sizes alone: public numbers, before any of them runs.

Noisy ranks tell how many values have how many rows in each table, though not which. That is enough to work out about
how large the noise of each method would be. Errors are in join results, on average over the workload's marginals.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpjoin.measure.ranks import MOST_VALUES, degree_sequence, rows_beyond
from dpjoin.methods.hybrid import best_cut
from dpjoin.model.terms import FloatArray
from dpjoin.paper.alg4_uniformize import common_attributes
from dpjoin.privacy.degree_bounds import degree_caps, degree_factors, subsets
from dpjoin.privacy.gauge import gauge, gauge_bound
from dpjoin.privacy.parts import NoisyDegrees, NoisyRanks, Question, Value
from dpjoin.privacy.residual import Boundaries
from dpjoin.spec.hypergraph import boundary
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

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
    """About what one noisy bound for the whole join would be: by the largest degrees that ranks show, and its shift."""
    expected = boundaries_of(schema, likely_degrees(schema, ranks))
    return max(1, gauge_bound(expected, gauge(expected) + half_width))


@dataclass(frozen=True)
class Largest:
    """About the most rows of a table that share values of some attributes."""

    rows: float
    """About how many it has."""
    by: Mapping[frozenset[str], float]

    def given(self, attributes: Collection[str]) -> float:
        """The most that share values of all these, where the most frequent values of several meet by chance."""
        left, found = set(attributes), self.rows
        for by, most in sorted(self.by.items(), key=lambda some: some[1]):
            if by <= left:
                left -= by
                found *= min(1.0, most / self.rows)
        return max(1.0, found)


def likely_degrees(schema: Schema, ranks: Sequence[NoisyRanks]) -> dict[str, Largest]:
    """By table, the largest degrees that ranks show and that are declared.

    A table whose ranks are not known by what it shares with another is taken to have as many rows of a value there.
    """
    own = {(next(iter(r.question.rules)), frozenset(r.question.by)): r for r in ranks}
    largest = {place: float(degree_sequence(r).max(initial=1.0)) for place, r in own.items()}
    public = (t for t in schema.tables if not t.private)
    largest |= {(t.name, frozenset(b.attributes)): float(b.limit) for t in public for b in t.bounds}
    found = {}
    for t in schema.tables:
        by: dict[frozenset[str], float] = {}
        for (ranked, attributes), most in largest.items():
            borrows = t.private and attributes <= set(t.attributes) and (t.name, attributes) not in largest
            if t.name == ranked or borrows:
                by[attributes] = max(most, by.get(attributes, 0.0))
        for bound in t.bounds:
            by[frozenset(bound.attributes)] = min(bound.limit, by.get(frozenset(bound.attributes), math.inf))
        rows = [float(rows_beyond(r)[0]) for (ranked, _), r in own.items() if ranked == t.name]
        # Of a table without ranks, a public one, bounds are known: it has as many rows at least.
        found[t.name] = Largest(max([1.0, *(rows or by.values())]), by)
    return found


def boundaries_of(schema: Schema, largest: Mapping[str, Largest]) -> Boundaries:
    """Boundary values if tables have these largest degrees: one table after the other, the one with least rows first.

    The most frequent values are taken to be the same in all tables.
    """
    caps = degree_caps(schema)

    def results(tables: frozenset[str]) -> int:
        known, left, product = set(boundary(schema, tables)), set(tables), 1.0
        while left:
            rows = {t: largest[t].given(known & set(schema.table(t).attributes)) for t in sorted(left)}
            following = min(rows, key=rows.__getitem__)
            product *= rows[following]
            known |= set(schema.table(following).attributes)
            left.remove(following)
        return min(round(product), caps.get(tables, MOST_RESULTS))

    return Boundaries(
        tables=tuple(t.name for t in schema.tables),
        private=frozenset(schema.private_tables),
        values={tables: results(tables) for tables in subsets(schema)},
        caps=caps,
        factors=degree_factors(schema),
    )


def rounded(errors: Mapping[str, float]) -> dict[str, float]:
    """As a manifest tells them."""
    return {name: float(f"{error:.3g}") for name, error in errors.items()}
