"""The answers of a group of queries from the exact marginal over its attributes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpjoin.engine.integers import FLOAT_LIMIT, Exact, digits, fit, one_thread, shifted_sum, signed_digits
from dpjoin.spec.workload import Group, IntArray, Kronecker, Products, largest_weight

CHUNK_CELLS = 2**22
"""How many numbers are held at a time for product queries: 32 MB."""


def group_answers(group: Group, marginal: Exact, *, join_size: int) -> Exact:
    """The group's answers from the marginal over its scope, in the order of the scope."""
    if isinstance(group, Kronecker):
        return apply_kronecker(group, marginal, join_size=join_size)
    return apply_products(group, marginal, join_size=join_size)


def apply_kronecker(group: Kronecker, marginal: Exact, *, join_size: int) -> Exact:
    """Attribute by attribute."""
    bound = join_size * math.prod(factor.largest for factor in group.factors)
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


def products_bound(group: Products, join_size: int) -> int:
    """At least the absolute value of every answer of the group."""
    return join_size * math.prod(max(1, largest_weight(weights)) for _, weights in group.parts)


def apply_products(group: Products, marginal: Exact, *, join_size: int) -> Exact:
    """Part by part: the first by a matrix product, the others query by query."""
    first, *rest = (weights for _, weights in group.parts)
    rest = rest or [np.ones((len(group), 1), dtype=np.int64)]
    table = marginal.reshape(first.shape[1], -1)
    bits = 52 - (largest_weight(first) * first.shape[1]).bit_length()
    whole = join_size * largest_weight(first) < FLOAT_LIMIT
    parts = [table] if whole else digits(table, bits)
    exact = np.zeros(len(group), dtype=object)
    chunk = max(1, CHUNK_CELLS // max(1, table.shape[1]))
    left = first.astype(np.float64)
    with one_thread():
        for start in range(0, len(group), chunk):
            some = slice(start, start + chunk)
            for i, part in enumerate(parts):
                # Below 2^53 in absolute value, so float64 is exact.
                inner = np.rint(left[some] @ part.astype(np.float64)).astype(np.int64)
                exact[some] += _row_products(inner, [w[some] for w in rest]) << (bits * i)
    return fit(exact, products_bound(group, join_size))


def _row_products(values: IntArray, weights: Sequence[IntArray]) -> Exact:
    """Row by row, one weight vector per axis after the other, in Python integers."""
    first, *rest = weights
    bits = 60 - (largest_weight(first) * max(1, first.shape[1])).bit_length()
    parts = [np.einsum("icr,ic->ir", digit.reshape(*first.shape, -1), first) for digit in signed_digits(values, bits)]
    return shifted_sum((_row_products(p, rest) if rest else p[:, 0], bits * i) for i, p in enumerate(parts))
