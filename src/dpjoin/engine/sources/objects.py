"""Tables of Python, and files of Arrow, as Arrow tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dpjoin.engine.sources.values import text, wanted, with_all
from dpjoin.errors import SourceError


def to_arrow(source: Any, columns: Sequence[str] | None) -> tuple[Any, Collection[str]]:
    """An Arrow table of the source and its untyped columns; columns that nobody reads may be left empty."""
    module, kind = type(source).__module__.partition(".")[0], type(source).__name__
    if isinstance(source, pa.Table):
        return source, ()
    if module == "pandas" and kind == "DataFrame":
        return _from_pandas(source, columns)
    if module == "polars" and kind == "LazyFrame":
        empty = source.head(0).collect().to_arrow()
        return with_all(source.select(wanted(empty.column_names, columns)).collect().to_arrow(), empty), ()
    if module in {"duckdb", "_duckdb"} and hasattr(source, "to_arrow_table"):
        empty = source.limit(0).to_arrow_table()
        read = [duckdb.ColumnExpression(n) for n in wanted(empty.column_names, columns)]
        return with_all(source.select(*read).to_arrow_table(), empty) if read else empty, ()
    if hasattr(source, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(source).read_all(), ()
    raise SourceError(
        f"a table cannot be read from a {kind}; pass a path, a (path, table) pair, "
        "or a pandas, Polars, Arrow or DuckDB table"
    )


def read_arrow(path: Path) -> Any:
    import pyarrow.feather
    import pyarrow.ipc

    try:
        return pyarrow.feather.read_table(str(path), memory_map=True)
    except (pa.ArrowInvalid, OSError):
        with pa.memory_map(str(path)) as file:
            return pyarrow.ipc.open_stream(file).read_all()


def _from_pandas(frame: Any, columns: Sequence[str] | None) -> tuple[Any, Collection[str]]:
    names, arrays, untyped = [], [], set()
    for i, label in enumerate(frame.columns):
        name = str(label)
        series = frame.iloc[:, i]
        names.append(name)
        skipped = columns is not None and name not in columns
        array = None
        if not _holds_objects(series.dtype):
            try:
                array = pa.array(series.iloc[:0] if skipped else series, from_pandas=True)
            except UnicodeEncodeError:
                array = _texts_of(series)  # half a surrogate in one text: the column is one of text all the same
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError):
                array = None  # a pandas type that Arrow does not know: read it as text
        if array is None:
            untyped.add(name)
            array = _texts_of(series.iloc[:0] if skipped else series)
        arrays.append(pa.nulls(len(frame), array.type) if skipped else array)
    return pa.table(arrays, names=names), untyped


def _holds_objects(dtype: Any) -> bool:
    """Whether values are Python objects, categories among them: Arrow would find one type for all, by the values."""
    return "object" in (dtype, getattr(getattr(dtype, "categories", None), "dtype", None))


def _texts_of(series: Any) -> Any:
    """The text of each value."""
    try:
        missing = series.isna()
    except Exception:  # a signalling nan lets nobody compare it: then each value by itself
        alone = [series.iloc[i : i + 1] for i in range(len(series))]
        return pa.concat_arrays(map(_texts_of, alone)) if len(alone) > 1 else pa.nulls(1, pa.string())
    return pa.array([None if m else text(v) for v, m in zip(series.array, missing, strict=True)], pa.string())
