"""Terms of a log-linear model on a dense domain, evaluated by matrix products.

The model gives cell x the weight exp(sum of the potentials of the terms at x). Three kinds of term:

* a clique: one potential per cell of a marginal;
* a stack of product queries: one potential per query, times the query's weight at x;
* weighted sums: one potential per cell of a marginal, times the weight of the row of x.

The domain is laid out as a matrix, left cells by right cells. A clique then is a pair (left part,
right part), and *all* clique marginals of a matrix P come out of one product Aᵀ P B with one-hot
designs A and B, as do all logits from A Θ Bᵀ. That is one pass over the domain instead of one per
clique (measured: ten times less on 37,632 cells and 21 cliques).

A model may be known to be empty outside some cells, its support: it gives them no weight at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpjoin.spec.workload import WEIGHT_BITS, Products
from dpjoin.spec.workload import Scope as Scope

FloatArray = NDArray[np.float64]
Real = TypeVar("Real", bound=np.floating[Any])
RealArray = NDArray[np.floating[Any]]
"""In double precision, or within a fit in single."""
DType = type[np.float32] | type[np.float64]
BoolArray = NDArray[np.bool_]
Marginals = Callable[[Sequence[str]], FloatArray]
"""Any scope's marginal of a model, in rows, axes in the order of the scope."""

SINGLE_CELLS = 2**14
"""Above this many cells a fit sums in single precision: probabilities come out to about 1e-6. What is fitted is double,
and so are answers."""


@dataclass(frozen=True, eq=False)
class Domain:
    """The cells of the model: attributes with their sizes, split into left and right."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    sizes: Mapping[str, int]

    @property
    def attributes(self) -> tuple[str, ...]:
        return self.left + self.right

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.sizes[a] for a in self.attributes)

    @property
    def rows(self) -> int:
        return math.prod(self.sizes[a] for a in self.left)

    @property
    def columns(self) -> int:
        return math.prod(self.sizes[a] for a in self.right)

    @property
    def cells(self) -> int:
        return self.rows * self.columns

    def marginal(self, table: FloatArray, scope: Sequence[str]) -> FloatArray:
        """The marginal of a table of cells, axes in the order of `scope`."""
        kept = [a for a in self.attributes if a in scope]
        summed = table.reshape(self.shape)
        for i in [i for i, a in enumerate(self.attributes) if a not in scope]:
            summed = axis_sum(summed, i + summed.ndim - len(self.attributes))
        return np.transpose(summed, [kept.index(a) for a in scope])

    @classmethod
    def split(cls, sizes: Mapping[str, int], products: Sequence[Products] = ()) -> Domain:
        """Both sides with about the square root of the cells; every part of a product query on one side."""
        names = list(sizes)
        parts = [set(attributes) for group in products for attributes, _ in group.parts]
        if parts:
            left = parts[0]
            if all(p <= left or not p & left for p in parts):
                return cls(tuple(a for a in names if a in left), tuple(a for a in names if a not in left), dict(sizes))
            return cls(tuple(names), (), dict(sizes))
        # Work grows with the two sides: as even as can be, and a key of many values by itself.
        cut = min(
            range(len(names) + 1),
            key=lambda i: math.prod(sizes[a] for a in names[:i]) + math.prod(sizes[a] for a in names[i:]),
        )
        return cls(tuple(names[:cut]), tuple(names[cut:]), dict(sizes))


def _cells(sizes: Mapping[str, int], scope: Sequence[str]) -> int:
    return math.prod(sizes[a] for a in scope)


def slices_of(lengths: Sequence[int]) -> tuple[slice, ...]:
    """Where parts of these lengths lie, one after the other."""
    return tuple(slice(a, b) for a, b in pairwise(accumulate(lengths, initial=0)))


SHORT_RUN = 32
"""Sums over numbers this close in memory are taken as matrix products: numpy's loops are six times slower there."""


