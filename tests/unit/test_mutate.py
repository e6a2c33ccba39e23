"""The tool that breaks proved definitions, on a toy package: it names the test that notices, or says that none does."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

TOOLS = ROOT / "tools"


CODE = '''"""Toy."""

from functools import lru_cache

STEPS = 8


def checked(x: int) -> int:
    """x, which must not be negative."""
    if x < 0:
        raise ValueError("x must not be negative")
    return x


def unseen(x: int) -> int:
    if x < 0:
        raise ValueError("x must not be negative")
    return x + 1


@lru_cache
def sorted_pair(x: int, y: int) -> tuple[int, int]:
    least = min(x, y)
    return least, max(x, y)


def endless(n: int) -> int:
    while n > 0:
        n = n - 1
    return n
'''


TESTS = """
import pytest

from toy.core import STEPS, checked, endless, sorted_pair, unseen


def steps():
    return STEPS


def test_checked():
    assert checked(3) == 3
    with pytest.raises(ValueError):
        checked(-1)


def test_the_rest():
    assert unseen(1) == 2
    assert sorted_pair(2, 1) == (1, 2)
    assert endless(2) == 0
"""


NAMES = ("checked", "unseen", "sorted_pair", "endless", "STEPS")


REVIEWED = """
[[equivalent]]
definition = "toy.core.sorted_pair"
mutant = "min(x, y) -> max(x, y)"
reason = "A toy."
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src" / "toy").mkdir(parents=True)
    (tmp_path / "src" / "toy" / "__init__.py").write_text("")
    (tmp_path / "src" / "toy" / "core.py").write_text(CODE)
    (tmp_path / "PROOFS.md").write_text("".join(f"<!-- proves toy.core.{name} sha256:0 -->\n" for name in NAMES))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_core.py").write_text(TESTS)
    (tmp_path / "reviewed.toml").write_text(REVIEWED)
    return tmp_path


def mutate(project: Path, *more: str) -> str:
    command = [sys.executable, str(TOOLS / "mutate.py"), "--root", str(project), "--proofs", "PROOFS.md"]
    command += ["--reviewed", "reviewed.toml", "--page", str(project / "page.md"), "--grace", "1", *more]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_caught_survived_and_reviewed(project: Path) -> None:
    """A guard that a test trips is caught, one that none trips survives, a reviewed mutant gives way to the next."""
    lines = {line.split(" | ")[0].removeprefix("toy.core."): line for line in mutate(project).splitlines()}
    assert lines["checked"].endswith("if x < 0: raise -> nothing | fails: tests/test_core.py::test_checked")
    assert lines["unseen"].endswith("if x < 0: raise -> nothing | SURVIVED 1 of 1 tests")
    assert "max(x, y) -> min(x, y) | fails: tests/test_core.py::test_the_rest" in lines["sorted_pair"]
    assert "n - 1 -> n | does not end: tests/test_core.py::test_the_rest" in lines["endless"]
    assert "8 -> 8 // 16 | SURVIVED 0 of 0 tests" in lines["STEPS"]
    assert "3 of 5 caught; without a mutant: none" in lines
    page = (project / "page.md").read_text()
    assert "Caught by a test: 3 of 5 definitions (60.0 %)." in page
    assert "- `toy.core.unseen`: `if x < 0: raise -> nothing`" in page
    assert "- `toy.core.sorted_pair`: `min(x, y) -> max(x, y)`. A toy." in page
    assert (project / "src" / "toy" / "core.py").read_text() == CODE


def test_all_mutants_of_some_definitions(project: Path) -> None:
    """--all lists every mutant, --only restricts them, --list runs nothing."""
    listed = mutate(project, "--only", "unseen", "--all", "--list").splitlines()
    assert [line.split(" | ")[1] for line in listed] == [
        "guard",
        "unit",
        "comparison",
        "term",
        "literal",
        "literal",
        "result",
    ]


def test_operators_weaken() -> None:
    """Rounding, extremes, factors, filters and skipped calls, one line for each."""
    found = runpy.run_path(str(TOOLS / "mutants.py"))["mutants"]
    code = "def f(x, y):\n    charge(x)\n    z = -(-whole(x) // y) * 2\n    return [ceil(z) for n in y if not n <= 0]\n"
    texts = {m.text for m in found("f", ast.parse(code).body[0], canonical=frozenset({"whole"}))}
    assert {
        "charge(x) -> nothing",
        "whole(x) -> x",
        "-(-whole(x) // y) -> whole(x) // y",
        "-(-whole(x) // y) * 2 -> -(-whole(x) // y)",
        "ceil(z) -> floor(z)",
        "if not n <= 0 in a comprehension -> nothing",
        "not n <= 0 -> n <= 0",
        "n <= 0 -> n < 0",
    } <= texts


def test_every_reviewed_mutant_exists() -> None:
    """The list of mutants that do not count speaks of the code as it is, and gives a reason for each."""
    tool = runpy.run_path(str(TOOLS / "mutate.py"), run_name="mutate")
    root = TOOLS.parent
    reviewed = tool["Reviewed"].read(TOOLS / "mutants.toml")
    assert all(reviewed.reasons.values())
    assert reviewed.stale(tool["Project"](root, root / "src" / "dpjoin" / "privacy" / "PROOFS.md")) == []
