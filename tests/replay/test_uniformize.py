"""Uniformize: parts cut the join exactly, their caps hold on both neighbours, a row pays for one part only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpjoin.methods.method import Outcome
from dpjoin.privacy.curator import Curator
from support.audit import Tape, audited
from support.brute import BruteEngine
from support.skewed import GENEROUS, SHAPES, changed, schema_of, skewed_rows
from support.uniformized import run_on


def many_audits(shape: str, profile: str, count: int) -> None:
    rng = np.random.default_rng([len(shape), profile == "tight", count])
    several = 0
    for turn in range(count):
        schema = schema_of(shape, public="s" if turn % 5 == 4 else None)
        rows = skewed_rows(schema, rng)

        def run(kind: type[Curator], tables: Any, tape: Tape) -> tuple[Outcome, Curator]:
            return run_on(BruteEngine(schema, tables), kind, profile, tape)  # noqa: B023

        found, outcome = audited(run, rows, changed(schema, rows, rng), GENEROUS)
        assert found == []
        several += len(outcome.parts) > 1
    # Otherwise the test would say nothing about partitions.
    assert several >= count // 10 or shape == "figure4"


@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replay_on_neighbours(shape: str, profile: str) -> None:
    """Same questions, declared moves hold, nobody pays more than the ledger says, which is the whole budget."""
    many_audits(shape, profile, 12)


@pytest.mark.full
@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replay_on_many_neighbours(shape: str, profile: str) -> None:
    many_audits(shape, profile, 300)
