"""One table alone: both engines pick the same rows and codes, and no other table shows in them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpjoin.engine import join_keys as keys
from dpjoin.engine import local, matrix_product
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import LISTED, Engine, Labels, Rules, Value
from dpjoin.errors import SpecError
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from dpjoin.spec.workload import CELLS, Workload, kronecker
from support.brute import BruteEngine
from support.engines import arrow_tables, small_partitions
from support.restricted import ABSENT, filtered, joins_of, random_labels, random_rules, some_of
from support.strategies import SHAPES, Tables, random_instance, random_many, random_workload

Question = tuple[str, tuple[str, ...], list[Value], tuple[str, ...]]


def random_values(rng: np.random.Generator, schema: Schema, tables: Tables, by: tuple[str, ...]) -> list[Value]:
    """Some values of the tables that have the attributes and some that none has, each once, in any order."""
    rows = [
        tuple(keys.plain(row[t.column(a)]) for a in by)
        for t in schema.tables
        if set(by) <= set(t.attributes)
        for row in tables[t.name]
    ]
    found = list(dict.fromkeys(v for v in rows if all(x is not None and x == x for x in v)))
    found = [found[i] for i in rng.permutation(len(found))[: rng.integers(0, 8)]]
    absent = [tuple(ABSENT[rng.integers(len(ABSENT))] for _ in by) for _ in range(rng.integers(0, 3))]
    mixed = [(*v[:-1], ABSENT[0]) for v in found[:1] if by]
    listed = list(dict.fromkeys([*absent, *found, *mixed]))
    return [listed[i] for i in rng.permutation(len(listed))]


def questions(rng: np.random.Generator, schema: Schema, tables: Tables, read: Sequence[str]) -> Iterator[Question]:
    """Every table by none, all and some of its join attributes, with some of its attributes kept."""
    for table in schema.tables:
        joins = joins_of(schema, table.name)
        domains = [a for a in table.attributes if not schema.attribute(a).key and (a in joins or a in read)]
        for by in {(), tuple(joins), some_of(rng, joins)}:
            keep = some_of(rng, domains)
            if by or keep:
                yield table.name, by, random_values(rng, schema, tables, by) if by else [], keep


def assert_alike(first: Engine, second: Engine, workload: Workload) -> int:
    """Schema, size, boundary values and answers are the same; the number of rows."""
    assert first.schema == second.schema == workload.schema
    (name,) = (t.name for t in first.schema.tables)
    for engine in (first, second):
        assert engine.exact_boundary(frozenset()) == 1
        assert engine.exact_boundary(frozenset([name])) == engine.exact_join_size()
    assert first.exact_join_size() == second.exact_join_size()
    assert answers(first, workload) == answers(second, workload)
    return first.exact_join_size()


def answers(engine: Engine, workload: Workload) -> list[Any]:
    return [exact.tolist() for exact in engine.exact_answers(workload.groups)]


def cells(engine: Engine, *scope: str) -> Any:
    """One marginal as nested lists, in the order of the schema."""
    (exact,) = engine.exact_answers([kronecker(engine.schema, dict.fromkeys(scope, CELLS))])
    return exact.reshape(engine.schema.shape(engine.schema.in_order(scope))).tolist()


def other_rows(rng: np.random.Generator, tables: Tables, name: str) -> Tables:
    """The same rows of one table, and others of all other tables."""
    found: Tables = {}
    for other, rows in tables.items():
        picked = rng.integers(0, len(rows), rng.integers(0, 2 * len(rows))) if rows else []
        found[other] = rows if other == name else [rows[i] for i in picked] if rng.random() < 0.7 else []
    return found


def assert_engines_agree(rng: np.random.Generator, schema: Schema, tables: Tables) -> tuple[int, int]:
    read = some_of(rng, schema.queryable)
    brute, engine = BruteEngine(schema, tables), DuckEngine(schema, arrow_tables(schema, tables), attributes=read)
    labels = [random_labels(rng, schema, tables, f"labels {i}") for i in range(2)]
    rules = random_rules(rng, schema, tables, labels)
    some, slow, judge = engine.restricted(rules), brute.restricted(rules), filtered(schema, tables, rules)
    rows, rows_of_some = 0, 0
    for name, by, values, keep in questions(rng, schema, tables, read):
        alone = engine.one_table(name, by, values, keep)
        assert alone.schema.tables == (Table(name=name, attributes=(LISTED, *keep) if by else keep),)
        assert alone.schema.shape(keep) == schema.shape(keep)
        workload = random_workload(rng, alone.schema)
        rows += assert_alike(alone, brute.one_table(name, by, values, keep), workload)
        restricted = some.one_table(name, by, values, keep)
        rows_of_some += assert_alike(restricted, slow.one_table(name, by, values, keep), workload)
        assert_alike(restricted, BruteEngine(schema, judge).one_table(name, by, values, keep), workload)
        changed = other_rows(rng, tables, name)
        for fresh in (
            BruteEngine(schema, changed),
            DuckEngine(schema, arrow_tables(schema, changed), attributes=read),
        ):
            assert answers(fresh.one_table(name, by, values, keep), workload) == answers(alone, workload)
            mine = {n: r for n, r in rules.items() if n == name}
            fewer = fresh.restricted(mine).one_table(name, by, values, keep)
            assert answers(fewer, workload) == answers(restricted, workload)
    return rows, rows_of_some


def test_one_of_one_or_two_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and answers agree with the definitions, restricted too, and other tables' rows do not matter."""
    sizes = []
    for seed in range(80):
        rng = np.random.default_rng([7, seed])
        small_partitions(monkeypatch, seed)
        monkeypatch.setattr(local, "MARGINAL_CELLS", 0 if seed % 3 == 0 else 2**24)
        monkeypatch.setattr(matrix_product, "BLOCK_CELLS", 8 if seed % 5 == 0 else 2**22)
        monkeypatch.setattr(keys, "compact", (lambda rows: 0) if seed % 4 == 0 else (lambda rows: 4 * rows + 2**16))
        schema, _, tables = random_instance(rng)
        sizes.append(assert_engines_agree(rng, schema, tables))
    assert sum(rows > 0 for rows, _ in sizes) > 40
    assert sum(rows > 0 for _, rows in sizes) > 20


