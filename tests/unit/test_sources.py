"""Every format opens, and every way a source can be wrong has a one-line message with the fix."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.sources import column_names, connect, connections, disconnect, open_source, same_source
from dpjoin.errors import SourceError
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table

DATA = pa.table({"k": [1, 2, None], "name": ["a", None, "it's"]})


@pytest.fixture
def connection() -> Iterator[Any]:
    connection = connect()
    yield connection
    connection.close()


def rows(connection: Any, source: object, **options: Any) -> list[tuple[Any, ...]]:
    opened = open_source(connection, "t", source, **options)
    found: list[tuple[Any, ...]] = connection.execute(f"SELECT k, name FROM {opened.view}").fetchall()
    return found


TYPED = [(1, "a"), (2, None), (None, "it's")]


TEXT = [("1", "a"), ("2", None), (None, "it's")]


def write(kind: str, folder: Path) -> Any:
    path = folder / f"t.{kind}"
    if kind == "parquet":
        pyarrow.parquet.write_table(DATA, path)
    elif kind in {"feather", "ipc"}:
        pyarrow.feather.write_feather(DATA, str(path))
    elif kind == "arrow":
        with pyarrow.ipc.new_stream(str(path), DATA.schema) as writer:
            writer.write_table(DATA)
    elif kind in {"csv", "tsv"}:
        mark = "," if kind == "csv" else "\t"
        path.write_text(f"k{mark}name\n1{mark}a\n2{mark}\n{mark}it's\n")
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(b"k;name\r\n1;a\r\n2;\r\n;it's\r\n"))
    elif kind == "duckdb":
        database = duckdb.connect(path)
        database.register("incoming", DATA)
        database.execute("CREATE TABLE people AS SELECT * FROM incoming")
        database.close()
    elif kind == "db":
        with sqlite3.connect(path) as sqlite:
            sqlite.execute("CREATE TABLE people (k INTEGER, name TEXT)")
            sqlite.executemany("INSERT INTO people VALUES (?, ?)", TYPED)
        sqlite.close()
    return path


@pytest.mark.parametrize("kind", ["parquet", "feather", "ipc", "arrow", "csv", "tsv", "csv.gz", "duckdb", "db"])
def test_files(kind: str, tmp_path: Path, connection: Any) -> None:
    """Each file format gives the rows, typed where the format has types."""
    path = write(kind, tmp_path)
    table = "people" if kind in {"duckdb", "db"} else None
    untyped = kind in {"csv", "tsv", "csv.gz", "db"}
    assert rows(connection, path, table=table) == (TEXT if untyped else TYPED)
    names = column_names((path, table) if table else str(path))
    assert names == ([("k", "text"), ("name", "text")] if untyped else [("k", "BIGINT"), ("name", "VARCHAR")])


class Stream:
    """Something that only speaks Arrow's stream protocol."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return DATA.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("columns", [None, ["k", "name"]])
def test_objects(connection: Any, columns: list[str] | None) -> None:
    """Python tables of every kind give the same rows."""
    other = duckdb.connect()
    other.register("incoming", DATA)
    frame = DATA.to_pandas(types_mapper=pd.ArrowDtype)
    reader = pa.RecordBatchReader.from_batches(DATA.schema, DATA.to_batches())
    sources = (DATA, frame, pl.DataFrame(DATA), pl.LazyFrame(DATA), reader, Stream(), other.sql("FROM incoming"))
    for i, source in enumerate(sources):
        opened = open_source(connection, f"t{i}", source, columns=columns)
        assert connection.execute(f"SELECT * FROM {opened.view}").fetchall() == TYPED, source
        assert [(c.name, c.type, c.untyped) for c in opened.columns] == [
            ("k", "BIGINT", False),
            ("name", "VARCHAR", False),
        ]


def test_unread_columns_keep_names_and_types(connection: Any) -> None:
    """Columns that nobody reads are not converted, but remain known."""
    for i, source in enumerate((pl.LazyFrame(DATA), DATA.to_pandas())):
        opened = open_source(connection, f"t{i}", source, columns=["name"])
        assert [c.name for c in opened.columns] == ["k", "name"]
        found = connection.execute(f"SELECT name FROM {opened.view}").fetchall()
        assert found == [(n,) for _, n in TYPED]


def test_pandas_objects_become_text(connection: Any) -> None:
    """A column of mixed Python objects is text; nothing in it raises or changes how the rest is read."""

    class Rude:
        def __str__(self) -> str:
            raise ValueError("private")

    values = ["a", 1, 2.5, None, np.nan, pd.NA, pd.NaT, (1, 2), b"\xff", "\ud800", Rude()]
    frame = pd.DataFrame({"k": pd.Series(values, dtype=object), "name": range(len(values))})
    opened = open_source(connection, "t", frame)
    assert [c.untyped for c in opened.columns] == [True, False]
    found = [k for (k,) in connection.execute(f"SELECT k FROM {opened.view}").fetchall()]
    assert found == ["a", "1", "2.5", None, None, None, None, "(1, 2)", "\ufffd", "?", None]


