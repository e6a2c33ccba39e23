"""Capped: rows go by public rules, one row more moves no more than declared, and noisy numbers alone decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin import constants
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Engine
from dpjoin.methods import look
from dpjoin.methods.method import Outcome
from dpjoin.privacy.accounting import Budget
from support.audit import audited
from support.brute import BruteEngine
from support.capped import ANY, BLUNT, SHARP, run_on, schema_of
from support.engines import arrow_tables
from support.skewed import Rows, changed, skewed_rows


def audits(shape: str, count: int, levels: Sequence[float], budget: Budget) -> list[Outcome]:
    """Replay on `count` neighbours; what was published."""
    rng = np.random.default_rng([len(shape), count, len(levels)])
    found = []
    for _ in range(count):
        schema = schema_of(shape)
        workload = dj.Workload.marginals(schema, 1)
        rows = skewed_rows(schema, rng)
        run = run_on(lambda tables, schema=schema: BruteEngine(schema, tables), workload, budget)
        wrong, outcome = audited(run, rows, changed(schema, rows, rng), budget)
        assert wrong == []
        found.append(outcome)
    return found


@pytest.mark.parametrize("fade", [True, False], ids=["fading", "hard"])
@pytest.mark.parametrize("levels", [(0.0, 0.1), (0.5,)], ids=["loose", "strict"])
@pytest.mark.parametrize("shape", ANY)
def test_replay_on_neighbours(
    shape: str, levels: tuple[float, ...], fade: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same questions, declared moves, the whole budget; also where the caps cut half of the rows."""
    monkeypatch.setattr(constants, "CAP_LEVELS", levels)
    if not fade:
        monkeypatch.setattr(look, "fading_price", lambda workload: None)
    audits(shape, 4, levels, SHARP)
    audits(shape, 2, levels, BLUNT)


@pytest.mark.full
@pytest.mark.parametrize("levels", [(0.0, 0.1), (0.5,)], ids=["loose", "strict"])
@pytest.mark.parametrize("shape", ANY)
def test_replay_on_many_neighbours(shape: str, levels: tuple[float, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "CAP_LEVELS", levels)
    audits(shape, 300, levels, SHARP)


def two_columns(rng: np.random.Generator, values: int, count: int, name: str) -> list[dict[str, int]]:
    return [{"A": int(rng.integers(values)), name: int(rng.integers(4))} for _ in range(count)]


def test_replay_on_the_engine_that_numbers_and_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """On DuckDB's engine a row more changes numbers of keys and whether rows are merged; what is kept must not."""
    monkeypatch.setattr(constants, "CAP_LEVELS", (0.5,))
    schema = schema_of("two")
    workload = dj.Workload.marginals(schema, [1, 2])
    rng = np.random.default_rng(8)
    for n in range(6):
        count = int(rng.integers(3, 400))
        rows: Rows = {"r": two_columns(rng, 3, count, "B"), "s": two_columns(rng, 3, count, "C")}

        def made(tables: Any) -> Engine:
            return DuckEngine(schema, arrow_tables(schema, tables), attributes=schema.queryable)

        wrong, _ = audited(run_on(made, workload, SHARP), rows, changed(schema, rows, rng), SHARP)
        assert wrong == [], n
