"""Boundary queries of three-table joins of a million rows each, against one GROUP BY scan: part of `speed.py`.

Alone: `python benchmarks/many_speed.py [--quick]`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
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
import gauge_speed
from dpjoin.engine.duck import DuckEngine
from dpjoin.privacy.degree_bounds import subsets
from report import markdown_table, number, peak_mb

SHAPES = {"star": {"r": "k", "s": "k", "t": "k"}, "path": {"r": "x", "s": "xy", "t": "y"}}
RATIO = 5.0
MEMORY_MB = 2000


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
                memory = peak_memory(shape, files)
            found.append(
                {
                    "shape": shape,
                    "zipf": power,
                    "rows": rows,
                    "join_size": size,
                    "scan": median(scans),
                    "engine": median(engines),
                    "ratio": median(engines) / median(scans),
                    **memory,
                }
            )
    return found


def peak_memory(shape: str, files: dict[str, str]) -> dict[str, float]:
    """Peak memory, in megabytes, of a fresh process that does the engine's work once."""
    command = [sys.executable, __file__, "--engine-only", shape, json.dumps(files)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _engine_only(shape: str, files: dict[str, str]) -> dict[str, float]:
    before = peak_mb()
    engine_work(shape, files)
    return {"imports_mb": before, "peak_mb": peak_mb()}


def page_parts(found: list[dict[str, Any]]) -> list[str]:
    """The results in Markdown."""
    rows = [
        [
            f"{m['shape']}, Zipf {m['zipf']}",
            f"{m['join_size']:.1e}",
            f"{m['scan']:.3f}",
            f"{m['engine']:.3f}",
            f"{number(m['ratio'])} × scan",
            "met" if m["ratio"] <= RATIO else "not met",
            f"{m['peak_mb']:,.0f} MB",
            "met" if m["peak_mb"] < MEMORY_MB else "not met",
        ]
        for m in found
    ]
    head = ["join", "join size", "scan s", "engine s", "ratio", f"at most {RATIO:g}"]
    return [
        "## Three tables",
        f"Every boundary value T_E and the join size of three Parquet tables of {found[0]['rows']:,} rows, against one "
        "GROUP BY of each. Peak memory: of a fresh process that does the engine's work once; "
        f"{found[0]['imports_mb']:,.0f} MB of it are there after the imports.",
        markdown_table([*head, "peak memory", f"below {MEMORY_MB:,} MB"], rows),
    ]


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def gauge_parts(found: dict[str, Any]) -> list[str]:
    """What `gauge_speed.py` found, in Markdown."""
    return [
        "## Sensitivities of six tables from given boundary values",
        f"Milliseconds on the processor for {found['vectors']} random vectors of boundary values, all tables private; "
        f"residual sensitivity at beta = 1/{1 / found['beta']:.1f}. The search's one constant was chosen on this seed.",
        gauge_speed.table(found),
    ]


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--engine-only"]:
        print(json.dumps(_engine_only(arguments[1], json.loads(arguments[2]))))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, once")
    quick = parser.parse_args(arguments).quick
    found = measure(*((20_000, 2_000, 1) if quick else (1_000_000, 100_000, 5)))
    print("\n\n".join([*page_parts(found), *gauge_parts(gauge_speed.measure(quick))]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
