"""The join of two tables, released as one, for replay on neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpjoin.measure.progress import silent
from dpjoin.measure.shares import tight_shares
from dpjoin.methods.as_one import as_one_tight
from dpjoin.paper.alg1_two_table import two_table_paper
from dpjoin.privacy.accounting import Budget, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload
from support.audit import Tape, attach
from support.brute import BruteEngine

BUDGET = Budget(epsilon=1.0, delta=1e-6)


def runner(schema: Schema, workload: Workload, profile: str, ledgers: list[Any] | None = None) -> Any:
    """The real algorithm as a `Run`: what it publishes is the model's table, its bars and the facts."""

    def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
        engine = BruteEngine(schema, tables)
        if profile == "tight":
            shares = tight_shares(BUDGET, noisy_bound=not bound_is_public(schema))
            curator = attach(kind(engine, shares.split), tape)
            outcome = as_one_tight(curator, workload, shares, silent)
        else:
            curator = attach(kind(engine, Split(budget=BUDGET, paper=True)), tape)
            outcome = two_table_paper(curator, workload, BUDGET.exact, silent)
        if ledgers is not None:
            ledgers.append(curator.ledger)
        bars = [outcome.model.error(g, 0.9) for g in workload.groups]
        facts = np.array([outcome.noisy_total, outcome.sensitivity], dtype=float)
        return np.nan_to_num(np.concatenate([outcome.model.table.reshape(-1), facts, *bars]), nan=-1.0)

    return run
