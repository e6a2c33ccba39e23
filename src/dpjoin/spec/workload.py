"""Public workloads: groups of linear queries over the join, with whole-number weights.

A query gives every join result a weight; its answer is the sum of the weights. Weights are whole
numbers times a public `unit` (fixed point), so that exact answers are whole numbers and integer
noise hides them without a remainder.

Two kinds of group cover everything:

* `Kronecker`: one small matrix per attribute (cells, prefixes, ranges, a filter, amounts to sum, rows of weights).
  Its queries are all products of one row of each. The cells of a marginal are the plainest case.
* `Products`: arbitrary weights in [-1, 1] per table, one row per query; the paper's q = (q_1 … q_m).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.canonical import fraction, frozen, instance, items, mapping, names, real, shown, text, whole
from dpjoin.errors import SpecError, suggest
from dpjoin.spec.schema import Attribute, Schema

IntArray = NDArray[np.int64]
Scope = tuple[str, ...]
"""Some attributes."""
WEIGHT_BITS = 16
"""Fractional bits of a fixed-point weight."""
AMOUNT_BITS = 24
"""Bits of the largest amount in a sum."""
MOST_VALUES = 2**22
"""Of an attribute that queries look at: what a model written down as a table may have."""
KINDS = ("cells", "prefixes", "ranges", "weights", "rows")


def largest_weight(weights: NDArray[Any]) -> int:
    """The largest absolute value: a Python integer, since int64 has no room for minus its least one."""
    return max(int(weights.max(initial=0)), -int(weights.min(initial=0)))


@dataclass(frozen=True)
class Factor:
    """What a group asks of one attribute: a matrix of whole numbers, one row per question.

    `kind` is one of "cells", "prefixes", "ranges", "weights" (one `row`, times `unit`) or "rows" (several, `packed`).
    """

    kind: str
    row: tuple[int, ...] = ()
    unit: Fraction = Fraction(1)
    packed: bytes = b""
    """Rows of int64 one after the other: many numbers that compare and hash as quickly as one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", text(self.kind, "a factor's kind"))
        if self.kind not in KINDS:
            raise SpecError(f"factor ({self.kind!r}) must be {', '.join(KINDS[:-1])} or {KINDS[-1]}")
        row = tuple(
            weight if type(weight) is int else whole(weight, "weight of a factor") for weight in items(self.row, "row")
        )
        object.__setattr__(self, "row", row)
        object.__setattr__(self, "unit", fraction(self.unit, "a factor's unit"))
        instance(self.packed, bytes, "rows of a factor")

    def matrix(self, size: int) -> IntArray:
        if self.kind == "cells":
            return np.eye(size, dtype=np.int64)
        if self.kind == "prefixes":
            return np.tril(np.ones((size, size), dtype=np.int64))
        if self.kind == "ranges":
            low, high = np.triu_indices(size)
            cell = np.arange(size)
            return ((low[:, None] <= cell) & (cell <= high[:, None])).astype(np.int64)
        if self.kind == "rows":
            rows: IntArray = np.frombuffer(self.packed, dtype=np.int64).reshape(-1, size)
            return rows
        return np.array([self.row], dtype=np.int64)

    def question(self, size: int, number: int) -> IntArray:
        """One row of the matrix, without the others."""
        if self.kind not in ("cells", "prefixes", "ranges"):
            return np.asarray(self.matrix(size)[number], dtype=np.int64)
        low, high = (number if self.kind == "cells" else 0), number
        if self.kind == "ranges":
            low, high = (int(ends[number]) for ends in np.triu_indices(size))
        row = np.zeros(size, dtype=np.int64)
        row[low : high + 1] = 1
        return row

    def count(self, size: int) -> int:
        if self.kind == "rows":
            return len(self.packed) // (8 * size)
        return {"cells": size, "prefixes": size, "ranges": size * (size + 1) // 2}.get(self.kind, 1)

    @property
    def largest(self) -> int:
        """No weight is larger in absolute value, in units; at least one."""
        return max([1, *map(abs, self.row), largest_weight(np.frombuffer(self.packed, dtype=np.int64))])


CELLS, PREFIXES, RANGES = Factor("cells"), Factor("prefixes"), Factor("ranges")


@dataclass(frozen=True)
class Kronecker:
    """All products of one row per attribute: marginals, prefixes, ranges, filters and sums alike."""

    name: str
    scope: tuple[str, ...]
    factors: tuple[Factor, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        what = _make_canonical(self)
        factors = tuple(instance(f, Factor, f"{what}: a factor") for f in items(self.factors, f"{what}: factors"))
        object.__setattr__(self, "factors", factors)
        if len(self.scope) != len(factors):
            raise SpecError(f"{what} must have one factor for each attribute of its scope")
        for attribute, factor, size in zip(self.scope, factors, self.shape, strict=True):
            if factor.kind == "weights" and len(factor.row) != size:
                raise SpecError(
                    f"weights for {attribute!r} must have {size} numbers, one per value; got {len(factor.row)}"
                )
            if factor.kind == "rows" and (not factor.packed or len(factor.packed) % (8 * size)):
                raise SpecError(f"weights for {attribute!r} must be rows of {size} numbers, one per value")

    @property
    def is_marginal(self) -> bool:
        return all(f.kind == "cells" for f in self.factors)

    @cached_property
    def answer_shape(self) -> tuple[int, ...]:
        return tuple(f.count(n) for f, n in zip(self.factors, self.shape, strict=True))

    def __len__(self) -> int:
        return math.prod(self.answer_shape)

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    @property
    def unit(self) -> Fraction:
        return math.prod((f.unit for f in self.factors), start=Fraction(1))

    def question(self, index: int) -> tuple[IntArray, ...]:
        """One query's weights along each attribute of the scope, in units of the attribute's factor."""
        position = np.unravel_index(index, self.answer_shape) if self.scope else ()
        return tuple(f.question(n, int(p)) for f, n, p in zip(self.factors, self.shape, position, strict=True))

    @cached_property
    def _matrices(self) -> tuple[IntArray | None, ...]:
        """Those that are written down: cells, prefixes and ranges need none, and would take the square of `shape`."""
        return tuple(
            f.matrix(n) if f.kind in ("weights", "rows") else None
            for f, n in zip(self.factors, self.shape, strict=True)
        )

    def apply(self, marginal: NDArray[Any], rows: slice = slice(None)) -> NDArray[Any]:
        """The group's answers, in units, from the marginal over its scope; for some rows of the first factor only."""
        return self._summed(marginal.reshape(self.shape), self._matrices, rows)

    def variances(self, each: NDArray[np.float64]) -> NDArray[np.float64]:
        """The variance of each answer, in square units, from those of the marginal's cells, which are independent."""
        squares = tuple(None if m is None else m.astype(np.float64) ** 2 for m in self._matrices)
        return self._summed(each.reshape(self.shape), squares)

    def lengths(self, each: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far off each answer is, in units, if all cells are off in the direction that its weights make worst."""
        absolute = tuple(None if m is None else np.abs(m.astype(np.float64)) for m in self._matrices)
        return self._summed(each.reshape(self.shape), absolute)

    def _summed(
        self, cells: NDArray[Any], matrices: Sequence[NDArray[Any] | None], rows: slice = slice(None)
    ) -> NDArray[Any]:
        """Weighted sums along each axis; without a matrix the weights are zeros and ones, their own squares."""
        for axis, (factor, matrix) in enumerate(zip(self.factors, matrices, strict=True)):
            if matrix is None:
                cells = _running_sums(cells, axis, factor.kind, slice(None) if axis else rows)
                continue
            wanted = (matrix if axis else matrix[rows]).astype(cells.dtype)
            if 0 < axis == cells.ndim - 1:  # the layout is right already: nothing is copied
                cells = np.dot(cells, wanted.T)
            else:
                cells = np.moveaxis(np.tensordot(wanted, cells, axes=(1, axis)), 0, axis)
        return cells.reshape(-1)

    @cached_property
    def max_abs(self) -> int:
        """The largest weight any query gives any join result, in units."""
        return math.prod(1 if m is None else largest_weight(m) for m in self._matrices)


@dataclass(frozen=True, eq=False)
class Masked(Kronecker):
    """A `Kronecker` of some cells only, for conditions on several attributes at once; no workload holds it."""

    mask: NDArray[np.bool_]
    """The cells that count: one axis per attribute of the scope, of length one where an attribute does not matter."""

    @property
    def is_marginal(self) -> bool:
        return False

    def apply(self, marginal: NDArray[Any], rows: slice = slice(None)) -> NDArray[Any]:
        return super().apply(marginal.reshape(self.shape) * self.mask, rows)

    def variances(self, each: NDArray[np.float64]) -> NDArray[np.float64]:
        return super().variances(each.reshape(self.shape) * self.mask)

    def lengths(self, each: NDArray[np.float64]) -> NDArray[np.float64]:
        return super().lengths(each.reshape(self.shape) * self.mask)


def marginal_of(group: Kronecker) -> Kronecker:
    """The cells that a group looks at."""
    return Kronecker(group.name, group.scope, (CELLS,) * len(group.scope), group.shape)


def widest(scopes: Iterable[Scope]) -> list[Scope]:
    """Those that lie in no other, each once.

    >>> widest([("a",), ("a", "b"), ("c",), ("a", "b")])
    [('a', 'b'), ('c',)]
    """
    some = list(dict.fromkeys(scopes))
    return [s for s in some if not any(set(s) < set(t) for t in some)]


def _running_sums(cells: NDArray[Any], axis: int, kind: str, rows: slice) -> NDArray[Any]:
    """Some of the cells, prefixes or ranges along an axis, without a matrix; floats add up in double precision."""
    if kind == "cells":
        return np.moveaxis(np.moveaxis(cells, axis, 0)[rows], 0, axis)
    exact = np.float64 if cells.dtype.kind == "f" else None
    upto = np.moveaxis(np.cumsum(cells, axis=axis, dtype=exact), axis, 0)
    if kind == "prefixes":
        found = upto[rows]
    else:
        low, high = (ends[rows] for ends in np.triu_indices(len(upto)))
        found = upto[high]
        inner = low > 0
        found[inner] -= upto[low[inner] - 1]
    return np.moveaxis(found, 0, axis).astype(cells.dtype, copy=False)


@dataclass(frozen=True, eq=False)
class Products:
    """Product queries: row i of each table's weight matrix, multiplied over the tables.

    `parts` holds for each table the attributes its weights look at and a (queries x cells) matrix of
    fixed-point weights, which nobody can change any more. A table that is not named has weight one.
    """

    name: str
    scope: tuple[str, ...]
    shape: tuple[int, ...]
    parts: tuple[tuple[tuple[str, ...], IntArray], ...]
    unit: Fraction

    is_marginal = False

    def __post_init__(self) -> None:
        what = _make_canonical(self)
        object.__setattr__(self, "unit", fraction(self.unit, f"{what}: unit"))
        pairs = [items(part, f"{what}: a part") for part in items(self.parts, f"{what}: parts")]
        if not pairs or any(len(pair) != 2 for pair in pairs):
            raise SpecError(f"{what}: parts must be pairs of attributes and weights, one at least")
        try:
            parts = tuple((names(scope, f"{what}: scope"), frozen(weights)) for scope, weights in pairs)
        except (ValueError, TypeError):  # numpy's, of lists that are no table
            raise SpecError(f"{what}: weights must be arrays of whole numbers") from None
        for _, weights in parts:
            if weights.dtype != np.int64 or weights.ndim != 2 or len(weights) != len(parts[0][1]):
                raise SpecError(
                    f"products {self.name!r}: weights ({weights.dtype}, {weights.shape}) must be int64, one row per "
                    "query and one column per cell; use Workload.products for numbers in [-1, 1]"
                )
            if (largest := largest_weight(weights)) > 2**WEIGHT_BITS:
                raise SpecError(
                    f"products {self.name!r}: weight ({largest}) must lie between -2^{WEIGHT_BITS} and "
                    f"2^{WEIGHT_BITS}; scale the query and multiply its answer"
                )
        sizes = dict(zip(self.scope, self.shape, strict=True))
        if tuple(a for scope, _ in parts for a in scope) != self.scope:
            raise SpecError(f"{what}: scope must be that of the parts, one after the other")
        if any(weights.shape[1] != math.prod(sizes[a] for a in scope) for scope, weights in parts):
            raise SpecError(f"{what}: every part must have one column per cell")
        object.__setattr__(self, "parts", parts)

    def __len__(self) -> int:
        return len(self.parts[0][1])

    @property
    def answer_shape(self) -> tuple[int, ...]:
        return (len(self),)

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    def apply(self, marginal: NDArray[Any], rows: slice = slice(None)) -> NDArray[Any]:
        """The group's answers, or some of them, in units, from the marginal over its scope, attributes part by part."""
        first, *rest = (weights[rows] for _, weights in self.parts)
        exact = marginal.dtype == object
        table = marginal.reshape(first.shape[1], -1)
        answers: NDArray[Any] = first.astype(object).dot(table) if exact else first.astype(table.dtype) @ table
        for weights in rest:
            answers = answers.reshape(*weights.shape, answers.shape[1] // weights.shape[1])
            answers = (answers * weights.astype(table.dtype)[:, :, None]).sum(axis=1)
        return answers.reshape(-1)

    @cached_property
    def max_abs(self) -> int:
        return max((math.prod(largest_weight(w[i]) for _, w in self.parts) for i in range(len(self))), default=0)

    def rows(self, indices: Sequence[int]) -> Products:
        """The same group with only some of its queries."""
        parts = tuple((attributes, weights[list(indices)]) for attributes, weights in self.parts)
        return Products(self.name, self.scope, self.shape, parts, self.unit)


Group = Kronecker | Products


def _make_canonical(group: Group) -> str:
    """Convert a new group's name, scope and shape; how messages call it."""
    object.__setattr__(group, "name", text(group.name, "a group's name"))
    what = f"group {group.name!r}"
    object.__setattr__(group, "scope", names(group.scope, f"{what}: scope"))
    shape = tuple(whole(n, f"{what}: shape", least=1) for n in items(group.shape, f"{what}: shape"))
    object.__setattr__(group, "shape", shape)
    if not len(group.scope) == len(set(group.scope)) == len(shape):
        raise SpecError(f"{what} must name each attribute of its scope once, each with one size")
    return what


def check_fits(schema: Schema, group: Group) -> None:
    """Refuse a group whose shape is not that of the schema's domains."""
    if group.shape != schema.shape(group.scope):
        raise SpecError(f"group {group.name!r}: shape {group.shape} must be that of the domains of {group.scope}")


@dataclass(frozen=True)
class Average:
    """A sum over a count of the same rows: no linear query, so no workload holds it, but a release can be asked."""

    attribute: str
    total: Kronecker
    count: Kronecker
    """It looks at the attributes of `total`, and has its cells."""
    low: float
    """The smallest value that is averaged."""
    high: float

    @property
    def scope(self) -> tuple[str, ...]:
        return self.total.scope

    @property
    def answer_shape(self) -> tuple[int, ...]:
        return self.total.answer_shape

    def __len__(self) -> int:
        return len(self.total)


@dataclass(frozen=True, eq=False)
class Workload:
    """The questions a release must answer, in groups.

    >>> from dpjoin.spec.schema import Attribute, Table
    >>> schema = Schema((Table(name="r", attributes=("a", "c")),),
    ...                 (Attribute(name="a", range=(0, 3)), Attribute(name="c", values=("x", "y"))))
    >>> workload = Workload.marginals(schema, 1) + Workload.prefixes(schema, ["a"])
    >>> len(workload), [g.name for g in workload.groups]
    (10, ['a', 'c', 'a prefixes'])
    """

    schema: Schema
    groups: tuple[Group, ...]
    importance: tuple[float, ...] = ()
    """How much the errors of each group count when the budget is divided; empty: all alike."""

    def __post_init__(self) -> None:
        schema = instance(self.schema, Schema, "a workload's schema")
        groups = items(self.groups, "a workload's groups")
        object.__setattr__(self, "groups", tuple(instance(g, (Kronecker, Products, Masked), "a group") for g in groups))
        importance = tuple(real(x, "importance") for x in items(self.importance, "importance"))
        object.__setattr__(self, "importance", importance)
        for group in self.groups:
            check_fits(schema, group)
        if not all(0 < x < math.inf for x in importance):
            raise SpecError("importance must be numbers greater than 0")
        if self.importance and len(self.importance) != len(self.groups):
            raise SpecError(f"importance must have a number for each of the {len(self.groups)} groups")

    def __add__(self, other: Workload) -> Workload:
        """All groups of both; one that is in both counts as much as where it counts more."""
        if not isinstance(other, Workload):
            raise SpecError(f"a workload can be added to a workload, not to {type(other).__name__}")
        if other.schema != self.schema:
            raise SpecError("two workloads must share one schema to be added")
        groups = self.groups + tuple(g for g in other.groups if g not in self.groups)
        if not self.importance and not other.importance:
            return Workload(self.schema, groups)

        def counts(group: Group) -> float:
            return max(w.importance_of(group) for w in (self, other) if group in w.groups)

        return Workload(self.schema, groups, tuple(map(counts, groups)))

    def important(self, factor: float) -> Workload:
        """The same questions, whose errors count so many times: more of the budget goes to them.

        >>> from dpjoin.spec.schema import Attribute, Table
        >>> schema = Schema((Table(name="r", attributes=("a", "c")),),
        ...                 (Attribute(name="a", range=(0, 3)), Attribute(name="c", values=("x", "y"))))
        >>> workload = Workload.marginals(schema, 1) + Workload.marginals(schema, [("a",)]).important(5)
        >>> workload.importance
        (5.0, 1.0)
        """
        if not 1 <= real(factor, "importance") <= 1000:
            raise SpecError(f"importance ({factor}) must be a number from 1 to 1000; 1 is that of other groups")
        if any(isinstance(g, Products) for g in self.groups):
            raise SpecError("importance must be of marginals, prefixes, ranges or sums; product queries count alike")
        return Workload(self.schema, self.groups, tuple(factor * self.importance_of(g) for g in self.groups))

    def importance_of(self, group: Group) -> float:
        """How much the errors of one of its groups count."""
        return float(self.importance[self.groups.index(group)]) if self.importance else 1.0

    def over(self, schema: Schema) -> Workload:
        """The same questions of a schema in which domains that were to be learned are known."""
        learned = set(self.schema.learned)

        def asked(group: Group) -> Group:
            if not isinstance(group, Kronecker) or not learned & set(group.scope):
                return group
            # Weights for single values are refused where a domain is learned, so what has weights is a sum.
            factors = {
                a: amounts(schema, a) if f.kind == "weights" and a in learned else f
                for a, f in zip(group.scope, group.factors, strict=True)
            }
            return kronecker(schema, factors, name=group.name)

        return Workload(schema, tuple(map(asked, self.groups)), self.importance)

    def __len__(self) -> int:
        return sum(len(g) for g in self.groups)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes some query looks at: the model lives on these and on nothing else."""
        return self.schema.in_order(a for g in self.groups for a in g.scope)

    @property
    def cells(self) -> int:
        return self.schema.cells(self.attributes)

    @classmethod
    def marginals(cls, schema: Schema, which: int | Iterable[int] | Iterable[Sequence[str]]) -> Workload:
        """Every k-way marginal of the attributes with a domain, for one or several k; or the ones named."""
        _check_schema(schema)
        if isinstance(which, bool) or not isinstance(which, Iterable | int):
            raise SpecError(f"marginals ({shown(which)}) must be a number, or a list of numbers or of attribute lists")
        listed = [which] if isinstance(which, int) else list(which)
        if isinstance(which, str) or any(isinstance(item, str) for item in listed):
            raise SpecError(f"marginals ({shown(which)}) must list lists of attributes; write [{shown(which)}]")
        groups = []
        for item in listed:
            if isinstance(item, int):
                if isinstance(item, bool) or not 1 <= item <= len(schema.queryable):
                    raise SpecError(
                        f"marginals ({item}) must be between 1 and the number of attributes with a domain "
                        f"({len(schema.queryable)})"
                    )
                scopes: Iterable[tuple[str, ...]] = itertools.combinations(schema.queryable, item)
            else:
                scope = names(item, "marginals")
                scopes = [scope]
                if len(set(scope)) < len(scope):
                    raise SpecError(f"marginals ({list(scope)}) must name each attribute once; remove the repetition")
            groups += [kronecker(schema, dict.fromkeys(scope, CELLS)) for scope in scopes]
        return cls(schema, tuple(groups))

    @classmethod
    def prefixes(cls, schema: Schema, attributes: Iterable[str], by: Sequence[str] = ()) -> Workload:
        """For each attribute, how many join results lie at or below each of its values (per cell of `by`)."""
        named, by = _named(schema, attributes, by)
        return cls(schema, tuple(kronecker(schema, {a: PREFIXES} | dict.fromkeys(by, CELLS)) for a in named))

    @classmethod
    def ranges(cls, schema: Schema, attributes: Iterable[str], by: Sequence[str] = ()) -> Workload:
        """For each attribute, how many join results lie in each interval of its values (per cell of `by`)."""
        named, by = _named(schema, attributes, by)
        return cls(schema, tuple(kronecker(schema, {a: RANGES} | dict.fromkeys(by, CELLS)) for a in named))

    @classmethod
    def sums(cls, schema: Schema, attributes: Iterable[str], by: Sequence[str] = ()) -> Workload:
        """The sum of a bounded numeric attribute over the join (per cell of `by`); bins count as their middle."""
        named, by = _named(schema, attributes, by)
        factors = {a: {a: amounts(schema, a)} | dict.fromkeys(by, CELLS) for a in named}
        per = f" by {', '.join(by)}" if by else ""
        return cls(schema, tuple(kronecker(schema, f, name=f"sum of {a}{per}") for a, f in factors.items()))

    @classmethod
    def products(
        cls, schema: Schema, weights: Mapping[str, tuple[Sequence[str], Any]], *, name: str = "products"
    ) -> Workload:
        """Product queries with weights in [-1, 1] per table.

        `weights` maps a table to (attributes, array): the array has one row per query, then one axis
        per attribute. Tables that are left out have weight one.
        """
        _check_schema(schema)
        return cls(schema, (product_group(schema, weights, name=name),))

    @classmethod
    def crossed(cls, schema: Schema, weights: Mapping[str, Any], *, name: str = "crossed") -> Workload:
        """Every product of one row of each attribute's matrix: a million queries from two matrices of a thousand rows.

        `weights` maps an attribute to an array of numbers in [-1, 1], one row per question and one column per value.
        Nothing of the size of queries times cells is ever made.
        """
        _check_schema(schema)
        given = mapping(weights, f"{name!r}: weights")
        factors = {a: weight_rows(rows, what=f"{name!r}, attribute {a!r}") for a, rows in given.items()}
        return cls(schema, (kronecker(schema, factors, name=name),))

    @classmethod
    def sql(cls, schema: Schema, *statements: str) -> Workload:
        """Counts and sums in SQL: SELECT …, COUNT(*) | SUM(x) FROM joined [WHERE …] [GROUP BY …]."""
        from dpjoin.spec.sql import parse_groups

        _check_schema(schema)
        return cls(schema, tuple(g for s in statements for g in parse_groups(schema, s)))


def check_askable(attribute: Attribute) -> None:
    """Refuse attributes that no query can look at: keys, and ranges of more values than a model can hold."""
    if attribute.key:
        raise SpecError(
            f"attribute {attribute.name!r} is a key that no query can look at; give it values, a range or bins instead"
        )
    if attribute.size > MOST_VALUES:
        raise SpecError(
            f"attribute {attribute.name!r} has {attribute.size:,} values, and queries can look at {MOST_VALUES:,} at "
            "most; use bins, or a smaller range"
        )


def _check_known(schema: Schema, attribute: str) -> None:
    """Refuse weights for single values of a domain that nobody knows yet."""
    if schema.attribute(attribute).learned is not None:
        raise SpecError(
            f"attribute {attribute!r} is learned, and weights for its values must wait until they are known; ask for "
            "marginals, prefixes, ranges or sums, or declare the domain"
        )


def kronecker(schema: Schema, factors: Mapping[str, Factor], *, name: str | None = None) -> Kronecker:
    """A group from one factor per attribute; attributes are checked, ordered and named."""
    for attribute, factor in factors.items():
        check_askable(schema.attribute(attribute))
        if factor.kind == "rows":
            _check_known(schema, attribute)
    scope = schema.in_order(factors)
    shape = schema.shape(scope)
    ordered = tuple(factors[a] for a in scope)
    if name is None:
        parts = (a if f.kind == "cells" else f"{a} {f.kind}" for a, f in zip(scope, ordered, strict=True))
        name = " x ".join(parts) or "count"
    return Kronecker(name, scope, ordered, shape)


def where(schema: Schema, attribute: str, wanted: Iterable[int]) -> Factor:
    """A filter: weight one on the wanted codes, zero elsewhere."""
    codes = set(wanted)
    return Factor("weights", tuple(int(i in codes) for i in range(schema.attribute(attribute).size)))


def amounts(schema: Schema, attribute: str) -> Factor:
    """The numbers a sum adds up, as whole multiples of a public unit.

    Exact where they fit into AMOUNT_BITS bits; otherwise rounded to that many bits of the largest.
    """
    check_askable(schema.attribute(attribute))
    numbers = schema.attribute(attribute).amounts
    denominator = math.lcm(*(n.denominator for n in numbers))
    unit = Fraction(math.gcd(*(int(n * denominator) for n in numbers)) or 1, denominator)
    largest = max(abs(n) for n in numbers)
    if largest / unit > 2**AMOUNT_BITS:
        unit = largest / 2**AMOUNT_BITS
    return Factor("weights", tuple(round(n / unit) for n in numbers), unit)


def weight_rows(weights: Any, *, what: str = "weights") -> Factor:
    """A factor of several rows of weights in [-1, 1]: whole ones as they are, others as multiples of 2^-16."""
    rows = fixed_point(weights, what=what)
    if rows.ndim != 2 or not rows.size:
        raise SpecError(f"{what}: weights must have one row per question and one column per value")
    whole = not np.any(rows % 2**WEIGHT_BITS)
    if whole:
        return Factor("rows", packed=(rows >> WEIGHT_BITS).tobytes())
    return Factor("rows", unit=Fraction(1, 2**WEIGHT_BITS), packed=rows.tobytes())


def fixed_point(weights: Any, *, what: str) -> IntArray:
    """Weights in [-1, 1] as whole numbers of 2^-16, rounded to the nearest."""
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise SpecError(f"{what}: weights ({shown(weights)}) must be an array of numbers") from None
    if not np.all(np.abs(array) <= 1.0):
        worst = array.reshape(-1)[int(np.argmax(np.where(np.isnan(array), np.inf, np.abs(array)).reshape(-1)))]
        raise SpecError(f"{what}: weight ({worst:g}) must lie in [-1, 1]; scale the query and multiply its answer")
    return np.rint(np.ldexp(array, WEIGHT_BITS)).astype(np.int64)


def product_group(
    schema: Schema, weights: Mapping[str, tuple[Sequence[str], Any]], *, name: str = "products"
) -> Products:
    """A checked `Products` group; see `Workload.products`."""
    weights = mapping(weights, f"products {name!r}: weights")
    if not weights:
        raise SpecError(f"products {name!r} must give weights for at least one table")
    for table, pair in weights.items():
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise SpecError(f"products {name!r}: table {table!r} ({shown(pair)}) must have a pair (attributes, array)")
    parts: list[tuple[tuple[str, ...], IntArray]] = []
    scope: list[str] = []
    for table, (given, values) in weights.items():
        attributes = names(given, f"products {name!r}: attributes of table {table!r}")
        for attribute in attributes:
            if attribute not in (known := schema.table(table).attributes):
                hint = suggest(attribute, known)
                raise SpecError(f"products {name!r}: table {table!r} has no attribute {attribute!r}; {hint}")
            if attribute in scope:
                raise SpecError(f"products {name!r}: attribute {attribute!r} must have weights in one table only")
        for attribute in attributes:
            _check_known(schema, attribute)
        shape = schema.shape(attributes)
        whole = fixed_point(values, what=f"products {name!r}, table {table!r}")
        if whole.shape[1:] != shape:
            raise SpecError(
                f"products {name!r}: weights of table {table!r} must have shape (queries, "
                f"{', '.join(map(str, shape))}); got {whole.shape}"
            )
        parts.append((attributes, whole.reshape(len(whole), -1)))
        scope += attributes
    counts = {len(rows) for _, rows in parts}
    if len(counts) != 1 or counts == {0}:
        raise SpecError(f"products {name!r}: every table must have the same number of queries, at least one")
    unit = Fraction(1, 2 ** (WEIGHT_BITS * len(parts)))
    return Products(name, tuple(scope), schema.shape(scope), tuple(parts), unit)


def _factor_to_json(factor: Factor, size: int) -> str | dict[str, Any]:
    if factor.kind == "rows":
        return {"rows": factor.matrix(size).tolist(), "unit": str(factor.unit)}
    return factor.kind if factor.kind != "weights" else {"weights": list(factor.row), "unit": str(factor.unit)}


def _factor_from_json(data: Any) -> Factor:
    if isinstance(data, str):
        return Factor(data)
    if "rows" in data:
        rows = np.array(data["rows"], dtype=np.int64)
        return Factor("rows", unit=Fraction(data["unit"]), packed=rows.tobytes())
    return Factor("weights", tuple(data["weights"]), Fraction(data["unit"]))


def group_to_json(group: Group) -> dict[str, Any]:
    """A group as plain data, for the manifest."""
    if isinstance(group, Kronecker):
        factors = [_factor_to_json(f, n) for f, n in zip(group.factors, group.shape, strict=True)]
        return {"name": group.name, "scope": list(group.scope), "factors": factors}
    return {
        "name": group.name,
        "products": [{"scope": list(attributes), "weights": w.tolist()} for attributes, w in group.parts],
        "unit": str(group.unit),
    }


def group_from_json(schema: Schema, data: Mapping[str, Any]) -> Group:
    """The inverse of `group_to_json`."""
    if "factors" not in data:
        return products_from_json({a.name: a.size for a in schema.attributes if not a.key}, data)
    factors = {a: _factor_from_json(f) for a, f in zip(data["scope"], data["factors"], strict=True)}
    return kronecker(schema, factors, name=data["name"])


def products_from_json(sizes: Mapping[str, int], data: Mapping[str, Any]) -> Products:
    """Product queries over attributes of these sizes."""
    parts = tuple((tuple(p["scope"]), np.array(p["weights"], dtype=np.int64)) for p in data["products"])
    scope = tuple(a for attributes, _ in parts for a in attributes)
    return Products(data["name"], scope, tuple(sizes[a] for a in scope), parts, Fraction(data["unit"]))


def _check_schema(schema: Schema) -> None:
    if not isinstance(schema, Schema):
        raise SpecError(f"schema must be a dj.Schema, not {type(schema).__name__}")


def _named(schema: Schema, attributes: Iterable[str], by: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a group is built of, as lists of names of a schema."""
    _check_schema(schema)
    return names(attributes, "attributes"), names(by, "by")
