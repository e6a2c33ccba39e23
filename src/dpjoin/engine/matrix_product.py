"""Two tables as matrices of counts, keys x columns, and their product over the keys: the join without its rows.

Every function takes the join size (or another bound on every partial sum) and picks the cheapest arithmetic that is
exact for it: float64 below 2^53, int64 below 2^62, and some bits of the counts at a time beyond.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine import integers
from dpjoin.engine.integers import DIGIT_BITS, FLOAT_LIMIT, INT_LIMIT, Exact, at_once, fit, shifted_sum
from dpjoin.spec.workload import IntArray

BLOCK_CELLS = 2**22
"""Cells of one dense block of keys: 32 MB."""
LEAST_BITS = 8
"""At least so many bits of the counts go into one dense product."""
_DENSE_GAIN = 32
"""How many sparse multiplications one dense one costs; a heuristic, measured at 8 to 512 columns."""


@dataclass(frozen=True, eq=False)
class CountMatrix:
    """Counts by key and column, as the rows that make them up; the columns come in blocks.

    Row r counts `exact_count[r]` times (None: once) for the key `exact_key[r]`; its column in a block is
    `exact_columns[block][r]`.
    """

    exact_key: IntArray
    exact_count: IntArray | None
    exact_columns: tuple[NDArray[Any], ...]
    sizes: tuple[int, ...]
    """How many columns each block has."""

    @property
    def width(self) -> int:
        return sum(self.sizes)

    @property
    def entries(self) -> int:
        return len(self.exact_key) * len(self.sizes)

    @property
    def exact_counts(self) -> IntArray:
        return np.ones(len(self.exact_key), dtype=np.int64) if self.exact_count is None else self.exact_count

    def at(self, positions: IntArray) -> CountMatrix:
        """Only the rows at some positions."""
        count = None if self.exact_count is None else self.exact_count[positions]
        return CountMatrix(
            self.exact_key[positions], count, tuple(c[positions] for c in self.exact_columns), self.sizes
        )

    def with_keys(self, keys: IntArray) -> CountMatrix:
        return CountMatrix(keys, self.exact_count, self.exact_columns, self.sizes)

    def only(self, wanted: NDArray[np.bool_]) -> CountMatrix:
        """The rows of some keys. Dropping rows costs a pass over every array, so they are copied only if some go."""
        stays = wanted[self.exact_key]
        return self if stays.all() else self.at(np.flatnonzero(stays))


def product(
    left: CountMatrix, right: CountMatrix, keys: int, *, join_size: int, block_cells: int = BLOCK_CELLS
) -> Exact:
    """Σ over keys of (left counts by column) x (right counts by column): every pair of blocks at once.

    Keys with many combinations go through dense blocks and a matrix product each, the others through a sparse
    product. All of them are sparse where one table counts too much for float64.
    """
    wide, tall = left.width, right.width
    if join_size == 0:
        return np.zeros((wide, tall), dtype=np.int64)
    if _total(left) >= FLOAT_LIMIT or _total(right) >= FLOAT_LIMIT >> LEAST_BITS:
        return _sparse(left, right, keys, join_size=join_size)
    pairs = np.multiply(
        *at_once(
            lambda: np.bincount(left.exact_key, minlength=keys), lambda: np.bincount(right.exact_key, minlength=keys)
        )
    )
    heavy = pairs * (len(left.sizes) * len(right.sizes)) > wide * tall / _DENSE_GAIN + wide + tall
    shared, many = int(np.count_nonzero(pairs)), int(np.count_nonzero(heavy))
    # A pass over the rows to leave some out costs more than dense rows that are nearly empty.
    work = left.entries + right.entries
    if keys * (wide + tall) <= 2 * work:
        heavy, many, shared = np.ones(keys, dtype=bool), keys, keys
    elif (shared - many) * (wide + tall) <= 4 * work:
        heavy, many = pairs > 0, shared
    result = fit(np.zeros((wide, tall), dtype=np.int64), join_size)
    if many:
        result = result + _dense(left, right, heavy, many, block_cells, join_size=join_size)
    if many < shared:
        light = (pairs > 0) & ~heavy
        result = result + _sparse(left.only(light), right.only(light), keys, join_size=join_size)
    return result


def _total(counts: CountMatrix) -> int:
    return len(counts.exact_key) if counts.exact_count is None else integers.total(counts.exact_count)


def _dense(
    left: CountMatrix, right: CountMatrix, heavy: NDArray[np.bool_], many: int, block_cells: int, *, join_size: int
) -> Exact:
    """The product over the `many` keys that are heavy, some of them at a time.

    Where the join is too large for float64, so many bits of the left counts at a time that no cell of a product is.
    """
    bits = 53 - _total(right).bit_length()
    height = max(1, block_cells // max(left.width, right.width))
    if many < len(heavy):
        position = np.cumsum(heavy) - 1
        left, right = left.only(heavy), right.only(heavy)
        left, right = left.with_keys(position[left.exact_key]), right.with_keys(position[right.exact_key])
    result = fit(np.zeros((left.width, right.width), dtype=np.int64), join_size)
    lefts, rights = _by_height(left, many, height), _by_height(right, many, height)
    with integers.one_thread():
        for _ in range(-(-many // height)):
            a, b = at_once(lambda: next(lefts), lambda: next(rights))
            if join_size < FLOAT_LIMIT:
                result += (a.T @ b).astype(np.int64)
            else:
                pieces = enumerate(integers.digits(a.astype(np.int64), bits))
                terms = (((piece.astype(np.float64).T @ b).astype(np.int64), bits * i) for i, piece in pieces)
                result = result + fit(shifted_sum(terms), join_size)
    return result


def _by_height(counts: CountMatrix, keys: int, height: int) -> Iterator[NDArray[np.float64]]:
    """The dense matrix in pieces of `height` keys."""
    if keys <= height:
        yield _as_array(counts, keys)
        return
    piece = counts.exact_key // height
    pieces = -(-keys // height)
    order = np.argsort(piece.astype(np.uint16) if pieces < 2**16 else piece, kind="stable")
    ends = np.cumsum(np.bincount(piece, minlength=pieces))
    for i in range(pieces):
        part = counts.at(order[(ends[i - 1] if i else 0) : ends[i]])
        yield _as_array(part.with_keys(part.exact_key - i * height), min(height, keys - i * height))


def _as_array(counts: CountMatrix, keys: int) -> NDArray[np.float64]:
    matrix = np.empty((keys, counts.width), dtype=np.float64)
    base, index, base_size = np.empty_like(counts.exact_key), np.empty_like(counts.exact_key), 0
    start = 0
    for column, size in zip(counts.exact_columns, counts.sizes, strict=True):
        if size != base_size:
            np.multiply(counts.exact_key, size, out=base)
            base_size = size
        np.add(base, column, out=index)
        cells = np.bincount(index, weights=counts.exact_count, minlength=keys * size)
        matrix[:, start : start + size] = cells.reshape(keys, size)
        start += size
    return matrix


def _sparse(left: CountMatrix, right: CountMatrix, keys: int, *, join_size: int) -> Exact:
    lefts = _sparse_digits(left, keys, split=join_size >= INT_LIMIT)
    rights = _sparse_digits(right, keys, split=join_size >= INT_LIMIT)
    if len(lefts) == len(rights) == 1 and join_size < INT_LIMIT:
        exact: NDArray[Any] = (lefts[0].T.tocsr() @ rights[0]).toarray()
        return exact
    transposed = [a.T.tocsr() for a in lefts]
    pairs = ((a, b, i + j) for i, a in enumerate(transposed) for j, b in enumerate(rights))
    return fit(shifted_sum(((a @ b).toarray(), DIGIT_BITS * shift) for a, b, shift in pairs), join_size)


def _sparse_digits(counts: CountMatrix, keys: int, *, split: bool) -> list[Any]:
    """The matrix as int64, or as digits of base 2^16 if asked or if int64 is too narrow."""
    from scipy import sparse

    blocks = len(counts.sizes)
    starts = np.cumsum([0, *counts.sizes[:-1]])
    column = np.concatenate([c.astype(np.int64) + s for c, s in zip(counts.exact_columns, starts, strict=True)])
    key, count = np.tile(counts.exact_key, blocks), counts.exact_counts
    whole = not split and integers.total(count) < INT_LIMIT
    matrices = [
        sparse.csr_matrix((np.tile(digit, blocks), (key, column)), shape=(keys, counts.width))
        for digit in ([count] if whole else integers.digits(count))
    ]
    if whole:
        return matrices
    # Carry, so that each digit of each cell is below 2^16 and a product sums to less than 2^32 per key.
    for i, matrix in enumerate(matrices):  # which may grow
        carry = matrix.data >> DIGIT_BITS
        matrix.data &= (1 << DIGIT_BITS) - 1
        if carry.any():
            if i + 1 == len(matrices):
                matrices.append(matrix.copy())
                matrices[-1].data[:] = 0
            matrices[i + 1].data = matrices[i + 1].data + carry
    return matrices


def products_over_keys(
    left: CountMatrix, left_weights: IntArray, right: CountMatrix, right_weights: IntArray, keys: int, *, bound: int
) -> Exact:
    """Product queries key by key, for scopes whose marginal would be too large to hold.

    Each query is a row of weights of the left columns and one of the right columns; `bound` is above every answer.
    """
    exact = np.zeros(len(left_weights), dtype=object)
    # Below 2^44 rows a key's weighted sum stays in int64 (weights have 16 bits).
    lefts, rights = (_sparse_digits(m, keys, split=integers.total(m.exact_counts) >= 2**44) for m in (left, right))
    chunk = max(1, BLOCK_CELLS // max(1, keys))
    for start in range(0, len(exact), chunk):
        part = slice(start, start + chunk)
        us = [np.asarray(a @ np.ascontiguousarray(left_weights[part].T)) for a in lefts]
        vs = [np.asarray(b @ np.ascontiguousarray(right_weights[part].T)) for b in rights]
        pairs = ((u, v, i + j) for i, u in enumerate(us) for j, v in enumerate(vs))
        exact[part] = shifted_sum((_column_dots(u, v), DIGIT_BITS * shift) for u, v, shift in pairs)
    return fit(exact, bound)


def _column_dots(first: IntArray, second: IntArray) -> Exact:
    """Σ_k first[k, i]·second[k, i]."""
    if _largest(first) * _largest(second) * max(1, len(first)) < INT_LIMIT:
        small: Exact = np.einsum("ki,ki->i", first, second)
        return small
    # Products of digits below 2^32 times any number of keys stay in int64.
    pairs = (
        (a, b, i + j)
        for i, a in enumerate(integers.signed_digits(first))
        for j, b in enumerate(integers.signed_digits(second))
    )
    return shifted_sum((np.einsum("ki,ki->i", a, b), DIGIT_BITS * shift) for a, b, shift in pairs)


def _largest(values: IntArray) -> int:
    return int(np.abs(values).max(initial=1))
