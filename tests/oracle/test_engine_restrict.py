"""Degrees and restrictions: both engines pick the same rows by public labels and count the same values."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpjoin.engine import join_keys as keys
from dpjoin.engine import local, matrix_product, sumproduct
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Engine, ExactDegrees, Labels, Rules
from dpjoin.errors import SpecError
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from dpjoin.spec.workload import Workload
from support.brute import BruteEngine
from support.engines import arrow_tables, small_partitions
from support.restricted import ABSENT, filtered, joins_of, random_labels, random_rules, some_of
from support.strategies import SHAPES, Tables, random_instance, random_many


def as_counter(degrees: ExactDegrees) -> Counter[tuple[Any, ...]]:
    """Counts by value and by the values' types."""
    assert degrees.exact_counts.dtype == np.int64
    assert all(degrees.exact_counts > 0)
    values = degrees.exact_values(np.arange(len(degrees.exact_counts)))
    assert len(set(values)) == len(values) == len(degrees.exact_counts)
    found = Counter({(v, tuple(map(type, v))): int(n) for v, n in zip(values, degrees.exact_counts, strict=True)})
    backwards = np.arange(len(values))[::-2]
    assert degrees.exact_values(backwards) == [values[i] for i in backwards]
    return found


def assert_alike(first: Engine, second: Engine, workload: Workload) -> None:
    """Join size, every boundary value and every answer are the same."""
    assert first.schema is second.schema
    assert first.exact_join_size() == second.exact_join_size()
    names = [t.name for t in first.schema.tables]
    for count in range(len(names) + 1):
        for some in itertools.combinations(names, count):
            assert first.exact_boundary(frozenset(some)) == second.exact_boundary(frozenset(some)), some
    pairs = zip(first.exact_answers(workload.groups), second.exact_answers(workload.groups), strict=True)
    for group, (fast, slow) in zip(workload.groups, pairs, strict=True):
        assert fast.tolist() == slow.tolist(), group.name


def questions(
    rng: np.random.Generator, schema: Schema, rules: dict[str, Rules]
) -> Iterator[tuple[dict[str, Rules], tuple[str, ...], tuple[str, ...]]]:
    """Degrees of every table by all, none and some of its join attributes, and distinct values of several tables."""
    names = [t.name for t in schema.tables]
    for name in names:
        joins = joins_of(schema, name)
        for by in {(), tuple(joins), tuple(reversed(joins)), some_of(rng, joins)}:
            yield {name: rules.get(name, {})}, by, ()
    for count in (1, 2, 3):
        for some in itertools.combinations(names, count):
            common = sorted(set.intersection(*(set(joins_of(schema, n)) for n in some)))
            distinct = some_of(rng, common)
            if distinct:
                yield {n: rules.get(n, {}) for n in some}, some_of(rng, distinct), distinct


def assert_engines_agree(
    rng: np.random.Generator, schema: Schema, workload: Workload, tables: Tables
) -> tuple[int, int]:
    brute = BruteEngine(schema, tables)
    engine = DuckEngine(schema, arrow_tables(schema, tables), attributes=workload.attributes)
    labels = [random_labels(rng, schema, tables, f"labels {i}") for i in range(3)]
    rules = random_rules(rng, schema, tables, labels)
    again = random_rules(rng, schema, tables, labels)
    if rng.random() < 0.5:
        engine.exact_answers(workload.groups)  # what was computed before must not be reused
    some, slow = engine.restricted(rules), brute.restricted(rules)
    assert_alike(some, slow, workload)
    rows = filtered(schema, tables, rules)
    assert_alike(slow, BruteEngine(schema, rows), workload)
    assert_alike(some.restricted(again), slow.restricted(again), workload)
    assert_alike(slow.restricted(again), BruteEngine(schema, filtered(schema, rows, again)), workload)
    assert_alike(engine, brute, workload)
    counted = 0
    for asked, by, distinct in questions(rng, schema, again):
        for fast, judge in ((engine, brute), (some, slow)):
            exact = as_counter(fast.exact_degrees(asked, by, distinct))
            assert exact == as_counter(judge.exact_degrees(asked, by, distinct)), (list(asked), by, distinct)
            counted += exact.total()
    return some.exact_join_size(), counted


