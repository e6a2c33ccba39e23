"""Tables inside DuckDB and SQLite files."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from dpjoin.engine.dialect import identifier
from dpjoin.engine.sources.connections import attach
from dpjoin.engine.sources.opened import OpenedTable, Opening, unreadable
from dpjoin.engine.sources.values import ROWS_AT_ONCE, text, wanted, with_all
from dpjoin.errors import SourceError, suggest


def open_database(opening: Opening, path: Path, table: str | None) -> OpenedTable:
    with open(path, "rb") as file:
        is_sqlite = file.read(16).startswith(b"SQLite format 3")
    return (_open_sqlite if is_sqlite else _open_duckdb)(opening, f"database {str(path)!r}", path, table)


def _open_duckdb(opening: Opening, origin: str, path: Path, table: str | None) -> OpenedTable:
    connection, catalog = opening.connection, f"file {path.resolve()}"
    with unreadable(opening.name, origin, "DuckDB or SQLite"):
        attach(connection, path, identifier(catalog))
        listed = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = ?"
        found = connection.execute(listed, [catalog]).fetchall()
    known = {t if s == "main" else f"{s}.{t}": (s, t) for s, t in found}
    rows = ".".join(map(identifier, (catalog, *known[_table_of(opening.name, origin, table, list(known))])))
    with unreadable(opening.name, origin, "DuckDB"):
        columns = connection.execute(f"DESCRIBE {rows}").fetchall()
        # The bytes decide what is equal, whatever a column's collation says: grouped by that, texts stand for others.
        texts = [f'{identifier(c)} COLLATE "binary" AS {identifier(c)}' for c, kind, *_ in columns if kind == "VARCHAR"]
        return opening.viewed(origin, f"(SELECT * REPLACE ({', '.join(texts)}) FROM {rows})" if texts else rows)


def _open_sqlite(opening: Opening, origin: str, path: Path, table: str | None) -> OpenedTable:
    """SQLite gives every cell its own type, so all of them are read as text."""
    with (
        unreadable(opening.name, origin, "SQLite"),
        closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database,
    ):
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        found = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        inner = identifier(_table_of(opening.name, origin, table, [n for (n,) in found]))
        names = [d[0] for d in database.execute(f"SELECT * FROM {inner} LIMIT 0").description]
        empty = pa.table({n: pa.array([], pa.string()) for n in names})
        read = wanted(names, opening.columns)
        rows = database.execute(f"SELECT {', '.join(map(identifier, read)) or '1'} FROM {inner}")
        parts = [empty.select(read)]
        while read and (batch := rows.fetchmany(ROWS_AT_ONCE)):
            texts = [pa.array(map(text, values), pa.string()) for values in zip(*batch, strict=True)]
            parts.append(pa.table(texts, names=read))
        return opening.registered(origin, with_all(pa.concat_tables(parts), empty), names)


def _table_of(name: str, origin: str, table: str | None, known: Sequence[str]) -> str:
    if table is None:
        raise SourceError(
            f"table {name!r}: {origin} holds several tables; name one in tables.{name}.table "
            f"(it has: {', '.join(sorted(known)) or 'none'})"
        )
    if table not in known:
        raise SourceError(f"table {name!r}: {origin} has no table {table!r}; {suggest(table, known)}")
    return table
