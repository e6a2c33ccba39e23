"""Whole numbers in arrays: nothing wraps, and nothing is wider than it must be."""

from __future__ import annotations

import numpy as np

from dpjoin.privacy.numbers import narrow, scaled, taken, wide

LARGE = 2**62


def test_a_large_number_among_small_ones_is_widened() -> None:
    """One value near the limit of int64 makes the array one of Python integers, on either side of 0."""
    for value in (LARGE, -LARGE):
        numbers = wide(np.array([0, value, 1]))
        assert numbers.dtype == object
        assert (numbers * 4).tolist() == [0, 4 * value, 4]
    assert wide(np.array([0, 2**59])).dtype == np.int64


def test_a_product_beyond_int64_is_exact() -> None:
    """It is the largest number that decides, not the least."""
    assert scaled(np.array([0, LARGE - 1]), 8).tolist() == [0, 8 * (LARGE - 1)]
    assert scaled(np.array([0, 3]), 8).dtype == np.int64


def test_small_python_integers_become_int64_and_large_ones_stay() -> None:
    """Values do not change; the type is the fast one where it can be."""
    assert narrow(np.array([5, -7], dtype=object)).dtype == np.int64
    for value in (LARGE, -LARGE, 10**30):
        assert narrow(np.array([1, value], dtype=object)).tolist() == [1, value]
        assert narrow(np.array([1, value], dtype=object)).dtype == object


def test_some_numbers_in_their_order() -> None:
    """All of them, or those whose places are given."""
    numbers = np.array([10, 11, 12])
    assert taken(numbers, np.array([0, 1, 2])).tolist() == [10, 11, 12]
    assert taken(numbers, np.array([2, 0])).tolist() == [12, 10]
