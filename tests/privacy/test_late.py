"""A choice by answers that lag behind has the law of today's answers, and costs no more."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from dpjoin.engine.brute import BruteEngine
from dpjoin.errors import BudgetError
from dpjoin.paper import alg2_pmw as pmw
from dpjoin.privacy.accounting import Budget, Concentrated, Cost, Pure, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.lagging import Lagging
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.workload import Workload, frozen
from support.audit import replay_violations
from support.replay import runner
from support.strategies import neighbour, random_instance

ALARM = 1e-8
SCHEMA = Schema(
    (Table(name="t", attributes=("a", "b")),),
    (Attribute(name="a", range=(0, 3)), Attribute(name="b", range=(0, 2))),
)
ROWS = [{"a": i % 4, "b": (i * i) % 3} for i in range(60)]
WORKLOAD = Workload.marginals(SCHEMA, [1, 2]) + Workload.crossed(
    SCHEMA, {"a": [[0, 1, 1, 0], [1, 1, 0, 0]], "b": [[1, 0.25, -0.5]]}
)
EPSILON = Fraction(1, 4)


class Free:
    """An accountant that lets everything pass: laws are looked at here, not budgets."""

    name = "paper"

    def spend(self, cost: Cost) -> None: ...


def curator() -> Curator:
    free: Any = Free()
    made = Curator(BruteEngine(SCHEMA, {"t": ROWS}), Split(budget=Budget(epsilon=1.0, delta=1e-6), paper=True))
    made._accountant = free
    return made


def lagging(rng: np.random.Generator, drift: int) -> tuple[Lagging, list[Any], list[Any]]:
    """Answers of some table, and another one of today; also the exact answers and today's."""
    groups = WORKLOAD.groups
    before, other = (rng.dirichlet(np.full(12, 0.7)).reshape(4, 3) * 60 for _ in range(2))
    today = 0.8 * before + 0.2 * other
    dropped = [tuple(i for i, a in enumerate("ab") if a not in g.scope) for g in groups]
    tables = [[t.sum(axis=axes) for axes in dropped] for t in (before, today)]
    late, now = ([np.rint(g.apply(t)).astype(np.int64) for g, t in zip(groups, each, strict=True)] for each in tables)
    width = [drift * g.max_abs for g in groups]
    model = Lagging(tuple(map(frozen, late)), tuple(t / 3 for t in tables[1]), 3.0, tuple(width))
    return model, BruteEngine(SCHEMA, {"t": ROWS}).exact_answers(groups), now


@pytest.mark.statistical
@pytest.mark.parametrize("drift", [13, 1])
def test_the_law_is_that_of_todays_scores(drift: int) -> None:
    """Within the drift it is today's score; beyond it, the earlier score and the drift. Both have the sensitivity."""
    model, exact, now = lagging(np.random.default_rng(drift), drift)
    scores = []
    for group, e, m, late, most in zip(WORKLOAD.groups, exact, now, model.answers, model.drift, strict=True):
        score = np.minimum(np.abs(e - m), np.abs(e - late) + most) / group.max_abs
        scores += score.tolist()
    starts = np.cumsum([0, *map(len, WORKLOAD.groups)])
    ours, cost = curator(), Pure(EPSILON)
    bound = ours.public_bound()
    assert bound is not None
    draws = 6_000
    seen = np.zeros(len(scores))
    for _ in range(draws):
        g, i = ours.worst_query(WORKLOAD.groups, model, bound, cost)
        seen[starts[g] + i] += 1

    def p_value(epsilon: float) -> float:
        law = np.exp(epsilon / 2 * np.array(scores))
        expected = draws * law / law.sum()
        keep = expected >= 5
        return float(chi2.sf(((seen - expected)[keep] ** 2 / expected[keep]).sum(), keep.sum() - 1))

    assert p_value(float(EPSILON)) > ALARM
    assert p_value(1.5 * float(EPSILON)) < ALARM


def test_answers_that_lag_are_refused_for_a_concentrated_cost() -> None:
    """Centred answers need the total as well, which a table of today does not promise."""
    model, *_ = lagging(np.random.default_rng(0), 5)
    ours = curator()
    bound = ours.public_bound()
    assert bound is not None
    with pytest.raises(BudgetError, match="Pure"):
        ours.worst_query(WORKLOAD.groups, model, bound, Concentrated(Fraction(1)))


def test_a_model_that_does_not_fit_is_refused_before_a_draw() -> None:
    """A table of the wrong size would raise for some candidates only, and so tell which was drawn."""
    model, *_ = lagging(np.random.default_rng(0), 5)
    ours = curator()
    bound = ours.public_bound()
    assert bound is not None
    wrong = replace(model, tables=(*model.tables[:-1], model.tables[-1][:2]))
    with pytest.raises(BudgetError, match="must have one per query"):
        ours.worst_query(WORKLOAD.groups, wrong, bound, Pure(EPSILON))
    assert not ours.ledger.events


def test_answers_that_somebody_may_write_into_are_refused() -> None:
    """What was prepared from them is used again, so they must be what they were."""
    model, *_ = lagging(np.random.default_rng(0), 5)
    ours = curator()
    bound = ours.public_bound()
    assert bound is not None
    with pytest.raises(BudgetError, match="stay as they are"):
        ours.worst_query(
            WORKLOAD.groups, replace(model, answers=tuple(a.copy() for a in model.answers)), bound, Pure(EPSILON)
        )
    assert not ours.ledger.events


def test_a_model_learns_of_no_candidate_but_the_chosen_one() -> None:
    """The answer it keeps for the next look is that of the query that was chosen, whatever was tried before."""
    ours = curator()
    bound = ours.public_bound()
    assert bound is not None
    for seed in range(20):
        model, *_ = lagging(np.random.default_rng(seed), 50)
        chosen = ours.worst_query(WORKLOAD.groups, model, bound, Pure(EPSILON / 20))
        assert list(model._last) == [chosen]


def test_what_is_prepared_is_used_for_the_same_queries_only() -> None:
    """Other queries with the same answers, by chance, are other candidates."""
    model, *_ = lagging(np.random.default_rng(0), 5)
    ours = curator()
    bound = ours.public_bound()
    assert bound is not None
    ours.worst_query(WORKLOAD.groups, model, bound, Pure(EPSILON))
    first = ours._late
    ours.worst_query(WORKLOAD.groups, model, bound, Pure(EPSILON))
    assert ours._late is first
    ours.worst_query([replace(g) for g in WORKLOAD.groups], model, bound, Pure(EPSILON))
    assert ours._late is not first


@pytest.mark.replay
@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize("all_answers", [0.5, 20.0])
def test_replay_with_answers_that_lag(block: int, all_answers: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """When answers are worked out anew depends on public steps only, and scores move no more than declared."""
    monkeypatch.setattr(pmw, "LATE_QUERIES", 0)
    monkeypatch.setattr(pmw, "ALL_ANSWERS", all_answers)
    rng = np.random.default_rng([block, 7])
    for _ in range(12):
        schema, workload, tables = random_instance(rng)
        assert replay_violations(runner(schema, workload, "paper"), tables, neighbour(rng, schema, tables)) == []
