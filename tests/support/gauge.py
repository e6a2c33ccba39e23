"""Gauges and sensitivities of boundary queries, by loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from dpjoin.privacy.residual import (
    Boundaries,
)


def sums(b: Boundaries, whole: frozenset[str], s: dict[str, int]) -> int:
    """B_F(s) by its recursive definition."""
    private = [j for j in b.tables if j in whole and j in b.private]
    total = 0
    for size in range(len(private) + 1):
        for taken in itertools.combinations(private, size):
            total += b.values[whole - set(taken)] * math.prod(s[j] for j in taken)
    found = [total, *([b.caps[whole]] if whole in b.caps else [])]
    return min(found + [c * sums(b, whole - {j}, s) for f, j, c in b.factors if f == whole])


def splits(k: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 0:
        yield from [()] if k == 0 else []
    elif parts == 1:
        yield (k,)
    else:
        for first in range(k + 1):
            yield from ((first, *rest) for rest in splits(k - first, parts - 1))


def ls_at_by_loops(b: Boundaries, k: int) -> int:
    best = 0
    for i in b.private:
        others = [j for j in b.tables if j != i and j in b.private]
        for split in splits(k, len(others)) if others else [()]:
            best = max(best, sums(b, frozenset(b.tables) - {i}, dict(zip(others, split, strict=True))))
    return best
