"""The DuckDB of this process, and connections to it that see only what they opened themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import duckdb

from dpjoin.engine.dialect import literal
from dpjoin.engine.spill import private_folder

_lock = Lock()
_attached: dict[int, list[str]] = {}
"""Which database files each open connection has attached."""
_copies: dict[int, list[Path]] = {}
"""Copies of files in another encoding, by the connection that reads them."""


@cache
def _database() -> Any:
    """The DuckDB of this process (starting one takes as long as reading a million rows).

    It fetches nothing from elsewhere. When memory is short it spills to a folder that only this user can read.
    """
    config = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
        "temp_directory": private_folder(),
        # Statistics of Parquet say nothing of NaN, and DuckDB believes them: codes would depend on other rows.
        "disabled_optimizers": "statistics_propagation",
    }
    return duckdb.connect(":memory:", config=config)


def connect() -> Any:
    """A connection of its own: what it opens, no other sees. End it with `disconnect`."""
    try:
        return _connection()
    except duckdb.Error:
        # After an internal error DuckDB refuses all further work: one release must not end the next one.
        _database.cache_clear()
        return _connection()


def _connection() -> Any:
    return _database().cursor().execute("SET enable_progress_bar = false")


def attach(connection: Any, path: Path, alias: str) -> None:
    """Open a database file for reading. Several tables may lie in one, which can be attached once only."""
    with _lock:
        connection.execute(f"ATTACH IF NOT EXISTS {literal(str(path))} AS {alias} (READ_ONLY)")
        _attached.setdefault(id(connection), []).append(alias)


def remove_later(connection: Any, path: Path) -> None:
    """Remove a file when the connection ends; when the process does, the folder goes with all that is in it."""
    _copies.setdefault(id(connection), []).append(path)


def disconnect(connection: Any) -> None:
    """Close a connection, and let go of database files that no other one uses."""
    connection.close()
    for copy in _copies.pop(id(connection), []):
        copy.unlink(missing_ok=True)
    with _lock:
        mine = _attached.pop(id(connection), [])
        others = {alias for aliases in _attached.values() for alias in aliases}
        for alias in set(mine) - others:
            with suppress(duckdb.Error):  # one that is broken says so, and may quote the row that broke it
                _database().execute(f"DETACH DATABASE IF EXISTS {alias}")


@contextmanager
def connected() -> Iterator[Any]:
    """A connection for as long as the block lasts."""
    connection = connect()
    try:
        yield connection
    finally:
        disconnect(connection)