def test_restrictions_of_one_and_two_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Join size, boundaries, answers and degrees under random rules agree with the definitions, twice restricted."""
    sizes = []
    for seed in range(150):
        rng = np.random.default_rng([5, seed])
        small_partitions(monkeypatch, seed)
        monkeypatch.setattr(local, "MARGINAL_CELLS", 0 if seed % 3 == 0 else 2**24)
        monkeypatch.setattr(matrix_product, "BLOCK_CELLS", 8 if seed % 5 == 0 else 2**22)
        monkeypatch.setattr(keys, "compact", (lambda rows: 0) if seed % 4 == 0 else (lambda rows: 4 * rows + 2**16))
        sizes.append(assert_engines_agree(rng, *random_instance(rng)))
    assert sum(size > 0 for size, _ in sizes) > 25
    assert sum(counted > 0 for _, counted in sizes) > 100


@pytest.mark.parametrize("shape", SHAPES)
def test_restrictions_of_many_tables(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same on joins of three and more tables of every shape."""
    sizes = []
    for seed in range(20):
        rng = np.random.default_rng([6, list(SHAPES).index(shape), seed])
        small_partitions(monkeypatch, seed)
        monkeypatch.setattr(sumproduct, "CHUNK_PAIRS", 5 if seed % 3 == 0 else 2**22)
        monkeypatch.setattr(sumproduct, "INT_LIMIT", 2**9 if seed % 7 == 0 else 2**62)
        monkeypatch.setattr(keys, "compact", (lambda rows: 0) if seed % 4 == 0 else (lambda rows: 4 * rows + 2**16))
        sizes.append(assert_engines_agree(rng, *random_many(rng, shape)))
    assert sum(size > 0 for size, _ in sizes) >= 2
    assert sum(counted > 0 for _, counted in sizes) > 10


