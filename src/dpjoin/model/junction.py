"""A junction tree: exact sums over a domain too large to write down.

The model gives cell x the weight exp(sum of the potentials of the cliques at x), as in `terms`. Where the
cliques hang together loosely, sums over all cells factor into sums over *bags*: sets of attributes in a tree,
each clique inside a bag, and the bags with one attribute connected. Memory and time grow with the cells of the
bags, not with those of the domain, and are known before anything is allocated.

The tree has one root: parts of the model that share nothing are joined by an empty separator, across which
messages are single numbers. Each bag is kept as P(the rest of the bag | what it shares with its parent).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from dpjoin.model.factor import Factor, product
from dpjoin.model.sampling import drawn, evenly
from dpjoin.model.terms import (
    SINGLE_CELLS,
    SPARSE_ENTRIES,
    SPARSE_SIDE_ENTRIES,
    Designs,
    Domain,
    DType,
    FloatArray,
    Marginals,
    RealArray,
    Scope,
    axis_sum,
    slices_of,
)
from dpjoin.spec.workload import IntArray

MOST_TREE_CELLS = 2**24
"""A tree of more cells is refused: one step of a fit would take a second, and a few copies fill a gigabyte."""
ROWS, COLUMNS = "\0rows", "\0columns"
"""Axes that are no attribute: the values of many attributes, one below the other."""


class TooLargeError(ValueError):
    """A marginal that would take too much memory."""


@dataclass(frozen=True, eq=False)
class JunctionTree:
    """Bags of attributes in a tree, for given cliques. Cheap: it holds names and numbers, no cells.

    >>> from dpjoin.model.triangulate import tree_of
    >>> tree = tree_of({"a": 2, "b": 3, "c": 4}, [("a", "b"), ("b", "c")])
    >>> sorted(tree.bags), tree.cells, tree.largest
    ([('b', 'a'), ('b', 'c')], 18, 12)
    """

    sizes: Mapping[str, int]
    cliques: tuple[Scope, ...]
    """Where potentials live, as given."""
    bags: tuple[Scope, ...]
    """Parents before children. What a bag shares with its parent comes first, in the parent's order."""
    parents: tuple[int, ...]
    """The parent of each bag; -1 at the root."""
    shared: tuple[int, ...]
    """How many attributes each bag shares with its parent."""

    @property
    def cells(self) -> int:
        """The cells of all bags: the memory of one copy of a calibrated tree."""
        return sum(self._cells(bag) for bag in self.bags)

    @property
    def largest(self) -> int:
        """The cells of the largest bag."""
        return max(self._cells(bag) for bag in self.bags)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each clique's potentials lie in one flat vector."""
        return slices_of([self._cells(c) for c in self.cliques])

    @cached_property
    def places(self) -> dict[Scope, int]:
        """The number of each clique."""
        return {clique: i for i, clique in enumerate(self.cliques)}

    @property
    def size(self) -> int:
        """The number of potentials."""
        return self.slices[-1].stop if self.slices else 0

    def cut(self, names: Scope, table: FloatArray) -> Iterator[tuple[str, FloatArray]]:
        """The rows of a table that has the values of some attributes one below the other, attribute by attribute."""
        return zip(names, np.split(table, np.cumsum([self.sizes[a] for a in names])[:-1]), strict=True)

    def inside(self, number: int, scope: Scope) -> FloatArray:
        """How many cells of a clique lie in each cell of `scope`, a part of the clique."""
        cells = self._cells(scope)
        return np.full(cells, self._cells(self.cliques[number]) / cells)

    def home(self, scope: Iterable[str]) -> int | None:
        """The smallest bag that holds all of a scope, if there is one."""
        wanted = set(scope)
        holding = [b for b, bag in enumerate(self.bags) if wanted.issubset(bag)]
        return min(holding, key=lambda b: self._cells(self.bags[b]), default=None)

    def check(self, most: int = MOST_TREE_CELLS) -> None:
        """Refuse a tree that is too large to calibrate."""
        if self.cells > most:
            raise ValueError(
                f"cells of the junction tree ({self.cells}) must be at most {most}; "
                "take fewer or smaller cliques, or ones that overlap in fewer cycles"
            )

    def oracle(self) -> Passes:
        """Means and covariances of the cliques' cells, for a fit."""
        return Passes(self, np.float32 if self.cells > SINGLE_CELLS else np.float64)

    def marginals(self, potentials: FloatArray, total: float) -> Marginals:
        """All marginals of so many rows of the model."""
        return partial(self.calibrate(potentials).counts, total)

    def calibrate(self, potentials: FloatArray) -> Calibrated:
        """The distribution proportional to exp(sum of the potentials), which are one flat vector, clique by clique."""
        self.check()
        if potentials.shape != (self.size,):
            raise ValueError(f"potentials ({potentials.shape}) must be {self.size}, one per cell of a clique")
        passes = Passes(self, np.float64)
        upward = passes.ancestral(potentials)
        of_cliques = passes.down()
        marginals: list[FloatArray] = [passes.marginal(b) for b in range(len(self.bags))]
        for table in (*upward.given, *marginals, of_cliques):
            table.setflags(write=False)  # answers may be views of these
        return Calibrated(self, upward.log_partition, upward.given, tuple(marginals), of_cliques)

    def _cells(self, scope: Scope) -> int:
        return math.prod(self.sizes[a] for a in scope)

    @cached_property
    def plan(self) -> tuple[_Bag, ...]:
        """Every shape and axis that a pass needs, worked out once."""
        inside: list[list[int]] = [[] for _ in self.bags]
        for i, clique in enumerate(self.cliques):
            home = self.home(clique)
            assert home is not None, "every clique lies in a bag"
            inside[home].append(i)
        children: list[list[int]] = [[] for _ in self.bags]
        for c, parent in enumerate(self.parents):
            if parent >= 0:
                children[parent].append(c)
        return tuple(self._planned(b, inside[b], children[b]) for b in range(len(self.bags)))

    def _planned(self, b: int, inside: Sequence[int], children: Sequence[int]) -> _Bag:
        bag, shared = self.bags[b], self.shared[b]
        laid = bag[shared:] + bag[:shared]
        cut = min(range(len(laid) + 1), key=lambda i: self._cells(laid[:i]) + self._cells(laid[i:]))
        domain = Domain(laid[:cut], laid[cut:], self.sizes)
        # Designs hold a set of attributes once: of cliques that are alike, the first.
        different = {frozenset(self.cliques[i]): i for i in reversed(inside)}.values()
        by_design = [i for i in inside if i in different and _fits_designs(domain, self.cliques[i])]
        places = [np.arange(self.slices[i].start, self.slices[i].stop) for i in by_design]
        return _Bag(
            shape=tuple(self.sizes[a] for a in bag),
            laid=tuple(self.sizes[a] for a in laid),
            order=tuple(laid.index(a) for a in bag),
            shared=shared,
            children=tuple(children),
            domain=domain,
            by_design=tuple(self.cliques[i] for i in by_design),
            places=np.concatenate([np.zeros(0, dtype=np.int64), *places]),
            cliques=tuple((self.slices[i], _within(laid, self.cliques[i])) for i in inside if i not in by_design),
            separators=tuple((c, _within(laid, self.bags[c][: self.shared[c]])) for c in children),
        )

    @cached_property
    def _designs(self) -> dict[DType, list[Designs]]:
        return {}

    def designs(self, dtype: DType) -> list[Designs]:
        """The designs of all bags, made when they are first needed."""
        if dtype not in self._designs:
            self._designs[dtype] = [Designs.build(bag.domain, bag.by_design, dtype) for bag in self.plan]
        return self._designs[dtype]


