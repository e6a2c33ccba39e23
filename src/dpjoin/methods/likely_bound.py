"""About which sensitivity bound a join has, from the largest degrees of its tables: public numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from dpjoin.measure.ranks import degree_sequence, rows_beyond
from dpjoin.methods.look import place
from dpjoin.privacy.degree_bounds import degree_caps, degree_factors, subsets
from dpjoin.privacy.gauge import gauge, gauge_bound
from dpjoin.privacy.parts import NoisyRanks
from dpjoin.privacy.residual import Boundaries
from dpjoin.spec.hypergraph import boundary
from dpjoin.spec.schema import Schema

MORE_THAN_ANY = 2**200
"""More than any table has rows, and any row has join results."""


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


def equal_degrees(schema: Schema, degree: int) -> dict[str, Largest]:
    """As if every table had this largest degree."""
    return {t.name: Largest(degree, {}) for t in schema.tables}


def ranked_degrees(schema: Schema, ranks: Sequence[NoisyRanks]) -> dict[str, Largest]:
    """By table, the largest degrees that ranks show and that are declared.

    A table whose ranks are not known by what it shares with another is taken to have as many rows of a value there.
    """
    own = {(place(r)[0], frozenset(r.question.by)): r for r in ranks}
    largest = {at: float(degree_sequence(r).max(initial=1.0)) for at, r in own.items()}
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


def expected_bound(schema: Schema, largest: Mapping[str, Largest], half_width: int | None) -> int:
    """About the bound if tables have these largest degrees: a noisy one, or one that is public (no half-width).

    One table after the other is joined, the one with least rows first. The most frequent values are taken to be the
    same in all tables.
    """
    caps, names = degree_caps(schema), frozenset(t.name for t in schema.tables)

    def results(tables: frozenset[str]) -> int:
        known, left, product = set(boundary(schema, tables)), set(tables), 1.0
        while left:
            rows = {t: largest[t].given(known & set(schema.table(t).attributes)) for t in sorted(left)}
            following = min(rows, key=rows.__getitem__)
            product *= rows[following]
            known |= set(schema.table(following).attributes)
            left.remove(following)
        return min(round(product), caps.get(tables, MORE_THAN_ANY))

    values = {tables: results(tables) for tables in subsets(schema)}
    if half_width is None:
        return max(1, *(caps.get(names - {i}, values[names - {i}]) for i in schema.private_tables))
    expected = Boundaries(
        tables=tuple(t.name for t in schema.tables),
        private=frozenset(schema.private_tables),
        values=values,
        caps=caps,
        factors=degree_factors(schema),
    )
    return max(1, gauge_bound(expected, gauge(expected) + half_width))
