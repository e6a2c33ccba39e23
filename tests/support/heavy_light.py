"""Heavy-light and per-table releases of small joins, and what replay finds wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.engine.interface import Engine
from dpjoin.measure import join as as_one
from dpjoin.measure.progress import silent
from dpjoin.measure.ranks import EDGES
from dpjoin.methods import heavy_light
from dpjoin.methods.heavy_light import Choice, heavy_light_shares, heavy_light_tight
from dpjoin.methods.method import Outcome
from dpjoin.methods.per_table import per_table_shares, per_table_tight
from dpjoin.model.ensemble import ensemble
from dpjoin.privacy.accounting import Budget
from dpjoin.privacy.curator import Curator
from dpjoin.spec.schema import DegreeBound
from dpjoin.spec.workload import Workload
from support.audit import (
    Tape,
    attach,
    ledger_violations,
    overpaid,
    published,
    replay_violations,
)
from support.brute import BruteEngine
from support.skewed import GENEROUS, Rows, skewed_rows
from support.skewed import SHAPES as COMMON

SHARP = Budget(epsilon=50.0, delta=1e-6)
"""Noise of less than one row: answers are close to exact ones, values of four rows are listed, and noise that a
neighbour cannot have (what delta is for) does not come up in a million runs, bounds enforced or not."""


DECLARED = dj.Attribute(name="A", range=(0, 3))


ANY = {**COMMON, "path": {"r": "AB", "s": "BC", "t": "CD"}, "triangle": {"r": "AB", "s": "BC", "t": "CA"}}
"""Per table serves any join."""


def schema_of(shape: str, key: dj.Attribute, *, bounded: bool = False) -> dj.Schema:
    """Private tables, three values for each attribute but A; `bounded`: few of r's rows for each value of its last."""
    tables = [dj.Table(name=t, attributes=tuple(x)) for t, x in ANY[shape].items()]
    if bounded:
        first = tables[0]
        bounds = (DegreeBound(attributes=first.attributes[-1:], limit=5),)
        tables[0] = replace(first, bounds=bounds, enforce=True)
    names = sorted({a for t in tables for a in t.attributes})
    return dj.Schema(tuple(tables), tuple(key if a == "A" else dj.Attribute(name=a, range=(0, 2)) for a in names))


def hot_rows(schema: dj.Schema, rng: np.random.Generator) -> Rows:
    """Skewed rows, and a value of A (often two) that is hot in most tables."""
    rows = skewed_rows(schema, rng)
    few = len(schema.tables) > 3
    for hot in rng.permutation(4)[: 1 if few else rng.integers(1, 3)]:
        for table in schema.tables:
            count = int(rng.integers(3, 8) if few else rng.integers(0, 10))
            rows[table.name] += [
                {a: int(hot) if a == "A" else int(rng.integers(0, 3)) for a in table.attributes} for _ in range(count)
            ]
    return rows


def forced(count: int, cap: int) -> Callable[..., Choice]:
    """Any choice is sound. On few rows the forecast would call no value heavy."""

    def chosen(*_: Any, **__: Any) -> Choice:
        return Choice(count, cap, np.zeros(len(EDGES)), 1.0, 1.0)

    return chosen


@contextmanager
def few_members() -> Iterator[pytest.MonkeyPatch]:
    """Two refits for error bars instead of a dozen: they take most of the time, and see noisy answers only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(as_one, "ensemble", partial(ensemble, members=2))
        yield patch


def heavy_light_on(
    engine: Engine,
    kind: type[Curator],
    tape: Tape,
    *,
    choice: Callable[..., Choice],
    budget: Budget = GENEROUS,
    workload: Workload | None = None,
) -> tuple[Outcome, Curator]:
    schema = engine.schema
    shares = heavy_light_shares(budget, schema)
    curator = attach(kind(engine, shares.split), tape)
    with few_members() as patch:
        patch.setattr(heavy_light, "best_choice", choice)
        return heavy_light_tight(curator, workload or Workload.marginals(schema, 1), shares, silent), curator


def per_table_on(engine: Engine, kind: type[Curator], tape: Tape) -> tuple[Outcome, Curator]:
    shares = per_table_shares(SHARP, engine.schema)
    curator = attach(kind(engine, shares.split), tape)
    with few_members():
        return per_table_tight(curator, Workload.marginals(engine.schema, 1), shares, silent), curator


def run_on(method: str, engine: Engine, kind: type[Curator], tape: Tape, turn: int = 0) -> tuple[Outcome, Curator]:
    if method == "heavy_light":
        return heavy_light_on(engine, kind, tape, choice=forced(1 + turn % 4, 1 + turn % 3), budget=SHARP)
    return per_table_on(engine, kind, tape)


def told(outcome: Outcome) -> Any:
    """All that is published: the cells, how far off they are, and the public facts."""
    bars = [outcome.model.error(g, 0.95) for g in Workload.marginals(one_way(outcome), 1).groups]
    return np.concatenate([published(outcome), *bars, [len(outcome.parts)]])


def one_way(outcome: Outcome) -> dj.Schema:
    """A schema with the cells of an outcome."""
    sizes = outcome.model.domain.sizes
    return dj.Schema(
        (dj.Table(name="cells", attributes=tuple(sizes)),),
        tuple(dj.Attribute(name=a, range=(0, n - 1)) for a, n in sizes.items()),
    )


def audit(method: str, schema: dj.Schema, rows: Rows, other: Rows, turn: int) -> tuple[list[str], int]:
    """All that replay finds wrong, and how many sub-instances there were."""
    curators: list[Any] = []

    def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
        outcome, curator = run_on(method, BruteEngine(schema, tables), kind, tape, turn)
        curators.append(curator)
        return told(outcome)

    found = replay_violations(run, rows, other)
    first = curators[0]
    if not found:
        found = overpaid(curators[1]) + ledger_violations(first.ledger, SHARP)
        limit = first._gate.accountant.limit
        whole = (limit.rho, limit.delta)
        found += [] if (first.ledger.rho, first.ledger.delta) == whole else ["total: not the budget"]
        found += [] if first.rho_left == 0 else ["total: something is left"]
    return found, sum(part.stage in ("parts", "tables") for part in first.ledger.parts)


def arrow_of(schema: dj.Schema, rows: Rows) -> dict[str, pa.Table]:
    return {
        t.name: pa.table({a: pa.array([r[a] for r in rows[t.name]], pa.int64()) for a in t.attributes})
        for t in schema.tables
    }


TRIES = 8


def problems(
    run: Callable[[type[Curator], Any, Tape], tuple[Any, Curator]], first: Rows, second: Rows
) -> Iterator[str]:
    """Everything that replay finds in some tries, one after the other, on the pair in both directions."""
    for turn in range(TRIES):
        curators: list[Any] = []

        def once(kind: type[Curator], tables: Any, tape: Tape) -> Any:
            released, curator = run(kind, tables, tape)
            curators.append(curator)  # noqa: B023
            return released

        yield from replay_violations(once, *((first, second) if turn % 2 else (second, first)))
        if len(curators) == 2:
            yield from overpaid(curators[1])


KEY = dj.Attribute(name="A", key=True)
