"""Joins of three and more tables: declared bounds are sound, replay passes, and a release comes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpjoin.engine.duck import DuckEngine
from dpjoin.privacy.degree_bounds import degree_caps, degree_factors
from support.brute import BruteEngine
from support.many_tables import SHAPES, make_rows, make_schema, odd_answers, odd_schema


@pytest.mark.parametrize("shape", SHAPES)
def test_declared_bounds_imply_their_caps_and_factors(shape: str) -> None:
    """On instances that the bounds were enforced on, T_F <= cap_F and T_F <= c T_(F minus j), always."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        schema = make_schema(shape, rng)
        engine = BruteEngine(schema, make_rows(schema, rng, 16))
        for tables, cap in degree_caps(schema).items():
            assert engine.exact_boundary(tables) <= cap
        for tables, name, factor in degree_factors(schema):
            assert engine.exact_boundary(tables) <= factor * engine.exact_boundary(tables - {name})


@pytest.mark.parametrize("pair", [(("a|b", "c"), ("a", "b|c")), (("", "c"), (None, "c"))])
def test_which_rows_stay_does_not_depend_on_their_order(tmp_path: Path, pair: Any) -> None:
    """A file in any order, read again and again: of two rows that look alike, and of copies, the same ones stay.

    Copies must have one order for both bounds, else a row may be first in one group and last in the other.
    """
    schema, rng = odd_schema(1000), np.random.default_rng(5)
    rows = [*[pair[0]] * 100_000, *[pair[1]] * 100_000]
    found = set()
    for turn in range(4):
        order = np.arange(len(rows)) if turn < 2 else rng.permutation(len(rows))
        table = pa.table(
            {
                "k": ["k"] * len(rows),
                "Place": ["a"] * len(rows),
                "x": pa.array([rows[i][0] for i in order], pa.string()),
                "y": pa.array([rows[i][1] for i in order], pa.string()),
            }
        )
        pq.write_table(table, tmp_path / "r.parquet", row_group_size=50_000)
        tables = {"r": tmp_path / "r.parquet", "s": pa.table({"k": ["k"]})}
        found.add(tuple(odd_answers(DuckEngine(schema, tables, attributes=schema.queryable), schema)))
    assert len(found) == 1
    assert sum(*found) == 1000
