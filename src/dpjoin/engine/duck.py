"""The default engine: DuckDB reads and groups the tables, numpy multiplies their counts; the join never exists."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from dpjoin.engine.arrow import empty_batch
from dpjoin.engine.column_values import Columns
from dpjoin.engine.interface import Scope
from dpjoin.engine.local import LocalEngine
from dpjoin.engine.memory import Memory, memory_of
from dpjoin.engine.scan import read_tables
from dpjoin.engine.sources import connect, disconnect, open_source, unreadable
from dpjoin.engine.stores import open_store
from dpjoin.errors import SpecError
from dpjoin.spec.schema import Schema, Table


class DuckEngine(LocalEngine):
    """Exact aggregates of the natural join of one to eight tables, over any source that `open_source` knows.

    `tables` maps each table to its source: a path, a (path, table) pair or a Python object. `attributes`
    are those that queries touch; the engine answers about no others.
    """

    def __init__(
        self, schema: Schema, tables: Mapping[str, object], *, attributes: Sequence[str], memory: Memory | None = None
    ) -> None:
        touched, limit = _touched(schema, attributes), memory or memory_of(None)
        store = self._store = open_store(schema, tables, partial(DuckStore, memory=limit))
        # A store that computes says for itself where its counts lie.
        read = getattr(store, "read", None) or partial(read_tables, store=store)
        super().__init__(schema, touched, lambda coded: read(coded, touched, memory=limit), Columns(schema, store))


class DuckStore:
    """Tables as views of DuckDB, which reads them where they are."""

    def __init__(self, tables: Sequence[Table], sources: Mapping[str, object], memory: Memory) -> None:
        # One connection per table, so that tables can be read side by side.
        self._connections = {t.name: connect() for t in tables}
        self.close = weakref.finalize(self, _discard, list(self._connections.values()))
        try:
            for connection in self._connections.values():
                connection.execute(f"SET memory_limit = '{memory.duckdb // 10**6}MB'")
            self.opened = {
                t.name: open_source(
                    self._connections[t.name],
                    t.name,
                    sources[t.name],
                    table=t.source_table,
                    encoding=t.encoding,
                    columns=[t.column(a) for a in t.attributes],
                )
                for t in tables
            }
        except BaseException:
            self.close()
            raise

    def is_remote(self, table: str) -> bool:
        return False

    def exact_batches(self, table: str, sql: str, rows: int) -> Generator[Any, None, None]:
        with unreadable(table, self.opened[table].origin, "complete", rows=True):
            reader = self._connections[table].sql(sql).to_arrow_reader(rows)
            yield from reader
            yield empty_batch(reader.schema)

    def exact_query(self, table: str, sql: str) -> Any:
        with unreadable(table, self.opened[table].origin, "complete", rows=True):
            return self._connections[table].sql(sql).to_arrow_table()


def _discard(connections: Sequence[Any]) -> None:
    for connection in connections:
        disconnect(connection)


def _touched(schema: Schema, attributes: Iterable[str]) -> Scope:
    for name in attributes:
        if schema.attribute(name).key:
            raise SpecError(f"attribute {name!r} is a key that no query can look at; remove it from the queries")
    return schema.in_order(attributes)
