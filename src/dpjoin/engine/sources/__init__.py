"""Opening a table's source as a DuckDB view: files, databases and Python objects, one small file for each kind.

A source is opened without looking at its values. Where a format carries no types (CSV, SQLite, Python
objects) every value arrives as text and numbers are read from it one by one, so that no row can
change how another row is read. Messages name tables, files and columns, and never repeat what the
underlying reader says, because that may quote private rows.
"""

from dpjoin.engine.sources.connections import connect, connected, disconnect
from dpjoin.engine.sources.fitting import check_columns, column_problems
from dpjoin.engine.sources.lines import first_names
from dpjoin.engine.sources.opened import OpenedTable, unreadable
from dpjoin.engine.sources.opening import column_names, open_source
from dpjoin.engine.sources.places import (
    DATABASE_FILES,
    WITH_TABLES,
    beneath,
    files_of,
    has_no_tables,
    has_tables,
    is_endless,
    is_place,
    is_remote,
    missing_place,
    named_files,
    public_address,
    same_source,
    split,
)
from dpjoin.engine.sources.text import looks_like

__all__ = [
    "DATABASE_FILES",
    "WITH_TABLES",
    "OpenedTable",
    "beneath",
    "check_columns",
    "column_names",
    "column_problems",
    "connect",
    "connected",
    "disconnect",
    "files_of",
    "first_names",
    "has_no_tables",
    "has_tables",
    "is_endless",
    "is_place",
    "is_remote",
    "looks_like",
    "missing_place",
    "named_files",
    "open_source",
    "public_address",
    "same_source",
    "split",
    "unreadable",
]
