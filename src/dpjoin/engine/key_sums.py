"""Exact sum-product over the keys of a join: counts of join results without the join.

The tables arrive as rows (key, codes, count) with keys numbered 0, 1, …. Every function takes the join
size (or another bound on every partial sum) and picks the cheapest arithmetic that is exact for it:
float64 below 2^53, int64 below 2^62, and 16-bit limbs with Python integers beyond. Nothing wraps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from dpjoin.spec.workload import IntArray, Kronecker, Products

_T = TypeVar("_T")
Exact = NDArray[Any]
"""int64, or Python integers in an object array."""
Scope = tuple[str, ...]

FLOAT_LIMIT = 2**53
INT_LIMIT = 2**62
_LIMB = 16
BLOCK_CELLS = 2**22
"""Cells of one dense block of keys: 32 MB."""
_DENSE_GAIN = 32
"""How many sparse multiplications one dense one costs; a heuristic, measured at 8 to 512 columns."""


@dataclass(frozen=True)
class Rows:
    """A table's rows for the contraction. `exact_count` None: every row counts once."""

    exact_key: IntArray
    exact_count: IntArray | None

    def __len__(self) -> int:
        return len(self.exact_key)

    def at(self, positions: IntArray) -> Rows:
        """Only the rows at some positions."""
        return Rows(self.exact_key[positions], None if self.exact_count is None else self.exact_count[positions])


@dataclass(frozen=True)
class Block:
    """Columns of a matrix: row r of the table has a one in column `exact_code[r]` of `size`."""

    exact_code: NDArray[Any]
    size: int


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """BLAS on one thread: on tall, narrow products more threads are slower and disturb DuckDB's."""
    limited: AbstractContextManager[Any] = _threads().limit(limits=1, user_api="blas")
    return limited


def limbs(values: Exact, bits: int = _LIMB) -> list[IntArray]:
    """Non-negative whole numbers as digits of base 2^bits, lowest first, at least one."""
    digits: list[IntArray] = []
    mask = (1 << bits) - 1
    while True:
        digits.append((values & mask).astype(np.int64))
        values = values >> bits
        if not np.any(values):
            return digits


def join_limbs(digits: Sequence[NDArray[Any]], bits: int = _LIMB) -> Exact:
    """The inverse of `limbs` in Python integers; digits may be signed or too large."""
    total = np.zeros(digits[0].shape, dtype=object)
    for i, digit in enumerate(digits):
        total += digit.astype(object) << (bits * i) if i else digit.astype(object)
    return total


def fit(values: Exact, bound: int) -> Exact:
    """int64 when the bound on absolute values allows it."""
    return values.astype(np.int64) if bound < INT_LIMIT else values.astype(object)


def total_count(rows: Rows) -> int:
    """The number of rows of the table itself, multiplicities included."""
    if rows.exact_count is None:
        return len(rows)
    return sum(int(d.sum()) << (_LIMB * i) for i, d in enumerate(limbs(rows.exact_count)))


def count_by(index: IntArray, count: IntArray | None, size: int, *, bound: int) -> Exact:
    """How much each of `size` cells holds; `bound` is at least the sum of all counts."""
    if count is None:
        return np.bincount(index, minlength=size)
    if bound < FLOAT_LIMIT:
        return np.bincount(index, weights=count, minlength=size).astype(np.int64)
    # A digit times the number of rows stays below 2^53 for every number of rows that fits in memory.
    digits = [np.bincount(index, weights=d, minlength=size).astype(np.int64) for d in limbs(count)]
    return fit(join_limbs(digits), bound)


def degrees(rows: Rows, keys: int) -> Exact:
    """How many rows of the table each key has."""
    return count_by(rows.exact_key, rows.exact_count, keys, bound=total_count(rows))


def dot(first: Exact, second: Exact) -> int:
    """Σ first·second over non-negative whole numbers, exactly."""
    if not len(first):
        return 0
    if first.dtype != object and second.dtype != object:
        largest = int(first.max()) * int(second.max()) * len(first)
        if largest < INT_LIMIT:
            return int(first @ second)
    pairs = ((i, a, j, b) for i, a in enumerate(limbs(first)) for j, b in enumerate(limbs(second)))
    return sum(int(a @ b) << (_LIMB * (i + j)) for i, a, j, b in pairs)  # below 2^32 times the keys


