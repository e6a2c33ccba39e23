"""Accuracy on real two-table joins: `python benchmarks/accuracy.py [--runs N] [--query NAME ...]`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from statistics import median

import numpy as np

import dpjoin as dj
from baselines import Answers, one_gaussian_each, per_table_then_join, uniform
from dpjoin.spec.schema import DegreeBound
from queries import KEY, TWO_TABLE, Query, load
from report import command, markdown_table, number, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
TARGETS = {"nyc_coflight": 0.0075, "nyc_weather": 0.025, "oulad_two": 0.0185, "sandag_fk": 0.037}
"""Mean total variation of `tight`, at most."""
DECLARED = {"nyc_coflight": (25, 0.003), "oulad_two": (32, 0.011)}
"""A largest degree to declare, and the mean total variation then, at most."""
COVERAGE_TARGET = (0.85, 0.99)
COVERAGE = 0.9
COLUMNS = ("tight", "paper", "uniform", "one Gaussian per marginal", "per-table, then join", "per-table, not clipped")


def errors(query: Query, answers: Answers) -> tuple[float, float]:
    """Mean total variation over the marginals; largest error over all cells, as a share of the join size."""
    variations, largest = [], 0.0
    for answer, exact in zip(answers, query.exact, strict=True):
        total = answer.sum()
        variations.append(0.5 * np.abs(answer / total - exact / exact.sum()).sum() if total > 0 else 1.0)
        largest = max(largest, float(np.abs(answer - exact).max()))
    return float(np.mean(variations)), largest / query.join_size


def split(query: Query, flat: np.ndarray) -> Answers:
    return np.split(flat, np.cumsum([len(g) for g in query.workload.groups])[:-1])


def one_run(query: Query, rng: np.random.Generator) -> dict[str, dict[str, float]]:
    """Every column once."""
    found: dict[str, dict[str, float]] = {}
    for profile in ("tight", "paper"):
        started = time.perf_counter()
        release = dj.release(query.schema, query.workload, query.tables, BUDGET, profile=profile)
        seconds = time.perf_counter() - started
        variation, largest = errors(query, split(query, release.answer()))
        bars = release.error(coverage=COVERAGE)
        covered = np.abs(release.answer() - np.concatenate(query.exact)) <= bars + 1e-9
        found[profile] = {
            "tv": variation,
            "max": largest,
            "seconds": seconds,
            "covered": float(covered.mean()),
            "bound": float(release.facts["sensitivity_bound"]),
        }
    baselines = (
        uniform(query),
        one_gaussian_each(query, BUDGET, rng),
        per_table_then_join(query, BUDGET, rng),
        per_table_then_join(query, BUDGET, rng, clip=False),
    )
    for column, answers in zip(COLUMNS[2:], baselines, strict=True):
        variation, largest = errors(query, answers)
        found[column] = {"tv": variation, "max": largest}
    return found


def declared(query: Query, runs: int) -> dict[str, float] | None:
    """`tight` with a declared largest degree, where one is known from outside: it needs no noisy bound."""
    if query.name not in DECLARED:
        return None
    degree, _ = DECLARED[query.name]
    bound = (DegreeBound(attributes=(KEY,), limit=degree),)
    schema = dj.Schema(tuple(replace(t, bounds=bound) for t in query.schema.tables), query.schema.attributes)
    workload = dj.Workload.marginals(schema, (1, 2))
    made = (dj.release(schema, workload, query.tables, BUDGET) for _ in range(runs))
    return {"degree": degree, "tv": median(errors(query, split(query, m.answer()))[0] for m in made)}


def measure(query: Query, runs: int) -> dict[str, object]:
    """Medians over the runs of every figure of every column."""
    rng = np.random.default_rng(20230618)
    all_runs = [one_run(query, rng) for _ in range(runs)]
    medians = {c: {k: median(r[c][k] for r in all_runs) for k in all_runs[0][c]} for c in COLUMNS}
    return {
        "query": query.name,
        "shape": query.shape,
        "join_size": query.join_size,
        "largest_degree": max(int(d.max()) for d in query.degrees),
        "cells": len(query.workload),
        "medians": medians,
        "tight_runs": [r["tight"] for r in all_runs],
        "declared": declared(query, runs),
    }


def page(results: list[dict], runs: int) -> str:
    """The results in Markdown."""
    variation, largest, checks = [], [], []
    for r in results:
        columns = r["medians"]
        best = min(c["tv"] for c in columns.values())
        cells = [_bold(columns[c]["tv"], best) for c in COLUMNS]
        variation.append([r["query"], f"{r['join_size']:,}", str(r["largest_degree"]), *cells])
        best = min(c["max"] for c in columns.values())
        largest.append([r["query"], *(_bold(columns[c]["max"], best) for c in COLUMNS)])
        tight, target = columns["tight"], TARGETS.get(r["query"])
        low, high = COVERAGE_TARGET
        checks.append(
            [
                r["query"],
                number(tight["tv"]),
                number(target) if target else "–",
                ("met" if tight["tv"] <= target else "not met") if target else "–",
                f"{tight['covered']:.3f}",
                f"{low}–{high}",
                "met" if low <= tight["covered"] <= high else "not met",
                f"{tight['seconds']:.1f}",
                f"{columns['paper']['seconds']:.1f}",
            ]
        )
    told = [(r["query"], r["declared"]) for r in results if r["declared"]]
    bounded = [
        [name, str(d["degree"]), number(d["tv"]), number(most), "met" if d["tv"] <= most else "not met"]
        for name, d in told
        for _, most in [DECLARED[name]]
    ]
    head = ["query", "join size", "largest degree", *COLUMNS]
    parts = [
        "# Accuracy",
        f"Made by `{command('accuracy.py', '--runs', runs)}` with {versions()}.",
        f"Budget ({BUDGET.epsilon:g}, {BUDGET.delta:g}), all 1- and 2-way marginals, medians of {runs} runs. "
        "Lower is better; the best of a row is bold.",
        "Domains are read off the data here, which a real release must not do. "
        "`uniform` knows the true join size and the per-table columns know which keys occur: neither is private.",
        "## Mean total variation over the marginals",
        markdown_table(head, variation),
        "## Largest error of any cell, as a share of the join size",
        markdown_table(["query", *COLUMNS], largest),
        "## `tight` against its targets",
        "Covered: the share of cells whose 90 % error bar holds the exact answer. Seconds are of one machine that may "
        "have been busy.",
        markdown_table(
            ["query", "mean TV", "at most", "", "covered", "within", "", "seconds", "seconds, `paper`"], checks
        ),
        "## With a declared largest degree",
        "`max_degree` for both tables, assumed to hold: a look decides whether rows fade below it.",
        markdown_table(["query", "declared", "mean TV", "at most", ""], bounded),
    ]
    return "\n\n".join(parts) + "\n"


def _bold(value: float, best: float) -> str:
    return f"**{number(value)}**" if value <= best else number(value)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--query", nargs="+", default=list(TWO_TABLE), help="only these")
    parser.add_argument("--no-write", action="store_true", help="print, and leave the results folder alone")
    options = parser.parse_args(arguments)
    results = []
    for query in load(options.query):
        if query.join_size != query.stated_join_size:
            print(f"note: {query.name} joins to {query.join_size} results, {query.stated_join_size} were stated")
        results.append(measure(query, options.runs))
        shown = ", ".join(f"{c} {number(results[-1]['medians'][c]['tv'])}" for c in COLUMNS)
        print(f"{query.name}: mean TV {shown}; covered {results[-1]['medians']['tight']['covered']:.3f}", flush=True)
        if not options.no_write:  # after each query: a long run that is stopped keeps what it has
            write("accuracy", page(results, options.runs), {"runs": options.runs, "queries": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
