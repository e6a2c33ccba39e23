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
    edges: FloatArray
    """Up to how many join results each bucket goes."""
    noisy: FloatArray
    """Owners in each bucket, unbiased, whether they stand out or not."""

    @property
    def visible(self) -> bool:
        """Whether any owner stands out of noise."""
        return bool(self.owners.any())

    @property
    def size(self) -> float:
        """Of the join, about, as far as its owners stand out."""
        return max(1.0, float(self.owners @ self.results))

    @property
    def limits(self) -> list[int]:
        """Where to clip, from one result to a little beyond the last owner that stands out."""
        last = float(self.results[np.max(np.flatnonzero(self.owners), initial=0)])
        return [edge for edge in EDGES if edge <= constants.LARGEST_LIMIT * last + 1]

    def lost_by_each(self, clip: Clip) -> FloatArray:
        """How many join results a clip takes away of an owner in each bucket."""
        return self.results * (1 - clip.of(np.rint(self.results).astype(np.int64)) / clip.full)

    def lost(self, clip: Clip) -> NoisyTotal:
        """How many join results a clip takes away of owners that stand out."""
        each = np.where(self.owners != 0, self.lost_by_each(clip), 0.0)
        return NoisyTotal(max(0.0, float(self.owners @ each)), max(1.0, self.deviation * float(np.linalg.norm(each))))


def owners_told(noisy: NoisyOwners) -> Owners:
    """What a noisy histogram tells. Beyond the last bucket that Akaike's criterion asks for there is noise alone."""
    misfit = np.append(np.cumsum((_counts(noisy)[::-1] / noisy.deviation) ** 2)[::-1], 0.0)
    misfit += 2.0 * np.arange(len(misfit))
    return _up_to(noisy, int(np.argmax(misfit <= misfit.min() + constants.STANDS_OUT)))


def few_owners_told(noisy: NoisyOwners) -> Owners:
    """The same of few wide buckets: up to the last that stands out by itself."""
    clear = _counts(noisy) > constants.WIDE_BUCKET * noisy.deviation
    return _up_to(noisy, 1 + int(np.max(np.flatnonzero(clear), initial=-1)))


def _counts(noisy: NoisyOwners) -> FloatArray:
    return np.array(noisy.noisy[:-1], dtype=np.float64)


def _up_to(noisy: NoisyOwners, last: int) -> Owners:
    counts, edges = _counts(noisy), np.array([0, *noisy.edges], dtype=np.float64)
    middles = (edges[:-1] + 1 + edges[1:]) / 2
    seen = np.where(np.arange(len(counts)) < last, counts, 0.0)
    return Owners(middles, seen, noisy.deviation, edges[1:], counts)
