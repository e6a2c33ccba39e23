"""The analyst's side: asking from Python, numbers in bins, and how answers look."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import dpjoin as dj
from dpjoin.cli import printing
from dpjoin.cli.commands import main
from dpjoin.cli.screens import next_commands
from dpjoin.released.result import ROWS_SHOWN, Answers
from dpjoin.released.rows import bin_ends
from dpjoin.released.shown import exact, may_be_years
from support.asked import INF, SCHEMA, release_of_one_table

FOLDERS = Path(__file__).parents[1] / "fixtures" / "releases-0.1"


@pytest.fixture(scope="module")
def released() -> dj.Release:
    return release_of_one_table()


@pytest.fixture(scope="module")
def folder(released: dj.Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released.save(tmp_path_factory.mktemp("ask") / "out")


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    try:
        main([str(a) for a in arguments])
        code = 0
    except SystemExit as left:
        code = int(left.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


# -- asking ------------------------------------------------------------------------------------------

STATEMENT = "SELECT g, COUNT(*) AS n, AVG(x) FROM joined GROUP BY g ORDER BY n DESC LIMIT 2"


def test_python_says_what_the_command_line_says(
    capsys: pytest.CaptureFixture[str], released: dj.Release, folder: Path
) -> None:
    """The same rows in the same order, with the same bars."""
    code, out, _ = _run(capsys, "answer", folder, STATEMENT, "--json", "--coverage", ".95")
    assert code == 0
    answers = released.ask(STATEMENT, coverage=0.95)
    assert len(answers) == 2
    assert json.loads(out)["rows"] == [pytest.approx(row) for row in answers.to_json()["rows"]]


def test_answers_are_frames(released: dj.Release) -> None:
    """pandas, Polars and Arrow have a column per label, per number and per bar; a longer bar covers more often."""
    answers = released.ask(STATEMENT)
    names = ["g", "n", "n ±", "average of x", "average of x ±"]
    frame = answers.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert isinstance(answers.to_polars(), pl.DataFrame)
    assert list(frame) == answers.to_polars().columns == answers.to_arrow().column_names == names
    assert frame["n"].is_monotonic_decreasing
    assert (released.ask(STATEMENT, coverage=0.99).to_pandas()["n ±"] > frame["n ±"]).all()


def test_bins_know_their_order_in_frames(released: dj.Release) -> None:
    """As text '[10, 25)' would come before '[0, 10)' of '[2, …'; missing values among numbers are missing."""
    answers = released.ask("SELECT y, COUNT(*) FROM joined GROUP BY y ORDER BY 2")
    in_order = list(SCHEMA.attribute("y").labels)
    assert answers.to_pandas().sort_values("y")["y"].tolist() == in_order
    assert answers.to_polars().sort("y")["y"].to_list() == in_order
    years = released.ask("SELECT year, COUNT(*) FROM joined GROUP BY year").to_arrow()["year"]
    assert years.to_pylist() == [2011, 2012, 2013, 2014, None]
    empty = released.ask("SELECT year, COUNT(*) FROM joined GROUP BY year LIMIT 0")
    assert empty.to_arrow().schema == released.ask("SELECT year, COUNT(*) FROM joined GROUP BY year").to_arrow().schema
    rest = released.ask("SELECT year, COUNT(*) FROM joined WHERE year = 'other' GROUP BY year")
    assert rest.to_arrow()["year"].to_pylist() == [None]


def test_what_only_rows_can_tell_is_a_frame_too(released: dj.Release) -> None:
    """With DuckDB's types, no bars, and a note that says so."""
    answers = released.ask("SELECT g, median(x) AS middle FROM joined GROUP BY g ORDER BY g")
    assert answers.coverage is None
    assert answers.to_polars()["middle"].dtype == pl.Float64
    assert "no error bars are known" in answers.notes[0]
    assert "x are drawn within their bins" in answers.notes[1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda r: r.ask(3), "SQL (3) must be a statement"),
        (lambda r: r.ask(None), "SQL (None) must be a statement"),
        (lambda r: r.ask("SELECT COUNT(*) FROM joined", coverage=2), "coverage (2) must lie between 0 and 1"),
        (lambda r: r.ask("SELECT median(x) FROM joined", coverage="x"), "coverage ('x') must be a number"),
        (lambda r: r.answer(3), "a question (3) must be a statement in SQL or a dj.Workload"),
        (lambda r: r.error(["SELECT"]), "must be a statement in SQL or a dj.Workload"),
        (lambda r: r.sql(3), "SQL (3) must be a SELECT"),
        (lambda r: r.sample("ten"), "rows ('ten') must be a whole number"),
        (lambda r: r.sample(seed=-1), "seed (-1) must be at least 0"),
        (lambda r: r.to_pandas(bins="yes"), "bins ('yes') must be true or false"),
        (lambda r: r.describe(coverage=0), "coverage (0) must lie between 0 and 1"),
    ],
)
def test_calls_of_the_wrong_kind_have_our_errors(released: dj.Release, call: Any, words: str) -> None:
    with pytest.raises(dj.DpjoinError) as refused:
        call(released)
    assert words in str(refused.value)


