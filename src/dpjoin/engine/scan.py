"""Reading a table: one SQL query that codes, filters and counts its rows, and the numbers of their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

from dpjoin.engine import encode
from dpjoin.engine.checks import joins_of
from dpjoin.engine.encode import Column
from dpjoin.engine.interface import Scope
from dpjoin.engine.join_keys import CODE, KEY, JoinValues, Keys, array_of, number_keys
from dpjoin.engine.sources import OpenedTable
from dpjoin.engine.sumproduct import Counts, merged_alike
from dpjoin.engine.tables import TableCounts, Tables, keys_of
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.workload import IntArray

UNGROUPED_ROWS = 4_000_000
"""Up to this many rows it is faster to fetch them as they are than to group them in the store first."""


class Store(Protocol):
    """Where the rows are: everything that reads them goes through here, once, from one state of the data."""

    @property
    def opened(self) -> Mapping[str, OpenedTable]:
        """The tables' columns, with their types, and what to call them in SQL."""
        ...

    def exact_rows(self, table: str) -> int | None:
        """How many rows a table has, if that costs next to nothing."""
        ...

    def exact_query(self, table: str, sql: str) -> Any:
        """The result of a query over one table, as an Arrow table. Fails in words that repeat nothing of the rows."""
        ...

    def close(self) -> None:
        """Let go of the tables."""
        ...


def read_tables(schema: Schema, touched: Scope, store: Store) -> Tables:
    """Read every table once, as counts of its keys' numbers and its own attributes' codes; then close the store."""
    scans = {t.name: Scan(schema, t, touched, store.opened) for t in schema.tables}

    def read(name: str) -> Any:
        rows = store.exact_rows(name)
        data = store.exact_query(name, scans[name].sql(grouped=rows is None or rows > UNGROUPED_ROWS))
        # A code that is NULL marks a row that the public rule drops.
        return data.drop_null() if any(c.null_count for c in data.columns) else data

    with ThreadPoolExecutor(2) as readers:
        data = dict(zip(scans, readers.map(read, scans), strict=True))
    store.close()
    numbers: dict[tuple[str, Scope], IntArray] = {}
    keys: dict[Scope, Keys] = {}
    for key in keys_of(schema):
        holders = schema.tables_with(key[0])
        columns = [[data[t].column(f"k{scans[t].joins.index(a)}") for a in key] for t in holders]
        found, keys[key] = number_keys(columns, [scans[holders[0]].has_digits(a) for a in key])
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
        counts[name] = TableCounts.of(merged_alike(read_counts))
    return Tables(schema, counts, JoinValues(keys))


@dataclass(frozen=True)
class Scan:
    """The one query over a table: join values (k0, k1, …), codes of the attributes it owns (c0, c1, …), a count (n)."""

    schema: Schema
    table: Table
    touched: Scope
    opened: Mapping[str, OpenedTable]

    @property
    def joins(self) -> Scope:
        return joins_of(self.schema, self.table.name)

    @property
    def owned(self) -> Scope:
        return tuple(a for a in self.touched if self.schema.owner(a) == self.table.name)

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
            f"c{i}": f"TRY_CAST({codes[a]} AS {_small(self.schema.attribute(a).size)})"
            for i, a in enumerate(self.owned)
        }
        counted = {"n": "count(*)"} if grouped else {}
        outputs = {**joins, **small, **counted} or {"nothing": "CAST(0 AS UTINYINT)"}
        columns = ", ".join(f"{sql} AS {name}" for name, sql in outputs.items())
        return f"SELECT {columns} {source}{' GROUP BY ALL' if grouped else ''}"

    def _within_bounds(self) -> str:
        """The table's rows whose rank in each group of a declared degree bound is within the limit.

        All ranks go by one order of the rows, copies included: a hash of what the engine sees of a row (its join
        values, its codes, and what else the bounds group by), then these themselves, written one to one. So rows
        that tie are alike to everything that follows, and how the table was read does not matter. Ranks are taken on
        the rows that the public rule keeps, before any join. Where the bounds hold, no row goes.
        """
        opened = self.opened[self.table.name]
        if not self.table.bounds:
            return opened.view
        bounded = {a for bound in self.table.bounds for a in bound.attributes}
        coded = {attribute.name: (attribute, column) for attribute, column in self._coded()}
        groups, seen, conditions = {}, [], []
        for name in self.table.attributes:
            if name in self.joins:
                groups[name] = self._join_value(name)
                conditions.append(f"{groups[name]} IS NOT NULL")
                seen.append(encode.join_text(self.schema.attribute(name), self._columns(name), self._column(name)))
            elif name in bounded:
                groups[name] = self._column(name).text
                seen.append(groups[name])
            if name in coded:
                seen.append(encode.code(*coded[name]))
                conditions += encode.kept(*coded[name])
        text = f"concat({', '.join(map(encode.field, seen))})"
        place = "place"
        while place in {c.name.lower() for c in opened.columns}:
            place += " of the row"
        place = encode.identifier(place)
        ranks = []
        for bound in self.table.bounds:
            group = ", ".join(groups[a] for a in bound.attributes)
            ranks.append(f"row_number() OVER (PARTITION BY {group} ORDER BY {place}) <= {bound.limit}")
        places = f"row_number() OVER (ORDER BY md5({text}), {text}) AS {place}"
        within = f"SELECT *, {places} FROM {opened.view}{_where(conditions)}"
        return f"(SELECT * FROM ({within}) QUALIFY {' AND '.join(ranks)})"

    def has_digits(self, attribute: str) -> bool:
        """Whether the attribute's typed columns hold whole numbers."""
        kinds = {c.kind for c in self._columns(attribute)} - {"untyped"}
        return bool(kinds) and kinds <= {"integer", "boolean"}

    def _coded(self) -> list[tuple[Attribute, Column]]:
        """The attributes with a domain, and what their codes are made of: of a join attribute, what is compared."""
        attributes = [self.schema.attribute(a) for a in self.table.attributes]
        return [(a, encode.coded(a, self._columns(a.name), self._column(a.name))) for a in attributes if not a.key]

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


def _small(size: int) -> str:
    return "UTINYINT" if size <= 2**8 else "USMALLINT" if size <= 2**16 else "UINTEGER"
