"""Which stores can be reached from here, what is missing, and the command that installs it.

A store takes part by a function that says what it found; `CHECKS` lists them. No table is opened.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from dpjoin.errors import SourceError
from dpjoin.spec.stored import POSTGRES, SPARK, PostgresSource, postgres_source

READY, ABSENT, UNREACHED = "ready", "not installed", "not reached"


@dataclass(frozen=True)
class Found:
    """How one store is."""

    store: str
    state: str
    said: str
    remedy: str = ""


def files(sources: Sequence[str]) -> list[Found]:
    """Files are read by DuckDB, which is always there."""
    parts = ", ".join(f"{name} {_version(name)}" for name in ("duckdb", "pyarrow"))
    return [Found("files", READY, f"{parts}; Python {platform.python_version()}")]


def postgresql(sources: Sequence[str]) -> list[Found]:
    """The servers that sources name; without one, that which the environment names."""
    driver = _version("adbc-driver-postgresql")
    if driver is None:
        return [Found("postgresql", ABSENT, "no driver", "pip install 'dpjoin[postgres]'")]
    from dpjoin.engine.postgres import server_version

    named = [_server(s) for s in sources if s.startswith(POSTGRES)] or [PostgresSource((), "none")]
    found = []
    for source in dict.fromkeys(PostgresSource(s.server) for s in named):
        try:
            said = f"server {server_version(source)} ({source.shown}), driver {driver}"
            found.append(Found("postgresql", READY, said))
        except SourceError as error:
            said = str(error).partition(": ")[2].partition("; ")[0]
            remedy = "name a service in ~/.pg_service.conf, or set PGHOST, PGUSER, PGDATABASE; passwords in ~/.pgpass"
            found.append(Found("postgresql", UNREACHED, f"driver {driver}; {said}", remedy))
    return found


def spark(sources: Sequence[str]) -> list[Found]:
    """The package and Java; a session is asked only if a source names a table of Spark."""
    package = _version("pyspark")
    if package is None:
        return [Found("spark", ABSENT, "no pyspark", "pip install 'dpjoin[spark]'")]
    remote, java = os.environ.get("SPARK_REMOTE"), _java()
    if remote is not None and _version("grpcio") is None:
        return [Found("spark", ABSENT, f"pyspark {package}, no grpcio for SPARK_REMOTE", "pip install 'dpjoin[spark]'")]
    if remote is None and java is None:
        remedy = "apt-get install openjdk-17-jre-headless, or set SPARK_REMOTE to the address of a Connect server"
        return [Found("spark", ABSENT, f"pyspark {package}, no Java", remedy)]
    about = f"pyspark {package}, " + (f"Java {java}" if remote is None else "Connect (SPARK_REMOTE)")
    if not any(s.startswith(SPARK) for s in sources):
        return [Found("spark", READY, f"{about}; name a source to ask a session")]
    from dpjoin.engine.spark import SparkCluster, session

    try:
        (found,) = SparkCluster(session()).exact_query("SELECT version() AS v").column("v").to_pylist()
    except SourceError as error:
        said, _, remedy = str(error).partition("; ")
        return [Found("spark", UNREACHED, f"{about}; {said}", remedy)]
    return [Found("spark", READY, f"{about}; Spark {str(found).partition(' ')[0]}")]


CHECKS: tuple[Callable[[Sequence[str]], list[Found]], ...] = (files, postgresql, spark)


def examined(sources: Sequence[str]) -> list[Found]:
    """What every store says; `sources` may name the servers to try."""
    return [found for check in CHECKS for found in check(sources)]


def lines(found: Sequence[Found]) -> list[str]:
    """The same for people."""
    told = []
    for one in found:
        told.append(f"{one.store:<12} {one.state:<14} {one.said}")
        told += [f"{'':<12} {'':<14} {one.remedy}"] if one.remedy else []
    return told


def as_json(found: Sequence[Found]) -> list[dict[str, Any]]:
    return [asdict(one) for one in found]


def _server(source: str) -> PostgresSource:
    """The server that a source names; which table it is does not matter."""
    named = source if " table=" in source or "query=" in source or ":table=" in source else f"{source} table=any"
    return postgres_source(named)


def _java() -> str | None:
    """The version of the Java that a session would run on."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if java is None:
        return None
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "([^"]+)"', said)
    return found[1] if found else None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
