"""The DuckDB engine equals the brute-force definitions, and exact arithmetic equals Python's."""

from __future__ import annotations

import csv
import itertools
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from dpjoin.engine import answers as answers_of
from dpjoin.engine import integers as arithmetic
from dpjoin.engine import local, matrix_product
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.integers import count_by
from dpjoin.engine.matrix_product import CountMatrix
from dpjoin.errors import SpecError
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.workload import Factor, Workload, kronecker
from support.brute import BruteEngine
from support.engines import arrow_tables, assert_equal, small_partitions
from support.strategies import Tables, random_instance

FORMATS = ("arrow", "pandas", "polars", "parquet", "csv", "sqlite", "duckdb", "objects", "feather", "lazy")


def written(kind: str, name: str, table: pa.Table, folder: Path) -> Any:
    """The table in one of the formats."""
    if kind == "pandas":
        return table.to_pandas()
    if kind == "objects":
        return pd.DataFrame({c: pd.Series(table[c].to_pylist(), dtype=object) for c in table.column_names})
    if kind == "polars":
        return pl.DataFrame(table)
    if kind == "lazy":
        return pl.DataFrame(table).lazy()
    if kind == "parquet":
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")
        return folder / f"{name}.parquet"
    if kind == "feather":
        pyarrow.feather.write_feather(table, str(folder / f"{name}.feather"))
        return str(folder / f"{name}.feather")
    if kind == "csv":
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(table.column_names)
            for row in table.to_pylist():
                writer.writerow(["" if v is None or v != v else v for v in row.values()])
        return folder / f"{name}.csv"
    if kind == "sqlite":
        (folder / "x.sqlite").touch()
        with sqlite3.connect(folder / "x.sqlite") as database:
            database.execute(f"CREATE TABLE {name} ({', '.join(chr(34) + c + chr(34) for c in table.column_names)})")
            rows = [tuple(row.values()) for row in table.to_pylist()]
            marks = ", ".join("?" * table.num_columns)
            database.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        database.close()
        return (folder / "x.sqlite", name)
    if kind == "duckdb":
        database = duckdb.connect(folder / "x.duckdb")
        database.register("incoming", table)
        database.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")
        database.close()
        return (folder / "x.duckdb", name)
    return table


