"""Groups that count more get more of the budget, and everything else stays as it is."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.auto.plan import plan
from dpjoin.errors import SpecError
from dpjoin.measure.marginals import clique_importance, split
from dpjoin.spec.plain import workload_from_dict, workload_to_dict
from dpjoin.spec.toml import Spec
from support.audit import ledger_violations
from support.one_table import rows_of, schema_of

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


def precision_of(release: dj.Release, name: str) -> float:
    """What a marginal was measured with, all looks together: one over the variance of its noise."""
    drawn = [e.parameters for e in release.ledger.events if e.purpose == f"measure {name}"]
    return sum(1 / float(p["variance"]) if "variance" in p else 1 / (2 * float(p["scale"]) ** 2) for p in drawn)


@pytest.mark.parametrize(("columns", "values"), [(4, 6), (12, 10)])
def test_what_counts_more_gets_more(columns: int, values: int) -> None:
    """On a dense domain and on a factored one."""
    schema = schema_of(columns, values)
    tables = rows_of(schema, 5000, 0)
    plain = dj.Workload.marginals(schema, 2)
    stressed = plain + dj.Workload.marginals(schema, [("x1", "x2")]).important(20)
    assert len(stressed.groups) == len(plain.groups)
    before, after = (dj.release(schema, w, tables, BUDGET) for w in (plain, stressed))
    assert ledger_violations(after.ledger, BUDGET) == []
    assert after.ledger.rho == before.ledger.rho
    assert precision_of(after, "x1 x x2") > 3 * precision_of(before, "x1 x x2")


def test_the_important_marginal_is_more_accurate() -> None:
    schema = schema_of(5, 8)
    tables = rows_of(schema, 10_000, 1)
    plain = dj.Workload.marginals(schema, 2)
    stressed = plain + dj.Workload.marginals(schema, [("x0", "x3")]).important(30)

    def error(workload: dj.Workload) -> float:
        runs = [dj.evaluate(dj.release(schema, workload, tables, BUDGET), tables) for _ in range(4)]
        return float(np.mean([g.mean_error for r in runs for g in r.groups if g.name == "x0 x x3"]))

    assert error(stressed) < 0.75 * error(plain)


def test_without_importance_shares_are_equal() -> None:
    rho = Fraction(1, 37)
    costs = split(rho, [1.0] * 7)
    assert sum(costs) == rho
    assert max(costs) - min(costs) < rho / 2**30
    assert split(rho, []) == []
    least, more = split(rho, [1.0, 8.0])
    assert float(more / least) == pytest.approx(4.0, rel=1e-6)


def test_a_clique_counts_as_what_it_answers() -> None:
    schema = schema_of(3, 4)
    workload = dj.Workload.marginals(schema, 2) + dj.Workload.prefixes(schema, ["x0"]).important(7)
    assert clique_importance(workload, [("x0",), ("x1",), ("x0", "x1"), ("x1", "x2")]) == [7.0, 1.0, 1.0, 1.0]
    # Where no marginal of its own is measured, the wider one that answers it counts.
    assert clique_importance(workload, [("x0", "x1"), ("x1", "x2")]) == [7.0, 1.0]


def test_adding_keeps_the_larger_importance() -> None:
    schema = schema_of(3, 4)
    one, two = (dj.Workload.marginals(schema, [("x0", "x1")]).important(f) for f in (2, 5))
    assert (one + two).importance == (two + one).importance == (5.0,)
    assert one.important(3).importance == (6.0,)
    assert (dj.Workload.marginals(schema, 1) + one).importance == (1.0, 1.0, 1.0, 2.0)


def test_a_spec_states_it_and_a_release_keeps_it(tmp_path: Path) -> None:
    schema = schema_of(3, 4)
    data = {"marginals": 2, "important": [{"attributes": ["x2", "x0"], "factor": 4}]}
    workload = workload_from_dict(schema, data)
    assert workload.importance == (1.0, 4.0, 1.0)
    assert workload_from_dict(schema, workload_to_dict(workload)).importance == workload.importance
    names = [g.name for g in plan(Spec(schema, workload, BUDGET, "auto", "tight")).groups]
    assert names == ["x0 x x1", "x0 x x2 (counts 4 times)", "x1 x x2"]
    release = dj.release(schema, workload, rows_of(schema, 500, 2), BUDGET)
    assert dj.load(release.save(tmp_path / "out")).workload.importance == workload.importance


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ({"attributes": ["x0"], "factor": 4}, "no group of the workload looks at just"),
        ({"attributes": ["x0", "x1"], "factor": 0}, "must be a number from 1 to 1000"),
        ({"attributes": ["x0", "x1"], "factor": "4"}, "must be a number"),
        ({"attributes": ["x0", "x1"]}, "must be like"),
        ({"attributes": ["x0", "x1"], "factor": 4, "weight": 1}, "weight"),
    ],
)
def test_what_cannot_be_is_refused(item: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        workload_from_dict(schema_of(3, 4), {"marginals": 2, "important": [item]})


def test_product_queries_all_count_alike() -> None:
    schema = schema_of(2, 3)
    products = dj.Workload.products(schema, {"t": (("x0",), np.eye(3))})
    with pytest.raises(SpecError, match="product queries count alike"):
        products.important(2)
    mixed = products + dj.Workload.marginals(schema, [("x0", "x1")]).important(3)
    assert mixed.importance == (1.0, 3.0)


def test_product_queries_beside_an_important_marginal_are_no_obstacle() -> None:
    """They look at the same attributes; the marginal counts more, in a spec and when a release is loaded."""
    schema = schema_of(2, 3)
    product = {"name": "p", "weights": {"t": {"x0": [1, 0, 1], "x1": [0, 1, 1]}}}
    data = {"marginals": 2, "products": [product], "important": [{"attributes": ["x0", "x1"], "factor": 3}]}
    workload = workload_from_dict(schema, data)
    assert workload.importance == (3.0, 1.0)
    assert workload_from_dict(schema, workload_to_dict(workload)).importance == workload.importance


def test_importance_has_a_number_for_each_group() -> None:
    groups = dj.Workload.marginals(schema_of(3, 4), 2).groups
    with pytest.raises(SpecError, match="a number for each of the 3 groups"):
        dj.Workload(schema_of(3, 4), groups, (1.0, 2.0))
