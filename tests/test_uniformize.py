"""Uniformize: parts cut the join exactly, their caps hold on both neighbours, a row pays for one part only."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.engine.brute import BruteEngine
from dpjoin.engine.duck import DuckEngine
from dpjoin.errors import BudgetError, SpecError
from dpjoin.measure.shares import partition_shares
from dpjoin.methods.common_key import check_common
from dpjoin.methods.method import Outcome
from dpjoin.paper.alg5_partition_two_table import best_runs
from dpjoin.privacy.accounting import Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.ledger import largest_total
from dpjoin.privacy.parts import Labels, Question
from support.audit import Recorder, Replayer, Tape, audited, published
from support.skewed import GENEROUS, SHAPES, changed, schema_of, skewed_rows
from support.uniformized import run_on


def many_audits(shape: str, profile: str, count: int) -> None:
    rng = np.random.default_rng([len(shape), profile == "tight", count])
    several = 0
    for turn in range(count):
        schema = schema_of(shape, public="s" if turn % 5 == 4 else None)
        rows = skewed_rows(schema, rng)

        def run(kind: type[Curator], tables: Any, tape: Tape) -> tuple[Outcome, Curator]:
            return run_on(BruteEngine(schema, tables), kind, profile, tape)  # noqa: B023

        found, outcome = audited(run, rows, changed(schema, rows, rng), GENEROUS)
        assert found == []
        several += len(outcome.parts) > 1
    # Otherwise the test would say nothing about partitions.
    assert several >= count // 10 or shape == "figure4"


@pytest.mark.replay
@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replay_on_neighbours(shape: str, profile: str) -> None:
    """Same questions, declared moves hold, nobody pays more than the ledger says, which is the whole budget."""
    many_audits(shape, profile, 12)


@pytest.mark.full
@pytest.mark.replay
@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replay_on_many_neighbours(shape: str, profile: str) -> None:
    many_audits(shape, profile, 300)


def results(engine: Any) -> Counter[Any]:
    names = [t.name for t in engine.schema.tables]
    return Counter(tuple(sorted(r.items())) for r in engine._exact_join(names))


@pytest.mark.oracle
class Noting(Recorder):
    """It keeps the Curators of its sub-instances, by stage."""

    def restrict(self, stage: str, *given: Any, **options: Any) -> list[Curator]:
        self.__dict__.setdefault("made", {})[stage] = super().restrict(stage, *given, **options)
        return list(self.__dict__["made"][stage])


@pytest.mark.parametrize("shape", SHAPES)
def test_parts_cut_the_join_exactly_and_their_caps_hold_on_both_neighbours(shape: str) -> None:
    """Every join result lies in one part; no row of either neighbour is in more results than the part's bound."""
    rng = np.random.default_rng([7, len(shape)])
    for _ in range(15):
        schema = schema_of(shape)
        rows = skewed_rows(schema, rng)
        engine = BruteEngine(schema, rows)
        _, curator = run_on(engine, Noting, "tight")
        whole: Counter[Any] = Counter()
        labels = next(x for x in curator._labels if x.name == "part")
        buckets = sorted({0, *labels.buckets.values()})
        minted = [part._minted[-1] for part in curator.made["parts"]]
        other = BruteEngine(schema, changed(schema, rows, rng))
        for bucket, bound in zip(buckets, minted, strict=True):
            rules = {t.name: {labels: bucket} for t in schema.tables}
            whole += results(engine.restricted(rules))
            for table in schema.tables:
                others = frozenset(t.name for t in schema.tables) - {table.name}
                assert engine.restricted(rules).exact_boundary(others) <= bound.value
            moved = engine.restricted(rules).exact_join_size() - other.restricted(rules).exact_join_size()
            assert abs(moved) <= bound.value
        assert whole == results(engine)


@pytest.mark.oracle
@pytest.mark.parametrize("shape", SHAPES)
def test_both_engines_publish_the_same(shape: str) -> None:
    """What the brute-force engine answered, replayed on DuckDB with the same rows: nothing moves at all."""
    rng = np.random.default_rng([9, len(shape)])
    for _ in range(6):
        schema = schema_of(shape)
        rows = skewed_rows(schema, rng)
        tape = Tape()
        outcome, _ = run_on(BruteEngine(schema, rows), Recorder, "tight", tape)
        arrow = {
            t.name: pa.table({a: pa.array([r[a] for r in rows[t.name]], pa.int64()) for a in t.attributes})
            for t in schema.tables
        }
        duck = DuckEngine(schema, arrow, attributes=schema.queryable)
        again, replayer = run_on(duck, Replayer, "tight", tape)
        assert np.array_equal(published(outcome), published(again))
        assert not any(squared for _, squared in replayer.__dict__["moved"])


