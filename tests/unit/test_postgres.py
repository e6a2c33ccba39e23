"""PostgreSQL as a source: its types, its faults, and what no message, file or listing may show."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import dpjoin as dj
from dpjoin.cli import doctor
from dpjoin.cli.commands import app
from dpjoin.engine import postgres as on_postgres
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.sources import same_source
from dpjoin.errors import SourceError, SpecError
from dpjoin.privacy import noise
from dpjoin.released.files import save
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.stored import postgres_source
from dpjoin.spec.toml import Spec
from dpjoin.spec.workload import CELLS, Workload, kronecker
from support import postgres
from support.bits import BITS

PLANTED = "pl4nted-s3cret"
KEYED = Schema(
    (Table(name="r", attributes=("k", "a")), Table(name="s", attributes=("k", "b"))),
    (
        Attribute(name="k", key=True),
        Attribute(name="a", range=(0, 3)),
        Attribute(name="b", range=(0, 3)),
    ),
)
SPEC = """
[privacy]
epsilon = 1.0
delta = 1e-6
[tables.r]
source = {r}
attributes = ["k", "a"]
[tables.s]
source = {s}
attributes = ["k", "b"]
[attributes.k]
key = true
[attributes.a]
range = [0, 3]
[attributes.b]
range = [0, 3]
[workload]
marginals = 1
"""


def rows(count: int) -> dict[str, pa.Table]:
    return {
        "r": pa.table({"k": [i % 50 for i in range(count)], "a": [i % 4 for i in range(count)]}),
        "s": pa.table({"k": [i % 50 for i in range(count)], "b": [i % 3 for i in range(count)]}),
    }


def counted(schema: Schema, sources: dict[str, Any]) -> dict[str, list[int]]:
    engine = DuckEngine(schema, sources, attributes=schema.queryable)
    groups = [kronecker(schema, {a: CELLS}) for a in schema.queryable]
    return {a: found.tolist() for a, found in zip(schema.queryable, engine.exact_answers(groups), strict=True)}


INFINITE = (-math.inf, -1.0, 0.0, 0.1, 1.5, 1e300, math.inf)
COLUMNS: dict[str, tuple[str, list[str], list[object], Attribute]] = {
    "small": ("smallint", ["0", "5", "-32768", "NULL"], [0, 5, -32768, None], Attribute(name="small", range=(0, 5))),
    "big": (
        "bigint",
        ["9223372036854775807", "-9223372036854775808", "3", "NULL"],
        [2**63 - 1, -(2**63), 3, None],
        Attribute(name="big", values=(3, 2**63 - 1), other=True),
    ),
    "cents": (
        "numeric(10,2)",
        ["'NaN'", "1.50", "-1", "0.1"],
        [None, 1.5, -1.0, 0.1],
        Attribute(name="cents", bins=INFINITE, other=True),
    ),
    "digits": (
        "numeric(30,0)",
        ["'NaN'", "3", "123456789012345678901234567890", "NULL"],
        [None, 3, 123456789012345678901234567890, None],
        Attribute(name="digits", range=(0, 5), other=True),
    ),
    "wide": (
        "numeric",
        ["1e400", "-1e400", "1e-400", "'NaN'", "'Infinity'", "1.50", "NULL"],
        [math.inf, -math.inf, 0.0, None, math.inf, 1.5, None],
        Attribute(name="wide", bins=INFINITE, other=True),
    ),
    "x": (
        "double precision",
        ["'NaN'", "'Infinity'", "'-Infinity'", "'-0'", "5e-324", "1.5", "0.1", "NULL"],
        [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.5, 0.1, None],
        Attribute(name="x", bins=INFINITE, other=True),
    ),
    "single": (
        "real",
        ["'NaN'", "1e38", "1.5", "3"],
        [math.nan, 1e38, 1.5, 3.0],
        Attribute(name="single", range=(0, 5), other=True),
    ),
    "word": (
        "text",
        ["''", "'a'", "'A'", "'ß'", "'日本'", "E'a\\nb'", "'a '", "'it''s'", "NULL"],
        ["", "a", "A", "ß", "日本", "a\nb", "a ", "it's", None],
        Attribute(name="word", values=("a", "A", "", "日本", "a\x00b", "z", "it's", "a\nb", "\\"), other=True),
    ),
    "padded": ("char(4)", ["'ab'", "'ab  '", "''"], ["ab", "ab", ""], Attribute(name="padded", values=("ab", ""))),
    "yes": ("boolean", ["true", "false", "NULL"], [True, False, None], Attribute(name="yes", values=(True, False))),
    "mood": (
        "mood",
        ["'low'", "'high'", "NULL"],
        ["low", "high", None],
        Attribute(name="mood", values=("high", "low")),
    ),
    "few": ("few", ["1", "3", "NULL"], [1, 3, None], Attribute(name="few", range=(1, 3))),
    "day": (
        "date",
        ["'2024-02-29'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'10000-01-01'"],
        [date(2024, 2, 29), None, None, None, None],
        Attribute(name="day", part="year", range=(2020, 2025), other=True),
    ),
    "at": (
        "timestamp",
        ["'2024-02-29 23:59:59.999999'", "'infinity'", "'294276-01-01'", "'4713-01-01 BC'"],
        [datetime(2024, 2, 29, 23, 59, 59, 999999), None, None, None],
        Attribute(name="at", part="hour", other=True),
    ),
    "zoned": (
        "timestamptz",
        ["'2024-02-29 23:30+05'", "'-infinity'", "NULL"],
        [datetime(2024, 2, 29, 18, 30), None, None],
        Attribute(name="zoned", part="hour", other=True),
    ),
    "clock": ("time", ["'23:59'", "'24:00'", "NULL"], [23, 24, None], Attribute(name="clock", part="hour", other=True)),
    "said": (
        "text",
        ["'2024-02-29'", "'2023-02-29'", "'2024-13-01'", "'0000-01-01'", "'2024-02-29T23:30:00+05:30'", "'x'", "NULL"],
        [date(2024, 2, 29), None, None, None, date(2024, 2, 29), None, None],
        Attribute(name="said", part="weekday", other=True),
    ),
}


@pytest.fixture(scope="module")
def typed(postgres_server: postgres.Server) -> postgres.Server:
    postgres_server.execute(
        "DROP TABLE IF EXISTS typed",
        "CREATE TYPE mood AS ENUM ('low', 'high')",
        "CREATE DOMAIN few AS integer CHECK (VALUE > 0)",
        f"CREATE TABLE typed ({', '.join(f'{name} {kind}' for name, (kind, *_) in COLUMNS.items())})",
        *(
            f"INSERT INTO typed ({name}) VALUES {', '.join(f'({v})' for v in values)}"
            for name, (_, values, *_) in COLUMNS.items()
        ),
    )
    return postgres_server


@pytest.mark.parametrize("name", COLUMNS)
def test_types(typed: postgres.Server, name: str) -> None:
    """Whatever a column's type can hold has the code of the definition, and nothing raises."""
    _, _, values, attribute = COLUMNS[name]
    schema = Schema((Table(name="t", attributes=(name,)),), (attribute,))
    found = counted(schema, {"t": f"{typed.source} table=typed"})[name]
    expected = [0] * attribute.size
    others = sum(len(v) for n, (_, v, *_) in COLUMNS.items() if n != name)
    for value in [*values, *[None] * others]:
        code = attribute.code(value) if not isinstance(value, int) or name != "clock" else value if value < 24 else 24
        if code is not None:
            expected[code] += 1
    assert found == expected