@pytest.mark.parametrize("name", sorted(p.name for p in FOLDERS.iterdir() if p.is_dir()))
def test_folders_of_0_1_are_asked_like_any_other(name: str) -> None:
    """Every kind of model can be described, asked and drawn from."""
    release = dj.load(FOLDERS / name)
    assert len(release.describe()) == len(release.attributes)
    assert release.sample(20).column_names == list(release.attributes)
    assert len(release.to_pandas()) == release.synthetic.num_rows
    first = release.attributes[0]
    counts = release.ask(f'SELECT "{first}", COUNT(*) FROM joined GROUP BY ALL').to_arrow()["count"]
    assert sum(counts.to_pylist()) == pytest.approx(release.answer("SELECT COUNT(*) FROM joined")[0])


def test_asking_imports_nothing_that_makes_a_release(folder: Path) -> None:
    """Neither from Python nor from the command line."""
    code = f"""import sys, dpjoin as dj
from dpjoin.cli.commands import main
release = dj.load({str(folder)!r})
repr(release.ask("SELECT g, AVG(x) FROM joined GROUP BY g")), release.to_pandas(), release.sample(), release.to_polars()
release._repr_html_()
try:
    main(["answer", {str(folder)!r}, "SELECT MAX(x) FROM joined", "--csv"])
except SystemExit:
    pass
print(*sorted({{name.split(".")[1] for name in sys.modules if name.startswith("dpjoin.")}}))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = done.stdout.splitlines()[-1].split()
    assert found == ["canonical", "cli", "constants", "errors", "model", "page", "privacy", "released", "spec"]


# -- numbers in bins ---------------------------------------------------------------------------------


def test_rows_have_numbers_and_their_bins_on_request(released: dj.Release, folder: Path) -> None:
    """Each number lies in the bin that stands beside it; whole edges give whole numbers; `other` is missing."""
    rows = released.to_arrow(bins=True)
    assert rows.column_names == ["g", "x", "y", "year", "x_bin", "y_bin"]
    assert [str(rows[c].type) for c in ("x", "y", "year")] == ["int64", "double", "int64"]
    for name in ("x", "y"):
        attribute = SCHEMA.attribute(name)
        labels = attribute.labels
        pairs = set(zip(rows[name].to_pylist(), rows[f"{name}_bin"].to_pylist(), strict=True))
        assert all(labels[attribute.code(number) or 0] == label for number, label in pairs if number is not None)
        assert {label for number, label in pairs if number is None} <= {"other"}
    saved = pq.read_table(folder / "synthetic.parquet")
    assert saved.equals(released.synthetic)
    assert saved.column_names == ["g", "x", "y", "year"]
    assert dj.load(folder).to_arrow(bins=True).equals(rows)


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [
        ("x = '[10, 25)'", "x >= 10 AND x < 25"),
        ("'[10, 25)' <> j.X", "(x < 10 OR x >= 25 OR x IS NULL)"),
        ("x IN ('other', '[60, 100]')", "(x IS NULL OR x >= 60)"),
        ("x NOT IN ('other') AND x > 30", "x > 30"),
        ("x_bin = '[10, 25)' AND x <> 12", "x >= 10 AND x < 25 AND x <> 12"),
        ("x = '12'", "x = 12"),
        ("x > '12'", "x > 12"),
        ("EXISTS (SELECT 1 FROM joined WHERE x = 'other')", "true"),
    ],
)
def test_rows_are_asked_for_numbers_and_for_bins(released: dj.Release, condition: str, numbers: str) -> None:
    """A bin as text is one of the column of bins; other text is what DuckDB makes of it."""
    for_bins, for_numbers = (
        released.sql(f"SELECT median(y) AS m, count(*) AS n FROM joined j WHERE {where}").to_pylist()
        for where in (condition, numbers)
    )
    assert for_bins == for_numbers
    assert for_bins[0]["n"] > 0


def test_samples_need_no_seed(released: dj.Release) -> None:
    """Two are different; a seed makes them alike, with or without bins."""
    assert released.sample().num_rows == 1000
    assert not released.sample(200).equals(released.sample(200))
    with_bins = released.sample(50, seed=4, bins=True)
    assert with_bins.select(released.attributes).equals(released.sample(50, seed=4))


def test_rows_are_in_random_order(released: dj.Release) -> None:
    """A file that is cut off is still a sample: the first half looks like the second."""
    codes = released.to_pandas()["g"].astype(str).to_numpy() == "b & c"
    half = len(codes) // 2
    assert abs(codes[:half].mean() - codes[half:].mean()) < 0.05
    changes = np.mean(codes[1:] != codes[:-1])
    share = codes.mean()
    assert changes == pytest.approx(2 * share * (1 - share), abs=0.05)


@pytest.mark.parametrize(
    ("edges", "ends"),
    [
        ((0, 10, 20), (0, 10, 20)),
        ((-INF, 0, 15, 60, INF), (-15, 0, 15, 60, 105)),
        ((-INF, 32, INF), (0, 32, 64)),
        ((-INF, 0, INF), (-1, 0, 1)),
        ((-INF, INF), (0, 1)),
        ((0.5, INF), (0.5, 1.5)),
        ((-1e308, 1e308, INF), (-1e308, 1e308, sys.float_info.max)),
    ],
)
def test_endless_bins_have_a_public_end(edges: Sequence[float], ends: Sequence[float]) -> None:
    assert bin_ends(tuple(edges)) == tuple(ends)


@pytest.mark.parametrize("function", ["AVG", "SUM"])
def test_bars_of_averages_carry_the_width_of_bins(released: dj.Release, function: str) -> None:
    """A statement is about the numbers, a workload about the middles of bins; one bin alone tells what is added."""
    statement = f"SELECT {function}(x) FROM joined WHERE x >= 60"
    answers = released.ask(statement)
    (value, bar) = answers.rows[0][1][0], answers.rows[0][2][0]
    assert any("of x only bins are known" in note for note in answers.notes)
    assert released.error(statement)[0] == pytest.approx(bar)
    rows = 1.0 if function == "AVG" else released.answer("SELECT COUNT(*) FROM joined WHERE x >= 60")[0]
    assert bar >= 20 * rows  # the bin is [60, 100]
    assert value == pytest.approx(80 * rows)
    if function == "SUM":
        middles, normal = released.error(dj.Workload.sql(SCHEMA, statement))[0], NormalDist()
        one_sided = normal.inv_cdf(0.9) / normal.inv_cdf(0.95)  # at an edge, noise errs to one side only
        assert bar == pytest.approx(20 * rows + one_sided * middles)
    assert not released.ask("SELECT AVG(year), SUM(year) FROM joined").notes


# -- how it looks ------------------------------------------------------------------------------------


def test_a_result_shows_itself(released: dj.Release) -> None:
    """As text with notes; as HTML with the guarantee and the unit, and with every label escaped."""
    answers = released.ask("SELECT g, COUNT(*), AVG(x) FROM joined GROUP BY g")
    shown = repr(answers)
    assert shown.splitlines()[0].split()[:2] == ["g", "count"]
    for words in ("<b>a</b>", "± 90 %", "note: of x only bins are known"):
        assert words in shown
    html = answers._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;a&lt;/b&gt;" in html
    assert "b &amp; c" in html
    assert "(1, 1e-06)-differential privacy for one row added to or removed from one private table" in html
    page = released._repr_html_()
    assert "<b>" not in page
    assert page.count("<tr>") == 1 + len(released.attributes)
    assert "differential privacy for one row" in page


def test_a_description_has_a_row_for_each_column(released: dj.Release) -> None:
    """Kind, domain, the most frequent value, known rows and averages with bars."""
    frame = released.describe().to_pandas().set_index("column")
    assert frame["kind"].tolist() == ["text", "numbers", "numbers", "whole numbers"]
    assert frame.loc["year", "domain"] == "2011 to 2014"
    assert frame.loc["y", "domain"] == "-inf to inf in 4 bins"
    assert frame.loc["g", "most frequent"] == "<b>a</b>"
    assert frame.loc["year", "average"] == pytest.approx(2012.5, abs=0.2)
    assert frame["average"].isna().tolist() == [True, False, True, False]  # y has endless bins
    assert (frame["rows ±"] > 0).all()
    assert " 2012" in repr(released.describe())


def test_long_results_are_cut_where_they_are_shown_and_whole_elsewhere() -> None:
    rows = tuple(((i,), (float(i),), (1.0,)) for i in range(3000))
    answers = Answers(("a",), ("n",), rows, 0.9)
    assert repr(answers).endswith(f"… and {3000 - ROWS_SHOWN:,} more rows")
    assert len(answers.to_pandas()) == 3000


@pytest.mark.parametrize("rows", [5, 500])
def test_long_results_are_paged_on_a_terminal(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short one is printed as it is."""
    paged: list[int] = []

    class Terminal(printing.console().__class__):  # type: ignore[misc]
        is_terminal = True

        def pager(self, *_: Any, **__: Any) -> Any:
            paged.append(1)
            return super().pager(*_, **__)

    monkeypatch.setattr("pydoc.pager", lambda text: None)
    monkeypatch.setattr(printing, "console", lambda: Terminal(height=30, width=80))
    printing.show_answers(Answers(("a",), ("n",), tuple(((i,), (1.0,), (1.0,)) for i in range(rows)), 0.9))
    assert bool(paged) == (rows == 500)


