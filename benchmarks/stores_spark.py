"""Spark as a store, against its own queries: two tables, a tenth as many keys as rows, three attributes of 8 values.

Fetched: all engine work (two tables counted, fetched and multiplied here), against the two GROUP BY queries alone,
fetched by the same session. On the cluster: all 15 marginals of the join over pairs of attributes, against the
pre-aggregation. One session with two cores. `python benchmarks/stores_spark.py` takes 5,000,000 rows for each table, or
`--rows`, and writes results/stores_spark.md and stores_spark.json; `--quick` takes 5,000, once, and writes nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpjoin as dj
from dpjoin.engine import spark_store
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.scan import Scan
from dpjoin.engine.spark_store import SparkStore
from report import command, markdown_table, versions, write

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from support import sparks

ROWS, RUNS = 5_000_000, 3
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "2g",
    "spark.sql.shuffle.partitions": "8",
}
GROUPED, FETCHED = "two GROUP BY queries, fetched", "all engine work, fetched"
COUNTED, MARGINALS = "pre-aggregation on the cluster", "15 marginals on the cluster"
LIMITS = {"fetched": (FETCHED, GROUPED, 2.0), "on the cluster": (MARGINALS, COUNTED, 1.5)}
MACHINES, PROCESSORS, BYTES, NETWORK = 10, 16, 20, 1.25e9
"""The cluster on paper: machines, processors of each, bytes of a row of counts, bytes a second that each one sends."""


def schema() -> dj.Schema:
    codes = [dj.Attribute(name=a, range=(0, 7)) for a in "abcdef"]
    tables = dj.Table(name="r", attributes=("k", "a", "b", "c")), dj.Table(name="s", attributes=("k", "d", "e", "f"))
    return dj.Schema(tables, (dj.Attribute(name="k", key=True), *codes))


def write_tables(folder: Path, rows: int) -> dict[str, str]:
    """Two Parquet files; the sources that name them."""
    rng = np.random.default_rng(25)
    weights = np.arange(1, rows // 10 + 1) ** -0.6
    ends = np.cumsum(weights / weights.sum())
    sources = {}
    for table in schema().tables:
        keys = np.searchsorted(ends, rng.random(rows))
        columns = {a: keys if a == "k" else rng.integers(0, 8, rows) for a in table.attributes}
        pq.write_table(pa.table(columns), folder / f"{table.name}.parquet")
        sources[table.name] = f"spark:parquet:{folder / table.name}.parquet"
    return sources


def group_bys(sources: dict[str, str]) -> list[int]:
    """The two queries that count, fetched by the session itself: how many rows each gives."""
    asked = schema()
    store = SparkStore(asked.tables, sources)
    scans = [Scan(asked, t, asked.queryable, store.opened) for t in asked.tables]
    fetched = [store._spark.sql(scan.sql(grouped=True)).toArrow().num_rows for scan in scans]
    store.close()
    return fetched


def engine(sources: dict[str, str], home_rows: int) -> DuckEngine:
    spark_store.HOME_ROWS = home_rows
    return DuckEngine(schema(), sources, attributes=schema().queryable)


def answers(made: DuckEngine) -> list[Any]:
    groups = dj.Workload.marginals(schema(), 2).groups
    sizes = [made.exact_join_size(), *(made.exact_boundary(frozenset(t)) for t in "rs")]
    return [*sizes, *(a.tolist() for a in made.exact_answers(groups))]


def measure(spark: Any, sources: dict[str, str], runs: int) -> dict[str, Any]:
    """Seconds of each step, in turns, on the clock and of the processors; the integers of both ways are the same."""
    java = spark.sparkContext._gateway.proc.pid
    seconds: dict[str, list[float]] = {}
    of_processors: dict[str, list[float]] = {}

    def timed(step: str, work: Callable[[], Any]) -> Any:
        used, begun = processor_seconds(java), time.perf_counter()
        found = work()
        seconds.setdefault(step, []).append(time.perf_counter() - begun)
        of_processors.setdefault(step, []).append(processor_seconds(java) - used)
        return found

    groups: list[int] = []
    for _ in range(runs):
        groups = timed(GROUPED, lambda: group_bys(sources))
        fetched = timed(FETCHED, lambda: answers(engine(sources, 2**30)))
        stays = engine(sources, -1)
        timed(COUNTED, lambda stays=stays: stays._exact_tables)  # type: ignore[misc]
        timed(MARGINALS, lambda stays=stays: stays.exact_answers(dj.Workload.marginals(schema(), 2).groups))
        if answers(stays) != fetched:
            raise AssertionError("the two ways differ")
    ratios = {
        name: median(b / a for a, b in zip(seconds[against], seconds[step], strict=True))
        for name, (step, against, _) in LIMITS.items()
    }
    return {"groups": groups, "seconds": seconds, "processor_seconds": of_processors, "ratios": ratios}


def processor_seconds(java: int) -> float:
    """Of Spark, whose executors are threads of one process, and of this one."""
    words = Path(f"/proc/{java}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK") + time.process_time()


def compare(rows: int, runs: int, settings: dict[str, str]) -> dict[str, Any]:
    before = spark_store.HOME_ROWS
    with tempfile.TemporaryDirectory() as name, sparks.started("local[2]", Path(name), settings) as spark:
        folder = Path(name)
        sources = write_tables(folder, rows)
        try:
            if runs > 1:
                (folder / "warm").mkdir()
                answers(engine(write_tables(folder / "warm", 1000), 2**30))
            found = measure(spark, sources, runs)
        finally:
            spark_store.HOME_ROWS = before
        return {"rows": rows, "spark": spark.version, "load": os.getloadavg()[0], **found}


def page(found: dict[str, Any]) -> str:
    rows, groups = found["rows"], found["groups"]
    steps = [
        [step, *(", ".join(f"{s:.1f}" for s in found[kind][step]) for kind in ("seconds", "processor_seconds"))]
        for step in found["seconds"]
    ]
    ratios = [
        [f"{step} / {against}", f"**{found['ratios'][name]:.2f}**", f"{limit:g}"]
        for name, (step, against, limit) in LIMITS.items()
    ]
    each = {step: median(used) for step, used in found["processor_seconds"].items()}
    a_row, a_count = each[COUNTED] / (2 * rows) * 1e6, each[MARGINALS] / sum(groups) * 1e6
    many, processors = 2e9, MACHINES * PROCESSORS
    counts = many * sum(groups) / (2 * rows)
    counting, adding = (n * each / 1e6 / processors for n, each in ((many, a_row), (counts, a_count)))
    sending = counts * BYTES / (MACHINES * NETWORK)
    made_by = command("stores_spark.py", *([] if rows == ROWS else ["--rows", rows]))
    return f"""# Spark: two tables of {rows:,} rows

