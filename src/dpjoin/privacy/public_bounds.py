"""What declared degree bounds say about boundary values: caps and factors, from the schema alone.

Write x_j for the attributes of table j and ∂F for the attributes that the tables F share with the others.
"""

from __future__ import annotations

from itertools import combinations

from dpjoin.schema import Schema

Caps = dict[frozenset[str], int]
Factors = tuple[tuple[frozenset[str], str, int], ...]


def subsets(schema: Schema) -> list[frozenset[str]]:
    """All proper subsets of the tables, small ones first."""
    names = [t.name for t in schema.tables]
    return [frozenset(c) for r in range(len(names)) for c in combinations(names, r)]


def degree_caps(schema: Schema) -> Caps:
    """cap_F: an upper bound on T_F, for every F for which the declared bounds give one. Proof: P-60."""
    caps: Caps = {}
    for tables in subsets(schema):
        fixed = _boundary(schema, tables)
        best: dict[frozenset[str], int] = {frozenset(): 1}
        for size in range(len(tables)):
            for done in [frozenset(c) for c in combinations(sorted(tables), size)]:
                if done not in best:
                    continue
                known = fixed.union(*(schema.table(t).attributes for t in done)) if done else fixed
                for name in tables - done:
                    limits = [b.limit for b in schema.table(name).bounds if set(b.attributes) <= known]
                    if limits:
                        more = done | {name}
                        best[more] = min(best.get(more, best[done] * min(limits)), best[done] * min(limits))
        if tables in best:
            caps[tables] = best[tables]
    return caps


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
