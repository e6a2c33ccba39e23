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
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.model.compiled import Kernels, kernels
from dpjoin.model.terms import Domain, FloatArray
from dpjoin.model.threads import side_by_side
from dpjoin.spec.workload import Group, IntArray

ROUNDS_UNTIL_ANEW = 64
LARGEST_SCALE = 16.0
"""A normaliser beyond this, or below its inverse, is multiplied in. With the number above it keeps what cancels between
the two terms of the sum of iterates below about ten bits."""
DIRECT_CELLS = 2**10
"""A table this small is summed for each marginal by itself."""
BLOCK_CELLS = 2**16
"""Large boxes are changed in blocks, so that what is needed on the way stays in the processor's cache."""
LONG_SUMS = 2**24
"""Answers of so many products are worked out on two cores."""
LARGE_BOX = 1 / 8
"""Above this share of the cells, marginals are worked out anew instead of moved."""

COMPILED_CELLS = 2**17
"""Tables this large are updated by compiled loops, if there are any; for smaller ones compiling would take longer."""
SHORTEST_ROW = 64
"""A compiled loop along fewer cells spends its time on beginning and ending."""

SERIES_LENGTH = 16
"""Two arrays of weights at least this long are multiplied term by term of the exponential series, all at once."""
PICKED_SHARE = 3 / 4
"""Up to this share of rows, those that grow are picked out; copying them costs less than passing over the others."""

Axes = tuple[int, ...]
Part = tuple[slice | IntArray, ...]
"""A block of a table: a range or some places along each of its first axes."""


