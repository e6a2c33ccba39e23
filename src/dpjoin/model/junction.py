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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Scope = tuple[str, ...]

MOST_CELLS = 2**24
"""A tree of more cells is refused: one step of a fit would take a second, and a few copies fill a gigabyte."""
ROWS, COLUMNS = "\0rows", "\0columns"
"""Axes that are no attribute: the values of many attributes, one below the other."""


class TooLargeError(ValueError):
    """A marginal that would take too much memory."""


@dataclass(frozen=True, eq=False)
class JunctionTree:
    """Bags of attributes in a tree, for given cliques. Cheap: it holds names and numbers, no cells.

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
        """The distribution proportional to exp(sum of the potentials), from one array per clique.

        Upwards in logarithms, with the largest taken out for each separator cell, so nothing overflows; what comes
        down again are probabilities.
        """
        self.check(most)
        if len(potentials) != len(self.cliques):
            raise ValueError(f"arrays of potentials ({len(potentials)}) must be {len(self.cliques)}, one per clique")
        given: list[FloatArray] = []
        upwards: list[FloatArray] = [np.zeros(0)] * len(self.bags)
        for b, logits in self.gathered(potentials, upwards):
            table = logits.reshape(self.plan[b].matrix)
            top = table.max(axis=1)
            table -= top[:, None]
            np.exp(table, out=table)
            mass = table.sum(axis=1)
            table /= mass[:, None]
            upwards[b] = top + np.log(mass)
            given.append(table)
        given.reverse()
        log_partition = float(upwards[0][0])
        if not math.isfinite(log_partition):
            raise ValueError(f"the potentials' log-partition ({log_partition}) must be finite; so must all potentials")
        marginals: list[FloatArray] = []
        sums = self.unknown_sums()
        for b, (plan, conditional) in enumerate(zip(self.plan, given, strict=True)):
            if b:
                conditional = sums[len(self.cliques) + b].reshape(-1, 1) * conditional
            marginals.append(conditional.reshape(plan.shape))
            _fold(plan.folds, marginals[b], sums)
        of_cliques = self.flat(sums)
        for table in (*given, *marginals, of_cliques):
            table.setflags(write=False)  # answers may be views of these
        return Calibrated(self, log_partition, tuple(given), tuple(marginals), of_cliques)

    def _cells(self, scope: Scope) -> int:
        return math.prod(self.sizes[a] for a in scope)

    def gathered(self, potentials: Sequence[FloatArray], upwards: list[FloatArray]) -> Iterable[tuple[int, FloatArray]]:
        """From the leaves up: each bag, and the sum of its potentials and of what its children sent by then."""
        for b in reversed(range(len(self.bags))):
            total = _unfold(self.plan[b].folds, potentials, upwards, len(self.cliques))
            if total.shape != self.plan[b].shape:
                total = np.broadcast_to(total, self.plan[b].shape).copy()
            yield b, total

    def unknown_sums(self) -> list[FloatArray]:
        """Room for the marginals of all cliques, then for what each bag shares with its parent."""
        return [np.zeros(0)] * (len(self.cliques) + len(self.bags))

    def flat(self, sums: Sequence[FloatArray]) -> FloatArray:
        """The cliques' marginals as one flat vector."""
        parts = [sums[i].reshape(-1) for i in range(len(self.cliques))]
        return np.concatenate(parts) if parts else np.zeros(0)

    @cached_property
    def plan(self) -> tuple[_Bag, ...]:
        """Every shape and axis that a pass needs, worked out once."""
        inside: list[dict[int, Scope]] = [{} for _ in self.bags]
        for i, clique in enumerate(self.cliques):
            home = self.home(clique)
            assert home is not None, "every clique lies in a bag"
            inside[home][i] = clique
        for c, parent in enumerate(self.parents):
            if parent >= 0:
                inside[parent][len(self.cliques) + c] = self.bags[c][: self.shared[c]]
        plans = []
        for b, bag in enumerate(self.bags):
            shape = tuple(self.sizes[a] for a in bag)
            matrix = (math.prod(shape[: self.shared[b]]), math.prod(shape[self.shared[b] :]))
            children = tuple(c for c, parent in enumerate(self.parents) if parent == b)
            plans.append(_Bag(shape, matrix, children, _folds(self.sizes, bag, inside[b])))
        return tuple(plans)


