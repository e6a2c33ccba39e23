"""Code and proof stay together, and the check that says so works."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

PRIVACY = ROOT / "src" / "dpjoin" / "privacy"


TOOL = ROOT / "tools" / "proofs.py"


CODE = '''
LIMIT = 3


def double(x: int) -> int:
    """Twice x."""
    return 2 * x


class Box:
    """A box."""

    def open(self) -> int:
        """Open it."""
        return LIMIT


def _hidden() -> None:
    pass


class Pair:
    """Two numbers."""

    left: int
'''


PROOFS = """# Proofs
<!-- proves dpjoin.privacy.sample.double sha256: -->
<!-- proves dpjoin.privacy.sample.Box sha256: -->
<!-- proves dpjoin.privacy.sample.Box.open sha256: -->
<!-- proves dpjoin.privacy.sample.LIMIT sha256: -->
<!-- proves dpjoin.privacy.sample._hidden sha256: -->
<!-- proves dpjoin.privacy.sample.Pair sha256: -->
"""


def run(action: str, root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), action, "--root", str(root)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "dpjoin" / "privacy"
    package.mkdir(parents=True)
    (package / "sample.py").write_text(CODE)
    (package / "PROOFS.md").write_text(PROOFS)
    assert run("--update", tmp_path).returncode == 0
    return tmp_path


def change(project: Path, old: str, new: str) -> None:
    path = project / "src" / "dpjoin" / "privacy" / "sample.py"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_proofs_fit_the_code() -> None:
    """Every public function of the privacy core is proved as it stands."""
    result = run("--check", ROOT)
    assert result.returncode == 0, result.stdout


def test_update_then_check_is_quiet(project: Path) -> None:
    """After --update nothing parts ways."""
    result = run("--check", project)
    assert (result.returncode, result.stdout) == (0, "")


def test_docstrings_comments_and_layout_do_not_count(project: Path) -> None:
    """Only code is hashed."""
    change(project, '"""Twice x."""', '"""Two times x."""  # said differently')
    change(project, "return 2 * x", "return (2  *  x)")
    assert run("--check", project).returncode == 0


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("2 * x", "3 * x", ["sample.double"]),
        ("return LIMIT", "return LIMIT + 1", ["sample.Box:", "sample.Box.open"]),
        ("LIMIT = 3", "LIMIT = 4", ["sample.LIMIT"]),
    ],
)
def test_changed_code_is_named(project: Path, old: str, new: str, names: list[str]) -> None:
    """A changed function, method, class or constant is printed and the check fails."""
    change(project, old, new)
    result = run("--check", project)
    assert result.returncode == 1
    assert result.stdout.count("changed since its proof was read") == len(names)
    assert all(name in result.stdout for name in names)


def test_missing_sections_are_named(project: Path) -> None:
    """A function without a line fails, private ones and methods too."""
    change(project, "def _hidden", "def _other")
    result = run("--check", project)
    assert result.returncode == 1
    assert "dpjoin.privacy.sample._other: no section in PROOFS.md" in result.stdout


def test_every_definition_of_ring_1_is_hashed() -> None:
    """Broken in any way, each hashed definition is named by the check: the hash covers all of its code."""
    tool = runpy.run_path(str(TOOL))
    source = ROOT / "src"
    recorded = {m["name"]: m["hash"] for m in tool["PROVES"].finditer((PRIVACY / "PROOFS.md").read_text())}
    assert {n for n in recorded if tool["current_hash"](n, source=source) != recorded[n]} == set()
    assert len(recorded) > 300
    for name in recorded:
        node = tool["definition"](name, source=source)
        before = tool["hash_of"](node)
        broken = ast.parse(ast.unparse(node)).body[0]
        if isinstance(broken, ast.FunctionDef | ast.ClassDef):
            broken.body = [*broken.body, ast.parse("x = 0").body[0]]
        else:
            broken = ast.parse("x = 0").body[0]
        assert tool["hash_of"](broken) != before, name


def test_update_does_not_invent_a_missing_section(project: Path) -> None:
    """--update records hashes and still fails for what has no proof."""
    change(project, "def _hidden", "def shown")
    assert run("--update", project).returncode == 1


def test_proofs_of_nothing_are_named(project: Path) -> None:
    """A proof whose function is gone fails."""
    change(project, "def double", "def _double")
    result = run("--check", project)
    assert result.returncode == 1
    assert "dpjoin.privacy.sample.double: proved, but not in the code" in result.stdout
