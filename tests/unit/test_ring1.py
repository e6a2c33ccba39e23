"""Facts of ring 1 that its proofs rest on: values stay as they were checked, and every move is as large as stated."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from fractions import Fraction
from math import exp
from typing import Any

import numpy as np
import pytest

from dpjoin import privacy
from dpjoin.engine.interface import ExactDegrees, RowWeights
from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import (
    ZERO_CONCENTRATED,
    Accountant,
    Approximate,
    Budget,
    Concentrated,
    Pure,
    Split,
    is_laplace,
    laplace_cost,
)
from dpjoin.privacy.curator import Curator, Measurement, _of_kind, _of_rho
from dpjoin.privacy.gate import Book, Draws, Gate, values_above
from dpjoin.privacy.instance import RESIDUAL_STEPS, Bound, Instance, _paper_beta, varying, widest
from dpjoin.privacy.ledger import Event, Ledger
from dpjoin.privacy.mechanisms import choosing, hiding
from dpjoin.privacy.noise import DiscreteGaussian, DiscreteLaplace, Exponential, Law
from dpjoin.privacy.parts import (
    Labels,
    NoisyDegrees,
    OneTable,
    Question,
    bucket_cap,
    part_limits,
    rows_by_rank,
)
from dpjoin.privacy.public_tables import public_counts, public_links
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from dpjoin.spec.workload import Factor, Kronecker
from support.brute import BruteEngine

RHO = Concentrated(Fraction(1, 100))


A, B, C = (Attribute(name=name, range=(0, 2)) for name in "abc")


def bounds(*limits: tuple[str, int]) -> tuple[DegreeBound, ...]:
    return tuple(DegreeBound(attributes=tuple(given), limit=limit) for given, limit in limits)


def engine(*limits: tuple[str, int], public: bool = False, enforce: bool = False) -> BruteEngine:
    """r(a, b) joined with s(b, c); the limits are of s."""
    schema = Schema(
        (
            Table(name="r", attributes=("a", "b")),
            Table(name="s", attributes=("b", "c"), private=not public, bounds=bounds(*limits), enforce=enforce),
        ),
        (A, B, C),
    )
    rows: dict[str, list[dict[str, object]]] = {
        "r": [{"a": 0, "b": 1}, {"a": 1, "b": 1}],
        "s": [{"b": 1, "c": 0}, {"b": 1, "c": 2}],
    }
    return BruteEngine(schema, rows)


def curator(made: BruteEngine | None = None) -> Curator:
    budget = Budget(epsilon=1.0, delta=1e-6)
    return Curator(made or engine(), Split(budget=budget, truncation_delta=Fraction(1, 10**7)))


def group(*row: int, over: str = "a") -> Kronecker:
    return Kronecker("q", (over,), (Factor("weights", row),), (3,))


MARGINAL = Kronecker("m", ("a",), (Factor("cells"),), (3,))


# Values ---------------------------------------------------------------------------------------------------------


def test_no_value_of_ring_1_can_be_changed() -> None:
    """Every dataclass is frozen: what was checked when it was made holds as long as it lives."""
    found = 0
    for module in pkgutil.iter_modules(privacy.__path__, f"{privacy.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == module.name:
                assert value.__dataclass_params__.frozen, value  # type: ignore[attr-defined]
                found += 1
    assert found > 20


def test_listed_degrees_are_copied_and_cannot_be_written() -> None:
    """Caps rest on them."""
    listed = {(1,): 50}
    degrees = NoisyDegrees(Question(name="q", rules={"r": {}}, by=("b",)), 20, listed)
    listed[(1,)] = 0
    assert (degrees.most((1,)), degrees.most((2,))) == (50, 20)
    with pytest.raises(TypeError):
        degrees.listed["r"] = 0  # type: ignore[index]


def test_names_become_plain_text() -> None:
    """Of tables, bounds, questions and sub-instances."""
    name = np.str_("x")
    made: list[Any] = [
        Table(name=name, attributes=[name]),
        Question(name=name, rules={name: {}}, by=[name]),  # type: ignore[arg-type]
        OneTable(name, [name]),  # type: ignore[arg-type]
        DegreeBound(attributes=[name], limit=np.int8(3)),  # type: ignore[arg-type]
    ]
    found = [made[0].name, *made[0].attributes, made[1].name, *made[1].rules, *made[1].by, made[2].table, *made[2].keep]
    assert {type(x) for x in [*found, *made[3].attributes]} == {str}
    assert {type(x) for x in (made[0].attributes, made[1].by, made[2].keep, made[3].attributes)} == {tuple}
    assert type(made[3].limit) is int


# Laws -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [DiscreteGaussian(Fraction(4)), DiscreteLaplace(Fraction(4)), Exponential(Fraction(4))])
def test_what_the_ledger_says_of_a_law_is_a_copy(law: Law) -> None:
    """Whoever writes into it does not change the law."""
    name = next(iter(law.parameters))
    law.parameters[name] = Fraction(0)
    assert law.parameters[name] == 4


@pytest.mark.parametrize("scale", [1, 5, 50])
def test_the_variance_of_laplace_noise_is_at_most_what_is_stated(scale: int) -> None:
    """2r/(1-r)² with r = exp(-1/scale), which comes near it for wide noise."""
    r = exp(-1 / scale)
    assert 0.9 < 2 * r / (1 - r) ** 2 / DiscreteLaplace(Fraction(scale)).variance <= 1


def test_noise_that_its_cost_does_not_pay_for_is_refused() -> None:
    """A cost of another kind, tails that are too heavy for delta, one-sided noise as Laplace noise, no epsilon."""
    cost = Concentrated(Fraction(1, 2), Fraction(1, 10**6))
    for given, composition, width, words in (
        (cost, None, None, "needs the concentrated accountant"),
        (cost, ZERO_CONCENTRATED, 4, r"half_width \(4\) must be large enough"),
        (cost, ZERO_CONCENTRATED, 1, "must be at least"),
        (laplace_cost(Fraction(1)), ZERO_CONCENTRATED, 4, "must not be paid for as Laplace noise"),
        (Approximate(Fraction(1), Fraction(0)), None, None, "must have some epsilon, and a delta"),
        (Approximate(Fraction(1), Fraction(1, 10**6)), None, 3, r"half_width \(3\) must be large enough"),
        (Pure(Fraction(0)), None, None, "must have some epsilon"),
        (Concentrated(Fraction(0)), ZERO_CONCENTRATED, None, "must have some rho"),
    ):
        with pytest.raises(BudgetError, match=words):
            hiding(1, given, composition, half_width=width)
    assert hiding(1, cost, ZERO_CONCENTRATED, half_width=9).law.parameters["half_width"] == 9


def test_a_choice_is_paid_for_with_rho_or_by_a_round() -> None:
    """Its epsilon is the round's, or epsilon²/8 is rho; the gate divides it by twice the move of a score."""
    for cost, composition in ((RHO, None), (laplace_cost(Fraction(1)), ZERO_CONCENTRATED)):
        with pytest.raises(BudgetError, match="must be paid for with rho"):
            choosing(3, cost, composition)
    assert choosing(3, Pure(Fraction(1)), None).law.epsilon == 1
    assert choosing(3, Concentrated(Fraction(1, 2)), ZERO_CONCENTRATED).law.epsilon == 2


