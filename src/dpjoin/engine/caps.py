"""Keep at most so many rows of each value: which ones go by an order that every row brings along.

A row's place in the order is a hash of what the engine sees of it: the values of its join attributes, its codes, and
which copy of equal rows it is. So a row more shifts the ranks behind it by one and changes no other order, whatever
numbers the values have. Ties of the hash go by the row itself. The hash only has to scatter: no guarantee rests on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine import sumproduct
from dpjoin.engine.exact import Exact, count_by
from dpjoin.engine.interface import RowWeights
from dpjoin.engine.sumproduct import Counts, Variable
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


@dataclass(frozen=True, eq=False)
class Content:
    """What the order of some rows goes by, column by column."""

    seeds: Sequence[Words]
    """Of each join attribute's value."""
    ranks: Sequence[NDArray[Any]]
    """Numbers in an order of those values that does not depend on which others occur."""
    codes: Sequence[NDArray[Any]]


def seeds(values: Sequence[object] | IntArray) -> Words:
    """`seed` of many values."""
    if isinstance(values, np.ndarray):
        return _mixed(values.view(np.uint64))
    return np.fromiter(map(seed, values), dtype=np.uint64, count=len(values))


def _places(seeds: Sequence[Words], codes: Sequence[NDArray[Any]], copies: IntArray) -> Words:
    """`place` of many rows."""
    words = np.full(len(copies), _FIRST, dtype=np.uint64)
    for part in (*seeds, *codes, copies):
        words = _mixed(words ^ part.astype(np.uint64))
    return words


def degrees(counts: Counts, by: tuple[Variable, ...]) -> Exact:
    """For each row, how many of its table have its value of the variables."""
    (group,), size = sumproduct.numbered([counts], by)
    exact: Exact = count_by(group, counts.exact_count, size, bound=sumproduct.total(counts))[group]
    return exact


def capped(
    counts: Counts,
    by_attribute: Callable[[Counts], Counts],
    bounds: Mapping[tuple[Variable, ...], int],
    content: Callable[[Counts], Content],
) -> Counts:
    """The rows whose rank within their group is at most the limit, for each of the bounds.

    `by_attribute` gives the same rows with the variables that the bounds go by, and `content` what their order goes by.
    Only groups beyond a limit are put in order.
    """
    beyond, parts = np.zeros(counts.rows, dtype=bool), by_attribute(counts)
    for by, limit in bounds.items():
        beyond |= np.asarray(degrees(parts, by) > limit, dtype=bool)
    if not beyond.any():
        return counts
    # Rows that are alike become one with a count, so that copies are numbered alike however the table was read.
    some = sumproduct.project(sumproduct.some_rows(counts, np.flatnonzero(beyond)), counts.variables)
    many = some.exact_counts.astype(np.int64)
    rows = np.repeat(np.arange(some.rows), many)
    copies = np.arange(len(rows)) - np.repeat(np.cumsum(many) - many, many)
    parts = by_attribute(some)
    columns = content(parts)
    words = _places([c[rows] for c in columns.seeds], [c[rows] for c in columns.codes], copies)
    # Equal words are put in order by the rows themselves.
    ties = [copies, *(c[rows] for c in columns.codes), *(c[rows] for c in columns.ranks)]
    stays = np.ones(len(rows), dtype=bool)
    for by, limit in bounds.items():
        group = sumproduct.numbered([parts], by)[0][0][rows]
        order = np.lexsort((*ties, words, group))
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        rank = np.arange(len(rows)) - np.repeat(starts, np.diff(starts, append=len(rows)))
        stays[order[rank >= limit]] = False
    kept = np.bincount(rows[stays], minlength=some.rows)
    whole = sumproduct.some_rows(counts, np.flatnonzero(~beyond))
    dtypes = [c.dtype for c in whole.exact_ids]
    some = replace(some, exact_ids=tuple(c.astype(d) for c, d in zip(some.exact_ids, dtypes, strict=True)))
    return sumproduct.concatenated([whole, sumproduct.counted(some, kept.astype(np.int64))])


def weighted(counts: Counts, parts: Counts, by: tuple[Variable, ...], fade: RowWeights) -> Counts:
    """Every row as often as the weight of its value says: no order of rows is needed. `parts` has it by attribute."""
    # What a row and its copies count together is at most what its value does, which the Curator has checked to fit.
    return sumproduct.counted(counts, counts.exact_counts * fade.of(degrees(parts, by)))
