"""Hierarchical joins: typed parts cut the join exactly, caps hold on both neighbours, no row pays more than stated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpjoin.engine.duck import DuckEngine
from dpjoin.privacy.degree_bounds import most_results
from dpjoin.privacy.parts import NoisyDegrees
from support.audit import Recorder, Replayer, Tape, published
from support.brute import BruteEngine
from support.hierarchical import (
    SHAPES,
    changed,
    crowded,
    partitioned,
    run_on,
    schema_of,
    skewed_rows,
)


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
