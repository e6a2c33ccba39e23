"""Keep at most so many rows of each value: which ones go by an order that every row brings along.

A row's place in the order is a hash of what the engine sees of it: the values of its join attributes, its codes, and
which copy of equal rows it is. So a row more shifts the ranks behind it by one and changes no other order, whatever
numbers the values have. Ties of the hash go by the row itself. The hash only has to scatter: no guarantee rests on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.spec.workload import IntArray

Words = NDArray[np.uint64]
_FIRST = 0x9E3779B97F4A7C15
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_WORD = 2**64 - 1


def mixed(word: int) -> int:
    """A number of 64 bits, scattered; one to one.

    >>> mixed(0), mixed(1) != mixed(2)
    (0, True)
    """
    for shift, factor in _STEPS:
        word = ((word ^ (word >> shift)) * factor) & _WORD
    return word ^ (word >> 31)


def seed(value: object) -> int:
    """The number that stands for a value of a join attribute."""
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return mixed(value & _WORD)
    return int.from_bytes(blake2b(repr(value).encode(errors="replace"), digest_size=8).digest(), "little")


def place(values: Sequence[object], codes: Sequence[int], copy: int) -> int:
    """Where a row stands among the others: the definition, for one row."""
    word = _FIRST
    for part in (*map(seed, values), *codes, copy):
        word = mixed(word ^ part)
    return word


def _mixed(words: Words) -> Words:
    for shift, factor in _STEPS:
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def seeds(values: Sequence[object] | IntArray) -> Words:
    """`seed` of many values."""
    if isinstance(values, np.ndarray):
        return _mixed(values.view(np.uint64))
    return np.fromiter(map(seed, values), dtype=np.uint64, count=len(values))


def places(seeds: Sequence[Words], codes: Sequence[NDArray[Any]], copies: IntArray) -> Words:
    """`place` of many rows."""
    words = np.full(len(copies), _FIRST, dtype=np.uint64)
    for part in (*seeds, *codes, copies):
        words = _mixed(words ^ part.astype(np.uint64))
    return words


def ranks(group: IntArray, order_by: Sequence[NDArray[Any]]) -> IntArray:
    """The place of each row among those of its group, from 0 on. The first column to order by counts most."""
    order = np.lexsort((*reversed(order_by), group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = np.arange(len(group)) - np.repeat(starts, np.diff(starts, append=len(group)))
    return rank
