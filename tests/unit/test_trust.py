"""What callers hand over is checked and kept as it was: queries, caps, weights of rows, rules and costs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import RowWeights
from dpjoin.errors import BudgetError, SpecError
from dpjoin.measure.shares import one_sided
from dpjoin.privacy.accounting import (
    Accountant,
    Approximate,
    Budget,
    Concentrated,
    Cost,
    Pure,
    Split,
    accountant_of,
    laplace_cost,
)
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.parts import Labels, Question
from dpjoin.privacy.sensitivity import absolute_norm, squared_norm, weight_ranges
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from dpjoin.spec.workload import CELLS, Factor, Kronecker, Products, frozen, group_from_json, kronecker
from support.brute import BruteEngine
from support.trust import ONE

BUDGET = Budget(epsilon=1.0, delta=1e-6)


ROWS = {"r": [{"a": a} for a in [0] * 10 + [1] * 7 + [3] * 4]}


def curator_of(schema: Schema, rows: dict[str, list[dict[str, int]]]) -> Curator:
    return Curator(BruteEngine(schema, rows), Split(budget=BUDGET))


def bound_of(curator: Curator) -> Bound:
    bound = curator.public_bound()
    assert bound is not None
    return bound


def products_of(weights: object) -> Products:
    return Products("p", ("a",), (4,), ((("a",), weights),), Fraction(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [2**16, 2**31, 2**32, -(2**63), 2**70])
def test_norms_of_a_wide_row_of_weights_are_exact(weight: int) -> None:
    group = kronecker(ONE, {"a": Factor("weights", (weight, 0, 1, -1))})
    assert squared_norm(group) == weight**2
    assert absolute_norm(group) == abs(weight)
    assert weight_ranges(group).of(0) == (min(weight, -1), max(weight, 1))


def test_wide_weights_get_as_much_noise_as_narrow_ones() -> None:
    """In the query's own terms: the square of 2^32 is not zero."""
    group = kronecker(ONE, {"a": Factor("weights", (2**32, 0, 0, 0), Fraction(1, 2**32))})
    curator = curator_of(ONE, ROWS)
    found = curator.measure(group, bound_of(curator), Concentrated(Fraction(1, 1000)))
    assert curator.ledger.events[-1].moves == 2**32
    assert found.noise_variance == pytest.approx(500)


# Queries -------------------------------------------------------------------------------------------------------------


def test_a_factor_of_an_unknown_kind_is_refused() -> None:
    """Its norm would be that of a row, and its answers those of the cells."""
    with pytest.raises(SpecError, match=r"factor \('cell'\) must be cells, prefixes, ranges, weights or rows"):
        Factor("cell", (0, 0, 0, 0))
    with pytest.raises(SpecError, match=r"factor \('cell'\) must be"):
        group_from_json(ONE, {"name": "x", "scope": ["a"], "factors": ["cell"]})


def test_weights_of_a_factor_must_be_whole_numbers() -> None:
    with pytest.raises(SpecError, match=r"weight of a factor \(0.9\) must be a whole number"):
        Factor("weights", (1, 0.9))  # type: ignore[arg-type]
    row = Factor("weights", tuple(np.array([2**40, 1]))).row
    assert row == (2**40, 1)
    assert all(type(w) is int for w in row)


@pytest.mark.parametrize(
    "weights",
    [
        np.full((3, 4), 0.9),
        np.ones((3, 4), dtype=np.int32),
        np.ones(4, dtype=np.int64),
        np.array([[1, 2, 3, 4]], dtype=object),
    ],
)
def test_weights_of_products_must_be_whole_numbers_in_rows(weights: object) -> None:
    with pytest.raises(SpecError, match="must be int64, one row per query and one column per cell"):
        products_of(weights)


def test_parts_of_products_must_have_a_row_for_each_query() -> None:
    parts = tuple(((a,), np.ones((n, 2), dtype=np.int64)) for a, n in (("a", 1), ("b", 3)))
    with pytest.raises(SpecError, match="one row per query"):
        Products("p", ("a", "b"), (2, 2), parts, Fraction(1))


@pytest.mark.parametrize("weight", [2**16 + 1, -(2**16) - 1, -(2**63)])
def test_weights_of_products_must_be_fixed_point(weight: int) -> None:
    with pytest.raises(SpecError, match=rf"weight \({abs(weight)}\) must lie between -2\^16 and 2\^16"):
        products_of(np.array([[weight, 0, 0, 0]]))


def test_weights_of_products_stay_as_they_were() -> None:
    """Norms are kept from one question to the next, so the weights must be."""
    weights = np.array([[1, 0, 0, 0]])
    view = weights.view()
    view.setflags(write=False)
    groups = [products_of(weights), products_of(view)]
    assert [squared_norm(g) for g in groups] == [1, 1]
    weights[0, 0] = 2**16
    for group in groups:
        assert group.parts[0][1].tolist() == [[1, 0, 0, 0]]
        with pytest.raises(ValueError, match="read-only"):
            group.parts[0][1][0, 0] = 2


def test_what_nobody_can_change_is_not_copied() -> None:
    own = np.arange(4)
    own.setflags(write=False)
    packed = np.frombuffer(own.tobytes(), dtype=np.int64)
    assert frozen(packed) is packed
    part = products_of(packed.reshape(1, 4)).parts[0][1]
    assert np.shares_memory(part, packed)
    kept = frozen(own)  # whoever holds an array that owns its memory can make it writable again
    own.setflags(write=True)
    own[0] = 7
    assert kept.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="WRITEABLE"):
        kept.setflags(write=True)
    masked = np.ma.masked_array(np.array([1, 2**20]), mask=[False, True])
    assert type(frozen(masked)) is np.ndarray  # a mask would hide weights from their norm


