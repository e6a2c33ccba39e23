"""Small joins with a few frequent values, and their neighbours."""

from __future__ import annotations

import numpy as np

import dpjoin as dj
from dpjoin.privacy.accounting import Budget

GENEROUS = Budget(epsilon=10.0, delta=0.01)
"""Noise of a few units, so that small instances fall into several parts."""


SHAPES = {
    "two": {"r": "Ap", "s": "Aq"},
    "star": {"r": "Ap", "s": "Aq", "t": "Au"},
    "contained": {"r": "Ap", "s": "A"},
    "nested": {"r": "ABp", "s": "ABq", "t": "Au"},
    "figure4": {"r": "ABD", "s": "ABF", "t": "ABGK", "u": "ABGL", "v": "AC"},
}


Rows = dict[str, list[dict[str, int]]]


def schema_of(shape: str, *, public: str | None = None) -> dj.Schema:
    """Attributes of three values each; A is a key."""
    tables = SHAPES[shape]
    names = sorted({a for attributes in tables.values() for a in attributes})
    attributes = tuple(
        dj.Attribute(name=a, key=True) if a == "A" else dj.Attribute(name=a, range=(0, 2)) for a in names
    )
    return dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x), private=t != public) for t, x in tables.items()), attributes
    )


def skewed_rows(schema: dj.Schema, rng: np.random.Generator) -> Rows:
    """Few values of A, one or two of them much more frequent than the others, not the same in every table."""
    small = len(schema.tables) > 3
    rows: Rows = {}
    for table in schema.tables:
        weights = rng.dirichlet(np.full(4, 0.35))
        count = int(rng.integers(0, 8 if small else 26))
        rows[table.name] = [
            {a: int(rng.choice(4, p=weights)) if a == "A" else int(rng.integers(0, 3)) for a in table.attributes}
            for _ in range(count)
        ]
    return rows


def changed(schema: dj.Schema, rows: Rows, rng: np.random.Generator) -> Rows:
    """One row more, or one less, in one private table."""
    name = str(rng.choice(schema.private_tables))
    table = list(rows[name])
    if table and rng.random() < 0.5:
        del table[rng.integers(len(table))]
    elif table and rng.random() < 0.7:
        table.append(dict(table[rng.integers(len(table))]))
    else:
        table.append({a: int(rng.integers(0, 5 if a == "A" else 3)) for a in schema.table(name).attributes})
    return {**rows, name: table}
