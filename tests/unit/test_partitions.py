"""More rows than memory: the limit that users set, and what happens to rows that wait on disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpjoin as dj
from dpjoin.engine import scan, shelf, spill
from dpjoin.engine.buckets import BUCKETS
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.memory import Memory, memory_of
from dpjoin.engine.partitions import Partitions, partitioned_by
from dpjoin.engine.runs import bucket_of, cuts
from dpjoin.errors import SourceError, SpecError
from dpjoin.spec.schema import Attribute, Schema, Table

MARK = "SECRET-OF-A-ROW"
WAITING = f"""
import sys, pyarrow as pa
from dpjoin.engine import scan
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.memory import Memory
from dpjoin.spec.schema import Attribute, Schema, Table
scan.WHOLE_ROWS, scan.BATCH_ROWS, Memory.room = 0, 1000, 0
rows = pa.table({{"k": [f"{MARK} {{i}}" for i in range(20_000)], "a": [0, 1] * 10_000}})
schema = Schema((Table(name="r", attributes=("k", "a")), Table(name="s", attributes=("k",))),
                (Attribute(name="k", key=True), Attribute(name="a", range=(0, 1))))
engine = DuckEngine(schema, {{"r": rows, "s": rows.select(["k"])}}, attributes=("a",))
print(engine.exact_join_size(), flush=True)
input()
"""

IMPORTING = """
import sys
from dpjoin.engine import scan
from dpjoin.engine.duck import DuckEngine
from dpjoin.spec.schema import Attribute, Schema, Table
schema = Schema((Table(name="r", attributes=("k", "a")), Table(name="s", attributes=("k",))),
                (Attribute(name="k", key=True), Attribute(name="a", range=(0, 1))))
for scan.WHOLE_ROWS, scan.BATCH_ROWS in ((2**20, 2**20), (0, 1000)):
    engine = DuckEngine(schema, {"r": sys.argv[1], "s": sys.argv[2]}, attributes=("a",))
    print(engine.exact_join_size(), "pandas" in sys.modules, "pyarrow.dataset" in sys.modules)
"""


def two_tables() -> Schema:
    tables = (Table(name="r", attributes=("k", "a")), Table(name="s", attributes=("k",)))
    return Schema(tables, (Attribute(name="k", key=True), Attribute(name="a", range=(0, 1))))


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("4", r"memory \('4'\) must be a number with a unit; write it as 4GB or 500MB"),
        ("lots", r"memory \('lots'\) must be a number with a unit"),
        ("100MB", r"memory \('100MB'\) must be at least 500MB"),
        (4.5, r"memory \(4.5\) must be text such as 4GB, or a whole number of bytes"),
        (True, r"memory \(True\) must be text"),
    ],
)
def test_limits_that_are_none(limit: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        memory_of(limit)


def test_limits() -> None:
    """What is held at the same time is within the limit: DuckDB's share, rows that wait twice, and those at hand."""
    assert memory_of("4GB").limit == 4 * 10**9
    assert memory_of("1.5 gib").limit == 3 * 2**29
    assert memory_of(None).limit > 0
    for limit in ("1GB", "4GB", "100GB"):
        memory = memory_of(limit)
        assert memory.duckdb + 2 * memory.room + 2 * memory.rows_at_once(2) * 256 <= memory.limit


def test_a_wrong_limit_is_refused_before_anything_is_read_or_spent() -> None:
    schema = two_tables()
    with pytest.raises(SpecError, match="must be a number with a unit"):
        dj.release(schema, dj.Workload.marginals(schema, 1), {}, dj.Budget(epsilon=1.0, delta=1e-6), memory="much")


def test_tables_are_partitioned_by_what_all_of_them_have() -> None:
    """The unit of privacy, where all have it; all common attributes otherwise; nothing, where there is none."""
    keys = tuple(Attribute(name=n, key=True) for n in "xyz")

    def by(*tables: str, unit: tuple[str, ...] = ()) -> tuple[str, ...]:
        made = tuple(Table(name=f"t{i}", attributes=tuple(t)) for i, t in enumerate(tables))
        return partitioned_by(Schema(made, keys[: len(set("".join(tables)))], unit=unit))

    assert by("xy", "xy") == ("x", "y")
    assert by("xy", "xy", unit=("x",)) == ("x",)
    assert by("xy", "yz") == ("y",)
    assert by("xy", "yz", "xz") == ()


