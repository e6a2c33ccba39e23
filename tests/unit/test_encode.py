"""The SQL of the public rule gives the codes of `Attribute.code`, on every value and without an error."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dpjoin.engine.dialect import DUCKDB, identifier, literal
from dpjoin.engine.encode import Column, code, field, join_text, join_value, kept
from dpjoin.engine.sources import connect
from dpjoin.spec.schema import Attribute

BIG = 2**63 - 1


INTS = [0, 1, -1, 2, 3, 5, 7, BIG, -BIG - 1, BIG - 1, 2**31 - 1, -(2**31), 2**53, 2**53 + 1, 2**53 + 3, 2**53 + 4, None]


FLOATS = [
    *(0.0, -0.0, 1.0, 1.5, 2.0, 0.1, 0.1 + 0.2, 0.3, -3.25, 1e300, -1e300, 5e-324, 2.0**53, 2.0**63, 1e40),
    *(math.inf, -math.inf, math.nan, None),
]


TEXTS = [
    "",
    " ",
    "a",
    "A",
    "it's",
    '"',
    "\\",
    "ß",
    "日本",
    "a\nb",
    "é",
    "e\u0301",
    "NULL",
    "😀",
    "\uffff",
    "a\x00b",
    None,
]


NUMERIC = [
    Attribute(name="x", range=(0, 5)),
    Attribute(name="x", range=(-(2**31) + 2, 2**31 - 2), other=True),
    Attribute(name="x", range=(2, 2), other=True),
    Attribute(name="x", values=(0, 1, 2)),
    Attribute(name="x", values=(5, -1, 0, 2**53 + 1, BIG, 10**40), other=True),
    Attribute(name="x", values=(7, 1)),
    Attribute(name="x", values=(True, False)),
    Attribute(name="x", values=(False,), other=True),
    Attribute(name="x", bins=(-math.inf, 0, 1.5, math.inf)),
    Attribute(name="x", bins=(0, 0.1, 0.30000000000000004, 2)),
    Attribute(name="x", bins=(-3.25, 2, 5), other=True),
    Attribute(name="x", bins=(0.5, 2.0**53 + 4, 1e300)),
    Attribute(name="x", bins=(-1e300, 2.0**63, 1e301), other=True),
    Attribute(name="x", bins=tuple(range(40))),
]


TEXTUAL = [
    Attribute(name="x", values=tuple(t for t in TEXTS if t is not None)),
    Attribute(name="x", values=("it's", "", "日本", "z"), other=True),
    Attribute(name="x", values=("a",)),
]


def codes(attribute: Attribute, array: Any, *, untyped: bool = False) -> list[int | None]:
    """The codes that DuckDB computes, after checking that all forms of the rule agree."""
    connection = connect()
    connection.register("t", pa.table({'the "x"': array}))
    ((_, kind, *_),) = connection.execute("DESCRIBE t").fetchall()
    column = Column('the "x"', kind, untyped=untyped)
    found = connection.execute(f"SELECT {code(attribute, column)} FROM t").fetchall()
    for condition in kept(attribute, column):
        flags = connection.execute(f"SELECT coalesce({condition}, false) FROM t").fetchall()
        assert [f for (f,) in flags] == [c is not None for (c,) in found]
    connection.close()
    return [c for (c,) in found]


@pytest.mark.parametrize("attribute", NUMERIC, ids=str)
def test_numbers(attribute: Attribute) -> None:
    """Whole numbers, fractions, infinities, NaN and NULL get the code of the definition."""
    assert codes(attribute, pa.array(INTS, pa.int64())) == [attribute.code(v) for v in INTS]
    assert codes(attribute, pa.array(FLOATS, pa.float64())) == [attribute.code(v) for v in FLOATS]
    bools = [True, False, None]
    assert codes(attribute, pa.array(bools)) == [attribute.code(v) for v in bools]
    for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.uint64()):
        small = [0, 1, 2, 5, 7, 100, None]
        assert codes(attribute, pa.array(small, kind)) == [attribute.code(v) for v in small]
    top = [2**64 - 1, 2**63, 0]
    assert codes(attribute, pa.array(top, pa.uint64())) == [attribute.code(v) for v in top]
    singles = [0.5, 1.5, 2.0, math.nan, math.inf, None]
    assert codes(attribute, pa.array(singles, pa.float32())) == [attribute.code(v) for v in singles]


@pytest.mark.parametrize("attribute", NUMERIC, ids=str)
def test_numbers_as_text(attribute: Attribute) -> None:
    """Text that reads as a number has the number's code, other text has none, and nothing raises."""
    floats = [v for v in FLOATS if v is not None]
    assert codes(attribute, pa.array([repr(v) for v in floats]), untyped=True) == [attribute.code(v) for v in floats]
    small = [v for v in INTS if v is not None and abs(v) <= 2**53]
    assert codes(attribute, pa.array([str(v) for v in small]), untyped=True) == [attribute.code(v) for v in small]
    odd = ["", "x", "1.5.2", "0x", "--1", "日本", None]
    assert codes(attribute, pa.array(odd), untyped=True) == [attribute.code(None)] * len(odd)


