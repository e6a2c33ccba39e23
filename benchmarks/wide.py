"""Many attributes at once: a joined pair with twelve, a chain of thirty, forty that compete. Time, memory and error.

Each runs in a fresh process, from tables to a saved release with synthetic rows and error bars. That answers before
noise equal those of the dense model on small domains is for the tests (`test_junction.py`, `test_factored.py`).
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import dpjoin as dj
import peers
import report
from peers import DELTA, EPSILON

ROWS, VALUES = 10_000, 10
MEMORY = 2000.0
"""Megabytes."""
SHAPES = {
    "pair": "two tables, six attributes of 10 values each, one to two rows of a key value; all 66 pairs",
    "chain": "one table, 30 attributes of 10 values; the 29 pairs of neighbours",
    "many": "one table, ten times the rows, 40 attributes of 4 values; all 780 pairs",
}
COUNTS = {"pair": 12, "chain": 30, "many": 40}


def make(shape: str, rows: int, seed: int) -> tuple[dj.Schema, dj.Workload, dict[str, pa.Table]]:
    count, values = COUNTS[shape], 4 if shape == "many" else VALUES
    data = peers.make_rows(count, values, 10 * rows if shape == "many" else rows, seed)
    names = list(data)
    attributes = tuple(dj.Attribute(name=a, range=(0, values - 1)) for a in names)
    if shape != "pair":
        schema = dj.Schema((dj.Table(name="t", attributes=tuple(names)),), attributes)
        pairs = itertools.pairwise(names) if shape == "chain" else itertools.combinations(names, 2)
        return schema, dj.Workload.marginals(schema, list(pairs)), {"t": pa.table(data)}
    left, right = names[: count // 2], names[count // 2 :]
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("k", *left)), dj.Table(name="s", attributes=("k", *right))),
        (dj.Attribute(name="k", key=True), *attributes),
    )
    keys = np.random.default_rng(seed).permutation(rows) // 2
    tables = {
        "r": pa.table({"k": keys, **{a: data[a] for a in left}}),
        "s": pa.table({"k": np.arange(rows), **{a: data[a] for a in right}}),
    }
    return schema, dj.Workload.marginals(schema, list(itertools.combinations(names, 2))), tables


def child(shape: str, rows: int, seed: int) -> dict[str, Any]:
    schema, workload, tables = make(shape, rows, seed)
    release = dj.release(schema, workload, tables, dj.Budget(epsilon=EPSILON, delta=DELTA))
    with tempfile.TemporaryDirectory() as folder:
        release.save(Path(folder) / "out")
    found = {"cpu": peers.cpu_seconds(), "peak_mb": report.peak_mb()}
    told = dj.evaluate(release, tables)
    return {
        **found,
        "cells": workload.cells,
        "mean_tv": told.mean_total_variation,
        "max_share": told.max_error / release.join_size,
        "covered": told.covered,
        **(covered_by_place(release, workload, tables["t"]) if shape == "many" else {}),
        "strategy": release.facts["strategy"],
    }


def covered_by_place(release: Any, workload: dj.Workload, table: pa.Table) -> dict[str, float]:
    """How many 90 % bars cover, for marginals that the model was made of and for those it answers without."""
    columns = {a: np.asarray(table.column(a)) for a in table.column_names}
    bags = [set(c) for c in release.model.tree.cliques]
    found: dict[str, list[np.ndarray]] = {"covered_inside": [], "covered_outside": []}
    for group in workload.groups:
        x, y = group.scope
        exact = np.bincount(columns[x] * 4 + columns[y], minlength=16)
        within = np.abs(release.model.answer(group) - exact) <= release.model.error(group, 0.9)
        inside = any(set(group.scope) <= bag for bag in bags)
        found["covered_inside" if inside else "covered_outside"].append(within)
    return {place: float(np.concatenate(some).mean()) for place, some in found.items() if some}


def measure(runs: int, rows: int, shapes: Iterable[str] = SHAPES) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": rows, "runs": runs, "shapes": {}}
    for shape in shapes:
        calls = ([sys.executable, __file__, "--child", shape, str(rows), str(5 + seed)] for seed in range(runs))
        each = [
            json.loads(subprocess.run(c, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            for c in calls
        ]
        numbers = {key: median(r[key] for r in each) for key in each[0] if key != "strategy"}
        found["shapes"][shape] = {**numbers, "strategy": each[0]["strategy"], "runs": each}
        print(f"{shape}: " + ", ".join(f"{k} {report.number(v)}" for k, v in numbers.items()), file=sys.stderr)
    return found


def page(found: dict[str, Any], command: str) -> str:
    head = ["shape", "cells", "CPU s", "MB", "target", "mean TV", "max error / noisy size", "90 % bars cover"]
    rows = [
        [
            SHAPES[shape],
            f"10^{len(str(int(here['cells']))) - 1}",
            f"{here['cpu']:.1f}",
            f"{here['peak_mb']:.0f}",
            f"below {MEMORY:.0f} MB: {'met' if here['peak_mb'] < MEMORY else '**not met**'}",
            f"{here['mean_tv']:.4f}",
            f"{here['max_share']:.4f}",
            f"{here['covered']:.0%}",
        ]
        for shape, here in found["shapes"].items()
    ]
    ways = [[SHAPES[shape], here["strategy"]] for shape, here in found["shapes"].items()]
    many = found["shapes"].get("many", {})
    places = [
        f"{many[f'covered_{place}']:.0%} {place} the model"
        for place in ("inside", "outside")
        if f"covered_{place}" in many
    ]
    parts = [
        "# Many attributes",
        f"{found['rows']:,} rows a table, epsilon {EPSILON:g}, delta {DELTA:g}. Medians of {found['runs']} runs, each "
        "in a fresh process: reading, release, error bars, synthetic rows, saving.",
        report.markdown_table(head, rows),
        *(
            [f"Of the 780 competing pairs some are taken into the model. 90 % bars cover {', '.join(places)}."]
            * bool(many)
        ),
        report.markdown_table(["shape", "how"], ways),
        f"Made by `{command}` with {report.versions()}.",
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small, once, nothing written: does it run?")
    parser.add_argument("--child", nargs=3, metavar=("SHAPE", "ROWS", "SEED"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        shape, rows, seed = options.child
        print(json.dumps(child(shape, int(rows), int(seed))))
        return 0
    runs = 1 if options.quick else options.runs
    found = measure(1, 500, ("pair", "chain")) if options.quick else measure(runs, ROWS)
    text = page(found, report.command("wide.py", "--runs", runs))
    print(text)
    if not options.quick:
        report.write("wide", text, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
