"""What one row pays at most: against every choice of a bucket for each label, in loops."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpjoin.engine.brute import BruteEngine
from dpjoin.errors import BudgetError, SpecError
from dpjoin.privacy.accounting import Budget, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.ledger import Place, largest_total, worst_row
from dpjoin.privacy.parts import OneTable
from dpjoin.spec.schema import Attribute, Schema, Table

LABELS = "uvwx"


def in_loops(places: list[tuple[Place, Fraction]]) -> Fraction:
    best = Fraction(0)
    for choice in product(range(3), repeat=len(LABELS)):
        row = dict(zip(LABELS, choice, strict=True))
        best = max(best, sum((a for place, a in places if place.items() <= row.items()), Fraction(0)))
    return best


def test_the_largest_total_is_that_of_the_worst_row() -> None:
    """Of random sub-instances with random amounts, labels in common or not."""
    rng = np.random.default_rng(0)
    for _ in range(150):
        places: list[tuple[Place, Fraction]] = [
            (
                {name: int(rng.integers(3)) for name in LABELS if rng.random() < 0.4},
                Fraction(int(rng.integers(1, 9)), int(rng.integers(1, 4))),
            )
            for _ in range(int(rng.integers(1, 8)))
        ]
        assert largest_total(places) == in_loops(places)
    assert largest_total([]) == 0


def test_the_worst_row_is_of_the_table_that_pays_most() -> None:
    """r is in both places, s in the second only; each table's rows pay by themselves."""
    places = [{"r": {"u": 0}}, {"r": {"u": 0}, "s": {}}]
    assert worst_row(places, lambda n, table: Fraction(1)) == 2
    assert worst_row(places, lambda n, table: Fraction(5 if table == "s" else 1)) == 5
    assert worst_row([{"r": {"u": 0}}, {"r": {"u": 1}}], lambda n, table: Fraction(n + 1)) == 2
    assert worst_row([], lambda n, table: Fraction(1)) == 0


def test_participation_of_what_is_no_part_is_refused() -> None:
    """Something that is no list, and a table that the schema does not have."""
    schema = Schema((Table(name="r", attributes=("a",)),), (Attribute(name="a", range=(0, 1)),))
    made = Curator(BruteEngine(schema, {"r": [{"a": 0}]}), Split(budget=Budget(epsilon=1.0, delta=1e-6)))
    assert made.participation([OneTable("r", ("a",)), {"r": {}}]) == 2
    with pytest.raises(BudgetError, match="must be a list"):
        made.participation({"x": {"r": {}}})  # type: ignore[arg-type]
    for part in (OneTable("nope", ("a",)), {"nope": {}}):
        with pytest.raises(SpecError, match="nope"):
            made.participation([part])  # type: ignore[list-item]