@pytest.mark.parametrize("shape", SHAPES)
def test_one_of_many_tables(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for each table of joins of three and more."""
    sizes = []
    for seed in range(8):
        rng = np.random.default_rng([8, list(SHAPES).index(shape), seed])
        small_partitions(monkeypatch, seed)
        monkeypatch.setattr(keys, "compact", (lambda rows: 0) if seed % 4 == 0 else (lambda rows: 4 * rows + 2**16))
        schema, _, tables = random_many(rng, shape)
        sizes.append(assert_engines_agree(rng, schema, tables))
    assert sum(rows > 0 for rows, _ in sizes) >= 5
    assert sum(rows > 0 for _, rows in sizes) >= 3


@pytest.mark.parametrize("count", [2, 3])
def test_rows_that_join_nothing_stay(count: int) -> None:
    """A small case by hand: values in their order, repeated rows, and a key that only this table has."""
    attributes = (Attribute(name="k", values=("p", "q", "r")), Attribute(name="x", range=(5, 6)))
    others = tuple(Table(name=n, attributes=("k",)) for n in "rt"[: count - 1])
    schema = Schema((*others, Table(name="s", attributes=("x", "k"))), attributes)
    pairs = [("q", 5), ("q", 5), ("q", 6), ("r", 6), ("p", 5), ("zz", 5)]
    rows: Tables = {**{t.name: [{"k": "p"}] for t in others}, "s": [{"k": k, "x": x} for k, x in pairs]}
    for engine in (
        BruteEngine(schema, rows),
        DuckEngine(schema, arrow_tables(schema, rows), attributes=("x",)),
        DuckEngine(schema, arrow_tables(schema, rows), attributes=("x", "k")),
    ):
        listed = engine.one_table("s", ("k",), [("r",), ("none",), ("q",)], ("x",))
        assert cells(listed, LISTED, "x") == [[0, 1], [0, 0], [2, 1]]
        assert listed.exact_join_size() == 4
        every = engine.one_table("s", (), [], ("k", "x"))
        assert cells(every, "k", "x") == [[1, 0], [2, 1], [0, 1]]
        assert every.schema.attribute("x") == Attribute(name="x", range=(0, 1))
        again = listed.one_table("s", (), [], (LISTED,))
        assert cells(again, LISTED) == [1, 0, 3]
        nothing = engine.one_table("s", ("k",), [], ())
        assert nothing.exact_join_size() == 0
        assert cells(nothing, LISTED) == [0]


@pytest.mark.parametrize("count", [2, 3])
def test_declared_bounds_apply_first(count: int) -> None:
    """Rows beyond their table's bound are gone, listed or not."""
    tables = tuple(Table(name=n, attributes=("A", "B")) for n in "rst"[:count])
    bounded = (replace(tables[0], bounds=(DegreeBound(attributes=("A",), limit=1),)), *tables[1:])
    schema = Schema(bounded, (Attribute(name="A", range=(0, 9)), Attribute(name="B", range=(0, 9))))
    rows: Tables = {t.name: [{"A": a, "B": b} for a in range(3) for b in range(4)] for t in tables}
    engine, brute = DuckEngine(schema, arrow_tables(schema, rows), attributes=("A", "B")), BruteEngine(schema, rows)
    for name, by, values, size in (
        ("r", ("A",), [(a,) for a in range(9)], 3),
        ("r", (), [], 3),
        ("s", ("A",), [(0,), (9,), (2,)], 8),
    ):
        alone, slow = engine.one_table(name, by, values, ("A", "B")), brute.one_table(name, by, values, ("A", "B"))
        assert assert_alike(alone, slow, Workload.marginals(alone.schema, 2)) == size
        assert alone.schema.tables[0].bounds == ()
    kept = 0
    for b in range(4):
        rules: dict[str, Rules] = {"r": {Labels("one", ("B",), {(b,): 1}): 1}}
        alone = engine.restricted(rules).one_table("r", ("B", "A"), [(b, a) for a in range(4)], ("A",))
        assert_alike(
            alone,
            brute.restricted(rules).one_table("r", ("B", "A"), [(b, a) for a in range(4)], ("A",)),
            Workload.marginals(alone.schema, 2),
        )
        kept += alone.exact_join_size()
    assert kept == 3


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2**63 - 1, -(2**63), 7, 7]),
        pa.array([2**64, 5, 5, None], pa.decimal128(38, 0)),
        pa.array([0.0, -0.0, 0.5, float("inf"), 1e300, float("nan")]),
        pa.array([True, False, True]),
        pa.array(["a", "ä", "", "a"]),
        pa.array([date(1970, 1, 1), date(1, 1, 1), date(1, 1, 1)]),
        pa.array([-719163, 10**7, 10**7], pa.int32()).cast(pa.date32()),
        pa.array([datetime(2020, 1, 1, 2, 3, 4, 5)]),
    ],
)
@pytest.mark.parametrize("count", [2, 3])
def test_values_from_degrees_find_their_rows(count: int, column: pa.Array) -> None:
    """Values as the degrees hand them out are found again, each at its position."""
    names = "rst"[:count]
    attributes = (Attribute(name="k", key=True), *(Attribute(name=n.upper(), range=(0, 0)) for n in names))
    schema = Schema(tuple(Table(name=n, attributes=("k", n.upper())) for n in names), attributes)
    tables = {n: pa.table({"k": column, n.upper(): [0] * len(column)}) for n in names}
    engine = DuckEngine(schema, tables, attributes=tuple(n.upper() for n in names))
    degrees = engine.exact_degrees({"s": {}}, ("k",))
    values = degrees.exact_values(np.arange(len(degrees.exact_counts)))
    assert cells(engine.one_table("s", ("k",), values, ("S",)), LISTED) == degrees.exact_counts.tolist()
    strange: list[Value] = [(v,) for v in (None, "\ud800", b"a", float("nan"), 2**2000, datetime.max, -(10**9))]
    assert engine.one_table("s", ("k",), [*strange, *values[:1]], ()).exact_join_size() == degrees.exact_counts[0]


