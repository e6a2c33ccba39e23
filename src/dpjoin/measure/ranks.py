"""What noisy ranks say about degrees: how many values have how many rows, though not which.

A value with d rows has one row of each rank 1 to d, so the number of rows of a rank is the number of values with at
least so many rows. All here is post-processing of noisy numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from dpjoin import constants
from dpjoin.measure.totals import NoisyTotal
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.parts import NoisyRanks

EDGES = tuple(sorted({max(n + 1, round(1.2**n)) for n in range(110)}))
"""The caps there are, and the edges of the ranks' buckets: all small numbers, then a fifth more each."""
RANKED_VALUES = 2**20
"""So many values, the most frequent ones, are looked at."""


@dataclass(frozen=True, eq=False)
class Beyond:
    """How many rows have a rank above 0, and above each edge: by what stands out of noise, and what it may hide."""

    seen: FloatArray
    hidden: FloatArray
    """How many more there may be."""
    doubt: FloatArray
    """How far off that is."""


def rows_beyond(ranks: NoisyRanks) -> FloatArray:
    """How many rows have a rank above 0, and above each edge, by what stands out of noise."""
    return looked_beyond(ranks).seen


@lru_cache(maxsize=32)
def looked_beyond(ranks: NoisyRanks) -> Beyond:
    """Rows by rank, with the noise smoothed out.

    The number of values with at least so many rows falls with the rank, so the closest numbers that do take the place
    of noisy ones. Beyond some edge there is nothing but noise: the first beyond which the fit hardly gets closer. It
    may hide some rows: each edge further on may be the last, by how well the fit that ends there does.
    """
    widths = np.diff([0, *ranks.edges]).astype(np.float64)
    noisy = np.array(ranks.noisy[:-1], dtype=np.float64)
    # With nothing from bucket n on, for each n.
    fits = np.array([np.maximum(fit, 0.0) * widths for fit in falling_fits(noisy / widths, widths**2)])
    misfit = np.arange(len(fits)) + ((noisy - fits) ** 2).sum(axis=1) / ranks.deviation**2
    seen = int(np.argmax(misfit <= misfit.min() + constants.STANDS_OUT))
    # A long thin tail: none of its buckets stands out, and all of them together do.
    rows, noise = np.cumsum(noisy[seen:]), ranks.deviation * np.sqrt(np.arange(1, len(noisy) - seen + 1))
    # A value with rows in one of them has rows in all before it, as many as these are wide.
    possible = rows + constants.TAIL * noise >= np.cumsum(widths[seen:]) - widths[seen:]
    together = np.where(possible, rows / noise, 0.0)
    if together.max(initial=0.0) > constants.TAIL:
        further = int(np.argmax(together)) + 1
        seen, possible = seen + further, possible[further:]
    likely = np.exp((misfit[seen:].min() - misfit[seen:]) / 2) * np.append(1.0, np.cumprod(possible))
    likely /= likely.sum()
    beyond = np.array([np.append(np.cumsum(fit[::-1])[::-1], 0.0) for fit in fits[seen:]])
    more = beyond - beyond[0]
    hidden = likely @ more
    # Whatever bucket is the last, those from here to it have noise, on top of what is not known of it.
    ends, here = np.arange(len(likely))[:, None], np.maximum(0, np.arange(len(hidden)) - seen)
    doubt = np.sqrt(likely @ ((more - hidden) ** 2 + ranks.deviation**2 * np.maximum(0, ends - here)))
    found = Beyond(beyond[0], np.maximum(0.0, hidden), doubt)
    for array in (found.seen, found.hidden, found.doubt):
        array.setflags(write=False)  # they are kept, since every candidate asks for them
    return found


def rows_told(ranks: NoisyRanks) -> NoisyTotal:
    """About how many rows there are, of all ranks together."""
    found = looked_beyond(ranks)
    seen = max(1, int(np.argmax(found.seen == 0)))
    rows = float(found.seen[0] + found.hidden[0])
    return NoisyTotal(rows, math.hypot(ranks.deviation * math.sqrt(seen), float(found.doubt[0])))


def falling_fits(values: FloatArray, weights: FloatArray) -> list[FloatArray]:
    """For each n, the closest numbers that do not rise to the first n values, by weighted squares, and zeros.

    Neighbours that rise are pooled, one value after the other, so all n come at the price of the last.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight and length of each
    fits = [np.zeros(len(values))]
    for n, (mean, weight) in enumerate(zip(values.tolist(), weights.tolist(), strict=True), 1):
        length = 1
        while pools and pools[-1][0] <= mean:
            before, heavy, more = pools.pop()
            mean, weight, length = (mean * weight + before * heavy) / (weight + heavy), weight + heavy, length + more
        pools.append((mean, weight, length))
        fit = np.zeros(len(values))
        fit[:n] = np.repeat([m for m, _, _ in pools], [k for _, _, k in pools])
        fits.append(fit)
    return fits


def combined_ranks(first: NoisyRanks, second: NoisyRanks) -> NoisyRanks:
    """Two looks at the same ranks as one, by precision."""
    ours, theirs = first.deviation**-2, second.deviation**-2
    noisy = (round((a * ours + b * theirs) / (ours + theirs)) for a, b in zip(first.noisy, second.noisy, strict=True))
    return replace(second, noisy=tuple(noisy), deviation=(ours + theirs) ** -0.5)


def degree_sequence(ranks: NoisyRanks) -> FloatArray:
    """About the degrees of a table's values, the largest first."""
    beyond = rows_beyond(ranks)
    widths = np.diff([0, *ranks.edges])
    # How many values reach a rank in each bucket; it does not rise.
    reach = np.minimum(np.rint((beyond[:-1] - beyond[1:]) / widths), RANKED_VALUES).astype(np.int64)
    values = int(reach[0])
    degrees = np.zeros(values)
    for edge, count in zip(ranks.edges, reach.tolist(), strict=True):
        degrees[:count] = edge
    return degrees


def aligned_size(degrees: Sequence[FloatArray]) -> float:
    """The join size if the most frequent values of one table are those of every other."""
    shortest = min(map(len, degrees))
    return float(np.prod([d[:shortest] for d in degrees], axis=0).sum())


def chance_size(degrees: Collection[FloatArray], values: int | None = None) -> float:
    """The join size if rows meet by chance among so many values, or those of the table that has most of them."""
    among = max(map(len, degrees)) if values is None else values
    return among * math.prod(float(d.sum()) / among for d in degrees) if among else 0.0
