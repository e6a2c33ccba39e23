"""Reading a table: one SQL query that codes, filters and counts its rows, and the numbers of their keys."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from dpjoin.engine import encode
from dpjoin.engine.arrow import array_of, column_of, exact_distinct
from dpjoin.engine.buckets import Bucketed
from dpjoin.engine.checks import joins_of
from dpjoin.engine.dialect import Dialect
from dpjoin.engine.encode import Column
from dpjoin.engine.interface import Scope
from dpjoin.engine.join_keys import CODE, KEY, JoinValues, Keys, number_keys
from dpjoin.engine.memory import Memory
from dpjoin.engine.partitions import WORKERS, Partitions, partitioned_by
from dpjoin.engine.runs import Runs, cuts
from dpjoin.engine.shelf import Shelf
from dpjoin.engine.sources import OpenedTable
from dpjoin.engine.sumproduct import Counts, merged_alike
from dpjoin.engine.tables import TableCounts, Tables, keys_of
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.workload import IntArray

WHOLE_ROWS = 2**20
"""Tables of at most so many rows are worked at as they are; others in partitions, as soon as one of them is larger."""
BATCH_ROWS, SAMPLE_ROWS = 2**20, 2**16
"""Rows that are fetched at a time, and looked at to see whether many are alike."""
ALIKE = 4
"""So many rows must be alike, on average, for the store to group them first."""


class Store(Protocol):
    """Where the rows are: everything that reads them goes through here.

    All queries see one state of the data, or fail. Of files that are not databases each query sees one.
    """

    @property
    def opened(self) -> Mapping[str, OpenedTable]:
        """The tables' columns, with their types, how SQL calls them and which dialect it is."""
        ...

    def is_remote(self, table: str) -> bool:
        """Whether the rows come from elsewhere, so that they had better be grouped there."""
        ...

    def exact_batches(self, table: str, sql: str, rows: int) -> Generator[Any, None, None]:
        """The result of a query over one table, as Arrow batches of about so many rows; the last one is empty.

        Fails in words that repeat nothing of the rows.
        """
        ...

    def exact_query(self, table: str, sql: str) -> Any:
        """The same as one Arrow table."""
        ...

    def close(self) -> None:
        """Let go of the tables."""
        ...


def read_tables(schema: Schema, touched: Scope, store: Store, memory: Memory) -> Tables | Partitions:
    """Read every table once, as counts of its keys' numbers and its own attributes' codes; then close the store.

    Many rows are divided into partitions of the key, if all tables share an attribute. How many there are depends on
    how many rows there are, and no answer depends on it.
    """
    scans = {t.name: Scan(schema, t, touched, store.opened) for t in schema.tables}
    by, shelf = partitioned_by(schema), Shelf(memory.room)

    def read(name: str) -> Runs:
        joins = scans[name].joins
        runs = Runs([f"k{joins.index(a)}" for a in by], shelf)
        for batch in map(_kept, _batches(store, name, scans[name])):
            runs.add(batch)
            if by and runs.exact_rows > WHOLE_ROWS and runs.exact_waiting >= BATCH_ROWS:
                runs.sort()
        return runs

    with ThreadPoolExecutor(2) as readers:
        runs = dict(zip(scans, readers.map(read, scans), strict=True))
    store.close()
    if not by or all(r.exact_rows <= WHOLE_ROWS for r in runs.values()):
        return tables_of(schema, scans, {name: r.whole() for name, r in runs.items()})
    return in_partitions(schema, scans, runs, by, memory)


def _batches(store: Store, name: str, scan: Scan) -> Iterable[Any]:
    """A table's rows; where a look at some of them says that many are alike, grouped by the store."""
    if store.is_remote(name):
        return store.exact_batches(name, scan.sql(grouped=True), BATCH_ROWS)
    batches = store.exact_batches(name, scan.sql(grouped=False), BATCH_ROWS)
    first = next(batches)
    some = _kept(first.slice(0, SAMPLE_ROWS))
    if first.num_rows < BATCH_ROWS or exact_distinct(some) * ALIKE > some.num_rows:
        return itertools.chain([first], batches)
    batches.close()
    return store.exact_batches(name, scan.sql(grouped=True), BATCH_ROWS)


def _kept(batch: Any) -> Any:
    """The rows that the public rule keeps: a code that is NULL marks the others."""
    return batch.drop_null() if any(c.null_count for c in batch.columns) else batch


