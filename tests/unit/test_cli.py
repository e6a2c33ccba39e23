"""Every verb, as a user runs it: results on stdout, words on stderr, exit codes 0, 1 and 2."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
import tomllib
import types
from dataclasses import replace

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import dpjoin
from dpjoin.auto import registry as methods
from dpjoin.cli import printing, screens
from dpjoin.engine.sources.opened import unreadable
from dpjoin.errors import STOPPED
from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.model.union import Union
from dpjoin.released.result import Answers
from support.paths import ROOT
from support.shop import SPEC, journal_lines, make_shop, run


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A spec and a release made from it, for the verbs that only read."""
    folder = tmp_path_factory.mktemp("shop")
    spec = make_shop(folder)
    loaded = dpjoin.Spec.from_toml(spec)
    made = dpjoin.release(loaded.schema, loaded.workload, loaded.sources(), loaded.budget)
    made.save(folder / "out")
    return spec, folder / "out"


def test_more_rows_than_memory_holds_are_refused(capsys, shop, tmp_path, monkeypatch):
    """One line and exit code 2; nothing is written."""

    def too_many(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(dpjoin.Release, "sample", too_many)
    code, _, err = run(capsys, "synthesize", shop[1], "--rows", 10**11, "-o", tmp_path / "rows.csv")
    assert code == 2
    assert err.startswith("error: --rows (100,000,000,000) must fit into memory; ask for fewer")
    assert list(tmp_path.iterdir()) == []


def test_interrupted_rows_leave_nothing_behind(capsys, shop, tmp_path, monkeypatch):
    """Ctrl-C while a file is written: no file, and no half of one under another name."""

    def interrupted(_: object, path: object, **__: object) -> None:
        open(str(path), "wb").close()
        raise KeyboardInterrupt

    monkeypatch.setattr(pq, "write_table", interrupted)
    assert run(capsys, "synthesize", shop[1], "--rows", 10, "-o", tmp_path / "rows.parquet")[0] == 130
    assert list(tmp_path.iterdir()) == []


def test_version(capsys):
    """--version prints the version and nothing else."""
    assert run(capsys, "--version") == (0, f"dpjoin {dpjoin.__version__}\n", "")


def test_the_package_runs_as_a_module():
    """`python -m dpjoin` is the same command, also where it is not on the path."""
    command = [sys.executable, "-m", "dpjoin", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"dpjoin {dpjoin.__version__}\n")


def test_help_does_not_load_what_it_does_not_need():
    """`dpjoin --help` imports neither numpy nor DuckDB, so it is quick."""
    code = "import sys, dpjoin.cli.commands\n"
    code += "print([m for m in ('numpy', 'duckdb', 'pyarrow', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_usage_errors_exit_with_2(capsys):
    """A missing option or an unknown verb is the user's to mend."""
    assert run(capsys, "release", "x.toml")[0] == 2
    assert run(capsys, "relese")[0] == 2
    assert run(capsys, "release", "x.toml", "-o", "out", "--seed", "1")[0] == 2


def test_plan_needs_no_files(capsys, tmp_path):
    """A plan is made from the spec alone."""
    spec = tmp_path / "shop.toml"
    spec.write_text(SPEC)
    code, out, err = run(capsys, "plan", spec)
    assert code == 0
    for words in ("visits ⋈ offers on day", "auto", "72 cells", "sensitivity", "city x kind", "largest degree"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 100
    assert "dpjoin release" in err
    assert not list(tmp_path.glob("*.ledger.jsonl"))


def test_plan_json_with_expectations(capsys, shop):
    """--json is JSON and only JSON; a degree and a join size give relative errors."""
    code, out, _ = run(capsys, "plan", shop[0], "--degree", 20, "--join-size", 1000, "--json")
    plan = json.loads(out)
    assert code == 0
    assert [e["degree"] for e in plan["expected"]] == [20]
    assert plan["expected"][0]["share_of_join"] > 0
    assert run(capsys, "plan", shop[0], "--degree", 0)[0] == 2


def test_release_writes_a_folder_and_a_journal(capsys, tmp_path):
    """A release prints what was released, saves it, and records begun and finished around it."""
    spec = make_shop(tmp_path)
    code, out, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert code == 0
    for words in ("(1, 1e-06)-differential privacy", "(noisy, 90 %)", "median ±", "city x kind"):
        assert words in out
    assert "dpjoin answer" in err
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "README.md",
        "croissant.json",
        "datapackage.json",
        "manifest.json",
        "model.npz",
        "report.html",
        "synthetic.parquet",
    ]
    begun, finished = journal_lines(spec)
    assert (begun["what"], finished["what"]) == ("begun", "finished")
    assert {"time", "epsilon", "delta", "spec", "spec_sha256", "out"} <= set(begun)

    code, out, err = run(capsys, "release", spec, "-o", tmp_path / "again", "--profile", "paper", "--json")
    assert code == 0
    assert "already released once" in err
    assert "epsilon 2, delta 2e-06" in err
    summary = json.loads(out)
    assert summary["profile"] == "paper"
    assert len(summary["groups"]) == 7
    assert [e["what"] for e in journal_lines(spec)] == ["begun", "finished"] * 2


DECLARED = SPEC.replace("[attributes.day]\nkey = true", "[attributes.day]\nrange = [0, 29]")


BOUNDED = SPEC.replace('"kind"]\n', '"kind"]\nmax_degree = { day = 9 }\nbounds = "enforce"\n', 1)


@pytest.mark.parametrize(
    ("spec", "method", "words"),
    [
        (SPEC, "capped", ("method capped (tight): rows beyond so many", "by at most", "join results (upper bound)")),
        (DECLARED, "per_table", ("method per_table (tight): ", "moves one cell of its own table by one")),
        (BOUNDED, "auto", (". Chosen by auto join size", "rows that it pushes out")),
    ],
)
def test_the_summary_names_the_method_and_what_one_row_moves(capsys, tmp_path, spec, method, words):
    """A row of a table that is modelled alone moves no join results; a release says which method ran, and who chose."""
    path = make_shop(tmp_path, spec=spec)
    code, out, _ = run(capsys, "release", path, "-o", tmp_path / "out", "--method", method)
    assert code == 0
    for said in words:
        assert said in " ".join(out.split())
    assert ("join results (upper bound)" in out) is (method != "per_table")


def test_the_summary_tells_what_auto_expected(shop):
    """The method that ran comes first, then the others, the best first."""
    made = dpjoin.load(shop[1])
    assert made.facts["chosen_by"] == "auto"
    assert ". Chosen by auto, for the least error expected in join results: " in screens._method_words(made)
    facts = {"predicted_error": {"hybrid": 5070.0, "keyed": 300.0, "capped": 139.0}, "chosen_by": "auto"}
    told = screens._method_words(replace(made, method="capped", facts=facts))
    assert told.startswith("capped (tight): rows beyond so many per key value")
    assert told.endswith("in join results: capped 139, keyed 300, hybrid 5,070")
    asked = replace(made, method="capped", facts={})
    assert screens._method_words(asked).endswith("the rest is one join")
    assert screens._method_words(replace(made, method="path", facts={})) == "path (tight)"  # of 0.1


def test_the_summary_works_out_the_bars_that_it_shows(capsys, shop, monkeypatch):
    """Bars of a large model take time, so those of groups that are not shown are left alone."""
    made = dpjoin.load(shop[1])
    asked = []
    error = dpjoin.Release.error
    monkeypatch.setattr(screens, "GROUPS_SHOWN", 2)
    monkeypatch.setattr(dpjoin.Release, "error", lambda release, part: asked.append(part) or error(release, part))
    screens.show_release(made, "out")
    of_groups = [one for one in asked if isinstance(one, dpjoin.Workload)]
    assert len(made.workload.groups) > len(of_groups) == 2
    assert f"{len(made.workload.groups) - 2} more" in capsys.readouterr().out


def test_json_shows_how_far_it_is_with_the_bars_of_all_groups(capsys, tmp_path):
    """They take seconds where there are hundreds of groups, after the last stage of the release itself."""
    code, out, err = run(capsys, "release", make_shop(tmp_path), "-o", tmp_path / "out", "--json")
    assert code == 0
    assert len(json.loads(out)["groups"]) == 7
    assert "error bars of each group" in err


def test_the_summary_of_heavy_values_and_parts(shop):
    """Of heavy values only a row's own table is measured; several parts have a bound each."""
    made = dpjoin.load(shop[1])
    domain = made.model.domain
    whole = Model(domain, 1.0, plain=np.ones((domain.rows, domain.columns)), known=(), certain=True)
    facts = {"sensitivity_bound": 7, "strategy": "at most 3 rows of each"}
    for method, parts, words in (
        ("heavy_light", (whole, Joined(domain, (whole,))), "of light values by at most 7 join results (upper bound)"),
        ("uniformize", (whole, whole), "in each part by at most 7 join results"),
    ):
        model = Union(parts, tuple("ab"))
        told = screens._sensitivity_words(replace(made, method=method, facts=facts, model=model))
        assert words in told
        assert ("pushes out" in told) is (method == "heavy_light")


def test_a_release_that_fails_is_recorded_and_tells_nothing(capsys, tmp_path, monkeypatch):
    """An unexpected error prints its type only, exits 1, leaves no folder, and counts as spent."""
    spec = make_shop(tmp_path)

    def broken(*_: object) -> None:
        raise ValueError("Secretville")

    monkeypatch.setattr(methods, "Curator", broken)
    code, out, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert code == 1
    assert "internal error (ValueError)" in err
    assert "please report" in err
    assert "Secretville" not in out + err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()
    assert [e["what"] for e in journal_lines(spec)] == ["begun", "failed"]
    monkeypatch.setenv("DPJOIN_DEBUG", "1")
    with pytest.raises(ValueError, match="Secretville"):
        run(capsys, "release", spec, "-o", tmp_path / "out")


def test_a_torn_journal_line_does_not_swallow_the_next(capsys, tmp_path):
    """After a crash in the middle of a line, the next entry starts on its own line."""
    from dpjoin.cli.journal import journal_of, recorded, spent

    spec = make_shop(tmp_path)
    journal_of(spec).write_text('{"what": "beg')
    with recorded(spec, dpjoin.Budget(epsilon=0.5, delta=1e-6), tmp_path / "out"):
        assert spent(journal_of(spec)).times == 1
    assert spent(journal_of(spec)).epsilon == 0.5


def test_nothing_is_released_if_the_journal_takes_a_part_of_its_line(tmp_path, monkeypatch):
    """A disk that fills up: what is read later as a torn line must not be a release that ran."""
    from dpjoin.cli.journal import journal_of, recorded, spent
    from dpjoin.errors import ReleaseError

    spec, write = make_shop(tmp_path), os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:9]))
    ran = False
    with (
        pytest.raises(ReleaseError, match="nothing may be released"),
        recorded(spec, dpjoin.Budget(epsilon=1.0, delta=1e-6), tmp_path / "out"),
    ):
        ran = True
    monkeypatch.undo()
    assert not ran
    assert spent(journal_of(spec)).times == 0


