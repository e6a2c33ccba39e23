"""A cluster that DuckDB plays: the same SQL as on Spark but for a few words, in this process."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from dpjoin.engine.cluster import Cluster, exact_integers, fetching
from dpjoin.engine.cluster_scan import FrozenScans, scan_of, written
from dpjoin.engine.cluster_tables import ClusterTables, tables_on_cluster
from dpjoin.engine.dialect import DUCKDB
from dpjoin.engine.duck import DuckStore
from dpjoin.engine.local import LocalEngine
from dpjoin.engine.memory import memory_of
from dpjoin.engine.relations import Relation, eliminate, whole
from dpjoin.engine.scan import Scan
from dpjoin.engine.tables import Tables
from dpjoin.spec.schema import Schema


@dataclass
class Held:
    name: str


class DuckCluster:
    dialect = DUCKDB

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._connection = duckdb.connect(config={"threads": 1})
        self._numbers = itertools.count()

    def exact_query(self, sql: str) -> Any:
        self.asked.append(sql)
        # A HUGEINT would come home as a float.
        kinds = self._connection.execute(f"DESCRIBE {sql}").fetchall()
        columns = [f'CAST("{c}" AS DECIMAL(38,0)) AS "{c}"' if k == "HUGEINT" else f'"{c}"' for c, k, *_ in kinds]
        return self._connection.sql(f"SELECT {', '.join(columns)} FROM ({sql})").to_arrow_table()

    def frozen(self, sql: str) -> Held:
        held = Held(f"frozen{next(self._numbers)}")
        self._connection.execute(f"CREATE TABLE {held.name} AS {sql}")
        return held

    def uploaded(self, rows: Any) -> Held:
        held = Held(f"listed{next(self._numbers)}")
        self._connection.register("incoming", rows)
        self._connection.execute(f"CREATE TABLE {held.name} AS SELECT * FROM incoming")
        return held


def cluster_engine(
    schema: Schema, sources: Mapping[str, Any], cluster: Cluster, attributes: Sequence[str]
) -> LocalEngine:
    """An engine whose rows stay on the cluster, which gets them from sources at home."""

    def read(schema: Schema) -> ClusterTables | Tables:
        store = DuckStore(schema.tables, sources, memory_of(None))
        touched = schema.in_order(attributes)
        scans = {t.name: scan_of(schema, Scan(schema, t, touched, store.opened)) for t in schema.tables}
        rows = {}
        for name, scan in scans.items():
            sent = cluster.uploaded(store.exact_query(name, scan.sql(grouped=True)))
            rows[name] = written(cluster, scan, f"SELECT * FROM {sent.name}")
        store.close()
        frozen = FrozenScans(schema, cluster, scans, rows)
        return tables_on_cluster(schema, cluster, frozen.tables(), frozen.kinds(), frozen.home)

    return LocalEngine(schema, schema.in_order(attributes), read)


def relation_of(cluster: Cluster, columns: str, rows: Mapping[tuple[int, ...], int]) -> Relation:
    """Counts by some columns, each named by one letter, on the cluster."""
    arrays = [pa.array([key[i] for key in rows], pa.int64()) for i in range(len(columns))]
    sent = cluster.uploaded(pa.table([*arrays, pa.array(list(rows.values()), pa.int64())], names=[*columns, "n"]))
    return Relation(sent.name, tuple(columns), sum(rows.values()), max(1, *rows.values()), len(rows), (sent,))


def random_factor(rng: np.random.Generator, columns: str, high: int) -> dict[tuple[int, ...], int]:
    """Large counts of a few values."""
    keys = {tuple(int(v) for v in rng.integers(0, 4, len(columns))) for _ in range(9)}
    return {key: int(rng.integers(max(1, high // 2), high)) for key in sorted(keys)}


def sum_of_products(
    factors: Sequence[tuple[str, Mapping[tuple[int, ...], int]]], keep: str
) -> dict[tuple[int, ...], int]:
    """By definition: over all combinations of rows that agree, in Python integers."""
    found: Counter[tuple[int, ...]] = Counter()
    for combination in itertools.product(*(rows.items() for _, rows in factors)):
        values: dict[str, int] = {}
        pairs = [
            (c, v)
            for (columns, _), (key, _) in zip(factors, combination, strict=True)
            for c, v in zip(columns, key, strict=True)
        ]
        if all(values.setdefault(c, v) == v for c, v in pairs):
            found[tuple(values[c] for c in keep)] += math.prod(n for _, n in combination)
    return dict(found)


def assert_sums_of_products(
    cluster: Cluster, factors: Sequence[tuple[str, Mapping[tuple[int, ...], int]]], keep: str
) -> None:
    """What is left after elimination, and its maximum, equal the definition."""
    made = [relation_of(cluster, columns, rows) for columns, rows in factors]
    expected = sum_of_products(factors, keep)
    found = cluster.exact_query(fetching(cluster, f"SELECT * FROM {whole(made, keep).sql} w"))
    columns = [exact_integers(found.column(c)).tolist() for c in keep]
    keys = zip(*columns, strict=True) if columns else [()] * found.num_rows
    assert dict(zip(keys, map(int, exact_integers(found.column("n"))), strict=True)) == expected
    (largest,) = eliminate(eliminate(made, keep), (), maximum=True)
    best = cluster.exact_query(fetching(cluster, f"SELECT n FROM {largest.sql} w")).column("n").to_pylist()
    assert max(map(int, best), default=0) == max(expected.values(), default=0)