def test_booleans_as_text() -> None:
    """The words for true and false count in a boolean attribute only."""
    words = pa.array(["True", "false", "1", "0", "1.0", "2"])
    assert codes(Attribute(name="x", values=(True, False)), words, untyped=True) == [0, 1, 0, 1, 0, None]
    assert codes(Attribute(name="x", range=(0, 1)), words, untyped=True) == [None, None, 1, 0, 1, None]


@pytest.mark.parametrize("attribute", TEXTUAL, ids=lambda a: f"{len(a.values)} values")
def test_texts(attribute: Attribute) -> None:
    """Quotes, empty text, letters outside ASCII and control characters compare exactly."""
    assert codes(attribute, pa.array(TEXTS)) == [attribute.code(v) for v in TEXTS]
    assert codes(attribute, pa.array(TEXTS).dictionary_encode()) == [attribute.code(v) for v in TEXTS]


def test_decimals_count_as_numbers() -> None:
    """DECIMAL is read as the nearest DOUBLE, or exactly when it has no fraction."""
    values = ["0.00", "1.50", "1.00", "-3.25", "5.00", "9999999999999999999999999999999999.99", None]
    array = pa.array([None if v is None else Decimal(v) for v in values], pa.decimal128(38, 2))
    for attribute in NUMERIC:
        assert codes(attribute, array) == [attribute.code(None if v is None else float(v)) for v in values]
    whole = [0, 2**53 + 1, BIG, 10**37, -(10**37), None]
    array = pa.array([None if v is None else Decimal(v) for v in whole], pa.decimal128(38, 0))
    for attribute in NUMERIC:
        assert codes(attribute, array) == [attribute.code(v) for v in whole]


@pytest.mark.parametrize("kind", ["HUGEINT", "UHUGEINT"])
def test_wide_integers_do_not_raise(kind: str) -> None:
    """128-bit columns get codes without an error, at their extremes too."""
    edges = [2**127 - 1, 0, 1, 2**53 + 1] + ([2**128 - 1] if kind == "UHUGEINT" else [-(2**127)])
    connection = connect()
    values = ", ".join(f"('{v}'::{kind})" for v in edges)
    connection.execute(f"CREATE TEMP TABLE t AS SELECT * FROM (VALUES {values}) v(x)")
    for attribute in NUMERIC:
        found = connection.execute(f"SELECT {code(attribute, Column('x', kind))} FROM t").fetchall()
        assert [c for (c,) in found] == [attribute.code(v) for v in edges]


def test_many_values() -> None:
    """A long list is searched, not scanned, and every value is found."""
    names = tuple(f"value {i * 7919 % 5000:04}" for i in range(5000))
    attribute = Attribute(name="x", values=names)
    assert codes(attribute, pa.array([*names, "value 9999"])) == [*range(5000), None]


def test_quoting() -> None:
    """Names and texts keep their quotes."""
    assert identifier('a"b') == '"a""b"'
    assert literal("a'b") == "'a''b'"