@pytest.mark.parametrize("count", [2, 3])
def test_declared_bounds_apply_before_the_rules(count: int) -> None:
    """A row beyond its table's bound is gone for good, even when the rows before it do not satisfy the rules."""
    tables = tuple(Table(name=n, attributes=("A", "B")) for n in "rst"[:count])
    bounded = (replace(tables[0], bounds=(DegreeBound(attributes=("A",), limit=1),)), *tables[1:])
    schema = Schema(bounded, (Attribute(name="A", range=(0, 9)), Attribute(name="B", range=(0, 9))))
    rows: Tables = {t.name: [{"A": a, "B": b} for a in range(3) for b in range(4)] for t in tables}
    engine, brute = DuckEngine(schema, arrow_tables(schema, rows), attributes=("A", "B")), BruteEngine(schema, rows)
    kept = []
    for b in range(4):
        rules: dict[str, Rules] = {"r": {Labels("one", ("B",), {(b,): 1}): 1}}
        some, slow = engine.restricted(rules), brute.restricted(rules)
        assert_alike(some, slow, Workload.marginals(schema, 2))
        assert as_counter(some.exact_degrees({"r": {}}, ("A",))) == as_counter(slow.exact_degrees({"r": {}}, ("A",)))
        kept.append(some.exact_join_size())
    assert sum(kept) == engine.exact_join_size() == 3


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, 2**63 - 1, -(2**63), 7, 7]), {1: 1, 2**63 - 1: 1, -(2**63): 1, 7: 2}),
        (pa.array([3, 2**64 - 1], pa.uint64()), {3: 1, 2**64 - 1: 1}),
        (pa.array([2**64, 5, None], pa.decimal128(38, 0)), {2**64: 1, 5: 1}),
        (pa.array([0.0, -0.0, 0.5, float("inf"), 1e300]), {0: 2, 0.5: 1, float("inf"): 1, int(1e300): 1}),
        (pa.array([2.0, 3.0, float("nan")]), {2: 1, 3: 1}),
        (pa.array([True, False, True]), {1: 2, 0: 1}),
        (pa.array(["a", "ä", "", "a"]), {"a": 2, "ä": 1, "": 1}),
        (pa.array(["a", "b", "a"]).dictionary_encode(), {"a": 2, "b": 1}),
        (pa.array([date(1970, 1, 1), date(1, 1, 1)]), {date(1970, 1, 1): 1, date(1, 1, 1): 1}),
        (pa.array([-719163, 10**7], pa.int32()).cast(pa.date32()), {-719163: 1, 10**7: 1}),
        (pa.array([datetime(2020, 1, 1, 2, 3, 4, 5)]), {datetime(2020, 1, 1, 2, 3, 4, 5): 1}),
        (pa.array([2**62, 0], pa.timestamp("us")), {datetime(1970, 1, 1): 1}),  # one is outside the calendar
    ],
)
@pytest.mark.parametrize("count", [2, 3])
def test_values_of_every_type(count: int, column: pa.Array, expected: dict[object, int]) -> None:
    """Values come out as plain Python values, and a label put on one finds its rows again."""
    names = "rst"[:count]
    attributes = (Attribute(name="k", key=True), *(Attribute(name=n.upper(), range=(0, 0)) for n in names))
    schema = Schema(tuple(Table(name=n, attributes=("k", n.upper())) for n in names), attributes)
    tables = {n: pa.table({"k": column, n.upper(): [0] * len(column)}) for n in names}
    engine = DuckEngine(schema, tables, attributes=tuple(n.upper() for n in names))
    found = as_counter(engine.exact_degrees({"r": {}}, ("k",)))
    assert found == {((v,), (type(v),)): n for v, n in expected.items()}
    for value, times in expected.items():
        labels = Labels("one", ("k",), {(value,): 2, ("other",): 2, (0.3,): 1})
        assert engine.restricted({"r": {labels: 2}}).exact_join_size() == times**count
        assert engine.exact_degrees({"r": {labels: 0}}, ()).exact_counts.sum() == sum(expected.values()) - times
    strange = {(v,): 1 for v in (*ABSENT, True, None, float("nan"), 2**2000, datetime.max, -(10**9))}
    assert engine.restricted({"r": {Labels("strange", ("k",), strange): 2}}).exact_join_size() == 0


def test_wide_keys_are_taken_apart() -> None:
    """A key of five attributes whose combinations no 64-bit number holds keeps its values."""
    names = ("a", "b", "c", "d", "e")
    attributes = (*(Attribute(name=n, key=True) for n in names), Attribute(name="x", range=(0, 0)))
    schema = Schema((Table(name="r", attributes=(*names, "x")), Table(name="s", attributes=names)), attributes)
    rng = np.random.default_rng(1)
    data = {n: rng.integers(0, 10**9, 30_000) for n in names}
    r = pa.table({**data, "x": np.zeros(30_000, dtype=np.int64)})
    engine = DuckEngine(schema, {"r": r, "s": pa.table(data)}, attributes=("x",))
    degrees = engine.exact_degrees({"r": {}}, names)
    rows = degrees.exact_values(np.arange(len(degrees.exact_counts)))
    assert Counter(rows) == Counter(zip(*(c.tolist() for c in data.values()), strict=True))
    some = [tuple(int(data[n][i]) for n in ("e", "b")) for i in range(100)]
    labels = Labels("some", ("e", "b"), {**dict.fromkeys(some, 1), (some[0][0], some[1][1]): 1})
    assert engine.restricted({"s": {labels: 1}}).exact_join_size() == 100


