"""Rows that count less, the more of them share a value: oracle, sensitivity on neighbours, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.interface import RowWeights
from dpjoin.methods.look import cap_attributes
from dpjoin.privacy.accounting import Split
from dpjoin.privacy.curator import Curator
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import CELLS, Factor, Group, kronecker
from support.brute import BruteEngine
from support.capped import schema_of
from support.fading import BUDGET, fades_of
from support.skewed import Rows, changed, skewed_rows

ONE_CAP = ("two", "star", "triangle")
"""Shapes whose tables need one kind of weights each."""


def exact_moves(schema: Schema, fades: dict[str, RowWeights], rows: Rows, other: Rows, groups: Any) -> list[int]:
    ours, theirs = (BruteEngine(schema, r).weighted(fades).exact_answers(groups) for r in (rows, other))
    return [sum((int(a) - int(b)) ** 2 for a, b in zip(x, y, strict=True)) for x, y in zip(ours, theirs, strict=True)]


@pytest.mark.parametrize("shape", ONE_CAP)
def test_no_neighbour_moves_more_than_the_bound(shape: str) -> None:
    """Random weights, random neighbours: marginals, a group of signed weights, and the size."""
    rng = np.random.default_rng([7, len(shape)])
    schema = schema_of(shape)
    groups = list(dj.Workload.marginals(schema, [1, 2]).groups)
    first = schema.queryable[0]
    signed: Group = kronecker(
        schema, {first: Factor("rows", packed=np.array([[3, -2, 1, -3], [1, 1, -1, -1]]).tobytes())}
    )
    close = 0.0
    for _ in range(40):
        rows = skewed_rows(schema, rng)
        bounding = {t: by for t, (by,) in cap_attributes(schema).items()}
        fades = {t: RowWeights(bounding[t], f.weights, f.full) for t, f in fades_of(schema, rng).items()}
        curator = Curator(BruteEngine(schema, rows), Split(budget=BUDGET)).weighted(fades)
        bound = curator.public_bound()
        assert bound is not None
        other = changed(schema, rows, rng)
        for group, squared in zip(groups, exact_moves(schema, fades, rows, other, groups), strict=True):
            assert squared <= bound.value**2, group.name
            close = max(close, squared / bound.value**2)
        (squared,) = exact_moves(schema, fades, rows, other, [signed])
        assert squared <= 2 * 10 * bound.value**2
        sizes = [BruteEngine(schema, r).weighted(fades).exact_join_size() for r in (rows, other)]
        assert abs(sizes[0] - sizes[1]) <= bound.value
    assert close > 0.1


def test_the_bound_is_attained_and_no_smaller_one_would_do() -> None:
    """All rows of a value in one cell, the new one in another."""
    schema = schema_of("two")
    fade = RowWeights(("A",), np.array([8, 8, 7, 5, 4]), 8)
    groups = [kronecker(schema, {"B": CELLS, "C": CELLS})]
    worst = 0
    for d in range(7):
        for partners in range(1, 7):
            rows: Rows = {"r": [{"A": 0, "B": 1}] * d, "s": [{"A": 0, "C": 2}] * partners}
            other: Rows = {"r": [*rows["r"], {"A": 0, "B": 3}], "s": rows["s"]}
            worst = max(worst, *exact_moves(schema, {"r": fade, "s": fade}, rows, other, groups))
    curator = Curator(BruteEngine(schema, {"r": [], "s": []}), Split(budget=BUDGET))
    bound = curator.weighted({"r": fade, "s": fade}).public_bound()
    assert bound is not None
    assert worst <= bound.value**2
    assert worst > 0.9 * bound.value**2
