"""Owners with so many join results that noise hides them: how their numbers are likely to go on falling.

Beyond some number of results, the number of owners N(n) with more than n is taken to fall like a power that may grow,
N(n) = N·exp(-power·u - bend·u²) with u = log(n / start), up to where nobody is left. Many such shapes are tried. Each
is as likely as it makes the noisy histogram and noisy sizes of the join under two clips; N follows by least squares.
All is post-processing of noisy numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dpjoin import constants
from dpjoin.measure.owner_counts import Owners
from dpjoin.measure.totals import NoisyTotal
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.owners import Clip

NORMAL = np.array([-1.83, -1.28, -0.97, -0.73, -0.52, -0.34, -0.17, 0, 0.17, 0.34, 0.52, 0.73, 0.97, 1.28, 1.83])
"""A normal distribution by fifteen numbers."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """Ways in which the number of owners may go on falling."""

    each: FloatArray
    """Owners in the buckets beyond the start, for each of those that are many."""
    many: FloatArray
    variance: FloatArray
    """Of how many there are."""
    odds: FloatArray
    """How likely each shape is."""


@dataclass(frozen=True, eq=False)
class Tail:
    """What clipping loses, by a noisy histogram of owners, and by sizes of the join under two clips."""

    owners: Owners
    sizes: tuple[Clip, Clip, NoisyTotal] | None = None
    """A strict and a wide clip, and how many more join results the wide one leaves."""

    @cached_property
    def start(self) -> int:
        """The last bucket beyond which many owners stand out of noise."""
        beyond = np.append(np.cumsum(self.owners.owners[::-1])[::-1][1:], 0.0)
        many = min(
            constants.MANY_OWNERS * self.owners.deviation, constants.MANY_OF_ALL * max(0.0, self.owners.owners.sum())
        )
        return int(np.max(np.flatnonzero(beyond > many), initial=0))

    @cached_property
    def shapes(self) -> Shapes:
        told, here, beyond = self.owners, slice(self.start + 1), slice(self.start + 1, None)
        u = np.log(told.edges[self.start :] / told.edges[self.start])
        powers, bent = np.geomspace(*constants.POWERS, 26), np.array(constants.BENDS)
        left = np.exp(-(powers[:, None, None] * u + bent[:, None] * u**2).reshape(-1, len(u)))
        each = -np.diff(left, axis=1)
        # What owners there are by chance adds to the noise where they stand out.
        variance = told.deviation**2 + np.maximum(told.owners[beyond], 0.0)
        precision, fit = (each**2 / variance).sum(axis=1), (each * told.noisy[beyond] / variance).sum(axis=1)
        many = np.maximum(fit / precision, 1.0)
        each = np.where(many[:, None] * left[:, 1:] >= 0.5, each, 0.0)
        bends = np.where(bent == 0, constants.STRAIGHT, (1 - constants.STRAIGHT) / (len(bent) - 1))
        likely = np.tile(np.log(bends), len(powers))
        if self.sizes is not None:
            strict, wide, more = self.sizes
            gained = told.lost_by_each(strict) - told.lost_by_each(wide)
            seen, mean = more.noisy - told.noisy[here] @ gained[here], each @ gained[beyond]
            doubt = more.deviation**2 + many * (each @ gained[beyond] ** 2)
            precision, fit = precision + mean**2 / doubt, fit + mean * seen / doubt
            likely = likely - (np.log(doubt) + seen**2 / doubt) / 2
        likely = likely + (fit * np.maximum(fit, 0.0) / precision - np.log(precision)) / 2
        odds = np.exp(likely - likely.max())
        return Shapes(each, np.maximum(fit / precision, 0.0), 1 / precision, odds / odds.sum())

    def lost(self, clip: Clip) -> NoisyTotal:
        """How many join results a clip takes away, and how far off that is: in nine cases of ten at most 1.64 times.

        Shapes that lose many times as much as is seen count less for the first figure, and in full for the second.
        """
        values, odds = self._beyond(clip)
        results, here = self.owners.results[self.start + 1 :], slice(self.start + 1)
        size = self.shapes.many * (self.shapes.each @ results)
        modest = odds / np.repeat(1 + size / self.owners.size, len(NORMAL))
        (middle,), (low, high) = _quantiles(values, modest, 0.5), _quantiles(values, odds, 0.05, 0.95)
        cut = self.owners.lost_by_each(clip)[here]
        off = math.hypot(max(high - middle, middle - low) / 1.645, self.owners.deviation * float(np.linalg.norm(cut)))
        return NoisyTotal(max(0.0, float(self.owners.noisy[here] @ cut)) + middle, max(1.0, off))

    def doubt(self, clip: Clip) -> float:
        """How far off that is typically: by quartiles."""
        low, high = _quantiles(*self._beyond(clip), 0.25, 0.75)
        return (high - low) / 1.35

    def with_sizes(self, strict: Clip, wide: Clip, more: NoisyTotal) -> Tail:
        """The same, after the sizes under two clips."""
        return replace(self, sizes=(strict, wide, more))

    def _beyond(self, clip: Clip) -> tuple[FloatArray, FloatArray]:
        """How many join results a clip takes away of owners beyond the start: numbers, and how likely each is."""
        shapes, cut = self.shapes, self.owners.lost_by_each(clip)[self.start + 1 :]
        mean = shapes.each @ cut
        deviation = np.sqrt(mean**2 * shapes.variance + shapes.many * (shapes.each @ cut**2))
        values = np.maximum((shapes.many * mean)[:, None] + deviation[:, None] * NORMAL, 0.0)
        return values.ravel(), np.repeat(shapes.odds, len(NORMAL))


def _quantiles(values: FloatArray, odds: FloatArray, *shares: float) -> list[float]:
    order = np.argsort(values)
    below = np.cumsum(odds[order])
    return [float(values[order][min(np.searchsorted(below, s * below[-1]), len(order) - 1)]) for s in shares]
