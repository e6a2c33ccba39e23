"""Few marginals are measured once, with Laplace noise: what it costs, what is promised, and how good it is."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import dpjoin as dj
from dpjoin.privacy.accounting import (
    Accountant,
    Concentrated,
    Split,
    laplace_cost,
)
from dpjoin.privacy.curator import Curator
from support.audit import audited, ledger_violations
from support.brute import BruteEngine
from support.laplace import BUDGET, pair, single_runs
from support.one_table import schema_of


def test_laplace_noise_for_a_move_in_l2_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that joins rows of several cells moves their marginal further in l1 than in l2."""
    monkeypatch.setattr("dpjoin.privacy.curator.Curator.measure", _too_short)
    schema = pair(3)
    workload = dj.Workload.marginals(schema, 2)
    rows = {
        "r": [{"A": 0, "p": 0}, {"A": 1, "p": 1}],
        "s": [*({"A": 0, "q": q} for q in range(3)), {"A": 1, "q": 0}],
    }
    other = {**rows, "r": rows["r"][1:]}
    wrong, _ = audited(single_runs(BUDGET, workload), rows, other, BUDGET)
    assert any("sensitivity" in w for w in wrong)


def _too_short(curator: Curator, group: Any, bound: Any, cost: Concentrated) -> Any:
    honest = replace(bound, value=bound.value)
    short = type(bound)(max(1, int(bound.value**0.5)))
    curator._minted += [honest, short]
    return MEASURE(curator, group, short, cost)


MEASURE = Curator.measure


def test_epsilon_spent_twice_is_caught() -> None:
    """All of epsilon as Laplace noise, and all of rho beside it: every charge fits, and the audit adds them up."""
    schema = schema_of(2, 3)
    workload = dj.Workload.marginals(schema, 2)
    engine = BruteEngine(schema, {"t": [{"x0": 0, "x1": 0}]})
    honest = Curator(engine, Split(budget=replace(BUDGET, laplace=Fraction(1, 2))))
    twice = Curator(engine, Split(budget=BUDGET))
    limit = Concentrated(BUDGET.rho(), epsilon=BUDGET.exact.epsilon)
    twice._gate = replace(twice._gate, accountant=Accountant(limit, BUDGET.composition))
    for curator, caught in ((honest, False), (twice, True)):
        bound = curator.public_bound()
        assert bound is not None
        curator.measure(workload.groups[0], bound, laplace_cost(curator.laplace_left))
        curator.join_size(bound, Concentrated(curator.rho_left))
        assert bool(ledger_violations(curator.ledger, BUDGET)) == caught