@pytest.mark.parametrize(
    ("kind", "more"),
    [("objects", v) for v in ("\ud800", b"\xff", 2**70, 2.5, Decimal("1.234"), 3)] + [("string[python]", "\ud800")],
)
def test_no_pandas_value_decides_how_others_are_read(kind: str, more: object, connection: Any) -> None:
    """Categories that are objects may be of any type, and texts hold what is no Unicode; columns keep their type."""
    for i, first in enumerate((["1", "2"], [1, 2]) if kind == "objects" else (["1", "2"],)):
        seen = []
        for j, values in enumerate((first, [*first, more])):
            plain = pd.Series(values, dtype=object if kind == "objects" else kind)
            keys = pd.Series(pd.Categorical(plain)) if kind == "objects" else plain
            opened = open_source(connection, f"t{i}{j}", pd.DataFrame({"k": keys}))
            rows = connection.execute(f"SELECT k FROM {opened.view}").fetchall()
            seen.append(([(c.type, c.untyped) for c in opened.columns], rows[: len(first)]))
        assert seen[0] == seen[1]


def test_odd_csv_rows_raise_nothing(tmp_path: Path, connection: Any) -> None:
    """Short, long, quoted and broken lines never stop the reading."""
    path = tmp_path / "odd [1]*.csv"
    path.write_bytes(b'k,name\n1,a\n"x\ny"\n1,2,3,4\n\xff\xfe,b\n,""\n"q""q",z\n2,"open\n')
    found = rows(connection, path)
    assert found[:3] == [("1", "a"), ("x\ny", None), ("1", "2")]
    assert (None, None) in found
    assert ('q"q', "z") in found
    (tmp_path / "empty.csv").write_text("k,name\n")
    opened = open_source(connection, "e", tmp_path / "empty.csv")
    assert connection.execute(f"SELECT * FROM {opened.view}").fetchall() == []


def message(action: Any) -> str:
    with pytest.raises(SourceError) as caught:
        action()
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.__cause__ is None
    return text


def test_missing_and_unreadable_files(tmp_path: Path, connection: Any) -> None:
    """A file that is not there, not readable or of no known kind is named with the fix."""

    def opening(name: str, content: bytes | None = None, table: str | None = None) -> str:
        if content is not None:
            (tmp_path / name).write_bytes(content)
        return message(lambda: open_source(connection, "flights", tmp_path / name, table=table))

    missing = opening("x.parquet")
    assert missing.startswith("table 'flights': file '")
    assert missing.endswith("x.parquet' does not exist; correct tables.flights.source")
    for name, what in (("a.parquet", "Parquet"), ("b.feather", "Arrow"), ("c.duckdb", "DuckDB or SQLite")):
        text = opening(name, b"secret row", "people")
        assert f"cannot be read as {what} data" in text
        assert "secret" not in text
    assert "has an unknown extension '.xls'; use one of .csv" in opening("d.xls", b"")
    assert "has no header" in opening("e.csv", b"")
    assert "has two columns named 'K' (case aside); rename" in opening("f.csv", b"k,K\n1,2\n")
    assert "has no name for column 1; write one" in opening("h.csv", b",k,l\n0,1,2\n")
    assert "cannot be read as SQLite data" in opening("g.db", b"SQLite format 3\x00 and no more", "people")


@pytest.mark.parametrize("header", ["a;b, c;d", '"a, b, c, d";e;f', "a,b,c;d", "a|b|c,d", "a\tb, c\td"])
def test_what_stands_between_names_is_what_is_there_most(header, tmp_path):
    """By the header alone, whatever is inside of names, quoted or not."""
    (tmp_path / "v.csv").write_text(f"{header}\n1,2;3,4\n")
    assert len(column_names(tmp_path / "v.csv")) == 3


@pytest.mark.parametrize("kind", ["duckdb", "db"])
def test_database_tables(kind: str, tmp_path: Path, connection: Any) -> None:
    """A database needs the name of one of its tables."""
    path = write(kind, tmp_path)
    text = message(lambda: open_source(connection, "t", path))
    assert "name one in tables.t.table (it has: people)" in text
    text = message(lambda: open_source(connection, "u", path, table="peopel"))
    assert "has no table 'peopel'; did you mean 'people'?" in text