def in_partitions(
    schema: Schema, scans: Mapping[str, Scan], runs: Mapping[str, Runs], by: Scope, memory: Memory
) -> Partitions:
    """Partitions of as many rows as fit into memory, each numbered by itself and kept on a shelf."""
    for table in runs.values():
        table.sort()
    sizes = np.sum([table.exact_sizes for table in runs.values()], axis=0)
    shelf = Shelf(memory.room)

    def kept(bounds: tuple[int, int]) -> tuple[dict[str, tuple[Any, Any]], JoinValues]:
        first, last = bounds
        data = {name: table.part(first, last) for name, table in runs.items()}
        counts, values = numbered(schema, scans, data, Bucketed(first, last - first + 1) if len(by) == 1 else None)
        pairs = {name: (c, TableCounts.of(c).exact_by_key()) for name, c in counts.items()}
        return {n: (shelf.put_counts(c), shelf.put_counts(by_key)) for n, (c, by_key) in pairs.items()}, values

    with ThreadPoolExecutor(WORKERS) as workers:
        parts = list(workers.map(kept, cuts(sizes, memory.rows_at_once(WORKERS))))

    def part(exact: Mapping[str, tuple[Any, Any]], values: JoinValues) -> Tables:
        return Tables(schema, {name: TableCounts(*gets) for name, gets in exact.items()}, values)

    def whole() -> Tables:
        data = {
            name: pa.concat_tables(_columns(scan, values, exact[name][0]()) for exact, values in parts)
            for name, scan in scans.items()
        }
        return tables_of(schema, scans, data)

    return Partitions(schema, [partial(part, *some) for some in parts], by, whole)


def tables_of(schema: Schema, scans: Mapping[str, Scan], data: Mapping[str, Any]) -> Tables:
    """The counts that the scans read, all of them at hand."""
    counts, values = numbered(schema, scans, data)
    return Tables(schema, {name: TableCounts.of(c) for name, c in counts.items()}, values)


def numbered(
    schema: Schema, scans: Mapping[str, Scan], data: Mapping[str, Any], buckets: Bucketed | None = None
) -> tuple[dict[str, Counts], JoinValues]:
    """The rows of all tables with a number for each key, alike in all of them.

    `buckets` are those of the attribute that all tables share, if they have one only.
    """
    numbers: dict[tuple[str, Scope], IntArray] = {}
    keys: dict[Scope, Keys] = {}
    for key in keys_of(schema):
        holders = schema.tables_with(key[0])
        columns = [[data[t].column(f"k{scans[t].joins.index(a)}") for a in key] for t in holders]
        digits = [scans[holders[0]].has_digits(a) for a in key]
        shared = len(holders) == len(scans)
        found, keys[key] = number_keys(columns, digits, buckets if shared and len(key) == 1 else None)
        numbers |= {(t, key): number for t, number in zip(holders, found, strict=True)}
    counts = {}
    for name, scan in scans.items():
        own, rows = keys_of(schema, name), data[name]
        read_counts = Counts(
            (*((KEY, key) for key in own), *((CODE, a) for a in scan.owned)),
            (*(keys[key].size for key in own), *schema.shape(scan.owned)),
            (*(numbers[name, key] for key in own), *(array_of(rows.column(f"c{i}")) for i in range(len(scan.owned)))),
            array_of(rows.column("n")) if "n" in rows.column_names else None,
            rows.num_rows,
            frozenset([name]),
        )
        counts[name] = merged_alike(read_counts)
    return counts, JoinValues(keys)


def _columns(scan: Scan, values: JoinValues, counts: Counts) -> Any:
    """Counts as the rows that were read: the values of their join attributes, codes, and how many."""
    found = {f"k{i}": column for i, column in enumerate(values.columns(counts, scan.joins))}
    found |= {f"c{i}": column_of(column) for i, column in enumerate(counts.ids((CODE, a) for a in scan.owned))}
    return pa.table({**found, "n": column_of(counts.exact_counts)})