def test_a_copied_spec_does_not_hide_what_was_spent(capsys, tmp_path):
    """Journals beside the spec count where they name one of its private tables; the spec's own counts always."""
    spec = make_shop(tmp_path)
    run(capsys, "release", spec, "-o", tmp_path / "out")
    copied = tmp_path / "copy.toml"
    copied.write_text(spec.read_text())
    _, _, err = run(capsys, "release", copied, "-o", tmp_path / "again")
    assert "already released once from this spec or its private tables" in err
    assert "epsilon 2, delta 2e-06 (shop.ledger.jsonl)" in err
    _, _, err = run(capsys, "release", spec, "-o", tmp_path / "third")
    assert "already released 2 times" in err
    assert "(shop.ledger.jsonl, copy.ledger.jsonl)" in err
    assert journal_lines(spec)[0]["sources"] == ["visits.parquet", "offers.parquet"]
    for name in ("visits", "offers"):
        (tmp_path / f"{name}.parquet").rename(tmp_path / f"new {name}.parquet")
    other = tmp_path / "other.toml"
    other.write_text(SPEC.replace('"visits.parquet"', '"new visits.parquet"').replace('"offers.p', '"new offers.p'))
    assert "note" not in run(capsys, "release", other, "-o", tmp_path / "fourth")[2]
    other.write_text(other.read_text().replace('"new offers.parquet"', '"new offers.parquet"\nprivate = false'))
    assert "already released once" in run(capsys, "release", other, "-o", tmp_path / "fifth")[2]


