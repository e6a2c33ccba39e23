"""Every refusal of the Curator's partitions, each before anything is charged or drawn."""

from __future__ import annotations

from contextlib import suppress
from fractions import Fraction
from typing import Any

import pytest

import dpjoin as dj
from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import (
    ZERO_CONCENTRATED,
    Accountant,
    Approximate,
    Budget,
    Concentrated,
    Pure,
    Split,
)
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.ledger import Event, Ledger
from dpjoin.privacy.mechanisms import choosing
from dpjoin.privacy.parts import Labels, OneTable, Question
from support.brute import BruteEngine

BUDGET = Budget(epsilon=10.0, delta=0.1)


COST = Concentrated(Fraction(1, 10), Fraction(1, 100))


WIDTH = 12


SCHEMA = dj.Schema(
    (
        dj.Table(name="r", attributes=("A", "p")),
        dj.Table(name="s", attributes=("A", "B")),
        dj.Table(name="t", attributes=("B", "q")),
    ),
    tuple(dj.Attribute(name=a, range=(0, 9)) for a in "ABpq"),
)


ROWS = {
    "r": [{"A": 1, "p": 0}] * 40,
    "s": [{"A": 1, "B": 2}] * 3,
    "t": [{"B": 2, "q": 1}] * 5,
}


QUESTIONS = [Question(name=f"{t} by A", rules={t: {}}, by=("A",)) for t in "rs"]


def curator() -> Curator:
    return Curator(BruteEngine(SCHEMA, ROWS), Split(budget=BUDGET, truncation_delta=Fraction(5, 100)))


def asked(made: Curator, table: str, by: tuple[str, ...], stage: str = "degrees") -> Any:
    question = Question(name=f"{table} by {by}", rules={table: {}}, by=by)
    return made.noisy_degrees(stage, [question], COST, half_width=WIDTH)[0]


def untouched(made: Curator, before: Fraction) -> bool:
    return made.rho_left == before and not any(e.mechanism.startswith("discrete") for e in made.ledger.events)


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (Question(name="x", rules={"r": {}, "s": {}}, by=("A",)), "about one table"),
        (Question(name="x", rules={"r": {}, "s": {}}, by=("A", "p"), distinct=("A",)), "include those it groups by"),
        (Question(name="x", rules={"r": {}}, by=("B",)), "attributes that 'r' has"),
        (Question(name="x", rules={"r": {}, "t": {}}, by=("A",), distinct=("A",)), "attributes that 't' has"),
    ],
)
def test_questions_that_one_row_could_answer_twice_are_refused(question: Question, words: str) -> None:
    made = curator()
    before = made.rho_left
    with pytest.raises(BudgetError, match=words):
        made.noisy_degrees("degrees", [question], COST, half_width=WIDTH)
    assert untouched(made, before)


@pytest.mark.parametrize("cost", [COST, Approximate(Fraction(1, 10), Fraction(1, 100))])
def test_too_narrow_a_truncation_is_refused(cost: Any) -> None:
    paper = isinstance(cost, Approximate)
    made = Curator(BruteEngine(SCHEMA, ROWS), Split(budget=BUDGET, paper=True)) if paper else curator()
    question = Question(name="x", rules={"r": {}}, by=("A",))
    with pytest.raises(BudgetError, match="half_width"):
        made.noisy_degrees("degrees", [question], cost, half_width=5)
    assert made.ledger.events == ()


def test_labels_rest_on_answers_of_the_same_curator_and_attributes() -> None:
    made, other = curator(), curator()
    by_a, by_b = asked(made, "r", ("A",)), asked(made, "t", ("B",), "more")
    with pytest.raises(BudgetError, match="must rest on degrees"):
        made.labels("x", [asked(other, "r", ("A",))], {})
    with pytest.raises(BudgetError, match="must rest on degrees"):
        made.labels("x", [by_a, by_b], {})


def test_names_of_stages_and_parts_are_used_once() -> None:
    made = curator()
    asked(made, "r", ("A",))
    with pytest.raises(BudgetError, match="not taken"):
        asked(made, "s", ("A",))  # the same stage
    with pytest.raises(BudgetError, match="not taken"):
        made.restrict("parts", {"r by ('A',)": {}}, [Concentrated(Fraction(1, 100))])


