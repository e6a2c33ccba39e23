"""Spark as the cluster: equal to the definitions, whatever fails on the way. One session serves the whole file."""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpjoin as dj
import stores_spark
from dpjoin.engine import spark as on_spark
from dpjoin.engine import spark_sql, spark_store, spill
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import ExactDegrees, Labels, Value
from dpjoin.engine.spark import SparkCluster
from dpjoin.errors import SourceError
from dpjoin.privacy import gate, noise
from dpjoin.privacy.gate import Draws
from dpjoin.privacy.ledger import Event
from dpjoin.privacy.numbers import Numbers
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from dpjoin.spec.workload import Workload
from support import alike
from support.bits import BITS
from support.brute import BruteEngine
from support.clusters import assert_sums_of_products, cluster_engine, random_factor
from support.engines import arrow_tables
from support.sparks import CONNECT, QUICK_START, STANDALONE, Sessions, children, need_spark
from support.strategies import SHAPES, random_instance, random_many, split_schema

STOPPED = "Spark did not finish; no release was made, and budget that was spent stays spent"


@pytest.fixture
def cluster(spark: Any) -> SparkCluster:
    return SparkCluster(spark)


def check(spark: Any, seed: int, kinds: Sequence[str] = alike.KINDS) -> list[int]:
    """A random instance of one to four tables, and some kinds of what an engine is asked."""
    rng = np.random.default_rng([34, seed])
    shapes = [s for s in SHAPES if len(SHAPES[s]) < 5]
    schema, workload, tables = random_instance(rng) if seed % 2 else random_many(rng, shapes[seed % len(shapes)])
    # With types: Connect takes no table without rows otherwise.
    from pyspark.sql.pandas.types import from_arrow_schema

    frames = {n: spark.createDataFrame(t, from_arrow_schema(t.schema)) for n, t in arrow_tables(schema, tables).items()}
    engine = DuckEngine(schema, frames, attributes=schema.queryable)
    return alike.assert_alike(rng, engine, BruteEngine(schema, tables), tables, workload.groups, kinds)


