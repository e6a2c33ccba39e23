"""Exact sums of products of sparse count tables: joins of any number of tables, variable by variable.

A `Counts` holds how often each combination of a few variables occurs. The join of tables is their
product, and everything an engine is asked is that product with most variables summed out. `eliminate`
sums each variable out as soon as the factors that hold it are multiplied, so the join never exists.
Counts are int64 while a bound below 2^62 holds, otherwise Python integers in an object array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine import integers, matrix_product
from dpjoin.engine.arrow import scattered
from dpjoin.engine.integers import INT_LIMIT, Exact, count_by, fit, times
from dpjoin.engine.matrix_product import CountMatrix
from dpjoin.spec.workload import IntArray

Variable = Any
"""Whatever tells variables apart: a name, or a pair of a kind and a name."""
Column = NDArray[Any]

CHUNK_PAIRS = 2**22
"""How many pairs of rows are multiplied before they are summed."""
DENSE_PRODUCT_CELLS = 2**24
"""Up to this many cells a product of two factors may be a dense matrix on the way."""
MEMO_CELLS = 2**26
"""How many numbers the results kept for later may hold: half a gigabyte."""


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each row of variables occurs in the join of some tables.

    Each variable's values are numbered from 0 to its size - 1, alike in every factor. Rows are distinct
    except in a table as it was read, where `exact_count` None says that every row counts once.
    """

    variables: tuple[Variable, ...]
    sizes: tuple[int, ...]
    exact_ids: tuple[Column, ...]
    exact_count: Exact | None
    rows: int
    tables: frozenset[Hashable] = frozenset()
    """Where the counts come from; equal tables and variables mean equal counts."""

    def __len__(self) -> int:
        return self.rows

    def ids(self, variables: Iterable[Variable]) -> list[Column]:
        return [self.exact_ids[self.variables.index(v)] for v in variables]

    def sizes_of(self, variables: Iterable[Variable]) -> tuple[int, ...]:
        return tuple(self.sizes[self.variables.index(v)] for v in variables)

    @property
    def exact_counts(self) -> Exact:
        return np.ones(self.rows, dtype=np.int64) if self.exact_count is None else self.exact_count


@dataclass
class Memo:
    """Results that other questions may need again, the oldest forgotten first."""

    found: dict[tuple[frozenset[Hashable], frozenset[Variable]], Counts] = field(default_factory=dict)
    cells: int = 0

    def get(self, tables: frozenset[Hashable], variables: Iterable[Variable], compute: Callable[[], Counts]) -> Counts:
        """The counts of some tables over some variables, computed unless they are known."""
        key = (tables, frozenset(variables))
        found = self.found.get(key)
        if found is None:
            found = self.found[key] = compute()
            self.cells += _cells(found)
            while self.cells > MEMO_CELLS:
                self.cells -= _cells(self.found.pop(next(iter(self.found))))
        return found


def _cells(counts: Counts) -> int:
    wide = counts.exact_count is not None and counts.exact_count.dtype == object
    return counts.rows * (len(counts.variables) + (6 if wide else 1))  # a Python integer takes 40 bytes more


def total(counts: Counts) -> int:
    """The sum of all counts."""
    return counts.rows if counts.exact_count is None else integers.total(counts.exact_count)


def largest(counts: Counts) -> int:
    """The largest count, 0 when there is none."""
    return int(counts.exact_counts.max()) if counts.rows else 0