@dataclass(frozen=True)
class Scan:
    """The one query over a table: join values (k0, k1, …), codes of the attributes it owns (c0, c1, …), a count (n)."""

    schema: Schema
    table: Table
    touched: Scope
    opened: Mapping[str, OpenedTable]
    also: Scope = ()
    """Attributes of which this table tells the codes, too, though another one owns them."""

    @property
    def joins(self) -> Scope:
        return joins_of(self.schema, self.table.name)

    @property
    def owned(self) -> Scope:
        """The attributes whose codes this table tells."""
        touched = [a for a in self.touched if self.schema.owner(a) == self.table.name]
        return self.schema.in_order((*touched, *self.also))

    def sql(self, *, grouped: bool) -> str:
        """The query; without `grouped` every row comes as it is, and there is no count."""
        joins = {f"k{i}": self._join_value(a) for i, a in enumerate(self.joins)}
        codes: dict[str, str] = {}
        conditions = [f"{value} IS NOT NULL" for value in joins.values()]
        for attribute, column in self._coded():
            if attribute.name in self.owned:
                codes[attribute.name] = encode.code(attribute, column)
            # Rows are dropped here where that is cheap, else after the query, where their code is NULL.
            if attribute.name not in self.owned or encode.low_of_range(attribute) is not None:
                conditions += encode.kept(attribute, column)
        source = f"FROM {self._within_bounds()}{_where(conditions)}"
        small = {
            f"c{i}": self._dialect.small(codes[a], self.schema.attribute(a).size) for i, a in enumerate(self.owned)
        }
        counted = {"n": "count(*)"} if grouped else {}
        outputs = {**joins, **small, **counted} or {"nothing": self._dialect.small("0", 1)}
        columns = ", ".join(f"{sql} AS {name}" for name, sql in outputs.items())
        by = ", ".join(str(i + 1) for i in range(len(joins) + len(small))) if grouped else ""
        return f"SELECT {columns} {source}{by and f' GROUP BY {by}'}"

    def _within_bounds(self) -> str:
        """The table's rows whose rank in each group of a declared degree bound is within the limit.

        All ranks go by one order of the rows, copies included: a hash of what the engine sees of a row (its join
        values, its codes, and what else the bounds group by), then these themselves, written one to one. So rows
        that tie are alike to everything that follows, and how the table was read does not matter. Ranks are taken on
        the rows that the public rule keeps, before any join. Where the bounds hold, no row goes.
        """
        opened, dialect = self.opened[self.table.name], self._dialect
        if not self.table.bounds:
            return opened.view
        bounded = {a for bound in self.table.bounds for a in bound.attributes}
        coded = {attribute.name: (attribute, column) for attribute, column in self._coded()}
        groups, seen, ties, conditions = {}, [], [], []
        for name in self.table.attributes:
            attribute, columns, column = self.schema.attribute(name), self._columns(name), self._column(name)
            if name in self.joins:
                groups[name] = self._join_value(name)
                conditions.append(f"{groups[name]} IS NOT NULL")
                seen.append(encode.join_text(attribute, columns, column))
                ties += [groups[name]] * encode.is_double(attribute, columns)
            elif name in bounded:
                groups[name] = column.group
                seen.append(column.text)
                ties += [groups[name]] * (column.type in encode.FLOAT_TYPES)
            if name in coded:
                seen.append(dialect.text(encode.code(*coded[name]), "INTEGER"))
                conditions += encode.kept(*coded[name])
        text = " || ".join(encode.field(dialect, s) for s in seen)
        order = [dialect.by_bytes(f"md5({text})"), dialect.by_bytes(text), *ties]
        taken = {c.name.lower() for c in opened.columns}
        place, *ranked = (
            dialect.name(_unused(name, taken))
            for name in ("place", *(f"rank {i}" for i in range(len(self.table.bounds))))
        )
        ranks = []
        for bound, rank in zip(self.table.bounds, ranked, strict=True):
            group = ", ".join(groups[a] for a in bound.attributes)
            # As in SQL, rows without a value do not share one.
            unjoined = (self._column(a).sql for a in bound.attributes if a not in self.joins)
            group += "".join(f", CASE WHEN {value} IS NULL THEN {place} END" for value in unjoined)
            ranks.append(f"row_number() OVER (PARTITION BY {group} ORDER BY {place}) AS {rank}")
        places = f"row_number() OVER (ORDER BY {', '.join(order)}) AS {place}"
        placed = f"(SELECT *, {places} FROM {opened.view}{_where(conditions)}) AS placed"
        within = " AND ".join(f"{rank} <= {b.limit}" for b, rank in zip(self.table.bounds, ranked, strict=True))
        return f"(SELECT * FROM (SELECT *, {', '.join(ranks)} FROM {placed}) AS ranked WHERE {within}) AS within"

    @property
    def _dialect(self) -> Dialect:
        return self.opened[self.table.name].dialect

    def has_digits(self, attribute: str) -> bool:
        """Whether the attribute's typed columns hold whole numbers."""
        kinds = {c.kind for c in self._columns(attribute)} - {"untyped"}
        return bool(kinds) and kinds <= {"integer", "boolean"}

    def _coded(self) -> list[tuple[Attribute, Column]]:
        """The attributes with a domain, and what their codes are made of: of a join attribute, what is compared."""
        attributes = [self.schema.attribute(a) for a in self.table.attributes]
        domains = [a for a in attributes if not a.key and a.learned is None]
        return [(a, encode.coded(a, self._columns(a.name), self._column(a.name))) for a in domains]

    @property
    def kept_rows(self) -> list[str]:
        """What holds where the public rule keeps a row: a value for each join attribute, a code for each domain."""
        conditions = [f"{self._join_value(a)} IS NOT NULL" for a in self.joins]
        for attribute, column in self._coded():
            conditions += encode.kept(attribute, column)
        return conditions or ["true"]

    def join_value(self, attribute: str) -> str:
        """A join attribute's value, in a type that its columns share."""
        return self._join_value(attribute)

    def _join_value(self, attribute: str) -> str:
        columns = self._columns(attribute)
        return encode.join_value(self.schema.attribute(attribute), columns, self._column(attribute))

    def _column(self, attribute: str) -> Column:
        column = self.opened[self.table.name].column(self.table.column(attribute))
        return encode.taken(self.schema.attribute(attribute), column)

    def _columns(self, attribute: str) -> list[Column]:
        """The attribute's columns in all tables."""
        holders = [self.schema.table(t) for t in self.schema.tables_with(attribute)]
        domain = self.schema.attribute(attribute)
        return [encode.taken(domain, self.opened[t.name].column(t.column(attribute))) for t in holders]


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _unused(name: str, taken: set[str]) -> str:
    """The name, or one like it that no column has."""
    while name in taken:
        name += " of the row"
    return name
