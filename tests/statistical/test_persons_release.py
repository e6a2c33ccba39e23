"""Releases that protect a person: replay on neighbours, ledgers, refusals, an attack, and the way from a spec file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.engine.interface import Clip
from dpjoin.privacy.instance import Bound, Instance
from support.owners import (
    SHAPES,
)

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


def worlds(rng: np.random.Generator) -> tuple[dict[str, pa.Table], dict[str, pa.Table]]:
    """A hundred patients with a visit each, and one with eighty of a kind of their own; with and without that one."""
    others = np.arange(1, 101)
    visits = {"o": others, "v": others, "a": rng.integers(0, 2, 100)}
    drugs = {"v": others, "b": rng.integers(0, 2, 100)}
    mine = np.arange(1000, 1080)
    visits_with = {"o": np.append(visits["o"], np.zeros(80, int)), "v": np.append(visits["v"], mine)}
    visits_with["a"] = np.append(visits["a"], np.full(80, 2))
    drugs_with = {"v": np.append(drugs["v"], mine), "b": np.append(drugs["b"], np.full(80, 2))}
    return (
        {"r": pa.table(visits_with), "s": pa.table(drugs_with)},
        {"r": pa.table(visits), "s": pa.table(drugs)},
    )


def advantage(schema: dj.Schema, runs: int, **asked: Any) -> float:
    """How far apart the best of three attackers tells the worlds: by the size, by the person's cell, by its share."""
    workload = dj.Workload.marginals(schema, [("a", "b")])
    seen: list[list[list[float]]] = []
    for tables in worlds(np.random.default_rng(0)):
        told = []
        for _ in range(runs):
            answers = dj.release(schema, workload, tables, BUDGET, **asked).answer()
            told.append([float(answers.sum()), float(answers[-1]), float(answers[-1] / max(1.0, answers.sum()))])
        seen.append(told)
    best = 0.0
    for attacker in range(3):
        inside, outside = (np.array([t[attacker] for t in some]) for some in seen)
        for threshold in np.concatenate([inside, outside]):
            best = max(best, abs(float((inside >= threshold).mean() - (outside >= threshold).mean())))
    return best


DEEP = SHAPES["deep"]
ALL = replace(DEEP, max_results=80)
"""As many results count as the person has: noise alone hides it."""


@pytest.mark.parametrize("schema", [DEEP, ALL], ids=["a limit is chosen", "a limit is declared"])
def test_an_attacker_who_knows_everything_else_hardly_learns_of_a_person(schema: dj.Schema) -> None:
    """At (1, 1e-6) no test has an advantage above (e - 1)/(e + 1) = .46."""
    runs = 60
    tolerance = np.sqrt(np.log(3 * 2 * 2 * runs) / (2 * runs))
    assert advantage(schema, runs) <= 0.4622 + tolerance


def test_the_same_attacker_finds_a_person_where_rows_are_protected() -> None:
    rows = replace(DEEP, unit=(), tables=tuple(replace(t, owner_via=None) for t in DEEP.tables))
    assert advantage(rows, 20) > 0.9


def test_the_same_attacker_finds_a_person_where_the_limit_is_charged_as_one_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Instance, "public_bound", lambda self: Bound(self.clip.full))
    assert advantage(ALL, 20) > 0.9


def test_the_same_attacker_finds_a_person_where_nothing_is_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clip, "of", lambda self, results: np.full(len(results), self.full))
    assert advantage(replace(DEEP, max_results=1), 20) > 0.9
