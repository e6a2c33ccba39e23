"""Facts that the paper states about the instances it draws."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from dpjoin.engine.brute import BruteEngine
from dpjoin.engine.duck import DuckEngine
from dpjoin.schema import Schema
from figures import Tables, abc_schema, figure_1, figure_2, figure_3

pytestmark = pytest.mark.paper


def _arrow(schema: Schema, tables: Tables) -> dict[str, Any]:
    found = {}
    for table in schema.tables:
        rows = tables[table.name]
        found[table.name] = pa.table({a: pa.array([r[a] for r in rows], pa.int64()) for a in table.attributes})
    return found


def _engines(schema: Schema, tables: Tables) -> list[Any]:
    return [BruteEngine(schema, tables), DuckEngine(schema, _arrow(schema, tables), attributes=schema.queryable)]


def _largest_degree(engine: Any) -> int:
    return max(engine.exact_boundary(frozenset({name})) for name in ("R1", "R2"))


def test_figure_1_neighbours_have_join_sizes_n_and_zero() -> None:
    """One row of R2 makes the difference between n join results and none."""
    n = 20
    schema = abc_schema(n, n, n)
    for tables, size in zip(figure_1(n), (n, 0), strict=True):
        for engine in _engines(schema, tables):
            assert engine.exact_join_size() == size
            assert _largest_degree(engine) == n


def test_figure_2_has_nine_rows_degree_three_and_27_results() -> None:
    """n = 9, Delta = 3, OUT = 27."""
    tables = figure_2()
    assert len(tables["R1"]) == 9
    for engine in _engines(abc_schema(3, 99, 3), tables):
        assert _largest_degree(engine) == 3
        assert engine.exact_join_size() == 27


@pytest.mark.parametrize("root", [1, 4, 12])
def test_figure_3_has_one_value_of_each_degree(root: int) -> None:
    """Input Theta(n), local sensitivity sqrt(n), join size the sum of squares: Theta(n sqrt(n))."""
    tables = figure_3(root)
    for engine in _engines(abc_schema(root, root, root), tables):
        assert _largest_degree(engine) == root
        assert engine.exact_join_size() == root * (root + 1) * (2 * root + 1) // 6
    assert sum(map(len, tables.values())) == root * (root + 1)