def test_participation_is_the_maximum_over_all_assignments() -> None:
    """Against every assignment of buckets to names, in a loop."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        names = ["a", "b", "c", "d"][: rng.integers(1, 5)]
        places = [
            (
                {str(n): int(rng.integers(0, 3)) for n in rng.permutation(names)[: rng.integers(0, len(names) + 1)]},
                Fraction(int(rng.integers(0, 6)), 5),
            )
            for _ in range(rng.integers(1, 9))
        ]
        best = Fraction(0)
        for number in range(3 ** len(names)):
            given = {name: number // 3**i % 3 for i, name in enumerate(names)}
            agree = [amount for place, amount in places if all(given[n] == b for n, b in place.items())]
            best = max(best, sum(agree, Fraction(0)))
        assert largest_total(places) == best


def test_best_runs_are_the_cheapest() -> None:
    """Against every way to cut five things into runs."""
    rng = np.random.default_rng(5)
    for _ in range(50):
        costs = rng.random((6, 6))
        runs = best_runs(5, lambda i, j: float(costs[i, j]))  # noqa: B023
        every = []
        for cuts in range(16):
            ends = [i + 1 for i in range(4) if cuts >> i & 1] + [5]
            every.append(sum(costs[a, b] for a, b in zip([0, *ends[:-1]], ends, strict=True)))
        assert sum(costs[r.start, r.stop] for r in runs) == pytest.approx(min(every))
        assert [r.start for r in runs] == [0, *(r.stop for r in runs[:-1])]


def test_a_join_without_a_common_attribute_is_refused() -> None:
    schema = dj.Schema(
        (
            dj.Table(name="r", attributes=("A", "B")),
            dj.Table(name="s", attributes=("B", "C")),
            dj.Table(name="t", attributes=("C", "D")),
        ),
        tuple(dj.Attribute(name=a, range=(0, 2)) for a in "ABCD"),
    )
    with pytest.raises(SpecError, match="all tables share"):
        check_common(schema)


def curator_on_two() -> tuple[Curator, Labels]:
    schema = schema_of("two")
    rows = {"r": [{"A": 1, "p": 0}] * 40, "s": [{"A": 1, "q": 1}] * 30}
    shares = partition_shares(GENEROUS, gauge=False)
    curator = Curator(BruteEngine(schema, rows), shares.split)
    questions = [Question(name=t, rules={t: {}}, by=("A",)) for t in "rs"]
    degrees = curator.noisy_degrees("degrees", questions, shares.degrees, half_width=shares.degrees_width)
    return curator, curator.labels("part", degrees, {(1,): 1})


def test_the_curator_refuses_what_it_cannot_account_for() -> None:
    """Foreign labels, a label name used twice, bounds of another part, a part restricted again."""
    curator, labels = curator_on_two()
    cost = Concentrated(Fraction(1, 1000))
    with pytest.raises(BudgetError, match="made by this Curator"):
        curator.restrict("x", {"x": {"r": {Labels("part", ("A",), {}): 0}}}, [cost])
    with pytest.raises(BudgetError, match="exist already"):
        curator.labels("part", curator._labels[labels], {})
    light, heavy = curator.restrict("parts", {str(b): {t: {labels: b} for t in "rs"} for b in (0, 1)}, [cost, cost])
    bound = heavy.part_bound()
    assert bound.value >= 40
    with pytest.raises(BudgetError, match="minted by this Curator"):
        light.join_size(bound, cost)
    with pytest.raises(BudgetError, match="minted by this Curator"):
        light.join_size(Bound(bound.value), cost)
    with pytest.raises(BudgetError, match="of the whole instance"):
        light.restrict("again", {"again": {}}, [cost])
    with pytest.raises(BudgetError, match="exceeds what is left"):
        heavy.join_size(bound, Concentrated(Fraction(1, 999)))


def test_a_table_that_a_part_does_not_name_is_charged() -> None:
    """Two parts that both hold all of s cost its rows twice."""
    curator, labels = curator_on_two()
    parts = {str(b): {"r": {labels: b}} for b in (0, 1)}
    assert curator.participation(list(parts.values())) == 2
    assert curator.participation([{**rules, "s": rules["r"]} for rules in parts.values()]) == 1
    before = curator.rho_left
    curator.restrict("parts", parts, [Concentrated(Fraction(1, 1000))] * 2)
    assert before - curator.rho_left == Fraction(2, 1000)
