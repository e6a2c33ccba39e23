"""Tables for engines, and an engine against the brute-force definitions."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

from dpjoin.engine.brute import BruteEngine
from dpjoin.engine.duck import DuckEngine
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload
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
