"""What an engine computes: exact aggregates of private tables, and nothing else.

Everything here is private. Only the Curator calls an engine, and it adds noise before anything leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpjoin.canonical import flag, frozen, instance, join_value, mapping, names, set_canonical, text, whole
from dpjoin.errors import SpecError
from dpjoin.spec.schema import DegreeBound, Schema
from dpjoin.spec.workload import Group
from dpjoin.spec.workload import Scope as Scope

LISTED = "listed value"
"""The attribute that numbers listed values, in an engine of one table alone."""
MOST_RESULTS, MOST_FULL = 2**24, 2**12
"""Of a clip: then its weights are computed in int64."""
Value = tuple[object, ...]
"""One value of some join attributes, as the join compares them."""


@dataclass(frozen=True, eq=False)
class Labels:
    """A public function from values of join attributes to a bucket: listed values have theirs, all others 0."""

    name: str
    attributes: tuple[str, ...]
    buckets: Mapping[Value, int]

    def __post_init__(self) -> None:
        # Caps and charges rest on the buckets, and rows are sorted later: nobody can change them in between, and a
        # value is the one that the engine compares.
        object.__setattr__(self, "name", text(self.name, "a name of labels"))
        what = f"labels {self.name!r}"
        object.__setattr__(self, "attributes", names(self.attributes, f"{what}: attributes"))
        buckets: dict[Value, int] = {}
        for value, bucket in mapping(self.buckets, f"{what}: buckets").items():
            key = tuple(join_value(v, f"{what}: a value") for v in instance(value, tuple, f"{what}: a value"))
            if len(key) != len(self.attributes):
                raise SpecError(f"{what}: a value must have {len(self.attributes)} parts, one for each attribute")
            if None in key:
                continue  # a missing value joins nothing, so no row has it
            if key in buckets:
                raise SpecError(f"{what}: a value must have one bucket; some are the same to the engine")
            buckets[key] = whole(bucket, f"{what}: a bucket")
        object.__setattr__(self, "buckets", MappingProxyType(buckets))


Rules = Mapping[Labels, int]
"""A row satisfies the rules if its value has the given bucket under each of the labels."""


@dataclass(frozen=True, eq=False)
class ExactDegrees:
    """How often each value occurs; values that do not occur are left out. In no particular order."""

    exact_counts: NDArray[np.int64]
    exact_values: Callable[[NDArray[np.int64]], list[Value]]
    """The values at some positions of `exact_counts`."""


@dataclass(frozen=True, eq=False)
class ExactNumbers:
    """The finite numbers that occur in a column, and how often each does. In no particular order."""

    exact_values: NDArray[np.float64]
    exact_counts: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RowWeights:
    """Rows of a value count less, the more of them there are: public whole numbers instead of a limit.

    A row whose value of `attributes` has d rows in its table counts `weights[d - 1]` times, and not at all where the
    weights have ended. A weight of `full` stands for one row.
    """

    attributes: tuple[str, ...]
    weights: NDArray[np.int64]
    full: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", names(self.attributes, "weights of rows: attributes"))
        weights = self.weights
        if not isinstance(weights, np.ndarray) or weights.dtype != np.int64 or weights.ndim != 1:
            raise SpecError("weights of rows must be whole numbers (int64), one for each number of rows")
        object.__setattr__(self, "weights", frozen(weights))
        object.__setattr__(self, "full", whole(self.full, "weights of rows: full", least=1))

    def of(self, degrees: NDArray[np.int64]) -> NDArray[np.int64]:
        """The weight of each row of values with so many rows, from 1 on."""
        ended = np.append(self.weights, 0)
        found: NDArray[np.int64] = ended[np.minimum(degrees, len(self.weights) + 1) - 1]
        return found


@dataclass(frozen=True)
class Clip:
    """Join results of an owner count less, the more of them there are: together at most `limit` full ones.

    With n join results each counts W(n) = min(full, ⌊full·limit/n⌋) times, `steep` ones also at most
    ⌊full·2·limit²/((n - limit)² + limit²)⌋ times. A weight of `full` stands for one join result.
    """

    owner: tuple[str, ...]
    limit: int
    full: int = 1024
    steep: bool = True

    def __post_init__(self) -> None:
        positive = partial(whole, least=1)
        set_canonical(self, "clipping", owner=names, limit=positive, full=positive, steep=flag)
        if self.limit > MOST_RESULTS or self.full > MOST_FULL:
            raise SpecError(f"clipping: limit must be at most {MOST_RESULTS:,} and full at most {MOST_FULL:,}")

    def weight(self, results: int) -> int:
        """What each of so many join results of one owner counts: the definition.

        >>> clip = Clip(owner=("patient",), limit=10, full=1000)
        >>> [clip.weight(n) for n in (1, 10, 20, 40, 10**6)]
        [1000, 1000, 500, 200, 0]
        """
        if results <= self.limit:
            return self.full
        most = self.full * self.limit // results
        if self.steep:
            most = min(most, self.full * 2 * self.limit**2 // ((results - self.limit) ** 2 + self.limit**2))
        return most

    def of(self, results: NDArray[Any]) -> NDArray[np.int64]:
        """The weights of owners with so many join results."""
        last = self.limit * (math.isqrt(2 * self.full) + 2) if self.steep else self.limit * self.full
        n = np.minimum(results, last + 1).astype(np.int64)  # from there on nothing counts
        found = np.minimum(self.full, self.full * self.limit // np.maximum(n, 1))
        if self.steep:
            beyond = np.maximum(n - self.limit, 0)
            found = np.minimum(found, self.full * 2 * self.limit**2 // (beyond**2 + self.limit**2))
        return np.asarray(found, dtype=np.int64)


class Engine(Protocol):
    """Exact aggregates over the public domain, as whole numbers that neither wrap nor raise because of data."""

    @property
    def schema(self) -> Schema: ...

    def exact_join_size(self) -> int:
        """count(I): how many results the join has, multiplicities included."""
        ...

    def exact_boundary(self, tables: frozenset[str]) -> int:
        """T_E(I): the largest number of results that the join of the tables E has at one value of their boundary.

        The boundary of E are the attributes that E shares with the other tables. T of no table is 1.
        """
        ...

    def exact_answers(self, groups: Sequence[Group]) -> list[NDArray[Any]]:
        """Each group's answers in its unit: int64, or Python integers in an object array where int64 is too narrow."""
        ...

    def exact_degrees(
        self, rules: Mapping[str, Rules], by: tuple[str, ...], distinct: tuple[str, ...] = ()
    ) -> ExactDegrees:
        """For each value of the join attributes `by`: how many rows, or how many values of `distinct`, there are.

        `rules` names the tables that take part and which of their rows do. Without `distinct` there is one table and
        its rows are counted. With it, counted are the values of `distinct` (which includes `by`) that occur in the
        natural join of those rows, and every table named has all attributes of `distinct`.
        """
        ...

    def kind_of(self, attribute: str) -> str:
        """What the column of an attribute holds, by its type alone: text, untyped, integer, float or boolean.

        A part of dates is an integer. Of an attribute that one table has and that has no domain yet, as the next two.
        """
        ...

    def exact_values(self, attribute: str, most: int) -> ExactDegrees:
        """How many rows of its table have each value of an attribute: text, whole numbers or booleans; no others.

        Of the rows that the public rule keeps, before bounds and joins. Where persons are protected, how many owners of
        the table's rows have it, each at `most` values at most: those of the least hash of owner and value. A row's
        owner is its own, or that of the row that its foreign key points to; rows without one take no part.
        """
        ...

    def exact_numbers(self, attribute: str) -> ExactNumbers:
        """The same of finite numbers, as floats, each owner at one of its values."""
        ...

    def learned(self, schema: Schema) -> Engine:
        """The same tables with this schema, which has a domain for each attribute."""
        ...

    def restricted(self, rules: Mapping[str, Rules]) -> Engine:
        """The same tables with only the rows that satisfy the rules; tables not named keep all rows."""
        ...

    def capped(self, caps: Mapping[str, Sequence[DegreeBound]]) -> Engine:
        """The same tables with only the rows whose rank in each of their groups is within the limit; see `cap`.

        Ranks are taken on the table itself, by an order of rows that does not depend on which others there are. The
        result's schema has the caps as enforced bounds.
        """
        ...

    def weighted(self, weightings: Mapping[str, RowWeights]) -> Engine:
        """The same tables, each row of a named one as often as its weight says.

        Degrees are those of the table itself. The result's schema is the same.
        """
        ...

    def exact_results(self, by: tuple[str, ...]) -> ExactDegrees:
        """For each value of the join attributes `by`, which one table has: how many join results have it."""
        ...

    def clipped(self, clip: Clip) -> Engine:
        """The same tables, each join result as often as its owner's weight says."""
        ...

    def one_table(self, table: str, by: tuple[str, ...], values: Sequence[Value], keep: tuple[str, ...]) -> Engine:
        """One table by itself: its rows whose value of the join attributes `by` is one of `values`.

        The result has a schema of its own, with this one table. Its attributes are LISTED, the position in `values`
        (left out if `by` is empty), and `keep`, attributes of the table with a domain; all of them hold codes, as whole
        numbers from 0. Which rows there are depends on this table only.
        """
        ...
