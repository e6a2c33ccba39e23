"""Small instances for the baselines of the benchmarks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import dpjoin as dj

SHAPES = {
    "star": {"r": "x", "s": "x", "t": "x"},
    "path": {"r": "x", "s": "xy", "t": "y"},
    "deep": {"r": "xy", "s": "xy", "t": "x"},
    "triangle": {"r": "xy", "s": "yz", "t": "zx"},
}


Rows = dict[str, list[dict[str, int]]]


def instance(rng: np.random.Generator, shape: str) -> tuple[dj.Schema, Rows]:
    """Three small tables with keys of three values and one or two attributes each."""
    keys = SHAPES[shape]
    own = {"r": ["a", "b"], "s": ["c"], "t": ["d"]}
    attributes = [dj.Attribute(name=k, key=True) for k in sorted(set("".join(keys.values())))]
    attributes += [dj.Attribute(name=a, values=(0, 1, 2)) for names in own.values() for a in names]
    tables = tuple(dj.Table(name=t, attributes=(*keys[t], *own[t])) for t in keys)
    rows = {
        t.name: [{a: int(rng.integers(3)) for a in t.attributes} for _ in range(rng.integers(1, 12))] for t in tables
    }
    return dj.Schema(tables, tuple(attributes)), rows


def arrow(rows: Rows) -> dict[str, pa.Table]:
    return {t: pa.Table.from_pylist(r) for t, r in rows.items()}
