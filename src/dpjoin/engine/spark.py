"""Spark as the cluster that computes: a session, queries to Arrow, and scratch that is private and does not change.

What is computed is written down as Parquet before it is used: a cached frame is computed again from its source when
executors die, and the source may be another one by then. What Spark raises quotes rows, so none of it is passed on.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import sys
import tempfile
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa

from dpjoin.engine.spark_sql import EPOCH_SQL, SPARK_SQL
from dpjoin.engine.spill import private_folder
from dpjoin.errors import SourceError

LEAST_VERSION = (4, 0)
SCRATCH = "DPJOIN_SPARK_SCRATCH"
"""The environment's variable for where scratch is: a folder that this process and every worker see."""
SETTINGS = {
    "spark.sql.ansi.enabled": ("true", "sums would wrap without a word"),
    "spark.sql.parser.escapedStringLiterals": ("false", "texts of the spec would be read otherwise"),
}
"""What a session must be set to, and what would happen else."""
SPARK_STOPPED = (
    "Spark did not finish; no release was made, and budget that was spent stays spent: "
    "see that the cluster runs, that scratch has room and that no view fails on a row, then start again"
)
PROXIES = {"grpc_proxy", "https_proxy", "http_proxy"}
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_QUIET = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}


def pyspark() -> Any:
    """The package, of a version that has what is needed."""
    try:
        import pyspark
    except ImportError:
        raise SourceError("Spark needs pyspark, which is not installed; pip install 'dpjoin[spark]'") from None
    version = pyspark.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST_VERSION:
        raise SourceError(f"pyspark ({version}) must be 4.0 or later; pip install 'dpjoin[spark]'")
    return pyspark


def session() -> Any:
    """The active session, or a new one as the environment configures it: a local one if that says nothing."""
    pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("dpjoin")
    if "SPARK_REMOTE" not in os.environ:
        for name, value in _QUIET.items():
            builder = builder.config(name, value)
        if not ({"SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"} & set(os.environ)):
            # Nobody says where a cluster is: executors of this machine find each other at its own address.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            builder = builder.master("local[*]").config("spark.local.dir", private_folder())
    try:
        remote = urlsplit(os.environ.get("SPARK_REMOTE", ""))
        if remote.scheme == "sc" and not PROXIES & set(os.environ):
            # Connect itself tries for ten minutes, and says nothing meanwhile.
            create_connection((remote.hostname or "", remote.port or 15002), 10).close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the version of pandas, which takes no part
            return builder.getOrCreate()
    except Exception:
        raise SourceError(
            "Spark does not start; check that Java 17 or later is installed (java -version) "
            "and, if SPARK_REMOTE is set, that the server answers"
        ) from None


def check_session(spark: Any) -> None:
    """Refuse a session in which numbers or texts would not be what they are elsewhere."""
    for name, (wanted, otherwise) in SETTINGS.items():
        with unreachable():
            given = spark.conf.get(name, wanted)
        if str(given).lower() != wanted:
            raise SourceError(
                f"the Spark session's {name} ({given}) must be {wanted}: {otherwise}; "
                f"set it with spark.conf.set({name!r}, {wanted!r})"
            )


@contextmanager
def unreachable() -> Iterator[None]:
    """Turn whatever Spark raises into one line that repeats nothing of it."""
    with _silent():
        try:
            yield
        except SourceError:
            raise
        except Exception:
            raise SourceError(SPARK_STOPPED) from None


@contextmanager
def _silent() -> Iterator[None]:
    """Without what pyspark would log of errors: it quotes rows, and goes to stderr."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


@dataclass
class Held:
    """Rows on the cluster, until this is let go."""

    name: str


class SparkCluster:
    """A session that computes. Its scratch lies in a folder of its own that only this user can read."""

    dialect = SPARK_SQL

    def __init__(self, spark: Any) -> None:
        check_session(spark)
        self._spark = spark
        within = os.environ.get(SCRATCH)
        try:
            self._folder = Path(tempfile.mkdtemp(dir=private_folder(within)))
        except OSError:
            raise SourceError(f"{SCRATCH} ({within}) must be a folder that you may write to; correct it") from None
        self._names = (f"dpjoin_{uuid4().hex}_{n}" for n in itertools.count())
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def exact_query(self, sql: str) -> Any:
        with unreachable():
            return self._spark.sql(sql).toArrow()

    def frozen(self, sql: str) -> Held:
        """Written down as Parquet, and read back with the files listed once: none can go without an error."""
        name = next(self._names)
        path = self._folder / name
        with unreachable():
            written = self._spark.sql(sql)
            written.write.mode("error").option("compression", "zstd").parquet(path.as_uri())
            strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
            self._spark.read.schema(written.schema).options(**strict).parquet(path.as_uri()).createTempView(name)
        return self._held(name, path)

    def uploaded(self, rows: Any) -> Held:
        name = next(self._names)
        with unreachable(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the version of pandas, which takes no part
            from pyspark.sql.pandas.types import from_arrow_schema

            signed = _signed(rows)
            # Without types, Connect takes no table that has no rows.
            frame = self._spark.createDataFrame(signed, from_arrow_schema(signed.schema))
            frame.selectExpr(*map(_as_meant, rows.schema)).createTempView(name)
        return self._held(name, None)

    def _held(self, name: str, path: Path | None) -> Held:
        held = Held(name)
        weakref.finalize(held, let_go, self._spark, name, path)
        return held


def _signed(rows: Any) -> Any:
    """Codes in a type that Spark has, which knows no unsigned ones, and times as numbers, which have no zone."""
    for i, field in enumerate(rows.schema):
        if pa.types.is_unsigned_integer(field.type) or pa.types.is_timestamp(field.type):
            rows = rows.set_column(i, field.name, rows.column(i).cast(pa.int64()))
    return rows


def _as_meant(field: Any) -> str:
    """A column that was sent: of times the microseconds, since Spark takes them for times of the session."""
    name = SPARK_SQL.name(field.name)
    return f"timestampadd(MICROSECOND, {name}, {EPOCH_SQL}) AS {name}" if pa.types.is_timestamp(field.type) else name


def let_go(spark: Any, name: str, path: Path | None) -> None:
    """Remove a view, and what it shows if that lies in scratch."""
    with suppress(Exception):
        spark.catalog.dropTempView(name)
    if path is not None:
        shutil.rmtree(path, ignore_errors=True)
