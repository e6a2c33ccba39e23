"""Opening a source of any kind."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dpjoin.engine.dialect import identifier, literal
from dpjoin.engine.sources.connections import connected
from dpjoin.engine.sources.databases import open_database
from dpjoin.engine.sources.excel import open_excel
from dpjoin.engine.sources.lines import open_lines, viewed_lines
from dpjoin.engine.sources.objects import read_arrow, to_arrow
from dpjoin.engine.sources.opened import OpenedTable, Opening, unreadable
from dpjoin.engine.sources.places import (
    ARROW_FILES,
    DATABASE_FILES,
    EXCEL_FILES,
    KNOWN,
    LINES_FILES,
    TEXT_FILES,
    extension,
    files_of,
    glob,
    is_place,
    is_remote,
    is_spark,
    public_address,
    split,
)
from dpjoin.engine.sources.text import open_csv, remote_csv
from dpjoin.errors import SourceError
from dpjoin.spec.stored import POSTGRES, postgres_source


def open_source(
    connection: Any,
    name: str,
    source: object,
    *,
    table: str | None = None,
    columns: Sequence[str] | None = None,
    encoding: str | None = None,
) -> OpenedTable:
    """Open a table's source; only `columns` are converted where the format needs converting: with none, no row is."""
    if is_spark(source):
        from dpjoin.engine.spark_store import described as described_by_spark

        return described_by_spark(name, source)
    source, table = split(source, table)
    if isinstance(source, str) and source.startswith(POSTGRES):
        return described(name, source, table)
    opening = Opening(connection, name, columns)
    if not is_place(source):
        origin = f"the {type(source).__module__.partition('.')[0]} {type(source).__name__}"
        with unreadable(name, origin, "tabular"):
            return opening.registered(origin, *to_arrow(source, columns))
    if isinstance(source, str | os.PathLike) and is_remote(source):
        return _open_remote(opening, str(source), encoding)
    files = files_of(name, source)
    if len(files) == 1:
        return _open_file(opening, files[0], table, encoding)
    return _together(opening, files, encoding)


def _open_file(opening: Opening, path: Path, table: str | None, encoding: str | None) -> OpenedTable:
    name, origin, kind = opening.name, f"file {str(path)!r}", extension(path)
    if encoding is not None and kind not in TEXT_FILES:
        raise SourceError(
            f"table {name!r}: {origin} says itself how its text is encoded; remove tables.{name}.encoding"
        )
    if kind in TEXT_FILES:
        return open_csv(opening, origin, path, encoding)
    if kind == ".parquet":
        with unreadable(name, origin, "Parquet"):
            return opening.viewed(origin, f"read_parquet({glob(path)})")
    if kind in LINES_FILES:
        return open_lines(opening, origin, path)
    if kind in ARROW_FILES:
        with unreadable(name, origin, "Arrow"):
            return opening.registered(origin, read_arrow(path))
    if kind in DATABASE_FILES:
        return open_database(opening, path, table)
    if kind in EXCEL_FILES:
        return open_excel(opening, origin, path, table)
    raise SourceError(f"table {name!r}: {origin} has an unknown extension {kind!r}; use one of {', '.join(KNOWN)}")


def _together(opening: Opening, files: Sequence[Path], encoding: str | None) -> OpenedTable:
    """Several files as one table: the same columns with the same types, in whatever order."""
    parts = [_open_file(replace(opening, part=i), path, None, encoding) for i, path in enumerate(files, 1)]
    first = parts[0]
    types = {c.name: "text" if c.untyped else c.type for c in first.columns}
    for part in parts[1:]:
        theirs = {c.name: "text" if c.untyped else c.type for c in part.columns}
        if part.endless != first.endless:
            raise _differ(opening.name, part, "is of another kind")
        if odd := sorted(types.keys() ^ theirs.keys()):
            raise _differ(opening.name, part, f"{'lacks' if odd[0] in types else 'has'} column {odd[0]!r}", first)
        for column, kind in theirs.items():
            if kind != types[column]:
                raise _differ(opening.name, part, f"has {kind} in column {column!r} and not {types[column]}", first)
    origin = f"{len(files)} files from {str(files[0])!r} on"
    with unreadable(opening.name, origin, "tabular"):
        if all(extension(path) == ".parquet" for path in files):
            return opening.viewed(origin, f"read_parquet([{', '.join(map(glob, files))}], union_by_name = true)")
        columns = ", ".join(identifier(c) for c in types) or "*"
        union = " UNION ALL ".join(f"SELECT {columns} FROM {part.view}" for part in parts)
        made = opening.viewed(origin, f"({union})", endless=first.endless)
    # Types come from the files: a view of views has forgotten which columns are untyped.
    return replace(made, columns=first.columns)


def _differ(name: str, part: OpenedTable, how: str, first: OpenedTable | None = None) -> SourceError:
    other = f", unlike {first.origin}" if first else ""
    return SourceError(
        f"table {name!r}: {part.origin} {how}{other}; give all files of tables.{name}.source the same columns and types"
    )


def _open_remote(opening: Opening, address: str, encoding: str | None) -> OpenedTable:
    """What lies elsewhere is read by DuckDB's own extension, where that is installed; nothing is fetched by itself."""
    name, origin = opening.name, f"address {public_address(address)!r}"
    kind = extension(Path(urlsplit(address).path))
    if kind not in (*TEXT_FILES, *LINES_FILES, ".parquet"):
        raise SourceError(f"table {name!r}: {origin} must end in .parquet, .csv or .jsonl; download it")
    if encoding is not None:
        raise SourceError(f"table {name!r}: {origin} must be UTF-8; download it, or remove tables.{name}.encoding")
    try:
        opening.connection.execute("LOAD httpfs")
    except Exception:
        raise SourceError(
            f"table {name!r}: {origin} needs DuckDB's extension httpfs, which is not installed; download the file, or "
            "install it once with: python -c \"import duckdb; duckdb.execute('INSTALL httpfs')\""
        ) from None
    if kind in TEXT_FILES:
        return remote_csv(opening, origin, address, tabs=".tsv" in kind)
    if kind in LINES_FILES:
        return viewed_lines(opening, origin, literal(address))
    with unreadable(name, origin, "Parquet"):
        return opening.viewed(origin, f"read_parquet({literal(address)})")


def described(name: str, source: str, table: str | None) -> OpenedTable:
    """A table of a server, by its columns alone: rows are read through its store."""
    from dpjoin.engine.postgres import PostgresStore

    store = PostgresStore({name: postgres_source(source, table)}, {})
    store.close()
    return store.opened[name]


def column_names(source: object, table: str | None = None, encoding: str | None = None) -> list[tuple[str, str]]:
    """Names and types of a source's columns, and nothing of its rows; untyped columns are 'text'.

    JSON lines have names in their rows only: there, those of the first lines.
    """
    source, table = split(source, table)
    name = _name_of(source, table)
    with connected() as connection:
        opened = open_source(connection, name, source, table=table, columns=(), encoding=encoding)
        if opened.endless:
            opened = open_source(connection, f"{name} looked at", source)
        return [(c.name, "text" if c.untyped else c.type) for c in opened.columns]


def _name_of(source: object, table: str | None) -> str:
    if table is not None:
        return table
    return Path(source).name.partition(".")[0] if isinstance(source, str | os.PathLike) else "table"
