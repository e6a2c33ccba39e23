"""What half and twice each heuristic number do to `auto`: `benchmarks/constants.py [NAME …] [--runs N] [--rows N]`.

Prints, for each number of `dpjoin.constants`, the geometric mean over some rows of the error with half and with twice
its value over the error with it as it is. Rows are made-up pairs of `methods.py`, drawn anew, and small random pairs
and chains of `unseen.py`. With few runs a ratio within about 0.1 of one says nothing. Nothing is written.
"""

from __future__ import annotations

import argparse
import ast
import sys
from fractions import Fraction
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import dpjoin as dj
import methods
import unseen
from dpjoin import constants

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
        return tuple(min(1.0, float(v * factor)) for v in value)
    if isinstance(value, Fraction):
        return min(value * factor, Fraction(19, 20))
    return max(1, int(value * factor)) if isinstance(value, int) else float(value * factor)


def rows(count: int) -> list[Any]:
    methods.SEED = SEED
    found: list[Any] = [methods.synthetic(name) for name in ("3k-64-zipf1", "3k-1000-flat", "30k-10k-zipf.5")]
    found += [unseen.draw(seed, largest=3.8) for seed in RANDOM["pairs"]]
    found += [unseen.draw_chain(seed, largest=3.8) for seed in RANDOM["chains"]]
    return found[:count]


def error(row: Any, runs: int) -> float:
    """The median over some runs of the mean total variation."""
    made = (dj.release(row.schema, row.workload, row.tables, methods.BUDGET) for _ in range(runs))
    return median(dj.evaluate(release, row.tables).mean_total_variation or 0.0 for release in made)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="constants; all of them if none is named")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="one constant, one row, once")
    options = parser.parse_args(arguments)
    every = numbers()
    runs, count, names = options.runs, options.rows, options.names or list(every)
    if options.quick:
        runs, count, names = 1, 1, ["COUNT_SHARE"]
    some = rows(count)
    usual = [error(row, runs) for row in some]
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
        print(f"{name:18s} half {found[0]:.2f}  twice {found[1]:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
