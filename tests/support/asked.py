"""A release with bins of whole and other numbers, for an analyst to ask."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa

import dpjoin as dj

INF = math.inf
BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
SCHEMA = dj.Schema(
    (dj.Table(name="r", attributes=("g", "x", "y", "year")),),
    (
        dj.Attribute(name="g", values=("<b>a</b>", "b & c"), other=True),
        dj.Attribute(name="x", bins=(0, 10, 25, 60, 100), other=True),
        dj.Attribute(name="y", bins=(-INF, -0.5, 0.25, 2, INF)),
        dj.Attribute(name="year", range=(2011, 2014), other=True),
    ),
)


def rows_of_one_table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    g = rng.choice(["<b>a</b>", "b & c", "d"], rows, p=[0.6, 0.3, 0.1])
    x = np.where(g == "d", rng.uniform(0, 100, rows), np.minimum(rng.exponential(20, rows), 110)).round()
    return pa.table({"g": g, "x": x, "y": rng.normal(0, 1, rows), "year": rng.integers(2011, 2016, rows)})


def release_of_one_table(seed: int = 0, rows: int = 5_000) -> dj.Release:
    return dj.release(SCHEMA, dj.Workload.marginals(SCHEMA, 2), {"r": rows_of_one_table(rows, seed)}, BUDGET)
