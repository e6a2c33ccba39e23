"""One table, five attributes, all 2-way marginals: dpjoin against MWEM+PGM on mbi, each run in its own process."""

from __future__ import annotations

import itertools
import json
import math
import resource
import subprocess
import sys
import time
import warnings
from statistics import median
from typing import Any

import numpy as np

from report import peak_mb

ATTRIBUTES = ("a", "b", "c", "d", "e")
VALUES = 8
EPSILON, DELTA = 1.0, 1e-6
ROUNDS = 10
SELECT_SHARE = 0.1
"""Of a round's rho in MWEM+PGM, for the selection; measuring deserves most of it."""

Marginals = dict[tuple[str, str], np.ndarray]


def make_rows(rows: int) -> dict[str, np.ndarray]:
    """Six classes of unequal size, each with its own skewed columns, and a chain: a column often repeats the last."""
    rng = np.random.default_rng(5)
    sizes = 0.6 ** np.arange(6)
    kind = rng.choice(6, size=rows, p=sizes / sizes.sum())
    data: dict[str, np.ndarray] = {}
    previous = rng.integers(0, VALUES, rows)
    for name in ATTRIBUTES:
        favourite = rng.permuted(np.tile(0.55 ** np.arange(VALUES), (6, 1)), axis=1)
        edges = np.cumsum(favourite / favourite.sum(axis=1, keepdims=True), axis=1)
        own = (rng.random(rows)[:, None] > edges[kind]).sum(axis=1).clip(0, VALUES - 1)
        step = (previous + rng.integers(0, 2, rows)) % VALUES
        previous = np.where(rng.random(rows) < 0.35, step, own)
        data[name] = previous.astype(np.int64)
    return data


def exact_marginals(data: dict[str, np.ndarray]) -> Marginals:
    return {
        (x, y): np.bincount(data[x] * VALUES + data[y], minlength=VALUES**2)
        for x, y in itertools.combinations(ATTRIBUTES, 2)
    }


def with_dpjoin(data: dict[str, np.ndarray]) -> Marginals:
    """`dpjoin.release` end to end, error bars included."""
    import pyarrow as pa

    import dpjoin as dj

    schema = dj.Schema(
        tables=(dj.Table(name="t", attributes=ATTRIBUTES),),
        attributes=tuple(dj.Attribute(name=a, range=(0, VALUES - 1)) for a in ATTRIBUTES),
    )
    workload = dj.Workload.marginals(schema, 2)
    budget = dj.Budget(epsilon=EPSILON, delta=DELTA)
    release = dj.release(schema, workload, {"t": pa.table(data)}, budget)
    answers = np.split(release.answer(), len(workload.groups))
    return {(g.scope[0], g.scope[1]): a for g, a in zip(workload.groups, answers, strict=True)}


def with_mwem_pgm(data: dict[str, np.ndarray], rng: np.random.Generator, rounds: int) -> Marginals:
    """MWEM with Private-PGM: in each round choose the worst pair, measure it, fit a graphical model to everything.

    A tenth of each round's rho goes to the exponential mechanism (score: l1 error, sensitivity 1) and the rest to
    Gaussian noise. The first model is uniform over the true number of rows, a favour. Noise is numpy's.
    """
    from mbi import Dataset, Domain, LinearMeasurement, estimation

    domain = Domain(list(ATTRIBUTES), [VALUES] * len(ATTRIBUTES))
    table = Dataset(data, domain)
    exact = {
        pair: np.asarray(table.project(pair).datavector(), dtype=np.float64)
        for pair in itertools.combinations(ATTRIBUTES, 2)
    }
    each = _rho() / rounds
    epsilon, sigma = math.sqrt(8 * each * SELECT_SHARE), math.sqrt(1 / (2 * each * (1 - SELECT_SHARE)))
    pairs = list(exact)
    measured: list[Any] = []
    model: Any = None
    fitted = {p: np.full(VALUES**2, len(data["a"]) / VALUES**2) for p in pairs}
    for _ in range(rounds):
        scores = np.array([np.abs(exact[p] - fitted[p]).sum() for p in pairs])
        gumbel = rng.gumbel(size=len(pairs))  # the largest of scores + Gumbel noise is the exponential mechanism
        chosen = pairs[int(np.argmax(epsilon / 2 * scores + gumbel))]
        noisy = exact[chosen] + rng.normal(0, sigma, VALUES**2)
        measured.append(LinearMeasurement(noisy, chosen, stddev=sigma))
        model = estimation.MirrorDescent().estimate(domain, measured, iters=1000, warm_start=model)
        fitted = {p: np.asarray(model.project(p).datavector(), dtype=np.float64) for p in pairs}
    return fitted


def _rho() -> float:
    """(1, 1e-6) in zero-concentrated currency, by the conversion of Canonne, Kamath and Steinke."""
    low, high = 0.0, 1.0
    orders = 1 + np.geomspace(0.01, 1000, 20_000)
    for _ in range(60):
        rho = (low + high) / 2
        logs = (orders - 1) * (orders * rho - EPSILON) - np.log(orders - 1) + orders * np.log1p(-1 / orders)
        low, high = (rho, high) if float(logs.min()) <= math.log(DELTA) else (low, rho)
    return low


def child(system: str, rows: int, seed: int, times: int, rounds: int) -> list[dict[str, float]]:
    """Run a system `times` times in this process; CPU seconds of all threads and children, imports included once."""
    warnings.simplefilter("ignore")
    data = make_rows(rows)
    exact = exact_marginals(data)

    def work() -> Marginals:
        if system == "dpjoin":
            return with_dpjoin(data)
        # The same seed each time: a second run meets the structures of the first, all compiled.
        return with_mwem_pgm(data, np.random.default_rng(seed), rounds)

    found = []
    for _ in range(times):
        cpu, wall = _cpu(), time.perf_counter()
        answers = work()
        cpu, wall = _cpu() - cpu, time.perf_counter() - wall
        off = np.concatenate([np.abs(answers[p] - exact[p]) for p in exact])
        found.append(
            {"cpu": cpu, "wall": wall, "max": float(off.max()), "mean": float(off.mean()), "peak_mb": peak_mb()}
        )
    return found


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(rows: int, runs: int, rounds: int = ROUNDS) -> dict[str, Any]:
    """Medians over runs, each in a fresh process; and the second run of one process, when everything is warm."""
    found: dict[str, Any] = {"rows": rows, "runs": runs, "rounds": rounds}
    for system in ("dpjoin", "mbi"):
        first = [_in_child(system, rows, seed, 1, rounds)[0] for seed in range(runs)]
        found[system] = {key: median(r[key] for r in first) for key in first[0]}
        found[system]["runs"] = first
        found[system]["cpu_warm"] = _in_child(system, rows, runs, 2, rounds)[1]["cpu"]
    found["cpu_ratio"] = found["mbi"]["cpu"] / found["dpjoin"]["cpu"]
    found["cpu_ratio_warm"] = found["mbi"]["cpu_warm"] / found["dpjoin"]["cpu_warm"]
    return found


def _in_child(system: str, *numbers: int) -> list[dict[str, float]]:
    call = [sys.executable, __file__, system, *map(str, numbers)]
    done = subprocess.run(call, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    print(json.dumps(child(name, *map(int, numbers))))
