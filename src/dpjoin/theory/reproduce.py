"""Measure what the theorems state, and draw it: `python -m dpjoin.theory.reproduce [--quick] [--to FOLDER]`.

Writes theory-*.svg and theory-results.md; all tables are made up. About ten minutes on one core. With --quick seconds,
which only shows that it runs. Real joins: `python benchmarks/theory.py`. What the figures say: docs/paper.md.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.evaluation import exact_answers
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.residual import star
from dpjoin.spec.workload import Products
from dpjoin.theory import flawed, hard, upper
from dpjoin.theory.facts import Facts, facts
from dpjoin.theory.figures import Panel, Points, save
from dpjoin.theory.upper import Task, as_one

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
CURVES = ("paper", "tight")
SETTING = {"keys": 200, "degree": 60, "size": 32, "queries": 300, "epsilon": 1.0}
THREE = {**SETTING, "keys": 2000, "degree": 20}
"""For three tables, where the sensitivity is the square of the degree."""
NAMES = {"two_table": "Two tables", "star": "Star", "path": "Path", "triangle": "Triangle"}
UNITS = {"n": "n, in rows", "Δ": "Δ, in join results of one row"}
VARIED: dict[str, tuple[str, float, Sequence[float]]] = {
    "n": ("keys", 0.5, (0.2, 0.5, 1, 2, 4)),
    "Δ": ("degree", 0.5, (0.25, 0.5, 1, 2, 4)),
    "ln |D|": ("size", 0.25, (8, 16, 32, 64, 128)),
    "ln |Q|": ("queries", 0.5, (10, 40, 160, 640, 2560)),
    "ε": ("epsilon", -0.5, (0.25, 0.5, 1, 2, 4)),
}
"""What is varied, by which setting, the theorem's exponent, and the values (n and Δ: factors; Δ at one join size)."""
Found = tuple[str, list[Panel]]
"""A table for the page, and figures."""


class Case(NamedTuple):
    """Tables that may be shown, and what is asked."""

    name: str
    schema: dj.Schema
    tables: dict[str, Any]
    workload: dj.Workload

    @property
    def method(self) -> str:
        """The one that takes the join as one table."""
        return as_one(len(self.tables))

    def exact(self) -> FloatArray:
        engine = DuckEngine(self.schema, self.tables, attributes=self.workload.attributes)
        return np.concatenate([answers for _, answers in exact_answers(engine, self.workload)])

    def releases(
        self, runs: int, *, budget: dj.Budget = BUDGET, method: str = "", profile: str = "tight"
    ) -> Iterator[tuple[float, str]]:
        """The largest error of each of several releases, and what it measured."""
        exact, given = self.exact(), (self.schema, self.workload, self.tables, budget)
        for _ in range(runs):
            release = dj.release(*given, method=method or self.method, profile=profile)
            yield float(np.abs(release.answer() - exact).max()), str(release.facts.get("strategy", ""))

    def errors(self, runs: int, **how: Any) -> list[float]:
        return [error for error, _ in self.releases(runs, **how)]


def asked(name: str, instance: hard.Instance, count: int) -> Case:
    """Random sets of values of the first attribute that has a domain, times the same of the last."""
    schema = instance.schema
    ends = {a: np.random.default_rng(ord(a[-1])) for a in (schema.queryable[0], schema.queryable[-1])}
    sets = {a: rng.integers(0, 2, (count, schema.attribute(a).size)) for a, rng in ends.items()}
    weights = {schema.tables_with(a)[0]: ((a,), some) for a, some in sets.items()}
    return Case(name, schema, instance.arrow(), dj.Workload.products(schema, weights))


def slope(points: Points) -> tuple[float, float]:
    """Of log y over log x by least squares, and the half-width of its 95 % interval."""
    from scipy import stats

    fit = stats.linregress(*np.log(np.array(points)).T)
    return float(fit.slope), float(fit.stderr * stats.t.ppf(0.975, max(1, len(points) - 2)))


def local_slopes(points: Points) -> str:
    """The same between neighbouring x, of medians: a power law has them all alike."""
    across = sorted({x for x, _ in points})
    up = [median(y for at, y in points if at == x) for x in across]
    return ", ".join(f"{s:+.1f}" for s in np.diff(np.log(up)) / np.diff(np.log(across)))


def supposed(shape: str, keys: int, degree: int) -> Facts:
    """The statistics of `hard.uniform`, without rows."""
    m, schema = len(hard.SHAPES[shape]), hard.shape_schema(shape, {})
    b = star((degree,) * m)
    return Facts(rows=m * keys * degree, join_size=keys * degree**m, boundaries=b, schema=schema, degrees={})