def test_a_cost_is_of_one_kind() -> None:
    """Laplace noise beside rho has no rho and no delta."""
    assert is_laplace(laplace_cost(Fraction(1)))
    assert not is_laplace(RHO)
    for mixed in (Concentrated(Fraction(1), epsilon=Fraction(1)), Concentrated(Fraction(0), Fraction(1), Fraction(1))):
        with pytest.raises(BudgetError, match="of one kind"):
            is_laplace(mixed)


def test_the_papers_accountant_has_no_rho() -> None:
    """Nor does it take costs in rho."""
    paper = Accountant(Approximate(Fraction(1), Fraction(1, 10)))
    with pytest.raises(BudgetError, match="has no rho"):
        _ = paper.left
    with pytest.raises(BudgetError, match="needs another accountant"):
        paper.spend(RHO)


def test_the_papers_grid_is_fine_and_needs_a_small_delta() -> None:
    """A step of the noisy logarithm is less than one per cent for epsilon 1 and delta 1e-6."""
    beta = _paper_beta(Approximate(Fraction(1), Fraction(1, 10**6)))
    assert 1 < exp(beta / RESIDUAL_STEPS) < 1.01
    for cost in (Approximate(Fraction(1), Fraction(1, 2)), Approximate(Fraction(0), Fraction(1, 10))):
        with pytest.raises(BudgetError, match="a delta below 1/2"):
            _paper_beta(cost)


