"""Coordinates in which a fit takes few steps.

A potential of a wider term moves the one-way marginals of its attributes as well. These are known best, so a search
that moves one potential at a time must take every such step back: with many terms per attribute it hardly gets
anywhere. Here a wider potential takes along what keeps the marginal of each of its attributes where it is (all of them
at once where attributes are independent), and is measured in units of its posterior width. The objective stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dpjoin.model.terms import FloatArray

MOST_TERMS = 2**17
"""Beyond so many potentials they are only scaled: the lists of what goes with what would be larger than the table."""

Cliques = tuple[tuple[str, ...], ...]
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Potentials = width x coordinates, less what wider terms would do to one-way marginals."""

    width: FloatArray
    term: NDArray[np.intp]
    """Potentials of wider terms, once for each of their attributes,"""
    place: NDArray[np.intp]
    """the potential of that attribute's value,"""
    share: FloatArray
    """and how much it takes back: how likely the other attributes' values are with this one."""

    @classmethod
    def of(cls, cliques: Cliques, shapes: Shapes, means: FloatArray, width: FloatArray) -> Coordinates:
        """For these cliques, first in the order of the potentials, and what their terms are on average."""
        term, place = _effects(cliques, shapes)
        return cls(width, term, place, means[term] / np.maximum(means[place], 1e-300))

    def potentials(self, x: FloatArray) -> FloatArray:
        wide = x * self.width
        return wide - np.bincount(self.place, weights=self.share * wide[self.term], minlength=len(wide))

    def inverse(self, potentials: FloatArray) -> FloatArray:
        """Where these potentials lie."""
        back = np.bincount(self.place, weights=self.share * potentials[self.term], minlength=len(potentials))
        return (potentials + back) / self.width

    def slopes(self, gradient: FloatArray) -> FloatArray:
        """By coordinates, from the gradient by potentials."""
        moved = np.bincount(self.term, weights=self.share * gradient[self.place], minlength=len(gradient))
        return (gradient - moved) * self.width

    def gradient(self, slopes: FloatArray) -> FloatArray:
        """The other way round."""
        plain = slopes / self.width
        return plain + np.bincount(self.term, weights=self.share * plain[self.place], minlength=len(plain))


@lru_cache(maxsize=8)
def _effects(cliques: Cliques, shapes: Shapes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which potentials of wider terms come with which of one-way terms."""
    starts = _starts(cliques, shapes)
    singles = {c[0]: start for c, start in zip(cliques, starts, strict=False) if len(c) == 1}
    terms: list[NDArray[np.intp]] = []
    places: list[NDArray[np.intp]] = []
    for clique, shape, start in zip(cliques, shapes, starts, strict=False) if starts[-1] <= MOST_TERMS else ():
        for axis, attribute in enumerate(clique) if len(clique) > 1 else ():
            if attribute in singles:
                terms.append(np.arange(start, start + math.prod(shape)))
                places.append(singles[attribute] + np.indices(shape)[axis].reshape(-1))
    none = np.zeros(0, dtype=np.intp)
    return np.concatenate([none, *terms]), np.concatenate([none, *places])


def _starts(cliques: Cliques, shapes: Shapes) -> list[int]:
    """Where each clique's potentials start, and where the last one's end."""
    return list(accumulate((math.prod(shape) for shape in shapes[: len(cliques)]), initial=0))
