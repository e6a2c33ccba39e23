"""Spark as a store, against its own GROUP BY: 2 x 5M rows, n/10 keys by Zipf .6, three attributes of 8 values each.

Fetched: all engine work (two tables counted, fetched and multiplied here), against the two GROUP BY queries alone,
fetched by the same session. On the cluster: all 15 marginals of the join over pairs of attributes, against the
pre-aggregation. One session with two cores; times are the least of some runs, and only ratios mean something.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dpjoin.engine import spark_store
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.scan import Scan
from dpjoin.engine.spark_store import SparkStore
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.workload import Workload

ROWS = 5_000_000
RUNS = 2


def schema() -> Schema:
    codes = [Attribute(name=a, range=(0, 7)) for a in "abcdef"]
    return Schema(
        (Table(name="r", attributes=("k", "a", "b", "c")), Table(name="s", attributes=("k", "d", "e", "f"))),
        (Attribute(name="k", key=True), *codes),
    )


def write_tables(folder: Path, rows: int) -> dict[str, str]:
    """Two Parquet files; sources of theirs."""
    rng = np.random.default_rng(25)
    weights = np.arange(1, rows // 10 + 1) ** -0.6
    ends = np.cumsum(weights / weights.sum())
    sources = {}
    for table in schema().tables:
        keys = np.searchsorted(ends, rng.random(rows))
        columns = {a: keys if a == "k" else rng.integers(0, 8, rows) for a in table.attributes}
        pyarrow.parquet.write_table(pa.table(columns), folder / f"{table.name}.parquet")
        sources[table.name] = f"spark:parquet:{folder / table.name}.parquet"
    return sources


def session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.driver.memory": "2g",
        "spark.driver.maxResultSize": "2g",
        "spark.sql.shuffle.partitions": "8",
        "spark.local.dir": str(folder),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def group_bys(sources: dict[str, str]) -> int:
    """The two queries that count, fetched by the session itself."""
    asked = schema()
    store = SparkStore(asked.tables, sources)
    scans = [Scan(asked, t, asked.queryable, store.opened) for t in asked.tables]
    fetched = sum(store._spark.sql(scan.sql(grouped=True)).toArrow().num_rows for scan in scans)
    store.close()
    return fetched


def engine(sources: dict[str, str]) -> DuckEngine:
    return DuckEngine(schema(), sources, attributes=schema().queryable)


def answers(made: DuckEngine) -> list[Any]:
    groups = Workload.marginals(schema(), 2).groups
    sizes = [made.exact_join_size(), *(made.exact_boundary(frozenset(t)) for t in "rs")]
    return [*sizes, *(a.tolist() for a in made.exact_answers(groups))]


def compare(rows: int = ROWS, runs: int = RUNS) -> dict[str, float]:
    """Seconds for each step; the integers of both ways are the same, or this raises."""
    best: dict[str, float] = {}

    def keep(step: str, seconds: float) -> None:
        print(f"{step}: {seconds:.1f}", file=sys.stderr)
        best[step] = min(seconds, best.get(step, seconds))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = write_tables(folder, rows)
        spark = session(folder)
        try:
            (folder / "warm").mkdir()
            answers(engine(write_tables(folder / "warm", 1000)))
            for _ in range(runs):
                keep("two GROUP BYs, fetched", timed(lambda: group_bys(sources))[0])
                spark_store.HOME_ROWS = 2**30
                seconds, fetched = timed(lambda: answers(engine(sources)))
                keep("all engine work, fetched", seconds)
                spark_store.HOME_ROWS = -1
                stays = engine(sources)
                keep("pre-aggregation on the cluster", timed(partial(getattr, stays, "_exact_tables"))[0])
                groups = Workload.marginals(schema(), 2).groups
                keep("15 marginals on the cluster", timed(partial(stays.exact_answers, groups))[0])
                found = answers(stays)
                if found != fetched:
                    raise AssertionError("the two ways differ")
        finally:
            spark.stop()
    return best


def main() -> None:
    best = compare(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
    for step, seconds in best.items():
        print(f"{step:<34} {seconds:7.1f} s")
    print(f"fetched: {best['all engine work, fetched'] / best['two GROUP BYs, fetched']:.2f} (at most 2)")
    ratio = best["15 marginals on the cluster"] / best["pre-aggregation on the cluster"]
    print(f"on the cluster: {ratio:.2f} (at most 1.5)")


if __name__ == "__main__":
    main()
