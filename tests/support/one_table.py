"""One table with independent columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import dpjoin as dj


def schema_of(columns: int, values: int) -> dj.Schema:
    names = tuple(f"x{i}" for i in range(columns))
    return dj.Schema(
        (dj.Table(name="t", attributes=names),), tuple(dj.Attribute(name=a, range=(0, values - 1)) for a in names)
    )


def rows_of(schema: dj.Schema, rows: int, seed: int) -> dict[str, pa.Table]:
    """Every column leans on one hidden number, so that every pair has something to tell."""
    rng = np.random.default_rng(seed)
    size = schema.attributes[0].size
    hidden = rng.integers(0, size, rows)
    columns: dict[str, Any] = {}
    for n, a in enumerate(schema.attributes):
        columns[a.name] = np.where(rng.random(rows) < 0.5, (hidden + n) % size, rng.integers(0, size, rows))
    return {"t": pa.table(columns)}