def project(counts: Counts, variables: Sequence[Variable], *, maximum: bool = False) -> Counts:
    """Sum the other variables out, or take the maximum over them."""
    variables = tuple(variables)
    sizes = counts.sizes_of(variables)
    exact_total, count = total(counts), counts.exact_count
    if not variables:
        value = largest(counts) if maximum else exact_total
        return _made(counts, (), (), (), fit(np.array([value] if value else [], dtype=object), value))
    columns = counts.ids(variables)
    (key,), size, reversible = _packed([columns], sizes, [counts.rows])
    if count is not None and count.dtype == object:
        count = fit(count, exact_total)  # what was large may have gone
    if not maximum and reversible and size <= compact(counts.rows):
        exact = count_by(key, count, size, bound=exact_total)
        present = np.flatnonzero(exact)
        return _made(counts, variables, sizes, _unpacked(present, sizes), exact[present])
    if count is None and reversible:
        key = np.sort(key)
        starts = _starts(key)
        exact = np.ones(len(starts), dtype=np.int64) if maximum else np.diff(starts, append=len(key))
        return _made(counts, variables, sizes, _unpacked(key[starts], sizes), exact)
    order = np.argsort(key)
    starts = _starts(key[order])
    count = np.ones(len(order), dtype=np.int64) if count is None else count[order]
    count = count if maximum else fit(count, exact_total)
    reduce = np.maximum if maximum else np.add
    exact = reduce.reduceat(count, starts) if len(starts) else count
    first = order[starts]
    return _made(counts, variables, sizes, [c[first] for c in columns], exact)


def merged_alike(counts: Counts) -> Counts:
    """A table as it was read, its equal rows as one where few combinations are possible: later sums are short."""
    # Without any column a count of zero is a row, too.
    few = math.prod(counts.sizes) <= counts.rows // 4 or not counts.variables
    return project(counts, counts.variables) if few else counts


def presence(counts: Counts) -> Counts:
    """The same rows, each counted once."""
    return replace(counts, exact_count=None, tables=frozenset(("present", t) for t in counts.tables))


def stack(parts: Sequence[Counts], variable: Variable) -> Counts:
    """Factors that differ in their last variable as one; `variable` counts through the last ones in turn."""
    moved, start = [], 0
    sizes = (*parts[0].sizes[:-1], sum(p.sizes[-1] for p in parts))
    for part in parts:
        variables, last = (*part.variables[:-1], variable), part.exact_ids[-1].astype(np.int64) + start
        start += part.sizes[-1]
        moved.append(replace(part, variables=variables, sizes=sizes, exact_ids=(*part.exact_ids[:-1], last)))
    return concatenated(moved)


def concatenated(parts: Sequence[Counts]) -> Counts:
    """The rows of all parts, which have the same variables."""
    first = parts[0]
    # A column's type has room for every number of its variable, so the first part's will do for all.
    columns = zip(*(p.exact_ids for p in parts), strict=True)
    ids = [np.concatenate(c, dtype=c[0].dtype, casting="unsafe") for c in columns]
    return _made(first, first.variables, first.sizes, ids, np.concatenate([p.exact_counts for p in parts]))


def dense(counts: Counts, variables: Sequence[Variable], *, bound: int) -> Exact:
    """The counts over some variables with a cell for every value; `bound` is at least their sum."""
    narrow = project(counts, variables)
    exact = np.zeros(narrow.sizes, dtype=object if bound >= INT_LIMIT else np.int64)
    exact[narrow.exact_ids] = narrow.exact_counts if variables else total(narrow)
    return exact


def _made(
    origin: Counts, variables: Sequence[Variable], sizes: Sequence[int], ids: Sequence[Column], exact: Exact
) -> Counts:
    return Counts(tuple(variables), tuple(sizes), tuple(ids), exact, len(exact), origin.tables)


