"""After a look, what is left of rho may be exchanged for Laplace noise: by noisy numbers, and never for more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin import constants
from dpjoin.auto import choose as auto
from dpjoin.auto.choose import auto_shares, auto_tight
from dpjoin.methods import heavy_light, per_table
from dpjoin.methods.heavy_light import heavy_light_shares, heavy_light_tight
from dpjoin.methods.per_table import per_table_shares, per_table_tight
from dpjoin.methods.remainder import after_look_budget as optional
from support.audit import DELTA_LEFT, audited, tight_run
from support.auto import bounded, declared, force_forecast
from support.brute import BruteEngine
from support.remainder import BUDGET, SHARP, only_laplace, settled_on
from support.skewed import changed, skewed_rows

METHODS: dict[str, tuple[Any, Any, Any]] = {
    "auto": (auto, auto_shares, auto_tight),
    "heavy_light": (heavy_light, heavy_light_shares, heavy_light_tight),
    "per_table": (per_table, per_table_shares, per_table_tight),
}


AT_ONCE = "at once: "
"""Before the method that a first look is made to settle on."""


def audits(method: str, shape: str, way: str | None, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, shares, run = METHODS[method]
    monkeypatch.setattr(module, "remainders", only_laplace)
    early = way is not None and way.startswith(AT_ONCE)
    if early:
        assert way is not None
        way = way.removeprefix(AT_ONCE)
        monkeypatch.setattr(auto, "early_forecasts", settled_on(way))
        monkeypatch.setattr(constants, "CLEAR_ERROR", np.inf)
        monkeypatch.setattr(constants, "MISCOUNTED", np.inf)
    else:
        monkeypatch.setattr(auto, "early_forecasts", lambda *_: [])
        monkeypatch.setattr(per_table, "clear_error", lambda *_: None)
    chosen = heavy_light.choice_after
    monkeypatch.setattr(heavy_light, "choice_after", lambda *given: replace(chosen(*given), heavy=3 if early else 0))
    if way is not None and not early:
        force_forecast(way, monkeypatch)
    rng = np.random.default_rng([len(method), len(shape)])
    for turn in range(count):
        schema = bounded(shape, 30) if way == "two_table" else declared(shape)
        workload = dj.Workload.marginals(schema, [1, 2] if shape == "two" else 1)
        rows = skewed_rows(schema, rng)
        budget = SHARP if turn % 2 else BUDGET
        made = tight_run(
            lambda tables, schema=schema: BruteEngine(schema, tables),
            shares,
            run,
            workload,
            budget,
            optional,
        )
        wrong, outcome = audited(made, rows, changed(schema, rows, rng), budget)
        # auto sets delta aside for listed degrees, which this is not.
        assert [w for w in wrong if method != "auto" or w != DELTA_LEFT] == []
        assert way is None or outcome.method in (way, None)


@pytest.mark.parametrize(
    ("method", "shape", "way"),
    [
        ("heavy_light", "two", None),
        ("heavy_light", "star", None),
        ("per_table", "two", None),
        ("per_table", "path", None),
        ("per_table", "triangle", None),
        ("auto", "two", None),
        ("auto", "two", "heavy_light"),
        ("auto", "two", "per_table"),
        ("auto", "two", "two_table"),
        ("auto", "path", "per_table"),
        ("auto", "two", AT_ONCE + "per_table"),
        ("auto", "two", AT_ONCE + "heavy_light"),
        ("auto", "star", AT_ONCE + "heavy_light"),
        ("auto", "two", AT_ONCE + "two_table"),
        ("per_table", "two", AT_ONCE + "per_table"),
        ("heavy_light", "two", AT_ONCE + "heavy_light"),
    ],
)
def test_replay_on_neighbours(method: str, shape: str, way: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same questions and declared moves, in l1 under Laplace noise, and all of it is spent."""
    audits(method, shape, way, 6, monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize(
    ("method", "shape", "way"),
    [
        ("heavy_light", "two", None),
        ("per_table", "two", None),
        ("per_table", "path", None),
        ("auto", "two", "two_table"),
    ],
)
def test_replay_on_many_neighbours(method: str, shape: str, way: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    audits(method, shape, way, 300, monkeypatch)
