"""How results are written: Markdown for people, JSON for programs, no dates."""

from __future__ import annotations

import json
import platform
import resource
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def command(script: str, *arguments: object) -> str:
    return " ".join(["python", f"benchmarks/{script}", *map(str, arguments)])


def versions(*more: str) -> str:
    """What the figures were made with. Packages that are not installed are left out."""
    found = [f"Python {platform.python_version()}", f"dpjoin {import_module('dpjoin').__version__}"]
    for name in ("numpy", "scipy", "duckdb", *more):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def number(value: float) -> str:
    """Three digits that matter."""
    if value == 0 or 0.001 <= abs(value) < 10:
        return f"{value:.4f}" if abs(value) < 1 else f"{value:.2f}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def peak_mb() -> float:
    """The largest memory this process has held, in megabytes.

    From /proc where there is one: a child's ru_maxrss starts at what its parent held when it was started.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def write(name: str, page: str, data: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(page, encoding="utf-8")
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
