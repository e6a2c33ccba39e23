"""A table that was opened: a view of a DuckDB connection, with its columns and what messages call it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from dpjoin.engine.dialect import DUCKDB, Dialect, identifier
from dpjoin.engine.encode import Column
from dpjoin.engine.sources.values import fit_for_duckdb
from dpjoin.errors import SourceError, is_interrupt, suggest


@dataclass(frozen=True)
class OpenedTable:
    """A source as a view of its store."""

    name: str
    view: str
    """The view, quoted for SQL."""
    columns: tuple[Column, ...]
    origin: str
    """How messages call the source."""
    dialect: Dialect = DUCKDB
    endless: bool = False
    """Whether it has every column that is asked for, as JSON lines have: only rows would tell which ones there are."""

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        if self.endless:
            return Column(name, "VARCHAR", untyped=True)
        names = [c.name for c in self.columns]
        near, known = suggest(name, names), f"it has: {', '.join(names)}"
        told = f"{near} ({known})" if "?" in near else known
        raise SourceError(f"table {self.name!r}: {self.origin} has no column {name!r}; {told}")


@dataclass(frozen=True)
class Opening:
    """A table that becomes a view of a connection, and which of its columns are read: None stands for all."""

    connection: Any
    name: str
    columns: Sequence[str] | None
    part: int | None = None
    """Which of several files it is that become the table."""

    @property
    def _called(self) -> str:
        return f"source {self.name}" if self.part is None else f"part {self.part} of {self.name}"

    @property
    def view(self) -> str:
        return identifier(self._called)

    def viewed(self, origin: str, rows: str, *, untyped: bool = False, endless: bool = False) -> OpenedTable:
        """What SQL calls the rows, as the view."""
        self.connection.execute(f"CREATE TEMP VIEW {self.view} AS SELECT * FROM {rows}")
        made = self._described(origin, lambda _: untyped)
        return replace(made, endless=True, columns=made.columns if self.columns != () else ()) if endless else made

    def registered(self, origin: str, table: Any, untyped: Collection[str] = ()) -> OpenedTable:
        """An Arrow table as the view; what DuckDB would fail on is made fit before."""
        names = list(table.column_names)
        check_names(self.name, origin, names)
        self.connection.register(self._called, fit_for_duckdb(table, self.columns))
        return self._described(origin, untyped.__contains__)

    def _described(self, origin: str, is_untyped: Callable[[str], bool]) -> OpenedTable:
        columns = []
        for column, described, *_ in self.connection.execute(f"DESCRIBE {self.view}").fetchall():
            # A type may list the values of its column, which messages and first specs must not.
            kind = re.sub(r"ENUM\((?:'(?:[^']|'')*'(?:, )?)*\)", "ENUM", described)
            untyped = is_untyped(column) or kind.strip('"') == "NULL"
            columns.append(Column(column, kind.strip('"').upper() if "(" not in kind else kind, untyped=untyped))
        return OpenedTable(self.name, self.view, tuple(columns), origin)


def check_names(table: str, origin: str, names: Sequence[str], *, named: bool = False) -> None:
    """Refuse names of columns that say which is which no better than in SQL; `named` if each must have one."""
    folded = [n.lower() for n in names]
    if named and "" in names:
        told = f"has no name for column {names.index('') + 1}; write one, or remove the column"
        raise SourceError(f"table {table!r}: {origin} {told}")
    if twice := [n for i, n in enumerate(names) if n.lower() in folded[:i]]:
        told = f"has two columns named {twice[0]!r} (case aside); rename one of them"
        raise SourceError(f"table {table!r}: {origin} {told}")


@contextmanager
def unreadable(name: str, origin: str, what: str, *, rows: bool = False) -> Iterator[None]:
    """Turn whatever a reader raises into one line that repeats nothing of it."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from None
        raise SourceError(f"table {name!r}: {origin} cannot be read as {what} data: {_cause(error, rows)}") from None


_CAUSES = (
    (("permission denied",), "permission denied; make it readable for you"),
    (("could not set lock", "conflicting lock", "database is locked", "being used by another process"), "another "
     "process has it open for writing; close that, or name a copy"),
    (("different configuration", "unique file handle"), "this program has it open in another way; close that first"),
    (("no space left", "max_temp_directory_size"), "the disk is full; make room where temporary files go (TMPDIR)"),
    (("out of memory", "failed to allocate", "could not allocate"), "there is not enough memory; close other programs"),
    (("storage version", "newer version", "older version"), "another version of DuckDB wrote it; export it to Parquet"),
    (("no such file", "could not read from file", "does not exist"), "it is gone, or not all of it is there"),
    (("not a gzipped file", "gzip"), "it is not gzip as its name says, or not complete; pack it again"),
    (("no magic bytes", "too small to be a parquet", "end-of-stream", "unexpected end", "truncated"), "it is "
     "truncated, or of another kind than its name says; write it again"),
    (("not a database", "not a valid duckdb"), "it is no database, or a damaged one; name another file"),
    (("could not establish connection", "http", "resolve host"), "it cannot be reached; check the address and the net"),
)  # fmt: skip
"""What readers say where the cause is not in a row, and how we say it."""


def _cause(error: Exception, rows: bool) -> str:
    """Why a reader failed, in fixed words: its own may quote rows. While these are read, only its kind counts."""
    if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
        return "there is not enough memory; close other programs"
    said = "" if rows else str(error).lower()
    for words, cause in _CAUSES:
        if any(word in said for word in words):
            return cause
    return "it is damaged, or of another kind than its name says; write it again"
