"""Edges of bins at noisy quantiles: numbers are counted between edges that come closer to them round by round.

The first edges are fixed and public: powers of two, or decades. Later ones are where the counts so far say that
quantiles lie, so that few counts, and little noise, are between one and the next. All counts together tell how many
numbers lie in the finest pieces: the non-negative ones that fit them best.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpjoin import constants
from dpjoin.spec.dates import DATE, FIRST_DAY, LAST_DAY, days

if TYPE_CHECKING:
    from dpjoin.privacy.columns import NoisyCounts

Floats = NDArray[np.float64]
Edges = tuple[float, ...]

NOTHING = 2.0**-24
"""Derived. Numbers up to here are taken for zero: the first piece above it is not cut."""
_COARSE = (2.0**128, 2.0**256, 2.0**512, sys.float_info.max)


def first_edges(*, whole: bool, part: str | None = None) -> Edges:
    """The public edges between which is counted first: powers of two, or decades."""
    if part == DATE:
        years = [1, 1000, *range(1500, 1900, 50), *range(1900, 2100, 10), *range(2100, 2500, 50), 5000]
        starts = days([date(y, 1, 1) for y in years], "years")
        return (*(float(d) for d in starts if isinstance(d, int)), float(LAST_DAY + 1))
    powers = [2.0**e for e in range(0 if whole else -24, 64)] + list(_COARSE)
    return (*(-p for p in reversed(powers)), 0.0, *powers)


def noisy_edges(
    count: Callable[[Sequence[float], float], NoisyCounts], bins: int, *, whole: bool, part: str | None = None
) -> Edges:
    """Edges of about so many bins with about equally many numbers each; of whole numbers, both ends are among them.

    `count` says how many numbers there are between some edges, for a share of the budget. A number that many rows have
    gets a bin of its own.
    """
    asked = first_edges(whole=whole, part=part)
    known = []
    for share in constants.QUANTILE_SHARES:
        known.append(count(asked, share))
        spread = PieceCounts(known)
        asked = _closer(spread, asked, bins, whole=whole)
    found = _chosen(spread, bins, whole=whole)
    if part == DATE:
        found = [min(max(e, FIRST_DAY), LAST_DAY) for e in found]
    return _ordered(found, whole=whole)


class PieceCounts:
    """How many numbers lie in each of the finest pieces between edges, by all that was counted."""

    def __init__(self, known: Sequence[NoisyCounts]) -> None:
        from scipy.optimize import nnls

        self.hull = hull(known[0])
        every: Floats = np.unique(np.concatenate([k.edges for k in known]))
        inside = (every >= self.hull[0]) & (every <= self.hull[1])
        self.edges: Floats = every[inside | (every == every[0]) | (every == every[-1])]
        rows, wanted = [], []
        for counted in known:
            at = np.searchsorted(self.edges, counted.edges)
            weight = 1.0 / math.sqrt(max(counted.variance, 1e-6))
            for (low, high), noisy in zip(pairwise(at), counted.noisy, strict=True):
                if low == high:
                    continue  # beyond the hull, where only what all of it holds together counts
                row = np.zeros(len(self.edges) - 1)
                row[low:high] = weight
                rows.append(row)
                wanted.append(weight * noisy)
        # A little preference for even pieces, where a count says nothing of them apart.
        found = nnls(np.array(rows), np.array(wanted), maxiter=50 * len(self.edges))[0]
        self.below: Floats = np.concatenate([[0.0], np.cumsum(found)])
        self.size = float(self.below[-1])
        last = known[-1]
        one = math.sqrt(last.variance) / self.size if self.size else math.inf
        self.off = one * math.sqrt(len(last.noisy)) / 2
        """How far off the share below a middle edge is, about."""
        self.tail = max(constants.OUTER_TAIL, constants.TAIL_NOISE * one)
        """The share of the numbers that noise may hide at either end."""

        self._one = one

    def ends(self) -> tuple[int, int]:
        """Between which edges the numbers are but for the tails: what noise may hide there grows with their pieces."""
        pieces, below = len(self.edges) - 1, self.below / self.size
        phantoms = constants.PHANTOM * self._one * np.arange(pieces + 1)
        hidden = np.minimum(np.maximum(self.tail, phantoms), constants.MOST_TAIL)
        first, last = 0, pieces
        while first < pieces - 1 and below[first + 1] <= hidden[first + 1]:
            first += 1
        while last > first + 1 and 1 - below[last - 1] <= hidden[pieces - last + 1]:
            last -= 1
        return first, last

    def around(self, share: float, off: float) -> tuple[int, int]:
        """The first and the last piece in which a share of the numbers, give or take some, may end."""
        low, high = (np.clip(share + x, 0.0, 1.0) * self.size for x in (-off, off))
        first = int(np.searchsorted(self.below, low, side="right")) - 1
        last = int(np.searchsorted(self.below, high, side="left")) - 1
        most = len(self.edges) - 2
        return min(max(first, 0), most), min(max(last, first, 0), most)


def hull(first: NoisyCounts) -> tuple[float, float]:
    """Between which edges numbers are seen at all, in the first round, with some room."""
    noisy, most = np.array(first.noisy, dtype=np.float64), len(first.noisy) - 1
    one, stands_out, best = math.sqrt(first.variance), np.zeros(len(noisy), dtype=bool), (-math.inf, 0, 0)
    for width in (1, 2, 4, 8):  # several pieces together may stand out where none does
        together = np.convolve(noisy, np.ones(width), mode="valid") / math.sqrt(width)
        best = max(best, (float(together.max()), int(together.argmax()), int(together.argmax()) + width - 1))
        for start in np.flatnonzero(together > constants.PIECE_SEEN * one):
            stands_out[start : start + width] |= noisy[start : start + width] > one
    seen = np.flatnonzero(stands_out)
    low, high = (int(seen[0]), int(seen[-1])) if len(seen) else best[1:]
    return first.edges[max(low - constants.PIECE_ROOM, 0)], first.edges[min(high + constants.PIECE_ROOM, most) + 1]


def _closer(spread: PieceCounts, asked: Edges, bins: int, *, whole: bool) -> Edges:
    """The edges to count between next: pieces where quantiles may lie, cut into smaller ones."""
    if not spread.size:
        return asked
    off, fine = max(constants.EDGE_DOUBT / bins, constants.QUANTILE_DOUBT * spread.off), constants.BIN_PIECES
    edges = spread.edges
    cut: set[float] = {float(edges[0]), float(edges[-1])}
    reached = [(spread.around(j / bins, off), 2) for j in range(1, bins)]
    low, high = spread.ends()
    reached += [((max(low - 1, 0), low), fine), ((high - 1, min(high, len(edges) - 2)), fine)]
    for (first, last), least in reached:
        for i in range(first, last + 1):
            held = (spread.below[i + 1] - spread.below[i]) / spread.size
            pieces = min(2 * fine, max(least, math.ceil(held * bins * fine))) if held else 1
            cut |= set(_split(float(edges[i]), float(edges[i + 1]), pieces, whole=whole))
    return tuple(sorted(cut))


def _split(low: float, high: float, pieces: int, *, whole: bool) -> list[float]:
    """A piece cut into smaller ones, by ratios where it spans several powers of two."""
    inner: Any
    if max(abs(low), abs(high)) <= NOTHING:
        return [low, high]
    if low * high > 0 and max(abs(low), abs(high)) > 4 * min(abs(low), abs(high)):
        powers = np.linspace(math.log(abs(low)), math.log(abs(high)), pieces + 1)
        inner = math.copysign(1.0, low) * np.exp(powers)
    else:
        inner = np.linspace(low / 2, high / 2, pieces + 1) * 2  # half as large, so that nothing overflows
    middle = [float(math.floor(e) if whole else e) for e in inner[1:-1]]
    return [low, *(e for e in middle if low < e < high), high]


def _chosen(spread: PieceCounts, bins: int, *, whole: bool) -> list[float]:
    """Edges at the quantiles, each as round a number as it may be; both ends of what holds more than a bin's share."""
    if not spread.size:
        return [0.0, 1.0]
    edges, below = spread.edges, spread.below / spread.size
    close, held = constants.EDGE_MOVES / bins, np.diff(below)
    heavy = held > constants.ONE_NUMBER / bins
    first, last = spread.ends()
    low, high = max(float(edges[first]), spread.hull[0]), min(float(edges[last]), spread.hull[1])
    inner: list[float] = []

    def near(share: float, first: int, last: int) -> float:
        """A round number below which about this share lies, from one edge to another."""
        found = np.interp([share - close, share + close], below[first : last + 1], edges[first : last + 1])
        # Between shares that hardly differ, or edges far apart, interpolating may overflow.
        low, high = np.clip(np.nan_to_num(found, nan=edges[first]), edges[first], edges[last])
        return roundest(float(low), float(high), whole=whole)

    for j in range(1, bins):
        i = spread.around(j / bins, 0.0)[0]
        before = int(np.flatnonzero(np.append(heavy[:i][::-1], True))[0])  # pieces from here to a heavy one
        after = int(np.flatnonzero(np.append(heavy[i + 1 :], True))[0])
        ends = [near(below[i], i - before, i), near(below[i + 1], i + 1, i + 1 + after)]
        if held[i] > 1 / bins:
            inner += ends
        elif heavy[i] or (whole and edges[i + 1] - edges[i] <= 1):  # perhaps one number, which cannot be divided
            inner.append(ends[int(j / bins - below[i] > below[i + 1] - j / bins)])
        else:
            inner.append(near(j / bins, i - before, i + 1 + after))
    inner = sorted(e for e in inner if low < e < high)
    if whole:
        high -= 1  # the last bin has its right edge
    outermost = [_outer((low, high), inner, spread, whole=whole, down=down) for down in (True, False)]
    return [outermost[0], *inner, outermost[1]]


