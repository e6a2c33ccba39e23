"""`docs/bad-inputs.md`: what happens on 150 wrong inputs, made and compared by this test.

Each is run in this process, in a folder with a small shop and a release of it. It must leave with exit code 2 (in
Python: one of our errors) and one line, and leave the folder as it was: no journal, no file, nothing spent.
`pytest tests/docs/test_bad_inputs.py --update-goldens` writes the page anew.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import pytest

import dpjoin as dj
from support.bad_inputs import COMMANDS, PYTHON, Call, Case, shop_with_release
from support.paths import ROOT
from support.shop import run

PAGE = ROOT / "docs" / "bad-inputs.md"
HEAD = """\
# What happens on bad input

{count} wrong inputs, each with what dpjoin says. This page is made by `tests/docs/test_bad_inputs.py`, which runs them.
Every one leaves with exit code 2, or in Python with one of our errors, and says one line, without a traceback (`plan
--check` says one for each thing that is wrong). Where it was run, no file is left, changed or missing, no journal is
begun and no budget spent. Lines name files, keys, columns and types, and never a value of a private row.
"""
_said: dict[str, str] = {}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shop_with_release(tmp_path_factory.mktemp("bad"))


@pytest.fixture
def folder(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    inside = tmp_path / "shop"
    shutil.copytree(prepared, inside)
    monkeypatch.chdir(inside)
    return inside


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file of a folder with what it holds; folders hold nothing of their own."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


@pytest.mark.parametrize("case", COMMANDS, ids=lambda case: case.id)
def test_a_bad_command_is_refused(
    case: Case, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, one line, nothing left behind, nothing spent."""
    case.prepare(folder)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    before = contents(folder)
    code, out, err = run(capsys, *case.arguments)
    *notes, last = err.splitlines() or [""]
    assert (code, out) == (2, ""), err
    assert last.startswith("error: "), err
    # plan --check tells all that is wrong, a line each; warnings may go before an error.
    first = "error: " if "--check" in case.arguments else "warning: "
    assert all(note.startswith(first) for note in notes), err
    assert "Traceback" not in err
    assert "Secretville" not in err
    assert contents(folder) == before
    told = [line for line in err.splitlines() if line.startswith("error: ")]
    _said[case.id] = "\n".join(line.replace(f"{folder}/", "") for line in told)


@pytest.mark.parametrize("call", PYTHON, ids=lambda call: call.id)
def test_a_bad_call_is_refused(call: Call, folder: Path) -> None:
    """One of our errors, of one line, and nothing left behind."""
    before = contents(folder)
    with pytest.raises(dj.DpjoinError) as caught:
        call.run()
    said = str(caught.value)
    assert "\n" not in said
    assert "Secretville" not in said
    assert contents(folder) == before
    public = next(kind.__name__ for kind in type(caught.value).__mro__ if kind.__name__ in dj.__all__)
    _said[call.id] = f"{public}: {said.replace(f'{folder}/', '')}"


def test_the_page_says_what_happens(request: pytest.FixtureRequest) -> None:
    """All of it was just run; a message that changes changes the page."""
    wanted = [*COMMANDS, *PYTHON]
    if set(_said) != {c.id for c in wanted}:
        pytest.skip("runs with all cases only, in one process")
    assert len(wanted) >= 150
    assert len({c.id for c in wanted}) == len(wanted)
    made = page()
    if request.config.getoption("--update-goldens"):
        PAGE.write_text(made, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == made


def page() -> str:
    parts = [HEAD.format(count=len(COMMANDS) + len(PYTHON))]
    for verb in dict.fromkeys(case.verb for case in COMMANDS):
        parts.append(f"\n## {verb}\n\n| input | exit | says |\n|---|---|---|\n")
        parts += [_row(case.what, "2", _said[case.id]) for case in COMMANDS if case.verb == verb]
    parts.append("\n## Python\n\n| call | raises |\n|---|---|\n")
    parts += [_row(call.what, None, _said[call.id]) for call in PYTHON]
    return "".join(parts)


def _row(what: str, code: str | None, said: str) -> str:
    lines = "<br>".join(_cell(line) for line in said.splitlines())
    return f"| {_cell(what) if code is None else what} | {f'{code} | ' if code else ''}{lines} |\n"


def _cell(text: str) -> str:
    """Text as code in a table cell."""
    marks = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{marks}{pad}{text.replace('|', chr(92) + '|')}{pad}{marks}"
