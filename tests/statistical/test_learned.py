"""Lists and counts have the noise that they state, and edges at noisy quantiles are near them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.measure.domains import domain_costs, learn_domains
from dpjoin.measure.progress import silent
from dpjoin.privacy.accounting import GAUSSIAN, Concentrated, Split
from dpjoin.privacy.columns import ColumnOf
from dpjoin.privacy.curator import Curator
from support.audit import scale_violations

ALL = Concentrated(Fraction(1, 100), Fraction(1, 10**7))
BUDGET = dj.Budget(epsilon=1.0, delta=1e-6, composition=GAUSSIAN, domains=ALL)


def one_table(values: Any, **learn: Any) -> tuple[dj.Schema, dict[str, Any]]:
    schema = dj.Schema((dj.Table(name="t", attributes=("x",)),), (dj.Attribute(name="x", **learn),))
    return schema, {"t": pa.table({"x": values})}


def column_of(schema: dj.Schema, tables: dict[str, Any]) -> Any:
    curator = Curator(DuckEngine(schema, tables, attributes=("x",)), Split(budget=BUDGET))
    (column,) = curator.columns("domains", [ColumnOf(attribute="x")], [ALL])
    return column


@pytest.mark.parametrize(("lie", "caught"), [(1.0, False), (0.8, True), (1.25, True)])
def test_counts_have_the_declared_variance(lie: float, caught: bool) -> None:
    """Noise of each count is a discrete Gaussian of the variance that goes with the cost."""
    schema, tables = one_table([float(i % 10) for i in range(100)], learn={"bins": 4})
    edges = tuple(float(e) for e in range(2001))
    exact = np.array([10] * 10 + [0] * 1990)

    def measure() -> Any:
        found = column_of(schema, tables).noisy_counts(edges, ALL)
        assert found.variance == pytest.approx(50 + 3)
        return np.array(found.noisy), Fraction(found.variance * lie)

    assert bool(scale_violations(measure, exact, 3)) is caught


def test_a_value_is_listed_as_often_as_the_plan_says() -> None:
    """Always above 2s rows, about half of the time at s, and never without rows."""
    width = 40
    values = ["all"] * (2 * width + 1) + [f"half {i}" for i in range(400) for _ in range(width)]
    schema, tables = one_table(values, learn=True)
    listed = column_of(schema, tables).noisy_values(ALL, half_width=width).listed
    halves = sum(v != "all" for v in listed)
    assert "all" in listed
    assert 140 < halves < 260  # of 400, ten deviations around a little less than one half
    assert set(listed) <= set(values)
    assert all(n > 2 * width for n in listed.values())


def test_edges_are_near_the_quantiles() -> None:
    """Within two per cent in rank for 20,000 rows and the share of one of four columns, whatever the shape."""
    rng = np.random.default_rng(5)
    n, worst = 20_000, 0.0
    shapes = {
        "a": rng.normal(50, 10, n),
        "b": rng.lognormal(3, 2, n),
        "c": rng.integers(10**6, 2 * 10**6, n),
        "d": np.where(rng.random(n) < 0.3, 0.0, rng.random(n)),
    }
    attributes = tuple(dj.Attribute(name=a, learn={"bins": 8}) for a in shapes)
    schema = dj.Schema((dj.Table(name="t", attributes=tuple(shapes)),), attributes)
    budget = dj.Budget(epsilon=1.0, delta=1e-6, composition=GAUSSIAN)
    costs = domain_costs(schema, budget)
    engine = DuckEngine(schema, {"t": pa.table(shapes)}, attributes=tuple(shapes))
    spendable = dj.Budget(epsilon=1.0, delta=1e-6, composition=GAUSSIAN, domains=costs.total)
    for found in learn_domains(Curator(engine, Split(budget=spendable)), costs, silent):
        values, bins = np.sort(shapes[found.attribute.name]), found.attribute.bins
        assert bins is not None
        below = np.searchsorted(values, np.array(bins, dtype=float), side="left") / n
        upto = np.searchsorted(values, np.array(bins, dtype=float), side="right") / n
        for j in range(1, 8):
            off = np.maximum(np.maximum(below - j / 8, j / 8 - upto), 0.0)
            worst = max(worst, float(off.min()))
        assert below[0] < 0.02
        assert upto[-1] > 0.98
    assert worst < 0.03
