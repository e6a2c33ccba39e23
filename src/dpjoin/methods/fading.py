"""Public weights for rows: all of a value with few rows, less and less of one with many.

A cap τ keeps τ rows of a value and loses the rest, at the price of τ times the square root of two: a new row pushes
another one out. Weights W(d) that fall slowly do better. A new row moves its own weight, and d times what the others
lose, so what counts is W² + (d W')². With W = cos(ln d) this is one all the way: rows fade out at the price of a single
row. So full weight lasts to some degree, then weights fall as steeply as the price allows, until a value counts as much
as it ever will; from there on it counts the same however many rows it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from dpjoin import constants
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.degree_bounds import RowWeights, declared_limits, weighted_bound
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import IntArray

LARGEST = 2**12
"""Full weight lasts to at most so many rows; beyond, the weights would be a long list, and hard caps serve."""
REACH = 32
"""A value with so many times more rows has no weight at all. Of its join results hardly any would be left in any case,
and whole numbers can only fall slowly up to some degree."""
FADE_GRAIN = 64
"""How many steps a weight has, for each row up to which it is full: two for each degree that there is a weight for."""
LEAST_GRAIN = 2**10


def best_price(schema: Schema, places: Iterable[tuple[str, tuple[str, ...]]]) -> float:
    """The price for tables that fade by some attributes: from the schema alone."""
    tried = {}
    for price in constants.FADE_PRICES:
        fades = {table: fade(by, constants.FADE_TRIAL, price) for table, by in places}
        whole = math.prod(f.full for f in fades.values())
        tried[price] = weighted_bound(schema, declared_limits(schema), fades) / whole
    return next(price for price, bound in tried.items() if bound <= constants.NEARLY_LEAST * min(tried.values()))


@lru_cache(maxsize=256)
def weights(full: int, price: float) -> tuple[IntArray, int]:
    """Weights that are full up to so many rows of a value, at a price; and what full weight is."""
    grain = max(LEAST_GRAIN, 1 << (FADE_GRAIN * full - 1).bit_length())
    most = price * grain
    falling = [grain] * full
    while True:
        degree, weight = len(falling), falling[-1]
        steepest = _steepest(degree, weight, most)
        if (degree + 1) * steepest <= degree * weight:
            break  # from here on the same for all rows together is slow enough
        falling.append(steepest)
    together = len(falling) * falling[-1]
    degrees = np.arange(len(falling) + 1, REACH * full + 1)
    # In the last half of the reach all of it goes, little by little.
    left = np.minimum(REACH * full, 2 * (REACH * full - degrees))
    rest = together * left // (REACH * full * degrees)
    found = np.minimum.accumulate(np.concatenate([falling, rest]).astype(np.int64))
    found.flags.writeable = False
    return found, grain


def _steepest(degree: int, weight: int, most: float) -> int:
    """The least w with w² + (degree (weight - w))² <= most²."""
    square = degree * degree
    root = math.sqrt(max(0.0, most * most * (1 + square) - square * weight * weight))
    return min(weight, max(0, math.ceil((square * weight - root) / (1 + square))))


def fade(attributes: tuple[str, ...], full: int, price: float) -> RowWeights:
    return RowWeights(attributes, *weights(full, price))


def rows_kept(full: int, price: float, degrees: FloatArray) -> FloatArray:
    """How many rows' worth a value with so many rows counts."""
    found, grain = weights(full, price)
    at = np.minimum(np.maximum(degrees, 1), len(found) + 1).astype(np.int64) - 1
    return np.asarray(degrees * np.append(found, 0)[at] / grain)
