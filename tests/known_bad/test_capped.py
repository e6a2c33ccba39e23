"""Capped: rows go by public rules, one row more moves no more than declared, and noisy numbers alone decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.interface import Engine, RowWeights
from dpjoin.methods import look
from dpjoin.methods.look import (
    Caps,
)
from dpjoin.privacy.instance import Instance
from dpjoin.privacy.mechanisms import Move
from dpjoin.privacy.parts import NoisyRanks
from dpjoin.spec.schema import DegreeBound, Schema
from support.audit import audited
from support.brute import BruteEngine
from support.capped import SHARP, run_on, schema_of
from support.skewed import Rows, changed


class DropsValues(BruteEngine):
    """Removes every row of a value that has too many, instead of those beyond the cap."""

    def _exact_within(self, name: str, bounds: Sequence[DegreeBound]) -> list[dict[str, object]]:
        rows = self._exact_rows[name]
        for bound in bounds:
            count = Counter(tuple(r[a] for a in bound.attributes) for r in rows)
            rows = [r for r in rows if count[tuple(r[a] for a in bound.attributes)] <= bound.limit]
        return rows


def edge_rows(rng: np.random.Generator) -> Rows:
    """Three values with four to six rows each, about as many as the caps of `five`."""
    return {
        t: [{"A": v, a: int(rng.integers(4))} for v in range(3) for _ in range(rng.integers(4, 7))]
        for t, a in (("r", "B"), ("s", "C"))
    }


def five(schema: Schema, ranks: Sequence[NoisyRanks]) -> list[Caps]:
    """Public caps that some values reach."""
    return [{("r", ("A",)): 5, ("s", ("A",)): 5}]


def found_wrong(make: Callable[[Any], Engine], count: int) -> Iterator[str]:
    """What is wrong with a release of some instances, one after the other."""
    rng = np.random.default_rng(4)
    schema = schema_of("two")
    workload = dj.Workload.marginals(schema, 1)
    for _ in range(count):
        rows = edge_rows(rng)
        wrong, _ = audited(run_on(make, workload, SHARP), rows, changed(schema, rows, rng), SHARP)
        yield from wrong


def test_a_value_that_is_dropped_whole_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "candidate_caps", five)
    monkeypatch.setattr(look, "fading_price", lambda workload: None)
    schema = schema_of("two")
    assert any("sensitivity" in w for w in found_wrong(lambda t: DropsValues(schema, t), 40))
    assert not any(found_wrong(lambda t: BruteEngine(schema, t), 40))


def test_a_pushed_out_row_that_is_not_paid_for_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "candidate_caps", five)
    monkeypatch.setattr(look, "fading_price", lambda workload: None)
    monkeypatch.setattr(Instance, "move_of_group", lambda self, group, bound: Move(bound.value, bound.value))
    schema = schema_of("two")
    assert any("sensitivity" in w for w in found_wrong(lambda t: BruteEngine(schema, t), 60))


def test_a_fading_value_that_is_dropped_whole_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are said to fall slowly, and an engine that drops a value as soon as it exceeds the cap."""

    class Drops(BruteEngine):
        def weighted(self, fades: Any) -> BruteEngine:
            steep = {
                t: RowWeights(f.attributes, np.where(f.weights < f.full, 0, f.weights), f.full)
                for t, f in fades.items()
            }
            return super().weighted(steep)

    monkeypatch.setattr(look, "candidate_caps", five)
    schema = schema_of("two")
    assert any("sensitivity" in w for w in found_wrong(lambda t: Drops(schema, t), 40))
    assert not any(found_wrong(lambda t: BruteEngine(schema, t), 40))


def test_caps_from_exact_degrees_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest degree as it is: the neighbour has another one."""

    def exact_caps(schema: Schema, ranks: Sequence[NoisyRanks]) -> list[Caps]:
        return [{place: int(current[0]) for place in (("r", ("A",)), ("s", ("A",)))}]

    current = [1]

    class Peeking(BruteEngine):
        def __init__(self, schema: Schema, tables: Any) -> None:
            super().__init__(schema, tables)
            current[0] = max(1, self.exact_boundary(frozenset(["r"])))

    monkeypatch.setattr(look, "candidate_caps", exact_caps)
    schema = schema_of("two")
    assert any(found_wrong(lambda t: Peeking(schema, t), 60))