@dataclass(frozen=True, eq=False, slots=True)
class _Bag:
    """What a pass needs to know of one bag."""

    shape: tuple[int, ...]
    matrix: tuple[int, int]
    """Cells of the separator by cells of the rest."""
    children: tuple[int, ...]
    folds: _Folds


@dataclass(frozen=True, eq=False, slots=True)
class _Folds:
    """How to get from a table to many of its marginals, one axis at a time: those without an axis share its sum.

    Ten pairs of five attributes take three passes over the table instead of ten. The same way back adds up what
    the marginals' cells say.
    """

    shape: tuple[int, ...]
    here: tuple[tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]
    """The marginals that have all axes: number, own shape, order of axes to it and from it."""
    below: tuple[tuple[int, _Folds], ...]
    """By the axis that is summed over."""


def _folds(sizes: Mapping[str, int], axes: Scope, scopes: Mapping[int, Scope]) -> _Folds:
    here = []
    for number, scope in scopes.items():
        if len(scope) == len(axes):
            to, back = tuple(axes.index(a) for a in scope), tuple(scope.index(a) for a in axes)
            here.append((number, tuple(sizes[a] for a in scope), to, back))
    waiting = {number: scope for number, scope in scopes.items() if len(scope) < len(axes)}
    below = []
    while waiting:
        # The first axis that most can do without: sums over early axes are the fastest.
        best = max(axes, key=lambda a: sum(a not in scope for scope in waiting.values()))
        without = {number: scope for number, scope in waiting.items() if best not in scope}
        below.append((axes.index(best), _folds(sizes, tuple(a for a in axes if a != best), without)))
        waiting = {number: scope for number, scope in waiting.items() if number not in without}
    return _Folds(tuple(sizes[a] for a in axes), tuple(here), tuple(below))


def _fold(folds: _Folds, table: FloatArray, sums: list[FloatArray]) -> None:
    """Write down the marginals of a table."""
    for number, _, order, _ in folds.here:
        sums[number] = table.transpose(order)
    for axis, further in folds.below:
        _fold(further, table.sum(axis=axis), sums)


