"""Joins of one model per table: equal to nested loops, bars cover, folders come back to the bit, answers are fast."""

from __future__ import annotations

import dataclasses
import itertools
import time

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.model.terms import Domain
from support.joined import (
    LISTED,
    SHAPES,
    answers_on,
    brute,
    groups_of,
    make_joined,
)


@pytest.mark.parametrize("name", ["two tables", "three tables", "chain", "unlisted", "one listed", "one table"])
def test_floors_hold_whatever_is_off(name: str) -> None:
    """If every table's own queries are off by at most its floor, the join's are off by at most the bar."""
    shape = SHAPES[name]
    joined = make_joined(shape)
    floors = [3.0, 0.0, 5.0]
    tables = tuple(dataclasses.replace(t, floor=f, members=()) for t, f in zip(joined.tables, floors, strict=False))
    joined = dataclasses.replace(joined, tables=tables)
    rng = np.random.default_rng(0)
    groups = [g for g in groups_of(shape) if g.max_abs]
    worst = 0.0
    for _ in range(5):
        off = []
        for table in tables:
            # All that the floor allows in one cell: the worst there is where the others have most.
            moved = table.table.copy()
            moved.reshape(-1)[rng.integers(moved.size)] += table.floor
            off.append(moved)
        truth = brute(joined, off)
        for group in groups:
            miss = np.abs(answers_on(joined.domain, truth, group) - joined.answer(group))
            bars = joined.error(group, 0.9)
            assert (miss <= bars + 1e-9).all()
            worst = max(worst, float((miss / bars).max()))
    assert worst > 0.1
    assert make_joined(shape)._floor == 0.0


def test_two_thousand_listed_values_are_fast() -> None:
    """All pairs of six attributes, 64 cells per table: far below 0.2 s, the first time; and the table as well."""
    values = 2000
    tables = []
    for i, names in enumerate(("uvw", "xyz")):
        domain = Domain((LISTED,), tuple(names), {LISTED: values} | dict.fromkeys(names, 4))
        plain = np.random.default_rng(i).uniform(0, 1, (values, 64))
        tables.append(Model(domain, float(plain.sum()), plain=plain))
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("key", *"uvw")), dj.Table(name="s", attributes=("key", "k", *"xyz"))),
        (
            dj.Attribute(name="key", key=True),
            dj.Attribute(name="k", range=(0, values - 1)),
            *(dj.Attribute(name=a, range=(0, 3)) for a in "uvwxyz"),
        ),
    )
    one, two = (t.table for t in tables)
    for keys, limit in (((), 0.1), (("k",), 0.3)):
        names = (*keys, *"uvwxyz")
        domain = Domain((*keys, *"uvw"), tuple("xyz"), {a: schema.attribute(a).size for a in names})
        groups = dj.Workload.marginals(schema, list(itertools.combinations(names, 2))).groups
        taken = []
        for _ in range(3):
            joined = Joined(domain, tuple(tables), LISTED, {a: np.arange(values)[::-1] for a in keys})
            begun = time.perf_counter()
            answers = [joined.answer(g) for g in groups]
            taken.append(time.perf_counter() - begun)
        assert min(taken) < limit
        assert answers[0].sum() == pytest.approx(joined.total)
        table = joined.table
        exact = one.T @ two if not keys else (one[::-1, :, None] * two[::-1, None, :]).reshape(-1, 64)
        assert np.allclose(table, exact)
