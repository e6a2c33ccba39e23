"""JSON lines: an object on each line, whose values are read one by one as text.

A line that is no object has no values; neither it nor its keys say anything about other lines. So the names of columns
do not come from the lines: a table has every column that the spec asks for, and lines that lack it have no value there.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpjoin.engine.dialect import identifier, literal
from dpjoin.engine.sources.opened import OpenedTable, Opening, unreadable
from dpjoin.engine.sources.places import glob
from dpjoin.engine.sources.text import line_rows
from dpjoin.errors import SourceError

NO_ARRAY = "is one JSON array and must be JSON lines, an object on each line; convert it, for example with: jq -c '.[]'"
FIRST_LINES = 1_000
"""So many lines are looked at for the names of columns, where a spec is drafted or checked by the owner of the rows."""


def open_lines(opening: Opening, origin: str, path: Path) -> OpenedTable:
    """A view of the columns that are asked for; of all that the first lines have, where all are."""
    with unreadable(opening.name, origin, "JSON lines"):
        array = is_array(path)  # the file is read from its beginning in any case: it may not be gzip
    if array and opening.columns is None:
        raise SourceError(f"table {opening.name!r}: {origin} {NO_ARRAY}")
    return viewed_lines(opening, origin, glob(path))


def is_array(path: Path) -> bool:
    """Whether a file begins as an array: as one array would, and as a row may. So a release does not ask."""
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rb") as file:
        begin: bytes = file.read(4096).lstrip(b"\xef\xbb\xbf \t\r\n")
    return begin.startswith(b"[")


def viewed_lines(opening: Opening, origin: str, place: str) -> OpenedTable:
    names = _first_names(opening.connection, place) if opening.columns is None else list(opening.columns)
    names = list(dict.fromkeys(names))
    with unreadable(opening.name, origin, "JSON lines"):
        values = [f"{_value(n)} AS {identifier(n)}" for n in names] or ["NULL AS nothing"]
        rows = f"(SELECT {', '.join(values)} FROM {line_rows(place)} WHERE line IS NOT NULL AND trim(line) != '')"
        return opening.viewed(origin, rows, untyped=True, endless=True)


def first_names(connection: Any, path: Path) -> list[str]:
    """The keys of a file's first lines."""
    return _first_names(connection, glob(path))


def _first_names(connection: Any, place: str) -> list[str]:
    """The keys of the first lines, in the order in which they come."""
    found: dict[str, None] = {}
    for (line,) in connection.execute(f"SELECT line FROM {line_rows(place)} LIMIT {FIRST_LINES}").fetchall():
        try:
            held = json.loads(line or "null")
        except (ValueError, RecursionError):
            continue
        if isinstance(held, dict):
            found |= dict.fromkeys(held)
    return list(found)


def _value(name: str) -> str:
    """SQL of a key's value as text; NULL where the line is no JSON, and where there is no value."""
    key = "/" + name.replace("~", "~0").replace("/", "~1")
    value = f"json_extract_string(line, {literal(key)})"
    return f"CASE WHEN json_valid(line) THEN {value} END"