@pytest.mark.parametrize("name", ["r", "s"])
def test_decimals_have_the_codes_of_numbers(name: str) -> None:
    """Decimals join as text; their codes are those of the numbers, in the table that owns them and in others."""
    attributes = (Attribute(name="k", bins=(0, 1, 2.5, 9)), Attribute(name="x", range=(0, 0)))
    schema = Schema(tuple(Table(name=n, attributes=("k",) if n == "r" else ("k", "x")) for n in "rs"), attributes)
    column = pa.array([Decimal("0.50"), Decimal("2.50"), Decimal("2.49"), Decimal("99.00")], pa.decimal128(5, 2))
    tables = {"r": pa.table({"k": column}), "s": pa.table({"k": column, "x": [0] * 4})}
    engine = DuckEngine(schema, tables, attributes=("k", "x"))
    assert cells(engine.one_table(name, (), [], ("k",)), "k") == [1, 1, 1]


def test_wrong_questions_are_refused() -> None:
    """Values are of join attributes, kept attributes have a domain and were read, and messages hold no value."""
    attributes = (*(Attribute(name=n, range=(0, 3)) for n in "abc"), Attribute(name="k", key=True))
    first, second = Table(name="r", attributes=("a", "b", "k")), Table(name="s", attributes=("b", "c", "k"))
    schema = Schema((first, second), attributes)
    rows: Tables = {"r": [{"a": 1, "b": 1, "k": 1}], "s": [{"b": 1, "c": 1, "k": 1}]}
    for engine in (BruteEngine(schema, rows), DuckEngine(schema, arrow_tables(schema, rows), attributes=("a", "c"))):
        with pytest.raises(SpecError, match="values of 'a' must be of tables that join on it, not 'r' alone"):
            engine.one_table("r", ("a",), [(1,)], ())
        with pytest.raises(SpecError, match="table 'r' alone has no attribute 'c' to keep"):
            engine.one_table("r", ("b",), [(1,)], ("c",))
        with pytest.raises(SpecError, match="attribute 'k' is a key and has no domain"):
            engine.one_table("r", ("b",), [(1,)], ("k",))
        with pytest.raises(SpecError, match="table 'q' is not declared"):
            engine.one_table("q", (), [], ("a",))
        with pytest.raises(SpecError, match="table 'r' alone must have at least one attribute"):
            engine.one_table("r", (), [], ())
        for values in ([(1,), (1.0,)], [(1, 2)]):
            with pytest.raises(SpecError, match="listed values of table 'r' must be distinct, each with 1 attributes"):
                engine.one_table("r", ("b",), values, ("a",))
    engine = DuckEngine(schema, arrow_tables(schema, rows), attributes=("c",))
    with pytest.raises(SpecError, match="table 'r' alone keeps 'a', which the engine did not read"):
        engine.one_table("r", (), [], ("a",))