def _starts(ordered: IntArray) -> IntArray:
    """Where each run of equal numbers begins."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))[: len(ordered)]


def compact(rows: int) -> int:
    """Up to how many numbers an array with a place for each is cheaper than sorting."""
    return 4 * rows + 2**16


def _packed(
    parts: Sequence[Sequence[Column]], sizes: Sequence[int], lengths: Sequence[int]
) -> tuple[list[IntArray], int, bool]:
    """One number per row, equal for equal rows of all parts; how many there can be; whether `_unpacked` applies."""
    size = math.prod(sizes)
    if size < INT_LIMIT:
        return [_mixed(columns, sizes, n) for columns, n in zip(parts, lengths, strict=True)], size, True
    joined = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    key, size = joined[0].astype(np.int64), sizes[0]
    for column, width in zip(joined[1:], sizes[1:], strict=True):
        if size * width >= INT_LIMIT:
            distinct, key = np.unique(key, return_inverse=True)
            size = max(1, len(distinct))
        key = key * width + column
        size *= width
    return np.split(key, np.cumsum(lengths)[:-1]), size, False


def numbered(factors: Sequence[Counts], variables: Sequence[Variable]) -> tuple[list[IntArray], int]:
    """Numbers for the variables' values in the factors, alike, and so few that an array can have a place for each."""
    lengths = [f.rows for f in factors]
    keys, size, _ = _packed([f.ids(variables) for f in factors], factors[0].sizes_of(variables), lengths)
    if size <= compact(sum(lengths)):
        return keys, size
    distinct, key = np.unique(np.concatenate(keys), return_inverse=True)
    return np.split(key, np.cumsum(lengths)[:-1]), max(1, len(distinct))


def _mixed(columns: Sequence[Column], sizes: Sequence[int], rows: int) -> IntArray:
    if not columns:
        return np.zeros(rows, dtype=np.int64)
    key = columns[0].astype(np.int64, copy=False)
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        key = key * size
        key += column
    return key


def _unpacked(key: IntArray, sizes: Sequence[int]) -> list[Column]:
    columns: list[Column] = []
    for size in reversed(sizes[1:]):
        rest = key // size
        columns.append(key - rest * size)
        key = rest
    return [key, *reversed(columns)]


def multiply(
    first: Counts, second: Counts, keep: Collection[Variable], *, maximum: bool = False, then: Sequence[Counts] = ()
) -> Counts:
    """The natural join of two factors, the variables outside `keep` summed out (or maximised) at once.

    `then` are factors over variables of the result; they are multiplied in while the result is built, so
    that what they lack is never held.
    """
    if set(first.variables) <= set(second.variables):
        first, second = second, first
    tables = first.tables.union(second.tables, *(f.tables for f in then))
    if set(second.variables) <= set(first.variables):
        result: Counts | None = _onto(_weighed(first, second), keep, maximum=maximum)
    else:
        first = _onto(first, {*keep, *second.variables}, maximum=maximum)
        second = _onto(second, {*keep, *first.variables}, maximum=maximum)
        result = None if maximum else _contracted(first, second, keep)
    if result is None:
        result = _gathered(_pieces(first, second, keep, maximum=maximum, then=then), maximum=maximum)
    else:
        for factor in then:
            result = _weighed(result, factor)
    return replace(result, tables=tables)


def _onto(counts: Counts, keep: Collection[Variable], *, maximum: bool, memo: Memo | None = None) -> Counts:
    """The factor without the variables that are not kept."""
    variables = [v for v in counts.variables if v in keep]
    if len(variables) == len(counts.variables):
        return counts
    compute = partial(project, counts, variables, maximum=maximum)
    return compute() if memo is None else memo.get(counts.tables, variables, compute)


def _weighed(counts: Counts, weights: Counts) -> Counts:
    """Each row times its weight; rows without one go. `weights` is over some of the rows' variables."""
    weight = row_weights(counts, weights)
    hit = np.asarray(weight > 0, dtype=bool)
    if not hit.all():
        counts, weight = some_rows(counts, np.flatnonzero(hit)), weight[hit]
    exact = weight if counts.exact_count is None else times(counts.exact_count, weight)
    return replace(counts, exact_count=exact, tables=counts.tables | weights.tables)


