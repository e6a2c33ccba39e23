"""The stores of a schema's tables: each table is asked where it is, and nothing of one store goes to another."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from dpjoin.engine.scan import Store
from dpjoin.engine.sources import check_columns, is_place, same_source
from dpjoin.engine.sources.opened import OpenedTable
from dpjoin.engine.sources.places import is_spark, split
from dpjoin.errors import SourceError, SpecError, suggest
from dpjoin.spec.schema import Schema, Table
from dpjoin.spec.stored import POSTGRES, postgres_source

MOST_TABLES = 8


class Stores:
    """Some stores as one."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self._store_of = {name: store for store in stores for name in store.opened}
        self.opened: Mapping[str, OpenedTable] = {name: s.opened[name] for name, s in self._store_of.items()}
        self.close = weakref.finalize(self, _close, list(stores))

    def is_remote(self, table: str) -> bool:
        return self._store_of[table].is_remote(table)

    def exact_batches(self, table: str, sql: str, rows: int) -> Generator[Any, None, None]:
        return self._store_of[table].exact_batches(table, sql, rows)

    def exact_query(self, table: str, sql: str) -> Any:
        return self._store_of[table].exact_query(table, sql)


def _close(stores: Sequence[Store]) -> None:
    for store in stores:
        store.close()


def open_store(
    schema: Schema, tables: Mapping[str, object], local: Callable[[Sequence[Table], Mapping[str, object]], Store]
) -> Store:
    """Every table in its store, with columns that fit the schema; `local` is the store of all that is no server's."""
    sources = _sources(schema, tables)
    stores: list[Store] = []
    try:
        remote = {t.name for t in schema.tables if _server(sources[t.name]) is not None}
        on_spark = [t for t in schema.tables if is_spark(sources[t.name])]
        remote |= {t.name for t in on_spark}
        here = [t for t in schema.tables if t.name not in remote]
        if here:
            stores.append(local(here, sources))
        if on_spark:
            stores.append(_spark_store(on_spark, sources))
        for server in dict.fromkeys(s for s in (_server(sources[t.name]) for t in schema.tables) if s is not None):
            there = [t for t in schema.tables if _server(sources[t.name]) == server]
            stores.append(_postgres_store(there, sources))
        check_columns(schema, {name: opened for store in stores for name, opened in store.opened.items()})
    except BaseException:
        _close(stores)
        raise
    return stores[0] if len(stores) == 1 else Stores(stores)


def _server(source: object) -> str | None:
    """What tells one server from another, which has one snapshot; None for what is read here."""
    place, table = split(source, None)
    return postgres_source(place, table).conninfo if isinstance(place, str) and place.startswith(POSTGRES) else None


def _postgres_store(tables: Sequence[Table], sources: Mapping[str, object]) -> Store:
    from dpjoin.engine.postgres import PostgresStore

    found = {t.name: postgres_source(*split(sources[t.name], None)) for t in tables}
    return PostgresStore(found, {t.name: [t.column(a) for a in t.attributes] for t in tables})


def _spark_store(tables: Sequence[Table], sources: Mapping[str, object]) -> Store:
    from dpjoin.engine.spark_store import SparkStore

    return SparkStore(tables, {t.name: sources[t.name] for t in tables})


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
        source = list(source) if source is table.source and isinstance(source, tuple) else source
        if is_place(source) and table.source_table is not None:
            source = (source, table.source_table)
        sources[table.name] = source
    refuse_one_source_twice(schema, sources)
    return sources


def refuse_one_source_twice(schema: Schema, sources: Mapping[str, object]) -> None:
    """Of two private tables: one row would be protected in one of them only."""
    for first, second in itertools.combinations(schema.private_tables, 2):
        if same_source(sources[first], sources[second]):
            raise SpecError(
                f"tables {first!r} and {second!r} have the same source, so one row would change both; "
                "split the rows into two disjoint tables"
            )
