"""Measure what the theorems state, and draw it: `python -m dpjoin.theory.reproduce [--quick] [--to FOLDER]`.

Writes theory-*.svg and theory-results.md. Everything is made up but the last two tables, which need the development
data (`--data`). About ten minutes on one core; --quick takes seconds and shows only that it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import dpjoin as dj
from dpjoin.privacy.residual import star
from dpjoin.theory import flawed, hard, lower, upper
from dpjoin.theory.compare import exact_answers, largest_error, sensitivities
from dpjoin.theory.facts import Facts, facts
from dpjoin.theory.plot import Panel, save
from dpjoin.theory.upper import Task

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
PROFILES = {"paper": "red", "tight": "blue"}
SHIFT = 39
"""What noise adds to a gauge at (1, 1e-6) on average."""
SETTING = {"keys": 200, "degree": 60, "size": 32, "queries": 300, "epsilon": 1.0}
VARIED: dict[str, tuple[str, float, Sequence[float]]] = {
    "n": ("keys", 0.5, (30, 70, 170, 400, 900)),
    "Δ": ("degree", 0.5, (15, 30, 60, 120, 240)),
    "ln |D|": ("size", 0.25, (8, 16, 32, 64, 128)),
    "ln |Q|": ("queries", 0.5, (10, 40, 160, 640, 2560)),
    "ε": ("epsilon", -0.5, (0.25, 0.5, 1, 2, 4)),
}
"""What is varied, by which setting, the theorem's exponent, and the values; Δ at the same join size."""
Rows = list[list[str]]


def released(
    instance: hard.Instance,
    workload: dj.Workload,
    budget: dj.Budget,
    profile: str,
    runs: int,
    method: str | None = None,
) -> list[float]:
    """The largest error of each of several releases of made-up tables."""
    tables = instance.arrow()
    exact = exact_answers(workload, tables)
    name = method or ("two_table" if len(tables) == 2 else "multi_table")
    every = (dj.release(instance.schema, workload, tables, budget, method=name, profile=profile) for _ in range(runs))
    return [largest_error(release, exact) for release in every]


def product_queries(schema: dj.Schema, count: int, seed: int = 0) -> dj.Workload:
    """Random sets of values of the first table's attribute, times the same of the last's."""
    rng = np.random.default_rng(seed)
    ends = (schema.tables[0], schema.tables[-1])
    asked = {t.name: ((t.attributes[-1],), schema.attribute(t.attributes[-1]).size) for t in ends}
    return dj.Workload.products(schema, {n: (a, rng.integers(0, 2, (count, size))) for n, (a, size) in asked.items()})


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Of log y over log x by least squares, and the half-width of its 95 % interval."""
    from scipy import stats

    fit = stats.linregress(*np.log(np.array(points)).T)
    return float(fit.slope), float(fit.stderr * stats.t.ppf(0.975, max(1, len(points) - 2)))


def varied(shape: str, parameter: str, runs: int) -> tuple[Rows, list[Panel]]:
    """Error against one parameter: the measured exponent beside the theorem's."""
    setting, exponent, values = VARIED[parameter]
    base = SETTING if shape == "two_table" else {**SETTING, "degree": 20}
    points: dict[str, list[tuple[float, float]]] = {p: [] for p in PROFILES}
    stated = []
    for value in values:
        now = {**base, setting: value} if shape == "two_table" or setting != "degree" else {**base, setting: value / 3}
        if parameter == "Δ":
            now["keys"] = max(1, round(base["keys"] * (base["degree"] / now["degree"]) ** len(hard.SHAPES[shape])))
        keys, degree, size = (int(now[k]) for k in ("keys", "degree", "size"))
        instance = hard.uniform(shape, keys=keys, degree=degree, size=size, rng=np.random.default_rng(7))
        workload = product_queries(instance.schema, int(now["queries"]))
        budget = dj.Budget(epsilon=float(now["epsilon"]), delta=1e-6)
        x = {
            "n": instance.rows,
            "Δ": instance.sensitivity,
            "ln |D|": np.log(size**2),
            "ln |Q|": np.log(now["queries"]),
        }.get(parameter, value)
        for profile, found in points.items():
            found += [(float(x), error) for error in released(instance, workload, budget, profile, runs)]
        method = "two_table" if shape == "two_table" else "multi_table"
        stated.append((float(x), upper.theorem(supposed(shape, keys, degree), Task.of(workload, budget), method)))
    fits = {p: slope(found) for p, found in points.items()}
    own = slope(stated)[0]
    row = [shape, parameter, f"{exponent:+.2f}", f"{own:+.2f}", *(f"{s:+.2f} ± {w:.2f}" for s, w in fits.values())]
    panel = Panel(
        f"{shape}: error against {parameter}",
        parameter,
        "largest error",
        [("theorem, constant 1", "grey", "dash", stated)],
    )
    panel.series += [
        (f"{p}, slope {fits[p][0]:+.2f} ± {fits[p][1]:.2f}", c, "dots", points[p]) for p, c in PROFILES.items()
    ]
    return [row], [panel]


