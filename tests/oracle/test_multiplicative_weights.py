"""The incremental iterate is the naive loop: the same choices, the same average, whatever the groups look like."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa

from dpjoin.engine.duck import DuckEngine
from dpjoin.spec.workload import (
    Factor,
    kronecker,
)
from support.brute import BruteEngine
from support.strategies import split_schema


def test_crossed_queries_are_exact_in_both_engines() -> None:
    """Rows of weights per attribute: DuckDB's answers are the definition's, in float64's range and beyond it."""
    rng = np.random.default_rng(9)
    schema = split_schema([4, 3])
    owned = {"r": ("x0", 4), "s": ("x1", 3)}
    rows = {t: [{"k": int(rng.integers(3)), a: int(rng.integers(n))} for _ in range(30)] for t, (a, n) in owned.items()}
    for scale in (1, 2**16, 2**44):
        factors = {
            "x0": Factor("rows", packed=(rng.integers(-9, 9, (5, 4)) * scale).tobytes()),
            "x1": Factor("rows", unit=Fraction(1, 4), packed=(rng.integers(-9, 9, (2, 3)) * scale).tobytes()),
        }
        group = kronecker(schema, factors)
        tables = {t: pa.Table.from_pylist(r) for t, r in rows.items()}
        (fast,) = DuckEngine(schema, tables, attributes=schema.queryable).exact_answers([group])
        (slow,) = BruteEngine(schema, rows).exact_answers([group])
        assert [int(v) for v in fast] == [int(v) for v in slow]
