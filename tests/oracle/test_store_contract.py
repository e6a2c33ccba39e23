"""What every store must do: the same integers as the definitions, from the same rows, wherever they lie.

A store takes part by a function in STORES that loads Arrow tables and says what sources name them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Clip, Labels
from dpjoin.errors import SourceError
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from dpjoin.spec.workload import CELLS, Workload, kronecker
from support import alike, postgres
from support.brute import BruteEngine
from support.engines import arrow_tables, small_partitions
from support.learned import learnable, many_rows, typed
from support.owners import SHAPES as OWNED
from support.owners import marginals, random_rows
from support.persons import FULL, arrow_of
from support.strategies import SHAPES, random_instance, random_many

Load = Callable[[Mapping[str, pa.Table]], dict[str, Any]]


def files(request: pytest.FixtureRequest) -> Load:
    folder: Path = request.getfixturevalue("tmp_path")

    def load(tables: Mapping[str, pa.Table]) -> dict[str, Any]:
        for name, table in tables.items():
            pq.write_table(table, folder / f"{name}.parquet")
        return {name: folder / f"{name}.parquet" for name in tables}

    return load


DECLARED = {
    "huge": "numeric(38,0)",
    "money": "numeric(10,2)",
    "padded": "char(6)",
    "folded": 'text COLLATE "folded"',
}
"""Types of PostgreSQL for columns of TYPED that Arrow has no type for, or says less about."""


def on_postgres(request: pytest.FixtureRequest) -> Load:
    server: postgres.Server = request.getfixturevalue("postgres_server")
    return lambda tables: server.load(tables, DECLARED)


def mixed(request: pytest.FixtureRequest) -> Load:
    """One table of a join lies elsewhere than the others."""
    here, there = files(request), on_postgres(request)

    def load(tables: Mapping[str, pa.Table]) -> dict[str, Any]:
        first, *_ = tables
        return {**there(tables), **here({first: tables[first]})}

    return load


STORES: dict[str, tuple[Callable[[pytest.FixtureRequest], Load], int, int]] = {
    "files": (files, 10, 30),
    "postgres": (on_postgres, 100, 300),
    "mixed": (mixed, 20, 60),
}
"""How tables come there, and how many random instances are tried, in the quick size and in the full one."""
TEN = 10


@pytest.fixture
def load(request: pytest.FixtureRequest) -> Load:
    return STORES[request.param][0](request)


every_store = pytest.mark.parametrize("load", STORES, indirect=True)


TENS = [
    pytest.param(name, range(first, first + TEN), marks=[pytest.mark.full] * (first >= quick), id=f"{name}-{first}")
    for name, (_, quick, full) in STORES.items()
    for first in range(0, full, TEN)
]
"""Instances of each store, ten to a test."""


@pytest.mark.parametrize(("load", "seeds"), TENS, indirect=["load"])
def test_random_joins(load: Load, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """One to five tables, some with bounds: sizes, boundaries, answers, and each further kind of question in turn."""
    sizes = []
    for seed in seeds:
        small_partitions(monkeypatch, seed)
        rng = np.random.default_rng([25, seed])
        shape = list(SHAPES)[seed // TEN % len(SHAPES)]
        schema, workload, tables = random_many(rng, shape) if seed % TEN == 0 else random_instance(rng)
        groups = workload.groups
        if seed % 3 == 0:
            schema = bounded(rng, schema)
            groups = Workload(schema, groups).groups
        engine = DuckEngine(schema, load(arrow_tables(schema, tables)), attributes=schema.queryable)
        kinds = [alike.KINDS[seed % len(alike.KINDS)]]
        sizes.append(alike.assert_alike(rng, engine, BruteEngine(schema, tables), tables, groups, kinds))
    assert sum(sum(found) > 0 for found in sizes) >= 2


def bounded(rng: np.random.Generator, schema: Schema) -> Schema:
    """The schema with bounds that rows break, declared of one table and enforced of another."""
    tables = []
    for i, table in enumerate(schema.tables):
        by = sorted({str(a) for a in rng.choice(table.attributes, 2)})
        limits = [DegreeBound(attributes=tuple(by), limit=1), DegreeBound(attributes=(by[0],), limit=2)]
        tables.append(replace(table, bounds=tuple(limits[: 1 + i % 2]), enforce=i % 2 == 0))
    return replace(schema, tables=tuple(tables))


@every_store
def test_empty_tables(load: Load) -> None:
    """All of them or one of them, whatever is asked."""
    rng = np.random.default_rng(3)
    for shape in ("path3", "star3"):
        schema, workload, tables = random_many(rng, shape)
        for empty in ([t.name for t in schema.tables], ["s"]):
            some: dict[str, Any] = {name: [] if name in empty else rows for name, rows in tables.items()}
            engine = DuckEngine(schema, load(arrow_tables(schema, some)), attributes=schema.queryable)
            found = alike.assert_alike(rng, engine, BruteEngine(schema, some), some, workload.groups[:3])
            assert found[0] == 0


TYPED = {
    "whole": pa.array([1, 1, -5, 2**63 - 1, -(2**63), 7, 7, 7]),
    "narrow": pa.array([1, 1, -(2**15), 2**15 - 1, 7, 7, 7, 7], pa.int16()),
    "huge": pa.array([Decimal(10**38 - 1), Decimal(10**38 - 1), *map(Decimal, range(6))], pa.decimal128(38, 0)),
    "money": pa.array([Decimal(x) / 100 for x in (120, 120, -5, 700, 0, 310, 999, 999)], pa.decimal128(10, 2)),
    "real": pa.array([0.0, -0.0, 0.5, -2.25, math.inf, 1e300, 0.1, 5e-324]),
    "single": pa.array([0.0, -0.0, 0.5, 0.1, 3.0, 3.0, 3.0, 1e30], pa.float32()),
    "flag": pa.array([True, False] * 4),
    "text": pa.array(["a", "A", "ä", "", "it's", "a\\b", "Z", "a "]),
    "padded": pa.array(["ab", "ab", "", "Ünï", "it's", "a\\b", "ABCDEF", " x"]),
    "folded": pa.array(["a", "A", "ß", "ss", "", "ä", "a\u0308", "Z"]),
    "bytes": pa.array([b"a", b"a", b"\x00", b"\xff", b"", b"'", b"\\x61", b"A"]),
    "day": pa.array([date(1970, 1, 1), date(2024, 2, 29), date(1, 1, 1), *[date(9999, 12, 31)] * 5]),
    "moment": pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999), *[datetime(2024, 3, 10, 2, 30, 9, 10)] * 7]),
    "instant": pa.array(
        [datetime(2024, 1, 1, 0, 30), datetime(1, 1, 1), *[datetime(1900, 1, 1, 12)] * 6], pa.timestamp("us", "UTC")
    ),
}  # fmt: skip
"""A column of each type that tables can join on, without missing values. Texts compare by their bytes everywhere."""


@every_store
def test_values_of_every_type(load: Load) -> None:
    """The same values, parts and codes as at home, and the same rows within caps."""
    keys = [Attribute(name=a, key=True) for a in TYPED]
    parts = [Attribute(name=p, range=r, part=p, other=True) for p, r in (("year", (1969, 2024)), ("hour", (0, 23)))]
    own = [
        *parts,
        Attribute(name="cost", bins=(0, 1.2, 5, 10), other=True),
        Attribute(name="said", values=("a", "a ", "Z", "ä"), other=True),
        Attribute(name="yes", values=(True,), other=True),
        Attribute(name="days", bins=(date(1, 1, 1), date(1970, 1, 2), date(9999, 12, 31)), other=True),
        Attribute(name="n", range=(0, 99)),
    ]
    columns = {"year": "day", "hour": "instant", "cost": "money", "said": "text", "yes": "flag", "days": "moment"}
    r = Table(name="r", attributes=(*TYPED, *(a.name for a in own)), columns=columns)
    schema = Schema((r, Table(name="s", attributes=tuple(TYPED), private=False)), (*keys, *own))
    rows = pa.table({**TYPED, "n": list(range(8))})
    rows = pa.concat_tables([rows, rows.set_column(rows.num_columns - 1, "n", pa.array(range(10, 18)))])
    tables = {"r": rows, "s": pa.table(TYPED)}
    there = DuckEngine(schema, load(tables), attributes=schema.queryable)
    here = DuckEngine(schema, tables, attributes=schema.queryable)
    groups = Workload.marginals(schema, 2).groups
    assert alike.assert_numbers_alike(there, here, groups) == 16
    for a, values in TYPED.items():
        found = alike.counted(there.exact_degrees({"r": {}}, (a,)))
        assert found == alike.counted(here.exact_degrees({"r": {}}, (a,))), a
        assert sorted(found.values()) == sorted(2 * n for n in Counter(values.to_pylist()).values()), a
        some = here.exact_degrees({"r": {}}, (a,)).exact_values(np.arange(2))
        labels = Labels("some", (a,), dict.fromkeys(some, 1))
        restricted = [e.exact_degrees({"r": {labels: 1}}, ()).exact_counts.tolist() for e in (there, here)]
        assert restricted[0] == restricted[1] != [], a
    for caps in (
        ("text", "real", "day", "huge"),
        ("bytes", "moment", "instant"),
        ("money", "padded", "folded", "flag"),
    ):
        limits = {"r": [DegreeBound(attributes=(a,), limit=1) for a in caps]}
        assert 0 < alike.assert_numbers_alike(there.capped(limits), here.capped(limits), groups) < 16
        bounds = tuple(DegreeBound(attributes=(a,), limit=2) for a in caps)
        within = replace(schema, tables=(replace(r, bounds=bounds), schema.tables[1]))
        engines = [DuckEngine(within, s, attributes=schema.queryable) for s in (load(tables), tables)]
        assert 0 < alike.assert_numbers_alike(*engines, Workload.marginals(within, 2).groups) < 16


NASTY: list[list[Any]] = [
    ["it's", 'q"uote', "a\\b", "\\", "'", "''", "$1", "${x}", "%s", "?", "NULL", "null", "--", "a\nb", "a\tb", "a\rb",
     "", " ", "a", "A", "a ", " a", "ä", "a\u0308", "\u200b", "\ufeffa", "日本", "😀", "\x7f", "\x01", "E'a'",
     "x" * 100_000],
    [0, -1, 1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)],
    [0.0, -0.0, 0.1, 1.0, -1.5, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1e308, 2.0**53, 2.0**62, 1e-17, 1 / 3],
    [True, False],
]  # fmt: skip


@pytest.mark.parametrize("values", NASTY, ids=["texts", "whole", "doubles", "booleans"])
@every_store
def test_nasty_values(load: Load, values: list[Any]) -> None:
    """They join, are listed, lie in bins and are picked by value as the definitions say, and none raises."""
    rng = np.random.default_rng(5)
    domain: dict[str, Any] = {"bins": (-math.inf, -1, 0, 1e-300, 1.5, 2.0**53, math.inf)}
    if type(values[0]) in (str, bool):
        domain = {"values": tuple(values)}
    elif type(values[0]) is int:
        domain = {"values": tuple(v for v in values if v != 1)}
    schema = Schema(
        (Table(name="r", attributes=("k", "a", "b")), Table(name="s", attributes=("k",), private=False)),
        (Attribute(name="k", key=True), Attribute(name="a", other=True, **domain), Attribute(name="b", **domain)),
    )
    drawn = [[*values, *values, None], [*values[::-1], *values[1:], None], [*values, None, *values[::-1]]]
    tables: dict[str, Any] = {
        "r": [dict(zip("kab", row, strict=True)) for row in zip(*drawn, strict=False)],
        "s": [{"k": v} for v in [*values, *values[:3], None]],
    }
    engine = DuckEngine(schema, load(arrow_tables(schema, tables)), attributes=("a", "b"))
    groups = tuple(kronecker(schema, {a: CELLS}) for a in ("a", "b"))
    sizes = alike.assert_alike(rng, engine, BruteEngine(schema, tables), tables, groups)
    assert sizes[0] > len(values) - 2


@pytest.mark.parametrize("key", [True, False], ids=["key", "domain"])
@every_store
def test_what_is_no_number_among_numbers_within_bounds(load: Load, key: bool) -> None:
    """Parquet's statistics leave NaN out, and must not be believed: its code would be up to other rows."""
    numbers = [0.0, 1.0, 2.0, math.nan, None, math.nan]
    free = Attribute(name="k", key=True) if key else Attribute(name="k", range=(0, 3))
    domains = (
        Attribute(name="a", range=(0, 3)),
        Attribute(name="b", bins=(0, 1.5, 3)),
        Attribute(name="c", values=(1, 2)),
    )
    schema = Schema(
        (Table(name="r", attributes=("k", "a", "b")), Table(name="s", attributes=("k", "c"))), (free, *domains)
    )
    rng = np.random.default_rng(7)
    tables: dict[str, Any] = {
        t.name: [{a: numbers[rng.integers(6)] for a in t.attributes} for _ in range(60)] for t in schema.tables
    }
    brute = BruteEngine(schema, tables)
    engine = DuckEngine(schema, load(arrow_tables(schema, tables)), attributes=schema.queryable)
    assert alike.assert_numbers_alike(engine, brute, Workload.marginals(schema, 2).groups) > 0
    others = replace(schema, attributes=(free, *(replace(a, other=True) for a in domains)))
    engine = DuckEngine(others, load(arrow_tables(schema, tables)), attributes=others.queryable)
    assert alike.assert_numbers_alike(engine, BruteEngine(others, tables), Workload.marginals(others, 2).groups) > 0