def test_buckets_are_the_values_alone() -> None:
    """Equal values are in one bucket whatever else is in the batch; -0.0 equals 0.0; many buckets are used."""
    for values in (np.arange(-3000, 3000), np.arange(-3000, 3000) / 4, [f"key {i}" for i in range(6000)]):
        column = pa.array(values)
        whole = bucket_of([column])
        assert bucket_of([column.slice(5)]).tolist() == whole[5:].tolist()
        pairs = bucket_of([column, pa.array(range(6000))])
        assert bucket_of([column.slice(5), pa.array(range(5, 6000))]).tolist() == pairs[5:].tolist()
        assert len(set(whole.tolist())) > BUCKETS * 0.9
    assert bucket_of([pa.array([0.0])]).tolist() == bucket_of([pa.array([-0.0])]).tolist()


def test_reading_loads_no_library_that_takes_longer_than_the_rows(tmp_path: Path) -> None:
    """Arrow's own ways to and from numpy load pandas, where there is one, and its groups much else: 0.3 s, 70 MB."""
    files = [str(tmp_path / f"{name}.parquet") for name in ("r", "s")]
    for file in files:
        pq.write_table(pa.table({"k": np.arange(20_000) % 5_000, "a": np.arange(20_000) % 2}), file)
    command = [sys.executable, "-c", IMPORTING, *files]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == ["80000 False False"] * 2


def test_cuts_hold_every_bucket_once() -> None:
    sizes = np.array([3, 0, 9, 1, 1, 1, 0, 5])
    found = cuts(sizes, 4)
    assert found == [(0, 1), (2, 2), (3, 6), (7, 7)]
    assert cuts(np.zeros(3, dtype=np.int64), 4) == [(0, 2)]


def test_rows_that_are_alike_are_grouped_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the first rows decides, and counts are the same."""
    schema, asked = two_tables(), []
    query = scan.Scan.sql
    monkeypatch.setattr(scan.Scan, "sql", lambda self, grouped: asked.append(grouped) or query(self, grouped=grouped))
    monkeypatch.setattr(scan, "BATCH_ROWS", 100)
    rows = pa.table({"k": [1] * 400, "a": [0, 1] * 200})
    engine = DuckEngine(schema, {"r": rows, "s": pa.table({"k": range(400)})}, attributes=("a",))
    assert engine.exact_join_size() == 400
    assert sorted(asked) == [False, False, True]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="files of a process are listed on Linux only")
def test_rows_on_disk_have_no_name_and_go_with_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file can be found while a release runs; after kill -9 the next start leaves nothing of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "20000"
    opened = [Path(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd")]
    nameless = [fd for fd in opened if str(tmp_path) in os.readlink(fd) and "(deleted)" in os.readlink(fd)]
    assert any(fd.stat().st_size > 0 for fd in nameless), "the rows were to go to disk"
    assert [f.stat().st_size for f in tmp_path.rglob("*") if f.is_file()] == [0], "the lock only has a name"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spill.remove_left_behind()
    assert not list(tmp_path.glob("dpjoin-*"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a disk that is always full is there on Linux only")
def test_a_full_disk_is_said_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf.tempfile, "TemporaryFile", lambda **_: open("/dev/full", "r+b", buffering=0))  # noqa: SIM115
    monkeypatch.setattr(scan, "WHOLE_ROWS", 0)
    monkeypatch.setattr(scan, "BATCH_ROWS", 2)
    monkeypatch.setattr(Memory, "room", 0)
    rows = pa.table({"k": [MARK] * 9, "a": [0] * 9})
    engine = DuckEngine(two_tables(), {"r": rows, "s": rows.select(["k"])}, attributes=("a",))
    with pytest.raises(SourceError, match=r"cannot be kept on disk \(No space left on device\); free space") as found:
        engine.exact_join_size()
    assert MARK not in str(found.value)


def test_a_release_of_many_rows_works_in_partitions() -> None:
    """And gives what the definition gives: 1.2 million rows, every answer known by arithmetic."""
    rows = 1_200_000
    table = pa.table({"k": np.arange(rows) // 5 * 7, "a": np.arange(rows) % 2})
    engine = DuckEngine(two_tables(), {"r": table, "s": table.select(["k"])}, attributes=("a",))
    assert isinstance(engine._exact_tables, Partitions)
    assert engine.exact_join_size() == 5 * rows
    assert engine.exact_boundary(frozenset("r")) == 5
    (answers,) = engine.exact_answers(dj.Workload.marginals(two_tables(), [("a",)]).groups)
    assert answers.tolist() == [5 * rows // 2] * 2
    degrees = engine.exact_degrees({"r": {}}, ("k",))
    assert degrees.exact_counts.tolist() == [5] * (rows // 5)
    places = np.array([0, 77, rows // 5 - 1])
    assert len(set(degrees.exact_values(places))) == 3