# Moves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [(), (("b", 5),), (("b", 5), ("c", 5)), (("b", 5), ("c", 5), ("bc", 5))])
def test_one_row_moves_as_much_as_it_pushes_out(limits: tuple[tuple[str, int], ...]) -> None:
    """P-62, with u rows pushed out and a bound of 3: a size by 3·max(1, u), a marginal by 3·√(1 + u²)."""
    whole = Instance.of(engine(*limits, enforce=bool(limits)))
    u, three = len(limits), Bound(3)
    assert (whole.pushed_out, whole.rows_moved) == (u, 1 + u)
    assert whole.move_of_size(three) == 3 * max(1, u)
    assert whole.move_of_query(group(-2, 0, 5), 0, three, centred=False) == 5 * 3 * (1 + u)
    assert whole.move_of_query(group(-2, 0, 5), 0, three, centred=True) == 7 * 3 * (1 + u)
    assert whole.move_of_scores(7, three) == 7 * 3 * (1 + u)
    move = whole.move_of_group(MARGINAL, three)
    assert move.absolute == 3 * (1 + u)
    assert (move.euclidean - 1) ** 2 < 9 * (1 + u * u) <= move.euclidean**2
    mixed = whole.move_of_group(group(-1, 1, 0), three)
    assert mixed.euclidean == 3 * (1 + u)


def test_in_a_part_rows_that_come_and_go_add_up() -> None:
    """What a row pushes out may lie in another sub-instance: then 1 + u rows move, for sizes and marginals too."""
    part = Instance.of(engine(("b", 5), ("c", 5), enforce=True)).restricted("x", {"r": {}, "s": {}}, [])
    assert part.move_of_size(Bound(3)) == 3 * 3
    assert part.move_of_group(MARGINAL, Bound(3)).euclidean == 3 * 3


def test_a_public_bound_is_the_least_that_is_known() -> None:
    """A public table of 2 rows a value with a declared limit of 5, or of 1, and never less than 1."""
    for limit, most in ((5, 2), (2, 2)):
        found = curator(engine(("b", limit), public=True)).public_bound()
        assert found is not None
        assert found.value == most
    assert curator().public_bound() is None


def test_constant_queries_are_no_candidates() -> None:
    """One of three, with the same weight everywhere; and the widest weight is that of the widest query."""
    rows = np.array([[1, 1, 1], [0, 1, 0], [-3, 0, 1]], dtype=np.int64).tobytes()
    three = Kronecker("q", ("a",), (Factor("rows", packed=rows),), (3,))
    assert varying(three).tolist() == [1, 2]
    assert (widest(three, centred=False), widest(three, centred=True)) == (3, 4)


def test_values_at_the_threshold_are_not_listed() -> None:
    """Only above it, and in the order of their text."""
    values = [(9,), (10,), (8,)]
    exact = ExactDegrees(np.array([5, 4, 6]), lambda at: [values[n] for n in at])
    assert list(values_above(exact, np.array([5, 4, 6]), 4).items()) == [((8,), 6), ((9,), 5)]


def test_ranks_count_one_row_of_every_rank() -> None:
    """Degrees 1, 3 and 6 with edges at 2 and 4."""
    assert rows_by_rank(np.array([1, 3, 6]), (2, 4)).tolist() == [1 + 2 + 2, 0 + 1 + 2, 0 + 0 + 2]


def test_a_bucket_is_capped_by_the_largest_degree_in_it() -> None:
    """Values without a bucket are in bucket 0; there those that are not listed may have up to the threshold."""
    degrees = NoisyDegrees(Question(name="q", rules={"r": {}}, by=("b",)), 20, {(1,): 50, (2,): 70, (3,): 90})
    labels = Labels("l", ("b",), {(1,): 1, (2,): 2, (4,): 2})
    assert [bucket_cap(labels, bucket, degrees) for bucket in (0, 1, 2, 3)] == [90, 50, 70, 0]
    none_listed = NoisyDegrees(degrees.question, 20, {})
    assert [bucket_cap(labels, bucket, none_listed) for bucket in (0, 1)] == [20, 20]