def _outer(ends: Sequence[float], inner: Sequence[float], spread: PieceCounts, *, whole: bool, down: bool) -> float:
    """An outermost edge, further out by what noise hides of a tail: within the hull, and on its side of zero."""
    edge, other = ends if down else reversed(ends)
    room = 0.0
    if inner:
        next_one = inner[0] if down else inner[-1]
        share = float(np.interp(next_one, spread.edges, spread.below / spread.size))
        held = max((share if down else 1 - share) - spread.tail, spread.tail)
        room = 2 * spread.tail / held * abs(next_one - edge)
    rounder = 0.0 if whole else abs(other - edge) / 64

    def out(some: float) -> float:
        moved = max(edge - some, spread.hull[0]) if down else min(edge + some, spread.hull[1])
        if edge * moved < 0 or abs(edge) <= NOTHING:
            return 0.0
        return float(math.ceil(moved) if down else math.floor(moved)) if whole else moved

    return roundest(*sorted((out(room), out(room + rounder))), whole=whole)


def roundest(low: float, high: float, *, whole: bool = False) -> float:
    """The number with the fewest digits from one to another.

    >>> roundest(0.4871, 0.5213), roundest(1234.2, 1271.8), roundest(3.0, 3.0), roundest(-0.2, 7)
    (0.5, 1250.0, 3.0, 0.0)
    """
    if low <= 0 <= high:
        return 0.0
    if low == high or not (math.isfinite(low) and math.isfinite(high)):
        return math.ceil(low) if whole else low
    if high < 0:
        return -roundest(-high, -low, whole=whole)
    exponent = math.floor(math.log10(high))
    for digits in range(exponent, exponent - 17, -1):
        for step in (5, 1):  # half steps are as round as whole ones
            unit = step * 10.0**digits
            if not 0 < unit < math.inf:
                continue
            multiple = math.ceil(low / unit)
            number = round(multiple * unit, max(0, -digits))
            if low <= number <= high and (not whole or number == math.floor(number)):
                return float(number)
    return math.ceil(low) if whole else low


def _ordered(found: Sequence[float], *, whole: bool) -> Edges:
    """Different edges in order, at least two of them; one alone is that of a whole number without others."""
    held = sorted({float(math.floor(e)) if whole else e for e in found})
    if len(held) < 2 and not whole:
        held.append(math.nextafter(held[0], math.inf))
    return tuple(int(e) if e == math.floor(e) and abs(e) < 2**53 else e for e in held)
