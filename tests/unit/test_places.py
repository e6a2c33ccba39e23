"""Many files as one table, files elsewhere, sheets and JSON lines: every row once, and no row decides about another."""

from __future__ import annotations

import datetime
import gzip
import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpjoin
from dpjoin.cli.check import problems
from dpjoin.cli.init import Wishes, draft, read_source
from dpjoin.engine.sources import column_names, connected, open_source, same_source
from dpjoin.engine.sources.text import line_rows, remote_csv
from dpjoin.engine.spill import private_folder
from dpjoin.errors import SourceError
from dpjoin.spec.encodings import ENCODINGS
from support.shop import SPEC, journal_lines, make_shop, offers, run, visits


def rows(source: object, columns: Sequence[str] | None = ("k", "name"), **options: Any) -> list[tuple[Any, ...]]:
    with connected() as connection:
        opened = open_source(connection, "t", source, columns=columns, **options)
        found: list[tuple[Any, ...]] = connection.execute(f"SELECT k, name FROM {opened.view}").fetchall()
        return found


def refused(source: object, **options: Any) -> str:
    with pytest.raises(SourceError) as caught:
        rows(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three CSV files of one table, with their columns in two orders."""
    inside = tmp_path / "many"
    inside.mkdir()
    (inside / "1.csv").write_text("k,name\n1,a\n")
    (inside / "2.csv").write_text("name;k\nb;2\n")
    (inside / "3.csv.gz").write_bytes(gzip.compress(b"k,name\n3,c\n"))
    (inside / "_SUCCESS").write_text("")
    (inside / ".notes.csv").write_text("nothing\n")
    return inside


ALL = [("1", "a"), ("2", "b"), ("3", "c")]


def test_a_folder_a_pattern_and_a_list_are_one_table(folder: Path) -> None:
    """Columns come together by name, hidden files and notes of programs stay out."""
    assert rows(folder) == ALL
    assert rows(str(folder / "*.csv*")) == ALL
    assert rows(folder.parent / "**" / "?.csv*") == ALL
    assert rows([folder / "1.csv", str(folder / "2.csv"), folder / "3.csv.gz"]) == ALL
    assert rows([folder]) == ALL
    assert column_names(folder) == [("k", "text"), ("name", "text")]


def test_the_home_folder_is_seen_through(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that begins with ~ is one of the user's home, in sources and where two are compared."""
    monkeypatch.setenv("HOME", str(folder.parent))
    assert rows("~/many/1.csv") == ALL[:1]
    assert same_source("~/many", folder / "2.csv")
    assert "does not exist" in refused("~nobody-of-this-name/1.csv")


def test_parquet_files_of_a_folder_keep_their_types(tmp_path: Path) -> None:
    """Several Parquet files are read as one, whatever the order of their columns; types that differ are refused."""
    first = pa.table({"k": [1], "name": ["a"]})
    pq.write_table(first, tmp_path / "a.parquet")
    pq.write_table(first.select(["name", "k"]), tmp_path / "b.parquet")
    assert rows(tmp_path) == [(1, "a"), (1, "a")]
    pq.write_table(pa.table({"k": [1.5], "name": ["a"]}), tmp_path / "c.parquet")
    said = refused(tmp_path)
    assert "c.parquet' has DOUBLE in column 'k' and not BIGINT, unlike file" in said
    assert "1.5" not in said


def test_what_cannot_be_one_table_is_refused(folder: Path) -> None:
    """One line each, with the file that is wrong."""
    (folder / "4.csv").write_text("k,nme\n1,a\n")
    assert "4.csv' lacks column 'name', unlike file" in refused(folder)
    (folder / "4.csv").write_text("k,name,more\n1,a,b\n")
    assert "4.csv' has column 'more', unlike file" in refused(folder)
    (folder / "4.csv").unlink()
    (folder / "4.parquet").write_bytes(b"")
    assert "has files of several kinds (.csv, .parquet)" in refused(folder)
    (folder / "4.parquet").unlink()
    (folder / "deeper").mkdir()
    assert "has folders inside ('deeper'); name the files by a pattern" in refused(folder)
    assert "has no file of a known kind" in refused(folder / "deeper")
    assert "no file matches" in refused(folder / "x*.csv")
    assert "has tables inside and cannot be one of several" in refused([folder / "1.csv", _database(folder)])


def _database(folder: Path) -> Path:
    path = folder.parent / "people.duckdb"
    with duckdb.connect(path) as database:
        database.execute("CREATE TABLE people AS SELECT 1 AS k, 'a' AS name")
    return path


def test_no_row_is_read_twice(folder: Path) -> None:
    """A file named twice would let one row count twice: seen through lists, folders, patterns and links."""
    os.symlink(folder / "1.csv", folder.parent / "link.csv")
    os.link(folder / "1.csv", folder.parent / "hard.csv")
    for again in (
        folder / "1.csv",
        folder.parent / "link.csv",
        folder.parent / "hard.csv",
        folder / ".." / "many" / "1.csv",
    ):
        assert "is named twice, so one row would count twice" in refused([folder, again])
        assert same_source(folder, again)
        assert same_source(str(again), [folder / "3.csv.gz", str(folder / "?.csv")])
    assert not same_source(folder / "1.csv", folder / "2.csv")
    assert not same_source(folder / "1.csv", [folder / "2.csv"])
    assert same_source(folder.parent / "Not.csv", folder.parent / "not.csv"), "not there yet: case may not matter"


def test_excel_sheets(tmp_path: Path) -> None:
    """Cells are text, one by one; numbers look as in a CSV file, rows without a value are left out."""
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    day = datetime.datetime(2020, 1, 2)
    for row in (
        ["k", "name", None],
        [1, "a"],
        [2.5, day],
        [None, None],
        [3.0, True],
        [4, day.replace(hour=5)],
        [None, "x"],
    ):
        sheet.append(row)
    book.save(tmp_path / "one.xlsx")
    wanted = [("1", "a"), ("2.5", "2020-01-02"), ("3", "True"), ("4", "2020-01-02 05:00:00"), (None, "x")]
    assert rows(tmp_path / "one.xlsx") == wanted
    assert rows((tmp_path / "one.xlsx", "Sheet")) == wanted
    assert column_names(tmp_path / "one.xlsx") == [("k", "text"), ("name", "text")]
    assert same_source((tmp_path / "one.xlsx", "Sheet"), tmp_path / "one.xlsx")
    book.create_sheet("other")
    book.save(tmp_path / "two.xlsx")
    assert "has several sheets; name one in tables.t.table (it has: Sheet, other)" in refused(tmp_path / "two.xlsx")
    assert "has no sheet 'Othr'" in refused((tmp_path / "two.xlsx", "Othr"))
    assert "has no header" in refused((tmp_path / "two.xlsx", "other"))


def test_json_lines(tmp_path: Path) -> None:
    """Every line by itself: what is no object, or lacks a key, has no value; columns are those that are asked for."""
    lines = [
        b'{"k": 1, "name": "a\\"b"}',
        b"broken",
        b'{"k": "x", "name": null}',
        b"[1]",
        b'{"name": {"z": 1}}',
        b'{"name": "\xff"}',
        b"",
        b'{"name": "\\ud800"}',
        b'{"k": 12345678901234567890123}',
        b"3",
    ]
    wanted = [("1", 'a"b'), (None, None), ("x", None), (None, None), (None, '{"z":1}'), (None, None)]
    wanted += [("12345678901234567890123", None), (None, None)]
    for name, content in (("a.jsonl", b"\n".join(lines)), ("b.ndjson.gz", gzip.compress(b"\n".join(lines)))):
        (tmp_path / name).write_bytes(content)
        assert rows(tmp_path / name) == wanted
    with connected() as connection:
        opened = open_source(connection, "t", tmp_path / "a.jsonl", columns=())
        assert (opened.columns, opened.column("whatever").untyped) == ((), True)
    assert column_names(tmp_path / "a.jsonl") == [("k", "text"), ("name", "text")]
    (tmp_path / "c.json").write_text(' [{"k": 1}]')
    assert "is one JSON array and must be JSON lines" in refused(tmp_path / "c.json", columns=None)
    assert rows(tmp_path / "c.json") == [(None, None)], "a release does not ask: a row may look so"


ODD_LINES = (b"[" * 3000, b'{"k":' * 3000, b'{"k": 1e999}', b'{"k": 1, "k": 2}', b"\x1f", b'{"k": "\x1f"}')
TEXTS = st.text(max_size=20)


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=30),
        TEXTS.map(lambda t: json.dumps({"k": t}).encode()),
        TEXTS.map(lambda t: json.dumps({t: 1, "k": [t], "name": {t: None}}, ensure_ascii=False).encode()),
        st.integers().map(lambda n: b'{"k": ' + str(n).encode() + b"}"),
        st.sampled_from(ODD_LINES),
    ).filter(lambda line: not set(line) & set(b"\n\r"))
)
def test_no_line_decides_how_others_are_read(tmp_path_factory: pytest.TempPathFactory, odd: bytes) -> None:
    """A line of any bytes, first or later, changes no other line and stops nothing."""
    path = tmp_path_factory.mktemp("odd") / "odd.jsonl"
    lines = [b'{"k": 1, "name": "a"}', b'{"k": "2", "name": "b"}', b'{"name": "c", "k": 3}']
    for place in (0, 1, 3):
        path.write_bytes(b"\n".join([*lines[:place], odd, *lines[place:]]) + b"\n")
        found = rows(path)
        del found[place : place + len(found) - 3]
        assert found == ALL


