"""An update of a large table in one pass, compiled: with numba (the extra `fast`), if it is there.

numpy passes over the table once for each operation; a compiled loop reads and writes every cell once. Both are float64
and equal but for the last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.model.terms import FloatArray

SHORT_EXPONENT = 1 / 32
"""Up to here eight terms of the series give exp(x) - 1 to the last bit; beyond, x is halved and the result squared."""


@dataclass(frozen=True)
class Kernels:
    """The compiled loops."""

    _grow: Callable[..., float]
    _distance: Callable[..., float]

    def grow(
        self,
        tables: tuple[FloatArray, FloatArray, NDArray[np.float32]],
        weights: tuple[FloatArray, FloatArray],
        step: float,
        seen: float,
    ) -> float:
        """Multiply cell (i, j) by exp(step x first[i] x second[j]); returns what all cells together gain.

        `tables` are the cells, a table from which `seen` times the gain is taken off, and a copy in single precision.
        """
        first, second = weights
        largest = abs(step) * float(np.abs(first).max(initial=0.0)) * float(np.abs(second).max(initial=0.0))
        halvings = max(0, math.ceil(math.log2(largest / SHORT_EXPONENT))) if largest else 0
        return self._grow(*tables, first * (step / 2.0**halvings), np.ascontiguousarray(second), seen, halvings)

    def distance(self, table: FloatArray, scale: float, earlier: FloatArray) -> float:
        """Half the sum of absolute differences between `scale` times a table and another."""
        return self._distance(table, scale, earlier) / 2


@cache
def kernels() -> Kernels | None:
    """The compiled loops, or nothing without numba. They are compiled when first called."""
    try:
        from numba import njit
    except ImportError:
        return None

    def compiled(loop: Callable[..., float], *, kept: bool) -> Any:
        # Sums may be taken in any order, products and sums be one step: that lets loops run several cells wide.
        return njit(loop, cache=kept, fastmath={"reassoc", "contract"})

    try:
        return Kernels(compiled(grow, kept=True), compiled(distance, kept=True))
    except RuntimeError:  # nowhere to keep them for the next time
        return Kernels(compiled(grow, kept=False), compiled(distance, kept=False))


def grow(
    cells: FloatArray,
    rest: FloatArray,
    single: NDArray[np.float32],
    first: FloatArray,
    second: FloatArray,
    seen: float,
    halvings: int,
) -> float:
    gained = 0.0
    share = np.empty(len(second))
    for i in range(len(first)):
        if first[i] == 0.0:
            continue
        for j in range(len(second)):
            x = first[i] * second[j]
            tail = 1 / 24 + x * (1 / 120 + x * (1 / 720 + x * (1 / 5040 + x / 40320)))
            share[j] = x * (1 + x * (1 / 2 + x * (1 / 6 + x * tail)))
        for _ in range(halvings):
            for j in range(len(second)):
                share[j] *= 2 + share[j]
        for j in range(len(second)):
            gain = cells[i, j] * share[j]
            cells[i, j] += gain
            single[i, j] = cells[i, j]
            rest[i, j] -= seen * gain
            gained += gain
    return gained


def distance(table: FloatArray, scale: float, earlier: FloatArray) -> float:
    total = 0.0
    for i in range(table.shape[0]):
        for j in range(table.shape[1]):
            total += abs(scale * table[i, j] - earlier[i, j])
    return total