WIDEST_DESIGN = 32
"""A clique of more cells than this on the right of its bag is added cell by cell: a product would do needless work."""


def _fits_designs(domain: Domain, clique: Scope) -> bool:
    """Whether a clique is quicker as one of many in a matrix product than by itself."""
    left, right = (math.prod(domain.sizes[a] for a in side if a in clique) for side in (domain.left, domain.right))
    if left == 1 or right == 1:
        return max(domain.rows * left, domain.columns * right) <= SPARSE_SIDE_ENTRIES
    return right <= WIDEST_DESIGN and max(domain.rows * left, domain.columns * right) <= SPARSE_ENTRIES


@dataclass(frozen=True, eq=False, slots=True)
class _Bag:
    """What a pass needs to know of one bag.

    Within a pass the axes that it shares with its parent come last: sums over the others then run along memory.
    """

    shape: tuple[int, ...]
    laid: tuple[int, ...]
    """The shape within a pass."""
    order: tuple[int, ...]
    """From there, the axes in the order of the bag."""
    shared: int
    children: tuple[int, ...]
    domain: Domain
    """The cells as a matrix, for the cliques that are taken by designs."""
    by_design: tuple[Scope, ...]
    places: IntArray
    """Where their potentials are, among all."""
    cliques: tuple[tuple[slice, _Within], ...]
    """The other cliques: where their potentials are, and their axes."""
    separators: tuple[tuple[int, _Within], ...]
    """What is shared with each child."""


