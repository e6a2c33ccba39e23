"""Tables for engines, and an engine against the brute-force definitions."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from dpjoin.engine import scan
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.memory import Memory
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload
from support.brute import BruteEngine
from support.strategies import Tables

ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def arrow_tables(schema: Schema, tables: Tables) -> dict[str, pa.Table]:
    """The rows as Arrow tables; a join attribute has the same type in all its tables."""
    found: dict[str, pa.Table] = {}
    for table in schema.tables:
        arrays = []
        for attribute in table.attributes:
            seen = [
                row[schema.table(t).column(attribute)]
                for t in schema.tables_with(attribute)
                for row in tables[t]
                if row[schema.table(t).column(attribute)] is not None
            ]
            domain = schema.attribute(attribute).values
            kind = type(seen[0]) if seen else str if domain and isinstance(domain[0], str) else int
            arrays.append(pa.array([row[table.column(attribute)] for row in tables[table.name]], ARROW[kind]))
        found[table.name] = pa.table(arrays, names=[table.column(a) for a in table.attributes])
    return found


def small_partitions(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Make engines work as on many rows: two times of three in partitions of a few rows, sometimes from a file, and
    sometimes grouped by the store; every third time as on few."""
    small = seed % 3
    monkeypatch.setattr(scan, "WHOLE_ROWS", 0 if small else 3_000_000)
    monkeypatch.setattr(scan, "BATCH_ROWS", (2**20, 4, 1)[small])
    monkeypatch.setattr(scan, "ALIKE", 0 if seed % 5 == 0 else 4)
    monkeypatch.setattr(Memory, "room", 0 if seed % 4 < 2 else 300)
    monkeypatch.setattr(Memory, "rows_at_once", lambda memory, workers: 2 + seed % 7)


def assert_equal(schema: Schema, workload: Workload, tables: Tables, sources: dict[str, Any]) -> None:
    brute = BruteEngine(schema, tables)
    engine = DuckEngine(schema, sources, attributes=workload.attributes)
    assert engine.exact_join_size() == brute.exact_join_size()
    names = [t.name for t in schema.tables]
    for count in range(len(names) + 1):
        for some in itertools.combinations(names, count):
            assert engine.exact_boundary(frozenset(some)) == brute.exact_boundary(frozenset(some)), some
    pairs = zip(
        workload.groups, engine.exact_answers(workload.groups), brute.exact_answers(workload.groups), strict=True
    )
    for group, fast, slow in pairs:
        assert fast.shape == slow.shape == (len(group),)
        assert fast.tolist() == slow.tolist(), group.name
