"""What every store must do: the same integers as the definitions, from the same rows, wherever they lie.

A store takes part by a function that loads Arrow tables and says what sources name them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Labels, RowWeights
from dpjoin.spec.schema import DegreeBound
from dpjoin.spec.workload import Workload
from support import postgres
from support.brute import BruteEngine
from support.engines import arrow_tables, assert_equal
from support.strategies import SHAPES, random_instance, random_many

Load = Callable[[Mapping[str, pa.Table]], dict[str, Any]]
STORES = ("files", "postgres", "mixed")


def _files(folder: Path) -> Load:
    def load(tables: Mapping[str, pa.Table]) -> dict[str, Any]:
        for name, table in tables.items():
            pq.write_table(table, folder / f"{name}.parquet")
        return {name: folder / f"{name}.parquet" for name in tables}

    return load


@pytest.fixture
def load(request: pytest.FixtureRequest, tmp_path: Path) -> Load:
    """How the store under test takes tables; mixed: one table of a join lies elsewhere than the others."""
    kind = request.param
    if kind == "files":
        return _files(tmp_path)
    server: postgres.Server = request.getfixturevalue("postgres_server")
    if kind == "postgres":
        return server.load

    def mixed(tables: Mapping[str, pa.Table]) -> dict[str, Any]:
        first, *_ = tables
        return {**server.load(tables), **_files(tmp_path)({first: tables[first]})}

    return mixed


every_store = pytest.mark.parametrize("load", STORES, indirect=True)
servers = pytest.mark.parametrize("load", ["postgres", "mixed"], indirect=True)


@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(s, marks=pytest.mark.full) for s in range(8, 25))])
@servers
def test_random_joins_of_two(load: Load, seed: int) -> None:
    """Six instances for each seed: sizes, boundaries and answers are those of the definitions."""
    rng = np.random.default_rng([25, seed])
    for _ in range(6):
        schema, workload, tables = random_instance(rng)
        assert_equal(schema, workload, tables, load(arrow_tables(schema, tables)))


@pytest.mark.parametrize("shape", sorted(SHAPES))
@servers
def test_random_joins_of_many(load: Load, shape: str) -> None:
    rng = np.random.default_rng([26, len(shape)])
    schema, workload, tables = random_many(rng, shape)
    assert_equal(schema, workload, tables, load(arrow_tables(schema, tables)))


def answers(engine: Any, workload: Workload) -> list[list[int]]:
    return [[engine.exact_join_size()], *(found.tolist() for found in engine.exact_answers(workload.groups))]


@pytest.mark.parametrize("seed", range(6))
@every_store
def test_what_bounds_caps_weights_and_labels_leave(load: Load, seed: int) -> None:
    """The same rows stay under declared bounds, caps, weights and restrictions, and of one table alone."""
    rng = np.random.default_rng([27, seed])
    schema, workload, tables = random_instance(rng)
    joins = schema.join_attributes
    limit = DegreeBound(attributes=joins, limit=int(rng.integers(1, 3)))
    bounded = tuple(replace(t, bounds=(limit,), enforce=True) for t in schema.tables)
    within = replace(schema, tables=bounded)
    sources = load(arrow_tables(schema, tables))
    first = schema.tables[0].name
    for one in (schema, within):
        asked = workload if one is schema else Workload(one, workload.groups)
        brute, engine = BruteEngine(one, tables), DuckEngine(one, sources, attributes=one.queryable)
        assert answers(engine, asked) == answers(brute, asked)
        capped = {first: [replace(limit, limit=1)]}
        assert answers(engine.capped(capped), asked) == answers(brute.capped(capped), asked)
        weights = {first: RowWeights(joins, np.array([4, 2, 1]), 4)}
        assert answers(engine.weighted(weights), asked) == answers(brute.weighted(weights), asked)
        found = engine.exact_degrees({first: {}}, joins)
        wanted = brute.exact_degrees({first: {}}, joins)
        values = [
            list(zip(d.exact_values(np.arange(len(d.exact_counts))), d.exact_counts.tolist(), strict=True))
            for d in (found, wanted)
        ]
        assert sorted(values[0], key=repr) == sorted(values[1], key=repr)
        some = [value for value, _ in values[1]][:3]
        labels = Labels("some", joins, dict.fromkeys(some, 1))
        rules = {first: {labels: 1}}
        assert answers(engine.restricted(rules), asked) == answers(brute.restricted(rules), asked)


@every_store
def test_empty_tables(load: Load) -> None:
    schema, workload, tables = random_instance(np.random.default_rng(3))
    empty: dict[str, Any] = {name: [] for name in tables}
    brute = BruteEngine(schema, empty)
    engine = DuckEngine(schema, load(arrow_tables(schema, empty)), attributes=schema.queryable)
    assert answers(engine, workload) == answers(brute, workload)
