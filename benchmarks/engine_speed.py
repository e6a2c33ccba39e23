"""The engine against plain DuckDB, on two tables of a million rows with Zipf keys, in one process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from report import peak_mb

VALUES = 8
LEFT, RIGHT = ("a1", "a2", "a3"), ("b1", "b2", "b3")
LIMIT_SECONDS = 60.0
"""One marginal of a plain join that takes longer is stopped."""
REWRITE = "partial_aggregate_pushdown"
"""DuckDB's optimizer that groups both tables before it joins them (2.0 and later)."""


@dataclass(frozen=True)
class Size:
    rows: int
    keys: int
    repetitions: int


def schema() -> dj.Schema:
    attributes = [dj.Attribute(name=a, range=(0, VALUES - 1)) for a in (*LEFT, *RIGHT)]
    return dj.Schema(
        tables=(dj.Table(name="r", attributes=("k", *LEFT)), dj.Table(name="s", attributes=("k", *RIGHT))),
        attributes=(dj.Attribute(name="k", key=True), *attributes),
    )


def make_files(folder: Path, size: Size) -> dict[str, str]:
    """Keys with probability proportional to 1 / rank^1.1, attributes that depend on the key and on each other."""
    rng = np.random.default_rng(11)
    weights = 1.0 / np.arange(1, size.keys + 1) ** 1.1
    names = rng.permutation(size.keys)
    files = {}
    for table, columns in (("r", LEFT), ("s", RIGHT)):
        key = names[rng.choice(size.keys, size=size.rows, p=weights / weights.sum())]
        previous, data = key, {"k": key.astype(np.int64)}
        for column in columns:
            previous = (previous % VALUES + rng.geometric(0.4, size.rows) - 1) % VALUES
            data[column] = previous.astype(np.int32)
        files[table] = str(folder / f"{table}.parquet")
        pq.write_table(pa.table(data), files[table])
    return files


def engine_work(files: dict[str, str]) -> tuple[int, list[np.ndarray]]:
    """Everything the engine does for a release: open, group, join size, both boundaries, all marginals."""
    workload = dj.Workload.marginals(schema(), 2)
    engine = DuckEngine(workload.schema, files, attributes=workload.attributes)
    size = engine.exact_join_size()
    for table in workload.schema.tables:
        engine.exact_boundary(frozenset({table.name}))
    return size, engine.exact_answers(workload.groups)


def scan_work(files: dict[str, str]) -> None:
    """One GROUP BY over key and attributes per table, the result in hand as Arrow."""
    with duckdb.connect() as connection:
        for table, columns in (("r", LEFT), ("s", RIGHT)):
            names = ", ".join(("k", *columns))
            sql = f"SELECT {names}, count(*) AS n FROM read_parquet('{files[table]}') GROUP BY {names}"
            connection.sql(sql).to_arrow_table()


def joined_marginals(files: dict[str, str], pairs: Sequence[tuple[str, ...]], *, rewrite: bool, limit: float) -> Any:
    """DuckDB's own GROUP BY over the join for each pair, on one connection; None when one is stopped at the limit."""
    r, s = (f"read_parquet('{files[t]}')" for t in ("r", "s"))
    with duckdb.connect() as connection:
        known = {name for (name,) in connection.sql("SELECT * FROM duckdb_optimizers()").fetchall()}
        if not rewrite and REWRITE in known:
            connection.execute(f"SET disabled_optimizers = '{REWRITE}'")
        found = []
        for a, b in pairs:
            stopper = threading.Timer(limit, connection.interrupt)
            stopper.start()
            try:
                sql = f"SELECT {a}, {b}, count(*) AS n FROM {r} r JOIN {s} s USING (k) GROUP BY {a}, {b}"
                found.append(connection.execute(sql).fetchall())
            except duckdb.InterruptException:
                return None
            finally:
                stopper.cancel()
        return found


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measure(size: Size) -> dict[str, Any]:
    """All figures of this part."""
    groups = dj.Workload.marginals(schema(), 2).groups
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(Path(folder), size)
        join_size, exact = engine_work(files)
        for group, answers in ((groups[i], exact[i]) for i in (0, len(groups) // 2)):
            (rows,) = joined_marginals(files, [group.scope], rewrite=True, limit=600)
            _check(group.scope, answers, rows)
        scans, engines, joins = [], [], []
        for _ in range(size.repetitions):
            scans.append(seconds(lambda: scan_work(files)))
            engines.append(seconds(lambda: engine_work(files)))
            engines.append(seconds(lambda: engine_work(files)))
            joins.append(seconds(lambda: joined_marginals(files, [g.scope for g in groups], rewrite=True, limit=600)))
        cross = next(g.scope for g in groups if g.scope[0] in LEFT and g.scope[1] in RIGHT)
        finished: list[Any] = []
        plain = seconds(lambda: finished.append(joined_marginals(files, [cross], rewrite=False, limit=LIMIT_SECONDS)))
        memory = json.loads(
            subprocess.run(
                [sys.executable, __file__, "--engine-only", json.dumps(files)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
    return {
        "rows": size.rows,
        "keys": size.keys,
        "join_size": join_size,
        "marginals": len(groups),
        "repetitions": size.repetitions,
        "scan_seconds": median(scans),
        "engine_seconds": median(engines),
        "join_seconds": median(joins),
        "join_repetitions": len(joins),
        "plain_one_marginal_seconds": plain,
        "plain_finished": finished[0] is not None,
        "plain_extrapolated_seconds": plain * len(groups),
        "engine_over_scan": median(engines) / median(scans),
        "join_over_engine": median(joins) / median(engines),
        "plain_over_engine": plain * len(groups) / median(engines),
        "memory": memory,
    }


def _check(scope: tuple[str, ...], answers: np.ndarray, rows: list[tuple[int, int, int]]) -> None:
    """The two agree, or the comparison means nothing."""
    table = np.zeros((VALUES, VALUES), dtype=np.int64)
    for a, b, n in rows:
        table[a, b] = n
    if not np.array_equal(np.asarray(answers).reshape(table.shape), table):
        raise AssertionError(f"the engine and DuckDB disagree on {scope}")


def _engine_only(files: dict[str, str]) -> dict[str, float]:
    """Peak memory of this process before and after the engine's work."""
    before = peak_mb()
    engine_work(files)
    return {"imports_mb": before, "peak_mb": peak_mb()}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--engine-only"]:
        print(json.dumps(_engine_only(json.loads(sys.argv[2]))))
    else:
        print(json.dumps(measure(Size(rows=1_000_000, keys=100_000, repetitions=5)), indent=1))
