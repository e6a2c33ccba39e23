"""What a noisy histogram says about owners: how many have how many join results, and what clipping these loses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpjoin import constants
from dpjoin.measure.ranks import EDGES
from dpjoin.measure.totals import NoisyTotal
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.owners import Clip, NoisyOwners


@dataclass(frozen=True, eq=False)
class Owners:
    """About how many owners have how many join results, as far as they stand out of noise."""

    results: FloatArray
    """Of an owner in each bucket, about."""
    owners: FloatArray
    """In each bucket, unbiased; none beyond the last that stands out."""
    deviation: float

    @property
    def size(self) -> float:
        """Of the join, about."""
        return max(1.0, float(self.owners @ self.results))

    @property
    def limits(self) -> list[int]:
        """Where to clip, from one result to a little beyond the last owner that stands out."""
        last = int(np.max(np.flatnonzero(self.owners), initial=0))
        return list(EDGES[: last + 2])

    def lost(self, clip: Clip) -> NoisyTotal:
        """How many join results a clip takes away."""
        kept = clip.of(np.rint(self.results).astype(np.int64)) / clip.full
        each = np.where(self.owners != 0, self.results * (1 - kept), 0.0)
        return NoisyTotal(max(0.0, float(self.owners @ each)), max(1.0, self.deviation * float(np.linalg.norm(each))))


def owners_told(noisy: NoisyOwners) -> Owners:
    """What a noisy histogram tells. The last bucket counts that Akaike's criterion allows for: beyond is noise."""
    counts = np.array(noisy.noisy[:-1], dtype=np.float64)
    misfit = np.append(np.cumsum((counts[::-1] / noisy.deviation) ** 2)[::-1], 0.0) + 2.0 * np.arange(len(counts) + 1)
    last = int(np.argmax(misfit <= misfit.min() + constants.STANDS_OUT))
    lows = np.array([0, *noisy.edges[:-1]], dtype=np.float64)
    middles = (lows + 1 + np.array(noisy.edges, dtype=np.float64)) / 2
    return Owners(middles, np.where(np.arange(len(counts)) < last, counts, 0.0), noisy.deviation)