class Iterate:
    """A table with a fixed total under multiplicative updates, its marginals, and the sum of all tables so far.

    `weights` of an update are one array per attribute or set of attributes, multiplied; attributes that are not named
    have weight one.
    """

    def __init__(self, domain: Domain, total: float, scopes: Sequence[tuple[str, ...]]) -> None:
        self.domain, self.total = domain, total
        self._cells: FloatArray = np.full(domain.shape, total / domain.cells)
        self._rest: FloatArray = np.full(domain.shape, 0.0)
        self._spare: list[FloatArray] = [np.empty(0), np.empty(0)]
        self._axes = {scope: tuple(domain.attributes.index(a) for a in scope) for scope in scopes}
        # A marginal of all attributes is the table itself.
        some = [tuple(sorted(axes)) for axes in self._axes.values() if 0 < len(axes) < len(domain.shape)]
        self._wanted = tuple(dict.fromkeys(some))
        self._marginals = marginals(self._cells, self._wanted)
        self._mass, self.scale, self._seen, self._rounds = total, 1.0, 1.0, 0
        self._single: NDArray[np.float32] | None = None
        """The cells in single precision, once somebody has asked for them; without their last changes, if `_stale`."""
        self._stale = True

    def answers(self, group: Group, *, dtype: type[np.floating[Any]] = np.float64) -> FloatArray:
        """A group's answers on the current table, in units. Its scope must be one of those told beforehand."""
        table, found = self.unscaled(group.scope).astype(dtype, copy=False), np.empty(len(group))
        count = group.answer_shape[0] if group.answer_shape else 1
        each = len(group) // max(1, count)

        def fill(rows: slice) -> None:
            here = found[rows.start * each : rows.stop * each]
            np.multiply(group.apply(table, rows), self.scale, out=here)

        side_by_side(fill, _halves(count) if len(group) * each >= LONG_SUMS else [slice(0, count)])
        return found

    def unscaled(self, scope: tuple[str, ...]) -> FloatArray:
        """The marginal of the current table but for the factor `scale`, axes in the order of the scope."""
        axes = self._axes[scope]
        if not axes:
            return np.array(self._mass)
        kept = tuple(sorted(axes))
        found = self._cells if len(kept) == self._cells.ndim else self._marginals[kept]
        return np.transpose(found, [kept.index(a) for a in axes])

    def unscaled_single(self, scope: tuple[str, ...]) -> NDArray[np.float32]:
        """The same in single precision. It may be memory that the next update writes to."""
        if len(self._axes[scope]) < self._cells.ndim:
            return self.unscaled(scope).astype(np.float32)
        if self._single is None:
            self._single = np.empty(self._cells.shape, dtype=np.float32)
        if self._stale:
            np.copyto(self._single, self._cells, casting="same_kind")
            self._stale = False
        return np.transpose(self._single, self._axes[scope])

    def update(self, weights: Mapping[tuple[str, ...], FloatArray], step: float) -> None:
        """Multiply every cell by exp(step x its weight), and scale back to the total."""
        shaped = [self._shaped(attributes, array) for attributes, array in weights.items()]
        box = tuple(_extent(shaped, axis, n) for axis, n in enumerate(self._cells.shape))
        large = math.prod(s.stop - s.start for s in box) > LARGE_BOX * self._cells.size
        loops = self._loops() if large else None
        cut = _cut(shaped, self._cells.shape) if loops is not None else None
        if loops is not None and cut is not None:
            self._grow(loops, cut, shaped, step)
        else:
            self._stale = True
            self._by_numpy(shaped, step, box, large=large)
        self._rounds += 1
        self.scale = self.total / self._mass
        if self._rounds >= ROUNDS_UNTIL_ANEW or not 1 / LARGEST_SCALE < self.scale < LARGEST_SCALE:
            self._settle()
        elif large:
            self._marginals = marginals(self._cells, self._wanted)
        self._seen += self.scale

    def _loops(self) -> Kernels | None:
        return kernels() if self._cells.size >= COMPILED_CELLS else None

    def _grow(self, loops: Kernels, cut: int, shaped: Sequence[FloatArray], step: float) -> None:
        """Update the table in one pass, as a matrix of the axes before the cut and those after it."""
        shape = self._cells.shape
        rows, columns = math.prod(shape[:cut]), math.prod(shape[cut:])
        before = [array for array in shaped if all(n == 1 for n in array.shape[cut:])]
        after = [array for array in shaped if any(n > 1 for n in array.shape[cut:])]
        first = _all_of(before, (*shape[:cut], *(1 for _ in shape[cut:])))
        second = _all_of(after, (*(1 for _ in shape[:cut]), *shape[cut:]))
        if self._single is None:
            self._single = np.empty(shape, dtype=np.float32)
        tables = (
            self._cells.reshape(rows, columns),
            self._rest.reshape(rows, columns),
            self._single.reshape(rows, columns),
        )
        self._mass += loops.grow(tables, (first, second), step, self._seen)

    def _by_numpy(self, shaped: Sequence[FloatArray], step: float, box: tuple[slice, ...], *, large: bool) -> None:
        """Update a box of the table, operation by operation."""
        growth = Growth.of([array[_within(box, array.shape)] for array in shaped], step)
        touched = growth.touched(self._cells[box].shape) if large else None
        if touched is not None:  # whole rows: they lie together, which copying needs
            box = (box[0], *(slice(0, n) for n in self._cells.shape[1:]))
            growth = Growth.of([array[_within(box, array.shape)] for array in shaped], step).of_touched()
        cells = self._cells[box]
        if large and touched is None and cells.size == self._cells.size:
            self._multiply(growth)
        else:
            self._change(box, growth, large=large, touched=touched)

    def _multiply(self, growth: Growth) -> None:
        """Update every cell. The sum of iterates is settled on the way, which spares a pass over what changes."""
        mass = 0.0
        for part in _blocks(self._cells.shape):
            here = self._cells[part]
            self._rest[part] += np.multiply(here, self._seen, out=self._scratch(0, here.shape))
            here *= growth.factors(part)
            mass += float(here.sum())
        self._mass, self._seen = mass, 0.0

    def _change(self, box: tuple[slice, ...], growth: Growth, *, large: bool, touched: IntArray | None) -> None:
        """Update a box of cells, or the touched rows of it, and correct the sum of iterates there."""
        cells, rest = self._cells[box], self._rest[box]
        parts: Sequence[Part] = [()]
        if large:
            parts = _blocks(cells.shape) if touched is None else _rows(touched, cells.shape)
        for part in parts:
            here = cells[part] if touched is None else self._copied(cells, part)
            change = np.multiply(here, growth.within(part), out=self._scratch(0, here.shape))
            here += change
            self._mass += float(change.sum())
            if not large:
                self._move(box, change)
            if touched is not None:
                cells[part] = here
            change *= self._seen
            below = rest[part] if touched is None else self._copied(rest, part)
            below -= change
            if touched is not None:
                rest[part] = below

    def distance(self, earlier: FloatArray) -> float:
        """Half the sum of absolute differences to an earlier table with the same total, rows x columns."""
        loops = self._loops()
        if loops is not None:
            return loops.distance(self._cells.reshape(earlier.shape), self.scale, earlier)
        before, found = earlier.reshape(self._cells.shape), 0.0
        for part in _blocks(self._cells.shape):
            change = self._cells[part] * self.scale
            change -= before[part]
            found += float(np.abs(change, out=change).sum())
        return found / 2

    def table(self) -> FloatArray:
        """The current table, rows x columns."""
        return (self._cells * self.scale).reshape(self.domain.rows, self.domain.columns)

    def sum_of_tables(self) -> FloatArray:
        """The sum of all tables so far, the first and the current one included, rows x columns."""
        total = self._cells * self._seen
        total += self._rest
        return total.reshape(self.domain.rows, self.domain.columns)

    def _copied(self, table: FloatArray, part: Part) -> FloatArray:
        """The picked rows of a block."""
        rows = np.asarray(part[0])
        return table.take(rows, axis=0, out=self._scratch(1, (len(rows), *table.shape[1:])), mode="clip")

    def _scratch(self, number: int, shape: tuple[int, ...]) -> FloatArray:
        """Memory that is used again: asking the system for more would take longer than the sums."""
        size = math.prod(shape)
        if size > self._spare[number].size:
            self._spare[number] = np.empty(size)
        return self._spare[number][:size].reshape(shape)

    def _shaped(self, attributes: tuple[str, ...], array: FloatArray) -> FloatArray:
        """Weights with one axis per attribute of the domain, of length one where they do not look."""
        names, sizes = self.domain.attributes, self.domain.sizes
        order = [a for a in names if a in attributes]
        across = array.reshape([sizes[a] for a in attributes]).transpose([attributes.index(a) for a in order])
        return across.reshape([sizes[a] if a in attributes else 1 for a in names])

    def _settle(self) -> None:
        """Multiply the normaliser in, settle the sum of iterates, and sum the marginals again."""
        scale = self.total / float(self._cells.sum())
        for part in _blocks(self._cells.shape):
            self._rest[part] += self._seen * self._cells[part]
            self._cells[part] *= scale
        self._mass, self.scale, self._seen, self._rounds = self.total, 1.0, 0.0, 0
        self._stale = True
        self._marginals = marginals(self._cells, self._wanted)

    def _move(self, box: tuple[slice, ...], change: FloatArray) -> None:
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