def row_weights(counts: Counts, weights: Counts) -> Exact:
    """The weight of each row of `counts`, zero where there is none."""
    lengths = [counts.rows, weights.rows]
    (key, at), size, _ = _packed([counts.ids(weights.variables), weights.exact_ids], weights.sizes, lengths)
    exact_weights = weights.exact_counts
    if not weights.rows:
        return np.zeros(counts.rows, dtype=np.int64)
    if size <= compact(sum(lengths)):
        table = np.zeros(size, dtype=exact_weights.dtype)
        table[at] = exact_weights
        return table[key]
    order = np.argsort(at)
    at = at[order]
    # Most rows of a cyclic join have no weight; a table of hashed keys tells so faster than a search.
    bits = (8 * len(at)).bit_length()
    taken = np.zeros(2**bits, dtype=bool)
    taken[scattered(at, bits)] = True
    maybe = np.flatnonzero(taken[scattered(key, bits)])
    wanted = key[maybe]
    place = np.minimum(np.searchsorted(at, wanted), len(at) - 1)
    found = at[place] == wanted
    weight = np.zeros(counts.rows, dtype=exact_weights.dtype)
    weight[maybe[found]] = exact_weights[order[place[found]]]
    return weight


def some_rows(counts: Counts, at: IntArray) -> Counts:
    """Only the rows at some positions."""
    count = None if counts.exact_count is None else counts.exact_count[at]
    return replace(counts, exact_ids=tuple(c[at] for c in counts.exact_ids), exact_count=count, rows=len(at))


def counted(counts: Counts, exact: Exact) -> Counts:
    """The same rows with other counts; those of none go."""
    at = np.flatnonzero(exact)
    return some_rows(replace(counts, exact_count=exact), at)


def _shared(first: Counts, second: Counts) -> list[Variable]:
    return [v for v in first.variables if v in second.variables]


def _contracted(first: Counts, second: Counts, keep: Collection[Variable]) -> Counts | None:
    """A matrix product over the shared variables, where they all go and a dense result is worth it."""
    shared = _shared(first, second)
    kept = [[v for v in f.variables if v not in shared] for f in (first, second)]
    sizes = [f.sizes_of(variables) for f, variables in zip((first, second), kept, strict=True)]
    cells = math.prod(map(math.prod, sizes))
    if not shared or any(v in keep for v in shared) or cells > DENSE_PRODUCT_CELLS:
        return None
    if first.exact_counts.dtype == object or second.exact_counts.dtype == object:
        return None
    keys, size = numbered([first, second], shared)
    pairs = np.bincount(keys[0], minlength=size).astype(np.float64) @ np.bincount(keys[1], minlength=size)
    if 4 * pairs < cells:
        return None
    left, right = (
        CountMatrix(key, f.exact_counts, (_mixed(f.ids(variables), widths, f.rows),), (math.prod(widths),))
        for f, key, variables, widths in zip((first, second), keys, kept, sizes, strict=True)
    )
    degrees = [count_by(m.exact_key, m.exact_count, size, bound=integers.total(m.exact_counts)) for m in (left, right)]
    join_size = integers.total(times(*degrees))
    exact = matrix_product.product(left, right, size, join_size=join_size).reshape(-1)
    present = np.flatnonzero(exact)
    every = (*sizes[0], *sizes[1])
    return _made(first, (*kept[0], *kept[1]), every, _unpacked(present, every), exact[present])


