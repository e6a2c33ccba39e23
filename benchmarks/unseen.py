"""`auto` on random joins, on which nothing was chosen: `python benchmarks/unseen.py [--runs N] [--count N]`.

The other benchmarks have a few instances that every constant was looked at on. Here sizes, keys, skew, attributes and
how the tables' keys go together are drawn, for pairs of tables and for joins of three and four without an attribute
that all share. Seeds start where the last look at single instances ended.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import mean, median
from typing import Any

import numpy as np
import pyarrow as pa

import dpjoin as dj
from dpjoin.errors import SpecError
from report import RESULTS, command, markdown_table, number, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
METHODS = {
    "pairs": ("auto", "two_table", "capped", "clipped", "heavy_light", "per_table"),
    "chains": ("auto", "multi_table", "capped", "clipped", "heavy_light", "per_table"),
    "public": ("auto", "two_table", "multi_table", "capped", "clipped", "heavy_light", "per_table"),
}
FIRST_SEED = {"pairs": 31300, "chains": 32100, "public": 33200}
LOOKED_AT = {
    "pairs": "0 to 29, 100 to 111, 200 to 247, 300 to 344, 400 to 419, 500 to 511, 600 to 611, 700 to 711, "
    "800 to 811, 902 to 907, 1000 to 1013, 1200 to 1209, 5000 to 5144 and 7000 to 7012",
    "chains": "1000 to 1107 and 2000 to 2009",
    "public": "3000 to 3009 and 3100 to 3109",
}
WITHIN = 1.25

SHAPES = {
    "path": {"r": "k", "s": "kl", "t": "l"},
    "references": {"r": "k", "s": "kl", "t": "l"},
    "nested": {"r": "k", "s": "kl", "t": "kl"},
    "triangle": {"r": "kl", "s": "lm", "t": "km"},
    "long path": {"r": "k", "s": "kl", "t": "lm", "u": "m"},
}
"""By which keys the tables of a chain meet. In references, the first and the last have every value of theirs once."""


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


def draw_chain(seed: int, *, largest: float = 4.8) -> Instance:
    """A join of one of the SHAPES with one or two attributes in each table, and all marginals of one and two."""
    rng = np.random.default_rng(seed)
    shape = str(rng.choice(list(SHAPES)))
    names = sorted({k for keys in SHAPES[shape].values() for k in keys})
    keys = {k: int(10 ** rng.uniform(1, min(2.5, largest - 1))) for k in names}
    dependence, same = rng.uniform(0, 0.4), bool(rng.random() < 0.6)
    move = {k: rng.integers(0, 50, keys[k]) for k in names}
    tables, attributes, rows = {}, [], []
    for table, own in SHAPES[shape].items():
        if shape == "references" and table != "s":
            columns = {own: np.arange(keys[own])}
        else:
            count, power = int(10 ** rng.uniform(3, largest)), float(rng.choice([0.0, 0.3, 0.6, 1.0]))
            popular = {k: 1 / np.arange(1, keys[k] + 1) ** power for k in own}
            popular = popular if same else {k: rng.permutation(p) for k, p in popular.items()}
            columns = {k: rng.choice(keys[k], count, p=p / p.sum()) for k, p in popular.items()}
        count = len(columns[own[0]])
        rows.append(f"{count:,}")
        for i in range(int(rng.integers(1, 3))):
            values = int(rng.integers(2, 8))
            weights = 0.6 ** np.arange(values)
            column = rng.choice(values, count, p=weights / weights.sum())
            key = own[int(rng.integers(len(own)))]
            columns[f"{table}{i}"] = np.where(rng.random(count) < dependence, move[key][columns[key]] % values, column)
            attributes.append(dj.Attribute(name=f"{table}{i}", range=(0, values - 1)))
        tables[table] = pa.table(columns)
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x.column_names)) for t, x in tables.items()),
        (*(dj.Attribute(name=k, range=(0, keys[k] - 1)) for k in names), *attributes),
    )
    asked = [a.name for a in attributes]
    workload = dj.Workload.marginals(schema, [*((a,) for a in asked), *combinations(asked, 2)])
    size = " x ".join(map(str, keys.values()))
    meeting = "" if shape == "references" else " (same)" if same else " (others)"
    return Instance(f"{shape}, {size} keys{meeting}; {', '.join(rows)} rows", schema, workload, tables)


def draw_public(seed: int, **named: float) -> Instance:
    """A pair of tables, or a chain of them every other time, of which one is public."""
    made = draw_chain(seed, **named) if seed % 2 else draw(seed, **named)
    public = np.random.default_rng([seed, 1]).choice(list(made.tables))
    tables = tuple(replace(t, private=t.name != public) for t in made.schema.tables)
    schema = dj.Schema(tables, made.schema.attributes)
    return Instance(f"{made.words}; {public} public", schema, replace(made.workload, schema=schema), made.tables)


DRAW = {"pairs": draw, "chains": draw_chain, "public": draw_public}


def measure(instance: Instance, method: str, runs: int) -> dict[str, Any] | None:
    """Medians over the runs; None where the method does not serve."""
    found = []
    for _ in range(runs):
        try:
            made = dj.release(instance.schema, instance.workload, instance.tables, BUDGET, method=method)
        except SpecError:
            return None
        true = dj.evaluate(made, instance.tables)
        length = (true.mean_bar or 0.0) / true.mean_error
        found.append((true.mean_total_variation or 0.0, true.max_error, true.covered, length, made.method))
    return {
        "tv": median(f[0] for f in found),
        "max": median(f[1] for f in found),
        "covered": mean(f[2] for f in found),
        "length": median(f[3] for f in found),
        "ran": sorted({f[4] for f in found}),
    }


def section(kind: str, rows: list[dict[str, Any]]) -> list[str]:
    lines, ratios = [], {"tv": [], "max": []}
    for row in rows:
        cells = row["methods"]
        auto = cells["auto"]
        for figure, kept in ratios.items():
            best = min(c[figure] for c in cells.values() if c)
            kept.append(auto[figure] / best if best else 1.0)
        others = [f"{number(c['tv'])} ({c['covered']:.2f})" if c else "–" for m, c in cells.items() if m != "auto"]
        ran = f"{number(auto['tv'])} ({auto['covered']:.2f}, {auto['length']:.1f}), {' or '.join(auto['ran'])}"
        lines.append([row["words"], ran, *others, f"{ratios['tv'][-1]:.2f}", f"{ratios['max'][-1]:.2f}"])
    said = [
        f"* {words}: auto has {median(ratios[f]):.2f} times the error of the best column in the median, "
        f"{max(ratios[f]):.2f} times at worst, and at most {WITHIN} times on {sum(r <= WITHIN for r in ratios[f])} of "
        f"{len(rows)} rows."
        for f, words in (("tv", "Mean total variation"), ("max", "Largest error"))
    ]
    bars, lengths = ([row["methods"]["auto"][figure] for row in rows] for figure in ("covered", "length"))
    said.append(
        f"* 90 % bars of auto cover {mean(bars):.2f} on average, and {min(bars):.2f} to {max(bars):.2f} on single "
        f"rows. They are {median(lengths):.1f} times as long as errors in the median, and {min(lengths):.1f} to "
        f"{max(lengths):.1f} times on single rows; where errors are normal, 90 % bars are 2.1 times as long."
    )
    first = FIRST_SEED[kind]
    return [
        f"Seeds {first} to {first + len(rows) - 1}; methods and constants were last changed while looking at seeds "
        f"{LOOKED_AT[kind]} of drafts of this page.",
        "\n".join(said),
        markdown_table(
            ["tables", "auto", *(m for m in METHODS[kind] if m != "auto"), "auto / best, TV", "auto / best, largest"],
            lines,
        ),
    ]


TITLES = {
    "pairs": "## Pairs of tables",
    "chains": "## Three and four tables\n\nThey meet by several keys; only nested ones share one.",
    "public": "## One table of them public\n\nPairs and chains as above; tables are called r, s, t, u in their order.",
}


def page(found: dict[str, Any]) -> str:
    runs, rows = found["runs"], {kind: found[kind] for kind in DRAW if found.get(kind)}
    count = max(map(len, rows.values()))
    return "\n\n".join(
        [
            "# Random joins",
            f"Made by `{command('unseen.py', '--runs', runs, '--count', count)}` with {versions()}.",
            f"Budget (1, 1e-6), all marginals of one and two attributes, medians of {runs} runs; in brackets the share "
            "of cells whose 90 % bar holds and, for auto, how many times as long as errors bars are. A dash: the "
            "method does not serve. The best column is the best of those shown, by the same few runs: even the same "
            "method twice would not come out at 1.",
            *(part for kind, some in rows.items() for part in (TITLES[kind], *section(kind, some))),
        ]
    )


def _written() -> dict[str, Any]:
    """What the results have."""
    return dict(json.loads((RESULTS / "unseen.json").read_text()))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="one small instance of each kind, once, nothing written")
    parser.add_argument("--kinds", nargs="+", choices=DRAW, default=list(DRAW), help="others stay as they are")
    options = parser.parse_args(arguments)
    runs, count = (1, 1) if options.quick else (options.runs, options.count)
    found: dict[str, Any] = {"runs": runs}
    for kind, drawn in DRAW.items():
        if kind not in options.kinds:
            continue
        found[kind] = []
        for seed in range(FIRST_SEED[kind], FIRST_SEED[kind] + count):
            instance = drawn(seed, largest=3.3) if options.quick else drawn(seed)
            cells = {m: measure(instance, m, runs) for m in METHODS[kind]}
            found[kind].append({"words": instance.words, "methods": cells})
            print(instance.words, {m: f"{c['tv']:.4f}" if c else "–" for m, c in cells.items()}, flush=True)
    if options.quick:
        print(page(found))
    else:
        kept = {kind: _written().get(kind, []) for kind in DRAW if kind not in found}
        write("unseen", page({**found, **kept}), {**found, **kept})
    return 0


if __name__ == "__main__":
    sys.exit(main())
