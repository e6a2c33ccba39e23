"""Private tables beside public ones: public rows are read as they are, and knowing more never makes answers worse."""

from __future__ import annotations

from statistics import median

import numpy as np

import dpjoin as dj
from dpjoin.auto.plan import plan
from dpjoin.spec.toml import Spec
from dpjoin.spec.workload import Workload
from support.public_tables import BUDGET, PAIRS, chain, pair


def test_several_private_tables_beside_a_public_one_are_released_well() -> None:
    """By one noisy bound errors are several times as large. What is released has the schema that was asked."""
    schema, tables = chain(np.random.default_rng(6))
    workload = Workload.marginals(schema, [("a", "b"), ("b", "c"), ("a", "c")])
    found = {}
    for method in ("auto", "multi_table"):
        made = [dj.release(schema, workload, tables, BUDGET, method=method) for _ in range(3)]
        found[method] = median(dj.evaluate(m, tables).mean_total_variation or 0.0 for m in made)
        assert all(m.schema == schema for m in made)
    assert found["auto"] < found["multi_table"] / 2
    assert made[0].method == "multi_table"
    spec = Spec(schema, workload, BUDGET)
    assert plan(spec).method == "auto"
    assert any("as if each value were there once" in note for note in plan(spec).notes)


def test_a_table_that_is_public_does_no_harm() -> None:
    """The join with its rows known is released with less error than with its rows private, and far less than as one."""
    off = {}
    for public, method in ((True, "auto"), (True, "two_table"), (False, "auto")):
        schema, tables = pair(200, public=public)
        workload = Workload.marginals(schema, PAIRS)
        made = [dj.release(schema, workload, tables, BUDGET, method=method) for _ in range(7)]
        found = [dj.evaluate(m, tables) for m in made]
        assert np.mean([f.covered for f in found]) > 0.8
        off[public, method] = median(f.mean_total_variation or 0.0 for f in found)
        if public and method == "auto":
            assert {m.method for m in made} == {"per_table"}
            assert set(made[0].facts["predicted_error"]) == {"two_table", "per_table"}
            assert all((m.ledger.epsilon, m.ledger.rho, m.ledger.delta) == (1, 0, 0) for m in made)
    assert off[True, "auto"] < 1.1 * off[False, "auto"]
    assert off[True, "auto"] < 0.6 * off[True, "two_table"]