def _unfold(folds: _Folds, potentials: Sequence[FloatArray], upwards: Sequence[FloatArray], cliques: int) -> FloatArray:
    """At each cell, the sum of what the cliques and the children say there; axes may have length one."""
    parts = []
    for number, shape, _, back in folds.here:
        given = potentials[number] if number < cliques else upwards[number - cliques]
        parts.append(given.reshape(shape).transpose(back))
    for axis, further in folds.below:
        inner = _unfold(further, potentials, upwards, cliques)
        parts.append(inner[(slice(None),) * axis + (None,)])
    if len(parts) < 2:
        return parts[0].copy() if parts else np.zeros((1,) * len(folds.shape))
    total: FloatArray = parts[0] + parts[1]
    for part in parts[2:]:
        if total.shape == folds.shape:
            total += part
        else:
            total = total + part
    return total


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A distribution over all attributes, as one table per bag of a tree.

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
    of_cliques: FloatArray | None = None
    """P(clique) of every clique, as one flat vector."""

    def clique_marginals(self) -> FloatArray:
        """P(clique) of every clique, as one flat vector in the order of the potentials."""
        if self.of_cliques is not None:
            return self.of_cliques
        sums = self.tree.unknown_sums()
        for plan, table in zip(self.tree.plan, self.marginals, strict=True):
            _fold(plan.folds, table, sums)
        return self.tree.flat(sums)

    def tangent(self, direction: Sequence[FloatArray]) -> FloatArray:
        """How fast the clique marginals move when the potentials move in a direction; flat, exact.

        This is Cov(the clique's indicators, sum of the direction over all cliques), worked out by differentiating
        both passes. The covariance is symmetric, so the same call also gives the gradient of a fit.
        """
        tree = self.tree
        slopes: list[FloatArray] = []
        upwards: list[FloatArray] = [np.zeros(0)] * len(tree.bags)
        for b, slope in tree.gathered(direction, upwards):
            table = slope.reshape(tree.plan[b].matrix)
            upwards[b] = np.einsum("sr,sr->s", self.given[b], table)
            table -= upwards[b][:, None]
            slopes.append(table)
        slopes.reverse()
        sums = tree.unknown_sums()
        for b, plan in enumerate(tree.plan):
            change = slopes[b]
            change *= self.marginals[b].reshape(plan.matrix)
            if b:
                change += sums[len(tree.cliques) + b].reshape(-1, 1) * self.given[b]
            _fold(plan.folds, change.reshape(plan.shape), sums)
        return tree.flat(sums)

    def marginal(self, scope: Sequence[str]) -> FloatArray:
        """P(scope), axes in the order of `scope`, whether or not one bag holds it; not to be written to.

        The first pair that no bag holds works out all pairs: that is hardly dearer than one of them.
        """
        wanted = tuple(scope)
        unknown = [a for a in wanted if a not in self.tree.sizes]
        if unknown or len(set(wanted)) < len(wanted):
            raise ValueError(f"a scope {wanted} must be different attributes of the tree: {', '.join(self.tree.sizes)}")
        clique = self.tree.places.get(wanted)
        if clique is not None and self.of_cliques is not None:
            return self.of_cliques[self.tree.slices[clique]].reshape([self.tree.sizes[a] for a in wanted])
        home = self.tree.home(wanted)
        if home is not None:
            return self._inside(home, wanted)
        if len(wanted) == 2 and self._pairs_fit:
            first, second = wanted
            found = self._pairs.get((first, second))
            return self._pairs[second, first].T if found is None else found
        return self._across(wanted)

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
            place = _drawn(self.given[b], group, _even(group, rng) if even else rng.random(rows))
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


def _drawn(given: FloatArray, group: IntArray, uniform: FloatArray) -> IntArray:
    """For each row the cell where its number in [0, 1) falls, in the distribution of its group."""
    edges = np.cumsum(given, axis=1)
    # The last edge becomes exactly one, so that no row falls into an empty cell at the end.
    edges /= edges[:, -1:]
    edges += np.arange(len(edges))[:, None]
    marks = np.minimum(group + uniform, np.nextafter(group + 1.0, 0.0))
    found: IntArray = np.searchsorted(edges.reshape(-1), marks, side="right") - group * edges.shape[1]
    return found


def _even(group: IntArray, rng: np.random.Generator) -> FloatArray:
    """Numbers in [0, 1), evenly spaced within each group of rows, in random order, from a random start."""
    order = rng.permutation(len(group))
    order = order[np.argsort(group[order], kind="stable")]
    _, starts, which, counts = np.unique(group[order], return_index=True, return_inverse=True, return_counts=True)
    rank = np.arange(len(group)) - starts[which]
    out = np.empty(len(group))
    out[order] = (rank + rng.random(len(counts))[which]) / counts[which]
    return out


