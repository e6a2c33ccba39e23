"""Gauges and residual sensitivity against their definitions in loops, and on every neighbour of small instances."""

from __future__ import annotations

import itertools
import math

import numpy as np

from dpjoin.privacy.gauge import gauge
from dpjoin.privacy.residual import (
    Boundaries,
    local_sensitivity,
)
from support.gauge import (
    Rows,
    all_neighbours,
    boundaries_of,
    largest_move,
    random_rows,
    schema_of,
    sums,
)


def test_local_sensitivity_is_no_gauge() -> None:
    """Local sensitivity taken for a number that one row moves by at most one: the neighbour check refuses it."""
    rng = np.random.default_rng(90)
    schema = schema_of("path3")
    moves = [0]
    for _ in range(10):
        tables = random_rows(rng, schema)
        b = boundaries_of(schema, tables)
        for other in all_neighbours(schema, tables):
            moves.append(largest_move(b, boundaries_of(schema, other), local_sensitivity))
    assert max(moves) > 1


def test_growth_that_merely_stops_at_a_cap_is_no_gauge() -> None:
    """Stopping s_2 and s_3 at the declared 1 instead of bounding T_F: one row moves the level by 18."""

    def stopped(b: Boundaries) -> int:
        level = 0
        for s1, s2, s3 in itertools.product(range(60), range(2), range(2)):
            for i in b.tables:
                s = {"R1": s1, "R2": s2, "R3": s3}
                total = sum(s.values()) - s[i]
                value = sums(b, frozenset(b.tables) - {i}, {**s, i: 0})
                while math.comb(level + total, 2) < value:
                    level += 1
        return level

    schema = schema_of("path3")
    many: Rows = [{"A": 0, "B": 0}] * 1000
    before = boundaries_of(schema, {"R1": many, "R2": [], "R3": []})
    after = boundaries_of(schema, {"R1": many, "R2": [{"B": 0, "C": 0}], "R3": []})
    assert largest_move(before, after, stopped) == 18
    assert largest_move(before, after, gauge) <= 1
