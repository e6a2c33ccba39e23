"""How far one join result can move a group of queries: public numbers, exact, from the weights alone.

One added or removed row changes the join by at most Delta results, all of one sign. So a vector of
answers moves by at most Delta times the longest column of its weight matrix.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpjoin.workload import Group, Kronecker, Products


@lru_cache(maxsize=512)
def squared_norm(group: Group) -> int:
    """max over cells x of |W(x)|², in units². Proof: P-25.

    A whole marginal has 1, however many cells: a join result lies in one of them.
    """
    if isinstance(group, Kronecker):
        return math.prod(
            1 if f.kind == "cells" else int((f.matrix(n) ** 2).sum(axis=0).max())
            for f, n in zip(group.factors, group.shape, strict=True)
        )
    return sum(max(abs(low), abs(high)) ** 2 for low, high in weight_ranges(group))


@lru_cache(maxsize=512)
def weight_ranges(group: Group) -> tuple[tuple[int, int], ...]:
    """The least and the largest weight of each query of a group, in units. Proof: P-26."""
    if isinstance(group, Kronecker):
        ranges = [(1, 1)]
        for factor, size in zip(group.factors, group.shape, strict=True):
            matrix = factor.matrix(size)
            rows = list(zip(matrix.min(axis=1).tolist(), matrix.max(axis=1).tolist(), strict=True))
            ranges = [_product(a, b) for a in ranges for b in rows]
        return tuple(ranges)
    return tuple(_product_ranges(group))


def _product_ranges(group: Products) -> list[tuple[int, int]]:
    ranges = [(1, 1)] * len(group)
    for _, weights in group.parts:
        low, high = np.min(weights, axis=1).tolist(), np.max(weights, axis=1).tolist()
        ranges = [_product(r, (a, b)) for r, a, b in zip(ranges, low, high, strict=True)]
    return ranges


def _product(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)