def test_random_instances(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched and beyond the limit: sizes, boundaries and answers, and one further kind of question in turn."""
    sizes = []
    for seed in range(6):
        monkeypatch.setattr(spark_store, "HOME_ROWS", 2**20 if seed in (1, 4) else -1)
        sizes.append(check(spark, seed, [alike.KINDS[seed % len(alike.KINDS)]]))
    assert sum(sum(found) > 0 for found in sizes) >= 4


def test_wide_numbers(cluster: SparkCluster) -> None:
    """Counts near 2^29 need halves of 32 bits, near 2^58 decimals."""
    rng = np.random.default_rng(35)
    for bits in (29, 58):
        factors = [(columns, random_factor(rng, columns, 2**bits)) for columns in ("ab", "bc")]
        assert_sums_of_products(cluster, factors, "ac")
    assert_sums_of_products(cluster, [(c, random_factor(rng, c, 2**29)) for c in ("ab", "bc", "ca")], "")


def large_instance() -> tuple[Schema, dict[str, pa.Table]]:
    rng = np.random.default_rng(36)
    schema = split_schema((8, 8))
    n = 20_000
    sources = {
        t.name: pa.table({a: rng.integers(0, 4_000 if a == "k" else 8, n) for a in t.attributes}) for t in schema.tables
    }
    return schema, sources


def marginals(engine: Any, schema: Schema) -> list[Any]:
    return [a.tolist() for a in engine.exact_answers(Workload.marginals(schema, 2).groups)]


TYPED = {
    "whole": pa.array([1, 1, -5, 2**62, 7, 7, 7, 7]),
    "huge": pa.array([Decimal(2**70), Decimal(2**70), *map(Decimal, range(6))], pa.decimal128(38, 0)),
    "money": pa.array(list(map(Decimal, ("1.20", "1.20", "-0.05", "7.00", "0.00", "3.10", "9.99", "9.99")))),
    "real": pa.array([0.0, -0.0, 0.5, -2.25, math.inf, 1e300, 0.1, 3.0]),
    "single": pa.array([0.0, -0.0, 0.5, 0.1, 3.0, 3.0, 3.0, 1e30], pa.float32()),
    "flag": pa.array([True, False] * 4),
    "text": pa.array(["a", "a", "ä", "", "it's", "a\\b", "Z", "z"]),
    "bytes": pa.array([b"a", b"a", b"\x00", b"\xff", b"", b"b", b"c", b"d"]),
    "day": pa.array([date(1970, 1, 1), date(2024, 2, 29), date(1, 1, 1), *[date(9999, 12, 31)] * 5]),
    "moment": pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999), *[datetime(2024, 3, 10, 2, 30, 9, 10)] * 7]),
    "instant": pa.array([datetime(2024, 1, 1, 0, 30), *[datetime(1900, 1, 1, 12)] * 7], pa.timestamp("us", "UTC")),
}
"""A column of each type that Spark and Arrow share, without missing values."""


@pytest.mark.parametrize("limit", [2**20, -1])
def test_values_of_every_type(spark: Any, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same values, parts and codes as at home, and the same rows within caps, whatever the session's time zone."""
    monkeypatch.setattr(spark_store, "HOME_ROWS", limit)
    keys = [Attribute(name=a, key=True) for a in TYPED]
    parts = [Attribute(name=p, range=r, part=p, other=True) for p, r in (("year", (1969, 2024)), ("hour", (0, 23)))]
    own = [*parts, Attribute(name="cost", bins=(0, 1.2, 5, 10), other=True), Attribute(name="n", range=(0, 99))]
    columns = {"year": "day", "hour": "instant", "cost": "money"}
    r = Table(name="r", attributes=(*TYPED, *(a.name for a in own)), columns=columns)
    schema = Schema((r, Table(name="s", attributes=tuple(TYPED), private=False)), (*keys, *own))
    rows = pa.table({**TYPED, "n": list(range(8))})
    rows = pa.concat_tables([rows, rows.set_column(rows.num_columns - 1, "n", pa.array(range(10, 18)))])
    tables = {"r": rows, "s": pa.table(TYPED)}
    from pyspark.sql import functions

    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        # Spark would take times without a zone for times of the session, which this one does not have.
        at = list(TYPED).index("moment")
        ticks = {n: t.set_column(at, "moment", t["moment"].cast(pa.int64())) for n, t in tables.items()}
        frames = {name: spark.createDataFrame(table) for name, table in ticks.items()}
        local = {"moment": functions.expr(f"timestampadd(MICROSECOND, moment, {spark_sql.EPOCH_SQL})")}
        frames = {name: frame.withColumns(local) for name, frame in frames.items()}
        there = DuckEngine(schema, frames, attributes=schema.queryable)
        here = DuckEngine(schema, tables, attributes=schema.queryable)
        groups = Workload.marginals(schema, 2).groups
        assert alike.assert_numbers_alike(there, here, groups) == 16
        for a in TYPED:
            assert alike.counted(there.exact_degrees({"r": {}}, (a,))) == alike.counted(
                here.exact_degrees({"r": {}}, (a,))
            ), a
        for a in ("moment", "day", "huge", "real", "bytes"):
            degrees = here.exact_degrees({"r": {}}, (a,))
            some = Labels("some", (a,), dict.fromkeys(degrees.exact_values(np.arange(2)), 1))
            found = [e.exact_degrees({"r": {some: 1}}, ()).exact_counts.tolist() for e in (there, here)]
            assert found[0] == found[1] != [], a
        caps = {"r": [DegreeBound(attributes=(a,), limit=1) for a in ("text", "real", "day", "huge")]}
        assert 0 < alike.assert_numbers_alike(there.capped(caps), here.capped(caps), groups) < 16
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


class ByValue(Draws):
    """Noise by the order of values, which engines are free to choose."""

    def listed(
        self, exact: ExactDegrees, draw: Callable[[int], Numbers], threshold: int, event: Event
    ) -> dict[Value, int]:
        values = exact.exact_values(np.arange(len(exact.exact_counts)))
        order = np.array(sorted(range(len(values)), key=lambda i: repr(values[i])), dtype=np.int64)
        ordered = ExactDegrees(exact.exact_counts[order], lambda at: [values[order[i]] for i in at])
        return super().listed(ordered, draw, threshold, event)


def written(folder: Path, tables: dict[str, Any], method: str) -> dict[str, bytes]:
    """All files of a release with the same noise each time."""
    BITS.begin("the same release")
    schema = split_schema((4, 3))
    made = dj.release(schema, Workload.marginals(schema, 2), tables, dj.Budget(epsilon=5.0, delta=1e-4), method=method)
    made.save(folder)
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


@pytest.mark.parametrize("method", ["auto", "heavy_light"])
def test_releases_are_the_same_byte_for_byte(
    spark: Any, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Parquet, from Spark, from Spark beyond the limit, and from Parquet with Spark."""
    monkeypatch.setattr(gate, "Draws", ByValue)
    monkeypatch.setattr(noise, "os", BITS)  # with --fresh, too
    monkeypatch.setattr(noise, "secrets", BITS)
    monkeypatch.setattr(on_spark, "session", lambda: spark)
    monkeypatch.setattr(spark_store, "session", lambda: spark)
    rng, files = np.random.default_rng(38), {}
    for name, attributes in (("r", ("k", "x0")), ("s", ("k", "x1"))):
        columns = {a: rng.zipf(1.7, 900) % 40 if a == "k" else rng.integers(0, 4, 900) for a in attributes}
        files[name] = tmp_path / f"{name}.parquet"
        pyarrow.parquet.write_table(pa.table(columns), files[name])
    on_cluster: dict[str, Any] = {name: f"spark:parquet:{file}" for name, file in files.items()}
    expected = written(tmp_path / "parquet", files, method)
    assert len(expected) > 3
    assert written(tmp_path / "fetched", on_cluster, method) == expected
    assert written(tmp_path / "mixed", {"r": files["r"], "s": on_cluster["s"]}, method) == expected
    monkeypatch.setattr(spark_store, "HOME_ROWS", -1)
    assert written(tmp_path / "beyond", on_cluster, method) == expected
    gc.collect()
    views = spark.sql("SHOW VIEWS").toArrow().column("viewName").to_pylist()
    assert not [name for name in views if name.startswith("dpjoin_")]


def test_a_source_that_is_rewritten(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read once: what lies there by now does not matter, fetched or not, nor to what learns from columns."""
    schema = split_schema((4, 3))
    file = tmp_path / "both.parquet"

    def write(rows: int) -> None:
        columns = {"k": [n % 7 for n in range(rows)], "x0": [0] * rows, "x1": [0] * rows}
        spark.createDataFrame(pa.table(columns)).coalesce(1).write.mode("overwrite").parquet(str(file))

    for limit in (2**20, -1):
        monkeypatch.setattr(spark_store, "HOME_ROWS", limit)
        write(70)
        frame = spark.read.parquet(str(file))
        engine = DuckEngine(schema, {"r": frame, "s": frame.select("k", "x1")}, attributes=schema.queryable)
        before = engine.exact_join_size()
        write(700)
        assert engine.exact_join_size() == before == 700
        assert engine.exact_answers(Workload.marginals(schema, 1).groups)[0].sum() == 700
        assert engine.exact_degrees({"r": {}}, ("k",)).exact_counts.tolist() == [10] * 7
    write(70)
    store = DuckEngine(
        schema, {"r": spark.read.parquet(str(file)), "s": pa.table({"k": [1], "x1": [0]})}, attributes=()
    )
    assert (
        store._store.exact_query("r", f"SELECT count(*) AS n FROM {store._store.opened['r'].view}")["n"][0].as_py()
        == 70
    )
    write(700)
    assert (
        store._store.exact_query("r", f"SELECT count(*) AS n FROM {store._store.opened['r'].view}")["n"][0].as_py()
        == 70
    )


def killed_in_the_middle(spark: Any, processes: Sequence[int]) -> None:
    """Marginals of many rows are the same integers when some processes are killed while Spark computes them."""
    schema, sources = large_instance()
    expected = marginals(DuckEngine(schema, sources, attributes=schema.queryable), schema)
    engine = cluster_engine(schema, sources, SparkCluster(spark), schema.queryable)
    engine.exact_join_size()
    found: list[Any] = []
    query = threading.Thread(target=lambda: found.append(marginals(engine, schema)))
    query.start()
    tracker, deadline = spark.sparkContext.statusTracker(), time.monotonic() + 60
    while query.is_alive() and not tracker.getActiveJobsIds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert query.is_alive()
    for process in processes:
        os.kill(process, signal.SIGKILL)
    query.join()
    assert found == [expected]


def test_executors_killed_in_the_middle_of_a_query(spark: Any, spark_sessions: Sessions) -> None:
    """Both of them: what was written down is read again, and the integers are the same."""
    before = spark_sessions.executors()
    assert len(before) == 2
    killed_in_the_middle(spark, before)
    assert not set(before) & set(spark_sessions.executors())


def test_a_disk_that_takes_no_more(spark_sessions: Sessions, cluster: SparkCluster) -> None:
    """Scratch that cannot be written ends the release in one line; there is no partial result."""
    limited = spark_sessions.executors()
    before = [resource.prlimit(p, resource.RLIMIT_FSIZE) for p in limited]
    schema, sources = large_instance()
    engine = cluster_engine(schema, sources, cluster, schema.queryable)
    try:
        for p, (_, hard) in zip(limited, before, strict=True):
            resource.prlimit(p, resource.RLIMIT_FSIZE, (2**12, hard))
        with pytest.raises(SourceError, match=STOPPED):
            engine.exact_join_size()
    finally:
        for p, limits in zip(limited, before, strict=True):
            resource.prlimit(p, resource.RLIMIT_FSIZE, limits)
    assert cluster.exact_query("SELECT 1 AS n").column("n").to_pylist() == [1]


def test_what_spark_says_is_not_passed_on(cluster: SparkCluster) -> None:
    """Its errors quote rows."""
    with pytest.raises(SourceError, match=STOPPED) as caught:
        cluster.exact_query("SELECT CAST(x AS INT) FROM VALUES ('secret') t(x)")
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_scratch_is_private_and_goes(spark: Any) -> None:
    """Only this user reads it; each part goes with the last who needs it, and all of it with the cluster."""
    cluster = SparkCluster(spark)
    held = cluster.frozen("SELECT 1 AS n")
    (folder,) = cluster._folder.glob("dpjoin_*")
    assert cluster._folder.stat().st_mode & 0o777 == 0o700
    assert spark.catalog.tableExists(held.name)
    del held
    assert not folder.exists()
    assert not spark.catalog.tableExists(folder.name)
    parent = cluster._folder
    del cluster
    assert not parent.exists()


KILLED = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
from dpjoin.engine.spark import SparkCluster
cluster = SparkCluster(spark)
held = cluster.frozen("SELECT 1 AS n")
print(cluster._folder, spark.sparkContext._gateway.proc.pid, flush=True)
input()
"""


def test_killed_with_signal_9(tmp_path: Path) -> None:
    """Spark ends by itself, and the next start removes the scratch."""
    need_spark()
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED],
        env={**os.environ, "TMPDIR": str(tmp_path), "SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": QUICK_START},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    folder, java = process.stdout.readline().split()
    assert list(Path(folder).glob("dpjoin_*/*.parquet"))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{java}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{java}").exists()
    assert Path(folder).exists()
    spill.remove_left_behind(str(tmp_path))
    assert not Path(folder).exists()


def test_sessions_that_are_refused(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """ANSI off, literals read otherwise, an old version, none at all: one line each says what to do."""
    for name, (wanted, _) in on_spark.SETTINGS.items():
        spark.conf.set(name, "false" if wanted == "true" else "true")
        try:
            with pytest.raises(SourceError, match=rf"{name} \(.*\) must be {wanted}.*spark.conf.set\('{name}'"):
                SparkCluster(spark)
        finally:
            spark.conf.set(name, wanted)
    monkeypatch.setattr("pyspark.__version__", "3.5.6")
    with pytest.raises(SourceError, match=r"pyspark \(3.5.6\) must be 4.0 or later; pip install"):
        on_spark.session()
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SourceError, match="pyspark, which is not installed; pip install 'dpjoin"):
        on_spark.session()


def test_the_benchmark_runs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On few rows: both ways give the same integers, and the page tells what is measured and what is on paper."""
    monkeypatch.setattr(spark_store, "HOME_ROWS", 0)  # put back after what the benchmark sets
    found = stores_spark.measure(spark, stores_spark.write_tables(tmp_path, 500), 1)
    page = stores_spark.page({"rows": 500, "spark": spark.version, "load": 0.0, **found})
    assert min(found["groups"]) > 400
    assert all(min(seconds) > 0 for kind in ("seconds", "processor_seconds") for seconds in found[kind].values())
    assert page.count("**") == 2 * len(stores_spark.LIMITS)
    assert "Nobody measured this: it is the cost model" in page


@pytest.mark.full
def test_more_random_instances(spark_sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of question, on a standalone cluster with two workers."""
    spark = spark_sessions.of(STANDALONE)
    sizes = []
    for seed in range(6, 60):
        monkeypatch.setattr(spark_store, "HOME_ROWS", 2**20 if seed % 3 == 0 else -1)
        sizes.append(check(spark, seed))
    assert sum(sum(found) > 0 for found in sizes) >= 40


@pytest.mark.full
def test_a_worker_is_lost_in_the_middle_of_a_query(spark_sessions: Sessions) -> None:
    """With its executor: the other one reads again what was written down, and the integers are the same."""
    spark = spark_sessions.of(STANDALONE)
    lost = spark_sessions.workers[0]
    killed_in_the_middle(spark, [lost, *children(lost)])
    assert len(spark_sessions.executors()) == 1


@pytest.mark.full
def test_random_instances_over_connect(spark_sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with no Java in this process: every kind of question, fetched and beyond the limit."""
    spark = spark_sessions.of(CONNECT)
    cluster = SparkCluster(spark)
    for values in ([], ["it's"]):
        listed = cluster.uploaded(pa.table({"v": pa.array(values, pa.string()), "n": pa.array([1] * len(values))}))
        assert cluster.exact_query(f"SELECT v FROM {listed.name}").column("v").to_pylist() == values
    sizes = []
    for seed in range(60, 66):
        monkeypatch.setattr(spark_store, "HOME_ROWS", 2**20 if seed % 3 == 0 else -1)
        sizes.append(check(spark, seed))
    assert sum(sum(found) > 0 for found in sizes) >= 3
