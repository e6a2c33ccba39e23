"""Rows that count less, the more of them share a value: oracle, sensitivity on neighbours, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import dpjoin as dj
from dpjoin import constants
from dpjoin.engine.interface import RowWeights
from dpjoin.errors import BudgetError, SpecError
from dpjoin.methods import fading, look
from dpjoin.privacy.accounting import Approximate, Budget, Concentrated, Pure, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import most_of_value, moves_of_row, weighted_bound
from dpjoin.spec.schema import DegreeBound, Schema
from dpjoin.spec.workload import CELLS, kronecker
from support.brute import BruteEngine
from support.capped import schema_of
from support.fading import BUDGET
from support.skewed import Rows, skewed_rows


def test_brute_weights_are_repeated_rows() -> None:
    """The oracle's own definition, once more: an instance in which every row is there W(d) times."""
    rng = np.random.default_rng(3)
    schema = schema_of("two")
    rows = skewed_rows(schema, rng)
    fade = RowWeights(("A",), np.array([3, 2, 2, 1]), 3)
    count = {v: sum(r["A"] == v for r in rows["r"]) for v in range(4)}
    again = [r for r in rows["r"] for _ in range([0, 3, 2, 2, 1, *[0] * 99][count[r["A"]]])]
    groups = dj.Workload.marginals(schema, [1, 2]).groups
    weighted = BruteEngine(schema, rows).weighted({"r": fade}).exact_answers(groups)
    repeated = BruteEngine(schema, {**rows, "r": again}).exact_answers(groups)
    assert [a.tolist() for a in weighted] == [a.tolist() for a in repeated]


def test_a_faded_measurement_is_in_join_results() -> None:
    """Values come back in the query's own terms, and the ledger says what a count is worth."""
    schema = schema_of("two")
    rows: Rows = {"r": [{"A": 0, "B": 1}] * 3, "s": [{"A": 0, "C": 2}] * 2}
    sharp = Budget(epsilon=50.0, delta=1e-6)
    whole = Curator(BruteEngine(schema, rows), Split(budget=sharp))
    curator = whole.weighted({t: RowWeights(("A",), np.array([100, 100, 50]), 100) for t in "rs"})
    bound = curator.public_bound()
    assert bound is not None
    assert curator.unit == Fraction(1, 10_000)
    found = curator.measure(kronecker(schema, {"B": CELLS}), bound, Concentrated(curator.rho_left / 2))
    assert found.values == pytest.approx([0, 3 * 0.5 * 2, 0, 0], abs=3)
    assert curator.join_size(bound, Concentrated(curator.rho_left)).noisy * float(curator.unit) == pytest.approx(
        3, abs=3
    )
    assert all(e.parameters["unit"] == curator.unit for e in curator.ledger.events)


def test_what_is_refused() -> None:
    schema = schema_of("two")
    rows = skewed_rows(schema, np.random.default_rng(0))
    whole = Curator(BruteEngine(schema, rows), Split(budget=BUDGET))
    fade = RowWeights(("A",), np.array([4, 2, 1]), 4)
    curator = whole.weighted({"r": fade, "s": fade})
    bound = curator.public_bound()
    assert bound is not None
    group = kronecker(schema, {"B": CELLS})
    for wrong in ([1, 2], [3, -1], [5, 4], []):
        with pytest.raises(BudgetError, match="never rise"):
            whole.weighted({"r": RowWeights(("A",), np.array(wrong, dtype=np.int64), 4)})
    for shaped in (np.array([4.0, 2.0]), np.array([[4, 2]])):
        with pytest.raises(SpecError, match="must be whole numbers"):
            RowWeights(("A",), shaped, 4)
    with pytest.raises(BudgetError, match=r"below 2\^62"):
        whole.weighted({"r": RowWeights(("A",), np.array([2**61, 2**61]), 2**61)})
    limit = {"r": [DegreeBound(attributes=("A",), limit=2)]}
    cost, once, alike = Concentrated(Fraction(1, 1000)), "that is done once", "count alike"
    half_public = Schema((replace(schema.tables[0], private=False), schema.tables[1]), schema.attributes)
    beside = Curator(BruteEngine(half_public, rows), Split(budget=BUDGET))
    refused: list[tuple[str, Callable[[], object]]] = [
        (once, lambda: curator.weighted({"r": fade})),
        (once, lambda: curator.capped(limit)),
        (once, lambda: whole.capped(limit).weighted({"s": fade})),
        ("of private tables", lambda: whole.weighted({})),
        ("of private tables", lambda: beside.weighted({"r": fade})),
        ("its partners weights", lambda: whole.weighted({"r": fade}).public_bound()),
        (f"a single query .*{alike}", lambda: curator.measure_query(group, 0, bound, cost)),
        (f"a single query .*{alike}", lambda: curator.measure_query(group, 0, bound, Pure(Fraction(1, 10)))),
        (f"a choice .*{alike}", lambda: curator.worst_query([group], [np.zeros(4, dtype=np.int64)], bound, cost)),
        (f"join size .*{alike}", lambda: curator.join_size(bound, Approximate(Fraction(1, 10), Fraction(1, 10**9)))),
        (f"a noisy bound .*{alike}", lambda: curator.sensitivity_bound(cost, half_width=99)),
        (f"a bound of caps .*{alike}", lambda: curator.part_bound()),
        ("minted by this Curator", lambda: whole.measure(group, bound, cost)),
    ]
    for words, ask in refused:
        with pytest.raises(BudgetError, match=words):
            ask()
    assert whole.ledger.events == ()
    with pytest.raises(SpecError, match="attributes that it joins on"):
        BruteEngine(schema, rows).weighted({"r": RowWeights(("B",), np.array([1]), 1)})


