"""heavy_light on declared keys. Degrees of all values, heavy ones table by table, light ones capped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Engine
from dpjoin.methods import heavy_light
from support.audit import audited
from support.brute import BruteEngine
from support.engines import arrow_tables
from support.heavy_declared import BLUNT, run_on, schema_of
from support.heavy_light import SHARP, forced
from support.skewed import changed, skewed_rows


def audits(shape: str, count: int) -> None:
    rng = np.random.default_rng([len(shape), count])
    for turn in range(count):
        schema = schema_of(shape)
        workload = dj.Workload.marginals(schema, 1)
        rows = skewed_rows(schema, rng)
        budget = SHARP if turn % 2 else BLUNT
        run = run_on(lambda tables, schema=schema: BruteEngine(schema, tables), workload, budget)
        wrong, _ = audited(run, rows, changed(schema, rows, rng), budget)
        assert wrong == []


@pytest.mark.parametrize("choice", [None, (0, 1), (2, 1), (2, 3), (5, 2)])
@pytest.mark.parametrize("shape", ["two", "star", "contained", "nested"])
def test_replay_on_neighbours(shape: str, choice: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same questions, declared moves, the whole budget, whatever is heavy and wherever light values are capped."""
    if choice is not None:
        monkeypatch.setattr(heavy_light, "best_choice", forced(*choice))
    audits(shape, 4)


@pytest.mark.full
@pytest.mark.parametrize("choice", [(2, 1), (2, 3)])
@pytest.mark.parametrize("shape", ["two", "star", "contained", "nested"])
def test_replay_on_many_neighbours(shape: str, choice: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy_light, "best_choice", forced(*choice))
    audits(shape, 300)


def test_replay_on_the_engine_that_numbers_and_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heavy_light, "best_choice", forced(1, 2))
    schema = schema_of("two")
    workload = dj.Workload.marginals(schema, [1, 2])
    rng = np.random.default_rng(1)
    for _ in range(4):
        rows = skewed_rows(schema, rng)

        def made(tables: Any) -> Engine:
            return DuckEngine(schema, arrow_tables(schema, tables), attributes=schema.queryable)

        wrong, _ = audited(run_on(made, workload, SHARP), rows, changed(schema, rows, rng), SHARP)
        assert wrong == []