def test_addresses_need_the_extension_and_say_so(tmp_path: Path) -> None:
    """Nothing is fetched or installed by itself, and no password is repeated."""
    for address in ("https://user:secret@example.org/a.csv?token=secret", "s3://bucket/a.parquet"):
        said = refused(address)
        assert "needs DuckDB's extension httpfs, which is not installed" in said
        assert "secret" not in said
    assert "must end in .parquet, .csv or .jsonl" in refused("https://example.org/a.xls")
    assert "must stand alone" in refused(["https://example.org/a.csv", tmp_path / "a.csv"])
    assert same_source("https://Example.org/a.csv?x=1", "https://example.org/a.csv")
    assert not same_source("https://example.org/a.csv", "https://example.org/b.csv")


def test_a_csv_file_elsewhere_is_read_as_one_here(tmp_path: Path) -> None:
    """The same reader, with a header that DuckDB fetches; tried on an address that needs no net."""
    path = tmp_path / "a.csv"
    path.write_text("k;name\n1;a\n")
    with connected() as connection:
        from dpjoin.engine.sources.opened import Opening

        opened = remote_csv(Opening(connection, "t", None), "address", str(path), tabs=False)
        assert connection.execute(f"SELECT * FROM {opened.view}").fetchall() == ALL[:1]
        assert connection.execute(f"SELECT * FROM {line_rows(repr(str(path)))}").fetchall() == [("k;name",), ("1;a",)]


