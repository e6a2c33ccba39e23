"""The page about many rows says what was measured, and the numbers that the code has."""

from __future__ import annotations

import json

from dpjoin.engine.buckets import BUCKETS
from dpjoin.engine.memory import memory_of
from support.paths import ROOT

PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
RESULTS = ROOT / "benchmarks" / "results"


def test_figures_are_those_measured() -> None:
    table = [line for line in (RESULTS / "growth.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert len(table) > 3
    assert "\n".join(table) in PAGE
    largest = json.loads((RESULTS / "growth.json").read_text(encoding="utf-8"))["sizes"][-1]
    assert largest["rows"] == 10**8
    rate = largest["engine"]["processor_seconds"] / (2 * largest["rows"]) * 1e6
    assert f"{rate:.2f} microseconds of processor time" in PAGE


def test_numbers_are_those_of_the_code() -> None:
    rows = memory_of("4GB").rows_at_once(2)
    assert f"one bucket of {BUCKETS}" in PAGE
    assert abs(rows - 260_000) < 5_000
    assert f"{BUCKETS * rows / 1e8:.1f} x 10^8 rows in all" in PAGE
