"""Columns of Arrow as arrays of numpy, and back. Arrow's own ways import pandas where there is one: 0.3 seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpjoin.spec.workload import IntArray

_SCATTERED = 0x9E3779B97F4A7C15


def is_numeric(kind: Any) -> bool:
    """Whether a type has numbers, or dates and times, which are whole numbers to us."""
    return whole_type(kind) is not None or pa.types.is_floating(kind)


def whole_type(kind: Any) -> Any | None:
    """As which whole numbers a column is compared, if it is."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date32(kind):
        return pa.int32()
    return kind if pa.types.is_integer(kind) else None


def array_of(column: Any) -> NDArray[Any]:
    """A column of numbers, dates or times."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if column.null_count or not is_numeric(column.type):
        return np.asarray(column.to_numpy())
    whole = whole_type(column.type) or column.type
    found = [np.from_dlpack(chunk.view(whole)) for chunk in chunks if len(chunk)]
    if len(found) == 1:
        return found[0]
    return np.concatenate(found) if found else np.zeros(0, dtype=whole.to_pandas_dtype())


def column_of(numbers: NDArray[Any]) -> Any:
    """Numbers as a column."""
    whole = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(pa.from_numpy_dtype(whole.dtype), len(whole), [None, pa.py_buffer(whole)])


def empty_batch(schema: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def exact_distinct(batch: Any) -> int:
    """How many different rows a batch of some has, but for those that share a hash."""
    mixed = np.zeros(batch.num_rows, dtype=np.uint64)
    for column in batch.columns:
        found = array_of(column) if is_numeric(column.type) else np.array([hash(v) for v in column.to_pylist()], "i8")
        mixed = mixed * np.uint64(_SCATTERED)
        mixed += (
            (found.astype(np.float64) + 0.0).view(np.uint64) if found.dtype.kind == "f" else found.astype(np.uint64)
        )
    ordered = np.sort(mixed)
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def scattered(numbers: IntArray, bits: int) -> NDArray[np.uint64]:
    """Hashes of so many bits: the upper ones of a product that wraps on purpose."""
    return (numbers.view(np.uint64) * np.uint64(_SCATTERED)) >> np.uint64(64 - bits)
