"""Columns whose domain is learned: what is refused, what cannot be changed, and what they tell of themselves."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest

import dpjoin as dj
from dpjoin.privacy.accounting import Concentrated, Split, laplace_cost
from dpjoin.privacy.columns import Column, ColumnOf, NoisyCounts, NoisyValues
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.mechanisms import Move, hiding
from dpjoin.privacy.numbers import root
from support.brute import BruteEngine

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
COST = Concentrated(Fraction(1, 1000), Fraction(1, 10**8))
ROWS = {
    "r": [{"k": i % 3, "a": f"v{i % 2}"} for i in range(12)],
    "s": [{"k": i % 3, "b": i % 2} for i in range(9)],
}


def curator(*, public: bool = False) -> Curator:
    tables = (
        dj.Table(name="r", attributes=("k", "a")),
        dj.Table(name="s", attributes=("k", "b"), private=not public),
    )
    attributes = (
        dj.Attribute(name="k", key=True),
        dj.Attribute(name="a", learn=True),
        dj.Attribute(name="b", learn={"bins": 2}),
    )
    schema = dj.Schema(tables, attributes)
    return Curator(BruteEngine(schema, ROWS), Split(budget=BUDGET, truncation_delta=Fraction(1, 10**7)))


def column(name: str, *, public: bool = False, values: int = 1) -> Column:
    (found,) = curator(public=public).columns("domains", [ColumnOf(attribute=name, values=values)], [COST])
    return found


def test_a_column_says_what_it_is() -> None:
    """Its kind, and what is left of its allowance."""
    found = column("a")
    assert (found.attribute, found.kind, found.private) == ("a", "untyped", True)
    assert found.left.rho == COST.rho


def test_columns_of_public_tables_cost_nothing() -> None:
    """They have no allowance."""
    found = column("b", public=True)
    assert not found.private
    assert found.left == Concentrated(Fraction(0))
    assert sum(found.noisy_counts([0.0, 1.0, 2.0], COST).noisy) == 9


def test_what_was_asked_is_in_the_ledger_as_fractions() -> None:
    """Also how far one row moves it."""
    asked = curator()
    (found,) = asked.columns("domains", [ColumnOf(attribute="b")], [COST])
    found.noisy_counts([0.0, 1.0, 2.0], Concentrated(COST.rho))
    (event,) = asked.ledger.events
    assert type(event.moves) is Fraction
    assert event.moves == 1


@pytest.mark.parametrize("edges", [[], [0.0], [0.0, float("inf")], [1.0, 0.0], [0.0, 0.0]])
def test_edges_must_be_increasing_and_finite(edges: list[float]) -> None:
    with pytest.raises(dj.BudgetError, match="edges must be"):
        column("b").noisy_counts(edges, COST)


def test_lists_are_paid_for_with_rho() -> None:
    """Not with Laplace noise, and not without a composition."""
    composition = curator().composition
    for cost, adding in ((laplace_cost(Fraction(1, 100)), composition), (COST, None)):
        with pytest.raises(dj.BudgetError, match=r"must not be paid for as Laplace|needs the concentrated accountant"):
            hiding(Move(root(3), 3, 3), cost, adding, half_width=1000)


def test_columns_are_different_ones_with_a_cost_each() -> None:
    one, other = ColumnOf(attribute="a"), ColumnOf(attribute="b")
    for asked, costs in (([one, one], [COST, COST]), ([one, other], [COST]), ([one], [COST, COST])):
        with pytest.raises(dj.BudgetError, match="must be different ones"):
            curator().columns("domains", asked, costs)
    with pytest.raises(dj.DpjoinError):
        ColumnOf(attribute=5)  # type: ignore[arg-type]


DOMAINS = (dj.Attribute(name="a", values=("v0",), other=True), dj.Attribute(name="b", range=(0, 1), other=True))


@pytest.mark.parametrize(
    "wrong",
    [
        dj.Attribute(name="a", values=("v0",)),
        dj.Attribute(name="a", learn=True),
        dj.Attribute(name="a", key=True),
        dj.Attribute(name="k", values=("v0",), other=True),
    ],
)
def test_domains_are_of_what_is_to_be_learned_and_have_other(wrong: dj.Attribute) -> None:
    with pytest.raises(dj.BudgetError, match="must be of an attribute to be learned, and have other"):
        curator().learned([wrong, DOMAINS[1]])


def test_all_domains_are_set_at_once() -> None:
    with pytest.raises(dj.BudgetError, match="all attributes that are to be learned"):
        curator().learned(DOMAINS[:1])


@pytest.mark.parametrize("reads", [False, True])
def test_bounds_on_public_tables_are_read_if_wanted(reads: bool) -> None:
    """Then what one row moves is known without paying."""
    found = curator(public=True).learned(DOMAINS, public_bounds=reads)
    assert bool(found.schema.table("s").bounds) == reads


def test_noisy_answers_cannot_be_changed() -> None:
    """Nor by whoever has the dictionary that they were made of."""
    given: dict[object, int] = {"x": 9}
    values = NoisyValues(3, given)
    given["y"] = 1
    assert dict(values.listed) == {"x": 9}
    for made, name in ((values, "threshold"), (NoisyCounts((0.0, 1.0), (3,), 2.0), "noisy")):
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, None)
