"""What half and twice each heuristic number do to `auto`: `benchmarks/constants.py [NAME …] [--runs N] [--rows N]`.

For each number of `dpjoin.constants`, the geometric mean over some rows of the error with half and with twice its value
over the error with it as it is. Rows are made-up pairs of `methods.py`, drawn anew, and small random pairs and chains
of `unseen.py`. All releases of a run draw from the same random bits, so that a number that nothing asks for has a ratio
of exactly one; others change which bits are used for what, and with few runs a ratio within about 0.1 of one says
nothing. `--write` puts the numbers that are named into benchmarks/results/constants.md, and leaves the others there.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sys
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

import dpjoin as dj
import methods
import unseen
from dpjoin import constants
from dpjoin.privacy import noise
from report import RESULTS, command, markdown_table, versions

SEED = 5_150_000
"""Of the made-up rows: not that of the committed page."""
RANDOM = {"pairs": (8000, 8001, 8002), "chains": (8100, 8101)}


def numbers() -> dict[str, Any]:
    """Every constant by name, in the order of the file."""
    names = [
        target.id
        for node in ast.parse(Path(str(constants.__file__)).read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in ast.walk(node.targets[0])
        if isinstance(target, ast.Name)
    ]
    return {name: getattr(constants, name) for name in names}


def scaled(value: Any, factor: Fraction) -> Any:
    """Shares stay below one, whole numbers whole and at least one; of a grid every point is scaled."""
    if isinstance(value, tuple):
        if min(value) > 1:  # multiples of something: what they have beyond one
            return tuple(float(1 + (v - 1) * factor) for v in value)
        most = 1.0 if max(value) <= 1 else math.inf
        return tuple(min(most, float(v * factor)) for v in value)
    if isinstance(value, Fraction):
        return min(value * factor, Fraction(19, 20))
    return max(1, int(value * factor)) if isinstance(value, int) else float(value * factor)


def rows(count: int) -> list[Any]:
    methods.SEED = SEED
    found: list[Any] = [methods.synthetic(name) for name in ("3k-64-zipf1", "3k-1000-flat", "30k-10k-zipf.5")]
    found += [unseen.draw(seed, largest=3.8) for seed in RANDOM["pairs"]]
    found += [unseen.draw_chain(seed, largest=3.8) for seed in RANDOM["chains"]]
    return found[:count]


class Bits:
    """Random bits that are the same in every run with a seed, in place of the operating system's: for figures only."""

    def __init__(self, seed: int) -> None:
        self.drawn = np.random.default_rng(seed)

    def urandom(self, size: int) -> bytes:
        return self.drawn.bytes(size)

    def randbits(self, count: int) -> int:
        return int.from_bytes(self.drawn.bytes((count + 7) // 8), "little") >> (-count % 8)

    def randbelow(self, bound: int) -> int:
        while (found := self.randbits(bound.bit_length())) >= bound:
            pass
        return found


def error(row: Any, runs: int) -> float:
    """The median over some runs of the mean total variation."""
    found = []
    for run in range(runs):
        noise.os = noise.secrets = Bits(run)  # type: ignore[assignment]
        release = dj.release(row.schema, row.workload, row.tables, methods.BUDGET)
        found.append(dj.evaluate(release, row.tables).mean_total_variation or 0.0)
    return median(found)


def kinds() -> dict[str, str]:
    """Derived, measured or a guess, by the text below each number."""
    body = ast.parse(Path(str(constants.__file__)).read_text(encoding="utf-8")).body
    found = {}
    for assigned, text in pairwise(body):
        if isinstance(assigned, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            kind = re.split(r"\W", str(text.value.value), maxsplit=1)[0].lower()
            found |= {t.id: kind for t in ast.walk(assigned.targets[0]) if isinstance(t, ast.Name)}
    return found


def page(ratios: dict[str, list[float]], options: argparse.Namespace) -> str:
    """The page with these ratios in place of older ones of the same numbers."""
    path, every, kind = RESULTS / "constants.md", numbers(), kinds()
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    rows = {
        row[0].strip("`"): row for row in re.findall(r"^\| (\S+) \| (.+) \| (.+) \| (.+) \| (.+) \|$", before, re.M)
    }
    for name, found in ratios.items():
        told = ["unused" if found == [1.0, 1.0] else "–" if ratio != ratio else f"{ratio:.2f}" for ratio in found]
        rows[name] = (f"`{name}`", shown(every[name]), kind[name], *told)
    table = markdown_table(["number", "value", "kind", "half", "twice"], [rows[n] for n in every if n in rows])
    made = command("constants.py", "--rows", options.rows, "--runs", options.runs, "--write")
    return f"""# What half and twice each heuristic number do

The error of `auto` with half and with twice each number of `dpjoin.constants`, over the error with it as it is:
geometric mean over {options.rows} made-up or random joins. A ratio within 0.1 of one says nothing. *unused*: these
joins do not ask for the number (it is for error bars, learned or large domains, or other methods), and no error
changes. A dash: the value makes no sense.

{table}

Made by `{made}` with {versions()}.
"""


def shown(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(shown, value)) if len(value) <= 8 else f"{shown(value[0])} … {shown(value[-1])}"
    return f"{float(value):.4g}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="constants; all of them if none is named")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="into benchmarks/results/constants.md")
    parser.add_argument("--quick", action="store_true", help="one constant, one row, once")
    options = parser.parse_args(arguments)
    every = numbers()
    runs, count, names = options.runs, options.rows, options.names or list(every)
    if options.quick:
        runs, count, names = 1, 1, ["COUNT_SHARE"]
    some = rows(count)
    usual = [error(row, runs) for row in some]
    ratios: dict[str, list[float]] = {}
    for name in names:
        value, found = every[name], []
        for factor in (Fraction(1, 2), Fraction(2)):
            setattr(constants, name, scaled(value, factor))
            try:
                found.append(geometric_mean([error(row, runs) / e for row, e in zip(some, usual, strict=True)]))
            except Exception as problem:  # a value may make no sense at all, which is worth knowing
                found.append(float("nan"))
                print(f"{name} x {float(factor)}: {type(problem).__name__}: {problem}", file=sys.stderr)
        setattr(constants, name, value)
        ratios[name] = found
        print(f"{name:18s} half {found[0]:.2f}  twice {found[1]:.2f}", flush=True)
    if options.write:
        (RESULTS / "constants.md").write_text(page(ratios, options), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