def test_the_journal_names_tables_inside_databases(tmp_path):
    """Two tables of one file are two sources, and public tables are none."""
    from dpjoin.cli.journal import sources_of

    schema = dpjoin.Spec.from_toml(make_shop(tmp_path)).schema
    sources = {"visits": (tmp_path / "a.db", "v"), "offers": tmp_path / "deep" / ".." / "b.csv"}
    assert sources_of(tmp_path / "shop.toml", schema, sources) == ("a.db:v", "b.csv")


def test_the_journal_names_a_file_without_tables_once(tmp_path):
    """Whatever table was named beside it, now or in older journals: it is one source, as it is for the release."""
    from dpjoin.cli.journal import recorded, sources_of, spent_before

    spec = make_shop(tmp_path)
    loaded = dpjoin.Spec.from_toml(spec)
    sources = {"visits": (tmp_path / "visits.csv.gz", "v"), "offers": tmp_path / "a:b.parquet"}
    found = sources_of(spec, loaded.schema, sources)
    assert found == ("visits.csv.gz", "a:b.parquet")
    older = tmp_path / "older.toml"
    older.write_text(spec.read_text())
    with recorded(older, loaded.budget, tmp_path / "out", ["visits.csv.gz:w"]):
        pass
    assert spent_before(spec, found).times == 1
    assert spent_before(spec, ["visits.db:w"]).times == 0