@dataclass(frozen=True, eq=False, slots=True)
class _Within:
    """Some axes of a table, in an order of their own."""

    dropped: tuple[int, ...]
    """The table's other axes, the first first."""
    to: tuple[int, ...]
    """How to put what is left into the own order."""
    back: tuple[int, ...]
    """And back."""

    def marginal(self, table: RealArray) -> RealArray:
        """The table summed over all other axes."""
        for n, axis in enumerate(self.dropped):
            table = axis_sum(table, axis - n)
        return table.transpose(self.to)

    def spread(self, values: RealArray, shape: tuple[int, ...]) -> RealArray:
        """Values by the own axes, to be added to a table of this shape."""
        kept = [n for axis, n in enumerate(shape) if axis not in self.dropped]
        values = values.reshape([kept[i] for i in self.to]).transpose(self.back)
        return values.reshape([1 if axis in self.dropped else n for axis, n in enumerate(shape)])


def _within(axes: Scope, scope: Scope) -> _Within:
    kept = [a for a in axes if a in scope]
    dropped = tuple(i for i, a in enumerate(axes) if a not in scope)
    return _Within(dropped, tuple(kept.index(a) for a in scope), tuple(scope.index(a) for a in kept))


class Passes:
    """Room for passes up and down a tree, for one distribution after the other, in double or in single precision.

    `up` leaves exp(what the bag and all below it say) in each table, the largest of each separator cell taken out, so
    that nothing overflows; `down` makes probabilities of them. Not for two threads at once.
    """

    def __init__(self, tree: JunctionTree, dtype: DType) -> None:
        self.tree = tree
        self.dtype = dtype
        self._designs = tree.designs(dtype)
        self._tables: list[RealArray] = [np.empty(bag.laid, dtype) for bag in tree.plan]
        self._slopes: list[RealArray] = []
        none: RealArray = np.zeros(0, dtype)
        self._mass, self._passed = [none] * len(tree.bags), [none] * len(tree.bags)
        self._at: FloatArray | None = None
        self._mean = np.zeros(0)

    def variances(self, potentials: FloatArray) -> FloatArray:
        """The variance of every clique cell's indicator."""
        means = self.means(potentials)
        return means * (1.0 - means)

    def means(self, potentials: FloatArray) -> FloatArray:
        """P(clique) of every clique, as one flat vector, from potentials alike."""
        if self._at is None or not np.array_equal(potentials, self._at):
            self.up(potentials)
            self._mean = self.down()
            self._at = potentials.copy()
        return self._mean

    def up(self, potentials: FloatArray) -> float:
        """From the leaves to the root; the logarithm of the sum over all cells."""
        upwards: list[RealArray] = [np.zeros(0, self.dtype)] * len(self.tree.bags)
        for b in reversed(range(len(self.tree.bags))):
            table = self._tables[b]
            self._gather(b, potentials, upwards, table)
            top = self._over_rest(np.maximum, b, table)
            table -= top
            np.exp(table, out=table)
            self._mass[b] = self._over_rest(np.add, b, table)
            upwards[b] = top + np.log(self._mass[b])
        return float(upwards[0])

    def ancestral(self, potentials: FloatArray) -> Ancestral:
        """Pass up, and keep P(the rest | the separator) of each bag as a matrix, separator by rest."""
        log_partition = self.up(potentials)
        if not math.isfinite(log_partition):
            raise ValueError(f"the potentials' log-partition ({log_partition}) must be finite; so must all potentials")
        tables = zip(self._tables, self._mass, strict=True)
        given: list[Any] = [(table / mass).reshape(-1, mass.size).T for table, mass in tables]
        return Ancestral(self.tree, log_partition, tuple(given))

    def down(self) -> FloatArray:
        """After `up`, from the root to the leaves: P(clique) of every clique."""
        out = np.empty(self.tree.size)
        passed: list[RealArray] = [np.ones((), self.dtype)] * len(self.tree.bags)
        for b, table in enumerate(self._tables):
            table *= passed[b] / self._mass[b]
            self._scatter(b, table, passed, out)
        self._passed = passed
        return out

    def marginal(self, bag: int) -> Any:
        """After `down`: P(bag), one axis per attribute."""
        return self._tables[bag].transpose(self.tree.plan[bag].order)

    def covariances(self, direction: FloatArray) -> FloatArray:
        """After `down`: how fast the clique marginals move when the potentials move in a direction; flat.

        This is Cov(the clique's indicators, sum of the direction over all cliques), worked out by differentiating
        both passes. The covariance is symmetric, so the same call also gives the gradient of a fit.
        """
        if not self._slopes:
            self._slopes = [np.empty_like(table) for table in self._tables]
        upwards: list[RealArray] = [np.zeros(0, self.dtype)] * len(self.tree.bags)
        for b in reversed(range(len(self.tree.bags))):
            slope = self._slopes[b]
            self._gather(b, direction, upwards, slope)
            mean = self._over_rest(np.add, b, slope * self._tables[b])
            # Where the separator is empty nothing moves.
            upwards[b] = np.divide(mean, self._passed[b], out=np.zeros_like(mean), where=self._passed[b] > 0)
        out = np.empty(self.tree.size)
        passed: list[RealArray] = [np.zeros((), self.dtype)] * len(self.tree.bags)
        for b, slope in enumerate(self._slopes):
            here = self._passed[b]
            slope += np.divide(passed[b], here, out=np.zeros_like(here), where=here > 0) - upwards[b]
            slope *= self._tables[b]
            self._scatter(b, slope, passed, out)
        return out

    def _gather(self, b: int, potentials: FloatArray, upwards: Sequence[RealArray], out: RealArray) -> None:
        """Write the sum of a bag's potentials, and of what its children sent, to a table."""
        bag = self.tree.plan[b]
        self._designs[b].logits(potentials[bag.places], out.reshape(bag.domain.rows, bag.domain.columns))
        for where, within in bag.cliques:
            out += within.spread(potentials[where].astype(self.dtype, copy=False), bag.laid)
        for child, within in bag.separators:
            out += within.spread(upwards[child], bag.laid)

    def _scatter(self, b: int, table: RealArray, passed: list[RealArray], out: FloatArray) -> None:
        """Write down a table's marginals of cliques and of what its children share."""
        bag = self.tree.plan[b]
        out[bag.places] = self._designs[b].marginals(table.reshape(bag.domain.rows, bag.domain.columns))
        for where, within in bag.cliques:
            out[where] = within.marginal(table).reshape(-1)
        for child, within in bag.separators:
            passed[child] = within.marginal(table)

    def _over_rest(self, what: np.ufunc, b: int, table: RealArray) -> RealArray:
        """Reduce to the axes that are shared with the parent, one axis after the other, always along memory."""
        shared = self.tree.shared[b]
        if not shared:
            return np.asarray(what.reduce(table.reshape(-1)))
        while table.ndim > shared:
            table = what.reduce(table, axis=0)
        return table


