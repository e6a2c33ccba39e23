"""Hierarchical joins: typed parts cut the join exactly, caps hold on both neighbours, no row pays more than stated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.engine.brute import BruteEngine
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import ExactDegrees, Rules, Value
from dpjoin.errors import SpecError
from dpjoin.measure.progress import silent
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods.method import Outcome
from dpjoin.paper import alg6_partition_hierarchical as hierarchical
from dpjoin.paper.alg6_partition_hierarchical import (
    MOST_PARTS,
    PartOfJoin,
    check_hierarchical,
    hierarchical_paper,
    hierarchical_shares,
    hierarchical_tight,
    partition,
)
from dpjoin.privacy.accounting import Budget, Split
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.degree_bounds import most_results
from dpjoin.privacy.ledger import Event
from dpjoin.privacy.numbers import Numbers
from dpjoin.privacy.parts import NoisyDegrees, Question
from dpjoin.spec.hypergraph import AttributeNode, attribute_tree
from dpjoin.spec.workload import CELLS, kronecker
from support.audit import Recorder, Replayer, Tape, attach, audited, overpaid, published, replay_violations

GENEROUS = Budget(epsilon=50.0, delta=0.1)
"""Noise of a few units, so that small instances fall into several parts."""
SHAPES: dict[str, tuple[str, ...]] = {
    "two": ("AB", "AC"),
    "star": ("AB", "AC", "AD"),
    "nested": ("ABD", "ABF", "AC"),
    "contained": ("AB", "B"),
    "equal": ("AB", "AB"),
    "apart": ("AB", "AC", "D"),
    "figure4": ("ABD", "ABF", "ABGK", "ABGL", "AC"),
    "deep": ("ABCDP", "ABCDQ", "ABCER", "ABCES", "ABT", "AZ"),
}
Rows = dict[str, list[dict[str, int]]]


def schema_of(shape: str, *, public: str | None = None) -> dj.Schema:
    """Tables r0, r1, …; the last attribute has a domain, the others do if they join nothing."""
    tables = SHAPES[shape]
    names = sorted({a for attributes in tables for a in attributes})
    shared = {a for a in names if sum(a in t for t in tables) > 1} - {names[-1]}
    return dj.Schema(
        tuple(dj.Table(name=f"r{i}", attributes=tuple(t), private=f"r{i}" != public) for i, t in enumerate(tables)),
        tuple(dj.Attribute(name=a, key=True) if a in shared else dj.Attribute(name=a, range=(0, 2)) for a in names),
    )


def workload_of(schema: dj.Schema) -> dj.Workload:
    """The join size and two marginals: enough to measure, and quickly fitted."""
    return dj.Workload(schema, tuple(kronecker(schema, dict.fromkeys(s, CELLS)) for s in ("", *schema.queryable[-2:])))


def skewed_rows(schema: dj.Schema, rng: np.random.Generator) -> Rows:
    """A few values of every node, a few of them with many more values or rows below; some dangle."""
    root = attribute_tree(schema)
    assert root is not None
    while True:
        rows: Rows = {t.name: [] for t in schema.tables}
        heavy = [3 if len(schema.tables) > 3 else 5]
        _fill(rng, root, {}, rows, heavy, top=True)
        if BruteEngine(schema, rows).exact_join_size() <= 1000 and max(map(len, rows.values())) <= 60:
            return rows


def _fill(
    rng: np.random.Generator, node: AttributeNode, above: dict[str, int], rows: Rows, heavy: list[int], *, top: bool
) -> None:
    count = int(rng.choice([0, 1, 2, 3], p=[0.08, 0.52, 0.3, 0.1]))
    if heavy[0] and rng.random() < 0.5 and not top:
        heavy[0] -= 1
        count = int(rng.integers(8, 13))
    if not node.children:
        (table,) = node.tables
        rows[table] += [above | {a: int(rng.integers(0, 3)) for a in node.attributes} for _ in range(count)]
        return
    values = range(max(1, count)) if not node.virtual else range(1)
    for number in values:
        for child in node.children:
            _fill(
                rng,
                child,
                above | dict.fromkeys(node.attributes, number % 3 if top else number),
                rows,
                heavy,
                top=False,
            )


def changed(schema: dj.Schema, rows: Rows, rng: np.random.Generator) -> tuple[str, Rows]:
    """One row more, or one less, in one private table, which is named."""
    name = str(rng.choice(schema.private_tables))
    table = list(rows[name])
    if table and rng.random() < 0.5:
        del table[rng.integers(len(table))]
    else:
        # Mostly a row that joins: the attributes of a row of this or another table, else any.
        row = {a: int(rng.integers(0, 3)) for a in schema.table(name).attributes}
        seen = [r for some in rows.values() for r in some]
        if seen and rng.random() < 0.8:
            row |= {a: v for a, v in seen[rng.integers(len(seen))].items() if a in row}
        table.append(row)
    return name, {**rows, name: table}


def run_on(engine: Any, kind: type[Curator], profile: str, tape: Tape | None = None) -> tuple[Outcome, Any]:
    schema = engine.schema
    workload = workload_of(schema)
    if profile == "tight":
        shares = hierarchical_shares(GENEROUS, schema)
        curator = attach(kind(engine, shares.split), tape or Tape())
        return hierarchical_tight(curator, workload, shares, silent), curator
    curator = attach(kind(engine, Split(budget=GENEROUS, paper=True)), tape or Tape())
    return hierarchical_paper(curator, workload, GENEROUS.exact, silent), curator


# -- replay -----------------------------------------------------------------------------------------


def audit(schema: dj.Schema, rows: Rows, other: Rows, profile: str) -> tuple[list[str], int]:
    """All that is found wrong, and how many parts there were."""

    def run(kind: type[Curator], tables: Any, tape: Tape) -> tuple[Outcome, Curator]:
        return run_on(BruteEngine(schema, tables), kind, profile, tape)

    found, outcome = audited(run, rows, other, GENEROUS)
    return found, len(outcome.parts)


def many_audits(shape: str, profile: str, count: int) -> None:
    rng = np.random.default_rng([len(shape), profile == "tight", count])
    several = 0
    for turn in range(count):
        schema = schema_of(shape, public="r1" if turn % 5 == 4 else None)
        rows = skewed_rows(schema, rng)
        found, parts = audit(schema, rows, changed(schema, rows, rng)[1], profile)
        assert found == []
        assert parts <= MOST_PARTS
        several += parts > 1
    # Otherwise the test would say nothing about partitions.
    assert several >= count // 3


@pytest.mark.replay
@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replay_on_neighbours(shape: str, profile: str) -> None:
    """Same questions, declared moves hold, nobody pays more than the ledger says, which is the whole budget."""
    many_audits(shape, profile, 4 if shape in {"deep", "figure4"} else 12)


@pytest.mark.full
@pytest.mark.replay
@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replay_on_many_neighbours(shape: str, profile: str) -> None:
    many_audits(shape, profile, 300)


# -- the partition ------------------------------------------------------------------------------------


def partitioned(engine: Any, profile: str = "tight", kind: type[Curator] = Curator) -> tuple[Any, list[PartOfJoin]]:
    if profile == "tight":
        shares = hierarchical_shares(GENEROUS, engine.schema)
        curator = kind(engine, shares.split)
        question = partial(hierarchical.gaussian_question, curator.composition)
        return curator, partition(curator, shares.stage, question, silent)
    whole = GENEROUS.exact
    stages = len(hierarchical._levels(hierarchical._tree(engine.schema)))
    stage = replace(whole, epsilon=whole.epsilon / 2 / stages, delta=whole.delta / 2 / stages)
    curator = kind(engine, Split(budget=GENEROUS, paper=True))
    return curator, partition(curator, stage, hierarchical.laplace_question, silent)


def results(engine: Any) -> Counter[Any]:
    names = [t.name for t in engine.schema.tables]
    return Counter(tuple(sorted(r.items())) for r in engine._exact_join(names))


def possible(engine: Any, answers: Sequence[NoisyDegrees]) -> bool:
    """Whether these tables could have given the answers."""
    for answer in answers:
        exact = engine.exact_degrees(answer.question.rules, answer.question.by, answer.question.distinct)
        values = exact.exact_values(np.arange(len(exact.exact_counts)))
        degrees = dict(zip(values, exact.exact_counts.tolist(), strict=True))
        for value in {*degrees, *answer.listed}:
            degree, noisy = degrees.get(value, 0), answer.listed.get(value)
            low, high = (0, answer.threshold) if noisy is None else (noisy - answer.threshold, noisy)
            if not low <= degree <= high:
                return False
    return True


def is_in(rules: Mapping[str, Rules], table: str, row: Mapping[str, int]) -> bool:
    return table in rules and all(
        labels.buckets.get(tuple(row[a] for a in labels.attributes), 0) == bucket
        for labels, bucket in rules[table].items()
    )


def crowded(curator: Any, parts: Sequence[PartOfJoin], *worlds: Rows) -> list[str]:
    """Rows that are in more questions of a stage, or in more parts, than the Curator says."""
    asked: dict[int, list[Any]] = {}
    for answer in curator._answered:
        depth = max(hierarchical._height(n) for n in nodes_of(curator.schema) if n.path == answer.question.distinct)
        asked.setdefault(depth if answer.question.distinct else 0, []).append(answer.question)
    found = []
    for stage in [*asked.values(), [part.rules for part in parts]]:
        most = curator.participation(stage)
        for rows in worlds:
            for table in curator.schema.private_tables:
                for row in rows[table]:
                    times = sum(is_in(getattr(x, "rules", x), table, row) for x in stage)
                    found += [f"a row of {table} is in {times} of {len(stage)}, not {most}"] if times > most else []
    return found


def nodes_of(schema: dj.Schema) -> list[AttributeNode]:
    root = attribute_tree(schema)
    assert root is not None
    # A question without values of its own is about a leaf.
    return [*root.walk(), AttributeNode(attributes=(), path=(), tables=frozenset())]


@pytest.mark.oracle
@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_parts_cut_the_join_exactly_and_their_caps_hold(shape: str, profile: str) -> None:
    """Every result lies in one part; caps hold for every table in every world that could have this partition.

    For the table in which neighbours differ they hold in both, whatever the partition: nothing else is in its cap.
    """
    rng = np.random.default_rng([7, len(shape), profile == "tight"])
    several, closest = 0, 0.0
    for _ in range(12 if shape in {"figure4", "deep"} else 20):
        schema = schema_of(shape)
        names = frozenset(t.name for t in schema.tables)
        rows = skewed_rows(schema, rng)
        table, neighbour = changed(schema, rows, rng)
        engine, other = BruteEngine(schema, rows), BruteEngine(schema, neighbour)
        curator, parts = partitioned(engine, profile)
        assert possible(engine, curator._answered)
        also = possible(other, curator._answered)
        whole: Counter[Any] = Counter()
        for part in parts:
            inside, beside = engine.restricted(part.rules), other.restricted(part.rules)
            whole += results(inside)
            limits = curator._limits(part.rules)
            for name in names:
                cap = most_results(schema, names - {name}, limits)
                assert cap is not None
                for world in [inside, *([beside] if also or name == table else [])]:
                    most = world.exact_boundary(names - {name})
                    assert most <= cap
                    closest = max(closest, most / cap if cap > 1 else 0.0)
        assert whole == results(engine)
        assert crowded(curator, parts, rows, neighbour) == []
        several += len(parts) > 1
    assert several >= 4
    # Caps that nothing comes near would prove little; those of light buckets multiply with every table.
    assert closest > (0.5 if len(schema.tables) == 2 else 0.001)


@pytest.mark.oracle
@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_engines_publish_the_same(shape: str, profile: str) -> None:
    """What the brute-force engine answered, replayed on DuckDB with the same rows: nothing moves at all."""
    rng = np.random.default_rng([9, len(shape)])
    for _ in range(2):
        schema = schema_of(shape)
        rows = skewed_rows(schema, rng)
        tape = Tape()
        outcome, _ = run_on(BruteEngine(schema, rows), Recorder, profile, tape)
        arrow = {
            t.name: pa.table({a: pa.array([r[a] for r in rows[t.name]], pa.int64()) for a in t.attributes})
            for t in schema.tables
        }
        duck = DuckEngine(schema, arrow, attributes=schema.queryable)
        again, replayer = run_on(duck, Replayer, profile, tape)
        assert np.array_equal(published(outcome), published(again))
        assert not any(squared for _, squared in replayer.__dict__["moved"])
        assert replayer.position == len(tape.entries)


def noisy(by: tuple[str, ...], listed: dict[Value, int], threshold: int = 10) -> NoisyDegrees:
    return NoisyDegrees(Question(name="q", rules={}, by=by), threshold, listed)


def test_buckets_are_made_coarser_until_there_are_few_enough() -> None:
    """Caps double while there is room; the node of most different degrees is the last to lose its buckets."""
    root = attribute_tree(schema_of("two"))
    assert root is not None
    left, right = ((child, ()) for child in root.children)
    listed = {(n,): 10 * 2**n + 1 for n in range(8)}
    degrees = {left: noisy(("A",), listed), right: noisy(("A",), {(0,): 11, (1,): 21})}

    def counts(most: int) -> tuple[int, int]:
        found = hierarchical._fitting_buckets(root, hierarchical._Known(), degrees, most)
        return len({0, *found[left].values()}), len({0, *found[right].values()})

    assert counts(64) == (9, 3)
    assert [counts(n) for n in (1, 2, 3, 4, 8, 16)] == [(1, 1), (2, 1), (3, 1), (3, 1), (5, 1), (5, 3)]
    finest = hierarchical._fitting_buckets(root, hierarchical._Known(), degrees, 64)
    assert finest[left] == {(n,): n + 1 for n in range(8)}
    # Where there is nothing to group by, there is one value.
    apart = {left: noisy((), {(): 99})}
    assert hierarchical._fitting_buckets(root, hierarchical._Known(), apart, 64) == {left: {}}


def test_a_join_that_is_not_hierarchical_is_refused() -> None:
    def schema(*tables: str) -> dj.Schema:
        return dj.Schema(
            tuple(dj.Table(name=t, attributes=tuple(t)) for t in tables),
            tuple(dj.Attribute(name=a, range=(0, 2)) for a in sorted(set("".join(tables)))),
        )

    for tables in (("AB", "BC", "CD"), ("AB", "BC", "CA"), ("AB",)):
        with pytest.raises(SpecError, match="'hierarchical' must have two or more tables"):
            check_hierarchical(schema(*tables))
        with pytest.raises(SpecError, match="use method 'uniformize'"):
            hierarchical_shares(GENEROUS, schema(*tables))
    check_hierarchical(schema("AB", "CD"))


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


@pytest.mark.known_bad
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


@pytest.mark.known_bad
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


@pytest.mark.known_bad
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


@pytest.mark.known_bad
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