def supposed(shape: str, keys: int, degree: int) -> Facts:
    """The statistics of `hard.uniform` without the rows."""
    m = len(hard.SHAPES[shape])
    schema = hard.shape_schema(shape, {})
    return Facts(
        rows=m * keys * degree, join_size=keys * degree**m, boundaries=star((degree,) * m), schema=schema, degrees={}
    )


def speaking(shape: str) -> tuple[Rows, list[Panel]]:
    """The proved bounds against n, and from which n on they are below a tenth of the join."""
    method = "two_table" if shape == "two_table" else "multi_table"
    task = Task(budget=BUDGET, cells=1024, queries=300, norm=75)
    panel, row = Panel(f"{shape}: bounds / join size, degree 60", "n", "bound / join size"), [shape]
    sizes = [supposed(shape, 4**i, 60) for i in range(1, 19)]
    for name, colour in {**PROFILES, "theorem": "grey"}.items():
        found = [
            upper.theorem(k, task, method) if name == "theorem" else upper.proved(k, task, method, name) for k in sizes
        ]
        panel.series.append(
            (name, colour, "line", [(k.rows, f / k.join_size) for k, f in zip(sizes, found, strict=True)])
        )
        first = next((k.rows for k, f in zip(sizes, found, strict=True) if f < k.join_size / 10), None)
        row.append("never" if first is None else f"{first:.1e}")
    return [row], [panel]


def gap(powers: Sequence[int], runs: int) -> tuple[Rows, list[Panel]]:
    """Example 4.2: TwoTable against Uniformize, by bound and by release."""
    rows, ratios, panel = (
        [],
        {p: [] for p in ("theorem", *PROFILES)},
        Panel("Example 4.2: Uniformize / TwoTable", "k", "ratio of errors"),
    )
    task = Task(budget=BUDGET, cells=4096, queries=300, norm=75)
    for k in (2**p for p in powers):
        instance = hard.example_gap(k)
        known = facts(instance.schema, instance.arrow(), public=True)
        pair = [upper.theorem(known, task, m) for m in ("uniformize", "two_table")]
        ratios["theorem"].append((k, pair[0] / pair[1]))
        workload = product_queries(instance.schema, 300)
        for profile in PROFILES:
            both = [median(released(instance, workload, BUDGET, profile, runs, m)) for m in ("uniformize", "two_table")]
            ratios[profile].append((k, both[0] / both[1]))
        rows.append(
            [str(k), f"{instance.rows:,}", f"{instance.join_size:,}", *(f"{r[-1][1]:.2f}" for r in ratios.values())]
        )
    panel.series = [(n, {"theorem": "grey", **PROFILES}[n], "line", r) for n, r in ratios.items()]
    return rows, [panel]


def attacks(sizes: Sequence[int], runs: int) -> tuple[Rows, list[Panel]]:
    """How often an attacker tells Figure 1's neighbours apart."""
    ideas = {"first idea": flawed.idea_one, "second idea": flawed.idea_two}
    found = {name: [(n, flawed.success(idea, n, BUDGET, runs)) for n in sizes] for name, idea in ideas.items()}
    most = flawed.best_guess(BUDGET)
    panel = Panel("Attacks on the flawed ideas", "n", "share of right guesses")
    panel.series = [(n, c, "line", p) for (n, p), c in zip(found.items(), ("red", "orange"), strict=True)]
    panel.series.append((f"most that (1, 1e-6) allows: {most:.3f}", "grey", "dash", [(n, most) for n in sizes]))
    return [[str(n), *(f"{p[i][1]:.3f}" for p in found.values()), f"{most:.3f}"] for i, n in enumerate(sizes)], [panel]


