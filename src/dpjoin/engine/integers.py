"""Exact arithmetic on arrays of whole numbers: int64 while it is wide enough, Python integers beyond. Nothing wraps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from dpjoin.spec.workload import IntArray

_T = TypeVar("_T")
Exact = NDArray[Any]
"""int64, or Python integers in an object array."""

FLOAT_LIMIT = 2**53
"""Below it float64 holds every whole number."""
INT_LIMIT = 2**62
"""Below it int64 is used; the sum of two such numbers fits, too."""
DIGIT_BITS = 16
"""Wide numbers are summed digit by digit: two digits multiplied, times any number of rows, stay in int64."""


def digits(values: Exact, bits: int = DIGIT_BITS) -> list[IntArray]:
    """Non-negative whole numbers as digits of base 2^bits, lowest first, at least one."""
    found: list[IntArray] = []
    mask = (1 << bits) - 1
    while True:
        found.append((values & mask).astype(np.int64))
        values = values >> bits
        if not np.any(values):
            return found


def signed_digits(values: IntArray, bits: int = DIGIT_BITS) -> list[IntArray]:
    """Digits of the absolute values, each with the number's sign."""
    sign = np.sign(values)
    return [digit * sign for digit in digits(np.abs(values), bits)]


def shifted_sum(terms: Iterable[tuple[NDArray[Any], int]]) -> Exact:
    """The sum of some arrays, each times its power of two, in Python integers.

    >>> shifted_sum([(np.array([1, -2]), 0), (np.array([3, 3]), 100)]).tolist() == [1 + 3 * 2**100, -2 + 3 * 2**100]
    True
    """
    return np.asarray(sum(term.astype(object) << shift for term, shift in terms), dtype=object)


def fit(values: Exact, bound: int) -> Exact:
    """int64 when the bound on absolute values allows it."""
    return values.astype(np.int64, copy=False) if bound < INT_LIMIT else values.astype(object)


def total(values: Exact) -> int:
    """The sum of non-negative numbers."""
    if values.dtype == object or int(values.max(initial=0)) * len(values) < INT_LIMIT:
        return int(values.sum())
    return sum(int(digit.sum()) << (DIGIT_BITS * i) for i, digit in enumerate(digits(values)))


def times(first: Exact, second: Exact) -> Exact:
    """Products of non-negative numbers: int64 where all of them fit."""
    if first.dtype != object and second.dtype != object:
        if int(first.max(initial=0)) * int(second.max(initial=0)) < INT_LIMIT:
            return first * second
        if float(np.max(first.astype(np.float64) * second)) < INT_LIMIT / 2:
            return first * second
    exact: Exact = first.astype(object) * second.astype(object)
    return exact


def count_by(index: NDArray[Any], count: NDArray[Any] | None, size: int, *, bound: int) -> Exact:
    """How much each of `size` cells holds; `bound` is at least the sum of all counts, None of which stands for ones."""
    if count is None:
        return np.bincount(index, minlength=size)
    if bound < FLOAT_LIMIT:
        return np.bincount(index, weights=count.astype(np.float64, copy=False), minlength=size).astype(np.int64)
    # A digit times the number of rows stays below 2^53 for every number of rows that fits in memory.
    sums = (np.bincount(index, weights=digit, minlength=size).astype(np.int64) for digit in digits(count))
    return fit(shifted_sum((s, DIGIT_BITS * i) for i, s in enumerate(sums)), bound)


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """BLAS on one thread: on tall, narrow products more threads are slower and disturb DuckDB's."""
    limited: AbstractContextManager[Any] = _threads().limit(limits=1, user_api="blas")
    return limited


def at_once(first: Callable[[], _T], second: Callable[[], _T]) -> tuple[_T, _T]:
    """Both results, computed side by side: counting and reading leave Python's lock alone."""
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(second)
        return first(), waiting.result()
