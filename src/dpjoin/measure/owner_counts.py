"""What a noisy histogram says about owners: how many have how many join results, and what clipping these loses."""

from __future__ import annotations

import math
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

    def lost(self, clip: Clip) -> NoisyTotal:
        """How many join results a clip takes away of owners that stand out."""
        kept = clip.of(np.rint(self.results).astype(np.int64)) / clip.full
        each = np.where(self.owners != 0, self.results * (1 - kept), 0.0)
        return NoisyTotal(max(0.0, float(self.owners @ each)), max(1.0, self.deviation * float(np.linalg.norm(each))))

    def hidden(self, limit: int) -> float:
        """How many more a limit takes away of few large owners that noise hides, if numbers go on falling as a power.

        At most as many as there are results of owners that stand out: then little is known of the join.
        """
        beyond = np.cumsum(self.owners[::-1])[::-1]
        marks = (constants.MANY_OWNERS, constants.SOME_OWNERS)
        clear, seen = (np.flatnonzero(beyond > times * self.deviation) for times in marks)
        if not len(clear) or not len(seen) or seen[-1] <= clear[-1]:
            return 0.0
        many, few = float(beyond[clear[-1]]), float(beyond[seen[-1]])
        first, last = float(self.edges[clear[-1]]), float(self.edges[seen[-1]])
        power = max(constants.LEAST_POWER, math.log(many / few) / math.log(last / first))
        start = max(last, float(limit))
        owners = few * (start / last) ** -power
        if owners <= 1:
            return 0.0
        # Up to where one owner is left: the integral of n dN, less what the clip leaves of each.
        reach = math.log(owners) / power
        mean = power * start * (reach if abs(power - 1) < 1e-6 else math.expm1((1 - power) * reach) / (1 - power))
        return min(self.size, max(0.0, float(owners * (mean - limit))))


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
    return Owners(middles, np.where(np.arange(len(counts)) < last, counts, 0.0), noisy.deviation, edges[1:])
