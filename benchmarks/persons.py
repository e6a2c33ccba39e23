"""Accuracy at person level on real joins: `python benchmarks/persons.py [--runs N] [--query NAME ...] [--again]`.

The owner is the key that all private tables share. Beside `dpjoin` at person and at row level stand three baselines.
All are told what a custodian would not know: how many rows or join results the largest owner has, or where to cut.
With `--again` baselines stay as they were measured before.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import dpjoin as dj
import joins
from baselines import Answers, mean_total_variation, whole_rho
from dpjoin.engine.duck import DuckEngine
from queries import KEY, ROOT, TWO_TABLE, load
from report import command, markdown_table, number, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
COVERAGE = 0.9
OWNERS = dict.fromkeys(("sandag_fk", "oulad_two", "nyc_weather", "tpch_lo", "nyc_planes", "sandag_m2m"), (KEY,))
OWNERS |= {"sandag_star": ("k",), "oulad_deep": ("k",), "nyc_star": ("k",), "tpch_deep": ("pk",)}
PERSON = {
    "sandag_fk": 0.0100,
    "sandag_star": 0.0160,
    "oulad_two": 0.0128,
    "oulad_deep": 0.0128,
    "nyc_weather": 0.0100,
    "nyc_star": 0.0151,
    "tpch_lo": 0.0021,
    "tpch_deep": 0.0081,
}
"""Mean total variation at person level, at most."""
ROW = {"sandag_star": 0.0165, "nyc_star": 0.0155, "sandag_fk": 0.0100, "nyc_planes": 0.080, "tpch_deep": 0.0085}
"""Mean total variation at row level, at most."""
COLUMNS = ("person", "row", "group privacy", "flatten and truncate", "root record")
FIGURE = ROOT / "docs" / "figures" / "persons.svg"
MOST_SLOTS = 400
"""Of pairs of children that the baseline with root records looks at."""


@dataclass(frozen=True, eq=False)
class Join:
    """A join whose rows have owners, with its exact answers."""

    name: str
    schema: dj.Schema
    tables: dict[str, pa.Table]
    exact: Answers

    @property
    def workload(self) -> dj.Workload:
        return dj.Workload.marginals(self.schema, (1, 2))

    @property
    def by_row(self) -> dj.Schema:
        return replace(self.schema, unit=())


def joined(name: str) -> Join | None:
    """A query of the development data, with its owner declared."""
    if name in TWO_TABLE:
        query = next(load([name]), None)
        found = None if query is None else (query.schema, query.tables)
    else:
        found = joins.load(name, bounds=False)
    if found is None:
        return None
    schema, tables = replace(found[0], unit=OWNERS[name]), found[1]
    workload = dj.Workload.marginals(schema, (1, 2))
    exact = DuckEngine(schema, tables, attributes=workload.attributes).exact_answers(list(workload.groups))
    return Join(name, schema, tables, [np.asarray(e, dtype=np.float64) for e in exact])


def split(join: Join, flat: np.ndarray) -> Answers:
    return np.split(flat, np.cumsum([len(g) for g in join.workload.groups])[:-1])


def released(join: Join, schema: dj.Schema, budget: dj.Budget) -> dict[str, float]:
    started = time.perf_counter()
    workload = dj.Workload.marginals(schema, (1, 2))
    release = dj.release(schema, workload, join.tables, budget)
    answers, bars = release.answer(), release.error(coverage=COVERAGE)
    covered = np.abs(answers - np.concatenate(join.exact)) <= bars + 1e-9
    return {
        "tv": mean_total_variation(split(join, answers), join.exact),
        "covered": float(covered.mean()),
        "seconds": time.perf_counter() - started,
        "method": release.method,
    }


# Baselines -----------------------------------------------------------------------------------------------------------


def owners(join: Join) -> dict[str, np.ndarray]:
    """A number for the owner of each row of each table, alike in all of them."""
    columns = [join.tables[t.name].column(join.schema.unit[0]).to_pylist() for t in join.schema.tables]
    _, numbers = np.unique(np.concatenate([np.asarray(c) for c in columns]), return_inverse=True)
    return dict(zip(join.tables, np.split(numbers, np.cumsum([len(c) for c in columns])[:-1]), strict=True))


def group_privacy(join: Join) -> dict[str, float]:
    """The row-level release, at a budget so small that it protects as many rows as the largest owner has."""
    numbers = owners(join)
    most = int(
        sum(np.bincount(n, minlength=1 + max(int(m.max()) for m in numbers.values())) for n in numbers.values()).max()
    )
    each = BUDGET.epsilon / most
    delta = max(1e-15, BUDGET.delta / (most * math.exp(BUDGET.epsilon)))
    return released(join, join.by_row, dj.Budget(epsilon=each, delta=delta))


def codes_of(join: Join, table: str) -> dict[str, np.ndarray]:
    found = {}
    for name in join.schema.table(table).attributes:
        if name in join.schema.queryable:
            positions = {v: i for i, v in enumerate(join.schema.attribute(name).labels)}
            found[name] = np.array([positions[v] for v in join.tables[table].column(name).to_pylist()])
    return found


def flattened(join: Join, rng: np.random.Generator) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The join itself: the owner of each result, and its codes, in random order."""
    import duckdb

    with duckdb.connect() as connection:
        for name, table in join.tables.items():
            connection.register(name, table)
        wanted = ", ".join([*join.schema.unit, *(f'"{a}"' for a in join.schema.queryable)])
        rows = connection.sql(f"SELECT {wanted} FROM {' NATURAL JOIN '.join(join.tables)}").to_arrow_table()
    order = rng.permutation(rows.num_rows)
    _, owner = np.unique(np.asarray(rows.column(0).to_pylist()), return_inverse=True)
    codes = {}
    for name in join.schema.queryable:
        positions = {v: i for i, v in enumerate(join.schema.attribute(name).labels)}
        codes[name] = np.array([positions[v] for v in rows.column(name).to_pylist()])[order]
    return owner[order], codes


