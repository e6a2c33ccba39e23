"""One table, 10,000 rows, all 2-way marginals, on ever larger domains: from 8^5 cells to 10^12.

Each release runs in a fresh process, and its CPU seconds are those of the whole process: imports, reading, error bars.
The bars to beat are those of dpsynth's SWIFT, the fastest of the peers that reach 10^12 cells. It was measured on data
of the same kind, made by another generator, so that its errors say about what to expect and not more.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

import report

ROWS = 10_000
EPSILON, DELTA = 1.0, 1e-6
SIZES = {"8^5": (5, 8), "10^6": (6, 10), "10^8": (8, 10), "10^12": (12, 10)}
"""By the cells of the domain: how many attributes, of how many values."""
SWIFT = {"8^5": (26, 54, 11.6), "10^6": (44, 74, 13), "10^8": (43, 98, 15), "10^12": (61, 168, 16)}
"""CPU seconds, largest and mean absolute error."""
TIME_TARGET, MEMORY_TARGET = 0.1, 400.0
"""Of SWIFT's CPU seconds; megabytes."""


def make_rows(attributes: int, values: int, rows: int, seed: int) -> dict[str, np.ndarray]:
    """Six classes of unequal size, each with its own skewed columns, and a chain: a column often repeats the last."""
    rng = np.random.default_rng(seed)
    sizes = 0.6 ** np.arange(6)
    kind = rng.choice(6, size=rows, p=sizes / sizes.sum())
    data: dict[str, np.ndarray] = {}
    previous = rng.integers(0, values, rows)
    for n in range(attributes):
        favourite = rng.permuted(np.tile(0.55 ** np.arange(values), (6, 1)), axis=1)
        edges = np.cumsum(favourite / favourite.sum(axis=1, keepdims=True), axis=1)
        own = (rng.random(rows)[:, None] > edges[kind]).sum(axis=1).clip(0, values - 1)
        step = (previous + rng.integers(0, 2, rows)) % values
        previous = np.where(rng.random(rows) < 0.35, step, own)
        data[f"x{n}"] = previous.astype(np.int64)
    return data


def child(size: str, rows: int, seed: int) -> dict[str, Any]:
    """Release once in this process. Data come from two seeds in turn, so that no luck of one is taken for the rule."""
    import pyarrow as pa

    import dpjoin as dj

    attributes, values = SIZES[size]
    data = make_rows(attributes, values, rows, 5 + seed % 2)
    schema = dj.Schema(
        tables=(dj.Table(name="t", attributes=tuple(data)),),
        attributes=tuple(dj.Attribute(name=a, range=(0, values - 1)) for a in data),
    )
    workload = dj.Workload.marginals(schema, 2)
    wall = time.perf_counter()
    release = dj.release(schema, workload, {"t": pa.table(data)}, dj.Budget(epsilon=EPSILON, delta=DELTA))
    answers, bars = release.answer(), release.error()
    wall = time.perf_counter() - wall
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = time.process_time() + children.ru_utime + children.ru_stime
    peak = report.peak_mb()
    pairs = itertools.combinations(data, 2)
    exact = np.concatenate([np.bincount(data[x] * values + data[y], minlength=values**2) for x, y in pairs])
    off = np.abs(answers - exact)
    return {
        "cpu": cpu,
        "wall": wall,
        "peak_mb": peak,
        "max": float(off.max()),
        "mean": float(off.mean()),
        "covered": float((off <= bars).mean()),
        "strategy": release.facts["strategy"],
    }


def measure(runs: int, rows: int, sizes: Sequence[str]) -> dict[str, Any]:
    """Medians over runs, each in a fresh process."""
    found: dict[str, Any] = {"rows": rows, "runs": runs, "sizes": {}}
    for size in sizes:
        each = [_in_child(size, rows, seed) for seed in range(runs)]
        numbers = {key: median(r[key] for r in each) for key in each[0] if key != "strategy"}
        found["sizes"][size] = {**numbers, "strategy": each[0]["strategy"], "runs": each}
        print(f"{size:>6}: " + ", ".join(f"{k} {report.number(v)}" for k, v in numbers.items()), file=sys.stderr)
    return found


def _in_child(size: str, rows: int, seed: int) -> dict[str, Any]:
    call = [sys.executable, __file__, "--child", size, str(rows), str(seed)]
    done = subprocess.run(call, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def met(size: str, found: dict[str, Any]) -> dict[str, bool]:
    """Which targets are met."""
    cpu, largest, mean = SWIFT[size]
    return {
        "time": found["cpu"] <= TIME_TARGET * cpu,
        "max": found["max"] <= largest,
        "mean": found["mean"] <= mean,
        "memory": found["peak_mb"] <= MEMORY_TARGET,
    }


def page(found: dict[str, Any], command: str) -> str:
    head = [
        "cells",
        "CPU s",
        "SWIFT",
        "MB",
        "max error",
        "SWIFT",
        "mean error",
        "SWIFT",
        "bars cover",
        "targets missed",
    ]
    rows = []
    for size, here in found["sizes"].items():
        cpu, largest, mean = SWIFT[size]
        missed = ", ".join(name for name, good in met(size, here).items() if not good) or "none"
        rows.append(
            [
                size,
                f"{here['cpu']:.1f}",
                str(cpu),
                f"{here['peak_mb']:.0f}",
                f"{here['max']:.0f}",
                str(largest),
                f"{here['mean']:.1f}",
                str(mean),
                f"{here['covered']:.0%}",
                missed,
            ]
        )
    ways = [[size, here["strategy"]] for size, here in found["sizes"].items()]
    return "\n".join(
        [
            "# Large domains",
            "",
            f"One table of {found['rows']:,} rows (six classes and a chain, skewed), all 2-way marginals, "
            f"epsilon {EPSILON:g}, delta {DELTA:g}. Medians of {found['runs']} runs, each in a fresh process; "
            "errors over all 2-way cells; 90 % error bars.",
            "",
            report.markdown_table(head, rows),
            "",
            f"Targets: a tenth of SWIFT's CPU seconds, errors no larger than its, {MEMORY_TARGET:.0f} MB. "
            "SWIFT (dpsynth) was measured separately, on data of the same kind from another generator: "
            "its figures say about what to expect. "
            "CPU seconds of dpjoin are those of the whole process, imports included.",
            "",
            report.markdown_table(["cells", "how"], ways),
            "",
            f"Made by `{command}` with {report.versions()}.",
            "",
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small, once, nothing written: does it run?")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--child", nargs=3, metavar=("SIZE", "ROWS", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        size, rows, seed = options.child
        print(json.dumps(child(size, int(rows), int(seed))))
        return 0
    runs, rows = (1, 1000) if options.quick else (options.runs, ROWS)
    found = measure(runs, rows, ("8^5", "10^12") if options.quick else tuple(SIZES))
    text = page(found, report.command("large.py", "--runs", runs))
    print(text)
    if not (options.quick or options.no_write):
        report.write("large", text, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
