"""Uniformize against TwoTable: hot keys, mild skew, and a huge key domain: `benchmarks/uniformize.py [--runs N]`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from report import RESULTS, command, markdown_table, number, peak_mb, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
SIZE, QUERIES = 64, 1000
LIGHT, HOT = 100_000, 3
RATIO = 1 / 3
SCALE_ROWS = (100_000, 300_000, 1_000_000)
SCALE_KEYS = (100_000, 1_000_000_000)
Tables = dict[str, pa.Table]


def schema_of(size: int = SIZE) -> dj.Schema:
    """r(k, a) and s(k, b), joined on the key k."""
    return dj.Schema(
        (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "b"))),
        (
            dj.Attribute(name="k", key=True),
            dj.Attribute(name="a", range=(0, size - 1)),
            dj.Attribute(name="b", range=(0, size - 1)),
        ),
    )


def product_queries(schema: dj.Schema, count: int, rng: np.random.Generator) -> dj.Workload:
    """Random weights in [0, 1] for each value of a, times the same for b."""
    size = schema.attribute("a").size
    weights = {"r": (("a",), rng.random((count, size))), "s": (("b",), rng.random((count, size)))}
    return dj.Workload.products(schema, weights)


def tables_of(keys: dict[str, np.ndarray], values: Callable[[np.ndarray], np.ndarray]) -> Tables:
    return {t: pa.table({"k": k, "a" if t == "r" else "b": values(k)}) for t, k in keys.items()}


def skewed(rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """Values from a Dirichlet distribution, a new one for each table."""
    return lambda keys: rng.choice(SIZE, len(keys), p=rng.dirichlet(np.full(SIZE, 0.5)))


def hot_keys(rng: np.random.Generator, *, alike: bool) -> Tables:
    """10^5 keys of degrees (5, 5), three of (20000, 2). Uniform values, or skewed ones that hot keys have otherwise."""
    light, hot = np.arange(LIGHT), np.arange(LIGHT, LIGHT + HOT)
    keys = {t: np.concatenate([np.repeat(light, 5), np.repeat(hot, n)]) for t, n in (("r", 20_000), ("s", 2))}

    def values(of: np.ndarray) -> np.ndarray:
        if alike:
            return rng.integers(0, SIZE, len(of))
        return np.where(of < LIGHT, skewed(rng)(of), skewed(rng)(of))

    return tables_of(keys, values)


def zipf_keys(rng: np.random.Generator, rows: int, keys: int, power: float) -> Tables:
    """Keys with probability proportional to 1 / rank^power, values skewed but independent of the key."""
    weights = 1 / np.arange(1, keys + 1) ** power
    drawn = {t: rng.choice(keys, rows, p=weights / weights.sum()) for t in ("r", "s")}
    return tables_of(drawn, skewed(rng))


INSTANCES: dict[str, Callable[[np.random.Generator], Tables]] = {
    "hot keys, uniform values": lambda rng: hot_keys(rng, alike=True),
    "hot keys, skewed values": lambda rng: hot_keys(rng, alike=False),
    "Zipf 0.5, 10^5 rows, 10^5 keys": lambda rng: zipf_keys(rng, 100_000, 100_000, 0.5),
    "Zipf 0.5, 10^5 rows, 10^4 keys": lambda rng: zipf_keys(rng, 100_000, 10_000, 0.5),
    "Zipf 0.8, 3·10^5 rows, 10^5 keys": lambda rng: zipf_keys(rng, 300_000, 100_000, 0.8),
    "no skew, 10^5 rows, 10^4 keys": lambda rng: zipf_keys(rng, 100_000, 10_000, 0.0),
}


def errors(
    tables: Tables, workload: dj.Workload, runs: int, *, profile: str = "tight", methods: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The largest error of any query over the true join size, each method `runs` times."""
    engine = DuckEngine(workload.schema, tables, attributes=workload.attributes)
    size = engine.exact_join_size()
    parts = zip(engine.exact_answers(workload.groups), workload.groups, strict=True)
    exact = np.concatenate([np.asarray(a, dtype=float) * float(g.unit) for a, g in parts])
    found: dict[str, Any] = {"join_size": size}
    for method in methods or ("two_table", "uniformize"):
        off, seconds, covered, strategies = [], [], [], []
        for _ in range(runs):
            started = time.perf_counter()
            release = dj.release(workload.schema, workload, tables, BUDGET, method=method, profile=profile)
            seconds.append(time.perf_counter() - started)
            wrong = np.abs(release.answer() - exact)
            off.append(float(wrong.max()) / size)
            covered.append(float((wrong <= release.error()).mean()))
            strategies.append(release.facts["strategy"])
        found[method] = {
            "error": median(off),
            "all": off,
            "covered": median(covered),
            "seconds": median(seconds),
            "strategy": strategies[0],
        }
    return found


