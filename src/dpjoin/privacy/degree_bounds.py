"""What degree bounds and weights of rows say about boundary values: caps and factors, from public numbers alone.

Write x_j for the attributes of table j and ∂F for the attributes that the tables F share with the others.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, count, pairwise

import numpy as np

from dpjoin.engine.interface import RowWeights as RowWeights
from dpjoin.errors import BudgetError
from dpjoin.privacy.numbers import root_up
from dpjoin.spec.hypergraph import boundary
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
    return [_row_limit(schema, t.name, b.attributes, b.limit) for t in schema.tables for b in t.bounds]


def _row_limit(schema: Schema, table: str, by: Iterable[str], most: int) -> Limit:
    """At most so many rows of a table share a value."""
    then = frozenset(schema.table(table).attributes)
    return Limit(tables=frozenset([table]), given=frozenset(by), then=then, most=most, rows_of=table)


def most_results(schema: Schema, tables: frozenset[str], limits: Iterable[Limit]) -> int | None:
    """An upper bound on T of these tables: the least that a chain of limits gives, None without one. Proof: P-60."""
    usable = [x for x in limits if x.tables <= tables]
    order = count()  # breaks ties: sets have no order
    waiting = [(1, next(order), frozenset(boundary(schema, tables)), frozenset[str]())]
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
        fixed = frozenset(boundary(schema, tables))
        for name in sorted(tables):
            rest = tables - {name}
            if not fixed.issuperset(boundary(schema, rest)):
                continue
            known = fixed.union(*(schema.table(t).attributes for t in rest)) if rest else fixed
            limits = [b.limit for b in schema.table(name).bounds if set(b.attributes) <= known]
            if limits:
                found.append((tables, name, min(limits)))
    return tuple(found)


def churn(schema: Schema) -> int:
    """How many rows of a table enforcing its bounds can remove when one row is added: at most r of them. Proof: P-62.

    0 when no private table's bounds are enforced.
    """
    return max((len(t.bounds) for t in schema.tables if t.private and t.enforce), default=0)


def bound_is_public(schema: Schema) -> bool:
    """Whether the sensitivity needs no noisy bound: for each private table the others are public, or capped."""
    names = frozenset(t.name for t in schema.tables)
    caps = degree_caps(schema)
    private = set(schema.private_tables)
    return all(not (names - {i}) & private or names - {i} in caps for i in private)


# Weights of rows: a row counts less, the more of them share its value. Hard caps let a new row push another one out, so
# sums move by the two of them; weights that fall slowly let it push all others out a little, in the same direction.


def check_weights(weights: RowWeights) -> None:
    """Refuse weights that P-68 does not cover."""
    each = weights.weights
    if len(each) == 0 or np.any(np.diff(each) > 0) or not 0 <= each[-1] <= each[0] <= weights.full:
        raise BudgetError("weights of rows must be whole numbers from full weight down to 0 that never rise")
    if most_of_value(weights) >= 2**62:
        raise BudgetError("weights of rows must keep what a value counts below 2^62; use fewer steps")


def most_of_value(weights: RowWeights) -> int:
    """What the rows of one value count together, at most: the largest d W(d). Proof: P-68."""
    return max(d * int(w) for d, w in enumerate(weights.weights, 1))


def moves_of_row(weights: RowWeights) -> int:
    """By how much weights move for one row more at a value, in l2: its own one, and all that the others lose.

    The least whole number whose square is no less than W(d + 1)² + (d (W(d) - W(d + 1)))² for every d. Proof: P-68.
    """
    each = [*map(int, weights.weights), 0]
    squares = [each[0] ** 2, *(y**2 + (d * (x - y)) ** 2 for d, (x, y) in enumerate(pairwise(each), 1))]
    return root_up(max(squares))


def weighted_limits(schema: Schema, limits: Iterable[Limit], weights: Mapping[str, RowWeights]) -> list[Limit]:
    """Limits on rows as limits on what they count, and those that the weights give. Proof: P-68."""
    full = {name: of_table.full for name, of_table in weights.items()}
    known = [replace(x, most=x.most * full.get(x.rows_of or "", 1)) for x in limits]
    own = [_row_limit(schema, name, w.attributes, most_of_value(w)) for name, w in weights.items()]
    return [*known, *own]


def weighted_results(schema: Schema, limits: Iterable[Limit], weights: Mapping[str, RowWeights]) -> dict[str, int]:
    """By private table, the most that one row can change, in the units of weighted counts. Proof: P-68."""
    names = frozenset(t.name for t in schema.tables)
    known = weighted_limits(schema, limits, weights)
    found = {}
    for table in schema.private_tables:
        others = most_results(schema, names - {table}, known)
        if others is None:
            raise BudgetError(f"weights must bound what a row of table {table!r} joins; give its partners weights")
        found[table] = others * (moves_of_row(weights[table]) if table in weights else 1)
    return found


def weighted_bound(schema: Schema, limits: Iterable[Limit], weights: Mapping[str, RowWeights]) -> int:
    """The same for a row of any table. Proof: P-68."""
    return max(1, *weighted_results(schema, limits, weights).values())
