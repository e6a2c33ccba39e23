"""Tables released without a spec, and releases that could not be written."""

from __future__ import annotations

import errno
import json
import os
import resource
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import dpjoin
from dpjoin.cli import journal
from dpjoin.cli.journal import journal_of, spent
from dpjoin.released import kept as keeping
from support.shop import journal_lines, make_shop, offers, run, visits


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    """Two CSV files of which nothing must be told: booleans and dates."""
    rng = np.random.default_rng(3)
    for name, rows in (("stays", 900), ("guests", 300)):
        table = {
            "guest_id": rng.integers(0, 300, rows),
            f"paid_{name}": rng.random(rows) < 0.5,
            f"from_{name}": pa.array(rng.integers(18000, 19000, rows).astype(np.int32), pa.date32()),
        }
        pyarrow.csv.write_csv(pa.table(table), tmp_path / f"{name}.csv")
    return [tmp_path / "stays.csv", tmp_path / "guests.csv"]


def test_tables_are_released_without_a_spec(capsys: Any, tables: list[Path], tmp_path: Path) -> None:
    """One command; the spec that it used is in the folder, with its hash, and evaluates the release."""
    out = tmp_path / "out"
    code, shown, err = run(capsys, "release", *tables, "--on", "guest_id", "--epsilon", 2, "-o", out)
    assert code == 0, err
    assert "safe to publish" in " ".join(shown.split())
    assert "joins on     guest_id" in err
    assert "epsilon 2, delta 1e-06" in err
    spec = tomllib.loads((out / "spec.toml").read_text())
    assert spec["privacy"] == {"epsilon": 2.0, "delta": 1e-6}
    assert {t["source"] for t in spec["tables"].values()} == {"../stays.csv", "../guests.csv"}
    assert "spec.toml" in json.loads((out / "manifest.json").read_text())["sha256"]
    assert dpjoin.load(out).attributes == ("paid_stays", "from_stays", "paid_guests", "from_guests")
    code, shown, _ = run(capsys, "evaluate", out / "spec.toml", out)
    assert code == 0
    assert "Join size off by" in shown


def test_what_was_released_without_a_spec_is_counted(capsys: Any, tables: list[Path], tmp_path: Path) -> None:
    """The journal is beside the folder, and a release of the same tables into another one adds up."""
    how = ("--on", "guest_id", "--epsilon", 1)
    run(capsys, "release", *tables, *how, "-o", tmp_path / "out")
    assert [e["what"] for e in journal_lines(tmp_path / "out.toml")] == ["begun", "finished"]
    _, _, err = run(capsys, "release", *tables, *how, "--delta", 1e-7, "-o", tmp_path / "again")
    assert "already released once" in err
    assert "epsilon 2, delta 1.1e-06 (out.ledger.jsonl)" in err


