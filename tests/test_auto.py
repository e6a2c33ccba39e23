"""auto: a small probe chooses, from noisy numbers only; either way the whole budget is spent and no more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from audit import Tape, attach, ledger_violations, overpaid, replay_violations
from dpjoin.algorithms import auto
from dpjoin.algorithms.auto import auto_shares, auto_tight
from dpjoin.algorithms.progress import silent
from dpjoin.engine.brute import BruteEngine
from dpjoin.methods import chosen_method
from dpjoin.privacy.budget import Budget
from dpjoin.privacy.curator import Curator
from test_uniformize import changed, schema_of, skewed_rows

SHARP = Budget(epsilon=50.0, delta=1e-6)


@pytest.mark.replay
@pytest.mark.parametrize("gain", [1e-9, 1.5, 1e9])
@pytest.mark.parametrize("shape", ["two", "star", "contained"])
def test_replay_on_neighbours(shape: str, gain: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same questions on both neighbours, declared moves hold, the ledger is the whole budget; both ways are taken."""
    monkeypatch.setattr(auto, "HYBRID_GAIN", gain)
    rng = np.random.default_rng([len(shape), int(min(gain, 10))])
    chosen = set()
    for _ in range(8):
        schema = schema_of(shape)
        workload = dj.Workload.marginals(schema, 1)
        rows = skewed_rows(schema, rng)
        curators: list[Any] = []

        def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
            shares = auto_shares(SHARP, schema)  # noqa: B023
            curator = attach(kind(BruteEngine(schema, tables), shares.accountant), tape)  # noqa: B023
            outcome = auto_tight(curator, workload, shares, silent)  # noqa: B023
            curators.append(curator)  # noqa: B023
            chosen.add(outcome.method)
            return np.append(outcome.model.table.reshape(-1), [outcome.noisy_total, outcome.sensitivity])

        assert replay_violations(run, rows, changed(schema, rows, rng)) == []
        assert overpaid(curators[1]) == []
        ledger, accountant = curators[0].ledger, curators[0]._accountant
        assert ledger_violations(ledger, SHARP) == []
        assert (ledger.rho, ledger.delta) == (accountant.rho, accountant.truncation_delta)
    if gain < 1:
        assert chosen == {"hybrid"}
    if gain > 10:
        assert chosen <= {"two_table", "multi_table"}


def zipf_tables(hot: bool) -> dict[str, pa.Table]:
    rng = np.random.default_rng(3)
    keys = [np.concatenate([rng.integers(0, 4000, 20_000), np.full(3000 if hot else 0, 7)]) for _ in "rs"]
    return {t: pa.table({"A": k, a: rng.integers(0, 3, len(k))}) for t, a, k in zip("rs", "pq", keys, strict=True)}


@pytest.mark.parametrize("hot", [False, True])
def test_it_chooses_by_whether_a_key_is_hot(hot: bool) -> None:
    """The manifest names the method that ran and what was expected of each."""
    schema = schema_of("two")
    budget = dj.Budget(epsilon=1.0, delta=1e-6)
    made = dj.release(schema, dj.Workload.marginals(schema, [1, 2]), zipf_tables(hot), budget)
    assert made.method == ("hybrid" if hot else "two_table")
    expected = made.manifest()["facts"]["predicted_error"]
    assert (expected["hybrid"] < expected["as one"]) == hot


def test_there_is_nothing_to_choose_where_the_bound_is_public_or_the_hybrid_cannot_serve() -> None:
    assert chosen_method(schema_of("two"), "auto").name == "auto"
    assert chosen_method(schema_of("two"), "auto", "paper").name == "two_table"
    assert chosen_method(schema_of("two", public="s"), "auto").name == "two_table"
    assert chosen_method(schema_of("star", public="s"), "auto").name == "multi_table"
