"""After a fit: cells that stand out of noise are as they were measured, and drowned ones have what is left, together.

No cell of a fit is negative, so where noise drowns a cell it is taken for a row now and then, and never for less than
none. A join multiplies that by what other tables have there: beside the clear cells of a frequent value, a few rows
that are not there weigh more than all noise. One by one drowned cells tell nothing; together, negative numbers
included, they tell how many rows they have without bias.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpjoin.model.fit import FREE, SURE, Evidence, F, moved_near
from dpjoin.model.terms import BoolArray, FloatArray

FEW_VALUES = 16
"""An attribute with more values than this has drowned cells of several values together."""
PASSES = 2
"""How often drowned cells are scaled by each attribute in turn."""
MOST_SCALED = 2.0
"""By how much they are scaled at most to make up for the total."""
FALSE = 0.1
"""Which part of the cells that stand out may be noise."""
LEAST = 1e-30


def settled(fit: F, evidence: Evidence) -> F:
    """The same fit, with every measured marginal of several attributes settled, one after the other."""
    potentials, tau = fit.potentials.copy(), np.minimum(fit.tau_each, 1.0)
    for where, single, shape in zip(fit.slices, fit.single, fit.shapes, strict=True):
        if single or len(shape) < 2 or not bool((evidence.precision[where] > 0).all()):
            continue
        cells, noisy = fit.total * fit.sums.means(potentials)[where], evidence.noisy[where]
        precision = np.where(cells > 0, evidence.precision[where], 0.0)
        clear = _stands_out(noisy, precision, tau[where])
        if not clear.any():
            continue
        drowned = (~clear & (precision > 0)).reshape(shape)
        rest = np.where(drowned, cells.reshape(shape), 0.0)
        told = np.where(drowned, noisy.reshape(shape), 0.0)
        whole = np.where(clear, noisy, cells).reshape(shape)
        for _ in range(PASSES):
            _met_together(rest, told, drowned / evidence.precision[where.start], whole)
        if (mass := float(rest.sum())) > 0:
            left = (fit.total - float(noisy[clear].sum())) / mass
            rest *= np.clip(left, 1.0 / MOST_SCALED, MOST_SCALED)
        wanted = np.where(clear, noisy, rest.reshape(-1))
        potentials[where] += np.log(np.maximum(wanted, LEAST) / np.maximum(cells, LEAST))
    return replace(fit, potentials=potentials, seen=())


def _stands_out(noisy: FloatArray, precision: FloatArray, tau: FloatArray) -> BoolArray:
    """The cells that are known best by themselves.

    Where cells are much alike, only those far above the noise are. And among many empty cells Laplace noise lifts some
    as far: a cell must be so far above it that noise alone would make a small part of those (Benjamini and Hochberg).
    """
    deviations = np.maximum(noisy, 0.0) * np.sqrt(precision)
    ordered = np.sort(deviations)[::-1]
    by_noise = 0.5 * len(ordered) * np.exp(-math.sqrt(2) * ordered)
    few = np.flatnonzero(by_noise <= FALSE * np.arange(1, len(ordered) + 1))
    least = max(SURE, float(ordered[few[-1]])) if len(few) else np.inf
    return np.asarray((deviations >= least) & (deviations * tau > SURE))


def _met_together(cells: FloatArray, noisy: FloatArray, variance: FloatArray, whole: FloatArray) -> None:
    """Scale cells, in place, so that those with the same or similar values of an attribute add up to what noise left.

    Values of an attribute with many are together by their rank in the whole table: the first, two more, four more and
    so on. In a join the first ones count most, and there are few of them.
    """
    for axis, size in enumerate(cells.shape):
        others = tuple(a for a in range(cells.ndim) if a != axis)
        many = size > FEW_VALUES
        place = _by_rank(whole.sum(axis=others)) if many else np.arange(size)
        sums = (np.bincount(place, weights=a.sum(axis=others)) for a in (cells, noisy, variance))
        have, told, unsure = (np.asarray(a, dtype=np.float64) for a in sums)
        some = (unsure > 0) & (have > 0)
        if not some.any():
            continue
        have, told, precision = have[some], told[some], 1.0 / unsure[some]
        if not many:
            # What differs no more than noise does is left alone (James and Stein).
            off = float(((told - have) ** 2 * precision).sum())
            told = have + max(0.0, 1.0 - len(have) / max(off, LEAST)) * (told - have)
        scale = np.ones(len(some))
        scale[some] = np.exp(moved_near(have, told, precision, np.zeros(len(have)), np.full(len(have), FREE**-2.0)))
        cells *= scale[place].reshape([-1 if a == axis else 1 for a in range(cells.ndim)])


def _by_rank(sizes: FloatArray) -> NDArray[np.int64]:
    """The number of the class of each value, by its rank: 0 | 1 2 | 3 4 5 6 | ..."""
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return np.asarray(np.frexp(rank + 1.0)[1] - 1, dtype=np.int64)