`{made_by}`, Spark {found["spark"]}, local[2], {versions()}.
Groups of the tables: {" and ".join(f"{n:,}" for n in groups)}. In turns; load average {found["load"]:.0f}.

{markdown_table(["work", "seconds", "of the processors"], steps)}

{markdown_table(["ratio", "median", "at most"], ratios)}

## Ten machines, on paper
Nobody measured this: it is the cost model, with the figures above. A row took {a_row:.1f} µs of processor time to be
counted and written down, a row of counts {a_count:.1f} µs for the 15 marginals. Both grow with the rows. {MACHINES}
machines with {PROCESSORS} processors each would count 2 x 10⁹ rows
in 2·10⁹ · {a_row:.1f} µs / {processors} = {counting:.0f} s, and add up the marginals
of {counts / 1e9:.1f}·10⁹ rows of counts in {adding:.0f} s. {BYTES} bytes for each of these go through a network
of {MACHINES} times {NETWORK / 1e9:g} GB/s in {sending:.0f} s, once for the counts and once for each join. A key that
holds a large share of a table goes to one processor, and starting tasks takes time: neither is in the model.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=ROWS)
    parser.add_argument("--quick", action="store_true", help="small, once, nothing written: does it run?")
    options = parser.parse_args(arguments)
    if (why := sparks.missing()) is not None:
        print(f"stores_spark: {why}")
        return 0
    if options.quick:
        print(page(compare(5_000, 1, sparks.SMALL)))
        return 0
    found = compare(int(options.rows), RUNS, SETTINGS)
    print(page(found))
    write("stores_spark", page(found), found)
    return int(any(found["ratios"][name] > limit for name, (*_, limit) in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