def weighted(rows: Rows, code: NDArray[Any], size: int, weight: Exact | None, *, join_size: int) -> Exact:
    """The marginal of the join over attributes of one table: each row counts `weight` of its key times.

    `weight` is the key's degree in the other table; None stands for one.
    """
    if weight is None:
        return count_by(code, rows.exact_count, size, bound=join_size)
    if join_size < FLOAT_LIMIT:
        # A row whose key the other table lacks has weight zero; products of the rest are part of the join.
        each = weight.astype(np.float64)[rows.exact_key]
        if rows.exact_count is not None:
            each *= rows.exact_count
        return np.bincount(code, weights=each, minlength=size).astype(np.int64)
    count = np.ones(len(rows), dtype=np.int64) if rows.exact_count is None else rows.exact_count
    if join_size < INT_LIMIT:
        sums = np.zeros(size, dtype=np.int64)
        at_row = weight.astype(np.int64)[rows.exact_key] if weight.dtype != object else None
        if at_row is not None:
            np.add.at(sums, code, at_row * count)
            return sums
    exact = np.zeros(size, dtype=object)
    block = 2**20  # digits below 2^16 twice, times this many rows, stay below 2^53
    for start in range(0, len(rows), block):
        part = slice(start, start + block)
        for i, c in enumerate(limbs(count[part])):
            for j, w in enumerate(limbs(weight[rows.exact_key[part]])):
                sums = np.bincount(code[part], weights=(c * w).astype(np.float64), minlength=size).astype(np.int64)
                exact += sums.astype(object) << (_LIMB * (i + j))
    return fit(exact, join_size)


def cross(
    left: Rows,
    left_blocks: Sequence[Block],
    right: Rows,
    right_blocks: Sequence[Block],
    keys: int,
    *,
    join_size: int,
    block_cells: int = BLOCK_CELLS,
) -> Exact:
    """Σ over keys of (left counts by column) x (right counts by column): every pair of blocks at once.

    Keys with many combinations go through dense blocks and one matrix product each, the others through
    a sparse product, when float64 is exact for the join size; otherwise all of them are sparse.
    """
    wide, tall = sum(b.size for b in left_blocks), sum(b.size for b in right_blocks)
    if join_size == 0:
        return np.zeros((wide, tall), dtype=np.int64)
    if join_size >= FLOAT_LIMIT:
        return _sparse(left, left_blocks, right, right_blocks, keys, join_size=join_size)
    pairs = np.multiply(
        *at_once(
            lambda: np.bincount(left.exact_key, minlength=keys), lambda: np.bincount(right.exact_key, minlength=keys)
        )
    )
    dense_work = wide * tall / _DENSE_GAIN + wide + tall
    heavy = pairs * (len(left_blocks) * len(right_blocks)) > dense_work
    shared, many = int(np.count_nonzero(pairs)), int(np.count_nonzero(heavy))
    # A pass over the rows to leave some out costs more than dense rows that are nearly empty.
    work = len(left) * len(left_blocks) + len(right) * len(right_blocks)
    if keys * (wide + tall) <= 2 * work:
        heavy, many, shared = np.ones(keys, dtype=bool), keys, keys
    elif (shared - many) * (wide + tall) <= 4 * work:
        heavy, many = pairs > 0, shared
    result = np.zeros((wide, tall), dtype=np.float64)
    if many:
        result += _dense(left, left_blocks, right, right_blocks, heavy, many, block_cells)
    if many < shared:
        light = (pairs > 0) & ~heavy
        left, left_blocks = _restrict(left, left_blocks, light)
        right, right_blocks = _restrict(right, right_blocks, light)
        result += _sparse(left, left_blocks, right, right_blocks, keys, join_size=join_size)
    return result.astype(np.int64)


def _restrict(rows: Rows, blocks: Sequence[Block], wanted: NDArray[np.bool_]) -> tuple[Rows, list[Block]]:
    at = np.flatnonzero(wanted[rows.exact_key])
    return rows.at(at), [Block(b.exact_code[at], b.size) for b in blocks]


