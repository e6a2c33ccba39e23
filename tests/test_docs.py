"""The README does what it says, and names nothing that is not there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.docs


def test_the_python_example_runs(tmp_path: Path) -> None:
    """The README's ten lines run as they stand, from the project's root."""
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    code = code.replace('"my-release"', repr(str(tmp_path / "my-release")))
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "sensitivity_bound" in done.stdout


def test_every_link_leads_somewhere() -> None:
    """Relative links in the README and the docs point at files of the project."""
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks" / "README.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("verb", ["init", "plan", "release", "answer", "synthesize", "evaluate", "demo"])
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    """`dpjoin VERB --help` ends with an example of that verb, and the README mentions it."""
    done = subprocess.run(
        [sys.executable, "-c", "from dpjoin.cli import main; main()", verb, "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert f"dpjoin {verb}" in done.stdout.split("Example")[-1]
    assert f"dpjoin {verb}" in README or f"make {verb}" in README


def test_import_is_light() -> None:
    """`import dpjoin` pulls in none of the heavy packages."""
    code = (
        "import sys, dpjoin; print([m for m in ('duckdb', 'scipy', 'pyarrow', 'pandas', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_benchmarks_run() -> None:
    """`benchmarks/run.py --quick` ends well, with or without the development data and the peers."""
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
