"""Measured errors between lower and upper bounds, and bounds on the sensitivity: `benchmarks/theory.py [--runs N]`.

On every hard family (made up) and on every query of the development data. Writes docs/figures/theory-between.md.
Without the development data beside the repository it shows the families, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import dpjoin as dj
from baselines import Elastic
from dpjoin.privacy.gauge import gauge_bound, ls_gauge, t_gauge
from dpjoin.theory import hard, lower, upper
from dpjoin.theory.facts import facts
from dpjoin.theory.reproduce import BUDGET, CURVES, Case, markdown
from dpjoin.theory.upper import Task, largest_shift
from joins import SHIFT, load
from queries import DATA

PAGE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "theory-between.md"
LARGEST = 2**20
"""Cells up to which the profile `paper` is run: it holds every cell. 2**300 is out of reach of any machine."""


def queries() -> list[str]:
    """All of the development data, those of two tables first."""
    found = [q for path in sorted(DATA.glob("*/queries.json")) for q in json.loads(path.read_text(encoding="utf-8"))]
    return [q["name"] for q in sorted(found, key=lambda q: len(q["relations"]))]


def loaded(names: Sequence[str]) -> Iterator[tuple[str, dj.Schema, dict[str, Any]]]:
    for name in names:
        found = load(name, bounds=False)
        if found is not None:
            yield name, *found


def sensitivities(names: Sequence[str]) -> str:
    """Residual, elastic and gauges, each over the local sensitivity."""
    lam = Task(budget=BUDGET, cells=2, queries=2, norm=1).lam
    typical = math.exp((largest_shift(0.5, 5e-7, 0.5) - 1) / lam)
    rows = []
    for name, schema, tables in loaded(names):
        known = facts(schema, tables, public=True)
        b, local = known.boundaries, known.local
        residual, by_t, by_ls = known.residual(1 / lam), t_gauge(b), ls_gauge(b)
        gauges = [gauge_bound(b, level + SHIFT) for level in (by_t, by_t if by_ls is None else min(by_t, by_ls))]
        ratios = [residual, Elastic(schema, tables).smooth(1 / lam), residual * typical, *gauges]
        rows.append([name, f"{known.join_size:,}", f"{local:,}", *(f"{r / local:.2f}" for r in ratios)])
        print(rows[-1], flush=True)
    head = "query | OUT | LS | residual | elastic | Algorithm 3, typical | T-gauge + 39 | both gauges + 39"
    return markdown("Bounds on the local sensitivity, over it", head, rows)


# Errors between their bounds ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bounded:
    """What is released, by the method that a theorem is about, and a lower bound by tracing (or 0)."""

    case: Case
    method: str
    budget: dj.Budget = BUDGET
    traced: float = 0.0


def families(bits: int) -> Iterator[Bounded]:
    """Every hard family, with bits to ask about; those with several levels also by the methods that partition."""
    rng = np.random.default_rng(11)
    sides = {"two_table": 400, "star": 20, "path": 20, "triangle": 400}
    made = {f"Theorem 1.6, {s}": hard.reduction(s, (24,), side) for s, side in sides.items()}
    made |= {f"worst case, {s}": hard.agm_tight(s, 10) for s in sides}
    made |= {"Figure 2": hard.figure_2(), "Figure 3": hard.figure_3(100), "Example 4.2": hard.example_gap(64)}
    made["Theorem 4.5"] = hard.conforming([(400, 20), (40, 400)])
    made |= dict.fromkeys(("Theorem 3.5", "Theorem 3.5, many bits"), hard.conforming([(12, 400)]))
    made["Theorem 3.5, ε = 0.1"] = hard.conforming([(24, 400)])
    for name, plain in made.items():
        count = 25 * bits if name.endswith("many bits") else bits
        budget = dj.Budget(epsilon=0.1 if name.endswith("0.1") else 1.0, delta=1e-6)
        instance = hard.with_bits(plain, count, rng)
        people = len(instance.tables["R1"]["q0"]) if name.startswith(("Theorem 1.6", "Theorem 3.5")) else 0
        case = Case(name, instance.schema, instance.arrow(), dj.Workload.marginals(instance.schema, 1))
        epsilon, delta, sensitivity = budget.epsilon, budget.delta, plain.sensitivity
        traced = lower.fingerprinting(people, count, epsilon=epsilon, delta=delta, sensitivity=sensitivity)
        yield Bounded(case, case.method, budget, traced)
        if name in ("Figure 3", "Example 4.2", "Theorem 4.5"):
            yield Bounded(case._replace(name=f"{name}, uniformize"), "uniformize")
        if name in ("Theorem 4.5", "worst case, star"):
            yield Bounded(case._replace(name=f"{name}, hierarchical"), "hierarchical")


def real(names: Sequence[str]) -> Iterator[Bounded]:
    for name, schema, tables in loaded(names):
        case = Case(name, schema, tables, dj.Workload.marginals(schema, (1, 2)))
        yield Bounded(case, case.method)


def between(title: str, bounded: Iterable[Bounded], runs: int) -> str:
    """Lower bounds, measured errors (medians) and upper bounds, for both profiles and for the best method.

    The last column counts releases, of both profiles, whose own error lies between the proved bounds.
    """
    rows = []
    for case, method, budget, traced in ((b.case, b.method, b.budget, b.traced) for b in bounded):
        print(case.name, flush=True)
        known, task = facts(case.schema, case.tables, public=True), upper.Task.of(case.workload, budget)
        half = lower.neighbours(known.local, epsilon=budget.epsilon, delta=budget.delta)[0]
        least, inside, made = max(traced, half), 0, 0
        numbers: list[float] = [known.join_size, known.local, least, lower.theorem(known, task, method)]
        for p in CURVES:
            errors = [math.nan]
            if p == "tight" or case.workload.cells <= LARGEST:
                errors = case.errors(runs, budget=budget, method=method, profile=p)
                made += runs
            most = upper.proved(known, task, method, p)
            inside += sum(least <= error <= most for error in errors)
            numbers += [median(errors), math.nan if made == 0 else most]
        numbers.append(median(case.errors(runs, budget=budget, method="auto")))
        rows.append([case.name, *("" if math.isnan(v) else f"{v:,.0f}" for v in numbers), f"{inside} of {made}"])
    head = "tables | OUT | Δ | proved lower | Ω̃, constant 1 | `paper` | its bound | `tight` | its bound | `auto`"
    return markdown(title, head + " | inside", rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one family and one small query, nothing written")
    options = parser.parse_args(arguments)
    names = ["oulad_two"] if options.quick else queries()
    present = next(loaded(names), None) is not None
    runs = 1 if options.quick else options.runs
    hardest = islice(families(4 if options.quick else 12), 1 if options.quick else None)
    pages = [between("Hard families", hardest, runs)]
    if present:
        pages += [between("Real joins", real(names), runs), sensitivities(names)]
    if options.quick or not present:
        print("\n".join(pages))
        print("" if present else "no development data in ../shared/data (beside the repository): nothing was written")
    else:
        head = "# Errors between their bounds, and bounds on sensitivities: `python benchmarks/theory.py`\n"
        PAGE.write_text("\n".join([head, *pages]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
