"""What caps lose at the same noise: rows that go, against rows that fade. `benchmarks/fading.py`.

Nothing is released: the shares are exact, which a real release would not know. For each query the bound is the one of
`BOUNDS` at which removing rows loses about a tenth of the join.
"""

from __future__ import annotations

import argparse
import math
import sys

import numpy as np

import queries
from dpjoin.constants import FADE_PRICES
from dpjoin.engine.interface import RowWeights
from dpjoin.methods.fading import LARGEST, weights
from dpjoin.methods.look import rows_left
from dpjoin.privacy.degree_bounds import most_of_value, moves_of_row
from report import command, markdown_table, versions, write

BOUNDS = (4, 6, 9, 13, 18, 27, 40, 60, 90, 135, 200)
SEED = 20230618
REMOVING = "removing"


def bound_of(cap: int, price: float | None) -> float:
    """What one row of two tables moves in l2, if both have this cap."""
    if price is None:
        return math.sqrt(2) * cap
    found, full = weights(cap, price)
    fade = RowWeights(("k",), found, full)
    return moves_of_row(fade) * most_of_value(fade) / full**2


def largest_cap(bound: float, price: float | None) -> int:
    """By halving: the bound grows with the cap."""
    low, high = 1, LARGEST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if bound_of(middle, price) <= bound else (low, middle - 1)
    return low


def lost(degrees: tuple[np.ndarray, np.ndarray], bound: float, price: float | None) -> float:
    """The share of the join that is lost under the largest cap with such a bound."""
    first, second = (d.astype(np.float64) for d in degrees)
    cap = largest_cap(bound, price)
    kept = (rows_left(first, cap, price) * rows_left(second, cap, price)).sum()
    return 1 - float(kept / (first @ second))


def instances() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = {q.name: q.degrees for q in queries.load()}
    popular = 1 / np.arange(1, 10_001) ** 0.5
    rng = np.random.default_rng(SEED)
    first, second = (rng.multinomial(30_000, popular / popular.sum()) for _ in range(2))
    return {**found, "30k-10k-zipf.5": (first, second)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="nothing is written")
    quick = parser.parse_args(arguments).quick
    ways = {REMOVING: None, **{f"fading, price {p:.3g}": p for p in FADE_PRICES}}
    rows, data = [], {}
    for name, degrees in instances().items():
        bound = min(BOUNDS, key=lambda b: abs(lost(degrees, b, None) - 0.1))
        shares = {way: lost(degrees, bound, price) for way, price in ways.items()}
        caps = {way: largest_cap(bound, price) for way, price in ways.items()}
        data[name] = {"bound": bound, "lost": shares, "caps": caps}
        rows.append([name, str(bound), *(f"{shares[w]:.1%} ({caps[w]})" for w in ways)])
    table = markdown_table(["query", "bound", *ways], rows)
    page = f"""# What caps lose at the same noise

Made by `{command("fading.py")}` with {versions()}.

Two tables, both with the same cap. Share of the join that is lost under the largest cap (in brackets) whose bound is
not above the one named. Exact shares: nothing here is private. How rows fade is told in `docs/capped.md`.

{table}
"""
    print(page)
    if not quick and len(data) > 1:
        write("fading", page, data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