def axis_sum(table: NDArray[Real], axis: int) -> NDArray[Real]:
    """The sum over one axis. To drop several, drop the first first: that one runs along memory."""
    before, size, after = math.prod(table.shape[:axis]), table.shape[axis], math.prod(table.shape[axis + 1 :])
    shape = table.shape[:axis] + table.shape[axis + 1 :]
    if before == 1 or after > SHORT_RUN:
        summed: NDArray[Real] = np.add.reduce(table.reshape(before, size, after), axis=1)
        return summed.reshape(shape)
    adding = np.tile(np.eye(after, dtype=table.dtype), (size, 1))
    product: NDArray[Real] = table.reshape(before, size * after) @ adding
    return product.reshape(shape)


def support_of(domain: Domain, attributes: tuple[str, ...], allowed: BoolArray) -> BoolArray:
    """The cells (rows x columns) that lie in the allowed cells of a marginal, its axes in the order of `attributes`."""
    if len(set(attributes)) < len(attributes) or not set(attributes) <= set(domain.attributes):
        raise ValueError(f"the attributes of a support ({attributes}) must be different attributes of the domain")
    shape = tuple(domain.sizes[a] for a in attributes)
    if allowed.shape != shape or allowed.dtype != np.bool_:
        raise ValueError(f"the allowed cells must be booleans of shape {shape}; got {allowed.dtype} {allowed.shape}")
    kept = [a for a in domain.attributes if a in attributes]
    across = np.transpose(allowed, [attributes.index(a) for a in kept])
    across = across.reshape([domain.sizes[a] if a in attributes else 1 for a in domain.attributes])
    return np.broadcast_to(across, domain.shape).reshape(domain.rows, domain.columns)


SPARSE_ENTRIES = 2**16
"""Beyond this many entries one-hot designs are sparse: a key of many values would fill the memory with zeros."""
SPARSE_SIDE_ENTRIES = 2**19
"""The same for cliques within one side. Those are multiplied by vectors only, where zeros cost little time."""


def _one_hot(domain: Domain, side: tuple[str, ...], part: tuple[str, ...], most: int, dtype: DType) -> Any:
    """For each cell of a side, which cell of `part` it lies in: a matrix of zeros and ones, sparse if it is large."""
    shape = tuple(domain.sizes[a] for a in side)
    cells = math.prod(shape)
    index = np.zeros(cells, dtype=np.int64)
    grid = np.unravel_index(np.arange(cells), shape) if side else ()
    for attribute in part:
        index = index * domain.sizes[attribute] + grid[side.index(attribute)]
    width = math.prod(domain.sizes[a] for a in part)
    if cells * width > most:
        from scipy.sparse import csr_array

        return csr_array((np.ones(cells, dtype=dtype), index, np.arange(cells + 1)), shape=(cells, width))
    design = np.zeros((cells, width), dtype=dtype)
    design[np.arange(cells), index] = 1.0
    return design


def side_by_side(
    domain: Domain, side: tuple[str, ...], parts: Sequence[tuple[str, ...]], most: int, dtype: DType
) -> tuple[Any, dict[tuple[str, ...], int]]:
    """The one-hot designs of several parts of one side, side by side, and where each one starts."""
    designs = [_one_hot(domain, side, part, most, dtype) for part in parts]
    starts = np.cumsum([0] + [d.shape[1] for d in designs])
    at = dict(zip(parts, map(int, starts), strict=False))
    if any(not isinstance(d, np.ndarray) for d in designs):
        from scipy.sparse import csr_array, hstack

        return hstack([csr_array(d) for d in designs], format="csr"), at
    empty = np.zeros((math.prod(domain.sizes[a] for a in side), 0), dtype=dtype)
    return np.concatenate([empty, *designs], axis=1), at


@dataclass(frozen=True, eq=False)
class WeightedSums:
    """Marginals summed over one attribute, each of its values with a weight."""

    weights: FloatArray
    """One for each row, that is for each cell of the domain's left side."""
    scopes: tuple[Scope, ...]
    """Attributes of the right side, by which each sum is taken."""