def families(bits: int) -> Iterator[tuple[str, hard.Instance, str, float]]:
    """(name, instance, method, tracing bound) of every hard family, with bits to ask about."""
    rng = np.random.default_rng(11)
    made = {f"Theorem 1.6, {s}": hard.reduction(s, (24,), 5) for s in hard.SHAPES}
    made |= {f"worst case, {s}": hard.agm_tight(s, 6) for s in hard.SHAPES}
    made |= {"Figure 2": hard.figure_2(), "Figure 3": hard.figure_3(60), "Example 4.2": hard.example_gap(32)}
    made["Theorem 4.5"] = hard.conforming([(40, 20), (20, 200)])
    for name, instance in made.items():
        method = "two_table" if len(instance.tables) == 2 else "multi_table"
        traced = name.startswith("Theorem 1.6") and lower.fingerprinting(
            24, bits, epsilon=1.0, delta=1e-6, sensitivity=instance.sensitivity
        )
        yield name, hard.with_bits(instance, bits, rng), method, float(traced or 0.0)
    many = hard.with_bits(hard.conforming([(24, 20)]), 600, rng)
    yield (
        "Theorem 3.5, 600 bits",
        many,
        "two_table",
        lower.fingerprinting(24, 600, epsilon=1.0, delta=1e-6, sensitivity=20),
    )


def between(cases: Any, runs: int) -> Rows:
    """Lower bound, measured error, upper bound of each profile. Cases: (name, schema, tables, workload, traced)."""
    rows = []
    for name, schema, tables, workload, method, traced in cases:
        known, task = facts(schema, tables, public=True), Task.of(workload, BUDGET)
        least = max(traced, lower.neighbours(known.local, epsilon=1.0, delta=1e-6)[0])
        row = [
            name,
            f"{known.join_size:,}",
            f"{known.local:,}",
            f"{least:,.0f}",
            f"{lower.theorem(known, task, method):,.0f}",
        ]
        exact = exact_answers(workload, tables)
        for profile in ("paper", "tight", "auto"):
            if profile == "paper" and workload.cells > 2**20:
                row += ["too large", ""]
                continue
            chosen = {"method": "auto"} if profile == "auto" else {"method": method, "profile": profile}
            errors = [largest_error(dj.release(schema, workload, tables, BUDGET, **chosen), exact) for _ in range(runs)]  # type: ignore[arg-type]
            row.append(f"{median(errors):,.0f}")
            if profile != "auto":
                row.append(f"{upper.proved(known, task, method, profile):,.0f}")
        rows.append(row)
    return rows


def real_joins(data: Path, names: Sequence[str]) -> Iterator[tuple[str, dj.Schema, dict[str, Any]]]:
    """Queries of the development data as schemas and tables; their domains are read off the rows, so this is no release."""
    import duckdb

    for path in sorted(data.glob("*/queries.json")):
        for query in json.loads(path.read_text(encoding="utf-8")):
            if query["name"] not in names:
                continue
            keys = sorted({k for r in query["relations"] for k in r["join_attrs"]})
            attributes, declared, tables = [dj.Attribute(name=k, key=True) for k in keys], [], {}
            for relation in query["relations"]:
                alias, own = relation["alias"], {f"{relation['alias']}_{a}": a for a in relation["attributes"]}
                picked = [f'"{k}"' for k in relation["join_attrs"]] + [f'"{a}" AS "{n}"' for n, a in own.items()]
                sql = f"SELECT {', '.join(picked)} FROM ({relation['sql'].replace('{dir}', str(path.parent))})"
                tables[alias] = duckdb.sql(sql).to_arrow_table().drop_null()
                values = {n: tuple(sorted(tables[alias].column(n).unique().to_pylist())) for n in own}
                attributes += [dj.Attribute(name=n, values=v) for n, v in values.items()]
                declared.append(dj.Table(name=alias, attributes=(*relation["join_attrs"], *own)))
            yield query["name"], dj.Schema(tuple(declared), tuple(attributes)), tables


def timing(sizes: Sequence[int], runs: int) -> tuple[Rows, list[Panel]]:
    """Seconds of a release against the rows of both tables."""
    found: dict[str, list[tuple[float, float]]] = {p: [] for p in PROFILES}
    for keys in sizes:
        instance = hard.uniform("two_table", keys=keys, degree=5, size=16, rng=np.random.default_rng(3))
        workload, tables = dj.Workload.marginals(instance.schema, 2), instance.arrow()
        for profile, points in found.items():
            for _ in range(runs):
                started = time.perf_counter()
                dj.release(instance.schema, workload, tables, BUDGET, method="two_table", profile=profile)
                points.append((instance.rows, time.perf_counter() - started))
    panel = Panel("Time of a release", "n", "seconds")
    panel.series = [(p, c, "dots", found[p]) for p, c in PROFILES.items()]
    return [[p, *(f"{s:+.2f}" for s in slope(points)), f"{points[-1][1]:.2f}"] for p, points in found.items()], [panel]


def table(head: str, rows: Rows) -> list[str]:
    """Markdown."""
    columns = head.split(" | ")
    return ["", *("| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *rows]), ""]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, one run each")
    parser.add_argument("--to", type=Path, default=Path("docs/figures"), help="folder for the figures and tables")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="development data, if there are any")
    options = parser.parse_args(arguments)
