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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.model.sampling import drawn, evenly
from dpjoin.model.terms import (
    SPARSE_ENTRIES,
    SPARSE_SIDE_ENTRIES,
    Designs,
    Domain,
    DType,
    FloatArray,
    RealArray,
    axis_sum,
)

IntArray = NDArray[np.int64]
Scope = tuple[str, ...]

MOST_CELLS = 2**24
"""A tree of more cells is refused: one step of a fit would take a second, and a few copies fill a gigabyte."""
KEPT_CELLS = 2**18
"""Marginals that no bag holds are dear, and bars ask for each several times: so many of their cells are kept."""
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
        edges = np.cumsum([0, *(self._cells(c) for c in self.cliques)])
        return tuple(slice(int(a), int(b)) for a, b in pairwise(edges))

    @cached_property
    def places(self) -> dict[Scope, int]:
        """The number of each clique."""
        return {clique: i for i, clique in enumerate(self.cliques)}

    @property
    def size(self) -> int:
        """The number of potentials."""
        return self.slices[-1].stop if self.slices else 0

    def split(self, flat: FloatArray) -> list[FloatArray]:
        """A flat vector, clique by clique."""
        return [flat[where] for where in self.slices]

    def home(self, scope: Iterable[str]) -> int | None:
        """The smallest bag that holds all of a scope, if there is one."""
        wanted = set(scope)
        holding = [b for b, bag in enumerate(self.bags) if wanted.issubset(bag)]
        return min(holding, key=lambda b: self._cells(self.bags[b]), default=None)

    def check(self, most: int = MOST_CELLS) -> None:
        """Refuse a tree that is too large to calibrate."""
        if self.cells > most:
            raise ValueError(
                f"cells of the junction tree ({self.cells}) must be at most {most}; "
                "take fewer or smaller cliques, or ones that overlap in fewer cycles"
            )

    def calibrate(self, potentials: Sequence[FloatArray], *, most: int = MOST_CELLS) -> Calibrated:
        """The distribution proportional to exp(sum of the potentials), from one array per clique."""
        self.check(most)
        if len(potentials) != len(self.cliques):
            raise ValueError(f"arrays of potentials ({len(potentials)}) must be {len(self.cliques)}, one per clique")
        passes = Passes(self, np.float64)
        log_partition = passes.up(np.concatenate([np.zeros(0), *(np.reshape(p, -1) for p in potentials)]))
        if not math.isfinite(log_partition):
            raise ValueError(f"the potentials' log-partition ({log_partition}) must be finite; so must all potentials")
        given: list[FloatArray] = [passes.given(b) for b in range(len(self.bags))]
        of_cliques = passes.down()
        marginals: list[FloatArray] = [passes.marginal(b) for b in range(len(self.bags))]
        for table in (*given, *marginals, of_cliques):
            table.setflags(write=False)  # answers may be views of these
        return Calibrated(self, log_partition, tuple(given), tuple(marginals), of_cliques)

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

    def given(self, bag: int) -> Any:
        """After `up`: P(the rest | the separator) as a matrix, separator by rest."""
        table = self._tables[bag] / self._mass[bag]
        return table.reshape(-1, self._mass[bag].size).T

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
class Calibrated:
    """A distribution over all attributes, as one table per bag of a tree.

    >>> from dpjoin.model.triangulate import tree_of
    >>> tree = tree_of({"a": 2, "b": 2}, [("a", "b")])
    >>> both = tree.calibrate([np.log([[1.0, 2.0], [3.0, 4.0]])])
    >>> round(float(np.exp(both.log_partition)), 9), both.marginal(("b",)).round(9).tolist()
    (10.0, [0.4, 0.6])
    """

    tree: JunctionTree
    log_partition: float
    given: tuple[FloatArray, ...]
    """For each bag, P(rest | separator) as a matrix."""
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
            return self._inside(home, wanted)
        if len(wanted) == 2 and self._pairs_fit:
            first, second = wanted
            found = self._pairs.get((first, second))
            return self._pairs[second, first].T if found is None else found
        if wanted not in self._found:
            made = self._across(wanted)
            made.setflags(write=False)  # it may be handed out again
            if sum(kept.size for kept in self._found.values()) + made.size > KEPT_CELLS:
                self._found.clear()
            if made.size > KEPT_CELLS:
                return made
            self._found[wanted] = made
        return self._found[wanted]

    @cached_property
    def _found(self) -> dict[Scope, FloatArray]:
        """The last marginals that no bag holds."""
        return {}

    def answers(self, scopes: Iterable[Sequence[str]]) -> list[FloatArray]:
        """P(scope) of many scopes."""
        return [self.marginal(scope) for scope in scopes]

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

    def _inside(self, bag: int, scope: Scope) -> FloatArray:
        """P(scope) for a scope inside a bag."""
        return _kept(_Table(self.tree.bags[bag], self.marginals[bag]), scope).values

    def _across(self, scope: Scope) -> FloatArray:
        """P(scope) for any scope: carry its attributes up to the lowest bag that has them all below it."""
        tree, wanted = self.tree, set(scope)
        self._check_cells(scope, wanted)
        carried: list[_Table | None] = [None] * len(tree.bags)
        for b in reversed(range(len(tree.bags))):
            bag = tree.bags[b]
            below = [t for c in tree.plan[b].children if (t := carried[c]) is not None]
            here = wanted.intersection(bag).union(*(wanted.intersection(t.axes) for t in below))
            found = here == wanted
            passed = set(bag[: tree.shared[b]])
            if not found and here <= passed:
                continue
            values = self.marginals[b] if found else self.given[b].reshape(tree.plan[b].shape)
            table = _Table(bag, values)
            keep = here if found else here | passed
            for i, other in enumerate(below):
                later = keep.union(*(t.axes for t in below[i + 1 :]))
                self._check_cells(scope, later & {*table.axes, *other.axes})
                table = _contracted(table, other, later)
            if found:
                return _kept(table, scope).values
            carried[b] = _kept(table, tuple(a for a in table.axes if a in keep))
        raise AssertionError("the root has every attribute below it")

    def _check_cells(self, scope: Scope, axes: Iterable[str]) -> None:
        cells = math.prod(self.tree.sizes[a] for a in axes)
        if cells > MOST_CELLS:
            raise TooLargeError(
                f"cells needed for the marginal of {', '.join(scope)} ({cells}) must be at most {MOST_CELLS}; "
                "ask for fewer attributes at once"
            )

    @cached_property
    def _pairs_fit(self) -> bool:
        """Whether all pairs together take little enough memory."""
        values = sum(self.tree.sizes.values())
        passed = (
            math.prod(self.tree.sizes[a] for a in bag[:n])
            for bag, n in zip(self.tree.bags, self.tree.shared, strict=True)
        )
        return values * (values + sum(passed)) <= MOST_CELLS

    @cached_property
    def _pairs(self) -> dict[tuple[str, str], FloatArray]:
        """P(a, b) of all pairs that no bag holds, and of some that one does; each pair in one order.

        Going up, every bag knows P(a | separator) of all attributes a below it, one below the other in one matrix.
        Two attributes meet at the lowest bag that has both below it, in one product for all that meet there.
        """
        tree = self.tree
        pairs: dict[tuple[str, str], FloatArray] = {}
        known: list[tuple[Scope, FloatArray]] = [((), np.zeros((0, 1)))] * len(tree.bags)
        for b in reversed(range(len(tree.bags))):
            bag, plan = tree.bags[b], tree.plan[b]
            passed, rest = bag[: tree.shared[b]], bag[tree.shared[b] :]
            here = _Table(bag, self.marginals[b])
            conditional = _Table(bag, self.given[b].reshape(plan.shape))
            # Children that share the same with this bag are one group: a star is one product.
            groups: dict[Scope, list[int]] = {}
            for child in plan.children:
                groups.setdefault(tree.bags[child][: tree.shared[child]], []).append(child)
            names: list[str] = []
            stack: list[FloatArray] = []
            if b:
                names += rest
                stack += [_kept(conditional, (a, *passed)).values.reshape(tree.sizes[a], -1) for a in rest]
            sides: list[tuple[list[Scope], Scope, _Table]] = []
            for separator, children in groups.items():
                below = np.concatenate([known[c][1] for c in children])
                members = [known[c][0] for c in children]
                shape = [len(below), *(tree.sizes[a] for a in separator)]
                side = _Table((ROWS, *separator), below.reshape(shape))
                sides.append((members, separator, side))
                flat = tuple(a for names_of in members for a in names_of)
                for attribute in rest:
                    joint = _kept(here, tuple(a for a in bag if a in separator or a == attribute))
                    met = _kept(_contracted(side, joint, {ROWS, attribute}), (ROWS, attribute)).values
                    for a, values in zip(flat, self._cut(flat, met), strict=True):
                        pairs[a, attribute] = values
                if b:
                    towards = _kept(conditional, tuple(a for a in bag if a in passed or a in separator))
                    raised = _kept(_contracted(side, towards, {ROWS, *passed}), (ROWS, *passed)).values
                    names += flat
                    stack.append(raised.reshape(len(below), -1))
            if b:
                known[b] = (tuple(names), np.concatenate(stack))
            for i, (members, separator, side) in enumerate(sides):
                if len(members) > 1:
                    weights = _kept(here, separator)
                    self._meet(pairs, side, side, weights, members, None)
                for others, further, other in sides[i + 1 :]:
                    weights = _kept(here, tuple(a for a in bag if a in separator or a in further))
                    self._meet(pairs, side, other, weights, members, others)
        return pairs

    def _meet(
        self,
        pairs: dict[tuple[str, str], FloatArray],
        left: _Table,
        right: _Table,
        weights: _Table,
        lefts: list[Scope],
        rights: list[Scope] | None,
    ) -> None:
        """All pairs between the attributes below two separators, or (no `rights`) between children below one."""
        right = _Table((COLUMNS, *right.axes[1:]), right.values)
        joined = _contracted(_contracted(left, weights, {ROWS, *right.axes}), right, {ROWS, COLUMNS})
        table = _kept(joined, (ROWS, COLUMNS)).values
        across = tuple(a for names in (rights or lefts) for a in names)
        start = 0
        for i, names in enumerate(lefts):
            for a in names:
                strip = table[start : start + self.tree.sizes[a]]
                start += self.tree.sizes[a]
                later = across if rights is not None else tuple(b for group in lefts[i + 1 :] for b in group)
                skipped = sum(self.tree.sizes[b] for b in across[: len(across) - len(later)])
                for b, values in zip(later, self._cut(later, strip[:, skipped:].T), strict=True):
                    pairs[a, b] = values.T

    def _cut(self, names: Scope, table: FloatArray) -> Iterable[FloatArray]:
        """The rows of a table, attribute by attribute."""
        start = 0
        for a in names:
            yield table[start : start + self.tree.sizes[a]]
            start += self.tree.sizes[a]


