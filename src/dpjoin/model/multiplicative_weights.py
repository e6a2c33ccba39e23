"""The iterate of multiplicative weights on a dense domain: a round costs what it touches, not what there is.

A round multiplies the cells of one query by exp(step x weight) and asks for all marginals again. A query about a few
attributes touches a box of cells. So the table is kept without its normaliser, marginals are moved by those of the
box's change, and the sum of all iterates, which the average needs, is kept as

    sum of iterates = seen x cells + rest,

where `seen` is the sum of the normalisers so far and `rest` is corrected in the box only. Every so many rounds, and
when the normaliser strays far from one, everything is worked out anew, so that rounding errors cannot pile up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from dpjoin.model.terms import Domain, FloatArray
from dpjoin.spec.workload import Group

ROUNDS_UNTIL_ANEW = 64
LARGEST_SCALE = 16.0
"""A normaliser beyond this, or below its inverse, is multiplied in. With the number above it keeps what cancels between
the two terms of the sum of iterates below about ten bits."""
DIRECT_CELLS = 2**10
"""A table this small is summed for each marginal by itself."""
CACHED_CELLS = 2**16
"""Large boxes are changed in blocks, so that what is needed on the way stays in the processor's cache."""
LARGE_BOX = 1 / 8
"""Above this share of the cells, marginals are worked out anew instead of moved."""

Axes = tuple[int, ...]
Box = tuple[slice, ...]
"""A range along each of a table's first axes."""


class Iterate:
    """A table with a fixed total under multiplicative updates, its marginals, and the sum of all tables so far.

    `weights` of an update are one array per attribute or set of attributes, multiplied; attributes that are not named
    have weight one.
    """

    def __init__(self, domain: Domain, total: float, scopes: Sequence[tuple[str, ...]]) -> None:
        self.domain, self.total = domain, total
        self._cells: FloatArray = np.full(domain.shape, total / domain.cells)
        self._rest: FloatArray = np.full(domain.shape, 0.0)
        self._axes = {scope: tuple(domain.attributes.index(a) for a in scope) for scope in scopes}
        # A marginal of all attributes is the table itself.
        some = [tuple(sorted(axes)) for axes in self._axes.values() if 0 < len(axes) < len(domain.shape)]
        self._wanted = tuple(dict.fromkeys(some))
        self._marginals = marginals(self._cells, self._wanted)
        self._mass, self._scale, self._seen, self._rounds = total, 1.0, 1.0, 0

    def answers(self, group: Group) -> FloatArray:
        """A group's answers on the current table, in units. Its scope must be one of those given at the start."""
        return np.asarray(group.apply(self._marginal(group.scope)), dtype=np.float64) * self._scale

    def _marginal(self, scope: tuple[str, ...]) -> FloatArray:
        """The marginal of the current table but for its normaliser, axes in the order of the scope."""
        axes = self._axes[scope]
        if not axes:
            return np.array(self._mass)
        kept = tuple(sorted(axes))
        found = self._cells if len(kept) == self._cells.ndim else self._marginals[kept]
        return np.transpose(found, [kept.index(a) for a in axes])

    def update(self, weights: Mapping[tuple[str, ...], FloatArray], step: float) -> None:
        """Multiply every cell by exp(step x its weight), and scale back to the total."""
        shaped = [self._shaped(attributes, array) for attributes, array in weights.items()]
        box = tuple(_extent(shaped, axis, n) for axis, n in enumerate(self._cells.shape))
        shaped = [array[_within(box, array.shape)] for array in shaped]
        cells, rest = self._cells[box], self._rest[box]
        large = cells.size > LARGE_BOX * self._cells.size
        for part in _blocks(cells.shape) if large else [()]:
            change = cells[part] * _growth(shaped, part, step)
            cells[part] += change
            self._mass += float(change.sum())
            if not large:
                self._move(box, change)
            change *= self._seen
            rest[part] -= change
        self._rounds += 1
        self._scale = self.total / self._mass
        if self._rounds >= ROUNDS_UNTIL_ANEW or not 1 / LARGEST_SCALE < self._scale < LARGEST_SCALE:
            self._renew()
        elif large:
            self._marginals = marginals(self._cells, self._wanted)
        self._seen += self._scale

    def table(self) -> FloatArray:
        """The current table, rows x columns."""
        return (self._cells * self._scale).reshape(self.domain.rows, self.domain.columns)

    def sum_of_tables(self) -> FloatArray:
        """The sum of all tables so far, the first and the current one included, rows x columns."""
        total = self._cells * self._seen
        total += self._rest
        return total.reshape(self.domain.rows, self.domain.columns)

    def _shaped(self, attributes: tuple[str, ...], array: FloatArray) -> FloatArray:
        """Weights with one axis per attribute of the domain, of length one where they do not look."""
        names, sizes = self.domain.attributes, self.domain.sizes
        order = [a for a in names if a in attributes]
        across = array.reshape([sizes[a] for a in attributes]).transpose([attributes.index(a) for a in order])
        return across.reshape([sizes[a] if a in attributes else 1 for a in names])

    def _renew(self) -> None:
        """Multiply the normaliser in, bring the sum of iterates up to date, and sum the marginals again."""
        scale = self.total / float(self._cells.sum())
        for part in _blocks(self._cells.shape):
            self._rest[part] += self._seen * self._cells[part]
            self._cells[part] *= scale
        self._mass, self._scale, self._seen, self._rounds = self.total, 1.0, 0.0, 0
        self._marginals = marginals(self._cells, self._wanted)

    def _move(self, box: Box, change: FloatArray) -> None:
        """Add the marginals of what changed in a box."""
        if not change.size:
            return
        free = tuple(a for a, n in enumerate(change.shape) if n > 1)
        inner = {axes: tuple(free.index(a) for a in axes if a in free) for axes in self._wanted}
        found = marginals(change.reshape([change.shape[a] for a in free]), tuple(dict.fromkeys(inner.values())))
        for axes, kept in inner.items():
            here = self._marginals[axes][tuple(box[a] for a in axes)]
            here += found[kept].reshape(here.shape)