def test_a_degree_limits_only_parts_of_what_was_asked() -> None:
    """Of values in a join of r and s: both must have the bucket, or the part holds rows that were not counted."""
    question = Question(name="q", rules={"r": {}, "s": {}}, by=("b",), distinct=("b",))
    labels = Labels("l", ("b",), {(1,): 1})
    known = {labels: [NoisyDegrees(question, 20, {(1,): 50})]}
    schema = engine().schema
    for rules, count in (
        ({"r": {labels: 1}, "s": {labels: 1}}, 1),
        ({"r": {labels: 1}, "s": {}}, 0),
        ({"r": {labels: 1}, "s": {labels: 0}}, 0),
        ({"r": {}, "s": {labels: 1}}, 0),
    ):
        limits = part_limits(schema, rules, known)
        assert [limit.most for limit in limits] == [50] * count


def test_measurements_are_in_the_querys_own_terms() -> None:
    """Counts times the unit, and variance times its square."""
    found = Measurement(MARGINAL, np.array([4, 8, 0]), Fraction(1, 4), Fraction(32))
    assert found.values.tolist() == [1.0, 2.0, 0.0]
    assert found.noise_variance == 2.0


def test_exact_answers_are_computed_one_time() -> None:
    """Groups that were prepared are not asked of the engine again; equal ones that are others are."""

    class Counting(BruteEngine):
        asked = 0

        def exact_answers(self, groups: Any) -> Any:
            Counting.asked += len(groups)
            return super().exact_answers(groups)

    base = engine()
    made = Instance.of(Counting(base.schema, {"r": [{"a": 0, "b": 1}], "s": [{"b": 1, "c": 0}]}))
    made.prepare([MARGINAL])
    made.prepare([MARGINAL, group(1, 2, 3)])
    assert made.exact_answers(MARGINAL).tolist() == [1, 0, 0]
    assert Counting.asked == 2
    assert made.known(Kronecker("m", ("a",), (Factor("cells"),), (3,))) is None


# Refusals -------------------------------------------------------------------------------------------------------

WEIGHTS = RowWeights(("b",), np.array([4, 3, 2, 1]), 4)


def test_weighted_rows_answer_only_what_is_proved_for_them() -> None:
    """Not a noisy bound, a single query, a choice, or a bound of caps; each refused before anything is spent."""
    made = curator()
    child = made.weighted({"r": WEIGHTS, "s": WEIGHTS})
    bound = child.public_bound()
    assert bound is not None
    queries = group(0, 1, 2)
    refused = (
        lambda: child.sensitivity_bound(Concentrated(Fraction(1, 100), Fraction(1, 10**7)), half_width=100),
        lambda: child.measure_query(queries, 0, bound, RHO),
        lambda: child.worst_query([queries], [np.array([0])], bound, RHO),
        lambda: child.part_bound(),
        lambda: child.join_size(bound, Approximate(Fraction(1), Fraction(1, 10**7))),
    )
    for call in refused:
        with pytest.raises(BudgetError, match="must be of rows that all count alike"):
            call()
    assert made.ledger.events == ()
    assert child.unit == Fraction(1, 16)


@pytest.mark.parametrize(("cost", "width"), [(RHO, None), (Approximate(Fraction(1), Fraction(1, 10**7)), 100)])
def test_a_noisy_bound_has_one_sided_noise(cost: Any, width: int | None) -> None:
    """Without a half-width rho buys noise of both signs, and the bound could be below the truth."""
    made = curator(engine())
    with pytest.raises(BudgetError, match=r"half_width \(.*\) must be given for a Concentrated cost, and for no other"):
        made.sensitivity_bound(cost, half_width=width)
    assert made.ledger.events == ()


