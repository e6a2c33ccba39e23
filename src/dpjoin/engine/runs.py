"""Rows on their way into partitions: every batch in the order of its rows' buckets, so a bucket is a slice of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpjoin.engine.arrow import array_of, column_of, is_numeric
from dpjoin.engine.buckets import BUCKETS
from dpjoin.engine.shelf import Shelf
from dpjoin.engine.sources import connected
from dpjoin.spec.workload import IntArray


class Runs:
    """The rows of one table, batch by batch. `by` are the columns that say in which bucket a row is."""

    def __init__(self, by: Sequence[str], shelf: Shelf) -> None:
        self._by, self._shelf = by, shelf
        self._waiting: list[Any] = []
        self._sorted: list[tuple[IntArray, Callable[[], Any]]] = []
        self._empty: Any = None
        self.exact_rows = self.exact_waiting = 0
        self.exact_sizes = np.zeros(BUCKETS, dtype=np.int64)
        """How many rows each bucket has, of those that were sorted."""

    def add(self, batch: Any) -> None:
        """Rows that may come whole, as long as they are few. They wait to be sorted."""
        self._empty = batch.slice(0, 0)
        self.exact_rows += batch.num_rows
        self.exact_waiting += batch.num_rows
        self._waiting.append(batch)

    def sort(self) -> None:
        """Put the rows that wait in the order of their buckets, and onto the shelf."""
        rows = pa.Table.from_batches(self._waiting)
        self._waiting, self.exact_waiting = [], 0
        for batch in rows.combine_chunks().to_batches():
            bucket = bucket_of([batch.column(name) for name in self._by])
            sizes = np.bincount(bucket, minlength=BUCKETS)
            self.exact_sizes += sizes
            order = column_of(np.argsort(bucket, kind="stable"))
            self._sorted.append((np.concatenate([[0], np.cumsum(sizes)]), self._shelf.put(batch.take(order))))

    def whole(self) -> Any:
        """All rows, none of which was sorted, as an Arrow table."""
        return pa.Table.from_batches(self._waiting)

    def part(self, first: int, last: int) -> Any:
        """The rows of the buckets from `first` to `last` as an Arrow table."""
        pieces = [
            get().slice(at[first], at[last + 1] - at[first]) for at, get in self._sorted if at[first] < at[last + 1]
        ]
        return pa.Table.from_batches(pieces or [self._empty])


def bucket_of(columns: Sequence[Any]) -> NDArray[np.uint16]:
    """Each row's bucket, by its values alone. Whole numbers are counted through, all else is hashed."""
    columns = [_comparable(c) for c in columns]
    if len(columns) == 1 and pa.types.is_integer(columns[0].type):
        return np.asarray(array_of(columns[0]) % BUCKETS, dtype=np.uint16)
    names = [f"k{i}" for i in range(len(columns))]
    with connected() as connection:
        connection.register("rows", pa.table(columns, names))
        found = connection.sql(f"SELECT hash({', '.join(names)}) % {BUCKETS} AS b FROM rows").to_arrow_table()
    return np.asarray(array_of(found.column(0)), dtype=np.uint16)


def _comparable(column: Any) -> Any:
    """The same number for equal values, where there is one."""
    if not is_numeric(column.type):
        return column
    numbers = array_of(column)
    # -0.0 equals 0.0
    return column_of((numbers + 0.0).view(np.int64) if numbers.dtype.kind == "f" else numbers)


def cuts(exact_sizes: IntArray, most: int) -> list[tuple[int, int]]:
    """Runs of buckets with at most so many rows each, or one bucket that has more: the first and the last of each."""
    found, first, rows = [], 0, 0
    for bucket, size in enumerate(exact_sizes.tolist()):
        if rows and rows + size > most:
            found.append((first, bucket - 1))
            first, rows = bucket, 0
        rows += size
    return [*found, (first, len(exact_sizes) - 1)]