@pytest.mark.parametrize("rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("shape", [{"r": "A", "s": "A"}, {"r": "AB", "s": "AB"}, {"r": "A", "s": "AB", "t": "B"}])
def test_time_follows_the_rows(shape: dict[str, str], rows: int) -> None:
    """A tenth as many listed values as rows, of a domain of 10^9, take a fraction of a second per million rows."""
    rng = np.random.default_rng(rows)
    joins = sorted(set("".join(shape.values())))
    attributes = (*(Attribute(name=a, key=True) for a in joins), Attribute(name="x", range=(0, 9)))
    tables = tuple(Table(name=t, attributes=(*a, *("x" if t == "s" else ""))) for t, a in shape.items())
    schema = Schema(tables, attributes)
    data = {t: {a: rng.integers(0, 10**9, rows) for a in joined} for t, joined in shape.items()}
    data["s"]["x"] = rng.integers(0, 10, rows)
    engine = DuckEngine(schema, {t: pa.table(columns) for t, columns in data.items()}, attributes=("x",))
    engine.exact_join_size()
    by = tuple(shape["s"])
    picked = rng.permutation(rows)[: rows // 10]
    values = list(dict.fromkeys(zip(*(data["s"][a][picked].tolist() for a in by), strict=True)))
    started = time.process_time()
    alone = engine.one_table("s", by, values, ("x",))
    exact = cells(alone, LISTED, "x")
    seconds = time.process_time() - started
    position = {value: i for i, value in enumerate(values)}
    expected = np.zeros((len(values), 10), dtype=np.int64)
    for *value, x in zip(*(data["s"][a].tolist() for a in (*by, "x")), strict=True):
        if tuple(value) in position:
            expected[position[tuple(value)], x] += 1
    assert exact == expected.tolist()
    assert seconds < 2e-6 * rows + 0.3
