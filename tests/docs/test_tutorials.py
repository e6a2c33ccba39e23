"""The tutorials do what they say: their blocks run, one after the other; pieces of specs in all pages are ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dpjoin.spec.plain import KEYS
from support.paths import ROOT

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
PAGES = [*sorted((ROOT / "docs").glob("tutorial-*.md")), ROOT / "docs" / "paper.md"]
SPECS = [
    (page.stem, block)
    for page in sorted((ROOT / "docs").glob("*.md"))
    for block in re.findall(r"^```toml\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs(page: Path, tmp_path: Path) -> None:
    """As it stands, in the environment that runs the tests."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, call in (("dpjoin", " -m dpjoin"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{call} "$@"\n')
        (programs / name).chmod(0o755)
    place = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    (tmp_path / "work").mkdir()
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks
    for language, code in blocks:
        command = ["sh", "-euc", code] if language == "sh" else [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=tmp_path / "work", env=place, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{code}\n{done.stderr}"


@pytest.mark.parametrize(("page", "block"), SPECS, ids=[page for page, _ in SPECS])
def test_every_piece_of_a_spec_has_known_keys(page: str, block: str) -> None:
    """It is TOML, and a spec may hold what it shows."""
    for section, body in tomllib.loads(block).items():
        assert section in KEYS, page
        for part in body.values() if section in ("tables", "attributes") else [body]:
            assert set(part) <= set(KEYS[section]), page
