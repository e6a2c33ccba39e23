"""A newcomer with two tables of their own: the README's commands alone, held to a clock."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

import pytest

import dpjoin as dj
from support.newcomer import MADE_UP, REAL, Tables
from support.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
MINUTES = 5


def commands(tables: Tables) -> list[list[str]]:
    """Every `dpjoin` command of the README that is about the newcomer's own tables, with these instead."""
    lines = [line for line in README.splitlines() if re.match(r"dpjoin \w+ .*clinic", line)]
    instead = {"visits.csv": tables.files[0].name, "patients.csv": tables.files[1].name}
    found = []
    for line in lines:
        words = shlex.split(line, comments=True)
        words = [instead.get(w, w).replace("ward", tables.group) for w in words]
        if "--on" in words:
            words[words.index("--on") + 1] = tables.on
        found.append(words)
    return found


def walked(tables: Tables, folder: Path, dpjoin: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Run them one after the other, as they stand; what each verb printed, of the last time it ran."""
    said: dict[str, str] = {}
    for command in commands(tables):
        if command[1] == "release" and (folder / "clinic").exists():
            (folder / "clinic").rename(folder / "without a spec")  # the README's second way to the same folder
        done = subprocess.run(
            [dpjoin, *command[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        said[command[1]] = done.stdout + done.stderr
    return said


def held_to(folder: Path, said: Mapping[str, str], tables: Tables) -> None:
    """What a newcomer must have seen by then."""
    decided = said["init"].splitlines()
    assert len(decided) <= 24, "more than a screen of decisions"
    assert not any("fill in" in line for line in decided)
    spec = tomllib.loads((folder / "clinic.toml").read_text())
    assert not set(tables.missing) & set(spec["attributes"])
    assert "± 90 %" in said["answer"]
    assert "PRIVATE" in said["evaluate"]
    assert "Join size off by" in said["evaluate"]
    assert (folder / "without a spec" / "spec.toml").exists()
    assert len((folder / "rows.csv").read_text().splitlines()) == 1001


def test_the_readme_has_the_newcomers_commands() -> None:
    """Two on the first screen, release and answer; the others under a heading; none that the parser would not find."""
    tables = Tables((Path("a.csv"), Path("b.csv")), "id", "x")
    verbs = [c[1] for c in commands(tables)]
    assert verbs == ["release", "answer", "init", "plan", "release", "answer", "synthesize", "evaluate"]
    assert commands(tables)[0][2:] == ["a.csv", "b.csv", "--on", "id", "--epsilon", "1", "-o", "clinic"]
    assert "dpjoin release visits.csv" in README[: README.index("What `make demo` prints")]


@pytest.mark.parametrize("make", MADE_UP)
def test_a_newcomer_gets_there_with_the_readme_alone(make: Callable[[Path], Tables], tmp_path: Path) -> None:
    """In this environment: from two CSV files to an evaluated release, in a fraction of the five minutes."""
    tables = make(tmp_path)
    started = time.monotonic(), computed()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    said = walked(tables, tmp_path, str(Path(sys.executable).parent / "dpjoin"), environment)
    assert min(time.monotonic() - started[0], computed() - started[1]) < 60 * MINUTES / 2
    held_to(tmp_path, said, tables)
    assert "warning: keys" not in said["release"]


def example(folder: Path) -> str:
    """The README's example in Python, which writes into a folder of its own."""
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    return code.replace('"my-release"', repr(str(folder / "my-release")))


ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""
"""Modules of these names cannot be imported, as if they were not installed."""


def test_the_example_in_python_needs_no_more_than_dpjoin_does(tmp_path: Path) -> None:
    """It runs where the packages of the extras, pandas and Polars among them, cannot be imported."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.split(r"[\[<>=]", need)[0] for needs in extras.values() for need in needs} - {"dpjoin", "setuptools"}
    assert {"pandas", "polars"} <= names
    command = [sys.executable, "-c", f"names = {sorted(names)}\n{ABSENT}\n{example(tmp_path)}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "± 90 %" in done.stdout


def computed() -> float:
    """Seconds of processor time that commands took so far: what the clock would say on a machine with nothing else."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.full
@pytest.mark.parametrize("make", REAL)
def test_a_newcomer_gets_there_from_pip_install_on(make: Callable[[Path], Tables], tmp_path: Path) -> None:
    """Real data, a fresh environment, `pip install .`, the README's commands: five minutes all in all."""
    tables = make(tmp_path)
    started = time.monotonic(), computed()
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    fresh = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", str(fresh)], check=True, env=clean)
    pip = [str(fresh / "bin" / "python"), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt")]
    copy = tmp_path / "project"  # so that building leaves the project's folder as it is
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    subprocess.run([*pip, str(copy)], check=True, env=clean)
    said = walked(tables, tmp_path, str(fresh / "bin" / "dpjoin"), clean)
    took = time.monotonic() - started[0], computed() - started[1]
    held_to(tmp_path, said, tables)
    python = [str(fresh / "bin" / "python"), "-c", example(tmp_path)]
    done = subprocess.run(python, cwd=ROOT, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(f"{tables.files[0].name}: {took[0]:.0f} s, of which {took[1]:.0f} s of computing")
    assert min(took) < 60 * MINUTES, f"{took[0]:.0f} s, of which {took[1]:.0f} s of computing"


@pytest.mark.parametrize(
    ("make", "runs"), [(MADE_UP[1], 3), *(pytest.param(m, 9, marks=pytest.mark.full) for m in (*MADE_UP, *REAL))]
)
def test_learned_domains_cost_little(make: Callable[[Path], Tables], runs: int, tmp_path: Path) -> None:
    """The mean total variation is within 1.3 times that of releases that declare the domains that were learned."""
    tables = make(tmp_path)
    spec = tmp_path / "clinic.toml"
    command = [str(Path(sys.executable).parent / "dpjoin"), "init", *(str(f) for f in tables.files), "--on", tables.on]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([*command, "-o", str(spec)], check=True, capture_output=True, env=environment)
    asked = dj.Spec.from_toml(spec)
    sources = asked.sources()
    learned, declared = [], []
    for _ in range(runs):
        made = dj.release(asked.schema, asked.workload, sources, asked.budget)
        learned.append(dj.evaluate(made, sources).mean_total_variation or 0.0)
        again = dj.release(made.schema, made.workload, sources, made.budget)
        declared.append(dj.evaluate(again, sources).mean_total_variation or 0.0)
    assert median(learned) <= 1.3 * median(declared), json.dumps({"learned": learned, "declared": declared})
