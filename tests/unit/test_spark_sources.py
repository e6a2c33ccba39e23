"""Sources of Spark, as far as no session is needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpjoin.cli import doctor
from dpjoin.engine.sources.places import is_spark, same_source
from dpjoin.engine.spark import PROXIES, SCRATCH, SparkCluster
from dpjoin.engine.spark import session as spark_session
from dpjoin.engine.spark_sql import SPARK_SQL
from dpjoin.errors import SourceError
from dpjoin.spec.schema import Table
from dpjoin.spec.toml import source_of


def test_a_source_is_a_name_and_no_path() -> None:
    """It does not begin at the spec's folder, and the same name is the same table."""
    named = "spark:lake.clinic.visits"
    assert is_spark(named)
    assert not is_spark("visits.parquet")
    assert source_of(Table(name="r", attributes=("a",), source=named), Path("/somewhere")) == named
    assert same_source(named, named)
    assert not same_source(named, "spark:lake.clinic.patients")
    session = object()
    assert same_source((session, "visits"), (session, "visits"))
    assert not same_source((session, "visits"), (session, "patients"))


def test_texts_mean_the_same_in_every_session() -> None:
    """Where quotes or backslashes could be read in two ways a text is written by its bytes."""
    assert SPARK_SQL.literal("blue sky") == "'blue sky'"
    for text in ("it's", "a\\b", "Ünïcode", "${x}", "\n"):
        assert SPARK_SQL.literal(text) == f"CAST(X'{text.encode().hex()}' AS STRING)"
    assert SPARK_SQL.name("a`b") == "`a``b`"


def test_the_doctor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """First pyspark, then Java; with an address of a Connect server what speaks to it, and no Java."""
    versions: dict[str, Any] = {}
    monkeypatch.setattr(doctor, "_version", versions.get)
    monkeypatch.setattr(doctor, "_java", lambda: None)
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    assert doctor.spark([])[0].remedy == "pip install 'dpjoin[spark]'"
    versions["pyspark"] = "4.3.0"
    (found,) = doctor.spark([])
    assert (found.state, found.said) == (doctor.ABSENT, "pyspark 4.3.0, no Java")
    assert found.remedy.startswith("apt-get install openjdk-17-jre-headless")
    monkeypatch.setenv("SPARK_REMOTE", "sc://cluster")
    (found,) = doctor.spark([])
    assert (found.state, found.said) == (doctor.ABSENT, "pyspark 4.3.0, no grpcio for SPARK_REMOTE")
    assert found.remedy == "pip install 'dpjoin[spark]'"
    versions["grpcio"] = "1.85.1"
    assert doctor.spark([])[0].state == doctor.READY


def test_a_connect_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told at once, without the address, which may hold a token."""
    pytest.importorskip("pyspark")
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setenv("SPARK_REMOTE", "sc://127.0.0.1:1/;token=s3cret")
    with pytest.raises(SourceError, match=r"Spark does not start; check .* if SPARK_REMOTE is set") as error:
        spark_session()
    assert "s3cret" not in str(error.value)


def test_scratch_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process left there goes with the next start, and each cluster's own with the cluster."""
    script = (
        "import sys; from dpjoin.engine.spill import private_folder as f; print(f(sys.argv[1]), flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        (left / "counts.parquet").write_text("private")
        process.kill()
    session: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda name, wanted: wanted))
    monkeypatch.setenv(SCRATCH, str(tmp_path))
    cluster = SparkCluster(session)
    assert not left.exists()
    assert tmp_path in cluster._folder.parents
    folder = cluster._folder
    del cluster
    assert not folder.exists()
    monkeypatch.setenv(SCRATCH, str(tmp_path / "nowhere"))
    with pytest.raises(SourceError, match=rf"{SCRATCH} \(.*nowhere\) must be a folder that you may write to; correct"):
        SparkCluster(session)
