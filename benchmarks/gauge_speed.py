"""Residual sensitivity and LŜ-gauge from given boundary values of six private tables.

Alone: `python benchmarks/gauge_speed.py [--quick]`. The values come from random stars, paths, joins over shared
attributes, and from numbers that no join needs to have, with T_F <= T_E·T_{F minus E}.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from math import exp, log, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.privacy.gauge import ls_gauge
from dpjoin.privacy.residual import Boundaries, proper_subsets, residual_level, star
from report import markdown_table, number

NAMES = tuple("123456")
BETA = Fraction(10, 138)
TARGETS = {"residual_level": 50.0, "ls_gauge": 5.0}
"""Milliseconds."""
UNEQUAL = (
    (1000, 1, 1, 1, 1, 1),
    (100_000, 10_000, 1000, 100, 10, 1),
    (50, 40, 30, 20, 10, 5),
    (1000, 1000, 1, 1, 1, 1),
)


def boundaries(values: dict[frozenset[str], int]) -> Boundaries:
    return Boundaries(tables=NAMES, private=frozenset(NAMES), values=values)


def degrees(rng: np.random.Generator, top: float, size: int | tuple[int, ...]) -> NDArray[np.int64]:
    """1 … top, every order of magnitude as likely as any other."""
    return np.exp(rng.uniform(0, log(top + 1), size)).astype(np.int64)


def products(rng: np.random.Generator) -> Boundaries:
    """A star with one key, or a join in which T_F is the product of the T_j."""
    return star([int(x) for x in degrees(rng, 100_000, 6)])


def keys(rng: np.random.Generator) -> Boundaries:
    """A star whose heavy keys differ from table to table: T_F is the largest product over the keys."""
    table = degrees(rng, 10 ** rng.uniform(1, 5), (int(rng.integers(2, 60)), 6)).tolist()
    return boundaries({f: max(prod(row[int(j) - 1] for j in f) for row in table) for f in proper_subsets(NAMES)})


def join(rng: np.random.Generator, attributes: Sequence[str], size: int, top: float) -> Boundaries:
    """Random rows over attributes with `size` values each; T_F by summing and maximising."""
    density = rng.uniform(0.3, 1)
    counts = [degrees(rng, top, (size,) * len(a)) * (rng.random((size,) * len(a)) < density) for a in attributes]
    values = {frozenset[str](): 1}
    for subset in proper_subsets(NAMES):
        if subset:
            inside = [n for n in range(6) if NAMES[n] in subset]
            outside = "".join(attributes[n] for n in range(6) if n not in inside)
            boundary = sorted(set("".join(attributes[n] for n in inside)) & set(outside))
            names = ",".join(attributes[n] for n in inside) + "->" + "".join(boundary)
            largest = np.max(np.einsum(names, *(counts[n].astype(float) for n in inside), optimize=True))
            values[subset] = round(float(largest))
    return boundaries(values)


def path(rng: np.random.Generator) -> Boundaries:
    return join(rng, ["ab", "bc", "cd", "de", "ef", "fg"], int(rng.integers(2, 9)), 10 ** rng.uniform(0.2, 2))


def shared(rng: np.random.Generator) -> Boundaries:
    """Six tables with one to three of five attributes each."""
    attributes = ["".join(sorted(rng.choice(list("abcde"), int(rng.integers(1, 4)), replace=False))) for _ in range(6)]
    return join(rng, attributes, int(rng.integers(2, 5)), 10 ** rng.uniform(0.2, 3))


def numbers(rng: np.random.Generator) -> Boundaries:
    """T_F anywhere between the largest T_{F minus j} and the smallest T_E·T_{F minus E}."""
    near = 1 / (0.2 + 3 * rng.random())
    values = {frozenset[str](): 1}
    values |= {frozenset(j): int(d) for j, d in zip(NAMES, degrees(rng, 10 ** rng.uniform(0.5, 5), 6), strict=True)}
    for subset in proper_subsets(NAMES):
        if len(subset) > 1:
            parts = [frozenset(p) for size in range(1, len(subset)) for p in combinations(sorted(subset), size)]
            most = min(values[part] * values[subset - part] for part in parts)
            least = min(most, max(values[part] for part in parts))
            values[subset] = min(most, round(exp(log(least) + (log(most) - log(least)) * rng.random() ** near)))
    return boundaries(values)


KINDS: dict[str, Callable[[np.random.Generator], Boundaries]] = {
    "star, products": products,
    "star, keys": keys,
    "path": path,
    "shared attributes": shared,
    "numbers": numbers,
}


def measure(quick: bool) -> dict[str, Any]:
    """Milliseconds on the processor: median, 95th percentile and largest, and the median for each kind."""
    rng = np.random.default_rng(6)
    cases = [("unequal star", star(d)) for d in UNEQUAL]
    cases += [(kind, make(rng)) for _ in range(10 if quick else 60) for kind, make in KINDS.items()]
    work: dict[str, Callable[[Boundaries], Any]] = {
        "residual_level": lambda b: residual_level(b, beta=BETA, steps=1000),
        "ls_gauge": ls_gauge,
    }
    found: dict[str, Any] = {"vectors": len(cases), "beta": float(BETA), "targets": TARGETS}
    for name, function in work.items():
        function(cases[0][1])
        times = np.array([_milliseconds(lambda: function(b)) for _, b in cases])  # noqa: B023
        found[name] = {
            "median": float(np.median(times)),
            "p95": float(np.quantile(times, 0.95)),
            "max": float(times.max()),
        }
        found[name]["below_target"] = float((times < TARGETS[name]).mean())
        found[name]["kinds"] = {
            kind: float(np.median([t for t, (k, _) in zip(times, cases, strict=True) if k == kind]))
            for kind in ("unequal star", *KINDS)
        }
    return found


def table(found: dict[str, Any]) -> str:
    rows = [
        [
            name,
            *(number(found[name][k]) for k in ("median", "p95", "max")),
            number(target),
            f"{found[name]['below_target']:.0%}",
        ]
        for name, target in TARGETS.items()
    ]
    return markdown_table(["six tables, ms", "median", "95th percentile", "largest", "target", "below it"], rows)


def _milliseconds(work: Callable[[], Any]) -> float:
    """The fastest of three runs, in time on the processor: other programs on the machine do not count."""
    times = []
    for _ in range(3):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return 1000 * min(times)


if __name__ == "__main__":
    print(table(measure("--quick" in sys.argv)))
