"""Domains learned carelessly: each way is built, and replay on neighbours names it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.privacy import gate, instance
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.columns import ColumnOf, counts_between
from dpjoin.privacy.curator import Curator
from support.audit import Tape, attach, ledger_violations, overpaid, replay_violations
from support.brute import BruteEngine
from support.learned import LOUD, learnable
from support.owners import SHAPES, Rows, without_person

BUDGET = replace(LOUD, domains=Concentrated(Fraction(1), Fraction(1, 200)))
LIST = Concentrated(Fraction(1, 10), Fraction(1, 1000))
WIDTH = 20
PEOPLE = learnable(SHAPES["two tables"], b=True)
ROWS = replace(PEOPLE, unit=())


def asked(schema: dj.Schema, values: int = 1, width: int = WIDTH, kept: list[Any] | None = None) -> Any:
    """A list of values and counts between edges, of all learned columns."""

    def run(kind: type[Curator], rows: Rows, tape: Tape) -> Any:
        curator = attach(kind(BruteEngine(schema, rows), Split(budget=BUDGET)), tape)
        if kept is not None:
            kept.append(curator)
        names = schema.learned
        costs = [Concentrated(Fraction(1, 5), Fraction(1, 1000))] * len(names)
        columns = curator.columns("domains", [ColumnOf(attribute=a, values=values) for a in names], costs)
        told: list[Any] = []
        for column in columns:
            told.append(dict(column.noisy_values(LIST, half_width=width).listed))
            told.append(column.noisy_counts([0, 1, 2, 3], Concentrated(Fraction(1, 10))).noisy)
        return told

    return run


def instance_of(many: int = 60) -> Rows:
    """Many persons with one value, one person with three others that nobody else has."""
    rows: Rows = {"r": [{"o": o, "a": 0} for o in range(many)], "s": [{"o": o, "b": 0} for o in range(many)]}
    rows["r"] += [{"o": many, "a": a} for a in (1, 2, 3)]
    return rows


def without_row(rows: Rows) -> Rows:
    return {**rows, "r": rows["r"][:-1]}


def test_the_honest_way_passes() -> None:
    """For persons and for rows: the control without which the others would show nothing."""
    rows = instance_of()
    kept: list[Any] = []
    assert replay_violations(asked(ROWS, kept=kept), rows, without_row(rows)) == []
    assert overpaid(kept[1]) == []
    assert ledger_violations(kept[0].ledger, LOUD) == []
    assert replay_violations(asked(PEOPLE, 2, 28), rows, without_person(PEOPLE, rows, (60,))) == []


def test_a_domain_from_observed_values_is_caught() -> None:
    """Which values occur is private: the list tells the last row of a value."""

    def run(kind: type[Curator], rows: Rows, tape: Tape) -> Any:
        exact = BruteEngine(ROWS, rows).exact_values("a", 1)
        return sorted(exact.exact_values(np.arange(len(exact.exact_counts))))

    rows = instance_of()
    assert replay_violations(run, rows, without_row(rows)) == [
        "publication: it differs although every noisy answer was the same"
    ]


def test_a_threshold_below_twice_the_half_width_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that one row has may then be listed, and its neighbour, where nobody has it, cannot list it."""
    honest = gate.values_above
    monkeypatch.setattr(gate, "values_above", lambda exact, counts, threshold: honest(exact, counts, threshold // 4))
    rows = instance_of()
    found = (replay_violations(asked(ROWS), rows, without_row(rows)) for _ in range(8))
    assert ["support: 'domain of a: values' lists a value that the neighbour cannot list"] in found


def test_exact_quantiles_are_caught() -> None:
    """An edge at the median of the rows moves with one of them."""

    def run(kind: type[Curator], rows: Rows, tape: Tape) -> Any:
        exact = BruteEngine(ROWS, rows).exact_numbers("a")
        return float(np.median(np.repeat(exact.exact_values, exact.exact_counts)))

    rows: Rows = {"r": [{"o": o, "a": o % 2} for o in range(21)], "s": []}
    assert replay_violations(run, rows, {**rows, "r": rows["r"][1:]})


def test_edges_at_exact_quantiles_are_caught_by_their_questions() -> None:
    """Also where only the edges between which is counted follow from the rows."""

    def run(kind: type[Curator], rows: Rows, tape: Tape) -> Any:
        engine = BruteEngine(ROWS, rows)
        curator = attach(kind(engine, Split(budget=BUDGET)), tape)
        (column,) = curator.columns("domains", [ColumnOf(attribute="a")], [Concentrated(Fraction(1, 5))])
        exact = engine.exact_numbers("a")
        middle = float(np.median(np.repeat(exact.exact_values, exact.exact_counts)))
        cuts = sorted({-1.0, middle, 5.0})
        assert counts_between(exact, cuts).sum()
        return column.noisy_counts(cuts, Concentrated(Fraction(1, 10))).edges

    rows: Rows = {"r": [{"o": o, "a": o % 2} for o in range(21)], "s": []}
    assert replay_violations(run, rows, {**rows, "r": rows["r"][1:]})


def test_persons_at_all_their_values_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit on the values of one person, one of them moves more than was declared."""
    honest = BruteEngine.exact_values
    monkeypatch.setattr(BruteEngine, "exact_values", lambda self, a, most: honest(self, a, 100))
    rows = instance_of()
    (said,) = replay_violations(asked(PEOPLE, 2, 28), rows, without_person(PEOPLE, rows, (60,)))
    assert said.startswith("sensitivity: 'domain of a: values'")


def test_persons_who_are_charged_as_rows_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One person moves as many values as it has; noise for a single one is too little."""
    monkeypatch.setattr(instance, "owners_counted", lambda schema, table: False)
    rows = instance_of()
    (said,) = replay_violations(asked(PEOPLE, 2), rows, without_person(PEOPLE, rows, (60,)))
    assert said.startswith("sensitivity: 'domain of a: values'")


def test_persons_who_pay_for_one_table_only_are_caught() -> None:
    """A person has rows in both tables, and pays for the columns of both."""
    rows = instance_of()
    rows["s"] += [{"o": 60, "b": 1}]
    kept: list[Any] = []
    assert replay_violations(asked(PEOPLE, 2, 28, kept), rows, without_person(PEOPLE, rows, (60,))) == []
    assert overpaid(kept[1]) == []
    ledger = kept[1].ledger
    kept[1]._gate.book.ledger = replace(ledger, owner=())
    assert any(problem.startswith("participation") for problem in overpaid(kept[1]))
