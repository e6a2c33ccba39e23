"""Spark sessions for tests: small, quiet, and gone at the end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
"""Two executors in processes of their own."""
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # a stage less for each shuffle
    # Queries are many and tiny: what compiles code for large ones takes most of the time.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
}


def missing() -> str | None:
    """Why there can be no Spark here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pyspark  # noqa: F401
    except ImportError:
        return "pyspark is not installed (pip install 'dpjoin[spark]')"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        return "there is no Java (apt-get install openjdk-17-jre-headless)"
    return None


def need_spark() -> None:
    reason = missing()
    if reason:
        pytest.skip(f"no Spark: {reason}")


@contextmanager
def started(master: str, folder: Path, **more: str) -> Iterator[Any]:
    """A session of its own, with its files in a folder; its processes end with it."""
    need_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_WORKER_DIR"] = str(folder / "work")
    builder = SparkSession.builder.master(master).appName("dpjoin tests")
    settings = {**SMALL, "spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse"), **more}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    gateway = SparkContext._gateway
    try:
        yield spark
    finally:
        with suppress(Exception):
            spark.stop()
        processes = [gateway.proc.pid, *executors(gateway.proc.pid)]
        with suppress(Exception):
            gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        gateway.proc.wait()
        for pipe in (gateway.proc.stdin, gateway.proc.stdout):
            if pipe is not None:
                pipe.close()


def executors(parent: int) -> list[int]:
    """The Java processes that another one has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, ppid, *_ = (folder / "stat").read_text().rpartition(") ")[2].split()
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if int(ppid) == parent and state != "Z" and b"java" in words[0]:
                found.append(int(folder.name))
    return sorted(found)