JOINED = {
    "uuid": ["'550E8400-e29b-41d4-a716-446655440000'", "'00000000-0000-0000-0000-000000000001'"],
    "bytea": [r"'\x00ff'", r"'\x27'", "''"],
    "date": ["'2024-02-29'", "'0044-03-15 BC'"],
    "timestamptz": ["'2024-02-29 12:00+05'", "'2024-02-29 07:00+00'"],
    "timestamp": ["'2024-02-29 12:00:00.5'", "'infinity'"],
    "time": ["'12:00:00.5'", "'24:00'"],
    "numeric(10,2)": ["1.50", "-0.5", "'NaN'"],
    "numeric(25,0)": ["1234567890123456789012345", "7"],
    "numeric": ["1.50", "1.5", "1e400"],
    "double precision": ["0.1", "'-0'", "0", "'NaN'", "1e300"],
    "char(6)": ["'ab'", "'ab  '"],
    'text COLLATE "folded"': ["'a'", "'A'", "'ß'", "'ss'"],
    "boolean": ["true", "false"],
}


@pytest.mark.parametrize("kind", JOINED)
def test_joins_by_every_type(postgres_server: postgres.Server, tmp_path: Path, kind: str) -> None:
    """A table joins itself alike, whether both sides are in the server, one is at home, or both."""
    postgres_server.execute(
        *(f"DROP TABLE IF EXISTS {t}" for t in "rs"),
        *(f"CREATE TABLE {t} (k {kind}, {a} integer)" for t, a in ("ra", "sb")),
    )
    for table in "rs":
        values = ", ".join(f"({value}, {i})" for i, value in enumerate(JOINED[kind]))
        postgres_server.execute(f"INSERT INTO {table} VALUES {values}, (NULL, 0)")
    there = {t: f"{postgres_server.source} table={t}" for t in "rs"}
    found = counted(KEYED, there)
    assert sum(found["a"]) > 0
    if kind in {"numeric", "timestamptz"}:
        return  # what a Parquet file holds of these is another type
    with postgres_server.connected() as cursor:
        cursor.execute("SELECT " + ("k" if "numeric" not in kind else "CAST(k AS text) AS k") + ", a FROM r")
        table = cursor.fetch_arrow_table()
    if kind.startswith("numeric"):
        texts = [None if v in (None, "NaN") else v for v in table["k"].to_pylist()]
        digits, scale = (10, 2) if "2)" in kind else (25, 0)
        table = table.set_column(0, "k", pa.array(texts).cast(pa.decimal128(digits, scale)))
    if kind.startswith("char"):
        table = table.set_column(0, "k", pa.array([v and v.rstrip() for v in table["k"].to_pylist()]))
    pq.write_table(table, tmp_path / "r.parquet")
    assert counted(KEYED, {**there, "r": tmp_path / "r.parquet"}) == found
    pq.write_table(table.rename_columns(["k", "b"]), tmp_path / "s.parquet")
    assert counted(KEYED, {"r": tmp_path / "r.parquet", "s": tmp_path / "s.parquet"}) == found


