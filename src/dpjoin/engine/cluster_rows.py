"""Rows of a table that stay, or count otherwise, by public rules: SQL from one relation to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dpjoin.engine.dialect import Dialect
from dpjoin.engine.encode import field, text_of
from dpjoin.engine.interface import Clip, Scope
from dpjoin.engine.relations import BIGINT, WIDE, Relation, joined, product_of, sum_of_products, total_of


def present(relation: Relation, columns: Scope) -> Relation:
    """The values that occur, each once."""
    sql = f"(SELECT DISTINCT {', '.join([*columns, 'CAST(1 AS BIGINT) AS n'])} FROM {relation.sql} r)"
    return replace(relation, sql=sql, columns=columns, exact_total=relation.exact_rows, exact_most=1)


def recounted(relation: Relation, number: str) -> Relation:
    """Other counts, which are no larger."""
    return replace(relation, sql=f"(SELECT {', '.join([*relation.columns, f'{number} AS n'])} FROM {relation.sql} r)")


def labelled(relation: Relation, columns: Scope, listed: Relation, bucket: int) -> Relation:
    """The rows whose value has this bucket: that of the list, 0 if it is not in it."""
    on = " AND ".join(f"f.{c} = s.{c}" for c in columns) or "1 = 1"
    outputs = ", ".join(f"f.{c}" for c in (*relation.columns, "n"))
    chosen = f"SELECT {outputs} FROM {relation.sql} f LEFT JOIN {listed.sql} s ON {on}"
    chosen = f"({chosen} WHERE coalesce(s.bucket, 0) = {bucket})"
    return replace(relation, sql=chosen, holds=(*relation.holds, *listed.holds))


def stacked(rows: Relation, joins: Scope, cells: Sequence[str], name: str) -> Relation:
    """Counts by join values and by the cell of some scopes, which lie side by side."""
    columns = (*joins, name)
    parts = [f"SELECT {', '.join([*joins, f'{c} AS {name}', 'n'])} FROM {rows.sql} r" for c in cells]
    total = rows.exact_total * len(cells)
    number = total_of("n", rows.exact_total)
    outputs = ", ".join([*columns, f"{number} AS n"])
    sql = f"(SELECT {outputs} FROM ({' UNION ALL '.join(parts)}) u GROUP BY {', '.join(columns)})"
    return Relation(sql, columns, total, rows.exact_total, rows.exact_rows * len(cells), rows.holds)


def spread(rows: Relation, joins: Scope, cells: Sequence[tuple[str, int]]) -> Relation:
    """Counts by join values, those of each cell of some scopes in a column of its own (w0, w1, …); w is all of them."""
    columns = {"w": total_of("n", rows.exact_total)}
    for cell, size in cells:
        for i in range(size):
            number = f"CASE WHEN {cell} = {i} THEN n ELSE 0 END"
            columns[f"w{len(columns) - 1}"] = total_of(number, rows.exact_total)
    outputs = ", ".join([*joins, *(f"{number} AS {c}" for c, number in columns.items())])
    sql = f"(SELECT {outputs} FROM {rows.sql} r GROUP BY {', '.join(joins)})"
    return Relation(sql, joins, rows.exact_total, rows.exact_total, rows.exact_rows, rows.holds)


def across(rows: Relation, cell: str, others: Relation, columns: Sequence[str]) -> str:
    """For each cell of one table's scope, its rows times each column of another table that was spread."""
    total = rows.exact_total * others.exact_total
    sums = []
    for c in columns:
        product, largest = product_of(rows, others, c)
        sums.append(f"{sum_of_products(product, largest, total, rows.exact_rows)} AS {c}")
    celled = replace(rows, sql=f"(SELECT r.*, {cell} AS x FROM {rows.sql} r)")
    return f"SELECT f.x AS x, {', '.join(sums)} FROM {joined(celled, others)} GROUP BY f.x"


def weighted(rows: Relation, by: Scope, weights: Relation, total: int) -> Relation:
    """Each row as often as the weight of its value, by how many rows that has; `total` is at least their sum."""
    degree = total_of("n", rows.exact_total, f" OVER (PARTITION BY {', '.join(by)})")
    counted = f"(SELECT r.*, {degree} AS degree FROM {rows.sql} r)"
    outputs = ", ".join([*(f"f.{c}" for c in rows.columns), f"{times('s.weight', total)} AS n"])
    sql = f"(SELECT {outputs} FROM {counted} f JOIN {weights.sql} s ON f.degree = s.degree WHERE s.weight > 0)"
    return replace(rows, sql=sql, exact_total=total, exact_most=total, holds=(*rows.holds, *weights.holds))


def times(weight: str, total: int) -> str:
    """The count of `f` times a weight; products are at most `total`."""
    return f"f.n * {weight}" if total < BIGINT else f"CAST(f.n AS {WIDE}) * CAST({weight} AS {WIDE})"