@dataclass(frozen=True, eq=False)
class Terms:
    """Cliques, product queries and weighted sums on one domain. Potentials are one flat vector, term after term."""

    domain: Domain
    cliques: tuple[Scope, ...]
    products: tuple[Products, ...] = ()
    support: BoolArray | None = None
    """The cells (rows x columns) outside which the model is known to be empty; None: all of them."""
    sums: WeightedSums | None = None

    def __post_init__(self) -> None:
        shape = (self.domain.rows, self.domain.columns)
        if self.sums is not None and (self.products or self.sums.weights.shape != shape[:1]):
            raise ValueError(f"weighted sums must have {shape[0]} weights and no product queries beside them")
        if self.support is None:
            return
        if self.support.shape != shape or self.support.dtype != np.bool_ or not self.support.any():
            raise ValueError(f"a support must be booleans of shape {shape}, not all false")

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.domain.sizes

    @property
    def cells(self) -> int:
        return self.domain.cells

    @cached_property
    def outside(self) -> BoolArray | None:
        """The cells known to be empty, if any."""
        return None if self.support is None or self.support.all() else ~self.support

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each term's potentials lie: the cliques, then the product groups or the sums."""
        scopes = (*self.cliques, *(self.sums.scopes if self.sums else ()))
        return slices_of([*(_cells(self.sizes, s) for s in scopes), *(len(p) for p in self.products)])

    @property
    def size(self) -> int:
        return self.slices[-1].stop if self.slices else 0

    @property
    def clique_size(self) -> int:
        return self.slices[len(self.cliques) - 1].stop if self.cliques else 0

    @cached_property
    def _designs(self) -> dict[DType, Designs]:
        return {}

    def designs(self, dtype: DType) -> Designs:
        """The cliques' designs in some precision, made when they are first needed."""
        if dtype not in self._designs:
            self._designs[dtype] = Designs.build(self.domain, self.cliques, dtype)
        return self._designs[dtype]

    @cached_property
    def weights(self) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """Each product group as (queries x rows, queries x columns) real weights."""
        return tuple(_side_weights(self.domain, group) for group in self.products)

    @cached_property
    def _summed(self) -> tuple[FloatArray, Any] | None:
        """The sums' weights, and which cell of each sum a column lies in, sums side by side."""
        if self.sums is None:
            return None
        domain = self.domain
        columns = side_by_side(domain, domain.right, self.sums.scopes, SPARSE_SIDE_ENTRIES, np.float64)
        return self.sums.weights, columns[0]

    def answers(self, table: RealArray, *, power: int = 1) -> FloatArray:
        """All terms' totals on a table of cells (rows x columns): marginal cells, query answers, sums.

        With a power, every weight is raised to it.
        """
        parts = [self.designs(table.dtype.type).marginals(table)]
        parts += [np.einsum("qc,qc->q", u**power @ table, v**power) for u, v in self.weights]
        if self._summed is not None:
            weights, columns = self._summed
            parts.append((weights**power @ table) @ columns)
        return np.concatenate(parts, dtype=np.float64)

    def logits(self, potentials: FloatArray, out: RealArray) -> RealArray:
        """Write the sum of the potentials at every cell to `out`, rows x columns."""
        first = self.clique_size
        self.designs(out.dtype.type).logits(potentials[:first], out)
        for (u, v), where in zip(self.weights, self.slices[len(self.cliques) :], strict=False):
            out += u.T @ (potentials[where][:, None] * v)
        if self._summed is not None:
            weights, columns = self._summed
            out += np.outer(weights, columns @ potentials[first:])
        return out

    def exponentials(self, potentials: FloatArray, out: RealArray) -> None:
        """Write exp(logits) to `out`, scaled so that the largest is one; zeros outside the support."""
        self.logits(potentials, out)
        if self.outside is not None:
            # Before the maximum is taken: a large logit out there must not push the ones inside to zero.
            np.copyto(out, -np.inf, where=self.outside)
        out -= out.max()
        np.exp(out, out=out)

    def table(self, potentials: FloatArray, total: float, dtype: DType = np.float64) -> NDArray[Any]:
        """The model's cells, rows x columns: total * softmax of the logits."""
        table: RealArray = np.empty((self.domain.rows, self.domain.columns), dtype)
        self.exponentials(potentials, table)
        # A number of numpy's would multiply in double precision, which one of Python's, from a folder, does not.
        table *= dtype(total / float(table.sum()))
        return table

    def marginals(self, potentials: FloatArray, total: float, dtype: DType = np.float64) -> Marginals:
        """All marginals of the model, from a table of its cells."""
        return partial(self.domain.marginal, self.table(potentials, total, dtype))

    def oracle(self) -> DenseOracle:
        return DenseOracle(self)

    @cached_property
    def _open(self) -> FloatArray:
        """One for every clique cell that may hold something, else zero."""
        if self.support is None:
            return np.ones(self.size)
        return np.minimum(self.answers(self.support.astype(np.float64)), 1.0)

    def inside(self, number: int, scope: Scope) -> FloatArray:
        """How many cells of a clique that may hold something lie in each cell of `scope`, a part of the clique."""
        clique = Domain(self.cliques[number], (), self.domain.sizes)
        return clique.marginal(self._open[self.slices[number]], scope).reshape(-1)

    def folded(self, potentials: FloatArray) -> FloatArray:
        """Potentials of the cliques alone that make the same model: a sum's are part of those of its rows and cells."""
        out = potentials[: self.clique_size].copy()
        if self.sums is not None:
            for scope, where in zip(self.sums.scopes, self.slices[len(self.cliques) :], strict=True):
                at = self.slices[self.cliques.index(self.domain.left + scope)]
                out[at] += np.outer(self.sums.weights, potentials[where]).reshape(-1)
        return out


