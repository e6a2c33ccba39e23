"""Tables of Spark as sources: named in its catalog, Parquet that its workers see, or frames handed over in Python."""

from __future__ import annotations

import weakref
from collections.abc import Generator, Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import uuid4

from dpjoin.engine.arrow import empty_batch
from dpjoin.engine.cluster import Frozen
from dpjoin.engine.cluster_scan import FrozenScans, freeze, scan_of
from dpjoin.engine.cluster_tables import ClusterTables, tables_on_cluster
from dpjoin.engine.interface import Scope
from dpjoin.engine.memory import LEAST_MEMORY, Memory
from dpjoin.engine.scan import Scan
from dpjoin.engine.sources import OpenedTable
from dpjoin.engine.spark import SparkCluster, check_session, let_go, session, unreachable
from dpjoin.engine.spark_sql import SPARK_SQL, columns_of
from dpjoin.engine.tables import Tables
from dpjoin.errors import SourceError
from dpjoin.spec.schema import Schema, Table
from dpjoin.spec.stored import SPARK

PARQUET_PREFIX = "parquet:"
HOME_ROWS, BYTES_PER_ROW = 2**24, 160
"""Up to this many rows of counts, all tables together, are fetched, and no more than memory holds."""


class SparkStore:
    """Some tables of one session."""

    def __init__(self, tables: Sequence[Table], sources: Mapping[str, object]) -> None:
        frames = {name: _frame(name, source) for name, source in sources.items()}
        sessions = {id(frame.sparkSession): frame.sparkSession for frame, _ in frames.values()}
        if len(sessions) > 1:
            raise SourceError(
                f"tables {', '.join(map(repr, sources))} must be of one Spark session, not of {len(sessions)}; "
                "hand over frames of the same session"
            )
        (self._spark,) = sessions.values()
        check_session(self._spark)
        self._views: list[str] = []
        self.close = weakref.finalize(self, _dropped, self._spark, self._views)
        self._written: dict[str, Frozen] = {}
        self.opened = {}
        for table in tables:
            name, (frame, origin) = table.name, frames[table.name]
            opened = _described(name, frame, origin)
            wanted = {table.column(a) for a in table.attributes} & {c.name for c in opened.columns}
            with unreachable():
                _comparable(frame, sorted(wanted)).createTempView(opened.view)
            self._views.append(opened.view)
            self.opened[name] = opened

    @cached_property
    def _cluster(self) -> SparkCluster:
        return SparkCluster(self._spark)

    def is_remote(self, table: str) -> bool:
        return True

    def exact_batches(self, table: str, sql: str, rows: int) -> Generator[Any, None, None]:
        found = self.exact_query(table, sql)
        yield from found.to_batches(max_chunksize=rows)
        yield empty_batch(found.schema)

    def exact_query(self, table: str, sql: str) -> Any:
        """Who asks here may ask again: the rows are written down before, and stay what they are."""
        view = self.opened[table].view
        if table not in self._written:
            self._written[table] = self._cluster.frozen(f"SELECT * FROM {view}")
            with unreachable():
                self._spark.table(self._written[table].name).createOrReplaceTempView(view)
        return self._cluster.exact_query(sql)

    def read(self, schema: Schema, touched: Scope, memory: Memory) -> Tables | ClusterTables:
        """Count every table's rows on the cluster, each in one pass; fetch the counts if they are few.

        Whether they are depends on the rows and shows in running time only: the answers are the same.
        """
        cluster = self._cluster
        scans = {t.name: scan_of(schema, Scan(schema, t, touched, self.opened)) for t in schema.tables}
        frozen = FrozenScans(schema, cluster, scans, {name: freeze(cluster, scan) for name, scan in scans.items()})
        self.close()
        self._written.clear()
        most = min(HOME_ROWS, (memory.limit - LEAST_MEMORY) // BYTES_PER_ROW)
        if sum(rows.exact_rows for rows in frozen.exact_rows.values()) <= most:
            return frozen.home()
        return tables_on_cluster(schema, cluster, frozen.tables(), frozen.kinds(), frozen.home)


def described(name: str, source: object) -> OpenedTable:
    """A table's columns. Nothing is opened for queries."""
    return _described(name, *_frame(name, source))


def _described(name: str, frame: Any, origin: str) -> OpenedTable:
    with unreachable():
        columns = columns_of(frame.schema)
    folded = [c.name.lower() for c in columns]
    if len(set(folded)) < len(folded):
        raise SourceError(f"table {name!r}: {origin} has two columns of one name (case aside); rename one of them")
    return OpenedTable(name, f"dpjoin_{uuid4().hex}", columns, origin, dialect=SPARK_SQL)


def _frame(name: str, source: Any) -> tuple[Any, str]:
    """A frame of the source, and what messages call it."""
    table: Any = None
    if isinstance(source, tuple):
        source, table = source
    if isinstance(source, str):
        spark, wanted = session(), str(source).removeprefix(SPARK)
    elif hasattr(source, "sparkSession"):
        return source, "the Spark frame"
    else:
        spark, wanted = source, str(table or "")
    if not wanted:
        raise SourceError(
            f"table {name!r}: a Spark source must name a table; use 'spark:catalog.schema.table', "
            "'spark:parquet:PATH', a frame, or (session, 'catalog.schema.table')"
        )
    origin = f"Spark source {wanted!r}"
    try:
        if wanted.startswith(PARQUET_PREFIX):
            strict = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
            return spark.read.options(**strict).parquet(wanted.removeprefix(PARQUET_PREFIX)), origin
        return spark.table(wanted), origin
    except Exception:
        raise SourceError(
            f"table {name!r}: {origin} is not there, or this session may not read it; correct tables.{name}.source"
        ) from None


def _comparable(frame: Any, columns: Sequence[str]) -> Any:
    """Some columns of a frame, with texts compared by their bytes whatever collation they have."""
    from pyspark.sql import functions

    chosen = [functions.col(SPARK_SQL.name(c)) for c in columns] or [functions.lit(0).alias("nothing")]
    kinds = {f.name: f.dataType for f in frame.schema.fields}
    for i, name in enumerate(columns):
        if getattr(kinds[name], "collation", "UTF8_BINARY") != "UTF8_BINARY":
            chosen[i] = functions.collate(chosen[i], "UTF8_BINARY").alias(name)
    return frame.select(*chosen)


def _dropped(spark: Any, views: list[str]) -> None:
    for view in views:
        let_go(spark, view, None)