@dataclass(frozen=True, eq=False)
class Growth:
    """By which share of itself each cell grows: exp(step x product of weights) - 1."""

    weights: Sequence[FloatArray]
    step: float
    two_valued: bool
    """Every weight is zero or one: the share then is the same wherever there is one, and no exponential is needed."""

    @classmethod
    def of(cls, weights: Sequence[FloatArray], step: float) -> Growth:
        tops = [float(w.max(initial=0.0)) for w in weights]
        if all(bool(((w == 0) | (w == top)).all()) for w, top in zip(weights, tops, strict=True)):
            ones = [w / top for w, top in zip(weights, tops, strict=True) if top and not bool((w == top).all())]
            return cls(ones, math.expm1(step * math.prod(tops)), True)
        return cls(weights, step, False)

    def touched(self, shape: tuple[int, ...]) -> IntArray | None:
        """The rows along the first axis that grow at all, if that is known and not nearly all of them do."""
        if not self.two_valued or len(shape) < 2:
            return None
        vectors = [w.reshape(-1) for w in self.weights if _along_first(w)]
        rows = np.flatnonzero(np.prod(vectors, axis=0)) if vectors else np.arange(shape[0])
        return rows if len(rows) <= PICKED_SHARE * shape[0] else None

    def of_touched(self) -> Growth:
        """The same for touched rows only, where weights of the first axis alone are one."""
        return Growth([w for w in self.weights if not _along_first(w)], self.step, self.two_valued)

    @cached_property
    def _series(self) -> tuple[FloatArray, FloatArray] | None:
        """The powers of two arrays of weights, if there are two and each looks at axes of its own, in their order."""
        if self.two_valued or not _one_after_the_other(self.weights):
            return None
        return _powers(self.weights[0], self.weights[1], self.step)

    def within(self, part: Part) -> FloatArray:
        """The shares of one block of cells; of length one along an axis that makes no difference."""
        if self._series is not None:
            return self._product(part, 1)
        found = self._exponents(part)
        if not self.two_valued:
            np.exp(found, out=found)
            found -= 1.0
        return found

    def factors(self, part: Part) -> FloatArray:
        """By what each cell of a block is multiplied: one more than its share."""
        if self._series is not None:
            return self._product(part, 0)
        found = self._exponents(part)
        if self.two_valued:
            found += 1.0
            return found
        return np.exp(found, out=found)

    def _product(self, part: Part, first_term: int) -> FloatArray:
        """The sum of the series from a term on, for one block."""
        assert self._series is not None
        terms = slice(first_term, None)
        first, second = (powers[(terms, *_within(part, powers.shape[1:]))] for powers in self._series)
        shares = first.reshape(len(first), -1).T @ second.reshape(len(second), -1)
        return shares.reshape(np.broadcast_shapes(first.shape[1:], second.shape[1:]))

    def _exponents(self, part: Part) -> FloatArray:
        """The step times all weights, for one block."""
        found: FloatArray = np.array(self.step)
        for weights in self.weights:
            found = found * weights[_within(part, weights.shape)]
        return found


