"""A release of two small tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import dpjoin as dj

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


def make_tables(rows: int = 20_000, keys: int = 2_000, seed: int = 0) -> dict[str, pa.Table]:
    """Two tables whose attributes depend on each other through the key."""
    rng = np.random.default_rng(seed)
    k, m = rng.integers(0, keys, rows), rng.integers(0, keys, rows)
    a = (k % 4 + (rng.random(rows) < 0.3)) % 4
    b = np.where(rng.random(rows) < 0.7, np.array(["x", "y", "z"])[a % 3], "x")
    c = 10.0 * (m % 4) + rng.normal(0, 4, rows)
    d = (m % 2 == 0) ^ (rng.random(rows) < 0.2)
    return {"r": pa.table({"k": k, "a": a, "b": b}), "s": pa.table({"k": m, "c": c, "d": d})}


def make_schema(**changes: Any) -> dj.Schema:
    return dj.Schema(
        (
            dj.Table(name="r", attributes=("k", "a", "b")),
            dj.Table(name="s", attributes=("k", "c", "d"), **changes),
        ),
        (
            dj.Attribute(name="k", key=True),
            dj.Attribute(name="a", range=(0, 3)),
            dj.Attribute(name="b", values=("x", "y"), other=True),
            dj.Attribute(name="c", bins=(0, 10, 20, 30, 40), other=True),
            dj.Attribute(name="d", values=(False, True)),
        ),
    )


TABLES = make_tables()


SCHEMA = make_schema()
