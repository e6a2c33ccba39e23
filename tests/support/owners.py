"""Small random joins whose rows belong to owners, and their neighbours: one owner, one row, or a row replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import dpjoin as dj
from dpjoin.engine.interface import Clip
from dpjoin.spec.workload import CELLS, Kronecker, kronecker
from support.brute import BruteEngine

Rows = dict[str, list[dict[str, Any]]]
Person = tuple[int | None, ...]


def _table(name: str, *attributes: str, **more: Any) -> dj.Table:
    return dj.Table(name=name, attributes=attributes, **more)


def _unique(*attributes: str) -> tuple[dj.DegreeBound, ...]:
    return (dj.DegreeBound(attributes=attributes, limit=1),)


_ATTRIBUTES = (
    *(dj.Attribute(name=key, key=True) for key in ("o", "v", "w")),
    *(dj.Attribute(name=name, range=(0, 2)) for name in ("a", "b", "c")),
)


def schema_of(*tables: dj.Table, unit: tuple[str, ...] = ("o",)) -> dj.Schema:
    used = {a for t in tables for a in t.attributes}
    return dj.Schema(tables, tuple(a for a in _ATTRIBUTES if a.name in used), unit)


SHAPES = {
    "one table": schema_of(_table("r", "o", "a")),
    "two tables": schema_of(_table("r", "o", "a"), _table("s", "o", "b")),
    "star": schema_of(_table("r", "o", "a"), _table("s", "o", "b"), _table("t", "o", "c")),
    # Every visit has one owner; what hangs below it belongs to that owner.
    "deep": schema_of(_table("r", "o", "v", "a", bounds=_unique("v")), _table("s", "v", "b", owner_via="v")),
    "snowflake": schema_of(_table("r", "o", "w", "a"), _table("s", "o", "b"), _table("t", "w", "c", private=False)),
    # The private tables share more than the owner, and a public table links them.
    "linked": schema_of(
        _table("r", "o", "v", "a"), _table("s", "o", "w", "b"), _table("t", "v", "w", "c", private=False)
    ),
    "common key": schema_of(_table("r", "o", "v", "a"), _table("s", "o", "v", "b")),
    "two attributes": schema_of(_table("r", "o", "w", "a"), _table("s", "o", "w", "b"), unit=("o", "w")),
}


def random_row(table: dj.Table, rng: np.random.Generator) -> dict[str, Any]:
    """Few keys, so that much joins; now and then a value is missing."""
    return {a: None if rng.random() < 0.04 else int(rng.integers(0, 3)) for a in table.attributes}


def owner_of(schema: dj.Schema, rows: Mapping[str, list[dict[str, Any]]], table: str, row: Mapping[str, Any]) -> Person:
    """Whose a row is: by its own attributes, or by the row that its foreign key points to."""
    declared = schema.table(table)
    if declared.owner_via is None:
        return tuple(row[a] for a in schema.unit)
    link = declared.owner_via
    for other in schema.tables:
        if other.name != table and link in other.attributes and set(schema.unit) <= set(other.attributes):
            for parent in rows[other.name]:
                if parent[link] is not None and parent[link] == row[link]:
                    return owner_of(schema, rows, other.name, parent)
    return (None,) * len(schema.unit)


def random_rows(schema: dj.Schema, rng: np.random.Generator, most: int = 7) -> Rows:
    rows: Rows = {}
    for table in schema.tables:
        found = [random_row(table, rng) for _ in range(int(rng.integers(0, most + 1)))]
        for bound in table.bounds:  # assumed to hold, so it does
            seen: dict[tuple[Any, ...], dict[str, Any]] = {}
            for row in found:
                seen.setdefault(tuple(row[a] for a in bound.attributes), row)
            found = list(seen.values())
        rows[table.name] = found
    return rows


def without_person(schema: dj.Schema, rows: Rows, person: Person) -> Rows:
    """The same tables without all rows of one owner; public tables stay."""
    return {
        t.name: [r for r in rows[t.name] if not t.private or owner_of(schema, rows, t.name, r) != person]
        for t in schema.tables
    }


def people(schema: dj.Schema, rows: Rows) -> list[Person]:
    found = {owner_of(schema, rows, t.name, row) for t in schema.tables if t.private for row in rows[t.name]}
    return sorted((p for p in found if None not in p), key=repr)


def person_pairs(schema: dj.Schema, count: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Instances that differ by one owner with all rows."""
    rng = np.random.default_rng(seed)
    while count:
        rows = random_rows(schema, rng)
        there = people(schema, rows)
        if there:
            yield rows, without_person(schema, rows, there[int(rng.integers(len(there)))])
            count -= 1


def row_pairs(schema: dj.Schema, count: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Instances that differ by one row of one private table."""
    rng = np.random.default_rng(seed)
    while count:
        rows = random_rows(schema, rng)
        table = schema.private_tables[int(rng.integers(len(schema.private_tables)))]
        if rows[table]:
            at = int(rng.integers(len(rows[table])))
            yield rows, {**rows, table: rows[table][:at] + rows[table][at + 1 :]}
            count -= 1


def marginals(schema: dj.Schema) -> list[Kronecker]:
    names = schema.queryable
    return [kronecker(schema, dict.fromkeys(scope, CELLS)) for scope in ((names[0],), names)]


def moved(schema: dj.Schema, clip: Clip, first: Rows, second: Rows) -> tuple[int, float, float]:
    """How far the size, and the finest marginal in l1 and l2, of the clipped join lie apart, in units of the grid."""
    one, two = (BruteEngine(schema, rows).clipped(clip) for rows in (first, second))
    group = marginals(schema)[-1]
    apart = np.array(one.exact_answers([group])[0] - two.exact_answers([group])[0], dtype=np.float64)
    size = abs(one.exact_join_size() - two.exact_join_size())
    return size, float(np.abs(apart).sum()), float(np.sqrt((apart**2).sum()))