def clipped(rows: Relation, owners: Relation, clip: Clip, dialect: Dialect) -> Relation:
    """Each row as often as the weight of its owner, who has so many join results."""
    # Nothing counts beyond full·limit results, nor 2^31 beyond the limit if weights are steep: BIGINT holds all of it.
    names = ", ".join(owners.columns)
    results = f"(SELECT {names}, CAST(least(n, {clip.full * clip.limit + 1}) AS BIGINT) AS n FROM {owners.sql} o)"
    most = [str(clip.full), f"{clip.full * clip.limit} {dialect.divided} n"]
    if clip.steep:
        square, beyond = clip.limit**2, f"least(greatest(n - {clip.limit}, 0), {2**31})"
        most.append(f"{clip.full * 2 * square} {dialect.divided} ({beyond} * {beyond} + {square})")
    weights = f"(SELECT {names}, CAST(least({', '.join(most)}) AS BIGINT) AS weight FROM {results} q)"
    total = rows.exact_total * clip.full
    on = " AND ".join(f"f.{c} = s.{c}" for c in owners.columns)
    outputs = ", ".join([*(f"f.{c}" for c in rows.columns), f"{times('s.weight', total)} AS n"])
    sql = f"(SELECT {outputs} FROM {rows.sql} f JOIN {weights} s ON {on} WHERE s.weight > 0)"
    return replace(rows, sql=sql, exact_total=total, exact_most=total, holds=(*rows.holds, *owners.holds))


def capped(rows: Relation, limits: Sequence[tuple[Scope, int]], seen: Mapping[str, str], dialect: Dialect) -> Relation:
    """The rows whose rank in each group is within the limit, by the order of `caps`. Only groups beyond one are ranked.

    `seen` has the columns that the order looks at, with their types.
    """
    columns = ", ".join(rows.columns)
    degrees = [
        f"{total_of('n', rows.exact_total, f' OVER (PARTITION BY {chr(44).join(by)})')} AS d{i}"
        for i, (by, _) in enumerate(limits)
    ]
    counted = f"(SELECT r.*, {', '.join(degrees)} FROM {rows.sql} r)"
    within = " AND ".join(f"d{i} <= {limit}" for i, (_, limit) in enumerate(limits))
    copies = f"(SELECT {columns}, {dialect.copies.format('n')} AS copy FROM {counted} c WHERE NOT ({within}))"
    texts = [*(text_of(dialect, c, kind) for c, kind in seen.items()), dialect.text("copy - 1", "BIGINT")]
    order = ", ".join([f"md5({' || '.join(field(dialect, t) for t in texts)})", *seen, "copy"])
    ranks = [
        f"row_number() OVER (PARTITION BY {', '.join(by)} ORDER BY {order}) AS r{i}" for i, (by, _) in enumerate(limits)
    ]
    ranked = f"(SELECT {columns}, {', '.join(ranks)} FROM {copies} p)"
    stays = " AND ".join(f"r{i} <= {limit}" for i, (_, limit) in enumerate(limits))
    kept = f"SELECT {columns}, count(*) AS n FROM {ranked} q WHERE {stays} GROUP BY {columns}"
    return replace(rows, sql=f"(SELECT {columns}, n FROM {counted} c WHERE {within} UNION ALL {kept})")


def combined(rows: Relation, joins: Scope, cell: str, weights: Relation, queries: int, largest: int) -> Relation:
    """For each value of the join attributes, its rows weighed for each of some queries (w0, w1, …)."""
    most = rows.exact_total * max(1, largest)
    columns = [f"w{i}" for i in range(queries)]
    celled = f"(SELECT {', '.join([*joins, f'{cell} AS x', 'n'])} FROM {rows.sql} r)"
    sums = [f"{total_of(times(f's.{c}', most), most)} AS {c}" for c in columns]
    outputs = ", ".join([*(f"f.{c}" for c in joins), *sums])
    grouped = f"GROUP BY {', '.join(f'f.{c}' for c in joins)}" if joins else ""
    sql = f"(SELECT {outputs} FROM {celled} f JOIN {weights.sql} s ON f.x = s.x {grouped})"
    return Relation(sql, joins, most, most, rows.exact_rows, (*rows.holds, *weights.holds))


def products(first: Relation, second: Relation, queries: int) -> str:
    """The sum over shared join values of the products of two tables' weighed rows, query by query."""
    total = first.exact_total * second.exact_total
    wide = total >= BIGINT
    numbers = [f"CAST({{}}.w{i} AS {WIDE})" if wide else f"{{}}.w{i}" for i in range(queries)]
    sums = [total_of(f"{n.format('f')} * {n.format('s')}", total) for n in numbers]
    return f"SELECT {', '.join(f'{s} AS w{i}' for i, s in enumerate(sums))} FROM {joined(first, second)}"
