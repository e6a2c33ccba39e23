"""About how large an error noise leaves in a workload's marginals: from public numbers, in join results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpjoin import constants
from dpjoin.measure.join import varying_products
from dpjoin.measure.product_queries import prospect
from dpjoin.methods.table_models import own_scopes
from dpjoin.model.model import clique_scopes
from dpjoin.model.terms import FloatArray
from dpjoin.spec.workload import Workload

MEAN_DEVIATION = 0.4
"""Half of the mean absolute value of normal noise, √(2/π)/2: times the cells, it is a marginal's total variation."""


def size_noise(bound: float, rho: Fraction) -> float:
    """The deviation of a size on which this rho is spent."""
    return bound / math.sqrt(2 * float(rho))


def shape_noise(workload: Workload, *, bound: float, size: float, rho: Fraction) -> float:
    """About how large an error, in join results, the noise of the workload's queries leaves."""
    noise = 0.0
    products = varying_products(workload)
    if products:
        size = max(1.0, size)  # noise may show an empty join; shares of nothing say nothing
        ways = prospect(products, total=size, bound=math.ceil(bound), rho=rho, cells=workload.cells)
        noise = size * min(ways.histogram, ways.measure_all, ways.rounds)
    scopes = clique_scopes(workload.groups)
    if scopes:
        cells = sum(math.prod(workload.schema.shape(s)) for s in scopes) / len(scopes)
        noise = max(noise, _cell_noise(bound, rho, len(scopes)) * cells)
    return noise


def fitted_noise(workload: Workload, *, bound: float, size: float, rho: Fraction) -> float:
    """The same, knowing that a fit leaves less of noise that is large against what an average cell holds.

    Few cells of a large marginal hold most of it, and the noise of the others is seen to be noise.
    """
    if varying_products(workload):
        return shape_noise(workload, bound=bound, size=size, rho=rho)
    scopes = clique_scopes(workload.groups)
    each = _cell_noise(bound, rho, len(scopes))
    cells = [math.prod(workload.schema.shape(s)) for s in scopes]
    # A marginal of which nothing is left but a guess is off by no more than that, however many cells it has: one of a
    # key must not decide for all others.
    clear = [n for n in cells if after_fit(each * n, size) < constants.GUESSED * size]
    found = after_fit(each * sum(clear) / len(clear), size) if clear else 0.0
    return (len(clear) * found + (len(cells) - len(clear)) * constants.GUESSED * size) / max(1, len(cells))


def _cell_noise(bound: float, rho: Fraction, marginals: int) -> float:
    return MEAN_DEVIATION * constants.SHRINKAGE * size_noise(bound, rho) * math.sqrt(marginals)


def after_fit(noise: float, size: float = 1.0) -> float:
    """What a fit leaves of a marginal's noise, in the units of the size."""
    return noise * min(1.0, math.sqrt(constants.CLEAR_CELLS * MEAN_DEVIATION * size / noise)) if noise > 0 else noise


def fitted_variance(noise: float, likely: FloatArray) -> FloatArray:
    """What a fit leaves of noise: it leans on other values, and is never off by more than counts differ from theirs."""
    return np.asarray(noise * likely / (noise + likely))


def clear_share(workload: Workload, table: str, key: Sequence[str], rows: FloatArray, rho: Fraction) -> FloatArray:
    """Signal over signal and noise of what a table says of one attribute at values of a key with so many rows."""
    scopes = own_scopes(workload, table, key)
    cells = max((workload.schema.cells((a,)) for scope in scopes for a in scope), default=1)
    squared = (rows / cells) ** 2
    return np.asarray(squared / (squared + len(scopes) / (2 * float(rho))))


def table_noise(workload: Workload, table: str, key: Sequence[str], rho: Fraction) -> float:
    """The variance of a cell of a table's marginals, which share its budget, those of several attributes twice.

    A public table has none.
    """
    if not workload.schema.table(table).private:
        return 0.0
    scopes = own_scopes(workload, table, key)
    return (len(scopes) + sum(len(scope) > 1 for scope in scopes)) / (2 * float(rho))
