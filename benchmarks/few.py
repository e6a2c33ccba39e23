"""Few marginals of one table, against what anybody would do with them: `python benchmarks/few.py [--runs N]`.

Laplace or Gaussian noise, the same on every cell of every pair, straight from numpy; one-way marginals are the mean of
the pairs' sums.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
from statistics import median

import numpy as np
import pyarrow as pa

import dpjoin as dj
from baselines import whole_rho
from report import command, markdown_table, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
SEED, ROWS, VALUES = 20230618, 20_000, 8
COLUMNS = (1, 2, 3, 4, 5, 6)
WAYS = ("dpjoin", "Laplace", "Gaussian")


def table(columns: int) -> dict[str, np.ndarray]:
    """Skewed columns that lean on one hidden number, so that some pairs of values hardly occur."""
    rng = np.random.default_rng([SEED, columns])
    hidden = rng.random(ROWS)
    return {
        f"x{i}": np.minimum((0.6 * rng.beta(1, 2, ROWS) + 0.4 * hidden) * VALUES, VALUES - 1).astype(np.int64)
        for i in range(columns)
    }


def marginal(rows: dict[str, np.ndarray], scope: tuple[str, ...]) -> np.ndarray:
    shape = (VALUES,) * len(scope)
    index = np.ravel_multi_index([rows[a] for a in scope], shape)
    return np.bincount(index, minlength=math.prod(shape)).astype(float)


def naive(rows: dict[str, np.ndarray], scopes: list[tuple[str, ...]], rng: np.random.Generator, way: str) -> np.ndarray:
    """Every pair (or the one marginal) with an equal share."""
    widest = max(map(len, scopes))
    measured = [s for s in scopes if len(s) == widest]
    k = len(measured)
    noisy = {}
    for scope in measured:
        exact = marginal(rows, scope)
        if way == "Laplace":
            noise = rng.laplace(0, k / BUDGET.epsilon, len(exact))
        else:
            noise = rng.normal(0, math.sqrt(k / (2 * whole_rho(BUDGET))), len(exact))
        noisy[scope] = exact + noise
    found = []
    for scope in scopes:
        if scope in noisy:
            found.append(noisy[scope])
            continue
        sums = [
            values.reshape(VALUES, VALUES).sum(axis=1 - pair.index(scope[0]))
            for pair, values in noisy.items()
            if scope[0] in pair
        ]
        found.append(np.mean(sums, axis=0))
    return np.concatenate(found)


def measure(columns: int, runs: int) -> dict[str, dict[str, float]]:
    """By way, the mean and the largest absolute error, medians over the runs; for dpjoin also how often bars hold."""
    rows = table(columns)
    names = tuple(rows)
    schema = dj.Schema(
        (dj.Table(name="t", attributes=names),), tuple(dj.Attribute(name=a, range=(0, VALUES - 1)) for a in names)
    )
    scopes = [(a,) for a in names] + list(itertools.combinations(names, 2))
    workload = dj.Workload.marginals(schema, scopes)
    exact = np.concatenate([marginal(rows, s) for s in scopes])
    # A marginal counts as one, however many cells it has.
    weights = np.concatenate([np.full(VALUES ** len(s), 1 / VALUES ** len(s)) for s in scopes]) / len(scopes)
    rng = np.random.default_rng([SEED, columns, 1])
    off: dict[str, list[np.ndarray]] = {way: [] for way in WAYS}
    inside, laplace = [], False
    for _ in range(runs):
        release = dj.release(schema, workload, {"t": pa.table(dict(rows))}, BUDGET)
        laplace = release.ledger.epsilon > 0
        off["dpjoin"].append(np.abs(release.answer() - exact))
        inside.append(float((off["dpjoin"][-1] <= release.error(coverage=0.9)).mean()))
        for way in WAYS[1:]:
            off[way].append(np.abs(naive(rows, scopes, rng, way) - exact))
    found = {
        way: {"mean": median(float(o @ weights) for o in each), "max": median(float(o.max()) for o in each)}
        for way, each in off.items()
    }
    found["dpjoin"] |= {"inside": float(np.mean(inside)), "laplace": float(laplace)}
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="one or two columns, once; nothing is written")
    options = parser.parse_args(arguments)
    runs, counts = (1, COLUMNS[:2]) if options.quick else (options.runs, COLUMNS)
    data = {str(n): measure(n, runs) for n in counts}
    lines = [
        [
            n,
            str(max(1, math.comb(int(n), 2))),
            "Laplace" if f["dpjoin"]["laplace"] else "Gaussian",
            *(f"{f[w]['mean']:.2f}" for w in WAYS),
            *(f"{f[w]['max']:.1f}" for w in WAYS),
            f"{f['dpjoin']['inside']:.2f}",
        ]
        for n, f in data.items()
    ]
    head = ["columns", "widest marginals", "noise of dpjoin", *WAYS, *(f"largest, {w}" for w in WAYS), "bars"]
    page = f"""# Few marginals of one table

Made by `{command("few.py", "--runs", runs)}` with {versions()}.

{ROWS:,} rows, columns of {VALUES} values, all 1- and 2-way marginals, (1, 1e-6). Mean absolute error (each marginal
counts as one) and largest error of a cell, in rows, medians of {runs} runs; `bars`: how often 90 % bars hold. Laplace
and Gaussian: the same noise on every cell of every pair, from numpy, each with the whole budget; no fit, and negative
counts stay.

{markdown_table(head, lines)}
"""
    print(page)
    if not options.quick:
        write("few", page, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
