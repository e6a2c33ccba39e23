"""What degree bounds say about boundary values: caps and factors, from public numbers alone.

Write x_j for the attributes of table j and ∂F for the attributes that the tables F share with the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, count

from dpjoin.spec.schema import Schema

Caps = dict[frozenset[str], int]
Factors = tuple[tuple[frozenset[str], str, int], ...]


def subsets(schema: Schema) -> list[frozenset[str]]:
    """All proper subsets of the tables, small ones first."""
    names = [t.name for t in schema.tables]
    return [frozenset(c) for r in range(len(names)) for c in combinations(names, r)]


@dataclass(frozen=True, kw_only=True)
class Limit:
    """In the join of `tables`, at most `most` rows of `rows_of` (or values of `then`) share a value of `given`."""

    tables: frozenset[str]
    given: frozenset[str]
    then: frozenset[str]
    most: int
    rows_of: str | None = None


def declared_limits(schema: Schema) -> list[Limit]:
    """The schema's degree bounds. Proof: P-60."""
    return [
        Limit(
            tables=frozenset([t.name]),
            given=frozenset(b.attributes),
            then=frozenset(t.attributes),
            most=b.limit,
            rows_of=t.name,
        )
        for t in schema.tables
        for b in t.bounds
    ]


def most_results(schema: Schema, tables: frozenset[str], limits: Iterable[Limit]) -> int | None:
    """An upper bound on T of these tables: the least that a chain of limits gives, None without one. Proof: P-60."""
    usable = [x for x in limits if x.tables <= tables]
    order = count()  # breaks ties: sets have no order
    waiting = [(1, next(order), frozenset(_boundary(schema, tables)), frozenset[str]())]
    done: set[tuple[frozenset[str], frozenset[str]]] = set()
    while waiting:
        product, _, known, counted = heapq.heappop(waiting)
        if counted == tables:
            return product
        if (known, counted) in done:
            continue
        done.add((known, counted))
        for limit in usable:
            if (
                limit.given <= known
                and limit.rows_of not in counted
                and not (limit.rows_of is None and limit.then <= known)
            ):
                more = counted | {limit.rows_of} if limit.rows_of is not None else counted
                heapq.heappush(waiting, (product * max(1, limit.most), next(order), known | limit.then, more))
    return None


def degree_caps(schema: Schema) -> Caps:
    """cap_F: an upper bound on T_F, for every F for which the declared bounds give one. Proof: P-60."""
    limits = declared_limits(schema)
    found = {tables: most_results(schema, tables, limits) for tables in subsets(schema)}
    return {tables: cap for tables, cap in found.items() if cap is not None}


def degree_factors(schema: Schema) -> Factors:
    """All (F, j, c) for which T_F <= c T_{F without j} holds by a declared bound. Proof: P-61."""
    found = []
    for tables in subsets(schema):
        boundary = _boundary(schema, tables)
        for name in sorted(tables):
            rest = tables - {name}
            if not _boundary(schema, rest) <= boundary:
                continue
            known = boundary.union(*(schema.table(t).attributes for t in rest)) if rest else boundary
            limits = [b.limit for b in schema.table(name).bounds if set(b.attributes) <= known]
            if limits:
                found.append((tables, name, min(limits)))
    return tuple(found)


def churn(schema: Schema) -> int:
    """How many rows of a table enforcing its bounds can remove when one row is added: at most r of them. Proof: P-62.

    0 when no private table's bounds are enforced.
    """
    return max((len(t.bounds) for t in schema.tables if t.private and t.enforce), default=0)


def _boundary(schema: Schema, tables: frozenset[str]) -> frozenset[str]:
    inside = {a for t in schema.tables if t.name in tables for a in t.attributes}
    outside = {a for t in schema.tables if t.name not in tables for a in t.attributes}
    return frozenset(inside & outside)


def bound_is_public(schema: Schema) -> bool:
    """Whether the sensitivity needs no noisy bound: for each private table the others are public, or capped."""
    names = frozenset(t.name for t in schema.tables)
    caps = degree_caps(schema)
    private = set(schema.private_tables)
    return all(not (names - {i}) & private or names - {i} in caps for i in private)