def test_objects_that_are_no_tables(connection: Any) -> None:
    """Anything else is refused with the list of what works."""
    assert "a table cannot be read from a int; pass a path" in message(lambda: open_source(connection, "t", 3))
    twice = pd.DataFrame([[1, 2]], columns=["k", "K"])
    assert "has two columns named 'K'" in message(lambda: open_source(connection, "t", twice))


def engine(first: Any, second: Any, a: Attribute | None = None, k: Attribute | None = None) -> DuckEngine:
    attributes = (k or Attribute(name="k", key=True), a or Attribute(name="a", range=(0, 3)))
    tables = (Table(name="r", attributes=("k", "a")), Table(name="s", attributes=("k",)))
    return DuckEngine(Schema(tables, attributes), {"r": first, "s": second}, attributes=["a"])


def test_columns_must_fit() -> None:
    """Missing columns, wrong types and keys that cannot be compared are named."""
    numbers, texts = pa.table({"k": [1], "a": [1]}), pa.table({"k": ["x"], "a": ["x"]})
    lacking = message(lambda: engine(pa.table({"k": [1], "aa": [1]}), numbers))
    assert lacking == ("table 'r': the pyarrow Table has no column 'a'; did you mean 'aa'? (it has: k, aa)")
    text = message(lambda: engine(texts, texts.select(["k"])))
    assert "column 'a' has type VARCHAR, but attribute 'a' is declared with whole numbers" in text
    words = Attribute(name="a", values=("x", "y"))
    text = message(lambda: engine(numbers, numbers.select(["k"]), words))
    assert "column 'a' has type BIGINT, but attribute 'a' is declared with text" in text
    text = message(lambda: engine(numbers, texts.select(["k"])))
    assert text == (
        "attribute 'k' joins column 'k' of table 'r' (type BIGINT) with column 'k' of table 's' (type VARCHAR), "
        "which cannot be compared; convert one of them"
    )
    nested = pa.table({"k": [[1]], "a": [1]})
    assert "which tables cannot join on" in message(lambda: engine(nested, nested.select(["k"])))
    tables = (
        Table(name="r", attributes=("k", "id"), bounds=(DegreeBound(attributes=("id",), limit=1),)),
        Table(name="s", attributes=("k",)),
    )
    schema = Schema(tables, tuple(Attribute(name=n, key=True) for n in ("k", "id")))
    listed = {"r": pa.table({"k": [1], "id": [[1]]}), "s": numbers}
    assert "which degrees cannot be bounded by" in message(lambda: DuckEngine(schema, listed, attributes=[]))
    dates = pa.table({"k": [1], "a": pa.array([1], pa.date32())})
    assert "has type DATE, but attribute 'a' is declared" in message(lambda: engine(dates, numbers))
    flags = pa.table({"k": [1], "a": [True]})
    assert engine(flags, numbers).exact_join_size() == 1
    assert engine(flags, numbers, Attribute(name="a", values=(True,))).exact_join_size() == 1


def test_damaged_data_says_nothing_of_the_rows(tmp_path: Path) -> None:
    """A file that opens but breaks while it is read gives the same plain message."""
    path = tmp_path / "r.parquet"
    pyarrow.parquet.write_table(pa.table({"k": list(range(5000)), "a": [1] * 5000}), path, compression="none")
    damaged = bytearray(path.read_bytes())
    damaged[4:2000] = b"\xff" * 1996
    path.write_bytes(damaged)
    broken = engine(path, pa.table({"k": [1]}))
    assert "cannot be read as complete data" in message(broken.exact_join_size)


def test_same_source(tmp_path: Path) -> None:
    """Two names for one file are one source; two tables of one database are two, and other files have none."""
    path = tmp_path / "x.db"
    path.touch()
    link = tmp_path / "y.db"
    link.symlink_to(path)
    assert same_source(path, str(link))
    assert same_source((path, "t"), (link, "t"))
    assert not same_source((path, "t"), (path, "u"))
    assert same_source(DATA, DATA)
    assert not same_source(DATA, path)
    file = tmp_path / "z.parquet"
    assert same_source(file, (file, "t"))
    assert same_source((file, "t"), (file, "u"))


COARSE = [*(pa.timestamp(u, "UTC") for u in ("s", "ms")), *(pa.duration(u) for u in ("s", "ms"))]


