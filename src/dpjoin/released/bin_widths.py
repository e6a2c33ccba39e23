"""How much wider a bar is for a sum or an average of numbers of which only bins are known."""

from __future__ import annotations

import numpy as np

from dpjoin.model.model import Estimate
from dpjoin.model.terms import FloatArray
from dpjoin.spec.sql import Measure
from dpjoin.spec.workload import Average


def widened(estimate: Estimate, measure: Measure, bars: FloatArray, coverage: float) -> FloatArray:
    """Bars of the raw numbers, from those of the numbers at the middle of their bins.

    The mean of the numbers in a bin may lie anywhere in it. All places are taken to be equally likely, and bins to be
    alike: numbers that lie low in one bin do so in others. So with probability `coverage` a mean is within `coverage`
    times half the width, and a sum within as much for each of its rows. Noise is independent of that.

    Between whole edges the numbers may be whole. Then the middle of their places is half a unit lower.
    """
    if measure.bins is None or measure.of is None:
        return bars
    counts = np.maximum(estimate.answer(measure.bins), 0.0).reshape(measure.bins.answer_shape)
    halves = np.array(measure.halves)

    def reach(each: FloatArray) -> FloatArray:
        found = np.tensordot(counts, each, axes=(measure.bins.scope.index(measure.of), 0)).reshape(-1)  # type: ignore
        if isinstance(measure.asked, Average):
            found /= np.maximum(estimate.answer(measure.asked.count), np.finfo(float).tiny)
        return found

    made = np.hypot(bars, coverage * reach(halves))
    if measure.may_be_whole:
        low = np.minimum(halves, 0.5)
        made = np.maximum(made, np.hypot(bars, coverage * reach(halves - low)) + reach(low))
    return made
