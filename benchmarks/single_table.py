"""One table, five attributes, all 2-way marginals: dpjoin against MWEM+PGM on mbi, each run in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from statistics import median
from typing import Any

import numpy as np

import peers
from peers import DELTA, EPSILON, Marginals
from report import peak_mb

ATTRIBUTES, VALUES = 5, 8
ROUNDS = 10


def with_dpjoin(data: dict[str, np.ndarray]) -> Marginals:
    """`dpjoin.release` end to end, error bars included."""
    import pyarrow as pa

    import dpjoin as dj

    schema = dj.Schema(
        tables=(dj.Table(name="t", attributes=tuple(data)),),
        attributes=tuple(dj.Attribute(name=a, range=(0, VALUES - 1)) for a in data),
    )
    workload = dj.Workload.marginals(schema, 2)
    budget = dj.Budget(epsilon=EPSILON, delta=DELTA)
    release = dj.release(schema, workload, {"t": pa.table(data)}, budget)
    answers = np.split(release.answer(), len(workload.groups))
    return {(g.scope[0], g.scope[1]): a for g, a in zip(workload.groups, answers, strict=True)}


def child(system: str, rows: int, seed: int, times: int, rounds: int) -> list[dict[str, float]]:
    """Run a system `times` times in this process; CPU seconds of all threads and children, imports included once."""
    warnings.simplefilter("ignore")
    data = peers.make_rows(ATTRIBUTES, VALUES, rows, 5)
    exact = peers.exact_pairs(data, VALUES)

    def work() -> Marginals:
        if system == "dpjoin":
            return with_dpjoin(data)
        # The same seed each time: a second run meets the structures of the first, all compiled.
        return peers.mwem_pgm(data, VALUES, np.random.default_rng(seed), rounds)

    found = []
    for _ in range(times):
        cpu, wall = peers.cpu_seconds(), time.perf_counter()
        answers = work()
        cpu, wall = peers.cpu_seconds() - cpu, time.perf_counter() - wall
        off = np.concatenate([np.abs(answers[p] - exact[p]) for p in exact])
        found.append(
            {"cpu": cpu, "wall": wall, "max": float(off.max()), "mean": float(off.mean()), "peak_mb": peak_mb()}
        )
    return found


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