def test_numbers_are_written_for_people(released: dj.Release) -> None:
    """Years have no commas, large numbers no exponents."""
    assert [exact(v) for v in (5e6, 5_000_000.5, 12, None, float("nan"))] == ["5,000,000", "5,000,000.5", "12", "", "?"]
    assert may_be_years([2011, 2014, None])
    assert not may_be_years([2011, 20_000])
    assert not may_be_years(["2011"])
    shown = repr(released.ask("SELECT year, COUNT(*) + 0 AS n FROM joined GROUP BY year ORDER BY year LIMIT 1"))
    assert " 2011 " in shown
    assert "201" in repr(released.ask("SELECT AVG(year) FROM joined")).replace("2,01", "")
    with pytest.raises(dj.SpecError, match="5000000"):
        released.ask("SELECT COUNT(*) FROM joined WHERE year = 5000000")


def test_answers_go_into_files(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    """CSV on stdout; a new file of each kind, never over an old one."""
    code, out, err = _run(capsys, "answer", folder, STATEMENT, "--csv", "--coverage", ".95")
    assert code == 0
    assert out.splitlines()[0] == '"g","n","n ±","average of x","average of x ±"'
    assert len(out.splitlines()) == 3
    assert "only bins are known" in err
    for suffix in ("csv", "json", "parquet"):
        file = tmp_path / f"answers.{suffix}"
        code, out, err = _run(capsys, "answer", folder, STATEMENT, "--output", file)
        assert (code, out) == (0, "")
        assert f"wrote 2 rows to {file}" in err
        assert _run(capsys, "answer", folder, STATEMENT, "-o", file)[0] == 2
    assert pyarrow.csv.read_csv(tmp_path / "answers.csv").num_rows == 2
    assert pq.read_table(tmp_path / "answers.parquet").num_rows == 2
    assert len(json.loads((tmp_path / "answers.json").read_text())["rows"]) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--coverage", "1.5"], "coverage (1.5) must lie between 0 and 1"),
        (["--csv", "--json"], "--csv and --json exclude each other"),
        (["-o", "answers.txt"], "must end in .csv, .json or .parquet"),
    ],
)
def test_wrong_options_are_one_line(
    capsys: pytest.CaptureFixture[str], folder: Path, options: list[str], words: str
) -> None:
    code, out, err = _run(capsys, "answer", folder, STATEMENT, *options)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_synthesize_writes_numbers_and_bins(capsys: pytest.CaptureFixture[str], folder: Path, tmp_path: Path) -> None:
    code, _, _ = _run(capsys, "synthesize", folder, "--rows", 50, "--bins", "-o", tmp_path / "rows.csv")
    assert code == 0
    rows = pyarrow.csv.read_csv(tmp_path / "rows.csv")
    assert rows.column_names == ["g", "x", "y", "year", "x_bin", "y_bin"]
    assert str(rows["x"].type) == "int64"


