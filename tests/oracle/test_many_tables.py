"""Joins of three and more tables: declared bounds are sound, replay passes, and a release comes out."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from dpjoin.engine.duck import DuckEngine
from support.brute import BruteEngine
from support.many_tables import ODD_TEXTS, ORDERED, SHAPES, make_rows, make_schema, odd_answers, odd_schema


@pytest.mark.parametrize("shape", SHAPES)
def test_enforced_bounds_keep_the_same_rows_in_both_engines(shape: str) -> None:
    """The rank rule of DuckDB and of the definition leave joins with the same sizes and boundary values."""
    rng = np.random.default_rng(2)
    for _ in range(10):
        schema = make_schema(shape, rng)
        rows = make_rows(schema, rng, 16)
        arrow = {
            t.name: pa.table({a: pa.array([r[a] for r in rows[t.name]], pa.int64()) for a in t.attributes})
            for t in schema.tables
        }
        duck, brute = DuckEngine(schema, arrow, attributes=schema.queryable), BruteEngine(schema, rows)
        assert duck.exact_join_size() == brute.exact_join_size()
        names = [t.name for t in schema.tables]
        for size in range(1, len(names)):
            for chosen in combinations(names, size):
                assert duck.exact_boundary(frozenset(chosen)) == brute.exact_boundary(frozenset(chosen))


def test_enforced_bounds_tell_rows_apart_that_look_alike_as_text() -> None:
    """Separators inside values, empty texts beside NULL, and keys that join nothing: both engines keep the same."""
    rng = np.random.default_rng(4)
    for turn in range(40):
        schema, many = odd_schema(1 + turn % 3), int(rng.integers(1, 40))
        some = {
            a: ODD_TEXTS[:2] if a == "k" else ODD_TEXTS[-2:] if a == "Place" else (*ODD_TEXTS[:5], None)
            for a in ORDERED
        }
        columns = {a: [some[a][i] for i in rng.integers(0, len(some[a]), many)] for a in ORDERED}
        keys = pa.table({"k": list(ODD_TEXTS[:2])})
        found = []
        for step in (1, -1):
            table = pa.table({a: pa.array(v[::step], pa.string()) for a, v in columns.items()})
            duck = DuckEngine(schema, {"r": table, "s": keys}, attributes=schema.queryable)
            brute = BruteEngine(schema, {"r": table.to_pylist(), "s": keys.to_pylist()})
            found += [odd_answers(duck, schema), odd_answers(brute, schema)]
        assert found == found[:1] * 4
