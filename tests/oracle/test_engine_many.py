"""Joins of three to eight tables: the engine equals the definitions, and sums of products never wrap."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpjoin.engine import answers as answers_of
from dpjoin.engine import sumproduct
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.sumproduct import Counts, Memo
from dpjoin.errors import SpecError
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.workload import Workload, kronecker, product_group
from support.engines import arrow_tables, assert_equal, small_partitions
from support.strategies import SHAPES, random_many


@pytest.mark.parametrize("shape", SHAPES)
def test_engine_equals_brute_force_on_many_tables(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Join size, T_E of all subsets and answers agree on every shape, however the work is cut into pieces."""
    empty = 0
    for seed in range(30):
        rng = np.random.default_rng([list(SHAPES).index(shape), seed])
        schema, workload, tables = random_many(rng, shape)
        small_partitions(monkeypatch, seed)
        monkeypatch.setattr(sumproduct, "CHUNK_PAIRS", 5 if seed % 3 == 0 else 2**22)
        monkeypatch.setattr(sumproduct, "DENSE_PRODUCT_CELLS", 0 if seed % 4 == 0 else 2**24)
        monkeypatch.setattr(sumproduct, "MEMO_CELLS", 0 if seed % 5 == 0 else 2**26)
        monkeypatch.setattr(sumproduct, "INT_LIMIT", 2**9 if seed % 7 == 0 else 2**62)
        assert_equal(schema, workload, tables, arrow_tables(schema, tables))
        empty += not duck_size(schema, workload, tables)
    assert empty <= 25


def duck_size(schema: Schema, workload: Workload, tables: Any) -> int:
    return DuckEngine(schema, arrow_tables(schema, tables), attributes=workload.attributes).exact_join_size()


def test_boundaries_of_a_star_do_not_factorise() -> None:
    """Tables that share their boundary reach their largest degrees at different keys: T_rs is 5, not 25."""
    schema = Schema(
        tuple(Table(name=n, attributes=("k", n.upper())) for n in "rst"),
        (Attribute(name="k", key=True), *(Attribute(name=n, key=True) for n in "RST")),
    )
    rows = {"r": [1] * 5 + [2], "s": [1] + [2] * 5, "t": [1, 2]}
    engine = DuckEngine(schema, {n: pa.table({"k": k, n.upper(): k}) for n, k in rows.items()}, attributes=())
    assert engine.exact_boundary(frozenset("r")) == engine.exact_boundary(frozenset("s")) == 5
    assert engine.exact_boundary(frozenset("rs")) == 5
    assert engine.exact_join_size() == engine.exact_boundary(frozenset("rst")) == 10