def test_names_that_are_words_of_sql_are_told_to_be_quoted() -> None:
    """A column may be called `when` or `height m`: the error says what to write, and what comes next is written so."""
    attributes = tuple(dj.Attribute(name=name, values=("x", "y")) for name in ("when", "height m", "at", "plain"))
    schema = dj.Schema((dj.Table(name="r", attributes=tuple(a.name for a in attributes)),), attributes)
    for statement, told in {
        "SELECT when, COUNT(*) FROM joined GROUP BY when": 'near "when"; write "when", in double quotes',
        "SELECT height m, plain, x FROM joined WHERE at = 'x'": 'write "height m" and "at", in double quotes',
        'SELECT "when", COUNT(*) FRM joined': 'syntax error at or near "joined"',
    }.items():
        with pytest.raises(dj.SpecError) as caught:
            dj.Workload.sql(schema, statement)
        assert str(caught.value).endswith(told)
    for name in ("when", "height m", "plain", "a$b", 'a"b', "it's"):
        line = next_commands("out", [name]).splitlines()[1]
        *_, statement = shlex.split(line)
        ((parsed,),) = duckdb.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [statement]).fetchall()
        assert '"error":false' in parsed
        assert shlex.split(next_commands("o u t", [name]).splitlines()[1])[2] == "o u t"
