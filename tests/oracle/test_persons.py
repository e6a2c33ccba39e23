"""Persons: how far one owner, one row or a row replaced moves the join with clipped results, by the definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Clip
from support.brute import BruteEngine
from support.engines import small_partitions
from support.owners import (
    SHAPES,
    marginals,
    moved,
    owner_of,
    people,
    person_pairs,
    random_row,
    random_rows,
    row_pairs,
)
from support.persons import FULL, arrow_of

PAIRS = 300


@pytest.mark.parametrize("shape", SHAPES)
def test_the_engine_counts_and_clips_as_the_definitions_do(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Join results by owner, and every number of the clipped join, NULL owners and empty tables included."""
    schema, rng = SHAPES[shape], np.random.default_rng(1)
    for n in range(40):
        small_partitions(monkeypatch, n)
        rows = random_rows(schema, rng)
        brute = BruteEngine(schema, rows)
        engine = DuckEngine(schema, arrow_of(schema, rows), attributes=schema.queryable)
        by_owner = []
        for found in (brute.exact_results(schema.unit), engine.exact_results(schema.unit)):
            values = found.exact_values(np.arange(len(found.exact_counts)))
            by_owner.append(dict(zip(values, found.exact_counts.tolist(), strict=True)))
        assert by_owner[0] == by_owner[1]
        clip = Clip(owner=schema.unit, limit=1 + n % 5, full=FULL, steep=n % 2 == 0)
        expected, got = brute.clipped(clip), engine.clipped(clip)
        assert expected.exact_join_size() == got.exact_join_size()
        pairs = zip(expected.exact_answers(marginals(schema)), got.exact_answers(marginals(schema)), strict=True)
        assert all(a.tolist() == b.tolist() for a, b in pairs)


@pytest.mark.parametrize("steep", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_person_moves_the_clipped_join_by_at_most_the_limit(shape: str, steep: bool) -> None:
    """The size, and marginals in l1 and l2, for every shape; the bound is attained."""
    schema, worst = SHAPES[shape], 0.0
    for n, (rows, without) in enumerate(person_pairs(schema, PAIRS, seed=2)):
        clip = Clip(owner=schema.unit, limit=1 + n % 5, full=FULL, steep=steep)
        found = max(moved(schema, clip, rows, without)) / (FULL * clip.limit)
        assert found <= 1
        worst = max(worst, found)
    assert worst == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_moves_the_steeply_clipped_join_by_at_most_the_limit(shape: str) -> None:
    """The size and the l2 norm by T, the l1 norm by √2·T."""
    schema, worst = SHAPES[shape], 0.0
    for n, (rows, without) in enumerate(row_pairs(schema, PAIRS, seed=3)):
        clip = Clip(owner=schema.unit, limit=1 + n % 5, full=FULL)
        size, absolute, euclidean = (m / (FULL * clip.limit) for m in moved(schema, clip, rows, without))
        assert size <= 1
        assert absolute <= math.sqrt(2)
        assert euclidean <= 1 + 1e-12
        worst = max(worst, euclidean)
    assert worst == pytest.approx(1)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_person_replaced_moves_by_root_two(shape: str) -> None:
    """One owner's rows become others: l2 by √2·T, l1 by 2·T, the size by T."""
    schema, rng = SHAPES[shape], np.random.default_rng(4)
    for n, (rows, without) in enumerate(person_pairs(schema, PAIRS, seed=4)):
        (person,) = set(people(schema, rows)) - set(people(schema, without)) or [(0,) * len(schema.unit)]
        other = random_rows(schema, rng)
        mine = {
            t.name: [r for r in other[t.name] if t.private and owner_of(schema, other, t.name, r) == person]
            for t in schema.tables
        }
        replaced = {name: [*without[name], *mine[name]] for name in without}
        if people(schema, replaced) != people(schema, without) and any(
            len({tuple(r[a] for a in b.attributes) for r in replaced[t.name]}) < len(replaced[t.name])
            for t in schema.tables
            for b in t.bounds
        ):
            continue  # an assumed bound would not hold
        clip = Clip(owner=schema.unit, limit=1 + n % 5, full=FULL)
        size, absolute, euclidean = (m / (FULL * clip.limit) for m in moved(schema, clip, rows, replaced))
        assert size <= 1
        assert absolute <= 2
        assert euclidean <= math.sqrt(2) + 1e-12


@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_replaced_moves_by_twice_the_limit(shape: str) -> None:
    """Also one that goes to another owner: the size and the l2 norm by 2·T."""
    schema, rng = SHAPES[shape], np.random.default_rng(5)
    for n, (rows, without) in enumerate(row_pairs(schema, PAIRS, seed=5)):
        (name,) = (t for t in rows if len(rows[t]) > len(without[t]))
        new = random_row(schema.table(name), rng)
        if any(tuple(new[a] for a in b.attributes) in {tuple(r[a] for a in b.attributes) for r in without[name]}
               for b in schema.table(name).bounds):  # fmt: skip
            continue
        replaced = {**without, name: [*without[name], new]}
        clip = Clip(owner=schema.unit, limit=1 + n % 5, full=FULL)
        size, _, euclidean = (m / (FULL * clip.limit) for m in moved(schema, clip, rows, replaced))
        assert size <= 2
        assert euclidean <= 2 + 1e-12
