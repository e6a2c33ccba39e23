"""Hierarchical joins: typed parts cut the join exactly, caps hold on both neighbours, no row pays more than stated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import pytest

from dpjoin.engine.interface import ExactDegrees, Rules, Value
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.paper import alg6_partition_hierarchical as hierarchical
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.ledger import Event
from dpjoin.privacy.numbers import Numbers
from support.audit import Recorder, Replayer, Tape, overpaid, published, replay_violations
from support.brute import BruteEngine
from support.hierarchical import (
    Rows,
    audit,
    crowded,
    partitioned,
    run_on,
    schema_of,
)

# -- broken versions, each caught -----------------------------------------------------------------------


def five_types() -> tuple[Rows, Rows]:
    """SPEC 9b: values of E of two types at one value of C, and a row of r0 that gives this value its first D."""
    above = {"A": 0, "B": 0, "C": 0}
    rows: Rows = {
        "r0": [],
        "r1": [above | {"D": 0, "Q": 0}],
        "r2": [above | {"E": e, "R": n % 3} for e, count in ((0, 1), (1, 30)) for n in range(count)],
        "r3": [above | {"E": e, "S": 0} for e in (0, 1)],
        "r4": [{"A": 0, "B": 0, "T": 0}],
        "r5": [{"A": 0, "Z": 0}],
    }
    return rows, {**rows, "r0": [above | {"D": 0, "P": 1}]}


def once(kind: type[Curator], when: Callable[[Curator, Mapping[str, Rules]], bool]) -> type[Curator]:
    """A Curator that takes some sub-instances for disjoint: each gets a label that no other has."""

    class Once(kind):  # type: ignore[valid-type,misc]
        def _places(self, rules: Mapping[str, Rules]) -> Any:
            seen = self.__dict__.setdefault("seen", [])
            if when(self, rules) and not any(rules is known for known in seen):
                seen.append(rules)
            number = next((n for n, known in enumerate(seen) if known is rules), None)
            places = super()._places(rules)
            return places if number is None else {t: {**place, "once": number} for t, place in places.items()}

    return Once


def is_question(curator: Curator, rules: Mapping[str, Rules]) -> bool:
    return len(rules) < len(curator.schema.tables)


def test_counts_charged_by_path_length_are_caught() -> None:
    """One row moves the counts of every type of E, at C and at B; one for each node on its path is too few."""
    schema = schema_of("deep")
    rows, neighbour = five_types()
    curator, parts = partitioned(BruteEngine(schema, rows))
    stages: dict[int, list[Any]] = {}
    for answer in curator._answered:
        stages.setdefault(len(answer.question.distinct), []).append(answer.question)
    types = {labels.name: labels for labels in curator._labels}
    assert len({0, *types["rows of r2 per A, B, C, E"].buckets.values()}) == 2
    assert curator.participation(stages[3]) >= 2
    assert curator.participation(stages[2]) >= 2
    assert crowded(curator, parts, rows, neighbour) == []
    assert audit(schema, rows, neighbour, "tight")[0] == []

    # Replay finds it even where Curator and ledger are wrong alike.
    bad, parts = partitioned(BruteEngine(schema, rows), kind=once(Curator, is_question))
    assert any("a row of r0 is in" in problem for problem in crowded(bad, parts, rows, neighbour))
    tape = Tape()
    run_on(BruteEngine(schema, rows), once(Recorder, is_question), "tight", tape)
    _, replayer = run_on(BruteEngine(schema, neighbour), once(Replayer, is_question), "tight", tape)
    assert any("participation" in problem for problem in overpaid(replayer))


def test_a_copied_table_counted_once_is_caught() -> None:
    """Rows of r2(A, C) are in a part for every type of (A, B)."""
    schema = schema_of("nested")
    rows: Rows = {
        "r0": [{"A": 0, "B": b, "D": 0} for b, count in ((0, 1), (1, 40)) for _ in range(count)],
        "r1": [{"A": 0, "B": b, "F": 0} for b in (0, 1)],
        "r2": [{"A": 0, "C": 0}],
    }
    curator, parts = partitioned(BruteEngine(schema, rows))
    assert crowded(curator, parts, rows) == []
    assert curator.participation([p.rules for p in parts]) == 2
    bad, parts = partitioned(BruteEngine(schema, rows), kind=once(Curator, lambda c, r: not is_question(c, r)))
    assert bad.participation([p.rules for p in parts]) == 1
    assert any("a row of r2 is in 2" in problem for problem in crowded(bad, parts, rows))


def test_skipping_an_empty_part_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a part has any result is private: the neighbour is asked what this one was not."""
    schema = schema_of("two")
    rows: Rows = {"r0": [{"A": 0, "B": 0}] * 40 + [{"A": 1, "B": 1}], "r1": [{"A": 0, "C": 0}]}
    neighbour = {**rows, "r1": [*rows["r1"], {"A": 1, "C": 0}]}
    assert audit(schema, rows, neighbour, "tight")[0] == []

    def unless_empty(curator: Any, bound: Bound, rho: Fraction) -> NoisyTotal:
        return measure_total(curator, bound, rho) if curator._engine.exact_join_size() else NoisyTotal(0.0, 1.0)

    monkeypatch.setattr(hierarchical, "measure_total", unless_empty)
    for pair in ((rows, neighbour), (neighbour, rows)):
        found, _ = audit(schema, *pair, "tight")
        assert any("control flow" in problem for problem in found)


def test_labels_by_censored_degrees_are_caught() -> None:
    """A value of small degree must not be listed: it may be absent in the neighbour."""
    schema = schema_of("two")
    rows: Rows = {"r0": [{"A": 0, "B": 0}] * 40 + [{"A": 1, "B": 1}], "r1": [{"A": 0, "C": 0}]}
    neighbour = {**rows, "r0": rows["r0"][:-1]}

    def uncensored(kind: type[Curator]) -> type[Curator]:
        class Uncensored(kind):  # type: ignore[valid-type,misc]
            def listed(
                self, exact: ExactDegrees, draw: Callable[[int], Numbers], threshold: int, event: Event
            ) -> dict[Value, int]:
                return dict(super().listed(exact, draw, 0 if kind is Recorder else threshold, event))

        return Uncensored

    def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
        return published(run_on(BruteEngine(schema, tables), uncensored(kind), "tight", tape)[0])

    assert audit(schema, rows, neighbour, "tight")[0] == []
    assert any("support" in problem for problem in replay_violations(run, rows, neighbour))
