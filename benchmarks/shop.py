"""The three-table page's example with more and with less declared: `python benchmarks/shop.py [--runs N] [--quick]`."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import dpjoin as dj
from dpjoin.spec.toml import Spec
from report import command, markdown_table, versions, write

PAGE = Path(__file__).resolve().parents[1] / "docs" / "three-tables.md"
WAYS = ("keys and max_degree", "keys", "nothing", "nothing, one noisy bound")


def spec_text(text: str, way: str) -> str:
    """The page's spec with what is declared in this way."""
    if way == "keys and max_degree":
        return re.sub(r"^# (max_degree)", r"\1", text, flags=re.MULTILINE)
    return text if way == "keys" else re.sub(r"^unique = .*$", "", text, flags=re.MULTILINE)


def measure(runs: int) -> dict[str, dict[str, Any]]:
    """The page's own code makes the tables, and its own spec is read: there is no second copy to keep in step."""
    page = PAGE.read_text(encoding="utf-8")
    code, text = (re.findall(rf"```{kind}\n(.*?)```", page, flags=re.DOTALL)[0] for kind in ("python", "toml"))
    found = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        exec(compile(code, str(PAGE), "exec"), {})
        for way in WAYS:
            Path("shop.toml").write_text(spec_text(text, way), encoding="utf-8")
            spec = Spec.from_toml("shop.toml")
            tables = {t.name: t.source for t in spec.schema.tables}
            method = "multi_table" if way == WAYS[-1] else "auto"
            made = [dj.release(spec.schema, spec.workload, tables, spec.budget, method=method) for _ in range(runs)]
            true = [dj.evaluate(m, tables) for m in made]
            bounds = [int(m.facts["sensitivity_bound"]) for m in made]
            found[way] = {
                "ran": sorted({m.method for m in made}),
                "bound": [min(bounds), max(bounds)],
                "tv": median(t.mean_total_variation or 0.0 for t in true),
                "off": median(t.join_size_error for t in true),
            }
            print(way, found[way], flush=True)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="once, nothing written")
    options = parser.parse_args(arguments)
    runs = 1 if options.quick else options.runs
    found = measure(runs)
    rows = [
        [
            way,
            ", ".join(f["ran"]),
            " to ".join(f"{b:,}" for b in dict.fromkeys(f["bound"])),
            f"{f['tv']:.3f}",
            f"{f['off']:,}",
        ]
        for way, f in found.items()
    ]
    head = ["declared", "ran", "bound", "mean total variation", "join size off by"]
    made = f"Made by `{command('shop.py', '--runs', runs)}` with {versions()}."
    told = f"{made} The tables and the spec of docs/three-tables.md."
    text = "\n\n".join(["# What to declare", told, markdown_table(head, rows)]) + "\n"
    if not options.quick:
        write("shop", text, {"runs": runs, "ways": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