def test_eight_tables_are_the_most_and_counts_pass_2_to_the_64() -> None:
    """A star of eight tables has T_E = 1000^|E| and 1000^8 results; nine tables are refused by name."""
    tables = tuple(Table(name=f"t{i}", attributes=("k", f"a{i}")) for i in range(8))
    attributes = (Attribute(name="k", key=True), *(Attribute(name=f"a{i}", range=(0, 1)) for i in range(8)))
    schema = Schema(tables, attributes)
    sources = {t.name: pa.table({"k": [7] * 1000, t.attributes[1]: [0, 1] * 500}) for t in tables}
    engine = DuckEngine(schema, sources, attributes=("a0", "a3", "a7"))
    assert engine.exact_join_size() == 1000**8
    assert engine.exact_boundary(frozenset({"t1", "t2", "t3", "t4", "t5", "t6", "t7"})) == 1000**7
    (answers,) = engine.exact_answers(Workload.marginals(schema, [("a0", "a3", "a7")]).groups)
    assert answers.tolist() == [1000**8 // 8] * 8
    assert [a.tolist() for a in engine.exact_answers([kronecker(schema, {})])] == [[1000**8]]
    ninth = Table(name="t8", attributes=("k",))
    with pytest.raises(SpecError, match="joins of 9 tables are not supported; join at most 8"):
        DuckEngine(Schema((*tables, ninth), attributes), {**sources, "t8": pa.table({"k": [1]})}, attributes=())


def test_products_over_too_many_cells_are_refused() -> None:
    """Products of three tables go through a marginal of at most 2^24 cells and say so beyond."""
    attributes = tuple(Attribute(name=n, range=(1, 300)) for n in "abc")
    schema = Schema(
        tuple(Table(name=n, attributes=("k", a)) for n, a in zip("rst", "abc", strict=True)),
        (Attribute(name="k", key=True), *attributes),
    )
    sources = {n: pa.table({"k": [1], a: [1]}) for n, a in zip("rst", "abc", strict=True)}
    engine = DuckEngine(schema, sources, attributes=("a", "b", "c"))
    weights = {n: ([a], np.ones((1, 300))) for n, a in zip("rst", "abc", strict=True)}
    with pytest.raises(SpecError, match="products 'products' look at 27000000 cells of 3 tables"):
        engine.exact_answers([product_group(schema, weights)])


def random_counts(
    rng: np.random.Generator, variables: str, sizes: dict[str, int], rows: int, high: int, table: str
) -> Counts:
    """Distinct rows with large counts; ids are spread over the size."""
    ids = {tuple(int(rng.integers(min(4, sizes[v]))) * (sizes[v] // 4) for v in variables) for _ in range(rows)}
    columns = tuple(np.array(c, dtype=np.int64) for c in zip(*sorted(ids), strict=True))
    count = rng.integers(max(1, high // 2), high, len(ids))
    return Counts(tuple(variables), tuple(sizes[v] for v in variables), columns, count, len(ids), frozenset([table]))


def as_dict(counts: Counts) -> dict[tuple[Any, ...], int]:
    order = sorted(counts.variables, key=str)
    rows = zip(*(c.tolist() for c in counts.ids(order)), strict=True) if order else [()] * counts.rows
    found = dict(zip(rows, map(int, counts.exact_counts), strict=True))
    assert len(found) == counts.rows
    assert counts.exact_counts.dtype == object or all(0 < v < 2**62 for v in found.values())
    return found


def by_definition(factors: list[Counts], keep: str) -> dict[tuple[Any, ...], int]:
    """The sum of products over all combinations of rows, in Python integers."""
    found: Counter[tuple[Any, ...]] = Counter()
    tables = [list(zip(*(c.tolist() for c in f.exact_ids), f.exact_counts.tolist(), strict=True)) for f in factors]
    for rows in itertools.product(*tables):
        values: dict[Any, int] = {}
        pairs = [
            (v, x) for f, row in zip(factors, rows, strict=True) for v, x in zip(f.variables, row[:-1], strict=True)
        ]
        if all(values.setdefault(v, x) == x for v, x in pairs):
            found[tuple(values[v] for v in sorted(keep))] += math.prod(row[-1] for row in rows)
    return dict(found)


@pytest.mark.parametrize("bits", [3, 20, 30, 40, 61])
@pytest.mark.parametrize("size", [4, 2**20, 2**40])
def test_sums_of_products_never_wrap(bits: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step equals Python's integers for counts up to 2^61 and ids that no 64-bit number packs."""
    monkeypatch.setattr(sumproduct, "CHUNK_PAIRS", 7)
    rng = np.random.default_rng([bits, size])
    sizes = dict.fromkeys("abcd", size)
    shapes = (["ab", "bc", "ca"], ["ab", "bc", "cd"], ["ab", "ac", "ad"], ["abc", "bcd", "a"], ["ab", "cd", "b"])
    for shape in shapes:
        factors = [random_counts(rng, v, sizes, 9, 2**bits, str(i)) for i, v in enumerate(shape)]
        held = sorted(set("".join(shape)))
        assert as_dict(sumproduct.project(factors[0], "a")) == by_definition(factors[:1], "a")
        for keep in ("", "a", "b", held[-1], "".join(held)):
            left = sumproduct.eliminate(factors, keep, memo=Memo())
            expected = by_definition(factors, keep)
            whole, *rest = left
            for factor in rest:
                whole = sumproduct.multiply(whole, factor, keep)
            assert as_dict(whole) == expected
            assert sumproduct.largest_count(factors, keep) == max(expected.values(), default=0)
            best = sumproduct.eliminate(left, (), maximum=True)
            assert math.prod(map(sumproduct.largest, best)) == max(expected.values(), default=0)


def test_large_counts_that_are_filtered_away_leave_small_ones() -> None:
    """Python integers become int64 again when what was large joins nothing."""
    exact = np.array([2**80, 3, 4], dtype=object)
    ids = (np.array([0, 1, 2]), np.array([0, 0, 1]))
    counts = Counts(("a", "b"), (3, 2), ids, exact, 3)
    some = Counts(("a",), (3,), (np.array([1, 2]),), np.array([1, 1]), 2)
    for keep in ("b", "ab"):
        kept = sumproduct.multiply(counts, some, keep)
        assert sorted(as_dict(kept).values()) == [3, 4]
    assert sumproduct.total(counts) == 2**80 + 7
    assert sumproduct.largest(counts) == 2**80


def test_products_of_four_parts_are_exact() -> None:
    """Row by row products over four axes equal Python's integers for marginals near 2^60."""
    schema = Schema(
        tuple(Table(name=n, attributes=("k", n.upper())) for n in "rstu"),
        (Attribute(name="k", key=True), *(Attribute(name=n, range=(0, 2)) for n in "RSTU")),
    )
    rng = np.random.default_rng(1)
    group = product_group(schema, {n: ([n.upper()], rng.uniform(-1, 1, (5, 3))) for n in "rstu"})
    marginal = rng.integers(2**59, 2**60, (3,) * 4)
    exact = answers_of.apply_products(group, marginal, join_size=int(marginal.astype(object).sum()))  # type: ignore[arg-type]
    assert exact.tolist() == group.apply(marginal.astype(object)).tolist()  # type: ignore[union-attr]