class DenseOracle:
    """Means and covariances of the terms, by sums over a table of all cells, in memory that is used again."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        only_cliques = not (terms.products or terms.sums)
        dtype: DType = np.float32 if only_cliques and terms.cells > SINGLE_CELLS else np.float64
        self._table: RealArray = np.empty((terms.domain.rows, terms.domain.columns), dtype)
        self._slope = np.empty_like(self._table)
        self._mass = 1.0
        self._at: FloatArray | None = None
        self._mean = np.zeros(0)

    def means(self, potentials: FloatArray) -> FloatArray:
        """What each term is on average. Asked twice at the same place, it works them out once."""
        if self._at is None or not np.array_equal(potentials, self._at):
            self.terms.exponentials(potentials, self._table)
            sums = self.terms.answers(self._table)
            # A marginal's cells add up to all cells, and are fewer.
            self._mass = float(sums[self.terms.slices[0]].sum() if self.terms.cliques else self._table.sum())
            self._mean = sums / self._mass
            self._at = potentials.copy()
        return self._mean

    def variances(self, potentials: FloatArray) -> FloatArray:
        """The variance of each term; a clique's terms are zero or one."""
        means = self.means(potentials)
        if not (self.terms.products or self.terms.sums):
            return means * (1.0 - means)
        return self.terms.answers(self._table, power=2) / self._mass - means**2

    def covariances(self, direction: FloatArray) -> FloatArray:
        """At the potentials of the last call of `means`: how fast the means move when potentials move like this."""
        self.terms.logits(direction, self._slope)
        self._slope *= self._table
        return self.terms.answers(self._slope) / self._mass - float(direction @ self._mean) * self._mean