def test_what_is_asked_of_the_whole_is_refused_by_a_part() -> None:
    """Degrees, ranks, exchanges, counts of public tables, labels, further parts."""
    made = curator(engine(public=True))
    question = Question(name="q", rules={"r": {}}, by=("b",))
    cost = Concentrated(Fraction(1, 100), Fraction(1, 10**8))
    for child in (made.capped({"r": bounds(("b", 2))}), *made.restrict("stage", {"x": {"r": {}}}, [cost])):
        before = made.ledger
        for call in (
            lambda: child.noisy_degrees("d", [question], cost, half_width=100),  # noqa: B023
            lambda: child.noisy_ranks("d", [question], [1], RHO),  # noqa: B023
            lambda: child.exchange(),  # noqa: B023
            lambda: child.public_counts("s", ("b",)),  # noqa: B023
            lambda: child.labels("l", [], {}, attributes=("b",)),  # noqa: B023
            lambda: child.participation([question]),  # noqa: B023
            lambda: child.restrict("other", {"y": {"r": {}}}, [cost]),  # noqa: B023
        ):
            with pytest.raises(BudgetError, match="of the whole instance"):
                call()
        assert made.ledger == before


def test_rows_are_removed_or_weighted_one_time() -> None:
    """And only rows of private tables are, by attributes that these have."""
    made, public = curator(), curator(engine(public=True))
    for child in (made.capped({"r": bounds(("b", 2))}), made.weighted({"r": WEIGHTS})):
        for again in (lambda: child.capped({"s": bounds(("b", 2))}), lambda: child.weighted({"s": WEIGHTS})):  # noqa: B023
            with pytest.raises(BudgetError, match="that is done once"):
                again()
    with pytest.raises(BudgetError, match="caps must be of private tables"):
        public.capped({"s": bounds(("b", 2))})
    with pytest.raises(BudgetError, match="weights must be of private tables"):
        public.weighted({"s": WEIGHTS})
    with pytest.raises(BudgetError, match="attributes that their table has"):
        made.weighted({"r": RowWeights(("c",), np.array([1]), 1)})


def test_private_tables_are_not_counted_exactly() -> None:
    """Only public ones, and the links of these to others, not to themselves."""
    made = engine(public=True)
    with pytest.raises(BudgetError, match="must be public to be counted exactly"):
        public_counts(made, "r", ("b",))
    assert public_counts(made, "s", ("b",)).tolist() == [0, 2, 0]
    assert public_links(made.schema) == {"s": [("b",)]}


def test_a_level_of_weighted_rows_is_refused() -> None:
    """By the instance itself: the gauge counts rows."""
    weighted = Instance.of(engine()).weighted({"r": WEIGHTS})
    with pytest.raises(BudgetError, match="a noisy bound must be of rows that all count alike"):
        weighted.sensitivity_level(RHO)


def test_public_boundaries_look_at_public_tables_only() -> None:
    """The exact ones look at all: here each b has two rows of r, and two of s."""

    class Watched(BruteEngine):
        asked: frozenset[str] = frozenset()

        def exact_boundary(self, tables: frozenset[str]) -> int:
            Watched.asked |= tables
            return super().exact_boundary(tables)

    base = engine(public=True)
    rows = {"r": [{"a": 0, "b": 1}, {"a": 1, "b": 1}], "s": [{"b": 1, "c": 0}, {"b": 1, "c": 2}, {"b": 1, "c": 1}]}
    made = Instance.of(Watched(base.schema, rows))
    public = made._public_boundaries()
    assert Watched.asked == {"s"}
    assert dict(public.values) == {frozenset(): 1, frozenset("r"): 0, frozenset("s"): 3}
    assert dict(made._exact_boundaries(public).values) == {frozenset(): 1, frozenset("r"): 2, frozenset("s"): 3}


def test_only_minted_bounds_count() -> None:
    """A bound that a caller made, though equal to one that the Curator made, is refused by every method."""
    made = curator(engine(public=True))
    minted = made.public_bound()
    assert minted is not None
    forged, queries = Bound(minted.value), group(0, 1, 2)
    for call in (
        lambda: made.join_size(forged, RHO),
        lambda: made.measure(MARGINAL, forged, RHO),
        lambda: made.measure_query(queries, 0, forged, RHO),
        lambda: made.worst_query([queries], [np.array([0])], forged, RHO),
    ):
        with pytest.raises(BudgetError, match="must be minted by this Curator"):
            call()
    assert made.ledger.events == ()
    assert made.join_size(minted, RHO).unit == 1


