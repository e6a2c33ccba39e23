"""Keep at most so many rows of each value: which ones go by an order that every row brings along.

A row's place in the order is the md5 of what the engine sees of it: the texts of its join values, its codes, and which
copy of equal rows it is. Every store can compute it, and gets the same. So a row more shifts the ranks behind it by
one and changes no other order, whatever numbers the values have. Ties of the hash go by the row itself. The hash only
has to scatter: no guarantee rests on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpjoin.engine.dialect import DUCKDB
from dpjoin.engine.encode import LARGE, field
from dpjoin.spec.dates import EPOCH
from dpjoin.spec.workload import IntArray

Words = NDArray[np.uint64]


def text(value: object) -> str:
    """The text of a join value, as the dialects write it: of a number its whole part and 53 bits, of times the ticks.

    >>> text(7), text(7.0), text(-0.5), text("7"), text(date(1970, 1, 3))
    ('7', '7', '-1:4503599627370496', '7', '2')
    """
    if isinstance(value, float):
        if not abs(value) < LARGE:
            return "-" if value < 0 else "+"
        whole = math.floor(value)
        bits = math.floor((value - whole) * 2.0**53)
        return f"{whole}:{bits}" if bits else str(whole)
    if isinstance(value, datetime):
        return str((value - EPOCH) // timedelta(microseconds=1))
    return str((value - EPOCH.date()).days if isinstance(value, date) else value)


def places(values: Sequence[Any], codes: Sequence[NDArray[Any]], copies: IntArray) -> tuple[Words, Words]:
    """Where rows stand among the others: their hash, in two words. Values are columns of texts, or of whole numbers."""
    from dpjoin.engine.sources import connected

    columns = {f"p{i}": column for i, column in enumerate([*values, *map(pa.array, codes), pa.array(copies)])}
    kinds = ["VARCHAR" if pa.types.is_large_string(column.type) else "BIGINT" for column in columns.values()]
    texts = [name if kind == "VARCHAR" else DUCKDB.text(name, kind) for name, kind in zip(columns, kinds, strict=True)]
    hashes = f"md5({' || '.join(field(DUCKDB, t) for t in texts)})"
    words = ", ".join(f"CAST('0x' || substr(hash, {first}, 16) AS UBIGINT)" for first in (1, 17))
    with connected() as connection:
        connection.register("rows to place", pa.table(columns))
        found = connection.execute(f'SELECT {words} FROM (SELECT {hashes} AS hash FROM "rows to place")').fetchnumpy()
    high, low = found.values()
    return np.asarray(high), np.asarray(low)


def ranks(group: IntArray, order_by: Sequence[NDArray[Any]]) -> IntArray:
    """The place of each row among those of its group, from 0 on. The first column to order by counts most."""
    order = np.lexsort((*reversed(order_by), group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - np.repeat(starts, np.diff(starts, append=len(group)))
    return rank