TIMES = {
    "date32": (pa.date32(), [0, -719_163, 2_932_897, 2**31 - 1, -(2**31)], []),
    "timestamp s": (pa.timestamp("s"), [0, 253_402_300_799], [253_402_300_800, 10**16, BIG, -BIG - 1]),
    "timestamp ms": (pa.timestamp("ms"), [0, -62_135_596_800_000], [-62_135_596_800_001, 10**16, BIG, -BIG - 1]),
    "timestamp us": (pa.timestamp("us"), [0, -1, 10**15], [BIG, -BIG, -BIG - 1, 10**18]),
    "timestamp us, zone": (pa.timestamp("us", "UTC"), [0, -1, 10**15], [BIG, -BIG, -BIG - 1, 10**18]),
    "timestamp ns": (pa.timestamp("ns"), [0, -BIG - 1, BIG - 1], []),
    "time32": (pa.time32("s"), [0, 86_399], [-5, 86_401, 2**31 - 1]),
    "time64 us": (pa.time64("us"), [0, 86_399_999_999], [-5, 86_400_000_001, BIG, -BIG - 1]),
    "time64 ns": (pa.time64("ns"), [0, 86_399_999_999_999], [-5, 86_400_000_000_001, BIG, -BIG - 1]),
    "duration": (pa.duration("us"), [0, -5, BIG, -BIG - 1], []),
}


@pytest.mark.parametrize("kind", TIMES)
def test_times_outside_the_calendar_are_no_join_values(kind: str) -> None:
    """Years 1 to 9999 and times within a day count. Others are NULL before anything is done that DuckDB cannot do.

    Dates have no such limits among themselves, only where they meet times.
    """
    arrow, inside, outside = TIMES[kind]
    whole = pa.int32() if arrow.bit_width == 32 else pa.int64()
    connection = connect()
    connection.register("t", pa.table({"x": pa.array([*inside, *outside], whole).view(arrow)}))
    ((_, type_, *_),) = connection.execute("DESCRIBE t").fetchall()
    key, column = Attribute(name="x", key=True), Column("x", type_)
    untyped, date = Column("x", "VARCHAR", untyped=True), Column("x", "DATE")
    for other in [column, untyped, *([date] if column.kind == "time" else [])]:
        value, text = (f(key, [column, other], column) for f in (join_value, join_text))
        found = connection.execute(f"SELECT {value}, {field(DUCKDB, text)} FROM t").fetchall()
        assert [v is not None for v, _ in found] == [True] * len(inside) + [False] * len(outside)
        assert [text == "-" for _, text in found] == [v is None for v, _ in found]
    if type_ == "DATE":
        met = join_value(key, [column, Column("x", "TIMESTAMP")], column)
        assert [v is not None for (v,) in connection.execute(f"SELECT {met} FROM t").fetchall()] == [True] + [False] * 4
    connection.close()


def test_ordinary_times_keep_their_values() -> None:
    """The rule for odd times changes no other: dates and times join with what they say, as text too."""
    connection = connect()
    connection.execute("CREATE TEMP TABLE t AS SELECT DATE '2024-02-29' AS d, TIMESTAMP '1999-12-31 23:59:59.5' AS t")
    connection.execute("CREATE TEMP TABLE u AS SELECT '2024-02-29' AS d, '1999-12-31 23:59:59.500' AS t")
    for name, kind in (("d", "DATE"), ("t", "TIMESTAMP")):
        typed, text = Column(name, kind), Column(name, "VARCHAR", untyped=True)
        values = [join_value(Attribute(name=name, key=True), [typed, text], c) for c in (typed, text)]
        ((first,),) = connection.execute(f"SELECT {values[0]} FROM t").fetchall()
        ((second,),) = connection.execute(f"SELECT {values[1]} FROM u").fetchall()
        ((plain,),) = connection.execute(f"SELECT {name} FROM t").fetchall()
        assert first == second == plain
    connection.close()


def test_fields_tell_apart_what_text_side_by_side_does_not() -> None:
    """The length goes first, in bytes, and NULL has a mark of its own."""
    rows = [
        ("a|b", "c"),
        ("a", "b|c"),
        ("", "c"),
        (None, "c"),
        ("-", "c"),
        ("1:c", ""),
        ("", "1:c"),
        ("ß", ""),
        ("", "ß"),
    ]
    connection = connect()
    connection.register("t", pa.table({"x": [x for x, _ in rows], "y": [y for _, y in rows]}))
    found = connection.execute(f"SELECT {field(DUCKDB, 'x')} || {field(DUCKDB, 'y')} FROM t").fetchall()
    assert len(set(found)) == len(rows)
    assert found[:4] == [("3:a|b1:c",), ("1:a3:b|c",), ("0:1:c",), ("-1:c",)]
    connection.close()