def test_a_query_that_a_group_does_not_have_is_refused() -> None:
    """Its number is below the number of queries."""
    made = curator(engine(public=True))
    bound = made.public_bound()
    assert bound is not None
    with pytest.raises(BudgetError, match=r"number \(3\) must be less than 3"):
        made.measure_query(MARGINAL, 3, bound, RHO)
    with pytest.raises(BudgetError, match="one answer for each query"):
        made.worst_query([MARGINAL], [np.array([0, 0])], bound, RHO)


def test_prepared_groups_are_asked_together() -> None:
    """One question to the engine for all of them, and none later."""

    class Recording(BruteEngine):
        asked: list[int] = []  # noqa: RUF012

        def exact_answers(self, groups: Any) -> Any:
            Recording.asked.append(len(groups))
            return super().exact_answers(groups)

    base = engine(public=True)
    made = curator(Recording(base.schema, {"r": [{"a": 0, "b": 1}], "s": [{"b": 1, "c": 0}]}))
    other, bound = group(1, 2, 3), made.public_bound()
    assert bound is not None
    made.prepare([MARGINAL, other])
    made.measure(MARGINAL, bound, RHO)
    made.measure(other, bound, RHO)
    assert Recording.asked == [2]


# The gate -------------------------------------------------------------------------------------------------------

EVENT = Event(mechanism="discrete Gaussian", purpose="a test", cost=RHO, moves=Fraction(1))


def test_noise_is_added_to_every_number() -> None:
    """To each its own, whole numbers of any size, and the threshold is compared with noisy degrees."""

    def draw(size: int) -> Any:
        return np.arange(10, 10 + size)

    assert Draws().add(np.array([1, 2**62], dtype=object), draw, EVENT).tolist() == [11, 2**62 + 11]
    values = ExactDegrees(np.array([5, 4]), lambda at: [("x", "y")[n] for n in at])
    assert Draws().listed(values, draw, 14, EVENT) == {"x": 15, "y": 15}
    assert Draws().listed(values, lambda size: -draw(size), 0, EVENT) == {}
    assert Draws().chosen(lambda: np.array([0, 10**6]), Fraction(1), EVENT) == 1


def test_the_gate_spends_and_writes_before_it_looks() -> None:
    """If the exact value cannot be computed, the charge stays; if it cannot be paid for, nothing is looked at."""

    def fails() -> Any:
        raise RuntimeError("looked")

    mechanism = hiding(1, RHO, ZERO_CONCENTRATED)
    with pytest.raises(BudgetError, match="must have one-sided noise"):
        Gate(Accountant(RHO, ZERO_CONCENTRATED), Book(Ledger("zero-concentrated"))).values("a test", mechanism, fails)
    for ask in (Gate.number, Gate.numbers):
        book, purse = Book(Ledger("zero-concentrated")), Accountant(Concentrated(RHO.rho), ZERO_CONCENTRATED)
        with pytest.raises(RuntimeError, match="looked"):
            ask(Gate(purse, book), "a test", mechanism, fails)
        assert purse.left.rho == 0
        assert len(book.ledger.events) == 1
        with pytest.raises(BudgetError, match="exceeds what is left"):
            ask(Gate(purse, book), "a test", mechanism, fails)
        assert len(book.ledger.events) == 1


def test_parts_and_their_costs_go_together() -> None:
    """As many costs as parts; nothing is spent otherwise."""
    cost = Concentrated(Fraction(1, 1000))
    made = curator(engine(public=True))
    for count in (1, 3):
        with pytest.raises(BudgetError, match=rf"costs \({count}\) must be as many as sub-instances \(2\)"):
            made.restrict("stage", {"x": {"r": {}}, "y": {"r": {}}}, [cost] * count)
    assert made.ledger.parts == ()


def test_ranks_are_of_rows_of_private_tables() -> None:
    """Not of values in a join, and not of a public table, which needs no noise."""
    made = curator(engine(public=True))
    for question in (
        Question(name="q", rules={"r": {}, "s": {}}, by=("b",), distinct=("b",)),
        Question(name="q", rules={"s": {}}, by=("b",)),
    ):
        with pytest.raises(BudgetError, match="must be about rows of a private table"):
            made.noisy_ranks("ranks", [question], [1], Concentrated(Fraction(1, 1000)))
    assert made.ledger.parts == ()