def test_a_killed_release_counts_as_spent(tmp_path):
    """The journal is on disk before rows are read; a process killed after that leaves no half-written folder."""
    from dpjoin.cli.journal import journal_of, spent

    spec = make_shop(tmp_path)
    command = [sys.executable, "-m", "dpjoin.cli.commands", "release", str(spec), "-o", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while spent(journal_of(spec)).times == 0 and process.poll() is None:
            time.sleep(0.005)
        process.kill()
    assert spent(journal_of(spec)).times == 1
    assert not (tmp_path / "out").exists() or dpjoin.load(tmp_path / "out").join_size > 0


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupted_release_says_that_the_budget_counts(capsys, tmp_path, monkeypatch, late):
    """One line with the journal and how to go on, exit code 130, and nothing half-written."""
    spec, folder = make_shop(tmp_path), tmp_path / "out"

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    if late:
        monkeypatch.setattr(pq, "write_table", interrupted)
    else:
        monkeypatch.setattr(methods, "Curator", interrupted)
    before = sorted(tmp_path.iterdir())
    code, out, err = run(capsys, "release", spec, "-o", folder)
    assert (code, out) == (130, "")
    (line,) = [one for one in err.splitlines() if one.startswith("interrupted:")]
    kept = [tmp_path / "out.unwritten"] if late else []
    on = [f"dpjoin resume {kept[0]} -o"] if late else ["counts as spent", f"dpjoin release {spec} -o {folder}"]
    for words in ("nothing was written", *on):
        assert words in line
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "shop.ledger.jsonl", *kept])
    assert [e["what"] for e in journal_lines(spec)] == ["begun", "failed"]