def marginals(table: FloatArray, wanted: Sequence[Axes]) -> dict[Axes, FloatArray]:
    """The sums of a table over all axes but the wanted ones, each a sorted tuple.

    Three groups of axes: a marginal of few axes lies in the union of two of them, so three long sums replace one for
    each, and the same again within them.
    """
    shape = table.shape
    if table.size <= DIRECT_CELLS or len(wanted) <= 1 or len(shape) < 3:
        return {axes: table.sum(axis=tuple(a for a in range(len(shape)) if a not in axes)) for axes in wanted}
    found: dict[Axes, FloatArray] = {}
    for left_out in _thirds(shape):
        inside = [axes for axes in wanted if axes not in found and not set(axes) & set(left_out)]
        if not inside:
            continue
        kept = [a for a in range(len(shape)) if a not in left_out]
        before, here = math.prod(shape[: left_out[0]]), math.prod(shape[a] for a in left_out)
        # Neighbouring axes are one long axis: the sum streams through the table.
        short = table.reshape(before, here, -1).sum(axis=1).reshape([shape[a] for a in kept])
        below = marginals(short, [tuple(kept.index(a) for a in axes) for axes in inside])
        found |= {tuple(kept[a] for a in axes): array for axes, array in below.items()}
    rest = [axes for axes in wanted if axes not in found]
    return found | {axes: table.sum(axis=tuple(a for a in range(len(shape)) if a not in axes)) for axes in rest}


def _thirds(shape: tuple[int, ...]) -> list[Axes]:
    """Three runs of neighbouring axes with about as many cells each."""
    logs = np.cumsum([0.0, *(math.log(n) for n in shape)])
    ends = range(1, len(shape))

    def longest(cut: tuple[int, int]) -> float:
        return float(max(logs[cut[0]], logs[cut[1]] - logs[cut[0]], logs[-1] - logs[cut[1]]))

    first, second = min(combinations(ends, 2), key=longest)
    return [tuple(range(first)), tuple(range(first, second)), tuple(range(second, len(shape)))]


def _growth(weights: Sequence[FloatArray], part: Box, step: float) -> FloatArray:
    """By which share of itself each cell of a block grows; of length one along an axis that makes no difference."""
    found: FloatArray = np.array(step)
    for array in weights:
        found = found * array[_within(part, array.shape)]
    found = np.exp(found)
    found -= 1.0
    return found


def _extent(shaped: Sequence[FloatArray], axis: int, size: int) -> slice:
    """From the first to the last value of an axis at which no weight is known to vanish."""
    low, high = 0, size
    for array in shaped:
        if array.shape[axis] > 1:
            some = np.flatnonzero(array.any(axis=tuple(a for a in range(array.ndim) if a != axis)))
            low, high = (max(low, int(some[0])), min(high, int(some[-1]) + 1)) if len(some) else (0, 0)
    return slice(low, max(low, high))


def _blocks(shape: tuple[int, ...]) -> list[Box]:
    """A table cut into blocks along its first axes."""
    cut, size = 0, math.prod(shape)
    while cut < len(shape) - 1 and size > CACHED_CELLS:
        size //= max(1, shape[cut])
        cut += 1
    if not cut:
        return [tuple(slice(None) for _ in shape)]
    step = max(1, CACHED_CELLS // max(1, size))
    *outer, last = shape[:cut]
    return [
        (*(slice(i, i + 1) for i in index), slice(start, start + step))
        for index in np.ndindex(*outer)
        for start in range(0, last, step)
    ]


def _within(part: Box, shape: tuple[int, ...]) -> Box:
    """The same block of weights that may have length one along an axis."""
    return tuple(s if n > 1 else slice(None) for s, n in zip(part, shape, strict=False))
