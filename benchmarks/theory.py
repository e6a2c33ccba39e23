"""Theory on real joins: bounds on the sensitivity, and errors between their bounds: `benchmarks/theory.py [--runs N]`.

Writes docs/figures/theory-real.md. Needs the development data beside the repository; says one line without them.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dpjoin as dj
from baselines import Elastic
from dpjoin.privacy.gauge import gauge_bound, ls_gauge, t_gauge
from dpjoin.theory.facts import facts
from dpjoin.theory.reproduce import BUDGET, Case, between, markdown
from dpjoin.theory.upper import Task, largest_shift
from joins import SHIFT, load
from queries import DATA

PAGE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "theory-real.md"


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


def cases(names: Sequence[str]) -> Iterator[Case]:
    for name, schema, tables in loaded(names):
        print(name, flush=True)
        yield Case(name, schema, tables, dj.Workload.marginals(schema, (1, 2)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one small query, nothing written")
    options = parser.parse_args(arguments)
    names = ["oulad_two"] if options.quick else queries()
    if next(loaded(names), None) is None:
        print("skipped: no development data in ../shared/data (beside the repository)")
        return 0
    pages = [sensitivities(names), between("Errors of real joins", cases(names), options.runs)[0]]
    if options.quick:
        print("\n".join(pages))
    else:
        PAGE.write_text(
            "\n".join(["# Theory on real joins: `python benchmarks/theory.py`\n", *pages]), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