def test_wrong_questions_are_refused() -> None:
    """Rules and degrees name tables and join attributes that are there, and messages hold no value."""
    attributes = tuple(Attribute(name=n, range=(0, 3)) for n in "abc")
    schema = Schema((Table(name="r", attributes=("a", "b")), Table(name="s", attributes=("b", "c"))), attributes)
    rows: Tables = {"r": [{"a": 1, "b": 1}], "s": [{"b": 1, "c": 1}]}
    own = Labels("mine", ("a",), {(3,): 1})
    for engine in (BruteEngine(schema, rows), DuckEngine(schema, arrow_tables(schema, rows), attributes=())):
        with pytest.raises(SpecError, match="labels 'mine' look at 'a', which table 'r' does not join on; known: b"):
            engine.restricted({"r": {own: 1}})
        with pytest.raises(SpecError, match="table 'q' is not declared"):
            engine.restricted({"q": {}})
        with pytest.raises(SpecError, match="degrees of 2 tables must count distinct values"):
            engine.exact_degrees({"r": {}, "s": {}}, ("b",))
        with pytest.raises(SpecError, match="degrees of 0 tables"):
            engine.exact_degrees({}, (), ("b",))
        with pytest.raises(SpecError, match="degrees by 'c' must be of tables that join on it, not 's'"):
            engine.exact_degrees({"s": {}}, ("c",))


def test_distinct_includes_by() -> None:
    """Counting distinct values of one attribute by another that is not among them is refused."""
    schema = Schema(
        tuple(Table(name=n, attributes=("a", "b")) for n in "rs"), tuple(Attribute(name=n, key=True) for n in "ab")
    )
    engine = BruteEngine(schema, {"r": [{"a": 1, "b": 1}], "s": []})
    with pytest.raises(SpecError, match="degrees by 'a' must count distinct values that include it; add 'a' to"):
        engine.exact_degrees({"r": {}, "s": {}}, ("a",), ("b",))


@pytest.mark.parametrize("rows", [100_000, pytest.param(1_000_000, marks=pytest.mark.full)])
@pytest.mark.parametrize("shape", [{"r": "A", "s": "A"}, {"r": "AB", "s": "AB"}, {"r": "A", "s": "AB", "t": "B"}])
def test_degrees_follow_the_rows_not_the_domain(shape: dict[str, str], rows: int) -> None:
    """With as many keys as rows from a domain of 10^9, time and memory follow the rows."""
    rng = np.random.default_rng(rows)
    schema = Schema(
        tuple(Table(name=t, attributes=tuple(a)) for t, a in shape.items()),
        tuple(Attribute(name=a, key=True) for a in sorted(set("".join(shape.values())))),
    )
    data = {t: {a: rng.integers(0, 10**9, rows) for a in joins} for t, joins in shape.items()}
    data["s"]["A"][: rows // 2] = data["r"]["A"][: rows // 2]
    if "B" in shape["r"]:
        data["s"]["B"][: rows // 2] = data["r"]["B"][: rows // 2]
    engine = DuckEngine(schema, {t: pa.table(columns) for t, columns in data.items()}, attributes=())
    engine.exact_join_size()
    tracemalloc.start()
    started = time.perf_counter()
    heavy = {(int(a),): 1 for a in data["r"]["A"][:1000]}
    labels = Labels("heavy", ("A",), heavy)
    degrees = engine.exact_degrees({"s": {}}, tuple(shape["s"]))
    both = engine.exact_degrees({"r": {}, "s": {labels: 0}}, (), ("A",))
    some = engine.restricted({"s": {labels: 1}})
    size = some.exact_degrees({"s": {}}, ()).exact_counts.sum()
    seconds = time.perf_counter() - started
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    stacked = np.stack([data["s"][a] for a in shape["s"]])
    distinct, counts = np.unique(stacked, axis=1, return_counts=True)
    assert np.bincount(degrees.exact_counts).tolist() == np.bincount(counts).tolist()
    expected = dict(zip(map(tuple, distinct.T[:100].tolist()), counts[:100].tolist(), strict=True))
    values = degrees.exact_values(np.arange(len(degrees.exact_counts)))
    found = dict(zip(values, degrees.exact_counts.tolist(), strict=True))
    assert {v: found[v] for v in expected} == expected
    chosen = np.isin(data["s"]["A"], data["r"]["A"][:1000])
    assert size == np.count_nonzero(chosen)
    if "B" not in shape["r"]:
        assert both.exact_counts.tolist() == [len(np.intersect1d(data["s"]["A"][~chosen], data["r"]["A"]))]
    assert seconds < 5e-6 * rows + 0.5
    assert peak < 300 * rows
