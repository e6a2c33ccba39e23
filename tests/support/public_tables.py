"""Joins of private and public tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

import dpjoin as dj
from dpjoin.privacy.accounting import Budget
from support.heavy_light import DECLARED, schema_of

BUDGET = Budget(epsilon=1.0, delta=1e-6)


def beside(shape: str, public: set[int]) -> dj.Schema:
    """The same shape with some tables public."""
    schema = schema_of(shape, DECLARED)
    tables = tuple(replace(t, private=i not in public) for i, t in enumerate(schema.tables))
    return dj.Schema(tables, schema.attributes)


def chain(rng: np.random.Generator) -> tuple[dj.Schema, dict[str, pa.Table]]:
    """R(k, a), S(k, l, b), and T(l, c), which is public and has three rows of a value on average."""
    rows, popular = 20_000, 1 / np.arange(1, 61) ** 0.7
    key = {t: rng.choice(60, rows, p=popular / popular.sum()) for t in "rs"}
    tables = {
        "r": pa.table({"k": key["r"], "a": rng.integers(0, 6, rows)}),
        "s": pa.table({"k": key["s"], "l": rng.integers(0, 200, rows), "b": rng.integers(0, 5, rows)}),
        "t": pa.table({"l": rng.integers(0, 200, 600), "c": rng.integers(0, 7, 600)}),
    }
    sizes = {"k": 60, "l": 200, "a": 6, "b": 5, "c": 7}
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x.column_names), private=t != "t") for t, x in tables.items()),
        tuple(dj.Attribute(name=a, range=(0, n - 1)) for a, n in sizes.items()),
    )
    return schema, tables


def pair(
    keys: int, *, public: bool = True, unique: bool = False, rows: int = 20_000
) -> tuple[dj.Schema, dict[str, pa.Table]]:
    """R(k, a), and S(k, c) with popular keys, or with each of them once."""
    rng = np.random.default_rng(keys)
    popular = 1 / np.arange(1, keys + 1) ** 0.8
    drawn = [rng.choice(keys, rows, p=popular / popular.sum()) for _ in "rs"]
    drawn[1] = np.arange(keys) if unique else drawn[1]
    weights = 0.8 ** np.arange(8)
    tables = {
        t: pa.table({"k": k, a: rng.choice(8, len(k), p=weights / weights.sum())})
        for t, a, k in zip("rs", "ac", drawn, strict=True)
    }
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "c"), private=not public)),
        (dj.Attribute(name="k", range=(0, keys - 1)), *(dj.Attribute(name=a, range=(0, 7)) for a in "ac")),
    )
    return schema, tables


PAIRS = [("a",), ("c",), ("a", "c")]
