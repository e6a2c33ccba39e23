"""What CSVW-EO metadata declare of private tables: domains of columns, and who is protected.

Only what is declared is taken: listed values, partitions, least and largest values, types, the privacy unit. Figures
that a tool may have computed from the rows (lengths, shares of missing values, dependencies) are not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from dpjoin.cli.keys import Source
from dpjoin.errors import SourceError, SpecError

WIDEST_RANGE = 100
"""Whole numbers between the declared least and largest: more of them are put into bins."""
BINS = 8
WHOLE = {"integer", "long", "int", "short", "positiveInteger", "unsignedLong", "unsignedInt", "unsignedShort"}
WHOLE |= {"unsignedByte", "negativeInteger", "nonNegativeInteger", "nonPositiveInteger", "byte"}


@dataclass(frozen=True)
class Metadata:
    """What one file declares about one table."""

    path: Path
    url: str | None
    """Which file it is about, if it says so."""
    domains: Mapping[str, str]
    """Of columns, as lines of a spec."""
    unit: str | None = None
    """The column that names who is protected."""


def read_metadata(path: Path) -> list[Metadata]:
    """The tables that a file of metadata is about."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text, object_hook=lambda o: {k.removeprefix("csvw-eo:"): v for k, v in o.items()})
    except OSError as error:
        raise SourceError(f"--metadata {path}: the file cannot be read: {error.strerror}") from None
    except ValueError:
        raise SourceError(f"--metadata {path}: the file must be JSON, as CSVW has it") from None
    tables = data.get("tables", [data]) if isinstance(data, dict) else []
    if not tables or not all(isinstance(t, dict) and isinstance(_columns(t), list) for t in tables):
        raise SourceError(f"--metadata {path}: the file must have tableSchema.columns, as CSVW has it")
    return [_table(path, table) for table in tables]


def _columns(table: Mapping[str, Any]) -> Any:
    schema = table.get("tableSchema")
    return schema.get("columns") if isinstance(schema, dict) else None


def _table(path: Path, table: Mapping[str, Any]) -> Metadata:
    domains = {}
    for column in _columns(table):
        name = column.get("name") if isinstance(column, dict) else None
        if not isinstance(name, str):
            raise SourceError(f"--metadata {path}: each column must have a name")
        if (line := _domain(column)) is not None:
            domains[name] = line
    unit, url = table.get("privacyUnit"), table.get("url")
    return Metadata(path, url if isinstance(url, str) else None, domains, unit if isinstance(unit, str) else None)


def _domain(column: Mapping[str, Any]) -> str | None:
    """The lines of a spec that describe a column's domain; None where nothing is declared."""
    datatype = said.get("base") if isinstance(said := column.get("datatype"), dict) else said
    values, complete = column.get("keyValues"), column.get("exhaustiveKeys") is True
    parts = column.get("partitions")
    if not values and isinstance(parts, list):
        predicates = [p["predicate"] for p in parts if isinstance(p, dict) and isinstance(p.get("predicate"), dict)]
        if predicates and all("partitionValue" in p for p in predicates):
            values, complete = [p["partitionValue"] for p in predicates], column.get("exhaustivePartitions") is True
        elif edges := _edges(predicates):
            return f"bins = {_written(edges)}"
    if isinstance(values, list) and (listed := _values(values)):
        return f"values = {_written(listed)}" + ("" if complete else "\nother = true")
    if datatype == "boolean":
        return "values = [false, true]"
    low, high = _number(column.get("minimum")), _number(column.get("maximum"))
    if low is None or high is None or low >= high:
        return None
    whole = datatype in WHOLE and float(low).is_integer() and float(high).is_integer()
    if whole and high - low < WIDEST_RANGE:
        return f"range = [{int(low)}, {int(high)}]"
    steps = [low + (high - low) * i / BINS for i in range(BINS + 1)]
    edges = sorted({float(round(s)) for s in steps}) if whole else [float(f"{s:.6g}") for s in steps]
    return f"bins = {_written(edges)}   # of one width, between the declared least and largest"


def _values(values: Sequence[object]) -> list[object]:
    """Listed values of one type, in the order given; none otherwise."""
    listed: list[object] = list(dict.fromkeys(v for v in values if isinstance(v, str | int)))
    kinds = {type(v) for v in values if v is not None}
    return listed if kinds in ({str}, {int}, {bool}) else []


def _edges(predicates: Sequence[Mapping[str, Any]]) -> list[float]:
    """Edges of bins, if the partitions are intervals side by side; none otherwise."""
    bounds = [(_number(p.get("lowerBound")), _number(p.get("upperBound"))) for p in predicates]
    found = sorted((low, high) for low, high in bounds if low is not None and high is not None and low < high)
    if not found or len(found) < len(bounds) or any(a[1] != b[0] for a, b in pairwise(found)):
        return []
    return [found[0][0], *(high for _, high in found)]


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 else None


def _written(values: Sequence[object]) -> str:
    plain = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    return f"[{', '.join(json.dumps(v, ensure_ascii=False) for v in plain)}]"


def declarations(sources: Sequence[Source], paths: Sequence[Path]) -> tuple[dict[tuple[str, str], str], str | None]:
    """What files of metadata declare: the domain of each (table, column), and the column of who is protected."""
    domains: dict[tuple[str, str], str] = {}
    units, found = set(), [metadata for path in paths for metadata in read_metadata(path)]
    for metadata in found:
        table = next((s for s in sources if _is_about(metadata, s, alone=len(sources) == len(found) == 1)), None)
        if table is None:
            raise SpecError(
                f"--metadata {metadata.path}: must be about a table given here; let its url name the table's file, or "
                "call it TABLE-metadata.json"
            )
        columns = dict(table.columns)
        domains |= {(table.name, column): line for column, line in metadata.domains.items() if column in columns}
        units |= {metadata.unit} if metadata.unit in columns else set()
    return domains, units.pop() if len(units) == 1 else None


def _is_about(metadata: Metadata, source: Source, *, alone: bool) -> bool:
    """By the file that it names, else by its own name, else because there is one of each."""
    if metadata.url is not None:
        return Path(metadata.url).name == source.path.name
    own = metadata.path.name.partition(".")[0].removesuffix("-metadata")
    return own in (source.name, source.path.name.partition(".")[0]) or alone