@dataclass(frozen=True, eq=False)
class Ancestral:
    """A distribution over all attributes, as one conditional table per bag of a tree."""

    tree: JunctionTree
    log_partition: float
    given: tuple[FloatArray, ...]
    """For each bag, P(rest | separator) as a matrix."""

    def sample(self, rows: int, rng: np.random.Generator, *, even: bool = False) -> dict[str, IntArray]:
        """Rows as one array of codes per attribute: the root first, then each bag given what it shares.

        With `even`, the rows that agree on a separator are spread over the rest as evenly as whole numbers allow, in
        random order: each row has the same distribution as before, but counts stray less from what is expected.
        """
        if rows < 0:
            raise ValueError(f"rows ({rows}) must not be negative")
        tree = self.tree
        codes: dict[str, IntArray] = {}
        for b, bag in enumerate(tree.bags):
            passed, rest = bag[: tree.shared[b]], bag[tree.shared[b] :]
            group = np.zeros(rows, dtype=np.int64)
            for attribute in passed:
                group = group * tree.sizes[attribute] + codes[attribute]
            place = drawn(self.given[b], group, evenly(group, rng) if even else rng.random(rows))
            for attribute in reversed(rest):
                place, codes[attribute] = np.divmod(place, tree.sizes[attribute])
        return {attribute: codes[attribute] for attribute in tree.sizes}


