"""Arrays with a name for each axis: products of them, summed over axes, by matrix products."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from dpjoin.model.terms import FloatArray, Scope

Step = tuple[int, int, Scope]
"""Two factors to multiply, the first in whose place the result comes, and the names that are left."""


class Factor(NamedTuple):
    """An array with named axes."""

    names: Scope
    array: FloatArray

    def marginal(self, names: Scope) -> Factor:
        """Sum over the axes that are not named, and put the others in this order."""
        if self.names == names:
            return self
        left = [a for a in self.names if a in names]
        dropped = tuple(i for i, a in enumerate(self.names) if a not in names)
        array = self.array.sum(axis=dropped) if dropped else self.array
        return Factor(names, np.transpose(array, [left.index(a) for a in names]))


def product(one: Factor, other: Factor, keep: Collection[str]) -> Factor:
    """The product of two factors, summed over all names but those to keep: one (batched) matrix product."""
    shared = [a for a in one.names if a in other.names]
    batch, summed = ([a for a in shared if (a in keep) == kept] for kept in (True, False))
    rows, columns = ([a for a in f.names if a in keep and a not in shared] for f in (one, other))
    left, right = one.marginal((*batch, *rows, *summed)).array, other.marginal((*batch, *summed, *columns)).array
    sizes = dict(zip((*batch, *rows, *summed), left.shape, strict=True))
    sizes |= dict(zip((*batch, *summed, *columns), right.shape, strict=True))
    batches, across, inner, down = (math.prod(sizes[a] for a in part) for part in (batch, rows, summed, columns))
    if summed:
        array = np.matmul(left.reshape(batches, across, inner), right.reshape(batches, inner, down))
    else:
        array = left.reshape(batches, across, 1) * right.reshape(batches, 1, down)
    names = (*batch, *rows, *columns)
    return Factor(names, array.reshape([sizes[a] for a in names]))


def contraction(names: Sequence[Scope], keep: Collection[str], sizes: Mapping[str, int]) -> list[Step]:
    """In which order to multiply factors with these names: always the pair with the smallest result."""
    left = list(names)
    steps = []
    while len(left) > 1:
        choices = []
        for i, j in combinations(range(len(left)), 2):
            needed = set(keep).union(*(n for k, n in enumerate(left) if k not in (i, j)))
            result = tuple(a for a in dict.fromkeys(left[i] + left[j]) if a in needed)
            choices.append((math.prod(sizes[a] for a in result), i, j, result))
        _, i, j, result = min(choices, key=lambda c: c[0])
        steps.append((i, j, result))
        left[i] = result
        del left[j]
    return steps


def contracted(factors: Sequence[Factor], keep: Scope, steps: Sequence[Step] | None = None) -> FloatArray:
    """The product of some factors, summed over all names but those to keep; axes in the order of `keep`."""
    if steps is None:
        steps = contraction([f.names for f in factors], keep, sizes_of(factors))
    left = list(factors)
    for i, j, names in steps:
        left[i] = product(left[i], left[j], names)
        del left[j]
    return left[0].marginal(keep).array


def sizes_of(factors: Sequence[Factor]) -> dict[str, int]:
    """The size of each name."""
    return {a: n for f in factors for a, n in zip(f.names, f.array.shape, strict=True)}