def test_what_has_no_plain_values_is_refused(postgres_server: postgres.Server) -> None:
    postgres_server.execute(
        "DROP TABLE IF EXISTS odd",
        "CREATE TABLE odd (k integer[], a interval, b integer)",
        "INSERT INTO odd VALUES (NULL)",
    )
    sources = {
        t: f"{postgres_server.source} query=SELECT k, 1 AS a, b FROM odd WHERE b <> {i}" for i, t in enumerate("rs")
    }
    with pytest.raises(SourceError, match=r"has type VARIANT\(int4\[\]\), which tables cannot join on"):
        DuckEngine(KEYED, sources, attributes=())
    schema = Schema((Table(name="t", attributes=("a",)),), (Attribute(name="a", range=(0, 3)),))
    with pytest.raises(SourceError, match=r"has type VARIANT\(interval\), but attribute 'a' is declared with whole"):
        DuckEngine(schema, {"t": f"{postgres_server.source} table=odd"}, attributes=("a",))


def test_same_bytes_from_files_and_from_the_server(
    postgres_server: postgres.Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the rows lie is not in the release: the same noise makes the same files."""
    monkeypatch.setattr(noise, "os", BITS)  # with --fresh, too
    monkeypatch.setattr(noise, "secrets", BITS)
    tables = rows(3000)
    workload = Workload.marginals(KEYED, [("a",), ("b",), ("a", "b")])
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    places = {
        "files": {name: tmp_path / f"{name}.parquet" for name in tables},
        "server": postgres_server.load(tables),
    }
    made = {}
    for where, sources in places.items():
        BITS.begin("the same")
        made[where] = dj.release(KEYED, workload, sources, dj.Budget(epsilon=1.0, delta=1e-6), method="capped")
        save(made[where], tmp_path / where)
    first, second = (tmp_path / where for where in places)
    names = sorted(p.name for p in first.iterdir())
    assert names == sorted(p.name for p in second.iterdir())
    differ = [n for n in names if (first / n).read_bytes() != (second / n).read_bytes()]
    assert differ == []


def test_one_state_of_the_data(postgres_server: postgres.Server) -> None:
    """What others write after a release began to read is in none of its tables, whichever is read when."""
    sources = postgres_server.load(rows(100))
    engine = DuckEngine(KEYED, sources, attributes=("a", "b"))
    store = engine._store
    before = store.exact_query("r", f"SELECT count(*) AS n FROM {store.opened['r'].view}").to_pydict()
    postgres_server.execute("INSERT INTO r SELECT * FROM r", "DELETE FROM s WHERE k < 25")
    assert store.exact_query("r", f"SELECT count(*) AS n FROM {store.opened['r'].view}").to_pydict() == before
    assert engine.exact_join_size() == 50 * 2 * 2
    assert DuckEngine(KEYED, sources, attributes=("a", "b")).exact_join_size() == 25 * 4 * 2


def test_a_lost_connection_ends_the_release(postgres_server: postgres.Server) -> None:
    sources = postgres_server.load(rows(100))
    engine = DuckEngine(KEYED, sources, attributes=("a", "b"))
    postgres_server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{postgres.READER}'"
    )
    with pytest.raises(SourceError, match="was lost, and with it the state of the data"):
        engine.exact_join_size()


def test_one_state_from_the_first_table_on(postgres_server: postgres.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What others write between the opening of two tables is in neither."""
    sources = postgres_server.load(rows(100))
    described = on_postgres._described

    def then_written(name: str, *rest: Any) -> Any:
        found = described(name, *rest)
        if name == "r":
            postgres_server.execute("DELETE FROM s WHERE k < 25")
        return found

    monkeypatch.setattr(on_postgres, "_described", then_written)
    engine = DuckEngine(KEYED, sources, attributes=("a", "b"))
    assert engine.exact_join_size() == 50 * 2 * 2
    with postgres_server.connected() as cursor:
        cursor.execute("SELECT count(*) FROM s")
        assert cursor.fetchone() == (50,)


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ("pg_terminate_backend", "was lost, and with it the state of the data"),
        ("pg_cancel_backend", "cannot be read; the server stopped the query; see its statement_timeout"),
    ],
)
def test_a_query_that_ends_in_the_middle(postgres_server: postgres.Server, ends: str, words: str) -> None:
    """While its rows come home, where the driver knows no codes."""
    sources = postgres_server.load(rows(100))
    sources["r"] = f"{postgres_server.source} query=SELECT k, a FROM r, (SELECT pg_sleep(30)) AS slow"
    engine = DuckEngine(KEYED, sources, attributes=("a", "b"))
    end = "SELECT {}(pid) FROM pg_stat_activity WHERE usename = '{}' AND wait_event = 'PgSleep'"
    timer = threading.Timer(1, postgres_server.execute, [end.format(ends, postgres.READER)])
    timer.start()
    with pytest.raises(SourceError, match=words):
        engine.exact_join_size()
    timer.join()


