"""Random schemas, instances, workloads and neighbours, shared by every kind of test.

`random_instance` is a plain function of a seeded generator; `instances` wraps it for Hypothesis.
Tables are lists of rows, a row maps columns to Python values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.workload import CELLS, PREFIXES, RANGES, Group, Workload, amounts, kronecker, product_group, where

Rows = list[dict[str, object]]
Tables = dict[str, Rows]

TEXTS = ("red", "it's", "Ünïcode", "blue sky", 'q"uote')
"""Listed text values: quotes, spaces, letters outside ASCII."""


def random_attribute(rng: np.random.Generator, name: str, *, joins: bool = False) -> Attribute:
    """An attribute of any kind with a small domain."""
    kind = rng.choice(["values", "ints", "bools", "range", "bins", *["key"] * (3 if joins else 1)])
    other = bool(rng.random() < 0.4)
    if kind == "values":
        return Attribute(name=name, values=TEXTS[: rng.integers(1, 5)], other=other)
    if kind == "ints":
        return Attribute(name=name, values=tuple(int(v) for v in rng.permutation([0, 1, 5, -3])), other=other)
    if kind == "bools":
        return Attribute(name=name, values=(True, False) if rng.random() < 0.7 else (True,), other=other)
    if kind == "range":
        low = int(rng.integers(-2, 2))
        return Attribute(name=name, range=(low, low + int(rng.integers(0, 4))), other=other)
    if kind == "bins":
        edges = ((-math.inf, 0, 1.5, math.inf), (0, 1, 2), (-1.5, 0.25, 3.0), (0, math.inf))
        return Attribute(name=name, bins=edges[rng.integers(len(edges))], other=other)
    return Attribute(name=name, key=True)


def random_kind(rng: np.random.Generator, attribute: Attribute) -> str:
    """The type of a column that can hold the attribute: text, int, float or bool."""
    if attribute.key:
        return str(rng.choice(["text", "int", "float"]))
    if attribute.values is not None and isinstance(attribute.values[0], str):
        return "text"
    if attribute.values is not None and isinstance(attribute.values[0], bool):
        return "bool"
    return str(rng.choice(["int", "float"]))


def random_value(rng: np.random.Generator, kind: str) -> object:
    """A value of a column: mostly inside small domains, sometimes outside, sometimes missing."""
    if rng.random() < 0.06:
        return None
    if kind == "text":
        return str(rng.choice([*TEXTS, *TEXTS, "zz", "Red"]))
    if kind == "int":
        return int(rng.choice([*range(-3, 6), 0, 1, 2, 10**6]))
    if kind == "bool":
        return bool(rng.random() < 0.5)
    return float(rng.choice([0.0, 1.0, 2.0, -0.0, 0.25, 1.5, -3.0, 5.0, 3.0, 7.25, -math.inf, math.inf, math.nan]))


def random_row(rng: np.random.Generator, table: Table, kinds: dict[str, str]) -> dict[str, object]:
    return {table.column(a): random_value(rng, kinds[a]) for a in table.attributes}


def random_schema(rng: np.random.Generator) -> Schema:
    """One or two tables that share none, one or two attributes."""
    two = bool(rng.random() < 0.8)
    joins = [f"j{i}" for i in range(rng.choice([0, 1, 1, 1, 2]) if two else 0)]
    own = [[f"{t}{i}" for i in range(rng.integers(1, 4))] for t in ("ab" if two else "a")]
    attributes = [random_attribute(rng, name, joins=True) for name in joins]
    attributes += [random_attribute(rng, name) for names in own for name in names]
    order = rng.permutation(len(attributes))
    if all(a.key for a in attributes):
        attributes[0] = Attribute(name=attributes[0].name, range=(0, 2))
    tables = []
    for i, names in enumerate(own):
        listed = [str(a) for a in rng.permutation([*names, *joins])]
        columns = {a: f"The {a}" for a in listed if rng.random() < 0.2}
        private = i == 0 or bool(rng.random() < 0.8)
        tables.append(Table(name=("r", "s")[i], attributes=tuple(listed), columns=columns, private=private))
    return Schema(tuple(tables), tuple(attributes[i] for i in order))


def column_kinds(rng: np.random.Generator, schema: Schema) -> dict[str, str]:
    return {a.name: random_kind(rng, a) for a in schema.attributes}


def random_workload(rng: np.random.Generator, schema: Schema) -> Workload:
    """Marginals, prefixes, ranges, sums, filters and products over random scopes."""
    groups: list[Group] = [kronecker(schema, {})]
    for _ in range(5):
        count = int(rng.integers(1, min(3, len(schema.queryable)) + 1))
        scope = [str(a) for a in rng.choice(schema.queryable, count, replace=False)]
        groups.append(kronecker(schema, {a: _random_factor(rng, schema, a) for a in scope}))
    pairs = list(itertools.combinations(schema.queryable, 2))
    groups += [kronecker(schema, dict.fromkeys(p, CELLS)) for p in pairs]
    products = _random_products(rng, schema)
    groups += [] if products is None else [products]
    return Workload(schema, tuple(groups))


def _random_factor(rng: np.random.Generator, schema: Schema, name: str) -> Any:
    attribute = schema.attribute(name)
    kind = rng.choice(["cells", "cells", "prefixes", "ranges", "where", "sum"])
    if kind == "prefixes":
        return PREFIXES
    if kind == "ranges":
        return RANGES
    if kind == "where":
        return where(schema, name, [i for i in range(attribute.size) if rng.random() < 0.5])
    summable = attribute.range or (attribute.bins and all(map(math.isfinite, attribute.bins)))
    return amounts(schema, name) if kind == "sum" and summable else CELLS


def _random_products(rng: np.random.Generator, schema: Schema) -> Group | None:
    weights: dict[str, tuple[list[str], Any]] = {}
    free = set(schema.queryable)
    for table in schema.tables:
        scope = [a for a in table.attributes if a in free and rng.random() < 0.7]
        free -= set(scope)
        if scope or rng.random() < 0.3:
            weights[table.name] = (scope, rng.uniform(-1, 1, (3, *schema.shape(scope))))
    return product_group(schema, weights) if weights else None


def random_tables(rng: np.random.Generator, schema: Schema, kinds: dict[str, str]) -> Tables:
    tables: Tables = {}
    for table in schema.tables:
        rows = [random_row(rng, table, kinds) for _ in range(rng.choice([0, 1, 6, 12, 18]))]
        # Multiplicities: some rows occur again.
        repeats = [dict(rows[i]) for i in rng.integers(0, len(rows), len(rows) // 2)] if rows else []
        tables[table.name] = rows + repeats
    return tables


def random_instance(rng: np.random.Generator) -> tuple[Schema, Workload, Tables]:
    """A schema of one or two tables, a workload over it, and rows with every oddity the public rule covers."""
    schema = random_schema(rng)
    kinds = column_kinds(rng, schema)
    return schema, random_workload(rng, schema), random_tables(rng, schema, kinds)


def neighbour(rng: np.random.Generator, schema: Schema, tables: Tables) -> Tables:
    """The same tables with one row of one private table added or removed; the row may be out of domain."""
    name = str(rng.choice(schema.private_tables))
    table, rows = schema.table(name), list(tables[name])
    if rows and rng.random() < 0.5:
        rows.pop(int(rng.integers(len(rows))))
    else:
        kinds = {a: _kind_seen(rng, schema, tables, a) for a in table.attributes}
        rows.insert(int(rng.integers(len(rows) + 1)), random_row(rng, table, kinds))
    return {**tables, name: rows}


def _kind_seen(rng: np.random.Generator, schema: Schema, tables: Tables, attribute: str) -> str:
    """The column type that the attribute's rows have; any that fits when there are no rows."""
    names: dict[type, str] = {str: "text", bool: "bool", int: "int", float: "float"}
    for name in schema.tables_with(attribute):
        column = schema.table(name).column(attribute)
        for row in tables[name]:
            if row[column] is not None:
                return names[type(row[column])]
    return random_kind(rng, schema.attribute(attribute))


