"""Persons: how far one owner, one row or a row replaced moves the join with clipped results, by the definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Clip
from support.brute import BruteEngine
from support.owners import (
    SHAPES,
    Rows,
    moved,
    schema_of,
    without_person,
)
from support.persons import FULL, arrow_of


def table(name: str, *attributes: str, **more: Any) -> dj.Table:
    return dj.Table(name=name, attributes=attributes, **more)


# What does not hold --------------------------------------------------------------------------------------------------


def test_the_simple_weights_do_not_hide_a_row_of_a_deep_join() -> None:
    """A parent that adopts orphans brings many results and takes the weight of the others: nearly √2·T in l2."""
    schema = SHAPES["deep"]
    rows: Rows = {
        "r": [{"o": 0, "v": 0, "a": 0}],
        "s": [*({"v": 0, "b": 0} for _ in range(10)), *({"v": 1, "b": 1} for _ in range(2000))],
    }
    more = {**rows, "r": [*rows["r"], {"o": 0, "v": 1, "a": 1}]}
    apart = {}
    for steep in (False, True):
        clip = Clip(owner=("o",), limit=10, full=1024, steep=steep)
        apart[steep] = moved(schema, clip, rows, more)[2] / (1024 * 10)
    assert apart[False] > 1.39
    assert apart[True] <= 1


def test_a_private_table_without_an_owner_moves_many_owners() -> None:
    """Fifty patients of one doctor: with a limit of one result each, one row of doctors moves the size by fifty."""
    schema = dj.Schema(
        (table("r", "o", "w", "a"), table("s", "w", "b", owners=50)), SHAPES["snowflake"].attributes[:4], ("o",)
    )
    rows: Rows = {"r": [{"o": n, "w": 0, "a": 0} for n in range(50)], "s": []}
    clip = Clip(owner=("o",), limit=1, full=FULL)
    size, _, euclidean = moved(schema, clip, rows, {**rows, "s": [{"w": 0, "b": 0}]})
    assert size == euclidean == 50 * FULL


def test_a_bound_enforced_across_owners_lets_one_of_them_move_the_others() -> None:
    """Rows of one value beyond a limit go, whoever has them: a person pushes out others' rows."""
    across = (dj.DegreeBound(attributes=("v",), limit=1),)
    schema = schema_of(table("r", "o", "v", "a", bounds=across, enforce=True), table("s", "o", "b"))
    joined = [{"o": o, "b": 0} for o in range(1, 41)]
    others = [{"o": 1 + v, "v": v, "a": 0} for v in range(40)]
    one = [{"o": 0, "v": v, "a": 0} for v in range(40)]
    clip = Clip(owner=("o",), limit=1, full=FULL)
    size, *_ = moved(schema, clip, {"r": others, "s": joined}, {"r": [*others, *one], "s": joined})
    assert size > 5 * FULL  # though the person has no join result at all


def test_a_foreign_key_that_is_made_unique_by_force_is_refused() -> None:
    """Which of two persons keeps a visit would depend on the other one."""
    once = (dj.DegreeBound(attributes=("v",), limit=1),)
    with pytest.raises(dj.SpecError, match="must be unique in the table it points to"):
        schema_of(table("r", "o", "v", "a", bounds=once, enforce=True), table("s", "v", "b", owner_via="v"))


def test_an_owner_is_compared_as_it_is_and_never_coded() -> None:
    """Two owners that a domain would call `other` are two owners."""
    attributes = (dj.Attribute(name="o", values=(0,), other=True), *SHAPES["two tables"].attributes[1:])
    schema = dj.Schema(SHAPES["two tables"].tables, attributes, ("o",))
    rows: Rows = {"r": [{"o": n, "a": 0} for n in (7, 8)], "s": [{"o": n, "b": 0} for n in (7, 8)]}
    for engine in (BruteEngine(schema, rows), DuckEngine(schema, arrow_of(schema, rows), attributes=("a", "b"))):
        assert sorted(engine.exact_results(("o",)).exact_counts.tolist()) == [1, 1]


def test_a_row_replaced_across_owners_moves_more_than_a_row_added() -> None:
    """Item 12's factor for a size is one; under clipping a row that goes to another owner can move it by nearly two."""
    schema = SHAPES["one table"]
    many = [{"o": 1, "a": 0} for _ in range(400)]
    rows: Rows = {"r": [{"o": 0, "a": 0}, *many]}
    replaced: Rows = {"r": [{"o": 1, "a": 0}, *many]}
    clip = Clip(owner=("o",), limit=1, full=1024)
    assert moved(schema, clip, rows, replaced)[0] >= 1024  # one result of 0 goes, and none of 1 comes for it
    worst = 0.0
    for n in range(2, 8):
        some = [{"o": 1, "a": 0} for _ in range(n)]
        first, second = {"r": [{"o": 0, "a": 0}, *some]}, {"r": [{"o": 1, "a": 0}, *some]}
        worst = max(worst, moved(schema, Clip(owner=("o",), limit=1, full=1024), first, second)[0] / 1024)
    assert worst > 1.1


def test_a_row_moves_two_bars_of_the_histogram_of_owners() -> None:
    """One owner leaves one bar for another: √2 in l2, where a person who comes or goes moves one bar by one."""
    schema = SHAPES["two tables"]
    rows: Rows = {"r": [{"o": 0, "a": 0}], "s": [{"o": 0, "b": 0}]}
    more = {**rows, "s": [*rows["s"], {"o": 0, "b": 1}]}
    counts = [
        np.bincount(BruteEngine(schema, r).exact_results(("o",)).exact_counts.astype(int), minlength=4)
        for r in (rows, more, without_person(schema, more, (0,)))
    ]
    assert float(np.linalg.norm(counts[0] - counts[1])) == pytest.approx(math.sqrt(2))
    assert float(np.linalg.norm(counts[1][1:] - counts[2][1:])) == 1