def _pieces(
    first: Counts, second: Counts, keep: Collection[Variable], *, maximum: bool, then: Sequence[Counts]
) -> Iterator[Counts]:
    """The product in pieces of limited size, each aggregated."""
    shared = _shared(first, second)
    variables = tuple(v for v in dict.fromkeys((*first.variables, *second.variables)) if v in keep)
    keys, _, _ = _packed([first.ids(shared), second.ids(shared)], first.sizes_of(shared), [first.rows, second.rows])
    order = np.argsort(keys[1], kind="stable")
    ordered = keys[1][order]
    low = np.searchsorted(ordered, keys[0])
    pairs = np.searchsorted(ordered, keys[0], side="right") - low
    ends = np.cumsum(pairs)
    exact_first, exact_second = first.exact_counts, second.exact_counts
    sizes = tuple((first if v in first.variables else second).sizes_of([v])[0] for v in variables)
    start = 0
    while True:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + CHUNK_PAIRS, side="right")))
        part = slice(start, stop)
        left = np.repeat(np.arange(start, min(stop, first.rows)), pairs[part])
        right = order[np.arange(len(left)) + np.repeat(low[part] - (ends[part] - pairs[part] - before), pairs[part])]
        ids = [first.ids([v])[0][left] if v in first.variables else second.ids([v])[0][right] for v in variables]
        piece = _made(first, variables, sizes, ids, times(exact_first[left], exact_second[right]))
        for factor in then:
            piece = _weighed(piece, factor)
        yield project(piece, variables, maximum=maximum)
        start = stop
        if start >= first.rows:
            return


def _gathered(pieces: Iterator[Counts], *, maximum: bool) -> Counts:
    """Pieces over the same variables as one; merged whenever they have doubled, so that they stay few."""
    whole = next(pieces)
    waiting: list[Counts] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(map(len, waiting)) > max(CHUNK_PAIRS, whole.rows):
            whole, waiting = project(concatenated([whole, *waiting]), whole.variables, maximum=maximum), []
    return project(concatenated([whole, *waiting]), whole.variables, maximum=maximum) if waiting else whole


def eliminate(
    factors: Sequence[Counts],
    keep: Collection[Variable],
    *,
    maximum: bool = False,
    memo: Memo | None = None,
    until: int = 1,
) -> list[Counts]:
    """Sum out (or maximise over) every variable outside `keep`; the product of what is returned is the answer.

    Variables of one factor alone go first, then factors inside others are multiplied into them: on an
    acyclic join that takes the leaves off the join tree until nothing is left. Where it stalls, the
    variable whose factors grow least when multiplied goes next (a heuristic). It stops there when no
    more than `until` factors are left.
    """
    memo = None if maximum else memo
    left = list(factors)
    while True:
        for i, factor in enumerate(left):
            needed = {*keep, *(v for j, f in enumerate(left) if j != i for v in f.variables)}
            left[i] = _onto(factor, needed, maximum=maximum, memo=memo)
        pair = _contained(left) or (_cheapest(left, keep) if len(left) > until else None)
        if pair is None:
            return left
        first, second = (left.pop(i) for i in sorted(pair, reverse=True))
        wanted = {*keep, *(v for f in left for v in f.variables)}
        variables = {v for v in (*first.variables, *second.variables) if v in wanted}
        # Factors inside the result go along, so that a cyclic join never holds rows that close no cycle.
        then = [f for f in left if f.variables and set(f.variables) <= variables]
        left = [f for f in left if f not in then] if then else left
        tables = first.tables.union(second.tables, *(f.tables for f in then))
        compute = partial(multiply, first, second, variables, maximum=maximum, then=then)
        left.append(compute() if memo is None else memo.get(tables, variables, compute))


def _contained(factors: Sequence[Counts]) -> tuple[int, int] | None:
    """A factor whose variables another has too, with the smallest such other."""
    inside = [
        (len(factors[j]), i, j)
        for i in range(len(factors))
        for j in range(len(factors))
        if i != j and set(factors[i].variables) <= set(factors[j].variables)
    ]
    return min(inside)[1:] if inside else None


def _cheapest(factors: Sequence[Counts], keep: Collection[Variable]) -> tuple[int, int] | None:
    """Two factors of the variable that adds the fewest rows when its factors are multiplied."""
    holders: dict[Variable, list[int]] = {}
    for i, factor in enumerate(factors):
        for v in factor.variables:
            if v not in keep:
                holders.setdefault(v, []).append(i)
    choices = []
    for v, held in holders.items():
        rows_at, size = numbered([factors[i] for i in held], [v])
        per_value = [np.bincount(at, minlength=size).astype(np.float64) for at in rows_at]
        pairs = [(float(per_value[a] @ per_value[b]), (held[a], held[b])) for a, b in combinations(range(len(held)), 2)]
        growth = float(np.multiply.reduce(per_value).sum()) - sum(factors[i].rows for i in held)
        choices.append((growth, min(pairs)[1]))
    return min(choices)[1] if choices else None


