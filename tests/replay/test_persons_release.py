"""Releases that protect a person: replay on neighbours, ledgers, refusals, an attack, and the way from a spec file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.methods.capped import CAPPED
from dpjoin.methods.clipped import CLIPPED
from dpjoin.methods.method import Method
from dpjoin.methods.per_table import PER_TABLE
from dpjoin.paper.alg1_two_table import TWO_TABLE
from dpjoin.paper.alg3_multi_table import MULTI_TABLE
from support.audit import DELTA_LEFT, audited, tight_run
from support.brute import BruteEngine
from support.owners import (
    SHAPES,
    Rows,
    owner_of,
    people,
    person_pairs,
    random_row,
    random_rows,
    row_pairs,
)
from support.persons_release import GENEROUS, OTHER_SHAPE, bound_by, table


def audit_of(method: Method, schema: dj.Schema, rows: Rows, other: Rows, budget: dj.Budget = GENEROUS) -> list[str]:
    workload = dj.Workload.marginals(schema, min(2, len(schema.queryable)))
    ran = tight_run(
        lambda tables: BruteEngine(schema, tables), method.split, method.run, workload, budget, method.spendable
    )
    return audited(ran, rows, other, budget)[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_clipped_release_hides_a_person(shape: str) -> None:
    """Same control flow, no exact value moves more than the ledger says, and it adds up to the budget."""
    schema = SHAPES[shape]
    for rows, without in person_pairs(schema, 12, seed=11):
        assert audit_of(CLIPPED, schema, rows, without) == []


@pytest.mark.parametrize("shape", ["two tables", "star", "common key", "snowflake"])
def test_a_clipped_release_hides_a_row(shape: str) -> None:
    """The same for one row, where rows are the unit: by the key that the private tables share."""
    schema = replace(SHAPES[shape], unit=())
    for rows, without in row_pairs(schema, 12, seed=12):
        assert audit_of(CLIPPED, schema, rows, without) == []


def replaced_pairs(schema: dj.Schema, count: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Instances that differ by one row of one private table, or one owner's rows, that became others."""
    rng = np.random.default_rng(seed)
    pairs = person_pairs(schema, count, seed) if schema.unit else row_pairs(schema, count, seed)
    for rows, without in pairs:
        if schema.unit:
            (person,) = set(people(schema, rows)) - set(people(schema, without)) or [(0,)]
            other = random_rows(schema, rng)
            new = {
                t.name: [r for r in other[t.name] if t.private and owner_of(schema, other, t.name, r) == person]
                for t in schema.tables
            }
            yield rows, {name: [*without[name], *new[name]] for name in without}
        else:
            (name,) = (t for t in rows if len(rows[t]) > len(without[t]))
            yield rows, {**without, name: [*without[name], random_row(schema.table(name), rng)]}


@pytest.mark.parametrize("shape", ["two tables", "star", "common key", "snowflake"])
@pytest.mark.parametrize("unit", ["person", "row"])
def test_a_clipped_release_hides_a_replacement(shape: str, unit: str) -> None:
    """Also that of a row by another owner's; the simple factors of added rows would not do."""
    schema = replace(SHAPES[shape], neighbours="replace", unit=SHAPES[shape].unit if unit == "person" else ())
    for rows, other in replaced_pairs(schema, 12, seed=14):
        assert audit_of(CLIPPED, schema, rows, other) == []


@pytest.mark.parametrize("method", [CAPPED, TWO_TABLE, PER_TABLE], ids=lambda m: m.name)
def test_other_methods_hide_a_replaced_row(method: Method) -> None:
    declared = tuple(dj.Attribute(name=n, range=(0, 2)) for n in ("o", "a", "b"))
    schema = dj.Schema((table("r", "o", "a"), table("s", "o", "b")), declared, neighbours="replace")
    for rows, other in replaced_pairs(schema, 12, seed=15):
        found = audit_of(method, schema, rows, other)
        assert [problem for problem in found if problem != DELTA_LEFT] == []


@pytest.mark.parametrize("limits", [1, 2])
@pytest.mark.parametrize("method", [TWO_TABLE, MULTI_TABLE], ids=lambda m: m.name)
def test_a_replaced_row_is_hidden_with_all_that_enforced_bounds_push_out(method: Method, limits: int) -> None:
    """As many rows go, and come, as there are bounds: the noisy bound's shift hides them all."""
    declared = tuple(dj.Attribute(name=n, range=(0, 2)) for n in ("o", "v", "a", "b"))
    first = table("r", "o", "v", "a", bounds=(*bound_by(2, "o"), *bound_by(2, "v"))[:limits], enforce=True)
    others = (table("s", "o", "b"), *([table("t", "v")] if method is MULTI_TABLE else []))
    schema = dj.Schema((first, *others), declared, neighbours="replace")
    free = replace(schema, tables=(replace(first, bounds=()), *others))
    for rows, other in replaced_pairs(free, 6, seed=16):
        assert audit_of(method, schema, rows, other) == []


@pytest.mark.parametrize("enforce", [False, True])
def test_tables_by_themselves_hide_a_person_whose_rows_are_bounded(enforce: bool) -> None:
    """Rows of an owner beyond the bound go by their own order; a person pays in every table."""
    rng = np.random.default_rng(13)
    tables = tuple(replace(t, enforce=enforce) for t in OTHER_SHAPE.tables)
    free = tuple(replace(t, bounds=()) for t in tables) if enforce else tables
    schema = replace(OTHER_SHAPE, tables=tables)
    for _ in range(12):
        rows = random_rows(replace(schema, tables=free), rng)
        person = int(rng.integers(3))
        without = {
            "r": [r for r in rows["r"] if r["o"] != person],
            "s": [r for r in rows["s"] if r["v"] != person],
        }
        assert audit_of(PER_TABLE, schema, rows, without) == []


@pytest.mark.full
@pytest.mark.parametrize("shape", SHAPES)
def test_a_clipped_release_hides_a_person_on_many_pairs(shape: str) -> None:
    schema = SHAPES[shape]
    for rows, without in person_pairs(schema, 300, seed=21):
        assert audit_of(CLIPPED, schema, rows, without) == []


@pytest.mark.full
@pytest.mark.parametrize("unit", ["person", "row"])
@pytest.mark.parametrize("shape", ["two tables", "star", "common key", "snowflake"])
def test_a_clipped_release_hides_rows_and_replacements_on_many_pairs(shape: str, unit: str) -> None:
    schema = replace(SHAPES[shape], unit=SHAPES[shape].unit if unit == "person" else ())
    if unit == "row":
        for rows, without in row_pairs(schema, 300, seed=22):
            assert audit_of(CLIPPED, schema, rows, without) == []
    schema = replace(schema, neighbours="replace")
    for rows, other in replaced_pairs(schema, 300, seed=23):
        assert audit_of(CLIPPED, schema, rows, other) == []