def _cut(shaped: Sequence[FloatArray], shape: tuple[int, ...]) -> int | None:
    """Where no weights look at axes on both sides, so that the table is a matrix whose rows are long, but not too long
    for the processor's nearest cache."""
    places = []
    for cut in range(1, len(shape)):
        across = any(max(a.shape[:cut]) > 1 and max(a.shape[cut:]) > 1 for a in shaped)
        columns = math.prod(shape[cut:])
        if not across and columns >= SHORTEST_ROW:
            places.append((abs(math.log(columns / 1024)), cut))
    return min(places)[1] if places else None


def _all_of(shaped: Sequence[FloatArray], shape: tuple[int, ...]) -> FloatArray:
    """The product of weights, spread over a shape, in one row."""
    found = np.ones(shape)
    for array in shaped:
        found *= array
    return found.reshape(-1)


def _along_first(weights: FloatArray) -> bool:
    """Whether weights look at the first axis and at no other."""
    return len(weights) > 1 and weights.size == len(weights)


def _one_after_the_other(weights: Sequence[FloatArray]) -> bool:
    """Whether there are two arrays, of some length, and the first looks at earlier axes than the second."""
    if len(weights) != 2 or min(w.size for w in weights) < SERIES_LENGTH:
        return False
    first, second = ([axis for axis, n in enumerate(w.shape) if n > 1] for w in weights)
    return max(first) < min(second)


def _powers(first: FloatArray, second: FloatArray, step: float) -> tuple[FloatArray, FloatArray]:
    """exp(step x first x second) as a power series is a thin matrix product of these: no exponential at all."""
    largest = abs(step) * float(np.abs(first).max()) * float(np.abs(second).max())
    terms, left = 1, largest
    while left > 2.0**-55:
        terms += 1
        left *= largest / terms
    rows, columns = (np.ones((terms + 1, *weights.shape)) for weights in (first, second))
    np.multiply.accumulate(np.multiply.outer(1 / np.arange(1, terms + 1), step * first), out=rows[1:])
    np.multiply.accumulate(np.broadcast_to(second, (terms, *second.shape)), out=columns[1:])
    return rows, columns


def _extent(shaped: Sequence[FloatArray], axis: int, size: int) -> slice:
    """From the first to the last value of an axis at which no weight is known to vanish."""
    low, high = 0, size
    for array in shaped:
        if array.shape[axis] > 1:
            some = np.flatnonzero(array.any(axis=tuple(a for a in range(array.ndim) if a != axis)))
            low, high = (max(low, int(some[0])), min(high, int(some[-1]) + 1)) if len(some) else (0, 0)
    return slice(low, max(low, high))


def _blocks(shape: tuple[int, ...]) -> list[Part]:
    """A table cut into blocks along its first axes."""
    cut, size = 0, math.prod(shape)
    while cut < len(shape) - 1 and size > BLOCK_CELLS:
        size //= max(1, shape[cut])
        cut += 1
    if not cut:
        return [tuple(slice(None) for _ in shape)]
    step = max(1, BLOCK_CELLS // max(1, size))
    *outer, last = shape[:cut]
    return [
        (*(slice(i, i + 1) for i in index), slice(start, start + step))
        for index in np.ndindex(*outer)
        for start in range(0, last, step)
    ]


def _halves(count: int) -> list[slice]:
    """The first and the second half of so many things."""
    return [slice(0, count // 2), slice(count // 2, count)]


def _rows(rows: IntArray, shape: tuple[int, ...]) -> list[Part]:
    """Some rows along the first axis, in blocks."""
    step = max(1, BLOCK_CELLS // max(1, math.prod(shape[1:])))
    return [(rows[start : start + step],) for start in range(0, len(rows), step)]


def _within(part: Part, shape: tuple[int, ...]) -> Part:
    """The same block of weights that may have length one along an axis."""
    return tuple(s if n > 1 else slice(None) for s, n in zip(part, shape, strict=False))
