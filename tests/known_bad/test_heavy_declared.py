"""heavy_light on declared keys. Degrees of all values, heavy ones table by table, light ones capped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.methods import heavy_light
from dpjoin.methods.heavy_light import (
    Known,
)
from dpjoin.privacy.curator import Curator
from support.audit import audited
from support.brute import BruteEngine
from support.heavy_declared import run_on, schema_of
from support.heavy_light import SHARP, forced
from support.skewed import changed


def wrong_on(schema: dj.Schema, workload: dj.Workload, rows: Any, rng: np.random.Generator) -> list[str]:
    """What an audit with little noise finds on some rows and a neighbour of theirs."""
    run = run_on(lambda tables: BruteEngine(schema, tables), workload, SHARP)
    return list(audited(run, rows, changed(schema, rows, rng), SHARP)[0])


def test_heavy_values_by_exact_degrees_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heavy values as they are: the neighbour has others, and asks other questions or publishes something else."""
    monkeypatch.setattr(heavy_light, "best_choice", forced(1, 2))

    honest = heavy_light.all_values

    def exact_degrees(curator: Curator, degrees: Any) -> Known:
        found = {}
        for table in curator.schema.tables:
            exact = curator._engine.exact_degrees({table.name: {}}, ("A",))
            counts = np.zeros(5)
            for (value,), count in zip(
                exact.exact_values(np.arange(len(exact.exact_counts))), exact.exact_counts, strict=True
            ):
                counts[int(str(value))] = count
            found[table.name] = counts
        return replace(honest(curator, degrees), rows=found)

    monkeypatch.setattr(heavy_light, "all_values", exact_degrees)
    schema = schema_of("two")
    workload = dj.Workload.marginals(schema, 1)
    rng = np.random.default_rng(2)
    for _ in range(40):
        # Two values that are about equally frequent: a row decides which of them is the heavy one.
        rows = {
            t: [{"A": v, a: int(rng.integers(3))} for v in (0, 1) for _ in range(3 + rng.integers(2))]
            for t, a in (("r", "p"), ("s", "q"))
        }
        if any("total" not in w for w in wrong_on(schema, workload, rows, rng)):
            return
    pytest.fail("exact degrees were not caught")
