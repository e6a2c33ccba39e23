"""What an attacker learns when tables are joined first and released as one: `python benchmarks/trap.py [--runs N]`."""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import optimize, stats

import dpjoin as dj
from report import command, markdown_table, versions, write

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)
PARTNERS = (1, 10, 50)
CONFIDENCE = 0.95
PATIENTS, DIAGNOSES = 150, 3
TARGET = 0
"""The patient whose row is added or removed."""
STATISTICS = ("total", "cell")
WAYS = ("joined first", "tables apart")

_ATTRIBUTES = {
    "patient": dj.Attribute(name="patient", key=True),
    "visit": dj.Attribute(name="visit", key=True),
    "diagnosis": dj.Attribute(name="diagnosis", range=(0, DIAGNOSES - 1)),
    "ward": dj.Attribute(name="ward", range=(0, 1)),
}


def _schema(**tables: tuple[str, ...]) -> dj.Schema:
    used = {a for attributes in tables.values() for a in attributes}
    return dj.Schema(
        tuple(dj.Table(name=name, attributes=attributes) for name, attributes in tables.items()),
        tuple(a for name, a in _ATTRIBUTES.items() if name in used),
    )


APART = _schema(patients=("patient", "diagnosis"), visits=("patient", "visit", "ward"))
JOINED = _schema(joined=("patient", "visit", "diagnosis", "ward"))
"""The same columns as one table."""


def make(partners: int, *, present: bool) -> dict[str, pa.Table]:
    """Patients with one or two visits each, and a target with `partners` visits whose own row is there or not."""
    patient = np.arange(1, PATIENTS + 1)
    visits = np.concatenate([np.repeat(patient, 1 + patient % 2), np.full(partners, TARGET)])
    who = np.append(patient, TARGET) if present else patient
    return {
        "patients": pa.table({"patient": who, "diagnosis": who % DIAGNOSES}),
        "visits": pa.table({"patient": visits, "visit": np.arange(len(visits)), "ward": np.arange(len(visits)) % 2}),
    }


def joined(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """What the custodian in the trap does: the join as a table of its own."""
    return {"joined": tables["visits"].join(tables["patients"], "patient", join_type="inner")}


def observe(schema: dj.Schema, tables: dict[str, pa.Table], runs: int, method: str) -> dict[str, np.ndarray]:
    """What the attacker looks at in each of many releases: the join size and the cell of the target's diagnosis."""
    workload = dj.Workload.marginals(schema, [("diagnosis",)])
    cell = TARGET % DIAGNOSES
    seen = np.empty((runs, 2))
    for i in range(runs):
        release = dj.release(schema, workload, tables, BUDGET, method=method)
        seen[i] = release.join_size, release.answer(workload)[cell]
    return dict(zip(STATISTICS, seen.T, strict=True))


def epsilon_bound(hits: int, false: int, runs: int, *, confidence: float = CONFIDENCE, delta: float = 0.0) -> float:
    """A lower confidence bound on epsilon from an event seen `hits` and `false` times in `runs` on either neighbour.

    Clopper and Pearson's one-sided bounds on both probabilities, each at half the risk; never below zero.
    """
    risk = (1 - confidence) / 2
    at_least = stats.beta.ppf(risk, hits, runs - hits + 1) if hits else 0.0
    at_most = stats.beta.ppf(1 - risk, false + 1, runs - false) if false < runs else 1.0
    return max(0.0, math.log((at_least - delta) / at_most)) if at_least > delta else 0.0


def attack(present: np.ndarray, absent: np.ndarray, delta: float) -> dict[str, float]:
    """Choose threshold and direction on the first half of the runs, measure on the second."""
    half = len(present) // 2
    first, second = (present[:half], absent[:half]), (present[half : 2 * half], absent[half : 2 * half])
    values = np.unique(np.concatenate(first))
    between = (values[1:] + values[:-1]) / 2  # in the middle of a gap, where the second half falls on the same side
    events: list[tuple[float, bool, bool]] = [
        (float(t), above, swap) for t in between for above in (True, False) for swap in (True, False)
    ]

    def measured(halves: tuple[np.ndarray, np.ndarray], event: tuple[float, bool, bool]) -> tuple[int, int]:
        threshold, above, swap = event
        counts = [int(((x >= threshold) == above).sum()) for x in halves]
        return (counts[1], counts[0]) if swap else (counts[0], counts[1])

    def gain(event: tuple[float, bool, bool]) -> tuple[float, int]:
        hits, false = measured(first, event)
        return epsilon_bound(hits, false, half, delta=delta), hits - false

    best = max(events, key=gain)
    hits, false = measured(second, best)
    return {"epsilon": epsilon_bound(hits, false, half, delta=delta), "hits": hits / half, "false": false / half}


def largest_bound(runs: int) -> float:
    """What an attack that is always right would show in this many runs."""
    return epsilon_bound(runs // 2, 0, runs // 2)


def real_epsilon(rho: float, partners: int, delta: float) -> float:
    """The epsilon, at delta, of Gaussian noise for one row with this rho, when `partners` rows move at once."""
    mu = partners * math.sqrt(2 * rho)

    def excess(epsilon: float) -> float:
        minus = math.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu))
        return float(stats.norm.cdf(mu / 2 - epsilon / mu) - minus - delta)

    return float(optimize.brentq(excess, 0, mu * mu + 20 * mu + 1))


