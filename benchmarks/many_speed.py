"""Boundary queries of three-table joins of a million rows each, against one GROUP BY scan: part of `speed.py`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.privacy.public_bounds import subsets

SHAPES = {"star": {"r": "k", "s": "k", "t": "k"}, "path": {"r": "x", "s": "xy", "t": "y"}}


def schema(shape: str) -> dj.Schema:
    tables = SHAPES[shape]
    names = sorted(set("".join(tables.values())))
    return dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(keys)) for t, keys in tables.items()),
        tuple(dj.Attribute(name=n, key=True) for n in names),
    )


def make_files(folder: Path, shape: str, rows: int, keys: int, power: float) -> dict[str, str]:
    """Keys with probability proportional to 1 / rank^power."""
    rng = np.random.default_rng(3)
    weights = 1.0 / np.arange(1, keys + 1) ** power
    files = {}
    for table, columns in SHAPES[shape].items():
        # The heavy keys of all tables are the same ones, so that the join is as large as its skew allows.
        data = {c: rng.choice(keys, rows, p=weights / weights.sum()) for c in columns}
        files[table] = str(folder / f"{shape}-{table}.parquet")
        pq.write_table(pa.table({c: v.astype(np.int64) for c, v in data.items()}), files[table])
    return files


def scan_work(shape: str, files: dict[str, str]) -> None:
    with duckdb.connect() as connection:
        for table, columns in SHAPES[shape].items():
            names = ", ".join(columns)
            connection.sql(f"SELECT {names}, count(*) FROM '{files[table]}' GROUP BY {names}").to_arrow_table()


def engine_work(shape: str, files: dict[str, str]) -> int:
    """Every boundary value and the join size."""
    described = schema(shape)
    engine = DuckEngine(described, files, attributes=())
    for tables in subsets(described):
        engine.exact_boundary(tables)
    return engine.exact_join_size()


def measure(rows: int, keys: int, repetitions: int) -> list[dict[str, Any]]:
    found = []
    for shape in SHAPES:
        for power in (0.4, 1.1):
            with tempfile.TemporaryDirectory() as folder:
                files = make_files(Path(folder), shape, rows, keys, power)
                size = engine_work(shape, files)
                scans = [_seconds(lambda: scan_work(shape, files)) for _ in range(repetitions)]  # noqa: B023
                engines = [_seconds(lambda: engine_work(shape, files)) for _ in range(repetitions)]  # noqa: B023
            ratio = median(engines) / median(scans)
            found.append({"shape": shape, "zipf": power, "join_size": size, "scan": median(scans), "ratio": ratio})
    return found


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
