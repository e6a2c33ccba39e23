"""Coordinates in which a fit takes few steps.

A potential of a wider term moves the one-way marginals of its attributes as well. These are known best, so a search
that moves one potential at a time must take every such step back: with many terms per attribute it hardly gets
anywhere. Here a wider potential takes along what keeps the marginal of each of its attributes where it is (all of them
at once where attributes are independent), and is measured in units of its posterior width. The objective stays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpjoin.model.terms import FloatArray

LEAST = 1e-300
LISTED_TERMS = 2**15
"""Up to so many potentials, lists of what goes with what serve all terms at once. Beyond, they would take more memory
than all the rest, and each term is summed by itself."""

Cliques = tuple[tuple[str, ...], ...]
Shapes = tuple[tuple[int, ...], ...]


class Coordinates(ABC):
    """Potentials = width x coordinates, less what wider terms would do to one-way marginals.

    What a wider potential takes back of each of its attributes' values is the share that it has of these: how likely
    the other attributes' values are with this one.
    """

    width: FloatArray

    @staticmethod
    def of(cliques: Cliques, shapes: Shapes, means: FloatArray, width: FloatArray) -> Coordinates:
        """For these cliques, first in the order of the potentials, and what their terms are on average."""
        if len(width) <= LISTED_TERMS:
            term, place = _effects(cliques, shapes)
            return Listed(width, term, place, means[term] / np.maximum(means[place], LEAST))
        return Summed(width, _blocks(cliques, shapes), means)

    def potentials(self, x: FloatArray) -> FloatArray:
        wide = x * self.width
        return wide - self._taken(wide)

    def inverse(self, potentials: FloatArray) -> FloatArray:
        """Where these potentials lie."""
        return (potentials + self._taken(potentials)) / self.width

    def slopes(self, gradient: FloatArray) -> FloatArray:
        """By coordinates, from the gradient by potentials."""
        return (gradient - self._moved(gradient)) * self.width

    def gradient(self, slopes: FloatArray) -> FloatArray:
        """The other way round."""
        plain = slopes / self.width
        return plain + self._moved(plain)

    @abstractmethod
    def _taken(self, potentials: FloatArray) -> FloatArray:
        """What wider potentials take back of one-way ones."""

    @abstractmethod
    def _moved(self, gradient: FloatArray) -> FloatArray:
        """How that changes what wider potentials gain."""


@dataclass(frozen=True, eq=False)
class Listed(Coordinates):
    """By lists."""

    width: FloatArray
    term: NDArray[np.intp]
    """Potentials of wider terms, once for each of their attributes,"""
    place: NDArray[np.intp]
    """the potential of that attribute's value,"""
    share: FloatArray
    """and the share."""

    def _taken(self, potentials: FloatArray) -> FloatArray:
        weights = self.share * potentials[self.term]
        return np.bincount(self.place, weights=weights, minlength=len(potentials)).astype(np.float64, copy=False)

    def _moved(self, gradient: FloatArray) -> FloatArray:
        weights = self.share * gradient[self.place]
        return np.bincount(self.term, weights=weights, minlength=len(gradient)).astype(np.float64, copy=False)


class Block(NamedTuple):
    """A wider term: where its potentials lie, their shape, and by axis where those of its attributes' values do."""

    where: slice
    shape: tuple[int, ...]
    ones: tuple[tuple[int, slice], ...]


@dataclass(frozen=True, eq=False)
class Summed(Coordinates):
    """Term by term, with no numbers of its own."""

    width: FloatArray
    blocks: tuple[Block, ...]
    means: FloatArray

    def _taken(self, potentials: FloatArray) -> FloatArray:
        out = np.zeros(len(potentials))
        for block in self.blocks:
            weighed = potentials[block.where] * self.means[block.where]
            for axis, one in block.ones:
                out[one] += _sum_by(weighed, block.shape, axis)
        return self._per_value(out)

    def _moved(self, gradient: FloatArray) -> FloatArray:
        out, each = np.zeros(len(gradient)), self._per_value(gradient)
        for block in self.blocks:
            here = out[block.where].reshape(block.shape)
            for axis, one in block.ones:
                here += each[one].reshape([-1 if i == axis else 1 for i in range(len(block.shape))])
            out[block.where] *= self.means[block.where]
        return out

    def _per_value(self, each: FloatArray) -> FloatArray:
        """One-way terms as shares of what they are on average; zeros for others."""
        out = np.zeros(len(each))
        for one in {one.start: one for block in self.blocks for _, one in block.ones}.values():
            out[one] = each[one] / np.maximum(self.means[one], LEAST)
        return out


def _sum_by(each: FloatArray, shape: tuple[int, ...], axis: int) -> FloatArray:
    """The sums over all axes but one."""
    after = math.prod(shape[axis + 1 :])
    # As a product with ones: that adds up short runs several times as fast.
    rows = each if after == 1 else each.reshape(-1, after) @ np.ones(after)
    return np.asarray(rows.reshape(-1, shape[axis]).sum(axis=0))


@lru_cache(maxsize=8)
def _effects(cliques: Cliques, shapes: Shapes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Which potentials of wider terms come with which of one-way terms."""
    starts = _starts(cliques, shapes)
    singles = {c[0]: start for c, start in zip(cliques, starts, strict=False) if len(c) == 1}
    terms: list[NDArray[np.intp]] = []
    places: list[NDArray[np.intp]] = []
    for clique, shape, start in zip(cliques, shapes, starts, strict=False):
        for axis, attribute in enumerate(clique) if len(clique) > 1 else ():
            if attribute in singles:
                terms.append(np.arange(start, start + math.prod(shape)))
                places.append(singles[attribute] + np.indices(shape)[axis].reshape(-1))
    none = np.zeros(0, dtype=np.intp)
    return np.concatenate([none, *terms]), np.concatenate([none, *places])


def _blocks(cliques: Cliques, shapes: Shapes) -> tuple[Block, ...]:
    """The same, term by term."""
    starts = _starts(cliques, shapes)
    where = [slice(start, stop) for start, stop in pairwise(starts)]
    singles = {c[0]: place for c, place in zip(cliques, where, strict=True) if len(c) == 1}
    return tuple(
        Block(place, shape, tuple((axis, singles[a]) for axis, a in enumerate(clique) if a in singles))
        for clique, shape, place in zip(cliques, shapes, where, strict=False)
        if len(clique) > 1
    )


def _starts(cliques: Cliques, shapes: Shapes) -> list[int]:
    """Where each clique's potentials start, and where the last one's end."""
    return list(accumulate((math.prod(shape) for shape in shapes[: len(cliques)]), initial=0))
