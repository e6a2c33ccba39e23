"""Sums of products of count tables as SQL: the same elimination as in `sumproduct`, where the rows stay.

A `Relation` is SQL with distinct rows of some columns, and `n`, how often each counts. Which relation is joined with
which follows from their columns alone, so the text of a query says nothing about rows, but for two bounds on counts
that choose how wide numbers are.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

BIGINT = 2**63
"""Below it a whole number of SQL is a BIGINT, beyond it one of `Dialect.wide`."""
WIDEST_NUMBER = 10**38
"""Below it `Dialect.wide` holds every whole number."""
MANY = 2**31
"""Sums of up to this many halves of products, 32 bits each, fit into BIGINT."""


WIDE = "{wide}"
"""Stands in the SQL of relations for `Dialect.wide`."""


@dataclass(frozen=True, eq=False)
class Relation:
    """Rows of `columns`, each once, with a count `n` of at least 1."""

    sql: str
    """What stands after FROM."""
    columns: tuple[str, ...]
    exact_total: int
    """At least the sum of the counts."""
    exact_most: int
    """At least every count; at least 1."""
    exact_rows: int
    """At least the number of rows."""
    holds: tuple[object, ...] = ()
    """What must not go while the relation is used."""


def product_of(first: Relation, second: Relation, column: str = "n") -> tuple[str, int]:
    """The product of a count of `f` and a column of `s`, and at least how large it gets."""
    most = first.exact_most * second.exact_most
    if most < BIGINT:
        return f"f.n * s.{column}", most
    return f"CAST(f.n AS {WIDE}) * CAST(s.{column} AS {WIDE})", most


def total_of(number: str, total: int, over: str = "") -> str:
    """The sum of some numbers, which is at most `total`, in a type that holds it; of a window, if there is one."""
    return f"CAST(sum({number}){over} AS BIGINT)" if total < BIGINT else f"sum(CAST({number} AS {WIDE})){over}"


def summed(relation: Relation, columns: Sequence[str], *, maximum: bool = False) -> Relation:
    """The other columns summed out, or the maximum over them."""
    columns = tuple(columns)
    most = relation.exact_most if maximum else relation.exact_total
    number = "max(n)" if maximum else total_of("n", most)
    sql = f"(SELECT {', '.join([*columns, f'{number} AS n'])} FROM {relation.sql} {_by(columns)})"
    return replace(relation, sql=sql, columns=columns, exact_most=most)


def _by(columns: Collection[str]) -> str:
    """The groups of a sum; of nothing there is no sum, not one of 0, without any column either."""
    return f"GROUP BY {', '.join(columns)}" if columns else "HAVING count(*) > 0"


def joined(first: Relation, second: Relation) -> str:
    """Two relations, `f` and `s`, on the columns that they share."""
    shared = [c for c in first.columns if c in second.columns]
    on = " AND ".join(f"f.{c} = s.{c}" for c in shared)
    return f"{first.sql} f {f'JOIN {second.sql} s ON {on}' if on else f'CROSS JOIN {second.sql} s'}"


def multiplied(first: Relation, second: Relation, keep: Collection[str], *, maximum: bool = False) -> Relation:
    """The natural join of two relations, the columns outside `keep` summed out (or maximised)."""
    every = dict.fromkeys((*first.columns, *second.columns))
    gone = {c for c in every if c not in keep}
    columns = tuple(c for c in every if c in keep)
    total = first.exact_total * second.exact_total
    rows = first.exact_rows * (1 if set(second.columns) <= set(first.columns) else second.exact_rows)
    product, largest = product_of(first, second)
    chosen = {c: f"{'f' if c in first.columns else 's'}.{c}" for c in columns}
    holds = (*first.holds, *second.holds)
    if len(columns) == len(every):
        outputs = ", ".join([*(f"{sql} AS {c}" for c, sql in chosen.items()), f"{product} AS n"])
        return Relation(f"(SELECT {outputs} FROM {joined(first, second)})", columns, total, largest, rows, holds)
    if maximum:
        most, number = largest, f"max({product})"
    else:
        # In one sum, products differ in the columns that go: one for each row of a relation that has all of these.
        addends = min((r.exact_rows for r in (first, second) if gone <= set(r.columns)), default=rows)
        most, number = total, sum_of_products(product, largest, total, addends)
    outputs = ", ".join([*(f"{sql} AS {c}" for c, sql in chosen.items()), f"{number} AS n"])
    grouped = f"(SELECT {outputs} FROM {joined(first, second)} {_by(chosen.values())})"
    return Relation(grouped, columns, total, most, rows, holds)


def sum_of_products(product: str, largest: int, total: int, addends: int) -> str:
    """The sum of so many products, in halves where these make it cheaper."""
    if BIGINT <= total < BIGINT << 32 and largest < BIGINT and addends < MANY:
        low, high = f"sum(({product}) & 4294967295)", f"sum(({product}) >> 32)"
        return f"CAST({low} AS {WIDE}) + CAST({high} AS {WIDE}) * 4294967296"
    return total_of(product, total)


def eliminate(relations: Sequence[Relation], keep: Collection[str], *, maximum: bool = False) -> list[Relation]:
    """Sum out (or maximise over) every column outside `keep`; the product of what is returned is the answer.

    Columns of one relation alone go first, then relations inside others are multiplied into them. Where that stalls,
    the two that share a column to sum out and have the fewest columns together go next.
    """
    left = list(relations)
    while True:
        for i, relation in enumerate(left):
            needed = {*keep, *(c for j, r in enumerate(left) if j != i for c in r.columns)}
            columns = [c for c in relation.columns if c in needed]
            if len(columns) < len(relation.columns):
                left[i] = summed(relation, columns, maximum=maximum)
        pair = _contained(left) or _narrowest(left, keep)
        if pair is None:
            return left
        first, second = (left[i] for i in pair)
        left = [r for i, r in enumerate(left) if i not in pair]
        wanted = {*keep, *(c for r in left for c in r.columns)}
        left.append(multiplied(first, second, wanted, maximum=maximum))


def _contained(relations: Sequence[Relation]) -> tuple[int, int] | None:
    """The second's columns are among the first's."""
    pairs = itertools.permutations(range(len(relations)), 2)
    inside = [(i, j) for i, j in pairs if set(relations[j].columns) <= set(relations[i].columns)]
    return min(inside, key=lambda pair: len(relations[pair[0]].columns), default=None)


def _narrowest(relations: Sequence[Relation], keep: Collection[str]) -> tuple[int, int] | None:
    choices = [
        (len({*relations[i].columns, *relations[j].columns}), i, j)
        for i, j in itertools.combinations(range(len(relations)), 2)
        if any(c in relations[j].columns and c not in keep for c in relations[i].columns)
    ]
    return min(choices)[1:] if choices else None


def whole(relations: Sequence[Relation], keep: Collection[str]) -> Relation:
    """The product of the relations as one."""
    first, *rest = eliminate(relations, keep)
    for relation in rest:
        first = multiplied(first, relation, keep)
    return first