def compare(partners: int, runs: int) -> dict[str, Any]:
    """Both ways with one hot key: everything the attacker gets."""
    delta = BUDGET.delta
    pair = [make(partners, present=p) for p in (True, False)]
    ways: dict[str, tuple[dj.Schema, Callable[[Any], Any], str]] = {
        "joined first": (JOINED, joined, "auto"),
        "tables apart": (APART, lambda tables: tables, "two_table"),
    }
    found: dict[str, Any] = {"partners": partners}
    for way, (schema, prepare, method) in ways.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dj.JoinedTableWarning)
            present, absent = (observe(schema, prepare(t), runs, method) for t in pair)
        found[way] = {s: attack(present[s], absent[s], delta) for s in STATISTICS}
    found["moved"] = joined(pair[0])["joined"].num_rows - joined(pair[1])["joined"].num_rows
    return found


def single_table_rho() -> float:
    """What a single-table release may spend, in zero-concentrated currency."""
    from dpjoin.methods.as_one import as_one_shares

    return float(as_one_shares(BUDGET, JOINED).split.rho)


def page(results: list[dict[str, Any]], runs: int) -> str:
    rows = []
    for r in results:
        cells = [f"{r['partners']}", f"{r['real_epsilon']:.3g}"]
        for way in WAYS:
            cells += [f"{r[way][s]['epsilon']:.2f}" for s in STATISTICS]
            cells.append(f"{r[way]['cell']['hits']:.2f} / {r[way]['cell']['false']:.2f}")
        rows.append(cells)
    head = ["partners of the row", "joined first: epsilon of the noise"]
    for way in WAYS:
        head += [f"{way}: epsilon ≥ (total)", "epsilon ≥ (cell)", "how often, on one neighbour / on the other (cell)"]
    asked = f"({BUDGET.epsilon:g}, {BUDGET.delta:g})"
    partners = ", ".join(f"{r['partners']}" for r in results)
    parts = [
        "# Join first, then release",
        f"Made by `{command('trap.py', '--runs', runs)}` with {versions()}.",
        f"Two neighbours: {PATIENTS} patients with one or two visits each, and a target with D visits (D = {partners}) "
        "whose row in `patients` is there or not. A row of `patients` with D visits is in D joined rows. Every release "
        f"asks for {asked}: of the joined table as one table, and of the two tables apart. Each was made {runs:,} "
        "times on either neighbour.",
        "The attacker compares one released number with a threshold: the join size, or the count of the target's "
        "diagnosis. The first half of the runs chooses the threshold. The second half gives a lower "
        f"{100 * CONFIDENCE:.0f} % confidence bound on epsilon at delta {BUDGET.delta:g} (Clopper and Pearson), for "
        f"each figure by itself. An attack that is never wrong shows {largest_bound(runs):.2f} in so many runs, never "
        "more. `epsilon of the noise` is computed, not measured: what the noise of a single-table release gives, at "
        "the same delta, to a row that is in D joined rows.",
        markdown_table(head, rows),
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=600, help="releases of each kind on each neighbour")
    parser.add_argument("--quick", action="store_true", help="50 partners, 40 runs, nothing written")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(arguments)
    runs = 40 if options.quick else options.runs
    rho = single_table_rho()
    results = []
    for partners in PARTNERS[-1:] if options.quick else PARTNERS:
        found = compare(partners, runs)
        found["real_epsilon"] = real_epsilon(rho, partners, BUDGET.delta)
        results.append(found)
        said = {way: {s: round(found[way][s]["epsilon"], 2) for s in STATISTICS} for way in WAYS}
        print(f"{partners} partners:", said, f"computed {found['real_epsilon']:.3g}", flush=True)
    if not options.no_write and not options.quick:
        write("trap", page(results, runs), {"runs": runs, "rho": rho, "instances": results})
    return 0


if __name__ == "__main__":
    sys.exit(main())