@dataclass(frozen=True, eq=False)
class Designs:
    """One-hot designs of the cliques: those across both sides, and those within one."""

    cross_left: Any
    cross_right: Any
    only_left: Any
    only_right: Any
    places: NDArray[np.int64]
    """Where each clique cell lies in (blocks of cross_left x cross_right, only_left, only_right)."""

    @cached_property
    def _right_and_ones(self) -> RealArray:
        """The right side's designs, ones, and zeros up to a multiple of 16 columns, where BLAS is faster."""
        cells, tall = self.cross_right.shape
        out: RealArray = np.zeros((cells, -(-(tall + 1) // 16) * 16), self.cross_right.dtype)
        out[:, :tall], out[:, tall] = self.cross_right, 1.0
        return out

    @cached_property
    def _right_and_sums(self) -> RealArray:
        """The right side's designs, lying along rows, ones, and room for its own sums."""
        room = np.ones((2, self.cross_right.shape[0]), self.cross_right.dtype)
        return np.concatenate([self.cross_right.T, room])

    def marginals(self, table: RealArray) -> RealArray:
        """All cliques' marginals of a table of cells, clique after clique."""
        # Sums as products with ones: those add up along rows several times as fast.
        if isinstance(self.cross_right, np.ndarray):
            tall = self.cross_right.shape[1]
            both = table @ self._right_and_ones
            blocks, rows = self.cross_left.T @ both[:, :tall], both[:, tall]
        else:
            blocks = self.cross_left.T @ (table @ self.cross_right)
            rows = np.asarray(table @ np.ones(table.shape[1], table.dtype))
        columns = np.ones(table.shape[0], table.dtype) @ table
        sums = [blocks.reshape(-1), self.only_left.T @ rows, self.only_right.T @ columns]
        return np.concatenate(sums)[self.places]

    def logits(self, potentials: FloatArray, out: RealArray) -> None:
        """Write the sum of the cliques' potentials at every cell to `out`."""
        wide, tall = self.cross_left.shape[1], self.cross_right.shape[1]
        spread = np.zeros(wide * tall + self.only_left.shape[1] + self.only_right.shape[1], out.dtype)
        spread[self.places] = potentials
        middle, end = wide * tall, wide * tall + self.only_left.shape[1]
        blocks, rows, columns = spread[:middle], spread[middle:end], spread[end:]
        left = self.cross_left @ blocks.reshape(wide, tall)
        by_row, by_column = (self.only_left @ rows)[:, None], (self.only_right @ columns)[:, None]
        if isinstance(self.cross_right, np.ndarray):
            # Both sides' own sums ride along as two more columns of one product.
            right = self._right_and_sums
            right[-1] = by_column[:, 0]
            np.matmul(np.concatenate([left, by_row, np.ones_like(by_row)], axis=1), right, out=out)
        else:
            np.add(left @ self.cross_right.T, by_row, out=out)
            out += by_column.T

    @classmethod
    def build(cls, domain: Domain, cliques: Sequence[tuple[str, ...]], dtype: DType) -> Designs:
        parts = [tuple(tuple(a for a in side if a in c) for side in (domain.left, domain.right)) for c in cliques]
        cross = [(lp, rp) for lp, rp in parts if lp and rp]
        lefts, rights = (list(dict.fromkeys(pair[i] for pair in cross)) for i in (0, 1))
        cross_left, left_at = side_by_side(domain, domain.left, lefts, SPARSE_ENTRIES, dtype)
        cross_right, right_at = side_by_side(domain, domain.right, rights, SPARSE_ENTRIES, dtype)
        lefts, rights = [lp for lp, rp in parts if not rp], [rp for lp, rp in parts if rp and not lp]
        only_left, row_at = side_by_side(domain, domain.left, lefts, SPARSE_SIDE_ENTRIES, dtype)
        only_right, column_at = side_by_side(domain, domain.right, rights, SPARSE_SIDE_ENTRIES, dtype)
        wide, tall = cross_left.shape[1], cross_right.shape[1]
        places = []
        for clique, (lp, rp) in zip(cliques, parts, strict=True):
            here = np.arange(math.prod(domain.sizes[a] for a in lp))
            there = np.arange(math.prod(domain.sizes[a] for a in rp))
            if lp and rp:
                place = (left_at[lp] + here)[:, None] * tall + right_at[rp] + there
            elif lp or not rp:
                place = wide * tall + row_at[lp] + here
            else:
                place = wide * tall + only_left.shape[1] + column_at[rp] + there
            part = lp + rp
            table = place.reshape([domain.sizes[a] for a in part])
            places.append(np.transpose(table, [part.index(a) for a in clique]).reshape(-1))
        flat = np.concatenate(places) if places else np.zeros(0, dtype=np.int64)
        return cls(cross_left, cross_right, only_left, only_right, flat)


def _side_weights(domain: Domain, group: Products) -> tuple[FloatArray, FloatArray]:
    """A product group's weights on the left and on the right cells, as real numbers."""
    sides: list[FloatArray] = []
    for side in (domain.left, domain.right):
        total: Any = np.ones((len(group), math.prod(domain.sizes[a] for a in side)))
        sides.append(total)
    for attributes, weights in group.parts:
        i = 0 if set(attributes) <= set(domain.left) else 1
        design = _one_hot(domain, (domain.left, domain.right)[i], attributes, SPARSE_ENTRIES, np.float64)
        sides[i] = sides[i] * (np.ldexp(weights.astype(np.float64), -WEIGHT_BITS) @ design.T)
    return sides[0], sides[1]
