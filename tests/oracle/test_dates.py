"""Parts of dates and times: engine and definitions agree on every type of column and on text; rows are dates."""

from __future__ import annotations

import csv
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.encode import Column, code, kept
from dpjoin.engine.sources import connected
from dpjoin.errors import SourceError, SpecError
from dpjoin.released.rows import labelled
from dpjoin.spec.plain import schema_from_dict, schema_to_dict
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.sql import parse_groups
from dpjoin.spec.workload import Workload
from support.brute import BruteEngine
from support.engines import assert_equal, small_partitions

EDGES = (date(2019, 6, 1), date(2020, 2, 29), date(2021, 1, 1))
DATED = [
    *(Attribute(name="x", part=part) for part in ("month", "weekday", "hour")),
    Attribute(name="x", part="weekday", values=(7, 6), other=True),
    Attribute(name="x", part="year", range=(2019, 2021)),
    Attribute(name="x", part="year", values=(2020, 1), other=True),
    Attribute(name="x", part="hour", bins=(0, 6, 12, 23), other=True),
    Attribute(name="x", bins=EDGES),
    Attribute(name="x", bins=(-math.inf, *EDGES, math.inf)),
    Attribute(name="x", values=EDGES[::-1], other=True),
    Attribute(name="x", range=(EDGES[1], EDGES[2])),
]
MOMENTS = [
    *(datetime(2020, 2, 29, h, 59, 59, 999999) for h in (0, 5, 23)),
    *(datetime.combine(d, time()) + timedelta(microseconds=u) for d in EDGES for u in (-1, 0, 1)),
    *(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), datetime(1969, 12, 31, 12)),
]
ODD = ["", "x", "2020", "2020-13-01", "2020-02-30", "20200101", "NaN", "infinity", "-1", "99999999-01-01", "日本", None]


def sql_codes(attribute: Attribute, array: Any, *, untyped: bool = False) -> list[int | None]:
    with connected() as connection:
        connection.register("t", pa.table({"x": array}))
        ((_, kind, *_),) = connection.execute("DESCRIBE t").fetchall()
        column = Column("x", kind, untyped=untyped)
        found = [c for (c,) in connection.execute(f"SELECT {code(attribute, column)} FROM t").fetchall()]
        for condition in kept(attribute, column):
            flags = connection.execute(f"SELECT coalesce({condition}, false) FROM t").fetchall()
            assert [f for (f,) in flags] == [c is not None for c in found]
        return found


@pytest.mark.parametrize("attribute", DATED, ids=str)
def test_codes(attribute: Attribute) -> None:
    """Dates, times of every unit, with and without a zone, and their text have the codes of the definition."""
    expected = [attribute.code(m) for m in MOMENTS]
    assert any(c is not None for c in expected)
    assert sql_codes(attribute, pa.array(MOMENTS, pa.timestamp("us"))) == expected
    zoned = [m.replace(tzinfo=UTC) for m in MOMENTS]
    assert sql_codes(attribute, pa.array(zoned, pa.timestamp("us", "America/New_York"))) == expected
    assert [attribute.code(m.astimezone(timezone(timedelta(hours=1)))) for m in zoned[:-3]] == expected[:-3]
    seconds = [m.replace(microsecond=0) for m in MOMENTS]
    assert sql_codes(attribute, pa.array(seconds, pa.timestamp("s"))) == [attribute.code(m) for m in seconds]
    days = [m.date() for m in MOMENTS]
    assert sql_codes(attribute, pa.array(days, pa.date32())) == [attribute.code(d) for d in days]
    for texts in ([str(m) for m in MOMENTS], [m.isoformat() for m in MOMENTS]):
        for untyped in (True, False):
            assert sql_codes(attribute, pa.array(texts), untyped=untyped) == expected
        assert [attribute.code(t) for t in texts] == expected
    texts = [str(d) for d in days]
    assert sql_codes(attribute, pa.array(texts), untyped=True) == [attribute.code(t) for t in texts]


