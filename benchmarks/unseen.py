"""`auto` on random pairs of tables, on which nothing was chosen: `python benchmarks/unseen.py [--runs N] [--count N]`.

The other benchmarks have a few instances that every constant was looked at on. Here sizes, keys, skew, attributes and
how both tables' keys go together are drawn. Seeds start where the last look at single instances ended.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import combinations
from statistics import mean, median
from typing import Any

import numpy as np
import pyarrow as pa

import dpjoin as dj
from dpjoin.errors import SpecError
from report import command, markdown_table, number, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
METHODS = ("auto", "two_table", "capped", "keyed", "hybrid", "per_table")
FIRST_SEED = 500
LOOKED_AT = "0 to 29, 100 to 111, 200 to 247, 300 to 344 and 400 to 419"
WITHIN = 1.25


@dataclass(frozen=True, eq=False)
class Instance:
    words: str
    schema: dj.Schema
    workload: dj.Workload
    tables: dict[str, pa.Table]


def draw(seed: int, *, largest: float = 5.0) -> Instance:
    """R(k, …) and S(k, …) with one to three attributes each, and all marginals of one and two attributes."""
    rng = np.random.default_rng(seed)
    keys = int(10 ** rng.uniform(1.5, min(4.3, largest)))
    rows = [int(10 ** rng.uniform(3, largest)) for _ in "rs"]
    powers = [float(rng.choice([0.0, 0.3, 0.6, 1.0, 1.3])) for _ in "rs"]
    meeting = str(rng.choice(["same", "same", "others", "unique"]))
    dependence = rng.uniform(0, 0.4)
    popular = [1 / np.arange(1, keys + 1) ** power for power in powers]
    if meeting == "others":
        popular[1] = rng.permutation(popular[1])
    move = rng.integers(0, 50, keys)
    tables, attributes = {}, []
    for n, table in enumerate("rs"):
        unique = meeting == "unique" and n == 0
        key = np.arange(keys) if unique else rng.choice(keys, rows[n], p=popular[n] / popular[n].sum())
        columns = {"k": key}
        for i in range(int(rng.integers(1, 4))):
            values = int(rng.integers(2, 12))
            weights = 0.6 ** np.arange(values)
            column = rng.choice(values, len(key), p=weights / weights.sum())
            column = np.where(rng.random(len(key)) < dependence, move[key] % values, column)
            if i:
                before = columns[f"{table}{i - 1}"]
                column = np.where(rng.random(len(key)) < 0.3, before % values, column)
            columns[f"{table}{i}"] = column
            attributes.append(dj.Attribute(name=f"{table}{i}", range=(0, values - 1)))
        tables[table] = pa.table(columns)
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x.column_names)) for t, x in tables.items()),
        (dj.Attribute(name="k", range=(0, keys - 1)), *attributes),
    )
    names = [a.name for a in attributes]
    workload = dj.Workload.marginals(schema, [*((a,) for a in names), *combinations(names, 2)])
    shape = " / ".join(f"{len(x):,} rows, Zipf {p:g}" for x, p in zip(tables.values(), powers, strict=True))
    own = " + ".join(str(len(x.column_names) - 1) for x in tables.values())
    return Instance(f"{keys:,} keys ({meeting}); {shape}; {own} attributes", schema, workload, tables)


def measure(instance: Instance, method: str, runs: int) -> dict[str, Any] | None:
    """Medians over the runs; None where the method does not serve."""
    found = []
    for _ in range(runs):
        try:
            made = dj.release(instance.schema, instance.workload, instance.tables, BUDGET, method=method)
        except SpecError:
            return None
        true = dj.evaluate(made, instance.tables)
        found.append((true.mean_total_variation or 0.0, true.max_error, true.covered, made.method))
    return {
        "tv": median(f[0] for f in found),
        "max": median(f[1] for f in found),
        "covered": mean(f[2] for f in found),
        "ran": sorted({f[3] for f in found}),
    }


def page(rows: list[dict[str, Any]], runs: int) -> str:
    lines, ratios = [], {"tv": [], "max": []}
    for row in rows:
        cells = row["methods"]
        auto = cells["auto"]
        for figure, kept in ratios.items():
            best = min(c[figure] for c in cells.values() if c)
            kept.append(auto[figure] / best if best else 1.0)
        others = [f"{number(c['tv'])} ({c['covered']:.2f})" if c else "–" for m, c in cells.items() if m != "auto"]
        ran = f"{number(auto['tv'])} ({auto['covered']:.2f}), {' or '.join(auto['ran'])}"
        lines.append([row["words"], ran, *others, f"{ratios['tv'][-1]:.2f}", f"{ratios['max'][-1]:.2f}"])
    said = [
        f"* {words}: auto has {median(ratios[f]):.2f} times the error of the best column in the median, "
        f"{max(ratios[f]):.2f} times at worst, and at most {WITHIN} times on {sum(r <= WITHIN for r in ratios[f])} of "
        f"{len(rows)} rows."
        for f, words in (("tv", "Mean total variation"), ("max", "Largest error"))
    ]
    bars = [row["methods"]["auto"]["covered"] for row in rows]
    said.append(
        f"* 90 % bars of auto cover {mean(bars):.2f} on average, and {min(bars):.2f} to {max(bars):.2f} on single rows."
    )
    return "\n\n".join(
        [
            "# Random pairs of tables",
            f"Made by `{command('unseen.py', '--runs', runs, '--count', len(rows))}` with {versions()}.",
            f"Budget (1, 1e-6), all marginals of one and two attributes, medians of {runs} runs; in brackets the share "
            "of cells whose 90 % bar holds. A dash: the method does not serve. "
            f"Seeds {FIRST_SEED} to {FIRST_SEED + len(rows) - 1}; methods and constants were last changed while "
            f"looking at seeds {LOOKED_AT} of a draft of this page. The best column is the best of those shown, by the "
            "same few runs: even the same method twice would not come out at 1.",
            "\n".join(said),
            markdown_table(
                ["tables", "auto", *(m for m in METHODS if m != "auto"), "auto / best, TV", "auto / best, largest"],
                lines,
            ),
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="one small instance, once, nothing written")
    options = parser.parse_args(arguments)
    runs, count = (1, 1) if options.quick else (options.runs, options.count)
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        instance = draw(seed, largest=3.3 if options.quick else 5.0)
        rows.append({"words": instance.words, "methods": {m: measure(instance, m, runs) for m in METHODS}})
        print(instance.words, {m: f"{c['tv']:.4f}" if c else "–" for m, c in rows[-1]["methods"].items()}, flush=True)
    if options.quick:
        print(page(rows, runs))
    else:
        write("unseen", page(rows, runs), {"runs": runs, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
