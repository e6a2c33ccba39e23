"""Weights of rows beyond a cap."""

from __future__ import annotations

import numpy as np

from dpjoin.engine.interface import RowWeights
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.schema import Schema

BUDGET = Budget(epsilon=1.0, delta=1e-6)


def fades_of(schema: Schema, rng: np.random.Generator, *, longest: int = 6) -> dict[str, RowWeights]:
    """Any weights that fall, by one set of attributes for each table that meets another."""
    found = {}
    for table in schema.tables:
        others = {a for t in schema.tables if t.name != table.name for a in t.attributes}
        shared = schema.in_order(set(table.attributes) & others)
        by = shared if rng.random() < 0.5 else shared[: 1 + int(rng.integers(len(shared)))]
        weights = -np.sort(-rng.integers(0, 9, int(rng.integers(1, longest + 1))))
        weights[0] = max(weights[0], 1)
        found[table.name] = RowWeights(by, weights.astype(np.int64), 9)
    return found
