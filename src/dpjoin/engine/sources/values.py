"""Values that DuckDB or Arrow would fail on, made fit: no value stops a reader or changes how others are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

ROWS_AT_ONCE = 65_536
_PER_UNIT = {"s": 10**6, "ms": 10**3}
"""Microseconds in the units of Arrow that are coarser."""
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())


def text(value: object) -> str | None:
    """A value of any Python type as text; None when it has no text. Never raises."""
    if value is None:
        return None
    try:
        written = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    except Exception:
        return None
    return written.encode("utf-8", "replace").decode("utf-8")


def fit_for_duckdb(table: Any, columns: Sequence[str] | None) -> Any:
    """An Arrow table without values that would stop a scan by DuckDB, in the columns that are read (None: all)."""
    for i, column in enumerate(table.column_names):
        if columns is None or column in columns:
            kind = table.schema.field(i).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if _is_coarse(kind):
                table = table.set_column(i, column, _in_microseconds(table.column(i).cast(kind)))
            elif kind in _TEXTS and not _is_unicode(table.column(i)):
                texts = map(text, table.column(i).cast(kind).cast(pa.large_binary()).to_pylist())
                table = table.set_column(i, column, pa.array(texts, pa.large_string()))
    return table


def _is_unicode(column: Any) -> bool:
    """Whether all of a column's texts are UTF-8: Arrow does not see to it, and Python cannot read others."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _is_coarse(kind: Any) -> bool:
    """Whether DuckDB turns values of an Arrow type into microseconds as it scans, and stops where one is too large."""
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return (zoned or pa.types.is_duration(kind)) and kind.unit in _PER_UNIT


def _in_microseconds(column: Any) -> Any:
    """Times with a zone, or durations, in microseconds; what these cannot hold is missing."""
    import pyarrow.compute as pc  # takes as long to import as the rest of pyarrow

    kind, number = column.type, column.cast(pa.int64())
    most = (2**63 - 1) // _PER_UNIT[kind.unit]
    fits = pc.and_(pc.less_equal(number, most), pc.greater_equal(number, -most))
    fine = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.duration("us")
    return pc.if_else(fits, column, None).cast(fine)


def wanted(names: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    return [n for n in names if columns is None or n in columns]


def with_all(read: Any, empty: Any) -> Any:
    """Put back the columns that were not read, without values, so that names and types stay complete."""
    if read.num_columns == 0:
        return empty
    present = set(read.column_names)
    columns = [read[f.name] if f.name in present else pa.nulls(read.num_rows, f.type) for f in empty.schema]
    return pa.table(columns, names=empty.column_names)