def test_a_part_has_no_bound_without_caps_for_every_table() -> None:
    made = curator()
    labels = made.labels("heavy", [asked(made, "r", ("A",))], {(1,): 1})
    (part,) = made.restrict("parts", {"hot": {"r": {labels: 1}}}, [Concentrated(Fraction(1, 100))])
    with pytest.raises(BudgetError, match="no caps for every table"):
        part.part_bound()
    with pytest.raises(BudgetError, match="asked of the whole instance"):
        asked(part, "s", ("A",), "inside")


def test_what_caps_and_charges_rest_on_cannot_be_changed() -> None:
    """Who writes into an answer, a question, labels or shares would lower a cap, or move rows under another one."""
    two = dj.Schema(
        (SCHEMA.tables[0], dj.Table(name="s", attributes=("A", "q"))), SCHEMA.attributes[:1] + SCHEMA.attributes[2:]
    )
    rows = {"r": ROWS["r"], "s": [{"A": 1, "q": 0}] * 30}
    made = Curator(BruteEngine(two, rows), Split(budget=BUDGET, truncation_delta=Fraction(5, 100)))
    degrees = made.noisy_degrees("degrees", QUESTIONS, COST, half_width=WIDTH)
    given: Any = degrees[0].listed
    with suppress(TypeError):
        given[1,] = 1
    labels = made.labels("heavy", degrees, {(1,): 1})
    parts = {str(b): {t: {labels: b} for t in "rs"} for b in (0, 1)}
    light, heavy = made.restrict("parts", parts, [Concentrated(Fraction(1, 100))] * 2)
    given = labels.buckets
    with suppress(TypeError):
        given[1,] = 0
    assert light._engine.exact_join_size() == 0
    bound = heavy.part_bound()
    assert bound.value >= 40
    for written in (QUESTIONS[0].rules, QUESTIONS[0].rules["r"]):
        given = written
        with pytest.raises(TypeError):
            given["r"] = 0


def test_a_table_alone_is_paid_for_by_its_own_rows() -> None:
    """Two tables alone cost what one does; the same table twice costs twice."""
    made = curator()
    one, other = OneTable("r", ("p",)), OneTable("t", ("q",))
    assert made.participation([one, other]) == 1
    assert made.participation([one, OneTable("r", ("p",))]) == 2
    with pytest.raises(BudgetError, match="made by this Curator"):
        made.participation([OneTable("r", ("p",), Labels("heavy", ("A",), {(1,): 1}))])


def test_an_allowance_refuses_what_exceeds_it_and_other_currencies() -> None:
    allowance = Accountant(Concentrated(Fraction(1, 10), Fraction(1, 100)))
    allowance.spend(Concentrated(Fraction(1, 10)))
    for cost in (Concentrated(Fraction(1, 10**9)), Concentrated(Fraction(0), Fraction(1, 10)), Pure(Fraction(1))):
        with pytest.raises(BudgetError):
            allowance.spend(cost)
    with pytest.raises(BudgetError, match="negative"):
        allowance.spend(Concentrated(Fraction(-1)))
    with pytest.raises(BudgetError, match="another accountant"):
        allowance.reserve(1, Pure(Fraction(1)), Approximate(Fraction(1), Fraction(1, 10)))
    assert allowance.left == Concentrated(Fraction(0), Fraction(1, 100))


def test_an_event_on_an_unknown_part_cannot_be_added_up() -> None:
    event = Event(mechanism="discrete Gaussian", purpose="x", cost=COST, moves=Fraction(1), part="nowhere")
    with pytest.raises(BudgetError, match="that the ledger knows"):
        _ = Ledger("zero-concentrated", (event,)).rho


def test_a_part_counts_no_participation_and_an_idle_choice_is_refused() -> None:
    """Labels belong to the whole instance; a choice without rho would be uniform, and paid for by nobody."""
    made = curator()
    labels = made.labels("heavy", [asked(made, "r", ("A",))], {(1,): 1})
    (part,) = made.restrict("parts", {"hot": {"r": {labels: 1}}}, [Concentrated(Fraction(1, 100))])
    with pytest.raises(BudgetError, match="of the whole instance"):
        part.participation([{"r": {labels: 1}}])
    with pytest.raises(BudgetError, match="paid for with rho"):
        choosing(1, Concentrated(Fraction(0)), ZERO_CONCENTRATED)
    with pytest.raises(BudgetError, match="must be given for a Concentrated cost"):
        made.sensitivity_bound(Approximate(Fraction(1, 10), Fraction(1, 10**9)), half_width=5)