@pytest.mark.parametrize("kind", COARSE, ids=str)
@pytest.mark.parametrize("form", ["arrow", "dictionary", "pandas", "polars", "file"])
def test_times_that_duckdb_cannot_hold_are_missing(kind: Any, form: str, tmp_path: Path, connection: Any) -> None:
    """They would stop the scan. The others keep their values, and columns that nobody reads are left as they are."""
    array = pa.array([0, 5, -5, 2**63 - 1, -(2**63), 10**16, None], pa.int64()).view(kind)
    table = pa.table({"k": array, "unread": array, "name": list("abcdefg")})
    source: Any = table
    if form == "dictionary":
        source = table.set_column(0, "k", array.dictionary_encode())
    elif form == "pandas":
        source = table.to_pandas(types_mapper=pd.ArrowDtype)
    elif form == "polars":
        if kind.unit == "s":
            pytest.skip("Polars has no seconds")
        source = pl.DataFrame(table)
    elif form == "file":
        source = tmp_path / "t.arrow"
        pyarrow.feather.write_feather(table, source)
    opened = open_source(connection, "t", source, columns=["k", "name"])
    found = connection.execute(f"SELECT epoch_us(k) FROM {opened.view} ORDER BY name").fetchall()
    unit = {"s": 10**6, "ms": 10**3}[kind.unit]
    assert [k for (k,) in found] == [0, 5 * unit, -5 * unit, None, None, None, None]


@pytest.mark.parametrize("bounded", ["k", "at"])
@pytest.mark.parametrize("code", [0, 5])
def test_times_before_the_calendar_in_parquet_raise_nothing(bounded: str, code: int, tmp_path: Path) -> None:
    """Also where rows are put in order, and where a row is left out: DuckDB looks at its time all the same."""
    times = pa.array([0, 0, -(2**63)], pa.int64()).view(pa.timestamp("us"))
    rows = {"k": times if bounded == "k" else [1, 1, 1], "at": times, "a": [0, 0, code]}
    for name, table in {"r": rows, "s": {"k": rows["k"][:1]}}.items():
        pyarrow.parquet.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    bound = DegreeBound(attributes=(bounded,), limit=3)
    schema = Schema(
        (
            Table(name="r", attributes=("k", "at", "a"), bounds=(bound,), enforce=True),
            Table(name="s", attributes=("k",)),
        ),
        (Attribute(name="k", key=True), Attribute(name="at", key=True), Attribute(name="a", range=(0, 1))),
    )
    found = DuckEngine(schema, {n: tmp_path / f"{n}.parquet" for n in "rs"}, attributes=("a",))
    assert found.exact_join_size() == (3 if bounded == "at" and code == 0 else 2)


@pytest.mark.parametrize("form", ["arrow", "large", "view", "dictionary", "file"])
def test_texts_that_are_not_utf8_raise_nothing(form: str, tmp_path: Path) -> None:
    """Arrow lets any bytes pass for text. Those that are none are replaced, as in other sources."""
    ends = pa.py_buffer(np.array([0, 1, 2, 4], dtype=np.int32))
    texts = pa.Array.from_buffers(pa.string(), 3, [None, ends, pa.py_buffer(b"a\xff\xc3\x9f")])
    keys = {
        "large": texts.cast(pa.large_string()),
        "view": texts.cast(pa.string_view()),
        "dictionary": pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), texts),
    }.get(form, texts)
    source: Any = pa.table({"k": keys, "a": [1] * len(keys)})
    if form == "file":
        pyarrow.feather.write_feather(source, tmp_path / "r.arrow")
        source = tmp_path / "r.arrow"
    both = engine(source, pa.table({"k": ["a", "\ufffd", "ß", "b"]}))
    assert both.exact_join_size() == 3
    degrees = both.exact_degrees({"r": {}}, ("k",))
    assert sorted(map(str, (k for (k,) in degrees.exact_values(np.arange(3))))) == ["a", "ß", "\ufffd"]


def test_a_broken_duckdb_does_not_outlive_its_release(tmp_path: Path) -> None:
    """An internal error shuts a DuckDB down: work under way ends with the plain message, what comes later goes on."""
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE r AS SELECT 1 AS k, 2 AS a")
        database.execute("CREATE TABLE s AS SELECT 1 AS k")
    under_way = engine((path, "r"), (path, "s"))
    bad = connect()
    bad.register("t", pa.table({"x": pa.array([10**16], pa.int64()).view(pa.timestamp("ms"))}))
    with pytest.raises(duckdb.Error):
        bad.execute("SELECT CAST(x AS VARCHAR) FROM t").fetchall()
    assert "cannot be read as complete data" in message(under_way.exact_join_size)
    assert engine((path, "r"), (path, "s")).exact_join_size() == 1
    disconnect(bad)
    under_way._store.close()
    assert engine((path, "r"), (path, "s")).exact_join_size() == 1


def test_one_duckdb_sees_private_rows() -> None:
    """The one that spills to a private folder: others spill to the working folder, and leave rows there."""
    engine = Path(connections.__file__).parent.parent
    made = [p.name for p in sorted(engine.rglob("*.py")) if "duckdb.connect(" in p.read_text(encoding="utf-8")]
    assert made == ["connections.py"]
