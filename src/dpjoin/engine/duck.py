"""The default engine: DuckDB reads and groups the tables, numpy multiplies their counts; the join never exists."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpjoin.engine.interface import Scope
from dpjoin.engine.local import LocalEngine
from dpjoin.engine.scan import read_tables
from dpjoin.engine.sources import check_columns, connect, disconnect, open_source, same_source, unreadable
from dpjoin.errors import SourceError, SpecError, suggest
from dpjoin.spec.schema import Schema

MOST_TABLES = 8


class DuckEngine(LocalEngine):
    """Exact aggregates of the natural join of one to eight tables, over any source that `open_source` knows.

    `tables` maps each table to its source: a path, a (path, table) pair or a Python object. `attributes`
    are those that queries touch; the engine answers about no others.
    """

    def __init__(self, schema: Schema, tables: Mapping[str, object], *, attributes: Sequence[str]) -> None:
        touched = _touched(schema, attributes)
        store = self._store = DuckStore(schema, tables)
        super().__init__(schema, touched, lambda: read_tables(schema, touched, store))


class DuckStore:
    """Tables as views of DuckDB, which reads them where they are."""

    def __init__(self, schema: Schema, tables: Mapping[str, object]) -> None:
        sources = _sources(schema, tables)
        # One connection per table, so that tables can be read side by side.
        self._connections = {t.name: connect() for t in schema.tables}
        self.close = weakref.finalize(self, _discard, list(self._connections.values()))
        try:
            self.opened = {
                t.name: open_source(
                    self._connections[t.name],
                    t.name,
                    sources[t.name],
                    table=t.source_table,
                    columns=[t.column(a) for a in t.attributes],
                )
                for t in schema.tables
            }
            check_columns(schema, self.opened)
        except BaseException:
            self.close()
            raise

    def exact_rows(self, table: str) -> int | None:
        opened = self.opened[table]
        if not opened.countable:
            return None
        ((exact,),) = self.exact_query(table, f"SELECT count(*) FROM {opened.view}").to_pydict().values()
        return int(exact)

    def exact_query(self, table: str, sql: str) -> Any:
        with unreadable(table, self.opened[table].origin, "complete"):
            return self._connections[table].sql(sql).to_arrow_table()


def _discard(connections: Sequence[Any]) -> None:
    for connection in connections:
        disconnect(connection)


def _touched(schema: Schema, attributes: Iterable[str]) -> Scope:
    for name in attributes:
        if schema.attribute(name).key:
            raise SpecError(f"attribute {name!r} is a key that no query can look at; remove it from the queries")
    return schema.in_order(attributes)


def _sources(schema: Schema, tables: Mapping[str, object]) -> dict[str, object]:
    """Each table's source, after the checks that need no data."""
    if len(schema.tables) > MOST_TABLES:
        raise SpecError(
            f"joins of {len(schema.tables)} tables are not supported; join at most {MOST_TABLES}, "
            "or release them in parts"
        )
    names = [t.name for t in schema.tables]
    for name in tables:
        if name not in names:
            raise SpecError(f"table {name!r} is not declared; {suggest(name, names)}")
    sources: dict[str, object] = {}
    for table in schema.tables:
        source = tables.get(table.name, table.source)
        if source is None:
            raise SourceError(f"table {table.name!r} has no source; set tables.{table.name}.source or pass the table")
        if isinstance(source, str | os.PathLike) and table.source_table is not None:
            source = (source, table.source_table)
        sources[table.name] = source
    for first, second in itertools.combinations(schema.private_tables, 2):
        if same_source(sources[first], sources[second]):
            raise SpecError(
                f"tables {first!r} and {second!r} have the same source, so one row would change both, and the "
                "guarantee is for a row of one table; split the rows into two disjoint tables"
            )
    return sources
