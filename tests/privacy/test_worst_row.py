"""What one row pays at most: against every choice of a bucket for each label, in loops."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpjoin.engine.brute import BruteEngine
from dpjoin.errors import BudgetError, SpecError
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.ledger import Event, Ledger, Part, Place, largest_total, worst_row
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


def test_a_row_pays_its_tables_share_of_rho() -> None:
    """In a part where r pays a quarter and s a ninth, the worst row is one of r; delta is paid in full."""
    part = Part(name="x", stage="one", places={"r": {}, "s": {}})
    cost = Concentrated(Fraction(1), Fraction(1, 100))
    event = Event(mechanism="discrete Gaussian", purpose="a test", cost=cost, moves=Fraction(1), part="x")
    shares = {"r": Fraction(1, 4), "s": Fraction(1, 9)}
    in_full, by_share = event, Event(**{**vars(event), "shares": shares})
    assert Ledger("zero-concentrated", (in_full,), (part,)).rho == 1
    assert Ledger("zero-concentrated", (by_share,), (part,)).rho == Fraction(1, 4)
    assert Ledger("zero-concentrated", (by_share,), (part,)).delta == Fraction(1, 100)
    with pytest.raises(BudgetError, match="sub-instance that the ledger knows"):
        _ = Ledger("zero-concentrated", (event,)).rho


def test_an_exchange_that_was_planned_is_on_offer_until_too_much_is_spent() -> None:
    """A tenth of epsilon as Laplace noise; what is spent before comes off the rho that it leaves."""
    schema = Schema((Table(name="r", attributes=("a",)),), (Attribute(name="a", range=(0, 1)),))
    budget = Budget(epsilon=1.0, delta=1e-6).with_options([Fraction(1, 10)])
    made = Curator(BruteEngine(schema, {"r": [{"a": 0}]}), Split(budget=budget))
    (option,) = made.options
    assert made.offer == option
    assert option.epsilon == Fraction(1, 10)
    bound = made.public_bound()
    assert bound is not None
    made.join_size(bound, Concentrated(option.rho / 2))
    assert made.offer == Concentrated(option.rho / 2, epsilon=option.epsilon)
    made.join_size(bound, Concentrated(option.rho * Fraction(3, 5)))
    assert made.offer is None