def exponents(shape: str, parameters: Sequence[str], runs: int, most: int) -> Found:
    """Errors against several parameters."""
    found = [varied(shape, p, runs, most) for p in parameters]
    head = "join | parameter | exponent | theorem here | `paper` | step by step | `tight` | step by step"
    head += " | uniform guess | `paper` / guess | `tight` measured"
    return markdown(f"Exponents, {shape}", head, [row for row, _ in found]), [panel for _, panel in found]


def varied(shape: str, parameter: str, runs: int, most: int) -> tuple[list[str], Panel]:
    """Error against one parameter: the measured exponents beside the theorem's."""
    setting, exponent, values = VARIED[parameter]
    base, m = SETTING if shape == "two_table" else THREE, len(hard.SHAPES[shape])
    points: dict[str, list[tuple[float, float]]] = {n: [] for n in ("theorem, constant 1", "uniform guess", *CURVES)}
    ways = dict[str, None]()
    for value in values[:most]:
        now = {**base, setting: value * base[setting] if parameter == "n" else value}
        if parameter == "Δ":
            times = value ** (1 / (m - 1))
            now |= {"degree": round(base["degree"] * times), "keys": max(1, round(base["keys"] / times**m))}
        keys, degree, size, count = (int(now[k]) for k in ("keys", "degree", "size", "queries"))
        instance = hard.uniform(shape, keys=keys, degree=degree, size=size, rng=np.random.default_rng(7))
        case, budget = asked(shape, instance, count), dj.Budget(epsilon=float(now["epsilon"]), delta=1e-6)
        logs = {"ln |D|": math.log(case.workload.cells), "ln |Q|": math.log(count)}
        x = {"n": instance.rows, "Δ": instance.sensitivity, **logs}.get(parameter, value)
        stated = upper.theorem(supposed(shape, keys, degree), Task.of(case.workload, budget), case.method)
        points["theorem, constant 1"].append((x, stated))
        points["uniform guess"].append((x, off_by_guessing(case, instance.join_size)))
        for p in CURVES:
            made = list(case.releases(runs, budget=budget, profile=p))
            points[p] += [(x, error) for error, _ in made]
        ways |= dict.fromkeys(re.sub(r"\d+ (product )?", "", way.partition(",")[0]) for _, way in made)
    fits = {name: slope(found) for name, found in points.items()}
    words = {p: "{:+.2f} ± {:.2f}".format(*fits[p]) for p in CURVES}
    row = [shape, parameter, f"{exponent:+.2f}", f"{fits['theorem, constant 1'][0]:+.2f}"]
    row += [cell for p in CURVES for cell in (words[p], local_slopes(points[p]))]
    over_guess = median(error for _, error in points["paper"][:runs]) / points["uniform guess"][0][1]
    row += [f"{fits['uniform guess'][0]:+.2f}", f"{over_guess:.2f}", ", ".join(ways)]
    series = {name + (f": slope {words[name]}" if name in words else ""): of for name, of in points.items()}
    across, up = UNITS.get(parameter, parameter), "largest error, in join results"
    return row, Panel(f"{NAMES[shape]}: error against {parameter}", across, up, series, True)


def off_by_guessing(case: Case, size: int) -> float:
    """The largest error of the uniform distribution over all cells, for queries that are products of sets."""
    parts = [sets for group in case.workload.groups if isinstance(group, Products) for _, sets in group.parts]
    shares = np.prod([(sets > 0).mean(axis=1) for sets in parts], axis=0)
    return float(np.abs(case.exact() - size * shares).max())


def speaking(shapes: Sequence[str]) -> Found:
    """The bounds against n at one degree, and from which n on they are below half of the join."""
    task, rows, panels = Task(budget=BUDGET, cells=1024, queries=300, norm=75), [], []
    for shape in shapes:
        method, sizes = as_one(len(hard.SHAPES[shape])), [supposed(shape, 4**i, 60) for i in range(1, 19)]
        bounds = {"theorem, constant 1": [upper.theorem(known, task, method) for known in sizes]}
        bounds |= {p: [upper.proved(known, task, method, p) for known in sizes] for p in CURVES}
        lines = {n: [(k.rows, b / k.join_size) for k, b in zip(sizes, of, strict=True)] for n, of in bounds.items()}
        panels.append(Panel(f"{NAMES[shape]}: bounds, all degrees 60", UNITS["n"], "bound / join size", lines))
        speak = (next((f"{n:.1e}" for n, share in points if share < 0.5), "never") for points in lines.values())
        rows.append([shape, *speak])
    head = "join | theorem, constant 1 | `paper`, proved | `tight`, proved"
    return markdown("From which n on bounds are below half of the join", head, rows), panels


