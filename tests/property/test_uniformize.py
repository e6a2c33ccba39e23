"""Uniformize: parts cut the join exactly, their caps hold on both neighbours, a row pays for one part only."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpjoin.paper.alg5_partition_two_table import best_runs
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.ledger import largest_total
from support.audit import Recorder
from support.brute import BruteEngine
from support.skewed import SHAPES, changed, schema_of, skewed_rows
from support.uniformized import run_on


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