def largest_count(factors: Sequence[Counts], keep: Collection[Variable], *, memo: Memo | None = None) -> int:
    """The largest count over the values of `keep`, all other variables summed out.

    Parts without a common variable reach their largest counts independently.
    """
    exact = 1
    for part in connected(factors):
        left = eliminate(part, keep, memo=memo, until=2)
        if len(left) == 2 and any(v not in keep for v in _shared(*left)):
            exact *= _largest_product(left[0], left[1], keep)
        else:
            exact *= math.prod(map(largest, eliminate(left, (), maximum=True)))
    return exact


def connected(factors: Sequence[Counts], apart: Collection[Variable] = ()) -> list[list[Counts]]:
    """The factors in parts that have no variables in common, other than those of `apart`."""
    parts: list[list[Counts]] = []
    for factor in factors:
        touching = [p for p in parts if any(v not in apart for f in p for v in _shared(f, factor))]
        parts = [p for p in parts if p not in touching] + [[*(f for p in touching for f in p), factor]]
    return parts


def _largest_product(first: Counts, second: Counts, keep: Collection[Variable]) -> int:
    """The largest count of the product of two factors, without the whole product.

    A row group of one factor can reach at most the sum of its counts, each times the largest partner.
    The groups that can reach most go first, and those that cannot beat what was found never go.
    """
    # The side with the tighter bound goes in groups.
    sides = [_reach(first, second, keep), _reach(second, first, keep)]
    sides.sort(key=lambda side: int(side[2].max()) if len(side[0]) else 0)
    (first, group, reach), (second, other_group, other_reach) = sides
    order = np.argsort(-reach, kind="stable")
    rank = np.empty(len(reach), dtype=np.int64)
    rank[order] = np.arange(len(reach))
    rows = np.argsort(rank[group], kind="stable")
    first, group, reach = some_rows(first, rows), rank[group[rows]], reach[order]
    keys, size = numbered([first, second], _shared(first, second))
    ends = np.cumsum(np.bincount(keys[1], minlength=size)[keys[0]])
    exact_best, start, budget = 0, 0, CHUNK_PAIRS // 64
    while start < first.rows and int(reach[group[start]]) > exact_best:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + budget, side="right")))
        # A group goes as a whole.
        stop = int(np.searchsorted(group, group[min(stop, first.rows) - 1], side="right"))
        hopeful = np.asarray(other_reach > exact_best, dtype=bool)[other_group]
        if 2 * np.count_nonzero(hopeful) < second.rows:
            second, other_group = some_rows(second, np.flatnonzero(hopeful)), other_group[hopeful]
        product = multiply(some_rows(first, np.arange(start, stop)), second, keep)
        exact_best = max(exact_best, largest(product))
        start, budget = stop, min(2 * budget, CHUNK_PAIRS)
    return exact_best


def _reach(counts: Counts, partner: Counts, keep: Collection[Variable]) -> tuple[Counts, IntArray, Exact]:
    """The rows that join, the group of each (its values of `keep`), and the most that each group can reach."""
    weight = row_weights(counts, project(partner, _shared(partner, counts), maximum=True))
    hit = np.flatnonzero(np.asarray(weight > 0, dtype=bool))
    counts, weight = some_rows(counts, hit), weight[hit]
    (group,), groups = numbered([counts], [v for v in counts.variables if v in keep])
    weighed = times(counts.exact_counts, weight)
    return counts, group, count_by(group, weighed, groups, bound=integers.total(weighed))
