"""What one row can change when rows count less, the more of them share a value.

Hard caps let a new row push another one out, so the sums move by the two of them: the square root of two. Weights that
fall slowly enough let it push all others out a little, in the same direction, by less.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from dpjoin.engine.interface import Fade
from dpjoin.errors import BudgetError
from dpjoin.privacy.degree_bounds import Limit, most_results
from dpjoin.privacy.numbers import Numbers
from dpjoin.spec.schema import Schema

__all__ = ["Fade", "check_fade", "faded_bound", "faded_limits", "most_of_value", "moves_of_row"]


def check_fade(fade: Fade) -> None:
    """Refuse weights that P-68 does not cover."""
    weights = fade.weights
    falling = len(weights) > 0 and not np.any(np.diff(weights) > 0)
    if weights.dtype != np.int64 or weights.ndim != 1 or not falling or not 0 <= weights[-1] <= weights[0] <= fade.full:
        raise BudgetError("weights of rows must be whole numbers from full weight down to 0 that never rise")
    if most_of_value(fade) >= 2**62:
        raise BudgetError("weights of rows must keep what a value counts below 2^62; use fewer steps")


def most_of_value(fade: Fade) -> int:
    """What the rows of one value count together, at most: the largest d W(d). Proof: P-68."""
    counted = _degrees(fade) * fade.weights.astype(object)
    return int(max(counted))


def moves_of_row(fade: Fade) -> int:
    """By how much weights move for one row more at a value, in l2: its own one, and all that the others lose.

    The least whole number whose square is no less than W(d + 1)² + (d (W(d) - W(d + 1)))² for every d. Proof: P-68.
    """
    weights = np.append(fade.weights, 0).astype(object)
    lost = np.append(_degrees(fade) * (weights[:-1] - weights[1:]), 0)
    own = weights
    square = max(int(own[0]) ** 2, *(int(a) ** 2 + int(b) ** 2 for a, b in zip(own[1:], lost[:-1], strict=True)))
    return math.isqrt(square - 1) + 1 if square else 0


def _degrees(fade: Fade) -> Numbers:
    return np.arange(1, len(fade.weights) + 1).astype(object)


def faded_limits(schema: Schema, limits: Iterable[Limit], fades: Mapping[str, Fade]) -> list[Limit]:
    """Limits on rows as limits on what they count, and those that the weights give. Proof: P-68."""
    full = {name: fade.full for name, fade in fades.items()}
    known = [replace(x, most=x.most * full.get(x.rows_of or "", 1)) for x in limits]
    own = [
        Limit(
            tables=frozenset([name]),
            given=frozenset(fade.attributes),
            then=frozenset(schema.table(name).attributes),
            most=most_of_value(fade),
            rows_of=name,
        )
        for name, fade in fades.items()
    ]
    return [*known, *own]


def faded_bound(schema: Schema, limits: Iterable[Limit], fades: Mapping[str, Fade]) -> int:
    """The most that one row can change, in the units of weighted counts. Proof: P-68."""
    names = frozenset(t.name for t in schema.tables)
    weighted = faded_limits(schema, limits, fades)
    found = []
    for table in schema.private_tables:
        others = most_results(schema, names - {table}, weighted)
        if others is None:
            raise BudgetError(f"weights must bound what a row of table {table!r} joins; give its partners weights")
        found.append(others * (moves_of_row(fades[table]) if table in fades else 1))
    return max(1, *found)
