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
from dpjoin.model.terms import FloatArray


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


@dataclass(frozen=True, eq=False)
class _Ways:
    """If values are frequent in all tables to each of these degrees: how likely that is, and the size of the join."""

    odds: FloatArray
    whole: FloatArray
    deviation: FloatArray

    @property
    def size(self) -> NoisyTotal:
        mean = float(self.odds @ self.whole)
        return NoisyTotal(mean, math.sqrt(float(self.odds @ ((self.whole - mean) ** 2 + self.deviation**2))))


def likely_size(totals: Sequence[NoisyTotal], left: Sequence[Left]) -> NoisyTotal:
    """About the size of the whole join, from what it is under caps, the most generous first, and what they leave."""
    return _ways(totals, left).size


def likely_shares(totals: Sequence[NoisyTotal], left: Sequence[Left]) -> list[float]:
    """About which share of the join is lost under each caps, by ranks and by how sizes fall with caps."""
    odds = _ways(totals, left).odds
    return [float(odds @ [1 - some.between(aligned) for aligned in constants.ALIGNMENTS]) for some in left]


def _ways(totals: Sequence[NoisyTotal], left: Sequence[Left]) -> _Ways:
    """All degrees to which values may be frequent in all tables, by how likely they are.

    Ranks do not show a single hot value. A cap that cuts one makes the join too small, and so do all stricter ones:
    these do not count where more generous ones say that there is far more.
    """
    by_count = [_ways_by(totals[:n], left[:n]) for n in range(1, len(totals) + 1)]
    most = left[0].size_between(1.0)
    ceiling = math.inf if most is None else constants.BEYOND * most
    sizes = [replace(ways.size, noisy=min(ways.size.noisy, ceiling)) for ways in by_count]
    while any(
        some.noisy - sizes[-1].noisy > constants.UNLIKELY * math.hypot(some.deviation, sizes[-1].deviation)
        for some in sizes[:-1]
    ):
        sizes.pop()
    return by_count[len(sizes) - 1]


def _ways_by(totals: Sequence[NoisyTotal], left: Sequence[Left]) -> _Ways:
    """For each degree, the size of the whole join that fits these caps best, by how far off numbers may be."""
    noisy, noise = (np.array([getattr(total, name) for total in totals]) for name in ("noisy", "deviation"))
    hidden, doubt = (np.array([getattr(some, name) for some in left]) for name in ("hidden", "doubt"))
    shown = np.array([[some.between(aligned) for some in left] for aligned in constants.ALIGNMENTS])
    kept = shown * (1 - hidden)

    def closest(about: FloatArray, together: float = 0.0) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sizes, deviations and misfits, for joins of about this size, if so much of what is misjudged has the same
        direction. In units of noise, which may differ by far.
        """
        off = about[:, None] * constants.MISJUDGED * (1 - shown) * kept / noise
        unseen = about[:, None] * doubt / noise
        covariance = together * off[:, :, None] * off[:, None, :] + unseen[:, :, None] * unseen[:, None, :]
        covariance += np.eye(len(totals)) * (1 + (1 - together) * off**2)[:, None, :]
        # None counts against itself: a size is between those that single caps tell.
        weights = np.maximum(0.0, _solved(covariance, kept / noise))
        weights /= (weights * (kept / noise)).sum(axis=1, keepdims=True)
        size = weights @ (noisy / noise)
        missed = (noisy - size[:, None] * kept) / noise
        variance = np.einsum("ai,aij,aj->a", weights, covariance, weights)
        return size, np.sqrt(variance), (missed * _solved(covariance, missed)).sum(axis=1)

    # How sizes fall tells which way it is, so there every cap is a witness of its own; the size is less certain.
    about = np.maximum(0.0, closest(np.zeros(len(shown)))[0])
    (whole, deviation, _), (*_, misfit) = closest(about, constants.SAME_DIRECTION), closest(about)
    # What lies further apart than it should is less certain than it says.
    apart = np.maximum(1.0, np.sqrt(misfit / max(1, len(totals) - 1)))
    expected = [left[0].size_between(aligned) for aligned in constants.ALIGNMENTS]
    if all(expected):
        misfit = misfit + (np.log(np.maximum(1.0, whole) / np.array(expected)) / constants.SIZE_EXPECTED) ** 2
    odds = np.exp((misfit.min() - misfit) / 2)
    return _Ways(odds / odds.sum(), whole, apart * deviation)


def _solved(matrices: FloatArray, vectors: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.solve(matrices, vectors[:, :, None])[:, :, 0])
