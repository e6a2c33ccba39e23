"""heavy_light and `auto` against the join as one table on Zipf keys: `python benchmarks/hybrid.py [--runs N]`."""

from __future__ import annotations

import argparse
import sys
import time
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import dpjoin as dj
from report import command, markdown_table, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
METHODS = ("two_table", "uniformize", "heavy_light", "auto")
INSTANCES = (
    (3_000, 64, 0.0),
    (3_000, 64, 1.0),
    (30_000, 1_000, 1.0),
    (30_000, 10_000, 0.5),
    (300_000, 100_000, 0.8),
    (1_000_000, 1_000_000, 0.5),
)
"""Rows per table, keys, Zipf exponent."""
SCHEMA = dj.Schema(
    (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "b"))),
    (dj.Attribute(name="k", key=True), dj.Attribute(name="a", range=(0, 7)), dj.Attribute(name="b", range=(0, 7))),
)
WORKLOAD = dj.Workload.marginals(SCHEMA, [("a", "b")])


def make(rows: int, keys: int, power: float, *, aligned: bool) -> dict[str, pa.Table]:
    """Zipf keys; the hot ones are the same in both tables, or not. Values depend on the key a little."""
    rng = np.random.default_rng([rows, keys, aligned])
    weights = 1 / np.arange(1, keys + 1) ** power
    weights /= weights.sum()
    names = [rng.permutation(keys)] * 2 if aligned else [rng.permutation(keys), rng.permutation(keys)]
    first, second = (name[rng.choice(keys, rows, p=weights)] for name in names)
    return {
        "r": pa.table({"k": first, "a": (rng.integers(0, 8, rows) * (first % 3) // 2 + first % 2) % 8}),
        "s": pa.table({"k": second, "b": (rng.integers(0, 8, rows) + second % 2) % 8}),
    }


def measure(tables: dict[str, pa.Table], method: str, runs: int) -> dict[str, Any]:
    found = []
    for _ in range(runs):
        started = time.perf_counter()
        release = dj.release(SCHEMA, WORKLOAD, tables, BUDGET, method=method)
        seconds = time.perf_counter() - started
        true = dj.evaluate(release, tables)
        found.append((true.mean_total_variation or 0.0, true.covered, seconds, release.method))
    return {
        "tv": median(f[0] for f in found),
        "covered": sum(f[1] for f in found) / runs,
        "seconds": median(f[2] for f in found),
        "ran": sorted({f[3] for f in found}),
    }


def page(results: list[dict[str, Any]], runs: int) -> str:
    rows = [
        [
            f"{r['rows']:,}, {r['keys']:,}, {r['power']:g}",
            "the same" if r["aligned"] else "others",
            *(f"{r[m]['tv']:.4f}" for m in METHODS),
            f"{r['heavy_light']['covered']:.2f}",
            ", ".join(r["auto"]["ran"]),
        ]
        for r in results
    ]
    head = [
        "rows per table, keys, Zipf",
        "hot keys of the other table",
        *METHODS,
        "heavy_light's bars cover",
        "auto ran",
    ]
    return "\n\n".join(
        [
            "# Hybrid and auto",
            f"Made by `{command('hybrid.py', '--runs', runs)}` with {versions()}.",
            f"Total variation of one 8 x 8 marginal across two tables, (1, 1e-6), medians of {runs} runs; 90 % bars. "
            "The constants of heavy_light and of auto were chosen while looking at instances of this kind.",
            markdown_table(head, rows),
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two small instances, once, nothing written")
    options = parser.parse_args(arguments)
    runs = 1 if options.quick else options.runs
    results = []
    for rows, keys, power in INSTANCES[: 1 if options.quick else None]:
        for aligned in (True, False):
            tables = make(rows, keys, power, aligned=aligned)
            found = {m: measure(tables, m, runs) for m in METHODS}
            results.append({"rows": rows, "keys": keys, "power": power, "aligned": aligned, **found})
            print(rows, keys, power, aligned, {m: round(found[m]["tv"], 4) for m in METHODS}, flush=True)
    if not options.quick:
        write("hybrid", page(results, runs), {"runs": runs, "instances": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
