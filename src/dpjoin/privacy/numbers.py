"""Whole numbers of any size in arrays: nothing wraps, and nothing raises on data."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
"""Whole numbers: int64, or Python integers in an object array where int64 is too narrow."""


def root_up(square: int) -> int:
    """The least whole number whose square is no less. Proof: P-30."""
    return math.isqrt(square - 1) + 1 if square else 0


def root(square: int) -> Fraction:
    """A fraction whose square is no less, by very little; the root itself of a square. Proof: P-82."""
    return Fraction(root_up(square * 10**12), 10**6)


def wide(numbers: Numbers) -> Numbers:
    """Python integers, which neither wrap nor raise; int64 where every value is far from its limit. Proof: P-33."""
    small = numbers.dtype == np.int64 and (
        not len(numbers) or (int(numbers.max()) < 2**60 and int(numbers.min()) > -(2**60))
    )
    if small:
        return numbers
    return np.asarray(numbers.astype(object), dtype=object)


def taken(numbers: Numbers, kept: NDArray[np.int64]) -> Numbers:
    """Some of the numbers, in their order. Proof: P-32."""
    return numbers if len(kept) == len(numbers) else numbers[kept]


def scaled(numbers: Numbers, factor: int) -> Numbers:
    """Numbers that are not negative, times a positive whole number. Proof: P-32."""
    if factor == 1 or (numbers.dtype == np.int64 and int(numbers.max(initial=0)) < 2**62 // factor):
        return numbers * factor
    return np.asarray(numbers.astype(object) * factor, dtype=object)


def narrow(numbers: Numbers) -> Numbers:
    """int64 where it fits, so that what follows is fast. Proof: P-33."""
    if numbers.dtype == np.int64:
        return numbers
    if all(-(2**62) < int(v) < 2**62 for v in numbers):
        return numbers.astype(np.int64)
    return numbers
