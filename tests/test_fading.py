"""Rows that count less, the more of them share a value: oracle, sensitivity on neighbours, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpjoin as dj
from dpjoin.engine.brute import BruteEngine
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import RowWeights
from dpjoin.errors import BudgetError, SpecError
from dpjoin.methods import fading, look
from dpjoin.methods.look import cap_attributes
from dpjoin.privacy.accounting import Approximate, Budget, Concentrated, Pure, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import most_of_value, moves_of_row, weighted_bound
from dpjoin.spec.schema import DegreeBound, Schema
from dpjoin.spec.workload import CELLS, Factor, Group, kronecker
from support.audit import replay_violations
from support.capped import ANY, schema_of
from support.engines import arrow_tables
from support.skewed import Rows, changed, skewed_rows

BUDGET = Budget(epsilon=1.0, delta=1e-6)
ONE_CAP = ("two", "star", "triangle")
"""Shapes whose tables need one kind of weights each."""


def fades_of(schema: Schema, rng: np.random.Generator, *, longest: int = 6) -> dict[str, RowWeights]:
    """Any weights that fall, by one set of attributes for each table that meets another."""
    found = {}
    for table in schema.tables:
        others = {a for t in schema.tables if t.name != table.name for a in t.attributes}
        shared = schema.in_order(set(table.attributes) & others)
        by = shared if rng.random() < 0.5 else shared[: 1 + int(rng.integers(len(shared)))]
        weights = -np.sort(-rng.integers(0, 9, int(rng.integers(1, longest + 1))))
        weights[0] = max(weights[0], 1)
        found[table.name] = RowWeights(by, weights.astype(np.int64), 9)
    return found


@pytest.mark.oracle
@pytest.mark.parametrize("shape", ANY)
def test_weights_are_what_the_loops_say(shape: str) -> None:
    """Answers, sizes and boundaries of random instances: every row as often as its value's weight."""
    rng = np.random.default_rng(len(shape))
    schema = schema_of(shape)
    workload = dj.Workload.marginals(schema, [1, 2])
    names = [t.name for t in schema.tables]
    for _ in range(12):
        rows, fades = skewed_rows(schema, rng), fades_of(schema, rng)
        some = dict(list(fades.items())[: int(rng.integers(1, len(fades) + 1))])
        slow = BruteEngine(schema, rows).weighted(some)
        fast = DuckEngine(schema, arrow_tables(schema, rows), attributes=schema.queryable).weighted(some)
        assert fast.exact_join_size() == slow.exact_join_size()
        for ours, theirs in zip(fast.exact_answers(workload.groups), slow.exact_answers(workload.groups), strict=True):
            assert ours.tolist() == theirs.tolist()
        others = frozenset(names[1:])
        assert fast.exact_boundary(others) == slow.exact_boundary(others)


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


@pytest.mark.oracle
def test_large_weights_neither_wrap_nor_round() -> None:
    """Products beyond 2^63."""
    schema = schema_of("two")
    rows: Rows = {
        "r": [{"A": 1, "B": b} for b in (0, 0, 3)],
        "s": [{"A": 1, "C": c} for c in (1, 2)],
    }
    fades = {t: RowWeights(("A",), np.array([2**40 + 1] * 3), 2**40 + 1) for t in "rs"}
    groups = dj.Workload.marginals(schema, [1, 2]).groups
    slow = BruteEngine(schema, rows).weighted(fades)
    fast = DuckEngine(schema, arrow_tables(schema, rows), attributes=schema.queryable).weighted(fades)
    assert fast.exact_join_size() == slow.exact_join_size() == 6 * (2**40 + 1) ** 2
    for ours, theirs in zip(fast.exact_answers(groups), slow.exact_answers(groups), strict=True):
        assert ours.tolist() == theirs.tolist()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_what_a_row_moves_is_the_worst_over_degrees(weights: list[int]) -> None:
    """Against the definition, degree by degree."""
    falling = sorted(weights, reverse=True)
    fade = RowWeights(("A",), np.array(falling), 30)
    of = [*falling, 0, 0]
    assert most_of_value(fade) == max(d * w for d, w in enumerate(of, 1))
    square = max(of[d] ** 2 + (d * (of[d - 1] - of[d]) if d else 0) ** 2 for d in range(len(of)))
    moves = moves_of_row(fade)
    assert (moves - 1) ** 2 < square <= moves**2 or moves == square == 0


def exact_moves(schema: Schema, fades: dict[str, RowWeights], rows: Rows, other: Rows, groups: Any) -> list[int]:
    ours, theirs = (BruteEngine(schema, r).weighted(fades).exact_answers(groups) for r in (rows, other))
    return [sum((int(a) - int(b)) ** 2 for a, b in zip(x, y, strict=True)) for x, y in zip(ours, theirs, strict=True)]


