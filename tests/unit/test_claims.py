"""What is settled before anything is spent: whose folder it is, whether it can be written down, how large delta is."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dpjoin
from dpjoin.cli.writing import claimed
from dpjoin.engine.sources import open_source
from dpjoin.engine.sources.connections import connected
from dpjoin.engine.sources.opened import unreadable
from dpjoin.errors import ReleaseError, SourceError
from dpjoin.spec.warnings import delta_warning
from support.shop import SPEC, journal_lines, make_shop, run


def test_the_second_release_to_one_folder_is_refused_at_its_start(capsys, tmp_path):
    """While one is on its way, by whatever name of the folder; it spends nothing, and leaves nothing behind."""
    spec = make_shop(tmp_path)
    with claimed(tmp_path / "out"):
        before = sorted(tmp_path.iterdir())
        for place in (tmp_path / "out", tmp_path / ".." / tmp_path.name / "out"):
            code, out, err = run(capsys, "release", spec, "-o", place)
            assert (code, out) == (2, "")
            assert "another release is on its way there, so this one spent nothing; choose another with -o" in err
            assert "counts as spent" not in err
        assert sorted(tmp_path.iterdir()) == before
        with claimed(tmp_path / "other"):
            pass
    assert journal_lines(spec) == []
    assert run(capsys, "release", spec, "-o", tmp_path / "out")[0] == 0
    assert not list(tmp_path.glob(".dpjoin-*"))
    with pytest.raises(ReleaseError, match="another release is on its way"), claimed(tmp_path / "out"):
        pass


def test_a_killed_release_claims_nothing(tmp_path):
    """The system takes the lock back, so that the file of a killed process stops nobody."""
    lines = ["import os", "from pathlib import Path", "from dpjoin.cli.writing import claimed"]
    code = "\n".join([*lines, f"with claimed(Path({str(tmp_path / 'out')!r})): os._exit(9)"])
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert len(list(tmp_path.glob(".dpjoin-*.lock"))) == 1
    with claimed(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_journal_that_cannot_be_written_spends_nothing(capsys, tmp_path, monkeypatch):
    """It is the first thing that is written, and the line says that nothing was spent."""
    spec = make_shop(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    code, _, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    monkeypatch.undo()
    assert code == 2
    assert "the journal cannot be written (No space left on device)" in err
    assert "nothing was spent" in err
    assert "counts as spent" not in err
    assert not (tmp_path / "out").exists()


def test_a_large_delta_is_warned_about(capsys, tmp_path):
    """By itself above 0.01; for a number of rows that somebody says, above one over it. Nobody counts rows for it."""
    spec = make_shop(tmp_path)
    assert "warning" not in run(capsys, "plan", spec)[2]
    assert (
        "delta (1e-06) is above one over the number of rows (3,000,000)"
        in run(capsys, "plan", spec, "--rows", 3_000_000)[2]
    )
    assert "warning" not in run(capsys, "plan", spec, "--rows", 999_999)[2]
    spec.write_text(SPEC.replace("delta = 1e-6", "delta = 1e-6\nrows = 2_000_000"))
    assert "choose 5e-08 or less" in run(capsys, "plan", spec)[2]
    loaded = dpjoin.Spec.from_toml(spec)
    assert dpjoin.Spec.from_dict(tomllib.loads(loaded.to_toml())).rows == loaded.rows == 2_000_000
    spec.write_text(SPEC.replace("delta = 1e-6", "delta = 0.02"))
    code, _, err = run(capsys, "plan", spec)
    assert code == 0
    assert "delta (0.02) is above 0.01, so it would allow to publish one row in 50 as it is" in err
    assert delta_warning(0.01) is None
    large = dpjoin.Spec.from_toml(spec)
    with pytest.warns(dpjoin.DeltaWarning, match="one row in 50"):
        dpjoin.release(large.schema, large.workload, large.sources(), large.budget)


def test_the_single_table_method_can_be_named(capsys, tmp_path):
    """The names that plans and releases print are the names that specs take."""
    spec = make_shop(tmp_path)
    text = SPEC.replace('[tables.offers]\nsource = "offers.parquet"\nattributes = ["day", "price", "kind"]\n', "")
    text = text[: text.index("[attributes.price]")] + "[workload]\nmarginals = 1\n"
    spec.write_text(text.replace("[privacy]", '[release]\nmethod = "single_table"\n[privacy]'))
    code, out, _ = run(capsys, "plan", spec, "--json")
    assert (code, '"method": "single_table"' in out) == (0, True)
    made = dpjoin.Spec.from_toml(spec)
    assert (
        dpjoin.release(made.schema, made.workload, made.sources(), made.budget, method="single_table").method
        == "single_table"
    )


CAUSES = {
    "permission denied; make it readable": PermissionError(13, "Permission denied"),
    "another process has it open for writing": OSError("IO Error: Could not set lock on file x: Conflicting lock"),
    "the disk is full": OSError(28, "No space left on device"),
    "there is not enough memory": MemoryError(),
    "another version of DuckDB wrote it": ValueError(
        "Trying to read a database file with version number 99: storage version"
    ),
    "it is damaged, or of another kind": ValueError("row 3 holds Secretville"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_an_unreadable_file_has_a_cause(cause):
    """In fixed words, without a word of the reader's; once rows are read, only the kind of error tells."""
    with pytest.raises(SourceError) as caught, unreadable("t", "file 'x'", "Parquet"):
        raise CAUSES[cause]
    assert str(caught.value).startswith(f"table 't': file 'x' cannot be read as Parquet data: {cause}")
    assert "Secretville" not in str(caught.value)
    with pytest.raises(SourceError) as caught, unreadable("t", "file 'x'", "complete", rows=True):
        raise ValueError("permission denied: a row that says so")
    assert "permission" not in str(caught.value)


def test_a_file_that_nobody_may_read(tmp_path, monkeypatch):
    """The cause is said where it is known: here, of a path whose folder is closed."""
    (tmp_path / "a.csv").write_text("k\n1\n")

    def closed(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", closed)
    monkeypatch.setattr(Path, "is_dir", lambda _: False)
    with connected() as connection, pytest.raises(SourceError, match="permission denied; make it readable for you"):
        open_source(connection, "t", tmp_path / "a.csv")


def test_questions_that_nobody_answers_end_in_one_line(capsys, tmp_path, monkeypatch):
    """Input that ends is an error of the user's, and nothing is written."""
    make_shop(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, _, err = run(capsys, "init", tmp_path / "visits.parquet", "--interactive", "-o", tmp_path / "x.toml")
    assert code == 2
    assert err.splitlines()[-1] == "error: the input ended before all was asked; nothing was written"
    assert not (tmp_path / "x.toml").exists()
