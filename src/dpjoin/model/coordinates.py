"""Coordinates in which a fit takes few steps.

A potential of a wider term moves the one-way marginals of its attributes as well. These are known best, so a search
that moves one potential at a time must take every such step back: with many terms per attribute it hardly gets
anywhere. Here a wider potential takes along what keeps the marginal of each of its attributes where it is (all of them
at once where attributes are independent), and is measured in units of its posterior width. The objective stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpjoin.model.terms import FloatArray, Scope, slices_of

LEAST_MEAN = 1e-300


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Potentials = width x coordinates, less what wider terms would do to one-way marginals.

    What a wider potential takes back of each of its attributes' values is the share that it has of these: how likely
    the other attributes' values are with this one.
    """

    width: FloatArray
    term: NDArray[np.intp]
    """Potentials of wider terms, once for each of their attributes,"""
    place: NDArray[np.intp]
    """the potential of that attribute's value,"""
    share: FloatArray
    """and the share."""

    @classmethod
    def of(
        cls, cliques: Sequence[Scope], shapes: Sequence[tuple[int, ...]], means: FloatArray, width: FloatArray
    ) -> Coordinates:
        """For these cliques, first in the order of the potentials, and what their terms are on average."""
        term, place = _wider_and_single(tuple(cliques), tuple(shapes[: len(cliques)]))
        return cls(width, term, place, means[term] / np.maximum(means[place], LEAST_MEAN))

    def potentials(self, x: FloatArray) -> FloatArray:
        wide = x * self.width
        return wide - self._taken(wide)

    def inverse(self, potentials: FloatArray) -> FloatArray:
        """Where these potentials lie."""
        return (potentials + self._taken(potentials)) / self.width

    def slopes(self, gradient: FloatArray) -> FloatArray:
        """By coordinates, from the gradient by potentials."""
        weights = self.share * gradient[self.place]
        return (gradient - np.bincount(self.term, weights=weights, minlength=len(gradient))) * self.width

    def _taken(self, potentials: FloatArray) -> FloatArray:
        """What wider potentials take back of one-way ones."""
        weights = self.share * potentials[self.term]
        return np.bincount(self.place, weights=weights, minlength=len(potentials)).astype(np.float64, copy=False)


@lru_cache(maxsize=8)
def _wider_and_single(
    cliques: tuple[Scope, ...], shapes: tuple[tuple[int, ...], ...]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which potentials of wider terms come with which of one-way terms."""
    where = slices_of([int(np.prod(shape)) for shape in shapes])
    singles = {c[0]: place.start for c, place in zip(cliques, where, strict=True) if len(c) == 1}
    none = np.zeros(0, dtype=np.intp)
    terms, places = [none], [none]
    for clique, shape, place in zip(cliques, shapes, where, strict=True):
        for axis, attribute in enumerate(clique) if len(clique) > 1 else ():
            if attribute in singles:
                terms.append(np.arange(place.start, place.stop))
                places.append(singles[attribute] + np.indices(shape)[axis].reshape(-1))
    return np.concatenate(terms), np.concatenate(places)