def test_an_interruption_is_none_of_the_files(capsys, tmp_path, monkeypatch):
    """DuckDB raises an error of its own, which is no word about a file; the budget counts, and that is said.

    It may look for signals at the end of its query only, which is short here.
    """
    code = """import duckdb, os, signal, threading
from dpjoin.errors import is_interrupt
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    duckdb.sql("SELECT sum(sin(a.range * b.range)) FROM range(10000) a, range(10000) b").fetchall()
except BaseException as error:
    print(is_interrupt(error))"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n"

    def interrupted(*_: object, **__: object) -> None:
        raise RuntimeError(STOPPED)

    spec = make_shop(tmp_path)
    with pytest.raises(KeyboardInterrupt), unreadable("visits", "file 'v.csv'", "CSV"):
        interrupted()
    monkeypatch.setattr(methods, "Curator", interrupted)
    code, out, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert (code, out) == (130, "")
    assert "interrupted: nothing was written" in err.splitlines()[-1]
    assert "counts as spent" in err.splitlines()[-1]


def test_an_interruption_before_all_is_loaded_leaves_quietly(monkeypatch):
    """The command is `dpjoin.__main__`, which loads the rest."""
    monkeypatch.setitem(sys.modules, "dpjoin.cli.commands", Interrupting("dpjoin.cli.commands"))
    with pytest.raises(SystemExit) as left:
        importlib.import_module("dpjoin.__main__").main()
    assert left.value.code == 130
    (script,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].values()
    assert script == "dpjoin.__main__:main"


class Interrupting(types.ModuleType):
    """A module that is stopped as it is loaded."""

    def __getattr__(self, name: str) -> None:
        raise KeyboardInterrupt


def test_an_interruption_as_the_journal_is_written_says_so(capsys, tmp_path, monkeypatch):
    """The line may be on disk by then."""
    spec, whole = make_shop(tmp_path), os.fsync

    def interrupted(file: int) -> None:
        monkeypatch.setattr(os, "fsync", whole)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    code, out, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1].startswith("interrupted: no row was read, and the budget counts as spent where ")
    assert journal_lines(spec)[0]["what"] == "begun"


def test_answer_from_the_model_has_error_bars(capsys, shop):
    """Counts and sums come with error bars; the columns are those of the statement."""
    statement = "SELECT city, kind, COUNT(*) AS n FROM joined WHERE city <> 'Rome' GROUP BY ALL ORDER BY n DESC"
    code, out, err = run(capsys, "answer", shop[1], statement)
    assert (code, err) == (0, "")
    assert "± 90 %" in out
    assert "Rome" not in out
    code, out, _ = run(capsys, "answer", shop[1], statement, "--json")
    answer = json.loads(out)
    assert answer["source"] == "model"
    counts = [row["n"] for row in answer["rows"]]
    assert len(counts) == 4
    assert counts == sorted(counts, reverse=True)
    assert all(row["n ±"] > 0 for row in answer["rows"])


def test_answers_have_the_statements_names(capsys, shop):
    """A column that the statement renames has its new name in the result."""
    _, out, _ = run(capsys, "answer", shop[1], "SELECT city AS town, COUNT(*) n FROM joined GROUP BY town", "--json")
    assert list(json.loads(out)["rows"][0]) == ["town", "n", "n ±"]
    _, out, _ = run(capsys, "answer", shop[1], "SELECT city count, COUNT(*) FROM joined GROUP BY 1", "--json")
    assert list(json.loads(out)["rows"][0]) == ["count", "count (2)", "count (2) ±"]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT city, price FROM joined LIMIT 3",
        "SELECT CASE WHEN price < 3 THEN 'cheap' ELSE 'dear' END AS how, COUNT(*) FROM joined GROUP BY how",
    ],
)
def test_rows_and_expressions_come_from_the_synthetic_rows(capsys, shop, statement):
    """What DuckDB can answer is not refused for a name that the schema does not know, or for want of a GROUP BY."""
    code, out, err = run(capsys, "answer", shop[1], statement)
    assert code == 0
    assert len(out.splitlines()) >= 5
    assert "computed over the synthetic rows" in err


def test_answers_equal_the_library(capsys, shop):
    """The command line shows what `Release.answer` and `Release.error` say, for any order of the columns."""
    release = dpjoin.load(shop[1])
    workload = dpjoin.Workload.sql(release.schema, "SELECT COUNT(*) FROM joined GROUP BY city, kind")
    _, out, _ = run(capsys, "answer", shop[1], "SELECT kind, city, COUNT(*) FROM joined GROUP BY ALL", "--json")
    rows = {(r["city"], r["kind"]): (r["count"], r["count ±"]) for r in json.loads(out)["rows"]}
    cells = [(c, k) for c in ("Oslo", "Rome", "other") for k in ("tea", "cake")]
    expected = zip(release.answer(workload), release.error(workload), strict=True)
    assert [rows[cell] for cell in cells] == [pytest.approx(pair) for pair in expected]


def test_answer_over_the_rows_says_so(capsys, shop):
    """What is no linear query is answered by DuckDB over the synthetic rows, and stderr says that bars are unknown."""
    code, out, err = run(capsys, "answer", shop[1], "SELECT AVG(price) AS mean, MAX(city) AS last FROM joined")
    assert code == 0
    assert "mean" in out
    assert "no error bars are known" in err
    code, out, _ = run(capsys, "answer", shop[1], "SELECT AVG(price) AS mean FROM joined", "--json")
    assert 1 <= json.loads(out)["rows"][0]["mean"] <= 4


def test_averages_have_bars_beside_counts_and_sums(capsys, shop):
    """An average is its sum divided by its count, from the model, with a bar; rows sort by it, and so in Python."""
    statement = "SELECT city, COUNT(*), SUM(age), AVG(age) FROM joined GROUP BY city ORDER BY AVG(age) DESC"
    code, out, err = run(capsys, "answer", shop[1], statement, "--json")
    assert code == 0
    assert err == "note: of age only bins are known, and the ± of sums and averages makes room for that\n"
    answer = json.loads(out)
    assert answer["source"] == "model"
    found = [row["average of age"] for row in answer["rows"]]
    assert found == sorted(found, reverse=True)
    for row in answer["rows"]:
        assert row["average of age"] == pytest.approx(row["sum of age"] / row["count"])
        assert 0 < row["average of age ±"] <= 92.5 - 9
    release = dpjoin.load(shop[1])
    asked = "SELECT AVG(age), COUNT(*) FROM joined WHERE price < 3"
    assert release.answer(asked).shape == release.error(asked).shape == (2,)
    assert 9 <= release.answer(asked)[0] <= 92.5


def test_or_of_two_columns_is_answered_from_the_model(capsys, shop):
    """Each case, added, less what both have; with bars where the columns were measured together."""
    release = dpjoin.load(shop[1])
    one, other = "city = 'Oslo'", "(kind = 'tea' AND NOT city = 'other')"

    def asked(condition: str, what: str = "COUNT(*)") -> float:
        return float(release.answer(f"SELECT {what} FROM joined WHERE {condition}")[0])

    both = f"city = 'Oslo' AND {other}"
    assert asked(f"{one} OR {other}") == pytest.approx(asked(one) + asked(other) - asked(both))
    assert release.error(f"SELECT COUNT(*) FROM joined WHERE {one} OR {other}")[0] > 0
    assert np.isnan(release.error(f"SELECT SUM(price) FROM joined WHERE {one} OR {other}")).all()
    either = f"price = 1 OR {one}"
    expected = asked("price = 1", "SUM(price)") + asked(f"{one} AND price <> 1", "SUM(price)")
    assert asked(either, "SUM(price)") == pytest.approx(expected)
    assert asked(either, "AVG(price)") == pytest.approx(expected / asked(either))
    assert 0 < release.error(f"SELECT AVG(price) FROM joined WHERE {either}")[0] < 3
    statement = f"SELECT city, COUNT(*) FROM joined WHERE {other} OR (city = 'Rome' AND kind = 'cake') GROUP BY city"
    rows = json.loads(run(capsys, "answer", shop[1], statement, "--json")[1])["rows"]
    assert [row["city"] for row in rows] == ["Oslo", "Rome"]
    whole = asked("city = 'Oslo' AND kind = 'tea'"), asked("city = 'Rome'")
    assert [row["count"] for row in rows] == pytest.approx(whole)
    assert all(row["count ±"] > 0 for row in rows)


@pytest.mark.parametrize(
    ("having", "kept"),
    [
        ("COUNT(*) > {0}", lambda count, mean: count > 0),
        ("{0} >= n", lambda count, mean: count <= 0),
        ("NOT n > {0}", lambda count, mean: count <= 0),
        ("COUNT(*) <> {0} AND city <> 'Rome'", lambda count, mean: count != 0),
        ("AVG(age) > {1}", lambda count, mean: mean > 0),
        ("AVG(age) NOT BETWEEN 0 AND {1} OR n < 0", lambda count, mean: mean > 0),
        ("n BETWEEN 0 AND {0}", lambda count, mean: count <= 0),
        ("city = 'Oslo' OR city = 'other'", lambda count, mean: True),
    ],
)
def test_having_and_offset_filter_what_the_model_answers(capsys, shop, having, kept):
    """Numbers and bars are those without HAVING; what it looks at need not be selected."""
    asked = "SELECT city, COUNT(*) AS n{} FROM joined GROUP BY city"
    whole = json.loads(run(capsys, "answer", shop[1], asked.format(", AVG(age) AS mean"), "--json")[1])["rows"]
    counts, means = ([row[name] for row in whole] for name in ("n", "mean"))
    middle = sorted(counts)[1], sorted(means)[1]
    statement = asked.format("") + " HAVING " + having.format(*middle)
    code, out, err = run(capsys, "answer", shop[1], statement, "--json")
    assert (code, err) == (0, "")
    cities = [c for c in ("Oslo", "Rome", "other") if "city" not in having or c != "Rome"]
    expected = [
        {name: row[name] for name in ("city", "n", "n ±")}
        for row in whole
        if row["city"] in cities and kept(row["n"] - middle[0], row["mean"] - middle[1])
    ]
    assert json.loads(out)["rows"] == expected
    _, out, _ = run(capsys, "answer", shop[1], f"{statement} LIMIT 1 OFFSET 1", "--json")
    assert json.loads(out)["rows"] == expected[1:2]


def test_averages_are_shown_with_the_digits_that_their_bars_leave(capsys, shop):
    """An average of 2.513 ± 0.048 is not shown as 2.5; counts with long bars stay whole numbers."""
    answers = Answers((), ("mean", "count"), (((), (42.51342, 1234.5), (0.04812, 25.0)),), 0.9)
    printing.show_answers(answers)
    assert capsys.readouterr().out.split()[-4:] == ["42.513", "0.048", "1,234", "25"]


def test_sums_over_the_rows_are_numbers(capsys, shop):
    """DuckDB adds whole numbers up to decimals; people see digits in groups, programs a number and no text."""
    statement = "SELECT SUM(price * 1000) AS large, SUM(price * 0.5) AS half FROM joined"
    _, out, _ = run(capsys, "answer", shop[1], statement)
    assert "," in out.split()[-2]
    _, out, _ = run(capsys, "answer", shop[1], statement, "--json")
    (row,) = json.loads(out)["rows"]
    assert row["large"] == 2000 * row["half"] > 0
    assert isinstance(row["large"], int)


def test_answer_without_known_bars_says_so(capsys, shop):
    """Attributes that were never measured together have answers and no bars."""
    _, out, err = run(capsys, "answer", shop[1], "SELECT city, kind, price, COUNT(*) FROM joined GROUP BY ALL LIMIT 2")
    assert "?" in out
    assert "never measured together" in err


def test_answer_reads_stdin(capsys, shop, monkeypatch):
    """A dash stands for standard input."""
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT COUNT(*) FROM joined"))
    assert json.loads(run(capsys, "answer", shop[1], "-", "--json")[1])["rows"][0]["count"] > 0


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT ctiy, COUNT(*) FROM joined GROUP BY 1", "did you mean 'city'?"),
        ("SELECT nothing(1) FROM joined", "nothing"),
        ("SELECT STDDEV(city) FROM joined", "only COUNT(*), SUM(column) and AVG(column) can (the synth"),
        ("SELECT MEDIAN(price) FROM joined j WHERE j.Age = '[18, 66)'", "'[18, 66)' is not a bin of 'age'"),
        ("SELECT MAX(CASE WHEN age = 'old' THEN 1 END) FROM joined", "compare their bins in age_bin"),
        ("SELECT AVG(city) FROM joined", "'city' is not numeric and cannot be averaged; ask SELECT city, COUNT(*)"),
        (
            "SELECT COUNT(*) FROM joined WHERE (city = 'Oslo' AND city = 'Rome') OR (age < 18 AND age >= 65)",
            "nothing sat",
        ),
        ("SELECT SUM(age) FROM joined WHERE ctiy = 'Oslo' OR kind = 'tea'", "did you mean 'city'?"),
        ("SELECT AVG(day) FROM joined", "'day' is a key that no query can look at"),
        ("SELECT city + 1 FROM joined", "expressions cannot be asked; select columns, COUNT(*)"),
        ("SELECT COUNT(*) FROM visits", "the only table is joined"),
        ("SELECT * FROM read_csv('/etc/hosts')", "SQL"),
        ("DROP TABLE joined", "SQL"),
    ],
)
def test_answer_mistakes(capsys, shop, statement, words):
    """A wrong question is one line and exit code 2."""
    code, out, err = run(capsys, "answer", shop[1], statement)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err
    assert "Error:" not in err


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_synthesize(capsys, shop, tmp_path, suffix):
    """Rows are written once, the same for the same seed, and an existing file is kept."""
    files = [tmp_path / f"{name}.{suffix}" for name in "abc"]
    for file, seed in zip(files, (7, 7, 8), strict=True):
        code, out, err = run(capsys, "synthesize", shop[1], "--rows", 50, "--seed", seed, "-o", file)
        assert (code, out) == (0, "")
        assert "50 rows" in err
    read = pyarrow.csv.read_csv if suffix == "csv" else pq.read_table
    first, same, different = (read(f) for f in files)
    assert first.num_rows == 50
    assert first.column_names == ["age", "city", "price", "kind"]
    assert first.equals(same)
    assert not first.equals(different)
    code, _, err = run(capsys, "synthesize", shop[1], "--rows", 50, "-o", files[0])
    assert code == 2
    assert "exists already" in err
    assert sorted(tmp_path.iterdir()) == files


def test_synthesize_refuses_other_formats(capsys, shop, tmp_path):
    """The extension decides the format, and an unknown one is refused before anything is drawn."""
    code, _, err = run(capsys, "synthesize", shop[1], "--rows", 5, "-o", tmp_path / "rows.xlsx")
    assert code == 2
    assert ".parquet or .csv" in err


def test_evaluate_is_marked_private(capsys, shop, tmp_path):
    """True errors are labelled PRIVATE on the screen, in JSON and in the file, which only the user can read."""
    code, out, err = run(capsys, "evaluate", *shop)
    assert code == 0
    assert "PRIVATE" in err
    assert "answers and error bars of each group" in err
    assert "PRIVATE" in out
    assert "covered" in out
    code, out, _ = run(capsys, "evaluate", *shop, "--json")
    assert "PRIVATE" in json.loads(out)
    file = tmp_path / "errors.json"
    code, out, err = run(capsys, "evaluate", *shop, "-o", file)
    assert (code, out) == (0, "")
    assert "PRIVATE" in json.loads(file.read_text())
    assert file.stat().st_mode & 0o077 == 0
    assert run(capsys, "evaluate", *shop, "-o", file)[0] == 2


def test_evaluate_refuses_another_spec(capsys, shop, tmp_path):
    """A release is compared only with tables described as when it was made."""
    other = make_shop(tmp_path, spec=SPEC.replace("[0, 18, 65, 120]", "[0, 18, 70, 120]"))
    code, _, err = run(capsys, "evaluate", other, shop[1])
    assert code == 2
    assert "another spec" in err


def test_a_closed_pipe_is_not_an_error(shop):
    """`dpjoin answer … | head` ends quietly."""
    command = f"{sys.executable} -m dpjoin.cli.commands answer {shop[1]} 'SELECT * FROM joined' | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert "Error" not in done.stderr


def test_importing_is_quick():
    """`import dpjoin` loads nothing heavy."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import dpjoin"], check=True)
    assert time.perf_counter() - start < 5
