"""Joins of three and more tables: declared bounds are sound, replay passes, and a release comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.measure.progress import silent
from dpjoin.measure.shares import tight_shares
from dpjoin.methods.as_one import as_one_tight
from dpjoin.paper.alg1_two_table import two_table_paper
from dpjoin.privacy.accounting import Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public, churn
from support.audit import Tape, attach, ledger_violations, replay_violations
from support.brute import BruteEngine
from support.many_tables import BUDGET, SHAPES, make_rows, make_schema
from support.strategies import neighbour


def _runner(schema: dj.Schema, workload: dj.Workload, profile: str, ledgers: list[Any]) -> Any:
    def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
        engine = BruteEngine(schema, tables)
        if profile == "tight":
            shares = tight_shares(BUDGET, noisy_bound=not bound_is_public(schema), sensitivity=max(1, churn(schema)))
            curator = attach(kind(engine, shares.split), tape)
            outcome = as_one_tight(curator, workload, shares, silent)
        else:
            curator = attach(kind(engine, Split(budget=BUDGET, paper=True)), tape)
            outcome = two_table_paper(curator, workload, BUDGET.exact, silent)
        ledgers.append(curator.ledger)
        return np.append(outcome.model.table.reshape(-1), [outcome.noisy_total, outcome.sensitivity])

    return run


@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replay_on_random_neighbours(shape: str, profile: str) -> None:
    """Any join, with public tables and enforced bounds: same questions, declared moves hold, same publication."""
    rng = np.random.default_rng([3, len(shape), profile == "tight"])
    for turn in range(12):
        schema = make_schema(shape, rng if turn % 2 else None)
        workload = dj.Workload.marginals(schema, 1)
        tables, ledgers = make_rows(schema, rng), []
        run = _runner(schema, workload, profile, ledgers)
        assert replay_violations(run, tables, neighbour(rng, schema, tables)) == []
        assert ledger_violations(ledgers[0], BUDGET) == []