@dataclass(frozen=True, eq=False)
class Calibrated(Ancestral):
    """A distribution over all attributes, as one table per bag of a tree.

    >>> from dpjoin.model.triangulate import tree_of
    >>> tree = tree_of({"a": 2, "b": 2}, [("a", "b")])
    >>> both = tree.calibrate(np.log([1.0, 2.0, 3.0, 4.0]))
    >>> round(float(np.exp(both.log_partition)), 9), both.marginal(("b",)).round(9).tolist()
    (10.0, [0.4, 0.6])
    """

    marginals: tuple[FloatArray, ...]
    """For each bag, P(bag), one axis per attribute."""
    of_cliques: FloatArray
    """P(clique) of every clique, as one flat vector."""

    def marginal(self, scope: Sequence[str]) -> FloatArray:
        """P(scope), axes in the order of `scope`, whether or not one bag holds it; not to be written to.

        The first pair that no bag holds works out all pairs: that is hardly dearer than one of them.
        """
        wanted = tuple(scope)
        unknown = [a for a in wanted if a not in self.tree.sizes]
        if unknown or len(set(wanted)) < len(wanted):
            raise ValueError(f"a scope {wanted} must be different attributes of the tree: {', '.join(self.tree.sizes)}")
        clique = self.tree.places.get(wanted)
        if clique is not None:
            return self.of_cliques[self.tree.slices[clique]].reshape([self.tree.sizes[a] for a in wanted])
        home = self.tree.home(wanted)
        if home is not None:
            return self._bag(home).marginal(wanted).array
        if len(wanted) == 2 and self._pairs_fit:
            return self._pairs[wanted] if wanted in self._pairs else self._pairs[wanted[::-1]].T
        return self._across(wanted)

    def counts(self, total: float, scope: Sequence[str]) -> FloatArray:
        """A marginal of so many rows."""
        return total * self.marginal(scope)

    @cached_property
    def _across(self) -> Callable[[Scope], FloatArray]:
        """P(scope) for a scope that no bag holds; the last one is kept, since bars ask for it several times."""
        return lru_cache(maxsize=1)(self._carried_up)

    def _bag(self, b: int) -> Factor:
        """P(bag)."""
        return Factor(self.tree.bags[b], self.marginals[b])

    def _given(self, b: int) -> Factor:
        """P(the rest of the bag | what it shares with its parent)."""
        return Factor(self.tree.bags[b], self.given[b].reshape(self.tree.plan[b].shape))

    def _carried_up(self, scope: Scope) -> FloatArray:
        """P(scope) for any scope: carry its attributes up to the lowest bag that has them all below it."""
        tree, wanted = self.tree, set(scope)
        self._check_cells(scope, wanted)
        carried: list[Factor | None] = [None] * len(tree.bags)
        for b in reversed(range(len(tree.bags))):
            bag = tree.bags[b]
            below = [f for c in tree.plan[b].children if (f := carried[c]) is not None]
            here = wanted.intersection(bag).union(*(wanted.intersection(f.names) for f in below))
            found = here == wanted
            passed = set(bag[: tree.shared[b]])
            if not found and here <= passed:
                continue
            factor = self._bag(b) if found else self._given(b)
            keep = here if found else here | passed
            for i, other in enumerate(below):
                later = keep.union(*(f.names for f in below[i + 1 :]))
                self._check_cells(scope, later & {*factor.names, *other.names})
                factor = product(factor, other, later)
            if found:
                made = factor.marginal(scope).array
                made.setflags(write=False)  # it may be handed out again
                return made
            carried[b] = factor.marginal(tuple(a for a in factor.names if a in keep))
        raise AssertionError("the root has every attribute below it")

    def _check_cells(self, scope: Scope, axes: Iterable[str]) -> None:
        cells = math.prod(self.tree.sizes[a] for a in axes)
        if cells > MOST_TREE_CELLS:
            raise TooLargeError(
                f"cells needed for the marginal of {', '.join(scope)} ({cells}) must be at most {MOST_TREE_CELLS}; "
                "ask for fewer attributes at once"
            )

    @cached_property
    def _pairs_fit(self) -> bool:
        """Whether all pairs together take little enough memory."""
        values = sum(self.tree.sizes.values())
        return values * (values + sum(len(given) for given in self.given)) <= MOST_TREE_CELLS

    @cached_property
    def _pairs(self) -> dict[tuple[str, str], FloatArray]:
        """P(a, b) of all pairs that no bag holds, in the order of the tree's attributes.

        Going up, every bag knows P(a | separator) of all attributes a below it, one below the other in one matrix.
        Two attributes meet at the lowest bag that has both below it, in one product for all that meet there. Others
        that this product pairs have met before, further down, or lie in a bag.
        """
        tree, order = self.tree, {a: n for n, a in enumerate(self.tree.sizes)}
        pairs: dict[tuple[str, str], FloatArray] = {}
        known: list[_Stack] = [_Stack((), Factor((), np.zeros(0)))] * len(tree.bags)
        for b in reversed(range(len(tree.bags))):
            bag, shared = tree.bags[b], tree.shared[b]
            # Children that share the same with this bag are one stack: a star is one product.
            alike: dict[Scope, list[_Stack]] = {}
            for child in tree.plan[b].children:
                alike.setdefault(known[child].separator, []).append(known[child])
            below = [_stacked(stacks) for stacks in alike.values()]
            own = [_Stack((a,), Factor((ROWS, a), np.eye(tree.sizes[a]))) for a in bag[shared:]]
            here = self._bag(b)
            for n, left in enumerate(below):
                several = len(alike[left.separator]) > 1
                for right in (*below[n if several else n + 1 :], *own):
                    between = tuple(a for a in bag if a in left.separator or a in right.separator)
                    raised = product(left.factor, here.marginal(between), {ROWS, *right.separator})
                    across = Factor((COLUMNS, *right.separator), right.factor.array)
                    met = product(raised, across, {ROWS, COLUMNS}).marginal((ROWS, COLUMNS)).array
                    for first, rows in tree.cut(left.attributes, met):
                        for second, cells in tree.cut(right.attributes, rows.T):
                            if order[first] < order[second]:
                                pairs.setdefault((first, second), cells.T)
                            else:
                                pairs.setdefault((second, first), cells)
            if b:
                passed, given, raised_all = bag[:shared], self._given(b), []
                for attributes, factor in (*own, *below):
                    towards = given.marginal(tuple(a for a in bag if a in passed or a in factor.names))
                    raised = product(factor, towards, {ROWS, *passed}).marginal((ROWS, *passed))
                    raised_all.append(_Stack(attributes, raised))
                known[b] = _stacked(raised_all)
        return pairs


class _Stack(NamedTuple):
    """P(attribute | separator) of some attributes, one below the other."""

    attributes: Scope
    factor: Factor
    """By `ROWS` and the separator."""

    @property
    def separator(self) -> Scope:
        return self.factor.names[1:]


def _stacked(stacks: Sequence[_Stack]) -> _Stack:
    """Those of one separator in one."""
    attributes = tuple(a for stack in stacks for a in stack.attributes)
    return _Stack(attributes, Factor(stacks[0].factor.names, np.concatenate([s.factor.array for s in stacks])))