@dataclass(frozen=True, eq=False, slots=True)
class _Table:
    """An array with a name per axis."""

    axes: Scope
    values: FloatArray


def _summed(values: FloatArray, axes: tuple[int, ...]) -> FloatArray:
    out: FloatArray = values.sum(axis=axes) if axes else values
    return out


def _kept(table: _Table, axes: Scope) -> _Table:
    """Sum over the axes that are not named, and put the others in this order."""
    if table.axes == axes:
        return table
    left = [a for a in table.axes if a in axes]
    values = _summed(table.values, tuple(i for i, a in enumerate(table.axes) if a not in axes))
    return _Table(axes, values.transpose([left.index(a) for a in axes]))


def _contracted(left: _Table, right: _Table, keep: set[str]) -> _Table:
    """The product of two tables, summed over the axes not to keep: one (batched) matrix product."""
    both = [a for a in left.axes if a in right.axes]
    batch = tuple(a for a in both if a in keep)
    inner = tuple(a for a in both if a not in keep)
    only_left = tuple(a for a in left.axes if a in keep and a not in both)
    only_right = tuple(a for a in right.axes if a in keep and a not in both)
    first = _kept(left, (*batch, *only_left, *inner)).values
    second = _kept(right, (*batch, *inner, *only_right)).values
    n, m = len(batch), len(inner)
    batches, inners = first.shape[:n], second.shape[n : n + m]
    rows, columns = first.shape[n : first.ndim - m], second.shape[n + m :]
    product = np.matmul(
        first.reshape(math.prod(batches), math.prod(rows), math.prod(inners)),
        second.reshape(math.prod(batches), math.prod(inners), math.prod(columns)),
    )
    return _Table((*batch, *only_left, *only_right), product.reshape(*batches, *rows, *columns))