@pytest.mark.parametrize("altered", ["capped", "weighted"])
def test_bounds_of_altered_rows_say_nothing_about_the_part(altered: str) -> None:
    """A part whose rows were capped or have weights mints small bounds; the part itself must not carry them over."""
    schema = schema_of("two")
    whole = Curator(BruteEngine(schema, skewed_rows(schema, np.random.default_rng(0))), Split(budget=BUDGET))
    labels = whole.labels("heavy", [], {(1,): 1}, attributes=("A",))
    (part,) = whole.restrict("parts", {"light": {t: {labels: 0} for t in "rs"}}, [Concentrated(Fraction(1, 100))])
    if altered == "capped":
        child = part.capped({t: [DegreeBound(attributes=("A",), limit=1)] for t in "rs"})
    else:
        child = part.weighted({t: RowWeights(("A",), np.array([1]), 1) for t in "rs"})
    bound = child.public_bound()
    assert bound is not None
    with pytest.raises(BudgetError, match="minted by this Curator"):
        part.join_size(bound, Concentrated(Fraction(1, 1000)))


# The weights that are used -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("price", constants.FADE_PRICES)
@pytest.mark.parametrize("full", [1, 2, 3, 7, 16, 95, 1000])
def test_weights_are_full_then_fall_at_their_price(full: int, price: float) -> None:
    """Full up to the cap, never rising, gone in the end; a row moves no more than the price, rounded up."""
    found, grain = fading.weights(full, price)
    fade = RowWeights(("A",), found, grain)
    assert (found[:full] == grain).all()
    assert (np.diff(found) <= 0).all()
    assert len(found) == fading.REACH * full
    assert found[-1] == 0
    assert moves_of_row(fade) <= price * grain + 2
    together = most_of_value(fade) / grain
    assert full <= together <= 1.56 * full
    # What a value counts does not fall before half of the reach, but for what whole numbers cannot follow.
    kept = fading.rows_kept(full, price, np.arange(1.0, fading.REACH * full / 2 + 1))
    assert (kept[full - 1 :] >= full * (1 - 1 / 16)).all()
    assert kept.max() == pytest.approx(together, rel=1e-9)


@pytest.mark.parametrize("full", [1, 2, 3, 7, 16, 95, 1000])
def test_fading_costs_less_than_removing(full: int) -> None:
    """Two tables with the same cap: a smaller bound, and no value counts less."""
    schema = schema_of("two")
    price = fading.best_price(schema, [("r", ("A",)), ("s", ("A",))])
    fades = {t: fading.fade(("A",), full, price) for t in "rs"}
    bound = weighted_bound(schema, [], fades) / fades["r"].full ** 2
    assert bound < np.sqrt(2) * full
    degrees = np.arange(1.0, fading.REACH * full / 2)
    assert (fading.rows_kept(full, price, degrees) >= np.minimum(degrees, full) * (1 - 1 / 16)).all()


def test_the_price_follows_the_shape_of_the_join() -> None:
    """Two tables pay little; where one table fades alone its partners' rows move more, and it may fall at once."""
    assert fading.best_price(schema_of("two"), [("r", ("A",)), ("s", ("A",))]) == constants.FADE_PRICES[0]
    key = schema_of("two", r=(DegreeBound(attributes=("A",), limit=1),))
    assert fading.best_price(key, [("s", ("A",))]) > constants.FADE_PRICES[1]
    assert look.fading_price(dj.Workload.marginals(schema_of("path"), 1)) is None


def test_product_queries_keep_hard_caps() -> None:
    schema = schema_of("two")
    weights = {"r": (("B",), np.array([[1, -1, 0, 0.5]])), "s": (("C",), np.array([[0, 1, 1, -1]]))}
    products = dj.Workload.products(schema, weights)
    assert look.fading_price(products) is None
