"""Rows that count less, the more of them share a value: oracle, sensitivity on neighbours, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import RowWeights
from support.brute import BruteEngine
from support.capped import ANY, schema_of
from support.engines import arrow_tables, small_partitions
from support.fading import fades_of
from support.skewed import Rows, skewed_rows


@pytest.mark.parametrize("shape", ANY)
def test_weights_are_what_the_loops_say(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers, sizes and boundaries of random instances: every row as often as its value's weight."""
    rng = np.random.default_rng(len(shape))
    schema = schema_of(shape)
    workload = dj.Workload.marginals(schema, [1, 2])
    names = [t.name for t in schema.tables]
    for n in range(12):
        small_partitions(monkeypatch, n)
        rows, fades = skewed_rows(schema, rng), fades_of(schema, rng)
        some = dict(list(fades.items())[: int(rng.integers(1, len(fades) + 1))])
        slow = BruteEngine(schema, rows).weighted(some)
        fast = DuckEngine(schema, arrow_tables(schema, rows), attributes=schema.queryable).weighted(some)
        assert fast.exact_join_size() == slow.exact_join_size()
        for ours, theirs in zip(fast.exact_answers(workload.groups), slow.exact_answers(workload.groups), strict=True):
            assert ours.tolist() == theirs.tolist()
        others = frozenset(names[1:])
        assert fast.exact_boundary(others) == slow.exact_boundary(others)


@pytest.mark.parametrize("seed", range(3))
def test_large_weights_neither_wrap_nor_round(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products beyond 2^63."""
    small_partitions(monkeypatch, seed)
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