@pytest.mark.parametrize("load", ["postgres"], indirect=True)
def test_many_listed_values(load: Load) -> None:
    """A domain of 10^5 texts or numbers: each has its own code."""
    order = [i * 7919 % 100_000 for i in range(100_000)]
    listed = {"a": [f"it's value {i}" for i in order], "b": [i * 2**40 for i in order]}
    rows = {name: [*values[::50], values[7]] for name, values in listed.items()}
    table = pa.table({"a": [*rows["a"], "none"], "b": [*rows["b"], 1]})
    sources = load({"t": table})
    for name, values in listed.items():
        schema = Schema((Table(name="t", attributes=(name,)),), (Attribute(name=name, values=tuple(values)),))
        engine = DuckEngine(schema, sources, attributes=(name,))
        (found,) = engine.exact_answers([kronecker(schema, {name: CELLS})])
        expected = [0] * 100_000
        for i in (*range(0, 100_000, 50), 7):
            expected[schema.attribute(name).labels.index(values[i]) if i == 7 else i] += 1
        assert found.tolist() == expected


@pytest.mark.parametrize("shape", OWNED)
@every_store
def test_persons(load: Load, shape: str) -> None:
    """Join results by owner, and every number of the clipped join."""
    schema, rng = OWNED[shape], np.random.default_rng([28, len(shape)])
    for steep in (True, False):
        by_owner: Counter[Any] = Counter()
        while max(by_owner.values(), default=0) < 3:
            rows = random_rows(schema, rng, most=12)
            brute = BruteEngine(schema, rows)
            by_owner = alike.counted(brute.exact_results(schema.unit))
        engine = DuckEngine(schema, load(arrow_of(schema, rows)), attributes=schema.queryable)
        assert alike.counted(engine.exact_results(schema.unit)) == by_owner
        clip = Clip(owner=schema.unit, limit=2, full=FULL, steep=steep)
        found, expected = (e.clipped(clip).exact_answers(marginals(schema)) for e in (engine, brute))
        assert [f.tolist() for f in found] == [e.tolist() for e in expected]