def test_settings_of_a_role_change_nothing(postgres_server: postgres.Server) -> None:
    """Nor do those of the environment: of texts, times and what a comparison with NULL says."""
    texts = ["Ä", "ß€", "plain", None]
    postgres_server.load({"t": pa.table({"a": texts, "w": [f"2024-02-29 23:30:00.0000{i}" for i in range(4)]})})
    domains = (Attribute(name="a", values=("Ä", "ß€"), other=True), Attribute(name="h", part="hour"))
    schema = Schema((Table(name="t", attributes=("a", "h")),), domains)
    source = f"{postgres_server.source} query=SELECT a, CAST(w AS timestamptz) AS h FROM t -- all of it"
    settings = {
        "client_encoding": "LATIN1",
        "timezone": "'Asia/Kolkata'",
        "datestyle": "'SQL, DMY'",
        "transform_null_equals": "on",
    }
    settings |= {"standard_conforming_strings": "off", "default_transaction_isolation": "serializable"}
    expected = counted(schema, {"t": source})
    assert expected["a"] == [1, 1, 2]
    try:
        postgres_server.execute(*(f"ALTER ROLE {postgres.READER} SET {k} = {v}" for k, v in settings.items()))
        assert counted(schema, {"t": source}) == expected
    finally:
        postgres_server.execute(f"ALTER ROLE {postgres.READER} RESET ALL")