def accuracy(runs: int, names: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for number_of, name in enumerate(INSTANCES):
        if name in names:
            rng = np.random.default_rng([20230618, number_of])
            found[name] = errors(INSTANCES[name](rng), product_queries(schema_of(), QUERIES, rng), runs)
            print(name, {m: found[name][m]["error"] for m in ("two_table", "uniformize")}, flush=True)
    return found


# Time and memory -------------------------------------------------------------------------------------------------


def scale(rows: tuple[int, ...]) -> list[dict[str, Any]]:
    """One release in a fresh process, by rows per table and size of the key domain."""
    found = []
    for keys in SCALE_KEYS:
        for count in rows:
            with tempfile.TemporaryDirectory() as folder:
                rng = np.random.default_rng(5)
                files = {}
                for table, column in (("r", "a"), ("s", "b")):
                    drawn = rng.integers(0, keys, count)
                    drawn[: count // 100] = rng.integers(0, 3, count // 100)  # three hot keys, so that there are parts
                    files[table] = str(Path(folder) / f"{table}.parquet")
                    pq.write_table(pa.table({"k": drawn, column: rng.integers(0, 8, count)}), files[table])
                done = subprocess.run(
                    [sys.executable, __file__, "--release-only", json.dumps(files)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
            found.append({"keys": keys, "rows": count, **json.loads(done.stdout)})
            print(found[-1], flush=True)
    return found


def _release_only(files: dict[str, str]) -> dict[str, float]:
    schema = schema_of(8)
    workload = dj.Workload.marginals(schema, (1, 2))
    with tempfile.TemporaryDirectory() as folder:  # imports, plans and caches are not what is measured
        small = {t: str(Path(folder) / f"{t}.parquet") for t in files}
        for table, column in (("r", "a"), ("s", "b")):
            pq.write_table(pa.table({"k": [1], column: [1]}), small[table])
        dj.release(schema, workload, small, BUDGET, method="uniformize")
    before = peak_mb()
    started = time.perf_counter()
    release = dj.release(schema, workload, files, BUDGET, method="uniformize")
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "before_mb": before, "peak_mb": peak_mb(), "parts": len(release.facts["parts"])}


# The page --------------------------------------------------------------------------------------------------------


def update(new: dict[str, Any]) -> None:
    """Write the page anew, with what is new in place of what was there."""
    path = RESULTS / "uniformize.json"
    data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    data |= new
    write("uniformize", page(data), data)


def page(data: dict[str, Any]) -> str:
    parts = ["# Uniformize against TwoTable"]
    if "accuracy" in data:
        parts += _accuracy_parts(data["accuracy"], data["runs"])
    if "scale" in data:
        parts += _scale_parts(data["scale"])
    if "gap" in data:
        parts += _gap_parts(data["gap"])
    return "\n\n".join(parts) + "\n"


def _accuracy_parts(found: dict[str, Any], runs: int) -> list[str]:
    rows = []
    for name, f in found.items():
        ratio = f["uniformize"]["error"] / f["two_table"]["error"]
        target = ("met" if ratio <= RATIO else "not met") if name.startswith("hot") else ""
        pair = (f["two_table"], f["uniformize"])
        rows.append(
            [
                name,
                f"{f['join_size']:,}",
                *(number(m["error"]) for m in pair),
                f"{ratio:.2f}",
                target,
                *(f"{m['covered']:.3f}" for m in pair),
                *(f"{m['seconds']:.1f}" for m in pair),
                f["uniformize"]["strategy"],
            ]
        )
    return [
        f"Made by `{command('uniformize.py', '--runs', runs)}` and `{command('gap.py')}` with {versions()}.",
        "## The largest error of any query, as a share of the join size",
        f"`tight`, (1, 1e-6), {QUERIES:,} random product queries on {SIZE} x {SIZE} cells, medians of {runs} runs. Hot "
        f"keys: {LIGHT:,} keys of degrees (5, 5) and {HOT} of (20000, 2). Uniform values are the same for all keys; "
        "skewed ones are drawn from Dirichlet distributions, and hot keys have others than the rest. The target "
        "for hot keys is a third of TwoTable's error.",
        markdown_table(
            [
                "instance",
                "join size",
                "TwoTable",
                "Uniformize",
                "ratio",
                "at most 1/3",
                "covered, TwoTable",
                "covered, Uniformize",
                "seconds, TwoTable",
                "seconds, Uniformize",
                "what Uniformize did",
            ],
            rows,
        ),
        "Covered: the share of queries whose 90 % error bar holds the exact answer. Seconds are of one machine that "
        "may have been busy.",
    ]


def _scale_parts(found: list[dict[str, Any]]) -> list[str]:
    rows = [
        [
            f"{f['keys']:.0e}",
            f"{f['rows']:,}",
            f"{f['seconds']:.2f}",
            f"{f['peak_mb'] - f['before_mb']:,.0f} MB",
            f"{f['peak_mb']:,.0f} MB",
            str(f["parts"]),
        ]
        for f in found
    ]
    return [
        "## Time and memory of a Uniformize release, by rows and size of the key domain",
        "A fresh process reads two Parquet tables and releases all marginals of 8 x 8 cells once. One row in a hundred "
        "has one of three hot keys, the others are uniform over the domain. 'Added' is beyond what the process held "
        "after a release of two tables of one row.",
        markdown_table(["key domain", "rows per table", "seconds", "added memory", "peak memory", "parts"], rows),
    ]


def _gap_parts(gap: dict[str, Any]) -> list[str]:
    parts = [
        "## The paper's own instances: Figure 3 and Example exp:gap",
        "Plots and explanation: `docs/uniformize.md`. Errors are shares of the join size. 'bound' is the largest "
        "error that the analysis promises with the profile's noise scales (`tight`: the best number of rounds; "
        "`paper`: the paper's number, without a limit); "
        "'measured' is the median of three releases. A bound of 1 says nothing: the empty release is as good.",
    ]
    for name, instance in gap["instances"].items():
        rows = []
        for p in instance["points"]:
            cells = [f"{p['k']:,}", f"{p['n']:,}", f"{p['join_size']:,}", f"{p['degree']:,}"]
            for profile in ("paper", "tight"):
                bound, measured = p[profile], p.get(f"{profile}_measured")
                cells += [number(bound["two_table"]), number(bound["uniformize"])]
                cells.append(f"{measured['two_table']:.4f} / {measured['uniformize']:.4f}" if measured else "")
            rows.append(cells)
        head = ["k", "n", "join size", "largest degree"]
        for profile in ("paper", "tight"):
            head += [f"{profile}: bound, TwoTable", "bound, Uniformize", "measured"]
        parts += [f"### {name}", markdown_table(head, rows), *instance["said"]]
    return parts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one instance, once, few rows")
    parser.add_argument("--no-write", action="store_true")
    parser.add_argument("--release-only", metavar="JSON", help="release these files once; print seconds and memory")
    options = parser.parse_args(arguments)
    if options.release_only:
        print(json.dumps(_release_only(json.loads(options.release_only))))
        return 0
    names = tuple(INSTANCES)[-1:] if options.quick else tuple(INSTANCES)
    runs = 1 if options.quick else options.runs
    found = {
        "runs": runs,
        "accuracy": accuracy(runs, names),
        "scale": scale((10_000,) if options.quick else SCALE_ROWS),
    }
    if not options.no_write and not options.quick:
        update(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