LEARNED: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "text": (pa.string(), ["red", "it's", "Ünïcode", "", "5", " 5", None]),
    "whole": (pa.int64(), [0, 1, -3, 2**62, None]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, 2.0, 1e300, math.nan, math.inf, -math.inf, None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "date": (pa.date32(), [date(2020, 2, 29), date(1, 1, 1), date(9999, 12, 31), None]),
    "instant": (pa.timestamp("us", "UTC"), [datetime(2020, 2, 29, 23, 59, tzinfo=UTC), None]),
}


def values_of(engine: Any, attribute: str, most: int = 1) -> dict[Any, int]:
    return {value: n for (value, _), n in alike.counted(engine.exact_values(attribute, most)).items()}


@pytest.mark.parametrize("kind", LEARNED)
@every_store
def test_columns_to_learn(load: Load, kind: str) -> None:
    """Values and numbers of a column whose domain is not known, before tables are joined."""
    dtype, values = LEARNED[kind]
    part = "date" if kind in ("date", "instant") else None
    schema = Schema(
        (Table(name="r", attributes=("k", "d", "x")), Table(name="s", attributes=("k",))),
        (Attribute(name="k", key=True), Attribute(name="d", range=(0, 2)), Attribute(name="x", part=part, learn=True)),
    )
    rng = np.random.default_rng(6)
    drawn = [{"k": i % 4 or None, "d": i % 5, "x": values[rng.integers(len(values))]} for i in range(60)]
    rows: dict[str, Any] = {"r": drawn, "s": [{"k": 1}]}
    brute = BruteEngine(schema, rows)
    engine = DuckEngine(schema, load(typed(schema, rows, {"x": dtype})), attributes=("d",))
    assert values_of(engine, "x") == values_of(brute, "x") != {}
    if kind != "text":
        numbers = [e.exact_numbers("x") for e in (engine, brute)]
        found, expected = (dict(zip(n.exact_values.tolist(), n.exact_counts.tolist(), strict=True)) for n in numbers)
        assert found == expected != {}


