"""150 wrong inputs: what is wrong, how it is made, and which command or call meets it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq

import dpjoin as dj
from support.shop import SPEC, make_shop

Change = tuple[str, str]
"""A text of the spec, and what stands in its place."""


VERBS_THERE_ARE = ("init", "plan", "release", "resume", "answer", "report", "synthesize", "evaluate", "demo")


@dataclass(frozen=True)
class Case:
    """A command that must be refused."""

    what: str
    arguments: tuple[str, ...]
    changes: tuple[Change, ...] = ()
    files: Callable[[Path], object] | None = None

    @property
    def verb(self) -> str:
        if "--check" in self.arguments:
            return "plan --check"
        return self.arguments[0] if self.arguments[0] in VERBS_THERE_ARE else "dpjoin"

    @property
    def id(self) -> str:
        return f"{self.verb}: {self.what}"

    def prepare(self, folder: Path) -> None:
        text = SPEC
        for old, new in self.changes:
            assert old in text, f"{self.what}: {old!r} is not in the spec"
            text = text.replace(old, new, 1)
        (folder / "shop.toml").write_text(text, encoding="utf-8")
        if self.files is not None:
            self.files(folder)


@dataclass(frozen=True)
class Call:
    """A call from Python that must be refused."""

    what: str
    """The expression itself: `dj`, and what stands below it, are known."""

    @property
    def id(self) -> str:
        return f"Python: {self.what}"

    def run(self) -> object:
        return eval(self.what, _names())


def shop_with_release(folder: Path) -> Path:
    """The shop of the tests, and a release of it in `rel`."""
    spec = make_shop(folder)
    _spec_and_release(spec)[1].save(folder / "rel")
    return folder


def _spec_and_release(spec: Path) -> tuple[dj.Spec, dj.Release]:
    loaded = dj.Spec.from_toml(spec)
    return loaded, dj.release(loaded.schema, loaded.workload, loaded.sources(), loaded.budget)


# -- specs ------------------------------------------------------------------------------------------

CITY, AGE, PRICE, KIND = ('values = ["Oslo", "Rome"]', "bins = [0, 18, 65, 120]", "range = [1, 4]", '["tea", "cake"]')
VISITS, OFFERS = '["day", "age", "city"]', '["day", "price", "kind"]'
EPSILON, DELTA, ASK = "epsilon = 1.0", "delta = 1e-6", "marginals = 2"
NO_SQL = ('queries = ["SELECT city, SUM(price) FROM joined WHERE age >= 18 GROUP BY city"]', "")


def _in_spec(what: str, *changes: Change, files: Callable[[Path], object] | None = None) -> Case:
    return Case(what, ("release", "shop.toml", "-o", "out"), changes, files)


def _sql(what: str, statement: str) -> Case:
    old = "SELECT city, SUM(price) FROM joined WHERE age >= 18 GROUP BY city"
    return _in_spec(f"query: {what}", (old, statement))


def _write(name: str, content: str | bytes) -> Callable[[Path], object]:
    data = content.encode() if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def _keys_in_two_cases(folder: Path) -> None:
    (folder / "k.csv").write_text("ID,a\n1,2\n")
    (folder / "l.csv").write_text("id,b\n1,2\n")


def _folder(name: str, **files: str) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        (folder / name).mkdir(parents=True)
        for file, content in files.items():
            (folder / name / file.replace("_", ".")).write_text(content)

    return make


def _all(*steps: Callable[[Path], object]) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        for step in steps:
            step(folder)

    return make


def _table(name: str, **columns: Any) -> Callable[[Path], object]:
    return lambda folder: pq.write_table(pa.table(columns), folder / name)


def _database(folder: Path) -> None:
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("CREATE TABLE visits (day INTEGER, age REAL, city TEXT)")
    database.close()


def _sheets(folder: Path) -> None:
    book = openpyxl.Workbook()
    book.create_sheet("more")
    book.save(folder / "visits.xlsx")


def _from(new: str) -> Change:
    return '"visits.parquet"', f'"{new}"' if not new.startswith("[") else new


IN_SPECS = (
    _in_spec("not TOML", ("[privacy]", "[privacy")),
    _in_spec("an empty spec", (SPEC, "")),
    _in_spec("a section twice", ("[tables.offers]", "[tables.visits]")),
    _in_spec("an unknown section", ("[privacy]", "[private]")),
    _in_spec("an unknown key", (EPSILON, f"{EPSILON}\nrho = 2")),
    _in_spec("a misspelt key", (EPSILON, "epsilom = 1.0")),
    _in_spec("a section that is a number", ("[privacy]\nepsilon = 1.0\ndelta = 1e-6\n", "privacy = 3\n")),
    _in_spec("a misspelt key of an attribute", ("other = true", "othr = true")),
    _in_spec("a misspelt key of a table", ('source = "visits', 'sorce = "visits')),
    _in_spec("no delta", (DELTA, "")),
    _in_spec("epsilon zero", (EPSILON, "epsilon = 0.0")),
    _in_spec("epsilon negative", (EPSILON, "epsilon = -1")),
    _in_spec("epsilon too large", (EPSILON, "epsilon = 51")),
    _in_spec("epsilon as text", (EPSILON, "epsilon = 'one'")),
    _in_spec("epsilon not a number", (EPSILON, "epsilon = nan")),
    _in_spec("epsilon beyond all numbers", (EPSILON, f"epsilon = 1{'0' * 400}")),
    _in_spec("delta zero", (DELTA, "delta = 0")),
    _in_spec("delta one", (DELTA, "delta = 1")),
    _in_spec("delta negative", (DELTA, "delta = -0.1")),
    _in_spec("rows as text", (DELTA, f'{DELTA}\nrows = "many"')),
    _in_spec("an unknown unit", (DELTA, f'{DELTA}\nunit = "dya"')),
    _in_spec("unknown neighbours", (DELTA, f'{DELTA}\nneighbours = "swap"')),
    _in_spec("owners without a unit", (f"attributes = {VISITS}", f'attributes = {VISITS}\nowner = "day"')),
    _in_spec("an unknown profile", ("[privacy]", '[release]\nprofile = "loose"\n[privacy]')),
    _in_spec("an unknown method", ("[privacy]", '[release]\nmethod = "magic"\n[privacy]')),
    _in_spec("a misspelt method", ("[privacy]", '[release]\nmethod = "two_tabel"\n[privacy]')),
    _in_spec("a method for one table", ("[privacy]", '[release]\nmethod = "single_table"\n[privacy]')),
    _in_spec(
        "a method for joins of other shapes",
        ("[privacy]", '[release]\nmethod = "heavy_light"\nprofile = "paper"\n[privacy]'),
    ),
    _in_spec("a method that is a number", ("[privacy]", "[release]\nmethod = 3\n[privacy]")),
    _in_spec("no domain", (PRICE, "")),
    _in_spec("two domains", (PRICE, f"{PRICE}\nkey = true")),
    _in_spec("a placeholder left in", (KIND, '["..."]')),
    _in_spec("bins that overlap", (AGE, "bins = [0, 65, 18, 120]")),
    _in_spec("bins with one edge", (AGE, "bins = [0]")),
    _in_spec("bins that are text", (AGE, 'bins = [0, "old"]')),
    _in_spec("a range backwards", (PRICE, "range = [4, 1]")),
    _in_spec("a range of fractions", (PRICE, "range = [0.5, 4]")),
    _in_spec("a range beyond 32 bits", (PRICE, "range = [0, 5_000_000_000]")),
    _in_spec("a range too large for a marginal", (PRICE, "range = [0, 4_000_000]"), NO_SQL),
    _in_spec("values that are none", (KIND, "[]")),
    _in_spec("values of two kinds", (CITY, 'values = ["Oslo", 1]')),
    _in_spec("a value twice", (KIND, '["tea", "tea"]')),
    _in_spec("values as one text", (CITY, 'values = "Oslo"')),
    _in_spec("other as text", ("other = true", 'other = "yes"')),
    _in_spec("a value that other adds", (CITY, 'values = ["Oslo", "other"]')),
    _in_spec("an unknown part of dates", (AGE, 'part = "century"')),
    _in_spec("an attribute in no table", (OFFERS, '["day", "price"]')),
    _in_spec("an attribute that is not declared", (VISITS, '["day", "age", "city", "zip"]')),
    _in_spec("attributes as one text", (VISITS, '"day"')),
    _in_spec(
        "attributes that differ in case only",
        (VISITS, '["day", "age", "city", "Kind"]'),
        ("[attributes.kind]", "[attributes.Kind]\nkey = true\n[attributes.kind]"),
    ),
    _in_spec("no tables", (SPEC[SPEC.index("[tables.visits]") : SPEC.index("[attributes.day]")], "")),
    _in_spec("no source", ('source = "visits.parquet"\n', "")),
    _in_spec("a source that is a number", ('"visits.parquet"', "3")),
    _in_spec("sources that are none", ('"visits.parquet"', "[]")),
    _in_spec("columns as a list", (VISITS, f'{VISITS}\ncolumns = ["age"]')),
    _in_spec("private as text", (VISITS, f'{VISITS}\nprivate = "no"')),
    _in_spec("a key of no columns", (VISITS, f"{VISITS}\nunique = []")),
    _in_spec("a key that is no attribute", (VISITS, f'{VISITS}\nunique = ["dya"]')),
    _in_spec("a degree of zero", (VISITS, f"{VISITS}\nmax_degree = {{ day = 0 }}")),
    _in_spec("unknown bounds", (VISITS, f'{VISITS}\nunique = ["day"]\nbounds = "trust"')),
    _in_spec("an encoding that is none", (VISITS, f'{VISITS}\nencoding = "latin-99"')),
    _in_spec("an encoding of a Parquet file", (VISITS, f'{VISITS}\nencoding = "latin-1"')),
    _in_spec("a table inside a file that has none", ('"visits.parquet"', '"visits.parquet"\ntable = "visits"')),
    _in_spec("marginals of more attributes than there are", (ASK, "marginals = 7")),
    _in_spec("marginals as one list", (ASK, 'marginals = ["age", "city"]')),
    _in_spec("a marginal of one attribute twice", (ASK, 'marginals = [["city", "city"]]')),
    _in_spec("a marginal of a key", (ASK, 'marginals = [["day"]]')),
    _in_spec("a workload that asks nothing", (ASK, ""), NO_SQL),
    _in_spec("prefixes of an unknown attribute", (ASK, 'prefixes = ["agee"]')),
    _in_spec("ranges of text", (ASK, 'ranges = [{ by = ["city"] }]')),
    _in_spec("sums of categories", (ASK, 'sums = ["kind"]')),
    _in_spec("a sum over more values than a model holds", (PRICE, "range = [1, 100_000_000]")),
    _in_spec("more ranges than fit into memory", (PRICE, "range = [1, 20_000]"), (ASK, 'ranges = ["price"]'), NO_SQL),
    _in_spec("importance of what is not asked", (ASK, f'{ASK}\nimportant = [{{ attributes = ["day"], factor = 5 }}]')),
    _in_spec(
        "a weight outside [-1, 1]",
        (ASK, f'{ASK}\nproducts = [{{ name = "p", weights = {{ offers = {{ kind = [1, 2.5] }} }} }}]'),
    ),
    _in_spec(
        "too few weights", (ASK, f'{ASK}\nproducts = [{{ name = "p", weights = {{ offers = {{ kind = [1] }} }} }}]')
    ),
    _sql("an edge that is none of the bins", "SELECT COUNT(*) FROM joined WHERE age >= 20"),
    _sql("an unknown column", "SELECT COUNT(*) FROM joined WHERE agee >= 18"),
    _sql("an unknown value", "SELECT COUNT(*) FROM joined WHERE city = 'Paris'"),
    _sql("an unknown table", "SELECT COUNT(*) FROM visits"),
    _sql("not SQL", "SELEC COUNT(*) FROM joined"),
    _sql("not a SELECT", "DROP TABLE joined"),
    _sql("an aggregate that is none of ours", "SELECT MEDIAN(price) FROM joined"),
    _sql("a sum of text", "SELECT SUM(city) FROM joined"),
    _sql("two statements", "SELECT COUNT(*) FROM joined; SELECT COUNT(*) FROM joined"),
)

# -- sources ----------------------------------------------------------------------------------------

CSV = "day,age,city\n1,20,Secretville\n"
IN_SOURCES = (
    _in_spec("a file that is not there", _from("vists.parquet")),
    _in_spec("a file of an unknown kind", _from("visits.xls"), files=_write("visits.xls", CSV)),
    _in_spec("a folder without tables", _from("empty"), files=_folder("empty")),
    _in_spec("a folder with files of two kinds", _from("many"), files=_folder("many", a_csv=CSV, b_jsonl="{}")),
    _in_spec("a folder in a folder", _from("deep"), files=_folder("deep/inner", a_csv=CSV)),
    _in_spec("a pattern that nothing matches", _from("sales-*.csv")),
    _in_spec("files with different columns", _from("many"), files=_folder("many", a_csv=CSV, b_csv="day,age\n1,2\n")),
    _in_spec(
        "files with different types",
        _from('["visits.parquet", "b.parquet"]'),
        files=_table("b.parquet", day=[1], age=["x"], city=["Secretville"]),
    ),
    _in_spec("a file twice in a list", _from('["visits.parquet", "./visits.parquet"]')),
    _in_spec("a file twice by a pattern", _from('["visits.parquet", "visit*"]')),
    _in_spec("one file for two tables", ('"offers.parquet"', '"visits.parquet"')),
    _in_spec(
        "one file for two tables, by a link",
        ('"offers.parquet"', '"link.parquet"'),
        files=lambda f: (f / "link.parquet").symlink_to(f / "visits.parquet"),
    ),
    _in_spec(
        "one file for two tables, by a folder",
        _from("many"),
        ('"offers.parquet"', '"many/a.csv"'),
        files=_folder("many", a_csv=CSV),
    ),
    _in_spec("a database in a list", _from('["visits.parquet", "shop.db"]'), files=_database),
    _in_spec("a database without a table's name", _from("shop.db"), files=_database),
    _in_spec("a database without that table", ('"visits.parquet"', '"shop.db"\ntable = "visit"'), files=_database),
    _in_spec(
        "a file that is no database", ('"visits.parquet"', '"x.duckdb"\ntable = "v"'), files=_write("x.duckdb", CSV)
    ),
    _in_spec("an Excel file with two sheets", _from("visits.xlsx"), files=_sheets),
    _in_spec("an Excel file without that sheet", ('"visits.parquet"', '"visits.xlsx"\ntable = "mor"'), files=_sheets),
    _in_spec("an Excel file that is none", _from("visits.xlsx"), files=_write("visits.xlsx", CSV)),
    _in_spec("a Parquet file that is none", files=_write("visits.parquet", CSV)),
    _in_spec("an empty Parquet file", files=_write("visits.parquet", "")),
    _in_spec("an Arrow file that is none", _from("visits.arrow"), files=_write("visits.arrow", CSV)),
    _in_spec("gzip that is none", _from("visits.csv.gz"), files=_write("visits.csv.gz", CSV)),
    _in_spec("an empty CSV file", _from("visits.csv"), files=_write("visits.csv", "")),
    _in_spec("a CSV file with a column twice", _from("visits.csv"), files=_write("visits.csv", "day,Day,age,city\n")),
    _in_spec(
        "a header in Windows-1252", _from("visits.csv"), files=_write("visits.csv", "day,âge,city\n".encode("latin-1"))
    ),
    _in_spec(
        "a CSV file in UTF-16 without a mark", _from("visits.csv"), files=_write("visits.csv", CSV.encode("utf-16-le"))
    ),
    _in_spec(
        "JSON lines without a list of attributes",
        (f"\nattributes = {VISITS}", ""),
        _from("v.jsonl"),
        files=_write("v.jsonl", '{"day": 1}'),
    ),
    _in_spec("an address without the extension", _from("https://user:secret@example.org/visits.csv")),
    _in_spec("an address of an unknown kind", _from("https://example.org/visits")),
    _in_spec("an address in a list", _from('["visits.parquet", "s3://bucket/visits.parquet"]')),
    _in_spec("a column that is not there", (VISITS, f'{VISITS}\ncolumns = {{ age = "years" }}')),
    _in_spec("a column in another case", (f"\nattributes = {VISITS}", '\ncolumns = { age = "Age" }')),
    _in_spec(
        "text where numbers are declared",
        (PRICE, f"values = {KIND}"),
        ("kind]\nvalues", "kind]\nrange = [1, 2] #"),
        NO_SQL,
    ),
    _in_spec(
        "a date without a part", files=_table("visits.parquet", day=[1], age=pa.array([1], pa.date32()), city=["x"])
    ),
    _in_spec(
        "a key that cannot be compared", files=_table("visits.parquet", day=["x"], age=[1.0], city=["Secretville"])
    ),
    _in_spec(
        "a key that is a list",
        files=_all(
            _table("visits.parquet", day=[[1]], age=[1.0], city=["x"]),
            _table("offers.parquet", day=[[1]], price=[1], kind=["tea"]),
        ),
    ),
)

# -- other verbs ------------------------------------------------------------------------------------

ANSWER = ("answer", "rel")
COUNT = "SELECT COUNT(*) FROM joined"


def _damaged(name: str, content: str | None) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        if content is None:
            (folder / "rel" / name).unlink()
        else:
            (folder / "rel" / name).write_text(content)

    return make


def _manifest(**changed: Any) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        path = folder / "rel" / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))

    return make


VERBS = (
    Case("no verb of ours", ("relaese", "shop.toml")),
    Case("an option that is none", ("--colour", "red")),
    Case("no table", ("init",)),
    Case("a file that is not there", ("init", "none.csv", "-o", "x.toml")),
    Case("a file of an unknown kind", ("init", "notes.txt", "-o", "x.toml"), files=_write("notes.txt", "hello")),
    Case("an empty folder", ("init", "empty", "-o", "x.toml"), files=_folder("empty")),
    Case("an address", ("init", "https://example.org/a.csv", "-o", "x.toml")),
    Case("an empty file", ("init", "v.csv", "-o", "x.toml"), files=_write("v.csv", "")),
    Case("a Parquet file that is none", ("init", "v.parquet", "-o", "x.toml"), files=_write("v.parquet", CSV)),
    Case("a database without a table's name", ("init", "shop.db", "-o", "x.toml"), files=_database),
    Case("a database without that table", ("init", "shop.db:visit", "-o", "x.toml"), files=_database),
    Case("one table twice", ("init", "visits.parquet", "visits.parquet", "-o", "x.toml")),
    Case("a spec that is there", ("init", "visits.parquet", "-o", "shop.toml")),
    Case("a key that is in no table", ("init", "visits.parquet", "offers.parquet", "--on", "dya", "-o", "x.toml")),
    Case("a public domain of no table", ("init", "visits.parquet", "--public-domain", "vists.city", "-o", "x.toml")),
    Case("a public domain of no column", ("init", "visits.parquet", "--public-domain", "visits.town", "-o", "x.toml")),
    Case("a public domain of fractions", ("init", "visits.parquet", "--public-domain", "visits.age", "-o", "x.toml")),
    Case("metadata that are not there", ("init", "visits.parquet", "--metadata", "none.json", "-o", "x.toml")),
    Case("a spec that is not there", ("plan", "none.toml")),
    Case("a spec that is a folder", ("plan", "rel")),
    Case("a spec that is no text", ("plan", "visits.parquet")),
    Case("no spec", ("plan",)),
    Case("a degree of zero", ("plan", "shop.toml", "--degree", "0")),
    Case("a join size that is no number", ("plan", "shop.toml", "--join-size", "many")),
    Case("rows that are none", ("plan", "shop.toml", "--rows", "0")),
    Case("a marginal too large", ("plan", "shop.toml"), ((PRICE, "range = [0, 4_000_000]"), NO_SQL)),
    Case("a placeholder left in", ("plan", "shop.toml"), ((KIND, '["..."]'),)),
    Case(
        "a file that is not there and whose columns are asked for",
        ("plan", "shop.toml"),
        ((f"\nattributes = {VISITS}", ""), _from("none.csv")),
    ),
    Case(
        "several things at once",
        ("plan", "--check", "shop.toml"),
        ((_from("none.csv")), (OFFERS, '["day", "price", "knd"]'), (AGE, "bins = [9, 1]")),
    ),
    Case(
        "rows that are not UTF-8",
        ("plan", "--check", "shop.toml"),
        (_from("v.csv"),),
        _write("v.csv", "day,age,city\n1,2,Zürich\n".encode("latin-1")),
    ),
    Case(
        "a key that JSON lines lack",
        ("plan", "--check", "shop.toml"),
        (_from("v.jsonl"),),
        _write("v.jsonl", '{"day": 1, "age": 3, "town": "Secretville"}\n'),
    ),
    Case(
        "a column that is not there",
        ("plan", "--check", "shop.toml"),
        ((VISITS, f'{VISITS}\ncolumns = {{ age = "years" }}'),),
    ),
    Case(
        "a JSON array",
        ("plan", "--check", "shop.toml"),
        (_from("visits.json"),),
        _write("visits.json", '[{"day": 1, "city": "Secretville"}]'),
    ),
    Case("one file twice, by a pattern", ("plan", "--check", "shop.toml"), (_from("*.parquet"),)),
    Case("a spec that is not there ", ("release", "none.toml", "-o", "out")),
    Case("a folder that is there", ("release", "shop.toml", "-o", "rel")),
    Case("a place that cannot be written", ("release", "shop.toml", "-o", "visits.parquet/out")),
    Case("no folder", ("release", "shop.toml")),
    Case(
        "tables that nothing joins",
        ("release", "k.csv", "l.csv", "--epsilon", "1", "-o", "out"),
        files=_keys_in_two_cases,
    ),
    Case(
        "a key that another table calls otherwise",
        ("release", "k.csv", "l.csv", "--on", "id", "--epsilon", "1", "-o", "out"),
        files=_keys_in_two_cases,
    ),
    Case("an unknown method on the command line", ("release", "shop.toml", "-o", "out", "--method", "magic")),
    Case("an unknown profile on the command line", ("release", "shop.toml", "-o", "out", "--profile", "loose")),
    Case("a budget beside a spec", ("release", "shop.toml", "-o", "out", "--epsilon", "2")),
    Case("a spec and a table", ("release", "shop.toml", "visits.parquet", "-o", "out")),
    Case("tables without a budget", ("release", "visits.parquet", "offers.parquet", "-o", "out")),
    Case(
        "tables with a budget of nothing",
        ("release", "visits.parquet", "offers.parquet", "--on", "day", "--epsilon", "0", "-o", "out"),
    ),
    Case("tables with a budget that is no number", ("release", "visits.parquet", "--epsilon", "much", "-o", "out")),
    Case(
        "tables with an unknown key",
        ("release", "visits.parquet", "offers.parquet", "--on", "dya", "--epsilon", "1", "-o", "out"),
    ),
    Case(
        "tables with an unknown unit",
        ("release", "visits.parquet", "offers.parquet", "--unit", "dya", "--epsilon", "1", "-o", "out"),
    ),
    Case("a journal that cannot be written", ("release", "shop.toml", "-o", "out"), files=_folder("shop.ledger.jsonl")),
    Case("nothing that was kept", ("resume", "none", "-o", "out")),
    Case("a release that is written already", ("resume", "rel", "-o", "out")),
    Case("a folder that is there ", ("resume", "rel", "-o", "rel")),
    Case("no release", ("answer", "none", COUNT)),
    Case("a folder that is no release", ("answer", "empty", COUNT), files=_folder("empty")),
    Case("a release without its model", (*ANSWER, COUNT), files=_damaged("model.npz", None)),
    Case("a manifest that is damaged", (*ANSWER, COUNT), files=_damaged("manifest.json", "[]")),
    Case("a model that is damaged", (*ANSWER, COUNT), files=_damaged("model.npz", "zip")),
    Case("a format of another version", (*ANSWER, COUNT), files=_manifest(format=99)),
    Case("no question", ANSWER),
    Case("an empty question", (*ANSWER, "")),
    Case("a question on stdin that is empty", (*ANSWER, "-")),
    Case("not SQL", (*ANSWER, "SELEC 1")),
    Case("not a SELECT", (*ANSWER, "DROP TABLE joined")),
    Case("an unknown column", (*ANSWER, "SELECT COUNT(*) FROM joined WHERE agee > 3")),
    Case("an unknown table", (*ANSWER, "SELECT COUNT(*) FROM visits")),
    Case("a key", (*ANSWER, "SELECT COUNT(*) FROM joined WHERE day = 3")),
    Case("a file in SQL", (*ANSWER, "SELECT * FROM 'visits.parquet'")),
    Case("a reader in SQL", (*ANSWER, "SELECT * FROM read_parquet('visits.parquet')")),
    Case("two statements", (*ANSWER, f"{COUNT}; {COUNT}")),
    Case("coverage of more than 1", (*ANSWER, COUNT, "--coverage", "1.5")),
    Case("coverage that is no number", (*ANSWER, COUNT, "--coverage", "most")),
    Case("CSV and JSON", (*ANSWER, COUNT, "--csv", "--json")),
    Case("an output of an unknown kind", (*ANSWER, COUNT, "-o", "answers.txt")),
    Case("an output that is there", (*ANSWER, COUNT, "-o", "there.csv"), files=_write("there.csv", "")),
    Case("no release", ("report", "none")),
    Case("a page of an unknown kind", ("report", "rel", "-o", "page.pdf")),
    Case("no release", ("synthesize", "none", "--rows", "10", "-o", "x.csv")),
    Case("no number of rows", ("synthesize", "rel", "-o", "x.csv")),
    Case("rows below zero", ("synthesize", "rel", "--rows", "-5", "-o", "x.csv")),
    Case("rows that are no number", ("synthesize", "rel", "--rows", "ten", "-o", "x.csv")),
    Case("a seed below zero", ("synthesize", "rel", "--rows", "5", "--seed", "-1", "-o", "x.csv")),
    Case("more rows than memory holds", ("synthesize", "rel", "--rows", "9" * 18, "-o", "x.csv")),
    Case("a file of an unknown kind", ("synthesize", "rel", "--rows", "5", "-o", "x.xlsx")),
    Case("a file that is there", ("synthesize", "rel", "--rows", "5", "-o", "offers.parquet")),
    Case("no spec", ("evaluate", "none.toml", "rel")),
    Case("no release", ("evaluate", "shop.toml", "none")),
    Case("a release of another spec", ("evaluate", "shop.toml", "rel"), ((PRICE, "range = [1, 5]"),)),
    Case("a table that is gone", ("evaluate", "shop.toml", "rel"), (_from("gone.parquet"),)),
    Case("an output that is there", ("evaluate", "shop.toml", "rel", "-o", "offers.parquet")),
    Case("a folder that is there", ("demo", "-o", "rel")),
)

COMMANDS = (
    *VERBS[:2],
    *(c for c in VERBS if c.verb == "init"),
    *(c for c in VERBS if c.verb.startswith("plan")),
    *(c for c in VERBS if c.verb == "release"),
    *IN_SPECS,
    *IN_SOURCES,
    *(c for c in VERBS[2:] if c.verb not in {"init", "release"} and not c.verb.startswith("plan")),
)


# -- Python -----------------------------------------------------------------------------------------


def _names() -> dict[str, Any]:
    """What a call may use: a spec, its parts, and a release of it."""
    spec = dj.Spec.from_toml("shop.toml")
    release = dj.load("rel")
    names = {"dj": dj, "np": np, "pa": pa, "spec": spec, "release": release}
    return names | {"schema": spec.schema, "workload": spec.workload, "budget": spec.budget, "tables": spec.sources()}


PYTHON = tuple(
    Call(what)
    for what in (
        'dj.Budget(epsilon="x", delta=1e-6)',
        'dj.Budget("x")',
        "dj.Budget(epsilon=None, delta=1e-6)",
        "dj.Budget(epsilon=True, delta=1e-6)",
        "dj.Budget(epsilon=float('nan'), delta=1e-6)",
        "dj.Budget(epsilon=1.0, delta=[1e-6])",
        "dj.Attribute(name=3, key=True)",
        'dj.Attribute(name="a")',
        'dj.Attribute(name="a", range=5)',
        'dj.Attribute(name="a", range=(0, 1, 2))',
        'dj.Attribute(name="a", values="xyz")',
        'dj.Attribute(name="a", values=[1, None])',
        'dj.Attribute(name="a", bins={"0": 1})',
        'dj.Attribute(name="a", key="yes")',
        'dj.Table(name="t", attributes="ab")',
        'dj.Table(name="t", attributes=[1, 2])',
        'dj.Table(name="t", attributes=["a"], source=3)',
        'dj.Table(name="t", attributes=["a"], columns=["b"])',
        'dj.Table(name="t", attributes=["a"], encoding="x")',
        'dj.DegreeBound(attributes=["a"], limit=1.5)',
        'dj.DegreeBound(attributes="a", limit=1)',
        "dj.Schema(3, 4)",
        'dj.Schema(tables=["t"], attributes=[])',
        "dj.Schema(tables=[], attributes=[])",
        "dj.Schema.from_toml(3)",
        'dj.Schema.from_toml("none.toml")',
        "dj.Spec.from_toml(None)",
        "dj.Spec.from_dict(3)",
        "dj.Spec.from_dict({})",
        'schema.attribute("agee")',
        'schema.table("visit")',
        "dj.Workload.marginals(3, 2)",
        'dj.Workload.marginals(schema, "all")',
        "dj.Workload.marginals(schema, 0)",
        "dj.Workload.sql(schema, 3)",
        'dj.Workload.sql(schema, "SELECT 1")',
        'dj.Workload.sums(schema, ["kind"])',
        "dj.Workload.prefixes(schema, 7)",
        'dj.Workload.ranges(schema, ["agee"])',
        "workload + 3",
        'workload.important("much")',
        "dj.Workload.marginals(schema, [2.5])",
        "dj.Workload.products(schema, 3)",
        'dj.Workload.products(schema, {"visits": 3})',
        'dj.Workload.products(schema, {"visits": (["age"], "x")})',
        'dj.Workload.crossed(schema, {"age": "x"})',
        "dj.Spec(3, workload, budget)",
        "dj.Spec(schema, workload, budget, folder=3)",
        "schema.attribute(3)",
        "schema.table(3)",
        "dj.release(3, workload, tables, budget)",
        "dj.release(schema, 3, tables, budget)",
        "dj.release(schema, workload, 3, budget)",
        "dj.release(schema, workload, tables, 1.0)",
        'dj.release(schema, workload, {"visits": tables["visits"]}, budget)',
        'dj.release(schema, workload, {**tables, "more": 3}, budget)',
        'dj.release(schema, workload, {**tables, "visits": 3}, budget)',
        'dj.release(schema, workload, {**tables, "visits": []}, budget)',
        'dj.release(schema, workload, {**tables, "visits": tables["offers"]}, budget)',
        'dj.release(schema, workload, {**tables, "visits": pa.table({"day": [1]})}, budget)',
        'dj.release(schema, workload, tables, budget, method="magic")',
        "dj.release(schema, workload, tables, budget, method=3)",
        'dj.release(schema, workload, tables, budget, profile="loose")',
        'dj.release(schema, workload, tables, budget, progress="yes")',
        "dj.plan(3)",
        'dj.plan(schema, "x", budget)',
        "dj.load(3)",
        'dj.load("none")',
        "dj.evaluate(3, tables)",
        "dj.evaluate(release, 3)",
        'dj.evaluate(release, {"visits": tables["visits"]})',
        "dj.evaluate(release, tables, 3)",
        'dj.release(schema, workload, {3: tables["visits"], "offers": tables["offers"]}, budget)',
        'dj.release(schema, workload, {**tables, "visits": ("a", "b", "c")}, budget)',
        'dj.release(schema, workload, {**tables, "visits": ["a.csv", 3]}, budget)',
        'dj.release(schema, workload, {**tables, "visits": "none*.csv"}, budget)',
        "release.sample(2**70)",
        "release.answer(3)",
        "release.error(3)",
        "release.error(workload, coverage=2)",
        "release.ask(3)",
        'release.ask("SELEC 1")',
        'release.ask("SELECT COUNT(*) FROM joined", coverage="x")',
        "release.sql(3)",
        'release.sql("SELECT * FROM visits")',
        'release.sample("many")',
        "release.sample(-1)",
        'release.sample(5, seed="x")',
        "release.save(3)",
        'release.save("rel")',
        "release.plot(3)",
    )
)