@pytest.mark.parametrize("attribute", DATED, ids=str)
def test_no_value_raises(attribute: Attribute, tmp_path: Path) -> None:
    """Text that is no date, and dates and times beyond the calendar, have no part."""
    none = attribute.code(None)
    assert sql_codes(attribute, pa.array(ODD), untyped=True) == [none] * len(ODD) == [attribute.code(t) for t in ODD]
    far = pa.array([2**31 - 1, -(2**31) + 1, 10**8, None], pa.int32()).cast(pa.date32())
    moments = pa.array([2**63 - 1, -(2**63) + 1, 2**62, None], pa.int64()).cast(pa.timestamp("us"))
    assert sql_codes(attribute, far) == sql_codes(attribute, moments) == [none] * 4
    pyarrow.parquet.write_table(pa.table({"d": far, "t": moments}), tmp_path / "far.parquet")
    for name in ("d", "t"):
        schema = Schema((Table(name="r", attributes=("x",), columns={"x": name}),), (attribute,))
        engine = DuckEngine(schema, {"r": tmp_path / "far.parquet"}, attributes=("x",))
        assert engine.exact_join_size() == 4 * attribute.other


def test_time_of_day() -> None:
    """A time of day has an hour, as a time and as text; numbers have no part."""
    hour = Attribute(name="x", part="hour")
    assert sql_codes(hour, pa.array([time(0), time(13, 5), None], pa.time64("us"))) == [0, 13, None]
    assert sql_codes(hour, pa.array(["00:10:00", "13:05:00"]), untyped=True) == [0, 13]
    assert [hour.code(t) for t in (time(0), time(13, 5), 2.5)] == [0, 13, None]
    schema = Schema((Table(name="r", attributes=("x",)),), (hour,))
    with pytest.raises(SourceError, match="type BIGINT, but attribute 'x' takes the hour of dates or times; convert"):
        DuckEngine(schema, {"r": pa.table({"x": [1, 2]})}, attributes=("x",))
    plain = Schema((Table(name="r", attributes=("x",)),), (Attribute(name="x", range=(0, 3)),))
    with pytest.raises(SourceError, match=r"add part .year, month, weekday, hour or date., or use bins of dates"):
        DuckEngine(plain, {"r": pa.table({"x": pa.array([0], pa.timestamp("us"))})}, attributes=("x",))