def flatten_and_truncate(join: Join, owner: np.ndarray, codes: dict[str, np.ndarray]) -> dict[str, float]:
    """The join first, at most T results of an owner, then a single-table release told T (its 95 % quantile).

    A synthesizer that knows one row a person is told that a person has T: its rho counts for a T² times smaller one.
    """
    by_owner = np.bincount(owner)
    most = max(1, int(np.quantile(by_owner[by_owner > 0], 0.95)))
    order = np.argsort(owner, kind="stable")
    starts = np.repeat(np.cumsum(by_owner) - by_owner, by_owner)
    kept = order[np.arange(len(order)) - starts < most]
    attributes = tuple(a for a in join.schema.attributes if not a.key)
    schema = dj.Schema((dj.Table(name="joined", attributes=tuple(a.name for a in attributes)),), attributes)
    rows = pa.table({a.name: pa.array([a.labels[c] for c in codes[a.name][kept]]) for a in attributes})
    release = dj.release(schema, dj.Workload.marginals(schema, (1, 2)), {"joined": rows}, smaller(most))
    return {"tv": mean_total_variation(split(join, release.answer()), join.exact)}


def smaller(times: int) -> dj.Budget:
    """The epsilon whose rho is so many times squared smaller, at the same delta."""
    wanted, low, high = whole_rho(BUDGET) / times**2, 1e-4, BUDGET.epsilon
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if whole_rho(replace(BUDGET, epsilon=middle)) < wanted else (low, middle)
    return replace(BUDGET, epsilon=low)


