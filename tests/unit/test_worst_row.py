"""What one row pays at most: against every choice of a bucket for each label, in loops."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpjoin.errors import BudgetError, SpecError
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.ledger import Event, Ledger, Part, Places, worst_row
from dpjoin.privacy.parts import OneTable
from dpjoin.spec.schema import Attribute, Schema, Table
from support.brute import BruteEngine


def test_the_worst_row_is_of_the_table_that_pays_most() -> None:
    """r is in both places, s in the second only; each table's rows pay by themselves, and a person for all of them."""
    both: list[Places] = [{"r": {"u": 0}}, {"r": {"u": 0}, "s": {}}]
    apart: list[Places] = [{"r": {"u": 0}}, {"r": {"u": 1}}]
    amounts = [Fraction(1), Fraction(2)]
    assert worst_row(both, amounts) == 3
    assert worst_row(apart, amounts) == 2
    assert worst_row([{"r": {}}, {"s": {}}], amounts) == 2
    assert worst_row([{"r": {}}, {"s": {}}], amounts, person=True) == worst_row(apart, amounts, person=True) == 3
    assert worst_row([], []) == 0


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


def test_a_ledger_adds_up_what_one_row_pays() -> None:
    """Two parts of a stage that no row is in together count as the larger one; stages add up; unknown parts do not."""
    parts = tuple(
        Part(name=name, stage=stage, places={"r": {"u": bucket}})
        for name, stage, bucket in (("x", "one", 0), ("y", "one", 1), ("z", "two", 0))
    )
    events = tuple(
        Event(
            mechanism="discrete Gaussian",
            purpose="a test",
            cost=Concentrated(Fraction(n), Fraction(n, 100)),
            moves=Fraction(1),
            part=name,
        )
        for n, name in enumerate(("x", "y", "z", None), 1)
    )
    ledger = Ledger("zero-concentrated", events, parts)
    assert (ledger.rho, ledger.delta, ledger.epsilon) == (2 + 3 + 4, Fraction(9, 100), 0)
    with pytest.raises(BudgetError, match="sub-instance that the ledger knows"):
        _ = Ledger("zero-concentrated", events).rho


def test_an_exchange_that_was_planned_is_on_offer_until_too_much_is_spent() -> None:
    """A tenth of epsilon as Laplace noise; what is spent before comes off the rho that it leaves."""
    schema = Schema((Table(name="r", attributes=("a",)),), (Attribute(name="a", range=(0, 1)),))
    budget = Budget(epsilon=1.0, delta=1e-6, options=(Fraction(1, 10),))
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
