"""Owners: what is asked of a schema so that one person can be hidden, and the histogram of owners by join results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine.interface import Clip
from dpjoin.errors import BudgetError
from dpjoin.spec.persons import one_owner_per_result, owner_of
from dpjoin.spec.schema import Schema

__all__ = ["Clip", "NoisyOwners", "check_removals", "owners_by_results", "owners_per_row", "rows_per_owner"]

MOST_EDGES = 2**16


@dataclass(frozen=True, eq=False)
class NoisyOwners:
    """How many owners have a number of join results above one edge (above 0, for the first) up to the next.

    The last count is of those above the last edge. Owners without join results are not counted.
    """

    owner: tuple[str, ...]
    edges: tuple[int, ...]
    noisy: tuple[int, ...]
    deviation: float
    """Of each count's noise."""


def owners_by_results(exact_results: NDArray[Any], edges: Sequence[int]) -> NDArray[np.int64]:
    """For each bucket, the owners whose number of join results lies in it. Proof: P-79."""
    lows = [0, *edges]
    beyond = [int((exact_results > low).sum()) for low in lows]
    return np.array([a - b for a, b in zip(beyond, [*beyond[1:], 0], strict=True)], dtype=np.int64)


def rows_per_owner(schema: Schema) -> dict[str, int]:
    """By private table, how many rows one owner has at most, where a bound by the owner says so. Proof: P-80."""
    found = {}
    for table in schema.tables:
        owner = set(owner_of(schema, table))
        limits = [b.limit for b in table.bounds if owner and set(b.attributes) <= owner]
        if table.private and limits:
            found[table.name] = min(limits)
    return found


def check_removals(schema: Schema, owner: tuple[str, ...]) -> None:
    """Refuse rows that are removed because of other owners' rows: then one owner could move others. Proof: P-78."""
    for table in schema.tables:
        own = owner_of(schema, table) or owner
        if table.private and table.enforce:
            for bound in table.bounds:
                if not set(own) <= set(bound.attributes):
                    raise BudgetError(
                        f"table {table.name!r}: an enforced bound by {', '.join(bound.attributes)} must be by "
                        f"attributes that include the owner ({', '.join(own)}); assume it, or leave it out"
                    )


def owners_per_row(schema: Schema, clip: Clip) -> int:
    """How many owners one protected unit can move; refuses a clip that does not bound what it moves. Proof: P-78."""
    check_removals(schema, clip.owner)
    if schema.unit:
        if clip.owner != schema.unit:
            raise BudgetError(f"clipping must be by the unit of privacy ({', '.join(schema.unit)})")
        if not one_owner_per_result(schema):
            raise BudgetError("clipping must have all private rows of a join result from one owner; see owner_via")
        return max([1, *(t.owners for t in schema.tables if t.private and t.owners is not None)])
    if not clip.owner or any(t.private and not set(clip.owner) <= set(t.attributes) for t in schema.tables):
        raise BudgetError(f"clipping must be by attributes that all private tables have, not {', '.join(clip.owner)}")
    if not clip.steep:
        raise BudgetError("clipping must have steep weights where one row is protected")
    return 1