def root_record(join: Join, rng: np.random.Generator) -> dict[str, float]:
    """One wide record for each owner: its rows of every table in k slots, then marginals of slots, one Gaussian each.

    A person is one record, so each marginal moves by one; but every pair of slots is a marginal of its own.
    """
    numbers = owners(join)
    count = 1 + max(int(n.max()) for n in numbers.values())
    slots: dict[str, tuple[np.ndarray, dict[str, np.ndarray]]] = {}
    for name, owned in numbers.items():
        by_owner = np.bincount(owned, minlength=count)
        most = max(1, int(np.quantile(by_owner[by_owner > 0], 0.9)))
        order = rng.permutation(len(owned))
        order = order[np.argsort(owned[order], kind="stable")]
        rank = np.arange(len(order)) - np.repeat(np.cumsum(by_owner) - by_owner, by_owner)
        keep = rank < most
        codes = {}
        for a, code in codes_of(join, name).items():
            wide = np.full((count, most), -1)
            wide[owned[order][keep], rank[keep]] = code[order][keep]
            codes[a] = wide
        present = np.zeros((count, most), dtype=bool)
        present[owned[order][keep], rank[keep]] = True
        slots[name] = present, codes
    home = {a: name for name, (_, codes) in slots.items() for a in codes}
    asked = [(g.scope, list(product(*(range(p.shape[1]) for p, _ in slots.values())))) for g in join.workload.groups]
    asked = [(scope, some[:MOST_SLOTS]) for scope, some in asked]
    variance = sum(len(some) for _, some in asked) / (2 * whole_rho(BUDGET))
    answers = []
    tables = list(slots)
    for scope, some in asked:
        shape = join.schema.shape(scope)
        total = np.zeros(math.prod(shape))
        for at in some:
            there = np.all([slots[t][0][:, i] for t, i in zip(tables, at, strict=True)], axis=0)
            columns = [slots[home[a]][1][a][there, at[tables.index(home[a])]] for a in scope]
            total += np.bincount(np.ravel_multi_index(columns, shape), minlength=len(total))
        noisy = total + math.sqrt(variance * len(some)) * rng.standard_normal(len(total))
        answers.append(np.maximum(noisy, 0.0))
    return {"tv": mean_total_variation(answers, join.exact)}


# The page ------------------------------------------------------------------------------------------------------------


Runs = dict[str, list[dict[str, Any]]]


def measure(join: Join, runs: int) -> dict[str, Any]:
    rng = np.random.default_rng(20261118)
    owner, codes = flattened(join, rng)
    found: Runs = {column: [] for column in COLUMNS}
    for _ in range(runs):
        found["flatten and truncate"].append(flatten_and_truncate(join, owner, codes))
        found["root record"].append(root_record(join, rng))
    found["group privacy"] = [group_privacy(join) for _ in range(min(runs, 3))]
    return measured_again(join, found, runs)


def measured_again(join: Join, before: Runs, runs: int) -> dict[str, Any]:
    """Our own columns; baselines as they were."""
    schemas = {"person": join.schema, "row": join.by_row}
    mine = {unit: [released(join, schema, BUDGET) for _ in range(runs)] for unit, schema in schemas.items()}
    return summary(join.name, join.schema.unit, {**before, **mine})


def summary(query: str, owner: Sequence[str], found: Runs) -> dict[str, Any]:
    medians = {
        column: {k: median(r[k] for r in rows) for k in rows[0] if k != "method"} for column, rows in found.items()
    }
    methods = {column: sorted({r["method"] for r in found[column]}) for column in ("person", "row")}
    return {"query": query, "owner": list(owner), "medians": medians, "methods": methods, "runs": found}


def page(results: list[dict[str, Any]], runs: int) -> str:
    baselines = max(len(r["runs"]["root record"]) for r in results)
    again = ["--again"] if baselines != runs else []
    more = [f"{r['query']} {len(r['runs']['row'])}" for r in results if len(r["runs"]["row"]) != runs]
    variation, checks = [], []
    for r in results:
        columns = r["medians"]
        variation.append([r["query"], "+".join(r["owner"]), *(number(columns[c]["tv"]) for c in COLUMNS)])
        for unit, targets in (("person", PERSON), ("row", ROW)):
            most = targets.get(r["query"])
            met = "–" if most is None else "met" if columns[unit]["tv"] <= most else "not met"
            told = [number(columns[unit]["tv"]), number(most) if most else "–", met]
            covered = columns[unit]["covered"]
            inside = "met" if 0.85 <= covered <= 0.99 else "not met"
            checks.append([r["query"], unit, ", ".join(r["methods"][unit]), *told, f"{covered:.3f}", inside])
    parts = [
        "# Persons",
        f"Made by `{command('persons.py', '--runs', runs, *again)}` with {versions()}.",
        f"Budget ({BUDGET.epsilon:g}, {BUDGET.delta:g}), all 1- and 2-way marginals, medians of {runs} runs"
        f"{' (' + ', '.join(more) + ')' if more else ''}, baselines of {baselines} (group privacy of 3). Mean total "
        "variation over the marginals; lower is better. `person` protects an owner with all rows in all tables, `row` "
        "one row. The other columns protect persons too and are told what is private: how many rows the largest owner "
        "has (group privacy), where 95 % of owners have fewer join results (flatten and truncate: the join first, then "
        "a single-table release), or 90 % fewer rows of a table (root record: one wide record an owner, one Gaussian "
        "each).",
        markdown_table(["query", "owner", *COLUMNS], variation),
        "## Against the targets",
        "Covered: the share of cells whose 90 % error bar holds the exact answer; it should be 0.85 to 0.99.",
        markdown_table(["query", "unit", "method", "mean TV", "at most", "", "covered", ""], checks),
    ]
    return "\n\n".join(parts) + "\n"