def test_a_server_that_restarts_ends_the_release() -> None:
    if (why := postgres.missing()) is not None:
        pytest.skip(why)
    with postgres.server() as server:
        sources = server.load(rows(100))
        engine = DuckEngine(KEYED, sources, attributes=("a", "b"))
        server.stop()
        server.start()
        with pytest.raises(SourceError, match="was lost, and with it the state of the data"):
            engine.exact_join_size()
        assert DuckEngine(KEYED, sources, attributes=("a", "b")).exact_join_size() == 200


def test_a_query_that_fails_on_a_row_does_not_quote_it(postgres_server: postgres.Server) -> None:
    postgres_server.load({"t": pa.table({"w": [PLANTED]})})
    schema = Schema((Table(name="t", attributes=("a",)),), (Attribute(name="a", range=(0, 3)),))
    source = f"{postgres_server.source} query=SELECT CAST(w AS integer) AS a FROM t"
    engine = DuckEngine(schema, {"t": source}, attributes=("a",))
    with pytest.raises(SourceError, match="cannot be read") as error:
        engine.exact_join_size()
    assert PLANTED not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


def test_the_role_needs_nothing_but_select(postgres_server: postgres.Server) -> None:
    """All tests read as a role that may make no table, not even a temporary one; without SELECT it is told so."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(postgres_source(f"{postgres_server.source} table=t").conninfo) as connection:
        for statement in ("CREATE TEMP TABLE mine (x integer)", "CREATE TABLE mine (x integer)"):
            with connection.cursor() as cursor, pytest.raises(dbapi.Error, match="permission denied"):
                cursor.execute(statement)
            connection.rollback()
    postgres_server.execute(
        "DROP TABLE IF EXISTS hidden", "CREATE TABLE hidden (a integer)", "REVOKE ALL ON hidden FROM reader"
    )
    schema = Schema((Table(name="t", attributes=("a",)),), (Attribute(name="a", range=(0, 3)),))
    mistakes = {
        "query=SELEC 1": "its SQL has a mistake",
        "query=SELECT b FROM (SELECT 1 AS a) AS t": "it names a column",
    }
    for said, why in {"table=hidden": "GRANT SELECT", "table=nowhere": "there is no such table", **mistakes}.items():
        with pytest.raises(SourceError, match=why):
            DuckEngine(schema, {"t": f"{postgres_server.source} {said}"}, attributes=("a",))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (f"postgresql:host=h password={PLANTED} table=t", "must not hold a password"),
        (f"postgresql://u:{PLANTED}@h/d?table=t", "must not hold a password"),
        ("postgresql:service=s", "must name one table or one query"),
        ("postgresql:service=s table=t query=SELECT 1", "must name one table or one query"),
        ("postgresql:servise=s table=t", "has no setting 'servise'"),
        ("postgresql:service table=t", "must read postgresql:service=NAME"),
    ],
)
def test_sources_are_checked_before_they_are_kept(source: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(SPEC.format(r=json.dumps(source), s='"s.parquet"'))
    with pytest.raises(SpecError, match=words) as error:
        Spec.from_toml(path)
    assert PLANTED not in str(error.value)


def test_sources_as_they_are_written() -> None:
    found = postgres_source("""postgresql:service='my clinic' user=a table="Public"."My table" """.strip())
    assert found.server == (("service", "my clinic"), ("user", "a"))
    assert found.conninfo == "service='my clinic' user='a'"
    assert found.table == '"Public"."My table"'
    asked = postgres_source("postgresql:query=SELECT a FROM t WHERE b = 'x=1' ;")
    assert (asked.server, asked.query) == ((), "SELECT a FROM t WHERE b = 'x=1'")
    assert same_source("postgresql:table=t service=x", "postgresql:service=x table=t")
    assert not same_source("postgresql:service=x table=t", "postgresql:service=x table=u")
    assert not same_source("postgresql:service=x table=t", "t.parquet")


def test_why_there_is_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of the client's library, but for values of settings: one may be a password in a wrong place."""
    pytest.importorskip("adbc_driver_postgresql")
    (tmp_path / "services").write_text(f"[astray]\nhost=/nowhere\nsslmode={PLANTED}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    schema = Schema((Table(name="t", attributes=("a",)),), (Attribute(name="a", range=(0, 3)),))
    for place, why in {
        "service=none": r'\(service=none\) cannot be reached \(definition of service "none" not found\); check',
        "host=/nowhere": r"cannot be reached \(No such file or directory\); check",
        "host=127.0.0.1 port=1": r"cannot be reached \(Connection refused\); check",
        "service=astray": r"\(service=astray\) cannot be reached; check",
    }.items():
        with pytest.raises(SourceError, match=why) as error:
            DuckEngine(schema, {"t": f"postgresql:{place} table=t"}, attributes=("a",))
        assert PLANTED not in str(error.value)


@pytest.mark.parametrize(
    ("first", "second", "one"),
    [
        ("postgresql:table=t", "postgresql:table=public.t", True),
        ("postgresql:table=T", 'postgresql:table="public"."t"', True),
        ("postgresql:table=a.t", "postgresql:table=b.t", False),
        ("postgresql:table=at", "postgresql:table=t", False),
        ("postgresql:table=t", "postgresql:query=SELECT * FROM t", False),
        ("spark:t", "spark:Default.T", True),
        ("spark:parquet:/a/t", "spark:parquet:/a/t/", True),
        ("spark:parquet:/a/t", "spark:parquet:/b/t", False),
        ("spark:t", "postgresql:table=t", False),
    ],
)
def test_a_table_of_a_store_is_one_with_or_without_its_schema(first: str, second: str, one: bool) -> None:
    """Named by two private tables, it would be in the join twice, and one row would change both."""
    assert same_source(first, second) == same_source(second, first) == one


def command(folder: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dpjoin", *arguments],
        cwd=folder,
        env={**os.environ, "PGPASSWORD": PLANTED, "TMPDIR": str(folder / "tmp"), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_no_credential_anywhere(postgres_server: postgres.Server, tmp_path: Path) -> None:
    """A password in the environment is in no file, no message and no list of processes, also where things fail."""
    postgres_server.load(rows(1000))
    (tmp_path / "tmp").mkdir()
    for name, host in (("good", postgres_server.folder), ("bad", "/nowhere")):
        places = {
            t: json.dumps(f"postgresql:host={host} dbname=postgres user={postgres.READER} table={t}") for t in "rs"
        }
        (tmp_path / f"{name}.toml").write_text(SPEC.format(**places))
    told = []
    for name, code in (("good", 0), ("bad", 2)):
        process = command(tmp_path, "release", f"{name}.toml", "-o", f"{name}-release")
        listed = Path(f"/proc/{process.pid}/cmdline").read_text() if Path("/proc").exists() else ""
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, err
        told += [listed, out, err]
    assert "cannot be reached" in told[-1]
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert {"manifest.json", "good.ledger.jsonl"} <= {p.name for p in files}
    assert not [p for p in files if PLANTED.encode() in p.read_bytes()]
    assert not [text for text in told if PLANTED in text]


def test_every_verb_takes_a_server(postgres_server: postgres.Server, tmp_path: Path, monkeypatch: Any) -> None:
    """A first spec from the catalog, a check of it, a release, and how far off that is."""
    sources = postgres_server.load(rows(2000))
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    drafted = runner.invoke(app, ["init", *sources.values(), "-o", "x.toml"])
    assert drafted.exit_code == 0, drafted.output
    assert f"source = {json.dumps(sources['r'])}" in Path("x.toml").read_text()
    Path("y.toml").write_text(SPEC.format(**{t: json.dumps(s) for t, s in sources.items()}))
    for arguments in (["plan", "--check", "y.toml"], ["release", "y.toml", "-o", "out"], ["evaluate", "y.toml", "out"]):
        done = runner.invoke(app, arguments)
        assert done.exit_code == 0, done.output
    wrong = Path("y.toml").read_text().replace('table=\\"r\\"', "table=nowhere")
    Path("z.toml").write_text(wrong)
    told = runner.invoke(app, ["plan", "--check", "z.toml"])
    assert "there is no such table" in str(told.exception) + told.output
    begun = json.loads(Path("y.ledger.jsonl").read_text().splitlines()[0])
    assert begun["sources"] == list(sources.values())


def test_doctor(postgres_server: postgres.Server) -> None:
    """What can be reached says its version; what cannot says what to do."""
    found = doctor.examined([postgres_server.source, "postgresql:host=/nowhere"])
    states = [(f.store, f.state) for f in found]
    assert states[:3] == [("files", "ready"), ("postgresql", "ready"), ("postgresql", "not reached")]
    assert "server 1" in found[1].said
    assert "PGHOST" in found[2].remedy
    done = CliRunner().invoke(app, ["doctor", postgres_server.source, "--json"])
    assert json.loads(done.output)[1]["state"] == "ready"


def test_doctor_names_the_command_that_installs(monkeypatch: Any) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: None if "adbc" in package else "1")
    assert doctor.examined([])[1] == doctor.Found(
        "postgresql", "not installed", "no driver", "pip install 'dpjoin[postgres]'"
    )


def test_killed_in_the_middle(postgres_server: postgres.Server, tmp_path: Path) -> None:
    """`kill -9` while the server reads: the budget counts once, and nothing is left, here or there."""
    postgres_server.load(rows(1000))
    (tmp_path / "tmp").mkdir()
    slow = f"{postgres_server.source} query=SELECT k, a FROM r, (SELECT pg_sleep(60)) AS slow"
    spec = SPEC.format(r=json.dumps(slow), s=json.dumps(f"{postgres_server.source} table=s"))
    (tmp_path / "x.toml").write_text(spec)
    process = command(tmp_path, "release", "x.toml", "-o", "out")

    def at_work() -> int:
        with postgres_server.connected() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND state = 'active'"
            )
            return int(cursor.fetchone()[0]) - 1  # this question is one

    end = time.monotonic() + 60
    while at_work() < 1:
        assert time.monotonic() < end, "the query did not begin"
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    lines = [json.loads(line) for line in (tmp_path / "x.ledger.jsonl").read_text().splitlines()]
    assert [line["what"] for line in lines] == ["begun"]
    assert not (tmp_path / "out").exists()
    postgres_server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{postgres.READER}'"
    )
    from dpjoin.engine.spill import PREFIX

    left = [p for p in (tmp_path / "tmp").iterdir() if p.name.startswith(PREFIX)]
    assert all(p.stat().st_mode & 0o077 == 0 for p in left)
    assert not [p for folder in left for p in folder.rglob("*") if p.is_file() and p.stat().st_size]
