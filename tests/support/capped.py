"""Joins that fall under caps, and noisy degree sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import dpjoin as dj
from dpjoin.engine.interface import Engine
from dpjoin.measure.ranks import EDGES
from dpjoin.methods.capped import CAPPED, capped_tight
from dpjoin.privacy.accounting import Budget
from dpjoin.privacy.parts import NoisyRanks, Question, rows_by_rank
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from support.audit import tight_run
from support.skewed import SHAPES as COMMON

ANY = {
    **COMMON,
    "two": {"r": "AB", "s": "AC"},
    "path": {"r": "AB", "s": "BC", "t": "CD"},
    "triangle": {"r": "AB", "s": "BC", "t": "CA"},
    "chain": {"r": "AB", "s": "BC", "t": "CD", "u": "DE"},
}


def schema_of(shape: str, **bounds: tuple[DegreeBound, ...]) -> Schema:
    tables = ANY[shape]
    attributes = sorted({a for x in tables.values() for a in x})
    return Schema(
        tuple(Table(name=t, attributes=tuple(x), bounds=bounds.get(t, ())) for t, x in tables.items()),
        tuple(Attribute(name=a, range=(0, 3)) for a in attributes),
    )


def ranks_of(degrees: Sequence[int], deviation: float, rng: np.random.Generator) -> NoisyRanks:
    exact = rows_by_rank(np.array(degrees, dtype=np.int64), EDGES)
    noisy = np.rint(exact + deviation * rng.standard_normal(len(exact)))
    question = Question(name="ranks", rules={"r": {}}, by=("A",))
    return NoisyRanks(question, EDGES, tuple(int(n) for n in noisy), max(deviation, 1e-3))


SHARP = Budget(epsilon=50.0, delta=1e-6)
"""Noise of less than a row: caps follow the degrees."""


BLUNT = Budget(epsilon=1.0, delta=1e-6)


def run_on(make: Callable[[Any], Engine], workload: dj.Workload, budget: Budget) -> Any:
    return tight_run(make, CAPPED.split, capped_tight, workload, budget)