def _dense(
    left: Rows,
    left_blocks: Sequence[Block],
    right: Rows,
    right_blocks: Sequence[Block],
    heavy: NDArray[np.bool_],
    many: int,
    block_cells: int,
) -> NDArray[np.float64]:
    wide, tall = sum(b.size for b in left_blocks), sum(b.size for b in right_blocks)
    height = max(1, block_cells // max(wide, tall))
    if many < len(heavy):
        position = np.cumsum(heavy) - 1
        left, left_blocks = _renumber(left, left_blocks, heavy, position)
        right, right_blocks = _renumber(right, right_blocks, heavy, position)
    result = np.zeros((wide, tall), dtype=np.float64)
    lefts, rights = _by_height(left, left_blocks, many, height), _by_height(right, right_blocks, many, height)
    with one_thread():
        for _ in range(-(-many // height)):
            a, b = at_once(lambda: next(lefts), lambda: next(rights))
            result += a.T @ b
    return result


def _renumber(
    rows: Rows, blocks: Sequence[Block], wanted: NDArray[np.bool_], position: IntArray
) -> tuple[Rows, Sequence[Block]]:
    # Dropping rows costs a pass over every array, so rows of unwanted keys stay away only if there are any.
    if not wanted[rows.exact_key].all():
        rows, blocks = _restrict(rows, blocks, wanted)
    return Rows(position[rows.exact_key], rows.exact_count), blocks


def _by_height(rows: Rows, blocks: Sequence[Block], keys: int, height: int) -> Iterator[NDArray[np.float64]]:
    """The dense matrix keys x columns in pieces of `height` keys."""
    if keys <= height:
        yield _matrix(rows, blocks, keys)
        return
    piece = rows.exact_key // height
    pieces = -(-keys // height)
    order = np.argsort(piece.astype(np.uint16) if pieces < 2**16 else piece, kind="stable")
    ends = np.cumsum(np.bincount(piece, minlength=pieces))
    for i in range(pieces):
        at = order[(ends[i - 1] if i else 0) : ends[i]]
        count = None if rows.exact_count is None else rows.exact_count[at]
        part = Rows(rows.exact_key[at] - i * height, count)
        yield _matrix(part, [Block(b.exact_code[at], b.size) for b in blocks], min(height, keys - i * height))


def at_once(first: Callable[[], _T], second: Callable[[], _T]) -> tuple[_T, _T]:
    """Both results, computed side by side: counting and reading leave Python's lock alone."""
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(second)
        return first(), waiting.result()


def _matrix(rows: Rows, blocks: Sequence[Block], keys: int) -> NDArray[np.float64]:
    width = sum(b.size for b in blocks)
    matrix = np.empty((keys, width), dtype=np.float64)
    base, index, size = np.empty_like(rows.exact_key), np.empty_like(rows.exact_key), 0
    column = 0
    for block in blocks:
        if block.size != size:
            np.multiply(rows.exact_key, block.size, out=base)
            size = block.size
        np.add(base, block.exact_code, out=index)
        cells = np.bincount(index, weights=rows.exact_count, minlength=keys * block.size)
        matrix[:, column : column + block.size] = cells.reshape(keys, block.size)
        column += block.size
    return matrix


def _sparse(
    left: Rows,
    left_blocks: Sequence[Block],
    right: Rows,
    right_blocks: Sequence[Block],
    keys: int,
    *,
    join_size: int,
) -> Exact:
    lefts = _sparse_limbs(left, left_blocks, keys, split=join_size >= INT_LIMIT)
    rights = _sparse_limbs(right, right_blocks, keys, split=join_size >= INT_LIMIT)
    if len(lefts) == len(rights) == 1 and join_size < INT_LIMIT:
        product: NDArray[Any] = (lefts[0].T.tocsr() @ rights[0]).toarray()
        return product
    total: Exact = np.zeros((lefts[0].shape[1], rights[0].shape[1]), dtype=object)
    for i, a in enumerate(lefts):
        transposed = a.T.tocsr()
        for j, b in enumerate(rights):
            total += (transposed @ b).toarray().astype(object) << (_LIMB * (i + j))
    return fit(total, join_size)


def _sparse_limbs(rows: Rows, blocks: Sequence[Block], keys: int, *, split: bool) -> list[Any]:
    """The matrix keys x columns as int64, or as digits of base 2^16 if asked or if int64 is too narrow."""
    from scipy import sparse

    width = sum(b.size for b in blocks)
    columns, start = [], 0
    for block in blocks:
        columns.append(block.exact_code.astype(np.int64) + start)
        start += block.size
    key = np.tile(rows.exact_key, len(blocks))
    column = np.concatenate(columns)
    count = np.ones(len(rows), dtype=np.int64) if rows.exact_count is None else rows.exact_count
    whole = not split and total_count(rows) < INT_LIMIT
    digits = [count] if whole else limbs(count)
    matrices = [sparse.csr_matrix((np.tile(d, len(blocks)), (key, column)), shape=(keys, width)) for d in digits]
    if whole:
        return matrices
    # Carry, so that each digit of each cell is below 2^16 and a product sums to less than 2^32 per key.
    i = 0
    while i < len(matrices):
        carry = matrices[i].data >> _LIMB
        matrices[i].data &= (1 << _LIMB) - 1
        if carry.any():
            if i + 1 == len(matrices):
                upper = matrices[i].copy()
                upper.data = np.zeros_like(carry)
                matrices.append(upper)
            matrices[i + 1].data = matrices[i + 1].data + carry
        i += 1
    return matrices


def narrowed(wide: Scope, scope: Scope, exact_marginal: Exact) -> Exact:
    """A marginal summed from a wider one."""
    return np.asarray(exact_marginal.sum(axis=tuple(i for i, a in enumerate(wide) if a not in scope)))


def rectangles(pairs: Sequence[tuple[Scope, Scope]]) -> list[tuple[list[Scope], list[Scope]]]:
    """Group the pairs (left, right) into full rectangles: left scopes that need the same right scopes."""
    partners: dict[Scope, list[Scope]] = {}
    for left, right in pairs:
        partners.setdefault(left, []).append(right)
    found: dict[tuple[Scope, ...], list[Scope]] = {}
    for left, rights in partners.items():
        found.setdefault(tuple(sorted(rights)), []).append(left)
    return [(lefts, list(rights)) for rights, lefts in found.items()]


def apply_kronecker(group: Kronecker, marginal: Exact, *, join_size: int) -> Exact:
    """The group's answers from the marginal over its scope, in the order of the scope."""
    bound = join_size
    for factor in group.factors:
        bound *= factor.largest
    answers = fit(marginal, bound).reshape(group.shape)
    for axis, factor in enumerate(group.factors):
        if factor.kind == "prefixes":
            answers = np.cumsum(answers, axis=axis)
        elif factor.kind == "ranges":
            up_to = np.moveaxis(np.cumsum(answers, axis=axis), axis, 0)
            low, high = np.triu_indices(len(up_to))
            before = np.concatenate([np.zeros_like(up_to[:1]), up_to])[low]
            answers = np.moveaxis(up_to[high] - before, 0, axis)
        elif factor.kind == "weights":
            # Weights may be wider than int64 too; then the bound has made everything Python integers.
            row = np.array(factor.row, dtype=answers.dtype)
            answers = np.expand_dims(np.tensordot(row, answers, axes=(0, axis)), axis)
        elif factor.kind == "rows":
            answers = np.moveaxis(_times_rows(factor.matrix(group.shape[axis]), answers, axis, bound), 0, axis)
    return answers.reshape(-1)


def _times_rows(rows: IntArray, answers: Exact, axis: int, bound: int) -> Exact:
    """rows x answers along an axis, which comes first then. `bound` is above every sum of absolute values."""
    if bound < FLOAT_LIMIT and answers.dtype != object:
        # Every partial sum is a whole number below 2^53, so float64 is exact, and much faster.
        with one_thread():
            product = np.tensordot(rows.astype(np.float64), answers.astype(np.float64), axes=(1, axis))
        return np.rint(product).astype(np.int64)
    return np.asarray(np.tensordot(rows.astype(answers.dtype), answers, axes=(1, axis)))


def _largest(weights: IntArray) -> int:
    return max(1, int(weights.max(initial=0)), -int(weights.min(initial=0)))


def apply_products(group: Products, marginal: Exact, *, join_size: int) -> Exact:
    """The group's answers from the marginal over its scope, attributes part by part."""
    first, *rest = (weights for _, weights in group.parts)
    rest = rest or [np.ones((len(group), 1), dtype=np.int64)]
    bound = join_size * _largest(first) * math.prod(map(_largest, rest))
    table = marginal.reshape(first.shape[1], -1)
    bits = 52 - (_largest(first) * first.shape[1]).bit_length()
    if join_size * _largest(first) < FLOAT_LIMIT:
        digits, bits = [table], 0
    else:
        digits = limbs(table, bits)
    exact = np.zeros(len(group), dtype=object)
    chunk = max(1, BLOCK_CELLS // max(1, table.shape[1]))
    left = first.astype(np.float64)
    with one_thread():
        for start in range(0, len(group), chunk):
            part = slice(start, start + chunk)
            for i, digit in enumerate(digits):
                # Below 2^53 in absolute value, so float64 is exact.
                inner = np.rint(left[part] @ digit.astype(np.float64)).astype(np.int64)
                exact[part] += _row_products(inner, [w[part] for w in rest]) << (bits * i)
    return fit(exact, bound)


def _row_products(values: IntArray, weights: Sequence[IntArray]) -> Exact:
    """Row by row, one weight vector per axis after the other, in Python integers."""
    first, *rest = weights
    if not rest:
        return _row_dots(values, first)
    bits = 60 - (_largest(first) * max(1, first.shape[1])).bit_length()
    total: Exact = np.zeros(len(values), dtype=object)
    for i, digit in enumerate(_signed_limbs(values, bits)):
        inner = np.einsum("icr,ic->ir", digit.reshape(*first.shape, -1), first)
        total += _row_products(inner, rest) << (bits * i)
    return total


def _row_dots(first: IntArray, second: IntArray) -> Exact:
    """Σ_j first[i, j]·second[i, j] in Python integers."""
    bits = 60 - (_largest(second) * max(1, first.shape[1])).bit_length()
    total: Exact = np.zeros(len(first), dtype=object)
    for i, digit in enumerate(_signed_limbs(first, bits)):
        total += np.einsum("ij,ij->i", digit, second).astype(object) << (bits * i)
    return total


def products_over_keys(
    left: Rows,
    left_block: Block,
    left_weights: IntArray,
    right: Rows,
    right_block: Block,
    right_weights: IntArray,
    keys: int,
    *,
    join_size: int,
) -> Exact:
    """Product queries key by key, for scopes whose marginal would be too large to hold."""
    bound = join_size * _largest(left_weights) * _largest(right_weights)
    exact = np.zeros(len(left_weights), dtype=object)
    # Below 2^44 rows a key's weighted sum stays in int64 (weights have 16 bits).
    lefts = _sparse_limbs(left, [left_block], keys, split=total_count(left) >= 2**44)
    rights = _sparse_limbs(right, [right_block], keys, split=total_count(right) >= 2**44)
    chunk = max(1, BLOCK_CELLS // max(1, keys))
    for start in range(0, len(exact), chunk):
        part = slice(start, start + chunk)
        for i, a in enumerate(lefts):
            u = np.asarray(a @ np.ascontiguousarray(left_weights[part].T))
            for j, b in enumerate(rights):
                v = np.asarray(b @ np.ascontiguousarray(right_weights[part].T))
                exact[part] += _column_dots(u, v) << (_LIMB * (i + j))
    return fit(exact, bound)


def _column_dots(first: IntArray, second: IntArray) -> Exact:
    """Σ_k first[k, i]·second[k, i] in Python integers."""
    largest = _largest(first) * _largest(second) * max(1, len(first))
    if largest < INT_LIMIT:
        small: Exact = np.einsum("ki,ki->i", first, second).astype(object)
        return small
    bits = 16  # products of digits below 2^32 times any number of keys stay in int64
    total: Exact = np.zeros(first.shape[1], dtype=object)
    for i, a in enumerate(_signed_limbs(first, bits)):
        for j, b in enumerate(_signed_limbs(second, bits)):
            total += np.einsum("ki,ki->i", a, b).astype(object) << (bits * (i + j))
    return total


def _signed_limbs(values: IntArray, bits: int) -> list[IntArray]:
    """Digits of the absolute values, each with the number's sign."""
    sign = np.sign(values)
    return [digit * sign for digit in limbs(np.abs(values), bits)]
