"""How far one join result can move a group of queries: public numbers, exact, from the weights alone.

One added or removed row changes the join by at most Delta results, all of one sign. So a vector of
answers moves by at most Delta times the longest column of its weight matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpjoin.canonical import frozen
from dpjoin.privacy.numbers import Numbers
from dpjoin.spec.workload import Factor, Group, Kronecker, largest_weight


@lru_cache(maxsize=512)
def squared_norm(group: Group) -> int:
    """max over cells x of |W(x)|², in units². Proof: P-25.

    A whole marginal has 1, however many cells: a join result lies in one of them.
    """
    if isinstance(group, Kronecker):
        return math.prod(_longest(f, n, power=2) for f, n in zip(group.factors, group.shape, strict=True))
    return sum(int(weight) ** 2 for weight in weight_ranges(group).largest)


@lru_cache(maxsize=512)
def absolute_norm(group: Group) -> int:
    """max over cells x of the sum of |W(x)|, in units. Proof: P-25. A whole marginal has 1 again."""
    if isinstance(group, Kronecker):
        return math.prod(_longest(f, n, power=1) for f, n in zip(group.factors, group.shape, strict=True))
    return sum(int(weight) for weight in weight_ranges(group).largest)


def _longest(factor: Factor, size: int, *, power: int) -> int:
    """The largest sum of |weight|^power over a column of a factor. Proof: P-25."""
    if factor.kind == "cells":  # without the matrix, which has the square of `size` entries
        return 1
    matrix = _matrix(factor, size)
    if len(matrix) * largest_weight(matrix) ** power >= 2**63:
        matrix = matrix.astype(object)
    return int((np.abs(matrix) ** power).sum(axis=0).max())


def _matrix(factor: Factor, size: int) -> Numbers:
    """The weights of a factor, exact: a single row may have any whole numbers."""
    return np.array([factor.row], dtype=object) if factor.kind == "weights" else factor.matrix(size)


@dataclass(frozen=True, eq=False)
class Ranges:
    """The least and the largest weight of each query of a group, in units: whole numbers."""

    low: Numbers
    high: Numbers

    def of(self, index: int) -> tuple[int, int]:
        """Those of one query."""
        return int(self.low[index]), int(self.high[index])

    @property
    def width(self) -> Numbers:
        return self.high - self.low

    @property
    def largest(self) -> Numbers:
        """The largest absolute weight of each query."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def sum(self) -> Numbers:
        """Twice the middle."""
        return self.low + self.high

    @property
    def none_negative(self) -> bool:
        return bool((self.low >= 0).all())


@lru_cache(maxsize=512)
def weight_ranges(group: Group) -> Ranges:
    """The least and the largest weight of each query of a group, in units. Proof: P-26."""
    crossed = isinstance(group, Kronecker)
    factors = (
        [_ends(f, n) for f, n in zip(group.factors, group.shape, strict=True)]
        if isinstance(group, Kronecker)
        else [(weights.min(axis=1), weights.max(axis=1)) for _, weights in group.parts]
    )
    largest = math.prod(max(1, *map(largest_weight, both)) for both in factors)
    dtype = np.int64 if largest < 2**62 else object
    low = high = np.ones(1 if crossed else len(group), dtype=dtype)
    for both in factors:
        least, most = (ends.astype(dtype) for ends in both)
        ends = [np.multiply.outer(x, y).ravel() if crossed else x * y for x in (low, high) for y in (least, most)]
        low, high = np.minimum.reduce(ends), np.maximum.reduce(ends)
    return Ranges(frozen(low), frozen(high))  # callers get the same ones again, and so does the Curator


def _ends(factor: Factor, size: int) -> tuple[Numbers, Numbers]:
    """The least and the largest weight of each row of a factor."""
    if factor.kind == "cells":
        return np.full(size, int(size == 1)), np.ones(size, dtype=np.int64)
    matrix = _matrix(factor, size)
    return matrix.min(axis=1), matrix.max(axis=1)
