"""After a fit: clear cells, far above their noise, are as they were measured; the small ones share what is left.

No cell of a fit is negative, so where noise is larger than a cell it is taken for a row now and then, and never for
less than none. A join multiplies that by what other tables have there: beside the clear cells of a frequent value, a
few rows that are not there weigh more than all noise. One by one small cells tell nothing; together, negative numbers
included, they tell how many rows they have without bias.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpjoin import constants
from dpjoin.model.fit import Evidence, Fit, S, moved_near
from dpjoin.model.terms import BoolArray, FloatArray

PASSES = 2
"""How often small cells are scaled by each attribute in turn."""
LEAST_CELL = 1e-30


def keep_clear_cells(fit: Fit[S], evidence: Evidence) -> Fit[S]:
    """The same fit, with clear and small cells treated so in every measured marginal of several attributes in turn."""
    potentials, tau = fit.potentials.copy(), np.minimum(fit.tau_each, 1.0)
    ones = {
        c[0]: s for c, s in zip(fit.cliques, fit.slices, strict=False) if len(c) == 1 and evidence.precision[s].all()
    }
    for g, (where, single, shape) in enumerate(zip(fit.slices, fit.single, fit.shapes, strict=True)):
        if single or len(shape) < 2 or not bool((evidence.precision[where] > 0).all()):
            continue
        cells, noisy = fit.total * fit.oracle.means(potentials)[where], evidence.noisy[where]
        precision = np.where(cells > 0, evidence.precision[where], 0.0)
        clear = _clear(noisy, precision, tau[where])
        if float(noisy[clear].sum()) < constants.CLEAR_ROWS * fit.total:
            continue
        small = (~clear & (precision > 0)).reshape(shape)
        rest = np.where(small, cells.reshape(shape), 0.0)
        whole = np.where(clear, noisy, cells).reshape(shape)
        left = np.where(small, noisy.reshape(shape), 0.0)
        variance = 1.0 / float(evidence.precision[where.start])
        for _ in range(PASSES):
            for axis, attribute in enumerate(fit.cliques[g]):
                others = tuple(a for a in range(len(shape)) if a != axis)
                rows = NoisyRows(left.sum(axis=others), small.sum(axis=others) * variance)
                if (own := ones.get(attribute)) is not None:
                    stay = np.where(small, 0.0, whole).sum(axis=others)
                    unsure = 1.0 / evidence.precision[own] + clear.reshape(shape).sum(axis=others) * variance
                    rows = rows.combined(NoisyRows(evidence.noisy[own] - stay, unsure))
                places = [_by_rank(whole.sum(axis=others))] if shape[axis] > constants.FEW_VALUES else []
                if not places or own is not None:
                    places.append(np.arange(shape[axis]))
                for place in places:
                    scale = _scales(rest.sum(axis=others), rows, place)
                    rest *= scale.reshape([-1 if a == axis else 1 for a in range(len(shape))])
        if (mass := float(rest.sum())) > 0:
            scale_all = (fit.total - float(noisy[clear].sum())) / mass
            rest *= np.clip(scale_all, 1.0 / constants.MOST_SCALED, constants.MOST_SCALED)
        wanted = np.where(clear, noisy, rest.reshape(-1))
        potentials[where] += np.log(np.maximum(wanted, LEAST_CELL) / np.maximum(cells, LEAST_CELL))
    return replace(fit, potentials=potentials)


def _clear(noisy: FloatArray, precision: FloatArray, tau: FloatArray) -> BoolArray:
    """The cells that are known best by themselves.

    Where cells are much alike, only those far above the noise are. And among many empty cells Laplace noise lifts some
    as far: a cell must be so far above it that noise alone would make a small part of those (Benjamini and Hochberg).
    """
    deviations = np.maximum(noisy, 0.0) * np.sqrt(precision)
    ordered = np.sort(deviations)[::-1]
    by_noise = 0.5 * len(ordered) * np.exp(-math.sqrt(2) * ordered)
    few = np.flatnonzero(by_noise <= constants.CLEAR_BY_NOISE * np.arange(1, len(ordered) + 1))
    least = max(constants.SURE, float(ordered[few[-1]])) if len(few) else np.inf
    return np.asarray((deviations >= least) & (deviations * tau > constants.SURE))


class NoisyRows(NamedTuple):
    """How many rows noise left of the small cells of each value, and its variance."""

    noisy: FloatArray
    variance: FloatArray

    def combined(self, other: NoisyRows) -> NoisyRows:
        """Both, by precision; values without small cells stay without."""
        some = self.variance > 0
        own = np.divide(other.variance, self.variance + other.variance, out=np.zeros(len(some)), where=some)
        both = own * self.noisy + (1.0 - own) * other.noisy
        return NoisyRows(np.where(some, both, 0.0), own * self.variance)


def _scales(have: FloatArray, rows: NoisyRows, place: NDArray[np.int64]) -> FloatArray:
    """By how much small cells of each value are to be scaled, so that those in one place have what noise left."""
    sums = (np.bincount(place, weights=a) for a in (have, rows.noisy, rows.variance))
    have, noisy, variance = (np.asarray(a, dtype=np.float64) for a in sums)
    some = (variance > 0) & (have > 0)
    scale = np.ones(len(have))
    if some.any():
        have, noisy, precision = have[some], noisy[some], 1.0 / variance[some]
        if len(scale) == len(place):
            # Values one by one: what differs no more than noise does is left alone (James and Stein).
            off = float(((noisy - have) ** 2 * precision).sum())
            noisy = have + max(0.0, 1.0 - len(have) / max(off, LEAST_CELL)) * (noisy - have)
        prior = np.full(len(have), constants.FREE_PRIOR**-2.0)
        scale[some] = np.exp(moved_near(have, noisy, precision, np.zeros(len(have)), prior))
    return scale[place]


def _by_rank(sizes: FloatArray) -> NDArray[np.int64]:
    """Values that are together, by rank: 0 | 1 2 | 3 4 5 6 | ... In a join the first ones count most, and are few."""
    rank = np.empty(len(sizes), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return np.asarray(np.frexp(rank + 1.0)[1] - 1, dtype=np.int64)