@pytest.mark.parametrize("shape", ["two tables", "deep", "two attributes"])
@every_store
def test_owners_of_values_to_learn(load: Load, shape: str) -> None:
    """Every owner at so many values of its own, along foreign keys too."""
    schema, rng = learnable(OWNED[shape]), np.random.default_rng(4)
    rows: Any = {}
    while not rows or not all(values_of(BruteEngine(schema, rows), name) for name in schema.learned):
        rows = many_rows(schema, rng)
    brute = BruteEngine(schema, rows)
    engine = DuckEngine(schema, load(typed(schema, rows, {})), attributes=())
    for name in schema.learned:
        for most in (1, 2):
            assert values_of(engine, name, most) == values_of(brute, name, most)


@every_store
def test_what_has_no_plain_values_is_refused(load: Load) -> None:
    """Arrays as a key, as an attribute and where a degree is bounded; a column that nobody looks at may hold them."""
    rows = pa.table({"k": pa.array([[1], None]), "a": [1, 2]})
    sources = load({"s": rows, "r": rows})
    free = Table(name="r", attributes=("k", "a"))
    both = (Attribute(name="k", key=True), Attribute(name="a", range=(0, 3)))
    assert DuckEngine(Schema((free,), both), {"r": sources["r"]}, attributes=("a",)).exact_join_size() == 2
    with pytest.raises(SourceError, match="which tables cannot join on; use a column of plain values"):
        DuckEngine(Schema((free, Table(name="s", attributes=("k",))), both), sources, attributes=("a",))
    limited = replace(free, bounds=(DegreeBound(attributes=("k",), limit=1),))
    with pytest.raises(SourceError, match="which degrees cannot be bounded by; use a column of plain values"):
        DuckEngine(Schema((limited,), both), {"r": sources["r"]}, attributes=("a",))
    counted = Schema((free,), (Attribute(name="k", range=(0, 3)), both[1]))
    with pytest.raises(SourceError, match="but attribute 'k' is declared with whole numbers"):
        DuckEngine(counted, {"r": sources["r"]}, attributes=("k", "a"))
