"""Random sub-instances: labels, rules, and the rows that satisfy them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np

from dpjoin.engine.interface import Labels, Rules
from dpjoin.spec.schema import Schema, Table
from support.strategies import Tables

ABSENT = ("none of these", 77, 0.125, -(2**70), 1e300, date(2020, 2, 2))


def joins_of(schema: Schema, table: str) -> list[str]:
    return [a for a in schema.join_attributes if a in schema.table(table).attributes]


def some_of(rng: np.random.Generator, names: Sequence[str]) -> tuple[str, ...]:
    """Some of the names in any order."""
    return tuple(str(a) for a in rng.permutation([a for a in names if rng.random() < 0.7]))


def random_labels(rng: np.random.Generator, schema: Schema, tables: Tables, name: str) -> Labels:
    """Buckets 0 to 2 for about half of the values of one table and for some that do not occur."""
    table = schema.table(str(rng.choice([t.name for t in schema.tables])))
    attributes = some_of(rng, joins_of(schema, table.name))
    values = [tuple(row[table.column(a)] for a in attributes) for row in tables[table.name] if rng.random() < 0.5]
    values += [tuple(ABSENT[rng.integers(len(ABSENT))] for _ in attributes) for _ in range(3)]
    return Labels(name, attributes, {v: int(rng.integers(3)) for v in values if None not in v})


def random_rules(rng: np.random.Generator, schema: Schema, tables: Tables, labels: list[Labels]) -> dict[str, Rules]:
    """Rules for some tables; most of them are those that one of its rows satisfies."""
    found: dict[str, Rules] = {}
    for table in schema.tables:
        fitting = [s for s in labels if set(s.attributes) <= set(joins_of(schema, table.name)) and rng.random() < 0.6]
        rows = tables[table.name]
        row = rows[rng.integers(len(rows))] if rows else None
        if rng.random() < 0.8:
            found[table.name] = {
                s: int(rng.integers(3)) if row is None or rng.random() < 0.2 else bucket_of(s, table, row)
                for s in fitting
            }
    return found


def bucket_of(labels: Labels, table: Table, row: dict[str, object]) -> int:
    return labels.buckets.get(tuple(row[table.column(a)] for a in labels.attributes), 0)


def filtered(schema: Schema, tables: Tables, rules: dict[str, Rules]) -> Tables:
    """The rows that satisfy the rules, taken from the lists."""
    return {
        n: [r for r in rows if all(bucket_of(s, schema.table(n), r) == b for s, b in rules.get(n, {}).items())]
        for n, rows in tables.items()
    }
