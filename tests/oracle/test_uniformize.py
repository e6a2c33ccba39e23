"""Uniformize: parts cut the join exactly, their caps hold on both neighbours, a row pays for one part only."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dpjoin.engine.duck import DuckEngine
from support.audit import Recorder, Replayer, Tape, published
from support.brute import BruteEngine
from support.skewed import SHAPES, schema_of, skewed_rows
from support.uniformized import run_on


@pytest.mark.parametrize("shape", SHAPES)
def test_both_engines_publish_the_same(shape: str) -> None:
    """What the brute-force engine answered, replayed on DuckDB with the same rows: nothing moves at all."""
    rng = np.random.default_rng([9, len(shape)])
    for _ in range(6):
        schema = schema_of(shape)
        rows = skewed_rows(schema, rng)
        tape = Tape()
        outcome, _ = run_on(BruteEngine(schema, rows), Recorder, "tight", tape)
        arrow = {
            t.name: pa.table({a: pa.array([r[a] for r in rows[t.name]], pa.int64()) for a in t.attributes})
            for t in schema.tables
        }
        duck = DuckEngine(schema, arrow, attributes=schema.queryable)
        again, replayer = run_on(duck, Replayer, "tight", tape)
        assert np.array_equal(published(outcome), published(again))
        assert not any(squared for _, squared in replayer.__dict__["moved"])
