"""Sheets of Excel files: every cell has its own type, so all of them are read as text, one by one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpjoin.engine.sources.opened import OpenedTable, Opening, check_names, unreadable
from dpjoin.engine.sources.values import ROWS_AT_ONCE, text, wanted, with_all
from dpjoin.errors import SourceError, suggest


def open_excel(opening: Opening, origin: str, path: Path, table: str | None) -> OpenedTable:
    """The first row names the columns; rows without any value are left out, as spreadsheets have them at their end."""
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise SourceError(
            f"table {opening.name!r}: {origin} needs openpyxl, which is not installed; "
            "pip install openpyxl, or save the sheet as CSV"
        ) from None
    with unreadable(opening.name, origin, "Excel"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they quote cells
        with closing(load_workbook(path, read_only=True, data_only=True)) as book:
            rows = book[_sheet(opening.name, origin, table, book.sheetnames)].iter_rows(values_only=True)
            names = _names(opening.name, origin, next(rows, ()))
            empty = pa.table({n: pa.array([], pa.string()) for n in names})
            read = wanted(names, opening.columns)
            places = [names.index(n) for n in read]
            parts = [empty.select(read), *_batches(rows, places, read)] if read else [empty.select(read)]
            return opening.registered(origin, with_all(pa.concat_tables(parts), empty), names)


def _batches(rows: Iterator[tuple[Any, ...]], places: list[int], names: list[str]) -> Iterator[Any]:
    held: list[list[str | None]] = [[] for _ in places]
    for row in rows:
        if all(cell is None for cell in row):
            continue
        for values, place in zip(held, places, strict=True):
            values.append(_cell(row[place]) if place < len(row) else None)
        if len(held[0]) == ROWS_AT_ONCE:
            yield pa.table([pa.array(values, pa.string()) for values in held], names=names)
            held = [[] for _ in places]
    yield pa.table([pa.array(values, pa.string()) for values in held], names=names)


def _cell(value: object) -> str | None:
    """The text of a cell; whole numbers have no point, and days no midnight."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, datetime):
        return value.date().isoformat() if value.time() == time() else value.isoformat(sep=" ")
    return value.isoformat() if isinstance(value, date | time) else text(value)


def _names(name: str, origin: str, header: tuple[Any, ...]) -> list[str]:
    cells = [_cell(cell) or "" for cell in header]
    while cells and not cells[-1]:
        cells.pop()
    if not cells:
        raise SourceError(f"table {name!r}: {origin} has no header; write the column names in the sheet's first row")
    check_names(name, origin, cells, named=True)
    return cells


def _sheet(name: str, origin: str, table: str | None, sheets: list[str]) -> str:
    if table is None and len(sheets) == 1:
        return sheets[0]
    if table is None:
        raise SourceError(
            f"table {name!r}: {origin} has several sheets; name one in tables.{name}.table "
            f"(it has: {', '.join(sheets)})"
        )
    if table not in sheets:
        raise SourceError(f"table {name!r}: {origin} has no sheet {table!r}; {suggest(table, sheets)}")
    return table