MARKS = {
    "person": ("#0b62a4", "circle"),
    "row": ("#e07b00", "square"),
    "group privacy": ("#888888", "cross"),
    "root record": ("#4b8b3b", "diamond"),
}
"""What the picture shows, each by colour and by shape."""


def picture(results: list[dict[str, Any]]) -> str:
    """Mean total variation by query, on a logarithmic axis: SVG."""
    low, high, left, width, height = 1e-3, 0.3, 130, 560, 26

    def at(value: float) -> float:
        return left + width * (math.log(value / low) / math.log(high / low))

    def mark(shape: str, x: float, y: float, colour: str) -> str:
        if shape == "circle":
            return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" fill="{colour}"/>'
        if shape == "cross":
            d = f"M{x - 5:.1f} {y - 5:.1f}l10 10m0 -10l-10 10"
            return f'<path d="{d}" stroke="{colour}" stroke-width="2.5"/>'
        turn = f' transform="rotate(45 {x:.1f} {y:.1f})"' if shape == "diamond" else ""
        return f'<rect x="{x - 4.5:.1f}" y="{y - 4.5:.1f}" width="9" height="9" fill="{colour}"{turn}/>'

    bottom = 50 + height * len(results)
    lines = []
    for value in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3):
        x = at(value)
        lines.append(f'<path d="M{x:.1f} 40V{bottom}" stroke="#ddd"/>')
        lines.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{value:g}</text>')
    for n, name in enumerate(MARKS):
        colour, shape = MARKS[name]
        lines.append(mark(shape, left + 20 + 150 * n, 20, colour))
        lines.append(f'<text x="{left + 32 + 150 * n}" y="25">{name}</text>')
    for n, result in enumerate(results):
        y = 55 + height * n
        lines.append(f'<text x="{left - 12}" y="{y + 5}" text-anchor="end">{result["query"]}</text>')
        for name in reversed(MARKS):
            colour, shape = MARKS[name]
            lines.append(mark(shape, at(min(high, max(low, result["medians"][name]["tv"]))), y, colour))
    title = "Mean total variation at person level and at row level, and of two baselines, by query"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 40} {bottom + 48}" role="img" '
        f'font-family="sans-serif" font-size="13"><title>{title}</title>'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(lines)}'
        f'<text x="{left + width / 2}" y="{bottom + 40}" text-anchor="middle">mean total variation</text></svg>\n'
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--query", nargs="+", default=list(OWNERS), help="only these")
    parser.add_argument("--again", action="store_true", help="keep the baselines of the results folder")
    parser.add_argument("--no-write", action="store_true", help="print, and leave the results folder alone")
    options = parser.parse_args(arguments)
    results, before = [], {}
    if options.again:
        known = json.loads((ROOT / "benchmarks" / "results" / "persons.json").read_text(encoding="utf-8"))
        before = {r["query"]: r["runs"] for r in known["queries"]}
    for name in options.query:
        join = joined(name)
        if join is None:
            print(f"skipped: no query {name} in ../shared/data (beside the repository)")
            continue
        results.append(measured_again(join, before[name], options.runs) if before else measure(join, options.runs))
        shown = ", ".join(f"{c} {number(results[-1]['medians'][c]['tv'])}" for c in COLUMNS)
        print(f"{name}: mean TV {shown}; methods {results[-1]['methods']}", flush=True)
        if not options.no_write:
            write("persons", page(results, options.runs), {"runs": options.runs, "queries": results})
            FIGURE.write_text(picture(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