def gap(powers: Sequence[int], runs: int) -> Found:
    """Example 4.2: the error of Uniformize over that of TwoTable, by theorem and by release."""
    ratios: dict[str, list[tuple[float, float]]] = {"theorem, constant 1": [], **{p: [] for p in CURVES}}
    rows = []
    for k in (2**p for p in powers):
        case = asked("gap", hard.example_gap(k), 300)
        known, task = facts(case.schema, case.tables, public=True), Task.of(case.workload, BUDGET)
        both = {m: {"theorem, constant 1": upper.theorem(known, task, m)} for m in ("uniformize", "two_table")}
        for method, of in both.items():
            of |= {p: median(case.errors(runs, method=method, profile=p)) for p in CURVES}
        for name, points in ratios.items():
            points.append((k, both["uniformize"][name] / both["two_table"][name]))
        rows.append([f"{v:,}" for v in (k, known.rows, known.join_size)] + [f"{r[-1][1]:.2f}" for r in ratios.values()])
    panel = Panel("Example 4.2: Uniformize against TwoTable", "k", "error / error of TwoTable", ratios)
    return markdown("Example 4.2, Uniformize / TwoTable", "k | n | OUT | theorem | `paper` | `tight`", rows), [panel]


def attacks(sizes: Sequence[int], runs: int) -> Found:
    """How often an attacker tells Figure 1's neighbours apart."""
    most = flawed.best_guess(BUDGET)
    ideas = {"first idea": flawed.idea_one, "second idea": flawed.idea_two}
    found = {name: [(n, flawed.success(idea, n, BUDGET, runs)) for n in sizes] for name, idea in ideas.items()}
    allowed = {f"(1, 1e-6) allows {most:.3f}": [(n, most) for n in sizes]}
    panel = Panel("Attacks on the flawed ideas", UNITS["n"], "share of right guesses", found | allowed)
    rows = [[str(n), *(f"{p[i][1]:.3f}" for p in found.values()), f"{most:.3f}"] for i, n in enumerate(sizes)]
    return markdown("Attacks: share of right guesses", "n | first idea | second idea | allowed", rows), [panel]


def timing(sizes: Sequence[int], runs: int) -> Found:
    """Seconds of a release against the rows of both tables."""
    points: dict[str, list[tuple[float, float]]] = {p: [] for p in CURVES}
    for p in CURVES:
        for keys in sizes:
            instance = hard.uniform("two_table", keys=keys, degree=5, size=16, rng=np.random.default_rng(3))
            given = (instance.schema, dj.Workload.marginals(instance.schema, 2), instance.arrow(), BUDGET)
            for _ in range(runs):
                started = time.perf_counter()
                dj.release(*given, method="two_table", profile=p)
                points[p].append((instance.rows, time.perf_counter() - started))
    rows = [[p, "{:+.2f} ± {:.2f}".format(*slope(of)), f"{of[-1][1]:.2f}"] for p, of in points.items()]
    panel = Panel("Time of a release", UNITS["n"], "seconds", points, True)
    return markdown("Time", "profile | slope | seconds at the largest n", rows), [panel]


def markdown(title: str, head: str, rows: list[list[str]]) -> str:
    """A titled table."""
    columns = head.split(" | ")
    escaped = [[cell.replace("|", "\\|") for cell in cells] for cells in rows]
    lines = ("| " + " | ".join(cells) + " |" for cells in [columns, ["---"] * len(columns), *escaped])
    return f"## {title}\n\n" + "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, few runs")
    parser.add_argument("--to", type=Path, default=Path("docs/figures"), help="folder for figures and tables")
    options = parser.parse_args(arguments)
    quick, runs = options.quick, 1 if options.quick else 7
    kinds = {"two_table": ["n"]} if quick else {s: ["n", "Δ", "ε"] for s in NAMES} | {"two_table": list(VARIED)}
    found = {shape: exponents(shape, of, runs, 2 if quick else 5) for shape, of in kinds.items()}
    found["bounds"] = speaking(("two_table", "star"))
    found["gap"] = gap((3,) if quick else (4, 6, 8), runs)
    found["attacks"] = attacks((10, 30) if quick else (10, 20, 30, 50, 100, 200, 500), 20 if quick else 400)
    found["time"] = timing((500, 1000) if quick else (2000, 8000, 30_000, 100_000, 300_000), runs)
    options.to.mkdir(parents=True, exist_ok=True)
    for name, (_, panels) in found.items():
        save(options.to / f"theory-{name}.svg", panels)
    text = "\n".join(["# What `python -m dpjoin.theory.reproduce` found\n", *(page for page, _ in found.values())])
    (options.to / "theory-results.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