def instances() -> st.SearchStrategy[tuple[Schema, Workload, Tables]]:
    """`random_instance` for Hypothesis, one seed per instance."""
    return st.integers(0, 2**32 - 1).map(lambda seed: random_instance(np.random.default_rng(seed)))


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[Schema, Workload, Tables, Tables]:
    """An instance and one of its neighbours."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    schema, workload, tables = random_instance(rng)
    return schema, workload, tables, neighbour(rng, schema, tables)


SHAPES: dict[str, dict[str, str]] = {
    "path3": {"r": "A", "s": "AB", "t": "B"},
    "path4": {"r": "A", "s": "AB", "t": "BC", "u": "C"},
    "star3": {"r": "A", "s": "A", "t": "A"},
    "triangle": {"r": "AB", "s": "BC", "t": "CA"},
    "cycle4": {"r": "AB", "s": "BC", "t": "CD", "u": "DA"},
    "contained": {"r": "AB", "s": "B", "t": "BC"},
    "disconnected": {"r": "A", "s": "A", "t": ""},
    "figure4": {"r": "ABD", "s": "ABF", "t": "ABGK", "u": "ABGL", "v": "AC"},
}
"""Joins of three and more tables: each table with the attributes that it may share."""


def random_many(rng: np.random.Generator, shape: str) -> tuple[Schema, Workload, Tables]:
    """A join of one of the SHAPES with attributes of every kind, few join values and a few rows per table."""
    shared = SHAPES[shape]
    small = len(shared) > 4
    own = {
        t: [f"{t}{i}" for i in range(rng.integers(0 if joins else 1, 2 if small else 3))] for t, joins in shared.items()
    }
    names = sorted({a for joins in shared.values() for a in joins})
    attributes = [random_attribute(rng, name, joins=True) for name in names]
    attributes += [random_attribute(rng, name) for owned in own.values() for name in owned]
    if all(a.key for a in attributes):
        attributes[0] = Attribute(name=attributes[0].name, range=(0, 2))
    order = rng.permutation(len(attributes))
    tables = tuple(
        Table(name=t, attributes=tuple(str(a) for a in rng.permutation([*joins, *own[t]])), private=t == "r")
        for t, joins in shared.items()
    )
    schema = Schema(tables, tuple(attributes[i] for i in order))
    kinds = column_kinds(rng, schema)
    # More tables need fewer values and more rows inside the domains for the join not to be empty.
    usual = {
        a.name: _usual_values(rng, a, kinds[a.name])[: 2 if small and a.name in schema.join_attributes else None]
        for a in schema.attributes
        if small or a.name in schema.join_attributes
    }
    most = 12 if len(tables) == 3 else 8 if len(tables) == 4 else 6
    filled: Tables = {}
    for table in tables:
        rows = [random_row(rng, table, kinds) for _ in range(rng.integers(1, most) if rng.random() < 0.95 else 0)]
        for row, a in itertools.product(rows, table.attributes):
            if a in usual and rng.random() < 0.9:
                row[a] = usual[a][rng.integers(len(usual[a]))]
        repeats = [dict(rows[i]) for i in rng.integers(0, len(rows), len(rows) // 3)] if rows else []
        filled[table.name] = rows + repeats
    return schema, random_workload(rng, schema), filled


def _usual_values(rng: np.random.Generator, attribute: Attribute, kind: str) -> list[object]:
    """One to three values that a join attribute mostly takes, inside its domain where some were found."""
    drawn = [random_value(rng, kind) for _ in range(60)]
    drawn = [v for v in drawn if v is not None and v == v]
    inside = [v for v in drawn if attribute.key or attribute.code(v) is not None]
    return (inside or drawn)[: rng.integers(1, 4)]


def split_schema(sizes: Sequence[int]) -> Schema:
    """Two tables that share a key; the attributes are split between them."""
    names = [f"x{i}" for i in range(len(sizes))]
    half = max(1, len(sizes) // 2)
    return Schema(
        (
            Table(name="r", attributes=("k", *names[:half])),
            Table(name="s", attributes=("k", *names[half:])),
        ),
        (
            Attribute(name="k", key=True),
            *(Attribute(name=a, range=(0, n - 1)) for a, n in zip(names, sizes, strict=True)),
        ),
    )
