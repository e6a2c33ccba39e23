"""How much wider a bar is for a sum or an average of numbers of which only bins are known."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from dpjoin.model.model import Estimate
from dpjoin.model.terms import FloatArray
from dpjoin.spec.sql import Measure
from dpjoin.spec.workload import Average


def widened(estimate: Estimate, measure: Measure, bars: FloatArray, coverage: float) -> FloatArray:
    """Bars of the raw numbers, from those of the numbers at the middle of their bins.

    They hold wherever the numbers lie in their bins, at one edge in all of them included.
    """
    if measure.bins is None or measure.of is None:
        return bars
    counts = np.maximum(estimate.answer(measure.bins), 0.0).reshape(measure.bins.answer_shape)
    axis = measure.bins.scope.index(measure.of)
    reach = np.tensordot(counts, np.array(measure.halves), axes=(axis, 0)).reshape(-1)
    if isinstance(measure.asked, Average):
        reach /= np.maximum(estimate.answer(measure.asked.count), np.finfo(float).tiny)
    return with_reach(bars, reach, coverage)


def with_reach(bars: FloatArray, reach: FloatArray, coverage: float) -> FloatArray:
    """The shortest bars around x + noise that hold x + shift for every shift up to `reach`, as often as `coverage`.

    The noise is normal, and `bars` hold x alone. A bar of half-length L holds x + shift with probability Φ((L - shift)
    / σ) - Φ((-L - shift) / σ), which falls with |shift|: so what holds at the farthest one holds everywhere, and
    nothing shorter holds there. Imbens and Manski (2004) have it for parameters that are known up to an interval.

    >>> with_reach(np.array([1.0, 1.0, 0.0]), np.array([0.0, 10.0, 10.0]), 0.9).round(3).tolist()
    [1.0, 10.779, 10.0]
    """
    from scipy.special import ndtr

    scale = np.maximum(bars / NormalDist().inv_cdf(0.5 + coverage / 2), 1e-9 * reach + np.finfo(float).tiny)
    low, high = np.zeros_like(bars), reach + bars
    for _ in range(50):  # then they are as close as floats are
        middle = (low + high) / 2
        enough = ndtr((middle - reach) / scale) - ndtr(-(middle + reach) / scale) >= coverage
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.asarray(high)
