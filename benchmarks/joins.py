"""Joins of three tables: sensitivity bounds, and accuracy with declared bounds: `benchmarks/joins.py [--runs N]`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np

import dpjoin as dj
from baselines import Elastic, PerTable, elastic_beta, elastic_gaussian, mean_total_variation, whole_rho
from dpjoin.engine.duck import DuckEngine
from dpjoin.privacy.degree_bounds import subsets
from dpjoin.privacy.gauge import gauge_bound, ls_gauge, t_gauge
from dpjoin.privacy.residual import Boundaries, local_sensitivity, residual_sensitivity
from dpjoin.spec.schema import DegreeBound
from queries import DATA
from report import command, markdown_table, number, peak_mb, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
BETA = Fraction(0.0724)
SHIFT = 39
"""The mean of the noise that `tight` adds to a gauge at (1, 1e-6)."""
BOUNDS: dict[str, dict[str, dict[tuple[str, ...], int]]] = {
    "nyc_star": {"weather": {("k",): 2}, "legacy": {("k",): 25}, "other": {("k",): 25}},
    "oulad_deep": {
        "student": {("k", "m"): 1, ("k",): 6},
        "reg": {("k", "m"): 1, ("k",): 6},
        "assess": {("k",): 32},
    },
    "sandag_star": {"hh": {("k",): 1}, "adults": {("k",): 10}, "kids": {("k",): 10}},
    "tpch_path": {"orders": {("ok",): 1}, "lineitem": {("pk",): 64, ("ok",): 7}, "partsupp": {("pk",): 4}},
}
TARGETS = {"nyc_star": 0.033, "oulad_deep": 0.012, "sandag_star": 0.075, "tpch_path": 0.0045}
MEMORY_MB = 2000
NAMES = (*BOUNDS, "tpch_col", "lastfm_triangle")


def load(name: str, *, bounds: bool) -> tuple[dj.Schema, dict[str, Any]] | None:
    """The schema, with the declared bounds if asked, and the tables as Arrow. Domains are read off the data here."""
    for path in sorted(DATA.glob("*/queries.json")):
        for described in json.loads(path.read_text(encoding="utf-8")):
            if described["name"] == name:
                return _loaded(described, path.parent, BOUNDS.get(name, {}) if bounds else {})
    return None


def _loaded(
    described: dict[str, Any], folder: Path, limits: dict[str, dict[tuple[str, ...], int]]
) -> tuple[dj.Schema, dict[str, Any]]:
    keys = sorted({k for r in described["relations"] for k in r["join_attrs"]})
    attributes, declared, tables = [dj.Attribute(name=k, key=True) for k in keys], [], {}
    with duckdb.connect() as connection:
        for relation in described["relations"]:
            alias = relation["alias"]
            columns = {f"{alias}_{a}": a for a in relation["attributes"]}
            chosen = [f'"{k}"' for k in relation["join_attrs"]] + [f'"{a}" AS "{n}"' for n, a in columns.items()]
            sql = f"SELECT {', '.join(chosen)} FROM ({relation['sql'].replace('{dir}', str(folder))})"
            tables[alias] = connection.sql(sql).to_arrow_table().drop_null()
            for n in columns:
                values = tuple(sorted(tables[alias].column(n).unique().to_pylist()))
                attributes.append(dj.Attribute(name=n, values=values))
            bounds = tuple(DegreeBound(attributes=y, limit=c) for y, c in limits.get(alias, {}).items())
            declared.append(dj.Table(name=alias, attributes=(*relation["join_attrs"], *columns), bounds=bounds))
    return dj.Schema(tuple(declared), tuple(attributes)), tables


def sensitivities(schema: dj.Schema, tables: dict[str, Any]) -> dict[str, float]:
    """Local sensitivity, and what each bound makes of it before noise and (gauges) with a typical shift."""
    engine = DuckEngine(schema, tables, attributes=())
    values = {s: engine.exact_boundary(s) for s in subsets(schema)}
    names = tuple(t.name for t in schema.tables)
    b = Boundaries(tables=names, private=frozenset(names), values=values)
    ls = ls_gauge(b)
    local = local_sensitivity(b)
    elastic = Elastic(schema, tables)
    return {
        "join_size": engine.exact_join_size(),
        "local": local,
        "residual": float(residual_sensitivity(b, BETA)) / local,
        "paper": 7.67 * float(residual_sensitivity(b, BETA)) / local,
        "t_gauge": gauge_bound(b, t_gauge(b) + SHIFT) / local,
        "ls_gauge": gauge_bound(b, (ls if ls is not None else t_gauge(b)) + SHIFT) / local,
        "elastic": elastic.smooth(float(BETA)) / local,
        "elastic_own_beta": elastic.smooth(elastic_beta(BUDGET)) / local,
    }


def accuracy(schema: dj.Schema, tables: dict[str, Any], runs: int) -> dict[str, float]:
    """Mean total variation of `tight` with declared bounds, beside the uniform distribution and the baselines."""
    workload = dj.Workload.marginals(schema, (1, 2))
    engine = DuckEngine(schema, tables, attributes=workload.attributes)
    exact = [np.asarray(a, dtype=float) for a in engine.exact_answers(workload.groups)]
    uniform = float(np.mean([0.5 * np.abs(e / e.sum() - 1 / len(e)).sum() for e in exact]))
    found, seconds, bound = [], [], 0
    for _ in range(runs):
        started = time.perf_counter()
        release = dj.release(schema, workload, tables, BUDGET)
        seconds.append(time.perf_counter() - started)
        result = dj.evaluate(release, tables)
        found.append((result.mean_total_variation, result.covered))
        bound = release.facts["sensitivity_bound"]
    tv, covered = (median(v) for v in zip(*found, strict=True))
    return {
        "tv": tv,
        "covered": covered,
        "uniform": uniform,
        "bound": bound,
        "seconds": median(seconds),
        **baselines(schema, workload, tables, exact, runs),
    }


def undeclared(schema: dj.Schema, tables: dict[str, Any], runs: int) -> dict[str, float]:
    """Mean total variation of `tight` without declared bounds: it knows what elastic sensitivity knows."""
    workload = dj.Workload.marginals(schema, (1, 2))
    found = []
    for _ in range(runs):
        release = dj.release(schema, workload, tables, BUDGET)
        found.append((dj.evaluate(release, tables).mean_total_variation, release.facts["sensitivity_bound"]))
    tv, bound = (median(v) for v in zip(*found, strict=True))
    return {"undeclared": tv, "undeclared_bound": bound}


def baselines(
    schema: dj.Schema, workload: dj.Workload, tables: dict[str, Any], exact: list[np.ndarray], runs: int
) -> dict[str, float]:
    """Mean total variation of each baseline, medians of as many runs."""
    rng = np.random.default_rng(20230618)
    rho = whole_rho(BUDGET)
    per_table = PerTable(schema, workload, tables)
    bound = Elastic(schema, tables).smooth(elastic_beta(BUDGET))
    ways = {
        "per_table": lambda: per_table.answers(rho, rng),
        "per_table_not_clipped": lambda: per_table.answers(rho, rng, clip=False),
        "elastic": lambda: elastic_gaussian(exact, bound, BUDGET, rng),
        "elastic_free": lambda: elastic_gaussian(exact, bound, BUDGET, rng, free=True),
    }
    found = {n: median(mean_total_variation(way(), exact) for _ in range(runs)) for n, way in ways.items()}
    return {**found, "elastic_bound": bound}


def memory(name: str) -> float:
    """Peak memory, in megabytes, of a fresh process that reads the tables and releases once with declared bounds."""
    command = [sys.executable, __file__, "--release-only", name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _release_only(name: str) -> float:
    loaded = load(name, bounds=True)
    assert loaded is not None
    schema, tables = loaded
    dj.release(schema, dj.Workload.marginals(schema, (1, 2)), tables, BUDGET)
    return peak_mb()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--release-only", metavar="QUERY", help="release once and print the peak memory, in MB")
    options = parser.parse_args(arguments)
    if options.release_only:
        print(_release_only(options.release_only))
        return 0
    results: dict[str, Any] = {}
    for name in NAMES:
        loaded = load(name, bounds=False)
        if loaded is None:
            print(f"skipped: no query {name} in ../shared/data (beside the repository)")
            continue
        results[name] = {"sensitivity": sensitivities(*loaded)}
        if name in BOUNDS:
            bounded = load(name, bounds=True)
            assert bounded is not None
            results[name]["accuracy"] = {
                **accuracy(*bounded, options.runs),
                **undeclared(*loaded, options.runs),
                "peak_mb": memory(name),
            }
        print(name, results[name], flush=True)
    if results and not options.no_write:
        write("joins", _page(results, options.runs), results)
    return 0


def _page(results: dict[str, Any], runs: int) -> str:
    s = [
        [
            n,
            f"{r['join_size']:,}",
            str(r["local"]),
            *(number(r[k]) for k in ("residual", "paper", "t_gauge", "ls_gauge", "elastic", "elastic_own_beta")),
        ]
        for n, r in ((n, v["sensitivity"]) for n, v in results.items())
    ]
    columns = ("undeclared", "uniform", "per_table", "per_table_not_clipped", "elastic", "elastic_free")
    rows = [(n, v["accuracy"]) for n, v in results.items() if "accuracy" in v]
    tv = [
        [n, number(r["tv"]), number(TARGETS[n]), _met(r["tv"] <= TARGETS[n]), *(number(r[k]) for k in columns)]
        for n, r in rows
    ]
    rest = [
        [
            n,
            f"{r['bound']:,}",
            f"{r['undeclared_bound']:,.0f}",
            f"{r['elastic_bound']:,.0f}",
            f"{r['covered']:.3f}",
            f"{r['seconds']:.1f}",
            f"{r['peak_mb']:,.0f} MB",
            _met(r["peak_mb"] < MEMORY_MB),
        ]
        for n, r in rows
    ]
    return "\n\n".join(
        [
            "# Joins of three tables",
            f"Made by `{command('joins.py', '--runs', runs)}` with {versions()}.",
            "## Bounds on the sensitivity, as multiples of the local sensitivity, without declared bounds",
            "Residual sensitivity at beta = 1/13.8 as it is, and with the paper's typical noise (7.67 times); both "
            f"gauges with a typical shift of {SHIFT}. Elastic sensitivity as it is, without noise: at the same beta, "
            f"and at its own paper's, epsilon / (2 ln(2 / delta)) = 1/{1 / elastic_beta(BUDGET):.1f}; the "
            f"gauges' shift makes the latter {np.exp(SHIFT * elastic_beta(BUDGET)):.1f} times as large.",
            markdown_table(
                [
                    "query",
                    "join size",
                    "local",
                    "residual",
                    "paper",
                    "T-gauge",
                    "LS-gauge",
                    "elastic",
                    "elastic, its beta",
                ],
                s,
            ),
            "## Mean total variation of `tight` with declared bounds, and of what it is compared with",
            f"All 1- and 2-way marginals, (1, 1e-6), medians of {runs} runs. Domains are read off the data here, "
            "which a real release must not do.",
            "`tight`, nothing declared: the same release without the declared bounds, so that it knows as much as "
            "elastic sensitivity. Favours to the others: `uniform` knows the true join size; the per-table columns "
            "know which keys occur, and of a table with several keys which combinations; in the last column the "
            "elastic bound costs nothing. These four columns are not private.",
            markdown_table(
                [
                    "query",
                    "`tight`",
                    "at most",
                    "",
                    "`tight`, nothing declared",
                    "uniform",
                    "per-table, then join",
                    "per-table, not clipped",
                    "elastic sensitivity",
                    "elastic, bound for free",
                ],
                tv,
            ),
            "## Bounds, coverage, time and memory",
            "The bounds on the sensitivity that the columns above used; the elastic one is before its noise. Covered, "
            "seconds and peak memory are those of `tight` with declared bounds. Covered: the share of cells whose 90 % "
            "error bar holds the exact answer. Peak memory: of a fresh process that reads the tables and releases "
            "once. Seconds are of one machine that may have been busy.",
            markdown_table(
                [
                    "query",
                    "bound",
                    "bound, nothing declared",
                    "bound, elastic",
                    "covered",
                    "seconds",
                    "peak memory",
                    f"below {MEMORY_MB:,} MB",
                ],
                rest,
            ),
        ]
    )


def _met(yes: bool) -> str:
    return "met" if yes else "not met"


if __name__ == "__main__":
    sys.exit(main())
