"""docs/paper.md: every numbered thing of the paper has a row, and every row names code and tests that exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from support.paper_labels import FIXTURE, PAPER, numbered
from support.paths import ROOT

PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")


REPORT = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")


THINGS = json.loads(FIXTURE.read_text(encoding="utf-8"))


CODE, TEST = re.compile(r"`(dpjoin(?:\.\w+)+):(\w+(?:\.\w+)?)`"), re.compile(r"`(test_\w+)::(test_\w+)`")


def rows() -> dict[tuple[str, str, str], str]:
    """(kind, number, label) and the rest of each row of the page's table."""
    found = re.findall(r"^\| (\w+) ?([\w.]*) \| (?:`([\w:-]+)`)? ?\| (.*) \|$", PAGE, flags=re.MULTILINE)
    return {(kind.lower(), number, label): rest for kind, number, label, rest in found}


@cache
def paper_tests(name: str) -> frozenset[str]:
    """The tests of a file that `pytest -m paper` runs: those in the folder."""
    tree = ast.parse((ROOT / "tests" / "paper" / f"{name}.py").read_text(encoding="utf-8"))
    return frozenset(n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_"))


@pytest.mark.parametrize("thing", THINGS, ids=lambda t: t["label"] or t["number"])
def test_every_numbered_thing_has_a_row_with_code_and_a_test(thing: dict[str, str]) -> None:
    """Where it is in the code, and which test of `pytest -m paper` shows it."""
    row = rows()[thing["kind"], thing["number"], thing["label"]]
    assert CODE.search(row)
    assert TEST.search(row)


def test_no_row_is_about_nothing() -> None:
    """Each row is a numbered thing of the paper."""
    assert set(rows()) == {(t["kind"], t["number"], t["label"]) for t in THINGS}


def test_the_code_that_the_pages_name_exists() -> None:
    """Module and attribute."""
    for module, name in {*CODE.findall(PAGE), *CODE.findall(REPORT)}:
        found: object = importlib.import_module(module)
        for part in name.split("."):
            assert hasattr(found, part), f"{module}:{name}"
            found = getattr(found, part)


def test_the_tests_that_the_pages_name_exist_and_are_run_by_the_marker() -> None:
    """And every correction's test is named on the page."""
    for file, name in {*TEST.findall(PAGE), *TEST.findall(REPORT)}:
        assert name in paper_tests(file), f"{file}::{name}"
    named = {name for file, name in TEST.findall(PAGE) if file == "test_paper_corrections"}
    assert named == set(paper_tests("test_paper_corrections"))


@pytest.mark.skipif(not PAPER.exists(), reason="the paper's source is not beside the repository")
def test_the_committed_labels_are_the_papers() -> None:
    """Labels, kinds and numbers as parsed from paper.tex."""
    assert numbered(PAPER.read_text(encoding="utf-8")) == THINGS


def test_labels_are_read_as_latex_numbers_them() -> None:
    """A small source: inputs in order, skipped branches, comments, an appendix."""
    source = (
        "%% file: main.tex\n\\begin{document}\\input{one}\\appendix\\section{Z}\\label{z}\\begin{lemma}\\end{lemma}\n"
        "%% file: one.tex\n\\section{A}\\begin{theorem}\\label{t}\\end{theorem} % \\label{no}\n"
        "\\ifbeforepasinchange\\begin{theorem}\\label{u}\\end{theorem}\\else\\begin{lemma}\\label{u}\\end{lemma}\\fi\n"
        "\\begin{figure}\\caption{x}\\label{f}\\end{figure}\\subsection{B}\\label{s}\n"
    )
    found = [(t["kind"], t["number"], t["label"]) for t in numbered(source)]
    assert found == [
        ("theorem", "1.1", "t"),
        ("lemma", "1.2", "u"),
        ("figure", "1", "f"),
        ("section", "1.1", "s"),
        ("section", "A", "z"),
        ("lemma", "A.1", ""),
    ]


def test_the_python_on_the_page_runs() -> None:
    """The example of `bounds`, as it stands."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    exec(code, {})


def test_the_numbers_on_the_page_are_those_of_the_results() -> None:
    """Every row of measured exponents and errors that the page shows is one of the pages that the commands write."""
    made = "".join((ROOT / "docs" / "figures" / f"theory-{name}.md").read_text() for name in ("results", "between"))
    written = {tuple(re.findall(NUMBER, line)) for line in made.splitlines() if line.startswith("|")}
    shown = re.search(
        r"^### Exponents\n(.*?)^### Where.*?^### Between[^\n]*\n(.*?)^### Time", PAGE, re.DOTALL | re.MULTILINE
    )
    assert shown is not None
    rows = [re.findall(NUMBER, line) for part in shown.groups() for line in part.splitlines() if line.startswith("| ")]
    measured = [row for row in rows if len(row) >= 7]
    assert len(measured) >= 25
    for row in measured:
        assert any(is_within(row, other) for other in written), row


NUMBER = r"[+-]?\d[\d,.]*(?=[ ,|]|$)"


def is_within(row: list[str], other: tuple[str, ...]) -> bool:
    """Whether the numbers occur in the other row in this order: the page leaves out some columns."""
    rest = iter(other)
    return all(any(value_of(number) == value_of(found) for found in rest) for number in row)


def value_of(number: str) -> float:
    return float(number.replace(",", ""))


def test_the_report_becomes_a_pdf_or_says_what_to_install(tmp_path: Path) -> None:
    """With Chromium a PDF of several pages; without any browser one line that names it."""
    tool, target = [sys.executable, str(ROOT / "tools" / "report.py")], tmp_path / "report.pdf"
    none = subprocess.run(tool, env={"PATH": ""}, capture_output=True, text=True, check=False)
    assert none.returncode == 1
    assert "apt-get install chromium" in none.stdout
    done = subprocess.run([*tool, "--to", str(target)], capture_output=True, text=True, check=False)
    if done.returncode:
        assert "Chromium" in done.stdout
    else:
        assert target.read_bytes().startswith(b"%PDF")


def test_the_theory_stays_small() -> None:
    """At most 800 lines of code, as `tools/lines.py` counts them."""
    spec = importlib.util.spec_from_file_location("lines", ROOT / "tools" / "lines.py")
    assert spec is not None
    assert spec.loader is not None
    lines = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(lines)
    assert sum(lines.count(ROOT / "src" / "dpjoin" / "theory").values()) <= 800
