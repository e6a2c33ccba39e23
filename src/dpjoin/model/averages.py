"""Averages: a sum over a count of the same cells, and how far off their ratio may be."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from dpjoin import constants
from dpjoin.model.model import Estimate, combined, pooled
from dpjoin.model.terms import FloatArray
from dpjoin.spec.workload import Average, marginal_of


def averages(estimate: Estimate, asked: Average) -> FloatArray:
    """One average per cell; nan where the estimate has nothing to average."""
    sums, counts = estimate.answer(asked.total), estimate.answer(asked.count)
    found = np.full(len(counts), np.nan)
    np.divide(sums, counts, out=found, where=counts > 0)
    return found


def average_half_widths(estimate: Estimate, asked: Average, coverage: float) -> FloatArray:
    """Half-widths that cover the exact averages with about this probability; nan where nothing is known.

    A sum and its count are off together, so members are compared by their own averages, which stray far less than
    the two widths would suggest.
    """
    averaged, counts = averages(estimate, asked), estimate.answer(asked.count)
    some = np.isfinite(averaged)
    if not estimate.knows(asked.scope) or not some.any():
        return np.full(len(averaged), np.nan)
    quantile = NormalDist().inv_cdf(0.5 + coverage / 2)
    mean, size = np.where(some, averaged, asked.low), np.where(some, counts, 1.0)
    reach = np.maximum(mean - asked.low, asked.high - mean)
    off = [
        np.clip((sums - mean * rows) / np.maximum(size + rows, 1e-9 * size), asked.low - mean, asked.high - mean)
        for sums, rows in zip(estimate.spreads(asked.total), estimate.spreads(asked.count), strict=True)
    ]
    squares = combined(off) if off else np.zeros(len(mean))
    if (each := estimate.unfitted_cells(asked.scope)) is not None:
        squares = squares + _weighed(asked, mean, each) / size**2
    # Widths of sums go with the size of a cell, so that is how neighbours are found.
    width = pooled(np.sqrt(squares) * size, size)
    # A fit pulls cells together, and members know how far in each cell, but not that all cells of a sum may be pulled
    # one way. It stays near what was measured, so that noise tells how far that may be.
    noise = np.sqrt(_weighed(asked, mean, estimate.measured(marginal_of(asked.count))))
    bars = constants.STRETCH * quantile * np.maximum(width, noise) / size
    bars += estimate.slack(asked.count) * reach / size
    # Rows that may not be there at all may have any average.
    unsure = estimate.error(asked.count, coverage) >= size
    return np.where(some, np.where(unsure, reach, np.minimum(bars, reach)), np.nan)


def _weighed(asked: Average, mean: FloatArray, each: FloatArray) -> FloatArray:
    """The sum of each cell's variance, times the square of how far its value is from the average."""
    total, unit = asked.total, float(asked.total.unit)
    linear, plain = (np.asarray(group.apply(each), dtype=np.float64) for group in (total, asked.count))
    return np.maximum(total.variances(each) * unit**2 - 2.0 * mean * linear * unit + mean**2 * plain, 0.0)