@pytest.mark.parametrize("kind", FORMATS)
def test_engine_equals_brute_force(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Join size, boundaries and answers agree on random instances, in every format, grouped or not."""
    for seed in range(40):
        rng = np.random.default_rng([FORMATS.index(kind), seed])
        schema, workload, tables = random_instance(rng)
        small_partitions(monkeypatch, seed)
        monkeypatch.setattr(local, "MARGINAL_CELLS", 0 if seed % 3 == 0 else 2**24)
        monkeypatch.setattr(matrix_product, "BLOCK_CELLS", 8 if seed % 5 == 0 else 2**22)
        if kind in {"csv", "sqlite", "objects"}:  # keys are compared as text there, and -0.0 is another text
            tables = {
                n: [{c: v or abs(v) if type(v) is float else v for c, v in r.items()} for r in rows]
                for n, rows in tables.items()
            }
        folder = tmp_path / str(seed)
        folder.mkdir()
        sources = {n: written(kind, n, t, folder) for n, t in arrow_tables(schema, tables).items()}
        assert_equal(schema, workload, tables, sources)


def test_mixed_formats_join(tmp_path: Path) -> None:
    """A CSV file joins a typed table on numbers, and a fraction in it matches nothing."""
    schema = Schema(
        (Table(name="r", attributes=("k", "a")), Table(name="s", attributes=("k", "b"))),
        (Attribute(name="k", key=True), Attribute(name="a", range=(0, 1)), Attribute(name="b", range=(0, 1))),
    )
    (tmp_path / "r.csv").write_text("k,a\n1,0\n1.0,1\n1.5,1\n,1\nx,1\n2,1\n")
    workload = Workload.marginals(schema, 2)
    for s in (pa.table({"k": [1, 2, 2], "b": [0, 1, 1]}), pa.table({"k": [1.0, 2.0, 2.0], "b": [0, 1, 1]})):
        engine = DuckEngine(schema, {"r": tmp_path / "r.csv", "s": s}, attributes=workload.attributes)
        assert engine.exact_join_size() == 4
        assert engine.exact_answers(workload.groups)[0].tolist() == [1, 0, 1, 2]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (pa.array([1, 2**63 - 1, -(2**63), 7]), pa.array([2**63 - 1, 1, 1, 7])),
        (pa.array([1, 2**64 - 1], pa.uint64()), pa.array([2**64 - 1, 1], pa.uint64())),
        (pa.array([1, 2**64 - 1], pa.uint64()), pa.array([-1, 1])),
        (pa.array([0.0, 0.5, 1e300]), pa.array([-0.0, 0.5, -1e300])),
        (pa.array([3, 5], pa.int8()), pa.array([3.0, 5.5])),
        (pa.array([0, 1, 2], pa.date32()), pa.array([1, 1, 9], pa.date32())),
        (pa.array([0, 86400], pa.timestamp("s")), pa.array([0, 1], pa.date32())),
        (pa.array(["a", "ä", ""]), pa.array(["ä", "", ""]).dictionary_encode()),
        (pa.array([b"\x00a", b"b"]), pa.array([b"\x00a", b"\x00a"])),
        (pa.array([True, False]), pa.array([1, 1])),
    ],
)
def test_keys_of_every_type(first: pa.Array, second: pa.Array) -> None:
    """Tables join on the values of their keys, whatever the type, and extremes do not wrap."""
    schema = Schema(
        (Table(name="r", attributes=("k", "a")), Table(name="s", attributes=("k", "b"))),
        (Attribute(name="k", key=True), Attribute(name="a", range=(0, 0)), Attribute(name="b", range=(0, 0))),
    )
    r, s = pa.table({"k": first, "a": [0] * len(first)}), pa.table({"k": second, "b": [0] * len(second)})
    tables = {"r": r, "s": s}
    engine = DuckEngine(schema, tables, attributes=("a", "b"))
    con = duckdb.connect()
    con.register("r", tables["r"])
    con.register("s", tables["s"])
    ((expected,),) = con.execute("SELECT count(*) FROM r JOIN s USING (k)").fetchall()
    assert engine.exact_join_size() == expected
    assert engine.exact_answers([kronecker(schema, {})])[0].tolist() == [expected]


WIDE = 2**53


def texts(*values: object) -> pd.DataFrame:
    return pd.DataFrame({"k": [str(v) for v in values]}, dtype=object)


@pytest.mark.parametrize("tables", [2, 3])
@pytest.mark.parametrize(
    ("domain", "first", "second"),
    [
        (Attribute(name="k", values=(WIDE, WIDE + 1)), pa.array([WIDE, WIDE + 1]), pa.array([float(WIDE)])),
        (Attribute(name="k", values=(WIDE, WIDE + 1)), texts(WIDE, WIDE + 1), texts(WIDE)),
        (Attribute(name="k", bins=(0, WIDE + 4, 1e18)), pa.array([WIDE + 3, WIDE + 4]), pa.array([float(WIDE + 4)])),
        (Attribute(name="k", bins=(0, WIDE + 2, 1e18)), texts(WIDE + 1, f"{WIDE + 1}.1"), pa.array([WIDE + 1])),
        (Attribute(name="k", range=(0, 1), other=True), texts(1, "true"), pa.array([True])),
        (Attribute(name="k", bins=(0, 1.232, 2)), texts("1.23", "1.234"), pa.array([Decimal("1.23")])),
    ],
)
def test_values_that_join_have_one_code(domain: Attribute, first: Any, second: Any, tables: int) -> None:
    """One row more changes its own results only: rows of other texts or digits that join the same value keep theirs."""
    names = "rst"[:tables]
    attributes = (domain, *(Attribute(name=f"in {n}", range=(0, 0)) for n in names[1:]))
    schema = Schema(
        tuple(Table(name=n, attributes=("k", f"in {n}") if n != "r" else ("k",)) for n in names), attributes
    )
    workload = Workload.marginals(schema, 2)
    owner = pa.table({"k": first}) if isinstance(first, pa.Array) else first
    other = pa.table({"k": second}).to_pandas(types_mapper=pd.ArrowDtype) if isinstance(second, pa.Array) else second

    def exact(positions: list[int]) -> list[np.ndarray[Any, Any]]:
        rows = owner.take(positions)
        sources = {"r": rows} | {n: other.assign(**{f"in {n}": 0}) for n in names[1:]}
        return DuckEngine(schema, sources, attributes=workload.attributes).exact_answers(workload.groups)

    assert sum(answers.sum() for answers in exact(list(range(len(owner))))) > 1
    for kept, added in itertools.permutations(range(len(owner)), 2):
        for order in ([kept] * 9 + [added], [added] + [kept] * 9):
            for before, after in zip(exact([kept] * 9), exact(order), strict=True):
                assert abs(after - before).sum() <= 1, (kept, added)


def test_self_joins_are_refused() -> None:
    """Two private tables must not have one source; a public one may."""
    attributes = (Attribute(name="k", key=True), Attribute(name="a", range=(0, 1)))
    tables = tuple(Table(name=n, attributes=("k", "a")) for n in "rs")
    frame = pa.table({"k": [1], "a": [1]})
    with pytest.raises(SpecError, match=r"'r' and 's' have the same source, so one row would change both.*split"):
        DuckEngine(Schema(tables, attributes), dict.fromkeys("rs", frame), attributes=["a"])
    public = (tables[0], Table(name="s", attributes=("k", "a"), private=False))
    DuckEngine(Schema(public, attributes), dict.fromkeys("rs", frame), attributes=["a"])


def test_brute_force_boundary_of_a_triangle() -> None:
    """On a cyclic join of three tables T_E is counted by hand: E = {r} at (a, b), E = {r, s} at (a, c)."""
    attributes = tuple(Attribute(name=n, range=(0, 3)) for n in "abc")
    schema = Schema(
        (
            Table(name="r", attributes=("a", "b")),
            Table(name="s", attributes=("b", "c")),
            Table(name="t", attributes=("c", "a")),
        ),
        attributes,
    )
    tables: Tables = {
        "r": [{"a": 0, "b": 0}, {"a": 0, "b": 1}, {"a": 0, "b": 1}],
        "s": [{"b": 0, "c": 0}, {"b": 1, "c": 0}],
        "t": [{"c": 0, "a": 0}, {"c": 0, "a": 1}],
    }
    brute = BruteEngine(schema, tables)
    assert brute.exact_join_size() == 3
    assert brute.exact_boundary(frozenset()) == 1
    assert brute.exact_boundary(frozenset("r")) == 2
    assert brute.exact_boundary(frozenset("rs")) == 3
    assert brute.exact_boundary(frozenset("rst")) == 3


def random_matrix(rng: np.random.Generator, n: int, keys: int, width: int, high: int) -> CountMatrix:
    count = rng.integers(1, high, n)
    return CountMatrix(rng.integers(0, keys, n), count, (rng.integers(0, width, n),), (width,))


@pytest.mark.parametrize("bits", [4, 25, 30, 38, 40, 50, 60, 62])
def test_arithmetic_never_wraps(bits: int) -> None:
    """Degrees, join size, marginals and products equal Python's integers for counts up to 2^62."""
    rng = np.random.default_rng(bits)
    keys, n = 6, 40
    left, right = random_matrix(rng, n, keys, 5, 2**bits), random_matrix(rng, n, keys, 4, 2**bits)
    k1, k2, a1, a2 = (
        x.tolist() for x in (left.exact_key, right.exact_key, left.exact_columns[0], right.exact_columns[0])
    )
    c1, c2 = left.exact_counts.tolist(), right.exact_counts.tolist()
    degree1, degree2 = [0] * keys, [0] * keys
    within, across = [0] * 5, [[0] * 4 for _ in range(5)]
    for i in range(n):
        degree1[k1[i]] += c1[i]
        degree2[k2[i]] += c2[i]
    for i, j in itertools.product(range(n), range(n)):
        if k1[i] == k2[j]:
            within[a1[i]] += c1[i] * c2[j]
            across[a1[i]][a2[j]] += c1[i] * c2[j]
    size = sum(within)
    assert arithmetic.total(left.exact_counts) == sum(c1)
    first, other = (count_by(m.exact_key, m.exact_count, keys, bound=sum(c1) + sum(c2)) for m in (left, right))
    assert first.tolist() == degree1
    assert arithmetic.total(arithmetic.times(first, other)) == size
    weight = arithmetic.times(left.exact_counts, other[left.exact_key])
    assert count_by(left.exact_columns[0], weight, 5, bound=size).tolist() == within
    exact = matrix_product.product(left, right, keys, join_size=size)
    assert exact.tolist() == across
    w1, w2 = (rng.integers(-(2**16), 2**16 + 1, (7, w)) for w in (5, 4))
    expected = [sum(int(w1[q, a]) * int(w2[q, b]) * across[a][b] for a in range(5) for b in range(4)) for q in range(7)]
    over_keys = matrix_product.products_over_keys(left, w1, right, w2, keys, bound=size * 2**32)
    assert over_keys.tolist() == expected
    schema = Schema(
        (Table(name="r", attributes=("a", "k")), Table(name="s", attributes=("b", "k"))),
        (Attribute(name="a", range=(0, 4)), Attribute(name="b", range=(0, 3)), Attribute(name="k", key=True)),
    )
    scaled = {"r": (["a"], w1 / 2**16), "s": (["b"], w2 / 2**16)}
    group = Workload.products(schema, scaled).groups[0]
    assert answers_of.apply_products(group, exact, join_size=size).tolist() == expected  # type: ignore[arg-type]
    wide = kronecker(schema, {"a": Factor("weights", (2**70, -1, 0, 3, 2**40)), "b": Factor("ranges")})
    answers = answers_of.apply_kronecker(wide, exact, join_size=size).tolist()
    row = (2**70, -1, 0, 3, 2**40)
    assert answers == [
        sum(row[a] * across[a][b] for a in range(5) for b in range(low, high + 1))
        for low in range(4)
        for high in range(low, 4)
    ]


@pytest.mark.parametrize("block_cells", [1, 64, 1000, 2**22])
@pytest.mark.parametrize("width", [3, 300])
def test_dense_and_sparse_paths_agree(width: int, block_cells: int) -> None:
    """Blocks smaller than the number of keys and matrices with several blocks give the same products."""
    rng = np.random.default_rng(width)
    keys, n = 500, 4000
    zipf = 1 / np.arange(1, keys + 1) ** 1.3
    matrices, dense = [], []
    for _ in range(2):
        key = rng.choice(keys, n, p=zipf / zipf.sum())
        columns = (rng.integers(0, width, n), rng.integers(0, 2, n))
        made = CountMatrix(key, None if width == 3 else rng.integers(1, 9, n), columns, (width, 2))
        matrix = np.zeros((keys, width + 2), dtype=np.int64)
        np.add.at(matrix, (key, columns[0]), made.exact_counts)
        np.add.at(matrix, (key, columns[1] + width), made.exact_counts)
        matrices.append(made)
        dense.append(matrix)
    expected = dense[0].T @ dense[1]
    for size in (int(expected.sum()), 2**60, 2**70):
        exact = matrix_product.product(*matrices, keys, join_size=size, block_cells=block_cells)
        assert exact.tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(1, 2**14), (2**14, 1), (2**7, 2**7)])
def test_products_over_wide_scopes(shape: tuple[int, int]) -> None:
    """Product queries over many cells with counts near 2^50 stay exact."""
    rng = np.random.default_rng(shape[0])
    schema = Schema(
        (Table(name="r", attributes=("a", "k")), Table(name="s", attributes=("b", "k"))),
        (
            Attribute(name="a", range=(1, shape[0])),
            Attribute(name="b", range=(1, shape[1])),
            Attribute(name="k", key=True),
        ),
    )
    weights = {"r": (["a"], rng.choice([-1, 1, 0.3], (2, shape[0]))), "s": (["b"], np.ones((2, shape[1])))}
    (group,) = Workload.products(schema, weights).groups
    marginal = rng.integers(2**49, 2**50, shape)
    exact = answers_of.apply_products(group, marginal, join_size=2**64)  # type: ignore[arg-type]
    assert exact.tolist() == group.apply(marginal.astype(object)).tolist()