# -- encodings --------------------------------------------------------------------------------------


def test_encodings(tmp_path: Path) -> None:
    """A mark decides, then the spec; what cannot be decoded is replaced, and a copy does not outlive the connection."""
    text = "k,name\n1,café\n2,x\n"
    accented = [("1", "café"), ("2", "x")]
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "a.csv").write_bytes(text.encode(encoding))
        assert rows(tmp_path / "a.csv") == accented
    for encoding in ("latin-1", "windows-1252", "utf-16-le", "cp437"):
        (tmp_path / "a.csv").write_bytes(text.encode(encoding))
        assert rows(tmp_path / "a.csv", encoding=encoding) == accented
        (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text.encode(encoding)))
        assert rows(tmp_path / "a.csv.gz", encoding=encoding) == accented
    (tmp_path / "a.csv").write_bytes(b"k,name\n1,caf\xe9\n2,x\n")
    assert rows(tmp_path / "a.csv", encoding="utf-8") == [("1", "caf\ufffd"), ("2", "x")]
    assert rows(tmp_path / "a.csv") == [("2", "x")], "without a word about it, a row that is not UTF-8 is left out"
    with connected() as connection:
        open_source(connection, "t", tmp_path / "a.csv", encoding="latin-1")
        held = Path(private_folder())
        assert len(list(held.glob("*.csv"))) == 1
    assert list(held.glob("*.csv")) == []


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_row_decides_how_others_are_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A row of any bytes changes no other row and stops nothing, whether its encoding is named or not."""
    path = tmp_path_factory.mktemp("odd") / "odd.csv"
    encoding = data.draw(st.sampled_from([None, *ENCODINGS]))
    wide = 2 if encoding and encoding.startswith("utf-16") else 1
    codec = {"utf-16": "utf-16-le", None: "utf-8"}.get(encoding, encoding)
    # What ends a row, or opens a quote, makes rows of its own; anything else is one row.
    unit = st.binary(min_size=wide, max_size=wide).filter(lambda b: not set(b) & set(b'\n\r"'))
    odd = b"".join(data.draw(st.lists(unit, max_size=12)))
    before, after = "k,name\n1,a\n".encode(codec), "2,b\n3,c\n".encode(codec)
    path.write_bytes(before + odd + "\n".encode(codec) + after)
    found = rows(path, encoding=encoding)
    kept = [row for row in found if row in (("1", "a"), ("2", "b"), ("3", "c"))]
    assert kept[0] == ("1", "a")
    assert kept[-2:] == [("2", "b"), ("3", "c")]
    assert len(found) in (3, 4)


@pytest.mark.parametrize("encoding", [None, "latin-1"])
def test_a_header_ends_where_a_line_does(tmp_path: Path, encoding: str | None) -> None:
    """In a file whose lines end by carriage returns, no row is taken for a part of the header, which may be refused."""
    for odd in (b"2,b", b"2,\xff", b"2,\x85"):
        (tmp_path / "old.csv").write_bytes(b"k,name\r1,a\r" + odd + b"\r3,c\r")
        found = rows(tmp_path / "old.csv", encoding=encoding)
        assert (found[0], found[-1]) == (("1", "a"), ("3", "c"))


def test_what_an_encoding_is_called(tmp_path: Path) -> None:
    """Any spelling that Python knows; nothing that shifts; and not for files that say it themselves."""
    assert dpjoin.Table(name="t", attributes=("a",), encoding="CP1252").encoding == "windows-1252"
    for wrong in ("utf-7", "latin-99", "base64", "", "\0"):
        with pytest.raises(dpjoin.SpecError, match="must be an encoding of text"):
            dpjoin.Table(name="t", attributes=("a",), encoding=wrong)
    pq.write_table(pa.table({"k": [1], "name": ["a"]}), tmp_path / "a.parquet")
    assert "says itself how its text is encoded; remove tables.t.encoding" in refused(
        tmp_path / "a.parquet", encoding="latin-1"
    )


def test_a_header_that_is_not_utf8_names_what_it_looks_like(tmp_path: Path) -> None:
    """Names of columns are public, so this may be refused; rows are not looked at."""
    for content, looks in (("clé,name\n", "windows-1252"), ("k,name\n1,a\n", "utf-16-le")):
        (tmp_path / "a.csv").write_bytes(content.encode("latin-1" if looks == "windows-1252" else looks))
        assert f'it looks like {looks}: add encoding = "{looks}" to [tables.t]' in refused(tmp_path / "a.csv")


# -- the command line -------------------------------------------------------------------------------


def test_init_and_check_look_at_encodings_and_keys(tmp_path: Path) -> None:
    """Both are for the owner of the rows: one writes what a spec needs, the other tells what it lacks."""
    (tmp_path / "v.csv").write_bytes("day,city\n1,Zürich\n2,Oslo\n".encode("latin-1"))
    (tmp_path / "o.jsonl").write_text('{"day": 1, "kind": "tea"}\n{"day": 2}\n')
    sources = [read_source(str(tmp_path / name)) for name in ("v.csv", "o.jsonl")]
    text = draft(sources, Wishes(on=("day",)), folder=tmp_path).text
    assert 'encoding = "windows-1252"' in text
    assert 'attributes = ["day", "kind"]' in text
    spec = tmp_path / "s.toml"
    spec.write_text(text.replace('"..."', '"Oslo"'))
    assert problems(spec) == []
    wrong = (
        spec.read_text().replace('encoding = "windows-1252"', "").replace('"day", "kind"]', '"day", "kind", "colour"]')
    )
    spec.write_text(wrong + '\n[attributes.colour]\nvalues = ["red"]\n')
    said = problems(spec)
    assert len(said) == 2
    assert "v.csv' holds rows that are not UTF-8, and a release leaves them out; it looks like windows-1252" in said[0]
    assert "no key 'colour' in the first lines of file" in said[1]
    assert not any("Z" in line or "tea" in line for line in said)


def test_a_release_from_a_folder_and_json_lines(capsys: Any, tmp_path: Path) -> None:
    """Through the command line, with a journal that names each file; a release of one of them is seen later."""
    spec = make_shop(tmp_path)
    first, second = visits(), offers()
    (tmp_path / "visits").mkdir()
    pq.write_table(first.slice(0, 100), tmp_path / "visits" / "a.parquet")
    pq.write_table(first.slice(100), tmp_path / "visits" / "b.parquet")
    lines = "\n".join(json.dumps(row) for row in second.to_pylist())
    (tmp_path / "offers.jsonl").write_text(lines)
    several = SPEC.replace("visits.parquet", "visits").replace("offers.parquet", "offers.jsonl")
    spec.write_text(several)
    assert run(capsys, "plan", "--check", spec)[0] == 0
    assert run(capsys, "release", spec, "-o", tmp_path / "out")[0] == 0
    assert journal_lines(spec)[0]["sources"] == ["visits/a.parquet", "visits/b.parquet", "offers.jsonl"]
    assert run(capsys, "evaluate", spec, tmp_path / "out")[0] == 0
    other = tmp_path / "other.toml"
    other.write_text(several.replace('"visits"', '["visits/b.parquet"]').replace("offers.jsonl", "offers.parquet"))
    assert "already released once" in run(capsys, "release", other, "-o", tmp_path / "more")[2]
    made = dpjoin.Spec.from_toml(spec)
    assert dpjoin.Spec.from_dict(tomllib.loads(made.to_toml())).schema == made.schema
