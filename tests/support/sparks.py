"""Spark sessions for tests: small, quiet, and gone at the end. A process has at most one at a time."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
"""Two executors in processes of their own."""
STANDALONE, CONNECT = "standalone", "connect"
"""A master and two workers as on a cluster; a server of Connect, and no Java in this process."""
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


def is_for_spark(nodeid: str) -> bool:
    """Whether a test's name says that it needs a session."""
    return "spark" in nodeid.lower()


def missing(kind: str = LOCAL_CLUSTER) -> str | None:
    """Why there can be no Spark of that kind here."""
    if find_spec("pyspark") is None:
        return "pyspark is not installed (pip install 'dpjoin[spark]')"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        return "there is no Java (apt-get install openjdk-17-jre-headless)"
    if kind == CONNECT and (absent := [p for p in ("grpc", "grpc_status", "zstandard") if find_spec(p) is None]):
        return f"Connect needs {', '.join(absent)} (pip install 'pyspark[connect]')"
    if kind == CONNECT and not list(Path(spark_home(), "jars").glob("spark-connect_*.jar")):
        return "this pyspark has no server of Connect"
    return None


def need_spark(kind: str = LOCAL_CLUSTER) -> None:
    if reason := missing(kind):
        pytest.skip(f"no Spark: {reason}")


def spark_home() -> Path:
    """Where pyspark's own programs are."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


@dataclass
class Sessions:
    """The session of this process: another kind ends the one before."""

    folder: Path
    kind: str | None = None
    spark: Any = None
    workers: list[int] = field(default_factory=list)
    """The processes that start executors."""
    _ends: ExitStack = field(default_factory=ExitStack)

    def of(self, kind: str = LOCAL_CLUSTER) -> Any:
        if self.kind != kind:
            need_spark(kind)
            self.end()
            folder = self.folder / f"{kind.partition('[')[0]} {time.monotonic_ns()}"
            folder.mkdir()
            if kind == CONNECT:
                self.spark = self._ends.enter_context(connected(folder))
            elif kind == STANDALONE:
                master, self.workers = self._ends.enter_context(standalone(folder))
                self.spark = self._ends.enter_context(started(master, folder))
            else:
                self.spark = self._ends.enter_context(started(kind, folder))
                self.workers = [self.spark.sparkContext._gateway.proc.pid]
            self.kind = kind
        return self.spark

    def executors(self) -> list[int]:
        return sorted(p for worker in self.workers for p in children(worker))

    def end(self) -> None:
        self.kind, self.spark, self.workers = None, None, []
        self._ends.close()


@contextmanager
def started(master: str, folder: Path, settings: Mapping[str, str] = SMALL) -> Iterator[Any]:
    """A session of its own, with its files in a folder; its processes end with it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the version of pandas, which takes no part
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    os.environ.update(_environment(folder))
    builder = SparkSession.builder.master(master).appName("dpjoin tests")
    for name, value in {**settings, **_places(folder)}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    gateway = SparkContext._gateway
    try:
        yield spark
    finally:
        with suppress(Exception):
            spark.stop()
        _kill(children(gateway.proc.pid))
        with suppress(Exception):
            gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
        _end(gateway.proc)


@contextmanager
def standalone(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """A master with two workers on this machine, one core each: its address, and the workers' processes."""
    master = f"spark://127.0.0.1:{(port := _free_port())}"
    with ExitStack() as ends:
        deploy, quiet = "org.apache.spark.deploy", ("--webui-port", "0", "--host", "127.0.0.1")
        _await(port, ends.enter_context(_java(folder, "128m", f"{deploy}.master.Master", "--port", str(port), *quiet)))
        work = (f"{deploy}.worker.Worker", "--cores", "1", "--memory", "512m", "--work-dir", str(folder / "work"))
        workers = [ends.enter_context(_java(folder, "128m", *work, *quiet, master)) for _ in range(2)]
        yield master, [worker.pid for worker in workers]
        _kill([p for worker in workers for p in children(worker.pid)])


@contextmanager
def connected(folder: Path) -> Iterator[Any]:
    """A session of a Connect server that is a process of its own on this machine."""
    port = _free_port()
    settings = {**SMALL, **_places(folder), "spark.connect.grpc.binding.address": "127.0.0.1"}
    settings["spark.connect.grpc.binding.port"] = str(port)
    words = [w for item in settings.items() for w in ("--conf", "=".join(item))]
    words += ["--master", "local[2]", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    before = dict(os.environ)
    with _java(folder, settings["spark.driver.memory"], "org.apache.spark.deploy.SparkSubmit", *words) as server:
        _await(port, server)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pyspark.sql import SparkSession
        spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
        try:
            yield spark
        finally:
            with suppress(Exception):
                spark.stop()
            for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE"):
                if name not in before:
                    os.environ.pop(name, None)


def _places(folder: Path) -> dict[str, str]:
    return {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}


def _environment(folder: Path) -> dict[str, str]:
    return {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
    }


@contextmanager
def _java(folder: Path, memory: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """One of Spark's own programs."""
    daemon = {"SPARK_DAEMON_MEMORY": memory, "SPARK_DAEMON_JAVA_OPTS": QUICK_START, "SPARK_HOME": str(spark_home())}
    process = subprocess.Popen(
        [str(spark_home() / "bin" / "spark-class"), *words],
        env={**os.environ, **_environment(folder), **daemon},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        _end(process)


def _end(process: Any) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _kill(processes: list[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until a program takes connections."""
    end = time.monotonic() + 120
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert process.poll() is None, "Spark ended while it started"
        assert time.monotonic() < end, "Spark did not start"
        time.sleep(0.1)


def children(parent: int) -> list[int]:
    """The Java processes that another one has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, ppid, *_ = (folder / "stat").read_text().rpartition(") ")[2].split()
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if int(ppid) == parent and state != "Z" and b"java" in words[0]:
                found.append(int(folder.name))
    return sorted(found)
