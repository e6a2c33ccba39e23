"""auto: a small look chooses, from noisy numbers only; whichever way is taken, no more than the budget is spent."""

from __future__ import annotations

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from support.auto import even_tables

SMALL = {
    "star": ({"r": "Ka", "s": "Kb", "t": "Kc"}, 300, 10, False),
    "path": ({"r": "Ka", "s": "KLb", "t": "Lc"}, 500, 10, False),
    "declared path": ({"r": "Ka", "s": "KLb", "t": "Lc"}, 500, 10, True),
    "triangle": ({"r": "KLa", "s": "LMb", "t": "MKc"}, 30_000, 1_000, False),
}


@pytest.mark.parametrize("kind", SMALL)
def test_a_join_that_does_not_show_under_caps_is_not_taken_to_be_empty(kind: str) -> None:
    """Caps lose nearly all of these, or ranks show none of their rows: sizes came out a thousand times too small."""
    shape, rows, values, declared_keys = SMALL[kind]
    rng = np.random.default_rng(5)
    tables = even_tables(shape, rows, values, rng)
    names = sorted({a for attributes in shape.values() for a in attributes})
    key = {"range": (0, values - 1)} if declared_keys else {"key": True}
    attributes = (dj.Attribute(name=a, **(key if a.isupper() else {"range": (0, 2)})) for a in names)
    schema = dj.Schema(tuple(dj.Table(name=t, attributes=tuple(x)) for t, x in shape.items()), tuple(attributes))
    workload = dj.Workload.marginals(schema, [("a", "b"), ("b", "c")])
    exact = DuckEngine(schema, tables, attributes=workload.attributes).exact_join_size()
    size = dj.Workload.sql(schema, "SELECT COUNT(*) FROM joined")
    inside, tiny = 0, 0
    for _ in range(6):
        made = dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6))
        (answer,), (bar,) = made.answer(size), made.error(size)
        inside += abs(answer - exact) <= 1.5 * bar
        tiny += answer + bar < exact / 10
    assert tiny == 0
    assert inside >= 4