def test_marginals_have_norm_one() -> None:
    group = Kronecker("m", ("a",), (CELLS,), (4,))
    assert squared_norm(group) == absolute_norm(group) == 1


# Caps, weights of rows and rules -------------------------------------------------------------------------------------

PAIR = Schema(
    (Table(name="r", attributes=("k", "a")), Table(name="s", attributes=("k", "b"))),
    (Attribute(name="k", key=True), Attribute(name="a", range=(0, 1)), Attribute(name="b", range=(0, 1))),
)


MANY = {"r": [{"k": 1, "a": 0}], "s": [{"k": 1, "b": 0}] * 50}


def test_caps_are_those_that_were_given() -> None:
    """The engine opens when it is first asked: what became of the caller's caps by then is no matter."""
    bounds = [DegreeBound(attributes=("k",), limit=1)]
    caps = {"r": bounds, "s": list(bounds)}
    curator = curator_of(PAIR, MANY).capped(caps)
    bound = bound_of(curator)
    caps["s"][0] = DegreeBound(attributes=("k",), limit=10**6)
    caps["r"] = []
    assert bound.value == 1
    assert curator._engine.exact_join_size() == 1


def test_weights_of_rows_are_those_that_were_given() -> None:
    weights = {name: np.array([1, 0]) for name in ("r", "s")}
    fades = {name: RowWeights(("k",), w, 1) for name, w in weights.items()}
    curator = curator_of(PAIR, {**MANY, "s": MANY["s"][:2]}).weighted(fades)
    bound = bound_of(curator)
    weights["s"][1] = 1
    del fades["s"]
    assert bound.value == 1
    assert curator._engine.exact_join_size() == 0


def test_rules_are_those_that_were_given() -> None:
    curator = curator_of(PAIR, MANY)
    labels = curator.labels("l", (), {(1,): 1}, attributes=("k",))
    rules: dict[str, dict[Labels, int]] = {"r": {labels: 0}, "s": {labels: 0}}
    question = Question(name="q", rules=rules, by=("k",), distinct=("k",))
    (part,) = curator.restrict("parts", {"light": rules}, [Concentrated(Fraction(1, 1000))])
    for table in rules.values():
        table[labels] = 1
    assert part._engine.exact_join_size() == 0
    assert question.rules == {"r": {labels: 0}, "s": {labels: 0}}


# Costs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [float("nan"), 0.5, float("inf"), np.float64(0.5), -1, Fraction(-1, 9), None])
def test_costs_must_be_exact_and_not_negative(amount: Fraction) -> None:
    """nan compares with nothing: once booked, anything would fit."""
    zero = Fraction(0)
    makers = [
        lambda: Pure(amount),
        lambda: Approximate(amount, zero),
        lambda: Approximate(zero, amount),
        lambda: Concentrated(amount),
        lambda: Concentrated(zero, amount),
        lambda: laplace_cost(amount),
    ]
    for make in makers:
        with pytest.raises(BudgetError, match=r"must be a Fraction or a whole number, and not negative"):
            make()


def test_costs_may_be_whole_numbers() -> None:
    allowance = Accountant(Concentrated(Fraction(3)))
    allowance.spend(Concentrated(2))  # type: ignore[arg-type]
    assert allowance.left.rho == 1
    assert isinstance(1 / Pure(3).epsilon, Fraction)  # type: ignore[arg-type]
    paper = Accountant(Approximate(2, Fraction(1, 10)))  # type: ignore[arg-type]
    paper.spend(Approximate(1, Fraction(0)))  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="exceeds what is left"):
        paper.spend(Approximate(Fraction(3, 2), Fraction(0)))


@pytest.mark.parametrize("cost", [Concentrated(Fraction(10**9)), laplace_cost(Fraction(1))])
def test_what_does_not_fit_is_refused_after_a_broken_cost(cost: Cost) -> None:
    accountant = accountant_of(Split(budget=BUDGET))
    with pytest.raises(BudgetError):
        accountant.spend(Concentrated(float("nan")))  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="exceeds what is left"):
        accountant.spend(cost)
    assert accountant.left == accountant.limit


# Public tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [DuckEngine, BruteEngine])
def test_degrees_of_a_public_table_are_in_an_order_that_no_private_row_decides(engine: Any) -> None:
    """Engines number values as they meet them, in whichever table."""
    schema = Schema(
        (Table(name="secret", attributes=("k", "a")), Table(name="shown", attributes=("k", "b"), private=False)),
        (Attribute(name="k", key=True), Attribute(name="a", range=(0, 1)), Attribute(name="b", range=(0, 1))),
    )
    cost, width = one_sided(BUDGET, Fraction(1, 200), Fraction(1, 10**7), moves=1)
    shown = [{"k": k, "b": 0} for k in "zxy" for _ in range(2 * width + 1)]

    def listed(first: str) -> list[object]:
        rows = {"secret": [{"k": k, "a": 0} for k in first], "shown": shown}
        kept = {} if engine is BruteEngine else {"attributes": ("a", "b")}
        tables = rows if engine is BruteEngine else {t: pa.Table.from_pylist(r) for t, r in rows.items()}
        curator = Curator(engine(schema, tables, **kept), Split(budget=BUDGET, truncation_delta=cost.delta))
        question = Question(name="q", rules={"shown": {}}, by=("k",))
        (found,) = curator.noisy_degrees("degrees", [question], cost, half_width=width)
        return list(found.listed)

    assert listed("x") == listed("y") == listed("zy") == [("x",), ("y",), ("z",)]
