"""Joins of three and more tables: declared bounds are sound, replay passes, and a release comes out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

import dpjoin as dj
from dpjoin.spec.schema import DegreeBound
from support.brute import _within_bounds


def _changes(keep: Any, rows: list[dict[str, Any]], more: dict[str, Any]) -> tuple[int, int]:
    """How many rows enter and leave what is kept when one row is added."""
    before = Counter(tuple(r.values()) for r in keep(rows))
    after = Counter(tuple(r.values()) for r in keep([*rows, more]))
    return (after - before).total(), (before - after).total()


def test_bounds_enforced_one_after_the_other_are_caught() -> None:
    """Ranks of the second bound taken after the first one's removals: one new row changes more than 1 + r rows.

    With all ranks on the same rows, at most one row enters and at most r leave, always.
    """
    bounds = (DegreeBound(attributes=("A",), limit=1), DegreeBound(attributes=("B",), limit=1))
    table = dj.Table(name="R", attributes=("A", "B"), bounds=bounds, enforce=True)
    schema = dj.Schema((table,), tuple(dj.Attribute(name=a, range=(0, 4)) for a in "AB"))

    def together(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
        return _within_bounds(schema, table, list(rows))

    def one_by_one(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
        first, second = (replace(table, bounds=(b,)) for b in bounds)
        return _within_bounds(schema, second, _within_bounds(schema, first, list(rows)))

    rng = np.random.default_rng(9)
    worst = 0
    for _ in range(4000):
        rows = [{"A": int(rng.integers(5)), "B": int(rng.integers(5))} for _ in range(rng.integers(1, 12))]
        more = {"A": int(rng.integers(5)), "B": int(rng.integers(5))}
        entered, left = _changes(together, rows, more)
        assert entered <= 1
        assert left <= len(bounds)
        entered, left = _changes(one_by_one, rows, more)
        worst = max(worst, entered + left)
        if entered > 1:
            break
    assert entered > 1, f"never more than one entered; most changes {worst}"
