"""Facts that the paper states about the instances it draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gap
import uniformize
from dpjoin.engine.duck import DuckEngine
from dpjoin.spec.schema import Schema
from support.brute import BruteEngine
from support.figures import Tables, abc_schema, figure_1, figure_2, figure_3


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


@pytest.mark.parametrize("k", [8, 16, 32])
def test_example_gap_is_not_as_large_as_the_paper_says(k: int) -> None:
    """n is about (8/3) k^2, not at most 2 k^2; the join has about 2 k^2 results, not (2/3) k^2 log2 k."""
    instance = gap.example_gap(k)
    top = 2 * (k.bit_length() - 1) // 3
    rows = (4 ** (top + 1) - 1) * k**2 // (3 * 4**top)
    results = (2 ** (top + 1) - 1) * k**2 // 2**top
    assert (instance.n, instance.join_size, instance.degree) == (2 * rows, results, 2**top)
    tables = instance.tables(np.random.default_rng(0))
    assert sum(t.num_rows for t in tables.values()) == 2 * rows
    engine = DuckEngine(uniformize.schema_of(), tables, attributes=("a", "b"))
    assert engine.exact_join_size() == results
    assert [engine.exact_boundary(frozenset({name})) for name in ("r", "s")] == [2**top, 2**top]
    assert 2 * k**2 < instance.n < 8 * k**2 / 3
    assert results < 2 * k**2


def test_example_gap_has_the_degree_it_promises_at_powers_of_eight() -> None:
    """Delta = k^(2/3)."""
    for e in range(1, 6):
        assert gap.example_gap(8**e).degree == 4**e


@pytest.mark.parametrize("k", [1, 8, 40])
def test_figure_3_by_construction(k: int) -> None:
    """k (k + 1) rows, k (k + 1) (2k + 1) / 6 results, local sensitivity k; the benchmark's instance is the figure's."""
    instance = gap.figure_3(k)
    assert (instance.n, instance.degree) == (k * (k + 1), k)
    assert instance.join_size == k * (k + 1) * (2 * k + 1) // 6
    tables = instance.tables(np.random.default_rng(0))
    engine = DuckEngine(uniformize.schema_of(), tables, attributes=("a", "b"))
    assert engine.exact_join_size() == instance.join_size
    assert [engine.exact_boundary(frozenset({name})) for name in ("r", "s")] == [k, k]
    assert instance.n == sum(map(len, figure_3(k).values()))
