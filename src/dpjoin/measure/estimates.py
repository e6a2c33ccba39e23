"""The size of a join, from what is left of it under several caps.

Generous caps lose little and have much noise, strict ones the other way round. What they lose is not known. Ranks tell
it for two cases: rows that go join like others, or the most frequent values are the same in all tables, so that what
each table loses there is multiplied. Real joins lie in between, and how sizes fall with caps tells where. Ranks do not
show the last rows for noise, so that even caps that seem to lose nothing lose a little. All here is post-processing of
noisy numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpjoin import constants
from dpjoin.measure.totals import NoisyTotal


@dataclass(frozen=True)
class Left:
    """Which share of the join caps leave: if rows that go join like others, and if values are frequent in all tables
    alike, so that what each loses there is multiplied."""

    by_chance: float
    aligned: float
    larger: float = 1.0
    """How many times as large the join is in the second case."""
    size: float | None = None
    """About how large it is in the first, where that is known."""
    hidden: float = 0.0
    """About which share of that goes as well, with rows that noise hides."""
    doubt: float = 0.0
    """How far off that may be: under all caps in the same direction."""

    def size_between(self, aligned: float) -> float | None:
        return None if self.size is None else self.size * (aligned * self.larger + 1 - aligned)

    def between(self, aligned: float) -> float:
        """If so much of every table is of the second kind."""
        second = aligned * self.larger
        return (second * self.aligned + (1 - aligned) * self.by_chance) / (second + 1 - aligned)


def likely_size(totals: Sequence[NoisyTotal], left: Sequence[Left]) -> NoisyTotal:
    """About the size of the whole join, from what it is under caps, the most generous first, and what they leave."""
    return _size_of(_ways(totals, left))


def likely_shares(totals: Sequence[NoisyTotal], left: Sequence[Left]) -> list[float]:
    """About which share of the join is lost under each caps, by ranks and by how sizes fall with caps."""
    ways = _ways(totals, left)
    return [sum(way.weight * (1 - some.between(way.aligned)) for way in ways) for some in left]


@dataclass(frozen=True)
class _Way:
    """If values are frequent in all tables to this degree: how badly it fits, and the size of the whole join."""

    aligned: float
    misfit: float
    whole: NoisyTotal
    weight: float = 0.0


def _ways(totals: Sequence[NoisyTotal], left: Sequence[Left]) -> list[_Way]:
    """All degrees to which values may be frequent in all tables, by how likely they are.

    Ranks do not show a single hot value. A cap that cuts one makes the join too small, and so do all stricter ones:
    these do not count where more generous ones say that there is far more.
    """
    by_count = [
        _weighed([_way(totals[:n], left[:n], a) for a in constants.ALIGNMENTS]) for n in range(1, len(totals) + 1)
    ]
    most = left[0].size_between(1.0)
    ceiling = math.inf if most is None else constants.BEYOND * most
    sizes = [replace(size, noisy=min(size.noisy, ceiling)) for size in map(_size_of, by_count)]
    while any(
        some.noisy - sizes[-1].noisy > constants.UNLIKELY * math.hypot(some.deviation, sizes[-1].deviation)
        for some in sizes[:-1]
    ):
        sizes.pop()
    return by_count[len(sizes) - 1]


def _weighed(ways: Sequence[_Way]) -> list[_Way]:
    """With weights, by how well each fits."""
    weights = np.exp([(min(way.misfit for way in ways) - way.misfit) / 2 for way in ways])
    return [replace(way, weight=float(w)) for way, w in zip(ways, weights / weights.sum(), strict=True)]


def _size_of(ways: Sequence[_Way]) -> NoisyTotal:
    mean = sum(way.weight * way.whole.noisy for way in ways)
    variance = sum(way.weight * ((way.whole.noisy - mean) ** 2 + way.whole.deviation**2) for way in ways)
    return NoisyTotal(mean, math.sqrt(variance))


def _way(totals: Sequence[NoisyTotal], left: Sequence[Left], aligned: float) -> _Way:
    """The size of the whole join that fits best, by how far off numbers may be, and how well that is."""
    noisy = np.array([total.noisy for total in totals])
    noise = np.array([total.deviation for total in totals])
    shown = np.array([some.between(aligned) for some in left])
    kept = shown * (1 - np.array([some.hidden for some in left]))

    doubt = np.array([some.doubt for some in left])

    def closest(about: float = 0.0, together: float = 0.0) -> tuple[NoisyTotal, float]:
        """With the misfit, for a join of about this size, if so much of what is misjudged has the same direction.

        In units of noise, which may differ by far.
        """
        off, hidden = about * constants.MISJUDGED * (1 - shown) * kept / noise, about * doubt / noise
        covariance = np.diag(1 + (1 - together) * off**2) + together * np.outer(off, off) + np.outer(hidden, hidden)
        # None counts against itself: a size is between those that single caps tell.
        weights = np.maximum(0.0, np.linalg.solve(covariance, kept / noise))
        weights /= weights @ (kept / noise)
        found = NoisyTotal(float(weights @ (noisy / noise)), math.sqrt(float(weights @ covariance @ weights)))
        missed = (noisy - found.noisy * kept) / noise
        return found, float(missed @ np.linalg.solve(covariance, missed))

    # How sizes fall tells which way it is, so there every cap is a witness of its own; the size is less certain.
    about = max(0.0, closest()[0].noisy)
    (whole, _), (_, misfit) = closest(about, constants.SAME_DIRECTION), closest(about)
    # What lies further apart than it should is less certain than it says.
    apart = max(1.0, math.sqrt(misfit / max(1, len(totals) - 1)))
    expected = left[0].size_between(aligned)
    if expected:
        misfit += (math.log(max(1.0, whole.noisy) / expected) / constants.SIZE_EXPECTED) ** 2
    return _Way(aligned, misfit, replace(whole, deviation=apart * whole.deviation))