@pytest.mark.replay
@pytest.mark.parametrize("shape", ONE_CAP)
def test_no_neighbour_moves_more_than_the_bound(shape: str) -> None:
    """Random weights, random neighbours: marginals, a group of signed weights, and the size."""
    rng = np.random.default_rng([7, len(shape)])
    schema = schema_of(shape)
    groups = list(dj.Workload.marginals(schema, [1, 2]).groups)
    first = schema.queryable[0]
    signed: Group = kronecker(
        schema, {first: Factor("rows", packed=np.array([[3, -2, 1, -3], [1, 1, -1, -1]]).tobytes())}
    )
    close = 0.0
    for _ in range(40):
        rows = skewed_rows(schema, rng)
        bounding = {t: by for t, (by,) in cap_attributes(schema).items()}
        fades = {t: RowWeights(bounding[t], f.weights, f.full) for t, f in fades_of(schema, rng).items()}
        curator = Curator(BruteEngine(schema, rows), Split(budget=BUDGET)).weighted(fades)
        bound = curator.public_bound()
        assert bound is not None
        other = changed(schema, rows, rng)
        for group, squared in zip(groups, exact_moves(schema, fades, rows, other, groups), strict=True):
            assert squared <= bound.value**2, group.name
            close = max(close, squared / bound.value**2)
        (squared,) = exact_moves(schema, fades, rows, other, [signed])
        assert squared <= 2 * 10 * bound.value**2
        sizes = [BruteEngine(schema, r).weighted(fades).exact_join_size() for r in (rows, other)]
        assert abs(sizes[0] - sizes[1]) <= bound.value
    assert close > 0.1


@pytest.mark.replay
def test_the_bound_is_attained_and_no_smaller_one_would_do() -> None:
    """All rows of a value in one cell, the new one in another."""
    schema = schema_of("two")
    fade = RowWeights(("A",), np.array([8, 8, 7, 5, 4]), 8)
    groups = [kronecker(schema, {"B": CELLS, "C": CELLS})]
    worst = 0
    for d in range(7):
        for partners in range(1, 7):
            rows: Rows = {"r": [{"A": 0, "B": 1}] * d, "s": [{"A": 0, "C": 2}] * partners}
            other: Rows = {"r": [*rows["r"], {"A": 0, "B": 3}], "s": rows["s"]}
            worst = max(worst, *exact_moves(schema, {"r": fade, "s": fade}, rows, other, groups))
    curator = Curator(BruteEngine(schema, {"r": [], "s": []}), Split(budget=BUDGET))
    bound = curator.weighted({"r": fade, "s": fade}).public_bound()
    assert bound is not None
    assert worst <= bound.value**2
    assert worst > 0.9 * bound.value**2


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


@pytest.mark.known_bad
def test_weights_that_forget_what_the_others_lose_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row's own weight alone: the audit finds the rest."""
    schema = schema_of("two")
    group = kronecker(schema, {"B": CELLS, "C": CELLS})
    fades = {t: RowWeights(("A",), np.array([8] * 5), 8) for t in "rs"}

    def run(curator_class: type[Curator], tables: Any, tape: Any) -> Any:
        curator = curator_class(BruteEngine(schema, tables), Split(budget=BUDGET))
        curator.__dict__["tape"] = tape
        faded = curator.weighted(fades)
        bound = faded.public_bound()
        assert bound is not None
        return faded.measure(group, bound, Concentrated(Fraction(1, 1000))).values.tolist()

    rows: Rows = {"r": [{"A": 0, "B": 1}] * 5, "s": [{"A": 0, "C": 2}] * 5}
    other: Rows = {"r": [{"A": 0, "B": 1}] * 6, "s": rows["s"]}
    assert replay_violations(run, rows, other) == []
    monkeypatch.setattr("dpjoin.privacy.degree_bounds.moves_of_row", lambda fade: int(fade.weights[0]))
    assert any("sensitivity" in w for w in replay_violations(run, rows, other))


# The weights that are used -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("price", fading.PRICES)
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
    assert fading.best_price(schema_of("two"), [("r", ("A",)), ("s", ("A",))]) == fading.PRICES[0]
    key = schema_of("two", r=(DegreeBound(attributes=("A",), limit=1),))
    assert fading.best_price(key, [("s", ("A",))]) > fading.PRICES[1]
    assert look.fading_price(dj.Workload.marginals(schema_of("path"), 1)) is None


def test_product_queries_keep_hard_caps() -> None:
    schema = schema_of("two")
    weights = {"r": (("B",), np.array([[1, -1, 0, 0.5]])), "s": (("C",), np.array([[0, 1, 1, -1]]))}
    products = dj.Workload.products(schema, weights)
    assert look.fading_price(products) is None