def test_caps_and_weights_are_of_tables_by_name() -> None:
    """A name is text; what cannot be one is refused with our own error."""
    for call in (lambda: curator().capped({5: ()}), lambda: curator().weighted({5: WEIGHTS})):  # type: ignore[dict-item]
        with pytest.raises(BudgetError, match="must be text"):
            call()


@pytest.mark.parametrize("each", [[], [1, 2], [5, 1], [2, -1], [4, 3, 3, 4]])
def test_weights_that_do_not_fall_are_refused(each: list[int]) -> None:
    """From at most `full` (here 4) down to at least 0, for one row at least."""
    weights = RowWeights(("b",), np.array(each, dtype=np.int64), 4)
    with pytest.raises(BudgetError, match="weights"):
        curator().weighted({"r": weights})


def test_a_table_without_owners_is_not_released_by_itself() -> None:
    """Where a person is protected: rows that name nobody may be anybody's."""
    schema = Schema(
        (Table(name="r", attributes=("a", "b")), Table(name="s", attributes=("b", "c"), owners=2)),
        (A, B, C),
        unit=("a",),
    )
    whole = Instance.of(BruteEngine(schema, {"r": [{"a": 0, "b": 1}], "s": [{"b": 1, "c": 0}]}))
    with pytest.raises(BudgetError, match="must have the owner"):
        whole.restricted("x", {"s": {}}, [], OneTable("s", ("c",)))
    assert whole.restricted("x", {"r": {}}, [], OneTable("r", ("b",))).part == "x"


def test_costs_are_of_exactly_the_kind_that_is_paid() -> None:
    """Not of a subclass, which may add up to anything; and not of Laplace noise where only rho is proved."""

    class Cheap(Concentrated):
        pass

    for cost in (Cheap(Fraction(1)), Pure(Fraction(1)), 1, None):
        with pytest.raises(BudgetError, match="a cost"):
            _of_kind(cost, Approximate, Concentrated)
    assert _of_kind(RHO, Approximate, Concentrated) is RHO
    with pytest.raises(BudgetError, match="must have some rho to spend"):
        _of_rho(laplace_cost(Fraction(1)))
    assert _of_rho(RHO) is RHO


def test_numbers_that_do_not_fit_int64_are_refused() -> None:
    """Weights of a query from 2**63 on."""
    made = curator(engine(public=True))
    bound = made.public_bound()
    assert bound is not None
    for weight in (2**63, -(2**63)):
        with pytest.raises(BudgetError, match="must have weights below 2"):
            made.measure(group(weight, 0, 0), bound, RHO)


def test_questions_have_names_of_their_own() -> None:
    """The ledger tells them apart by these."""
    question = Question(name="q", rules={"r": {}}, by=("b",))
    with pytest.raises(BudgetError, match="different names"):
        curator().noisy_degrees(
            "d", [question, question], Concentrated(Fraction(1, 100), Fraction(1, 10**8)), half_width=99
        )


def test_no_more_than_delta_is_set_aside() -> None:
    """All of it may be."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    assert Split(budget=budget, truncation_delta=Fraction(1e-6)).truncation_delta == Fraction(1e-6)
    with pytest.raises(BudgetError, match="must be at most the budget's delta"):
        Split(budget=budget, truncation_delta=Fraction(2, 10**6))


def test_a_ledger_adds_up_by_a_rule_that_is_proved_for_its_events() -> None:
    """Not by an unknown one, and a choice not by the rule for Gaussian noise; nor is Laplace noise paid with rho."""
    budget = Budget(epsilon=1.0, delta=1e-6)
    small = Concentrated(Fraction(1, 10**6))
    choice = dataclasses.replace(EVENT, mechanism="exponential mechanism", cost=small)
    beside = dataclasses.replace(EVENT, cost=Concentrated(Fraction(0), epsilon=Fraction(1, 100)))
    for ledger in (Ledger("nonsense"), Ledger("Gaussian", (choice,)), Ledger("zero-concentrated", (beside,))):
        with pytest.raises(BudgetError, match="must be one that is proved for every event"):
            ledger.check_within(budget)
    Ledger("zero-concentrated", (choice,)).check_within(budget)
    Ledger("Gaussian", (dataclasses.replace(EVENT, cost=small),)).check_within(budget)