def test_folders_elsewhere_are_not_published(capsys: Any, tables: list[Path], tmp_path: Path) -> None:
    """A spec in a release names no folder but those beside the release."""
    out = tmp_path / "public" / "out"
    code, _, err = run(capsys, "release", *tables, "--on", "guest_id", "--epsilon", 1, "-o", out)
    assert code == 0
    assert "names stays.csv, guests.csv without the folder" in err
    text = (out / "spec.toml").read_text()
    assert {t["source"] for t in tomllib.loads(text)["tables"].values()} == {"stays.csv", "guests.csv"}
    assert tmp_path.name not in "".join(f.read_text() for f in out.iterdir() if f.suffix in (".toml", ".json", ".md"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stays.csv", "guests.csv"], "--epsilon is missing"),
        (["stays.csv", "guests.csv", "--epsilon", "1", "--unit", "gest_id"], "did you mean 'guest_id'"),
        (["stays.csv", "guests.csv", "--epsilon", "1", "--on", "gest_id"], "did you mean 'guest_id'"),
        (["stays.csv", "guests.csv", "--epsilon", "-1"], "epsilon (-1.0) must be greater than 0"),
        (["stays.csv", "no.csv", "--epsilon", "1"], "no.csv: the file does not exist"),
        (["a.toml", "guests.csv"], "tables cannot stand beside it"),
        (["a.toml", "--epsilon", "1"], "--epsilon cannot stand beside it"),
    ],
)
def test_wrong_tables_spend_nothing(
    capsys: Any, tables: list[Path], tmp_path: Path, monkeypatch: Any, arguments: list[str], words: str
) -> None:
    """One line, exit code 2, and neither a folder nor a journal."""
    monkeypatch.chdir(tmp_path)
    code, shown, err = run(capsys, "release", *arguments, "-o", "out")
    assert (code, shown) == (2, "")
    assert words in err.splitlines()[-1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["guests.csv", "stays.csv"]


# -- releases that could not be written -----------------------------------------------------------------


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """No file may become larger: to those who write, a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def _refused(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_release_that_did_not_fit_is_written_again_for_nothing(capsys: Any, tmp_path: Path) -> None:
    """The rows are too large for the disk, the model is not: it is kept, and one command writes it elsewhere."""
    spec = make_shop(tmp_path, first=visits(6_000), second=offers(1_500))
    with small_files(250_000):
        code, shown, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert (code, shown) == (2, "")
    kept = tmp_path / "out.unwritten"
    assert f"dpjoin resume {kept} -o DIR" in err.splitlines()[-1]
    assert "counts as spent" not in err
    assert not (tmp_path / "out").exists()
    code, shown, err = run(capsys, "resume", kept, "-o", tmp_path / "again")
    assert code == 0, err
    assert "safe to publish" in " ".join(shown.split())
    assert not kept.exists()
    assert dpjoin.load(tmp_path / "again").synthetic.equals(pq.read_table(tmp_path / "again" / "synthetic.parquet"))
    assert spent(journal_of(spec)).times == 1
    assert run(capsys, "evaluate", spec, tmp_path / "again")[0] == 0


def test_what_was_kept_has_the_spec_of_tables(
    capsys: Any, tables: list[Path], tmp_path: Path, monkeypatch: Any
) -> None:
    """Also without a spec file; where the first place is full, too, the next one is taken."""
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    mkdir = Path.mkdir
    with monkeypatch.context() as full:
        full.setattr(pq, "write_table", _refused)
        full.setattr(
            Path, "mkdir", lambda self, *a, **k: _refused() if self.parent == tmp_path / "p" else mkdir(self, *a, **k)
        )
        (tmp_path / "p").mkdir()
        out = tmp_path / "p" / "out"
        code, _, err = run(capsys, "release", *tables, "--on", "guest_id", "--epsilon", 1, "-o", out)
    kept = elsewhere / "out.unwritten"
    assert code == 2
    assert f"dpjoin resume {kept}" in err
    assert run(capsys, "resume", kept, "-o", tmp_path / "again")[0] == 0
    assert "spec.toml" in json.loads((tmp_path / "again" / "manifest.json").read_text())["sha256"]
    assert list(elsewhere.iterdir()) == []


def test_what_can_be_kept_nowhere_is_spent(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Then, and only then, the budget is gone, and the line says so."""
    spec = make_shop(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(np, "savez_compressed", _refused)
        code, _, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert code == 2
    assert "kept nowhere, and the budget counts as spent" in err.splitlines()[-1]
    assert not list(tmp_path.glob("*.unwritten"))


def test_nothing_is_kept_of_a_release_that_was_written(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """What is kept is there before the folder is written, and gone after it."""
    spec, seen = make_shop(tmp_path), []
    write = pq.write_table
    monkeypatch.setattr(pq, "write_table", lambda *a, **k: (seen.extend(tmp_path.glob("*.unwritten")), write(*a, **k)))
    assert run(capsys, "release", spec, "-o", tmp_path / "out")[0] == 0
    assert [p.name for p in seen] == ["out.unwritten"]
    assert not seen[0].exists()


def test_a_journal_that_cannot_be_written_spends_nothing(capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """And says so; nor does it matter if only the last line is missing."""
    spec = make_shop(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", _refused)
        code, _, err = run(capsys, "release", spec, "-o", tmp_path / "out")
    assert code == 2
    assert "nothing was spent" in err.splitlines()[-1]
    assert "counts as spent" not in err
    journal_of(spec).unlink()
    append = journal._append
    with monkeypatch.context() as late:
        late.setattr(journal, "_append", lambda file, e: append(file, e) if e["what"] == "begun" else _fails())
        assert run(capsys, "release", spec, "-o", tmp_path / "out")[0] == 0
    assert dpjoin.load(tmp_path / "out").join_size > 0


def _fails() -> None:
    raise dpjoin.ReleaseError("no more lines")


def test_resume_takes_what_was_kept_only(capsys: Any, tmp_path: Path) -> None:
    """A folder that was written needs no resume, and nothing of the user's is removed."""
    spec = make_shop(tmp_path)
    run(capsys, "release", spec, "-o", tmp_path / "out")
    code, _, err = run(capsys, "resume", tmp_path / "out", "-o", tmp_path / "again")
    assert code == 2
    assert "is written already" in err
    assert run(capsys, "resume", tmp_path, "-o", tmp_path / "again")[0] == 2
    keeping.forget(tmp_path / "out")
    assert (tmp_path / "out" / "manifest.json").exists()
