"""Few marginals are measured once, with Laplace noise: what it costs, what is promised, and how good it is."""

from __future__ import annotations

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.methods.as_one import as_one_budget
from support.audit import audited
from support.laplace import BUDGET, pair, single_runs
from support.skewed import changed, skewed_rows


@pytest.mark.parametrize("kind", ["declared", "enforced", "one table"])
def test_replay_on_neighbours(kind: str) -> None:
    """The same questions, no move in l1 beyond the declared one, and all of epsilon is spent, as Laplace noise."""
    rng = np.random.default_rng(len(kind))
    for _ in range(12):
        if kind == "one table":
            schema = dj.Schema((dj.Table(name="r", attributes=("A", "p")),), pair(None).attributes[:2])
        else:
            schema = pair(40 if kind == "declared" else 2, enforce=kind == "enforced")
        workload = dj.Workload.marginals(schema, 1 if kind == "one table" else 2)
        rows = skewed_rows(schema, rng)
        wrong, _ = audited(single_runs(BUDGET, workload), rows, changed(schema, rows, rng), BUDGET)
        assert wrong == []
    assert as_one_budget(BUDGET, workload).laplace == 1