@pytest.mark.parametrize("seed", range(8))
def test_joins(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part joins what has the same part, dates with times and with text; counts equal those of the definition."""
    small_partitions(monkeypatch, seed)
    rng = np.random.default_rng(seed)
    on = [
        Attribute(name="on", part="date", key=True),
        Attribute(name="on", part="weekday"),
        Attribute(name="on", bins=EDGES, other=True),
    ][seed % 3]
    attributes = (on, Attribute(name="m", part="month"), Attribute(name="h", part="hour", other=True))
    schema = Schema(
        (Table(name="r", attributes=("on", "m")), Table(name="s", attributes=("on", "h"), columns={"h": "on"})),
        attributes,
    )

    def some(rows: int) -> list[datetime]:
        start = datetime(2020, 2, 25)
        return [start + timedelta(hours=int(h)) for h in rng.integers(0, 200, rows)]

    left, right = [{"on": m.date(), "m": m} for m in some(12)], [{"on": m} for m in some(15)]
    brute = BruteEngine(schema, {"r": left, "s": right})
    with open(tmp_path / "r.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ("on", "m"))
        writer.writeheader()
        writer.writerows(left)
    pyarrow.parquet.write_table(pa.Table.from_pylist(right), tmp_path / "s.parquet")
    workload = Workload.marginals(schema, [("m",), ("m", "h")])
    assert brute.exact_join_size() > 0
    for source in (tmp_path / "r.csv", pa.Table.from_pylist(left)):
        assert_equal(schema, workload, {"r": left, "s": right}, {"r": source, "s": tmp_path / "s.parquet"})


@pytest.mark.parametrize("attribute", DATED, ids=str)
def test_written_and_read(attribute: Attribute) -> None:
    """A schema with dates is the same after it was written as plain data."""
    schema = Schema((Table(name="r", attributes=("x",)),), (attribute,))
    assert schema_from_dict(schema_to_dict(schema)) == schema


def test_rows_are_dates() -> None:
    """Synthetic rows of date bins, ranges and values are dates within their bin or equal to their value."""
    given: dict[str, dict[str, Any]] = {
        "b": {"bins": (-math.inf, *EDGES), "other": True},
        "v": {"values": EDGES, "other": True},
        "r": {"range": EDGES[:2]},
    }
    attributes = tuple(Attribute(name=name, **how) for name, how in given.items())
    schema = Schema((Table(name="t", attributes=tuple(given)),), attributes)
    rng = np.random.default_rng(1)
    codes = {a.name: rng.integers(0, a.size, 500) for a in attributes}
    rows = labelled(schema, codes, 500, rng)
    assert {rows.schema.field(name).type for name in given} == {pa.date32()}
    for a in attributes:
        assert [a.code(v) for v in rows[a.name].to_pylist()] == codes[a.name].tolist()
    assert rows["b_bin"].to_pylist()[0] == attributes[0].labels[codes["b"][0]]
    assert attributes[0].labels[:2] == ("[-inf, 2019-06-01)", "[2019-06-01, 2020-02-29)")


def test_sql() -> None:
    """Dates compare with dates and with their text; a date inside a bin is refused with the edges."""
    schema = Schema(
        (Table(name="t", attributes=("b", "v")),), (Attribute(name="b", bins=EDGES), Attribute(name="v", values=EDGES))
    )
    for condition, at in (
        ("b >= '2020-02-29'", [0, 1]),
        ("b < DATE '2020-02-29'", [1, 0]),
        ("b = '[2019-06-01, 2020-02-29)'", [1, 0]),
        ("v > DATE '2019-06-01'", [0, 1, 1]),
        ("v = '2020-02-29'", [0, 1, 0]),
    ):
        (group,) = parse_groups(schema, f"SELECT COUNT(*) FROM joined WHERE {condition}")
        assert list(group.factors[0].row) == at  # type: ignore[union-attr]
    with pytest.raises(SpecError, match=r"splits the bin .*\(2019-06-01, 2020-02-29, 2021-01-01\)"):
        parse_groups(schema, "SELECT COUNT(*) FROM joined WHERE b < '2020-01-01'")
    with pytest.raises(SpecError, match="compare it with a date, not with 'noon'"):
        parse_groups(schema, "SELECT COUNT(*) FROM joined WHERE b < 'noon'")
    with pytest.raises(SpecError, match="has dates, which cannot be summed"):
        parse_groups(schema, "SELECT SUM(b) FROM joined")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"part": "decade", "range": [1, 2]}, r"x.part .'decade'. must be one of year, month, weekday, hour, date"),
        ({"part": "year"}, r"is the year of a date and must have values, a range or bins; write range = "),
        ({"part": "date"}, r"is the date of a date and must have .* write bins = \[2020-01-01, 2021-01-01\]"),
        ({"bins": [date(2020, 1, 1), 5.5]}, "bins must be dates; write them like 2020-12-31"),
        ({"part": "date", "bins": ["2020-01-01", "soon"]}, "bins .'soon'. must be a date; write it like"),
        ({"bins": [datetime(2020, 1, 1, 5), date(2021, 1, 1)]}, "must be a date without a time; write 2020-01-01"),
        ({"bins": [date(2021, 1, 1), date(2020, 1, 1)]}, "edge 2020-01-01 follows 2021-01-01"),
        ({"part": "month", "values": ["May"]}, "values must be whole numbers"),
        ({"part": 3}, "part"),
    ],
)
def test_refused(body: dict[str, Any], message: str) -> None:
    data = {"tables": {"t": {"attributes": ["x"]}}, "attributes": {"x": body}}
    with pytest.raises(SpecError, match=message):
        schema_from_dict(data)


def test_release() -> None:
    """A release with dates is made, asked in SQL and its rows are dates."""
    days = [date(2020, 1, 1) + timedelta(days=i % 400) for i in range(4000)]
    schema = Schema(
        (Table(name="t", attributes=("d", "w"), columns={"w": "d"}),),
        (
            Attribute(name="d", bins=(date(2020, 1, 1), date(2020, 7, 1), date(2021, 3, 1))),
            Attribute(name="w", part="weekday"),
        ),
    )
    table = pa.table({"d": pa.array(days)})
    made = dj.release(schema, Workload.marginals(schema, 2), {"t": table}, dj.Budget(epsilon=5.0, delta=1e-6))
    expected = sum(d < date(2020, 7, 1) for d in days)
    assert abs(float(made.answer("SELECT COUNT(*) FROM joined WHERE d < DATE '2020-07-01'")[0]) - expected) < 200
    assert made.sample(10).schema.field("d").type == pa.date32()
    assert [r[0][1] for r in made.describe().rows] == ["dates", "whole numbers"]