def tree_of(sizes: Mapping[str, int], cliques: Iterable[Sequence[str]]) -> JunctionTree:
    """A junction tree for some cliques; attributes in no clique get a bag of their own. Allocates no cells.

    Cycles of cliques are closed by greedy elimination. No rule is best on every graph, so three are tried and the
    tree with the fewest cells is taken.
    """
    wanted = tuple(tuple(c) for c in cliques)
    for attribute, size in sizes.items():
        if size < 1:
            raise ValueError(f"size of attribute {attribute!r} ({size}) must be positive")
    for clique in wanted:
        if len(set(clique)) < len(clique) or not set(clique) <= set(sizes):
            raise ValueError(f"a clique {clique} must be different attributes out of: {', '.join(sizes)}")
    graph: dict[str, set[str]] = {a: set() for a in sizes}
    for clique in wanted:
        for a, b in combinations(clique, 2):
            graph[a].add(b)
            graph[b].add(a)

    def cells(bags: list[frozenset[str]]) -> tuple[int, int]:
        each = [math.prod(sizes[a] for a in bag) for bag in bags]
        return sum(each), max(each)

    return _rooted(sizes, wanted, min((_eliminated(sizes, graph, rule) for rule in RULES), key=cells))


Rule = Callable[[Mapping[str, int], dict[str, set[str]], str], tuple[int, ...]]


def _fill(sizes: Mapping[str, int], graph: dict[str, set[str]], attribute: str) -> tuple[int, ...]:
    """How many edges eliminating an attribute adds (twice), then how large its bag is."""
    around = graph[attribute]
    return sum(len(around - graph[a]) - 1 for a in around), *_weight(sizes, graph, attribute)


def _weight(sizes: Mapping[str, int], graph: dict[str, set[str]], attribute: str) -> tuple[int, ...]:
    """How large an attribute's bag is."""
    return (math.prod(sizes[a] for a in graph[attribute]) * sizes[attribute],)


def _weighted_fill(sizes: Mapping[str, int], graph: dict[str, set[str]], attribute: str) -> tuple[int, ...]:
    """How many cells the edges have that eliminating an attribute adds."""
    around = graph[attribute]
    return (sum(sizes[a] * sum(sizes[b] for b in around - graph[a] if b != a) for a in around),)


RULES: tuple[Rule, ...] = (_fill, _weight, _weighted_fill)


def _eliminated(sizes: Mapping[str, int], graph: Mapping[str, set[str]], rule: Rule) -> list[frozenset[str]]:
    """The maximal bags that come from taking attributes away one by one, the cheapest by the rule first."""
    left = {a: set(around) for a, around in graph.items()}
    bags: list[frozenset[str]] = []
    while left:
        # An attribute whose neighbours are all neighbours of each other adds nothing: no order does better.
        free = (a for a, around in left.items() if all(len(around - left[b]) == 1 for b in around))
        attribute = next(free, None)
        if attribute is None:
            attribute = min(left, key=lambda a: rule(sizes, left, a))
        around = left.pop(attribute)
        for a in around:
            left[a] |= around
            left[a] -= {a, attribute}
        bag = frozenset(around | {attribute})
        if not any(bag <= other for other in bags):
            bags.append(bag)
    return bags or [frozenset()]


def _rooted(sizes: Mapping[str, int], cliques: tuple[Scope, ...], bags: list[frozenset[str]]) -> JunctionTree:
    """The bags as a tree: each joined to the placed bag with which it shares most (a maximum spanning tree)."""
    waiting = sorted(bags, key=lambda bag: -math.prod(sizes[a] for a in bag))
    root = waiting.pop(0)
    placed: list[Scope] = [tuple(a for a in sizes if a in root)]
    parents, shared = [-1], [0]
    nearest = [(len(bag & root), 0) for bag in waiting]
    while waiting:
        i = max(range(len(waiting)), key=lambda i: nearest[i][0])
        bag, (overlap, parent) = waiting.pop(i), nearest.pop(i)
        passed = tuple(a for a in placed[parent] if a in bag)
        parents.append(parent)
        shared.append(overlap)
        placed.append(passed + tuple(a for a in sizes if a in bag and a not in passed))
        here = len(placed) - 1
        nearest = [
            (len(other & bag), here) if len(other & bag) > known[0] else known
            for other, known in zip(waiting, nearest, strict=True)
        ]
    return JunctionTree(dict(sizes), cliques, tuple(placed), tuple(parents), tuple(shared))
