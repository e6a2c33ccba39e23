"""Join keys: numbers for their values, values for their numbers, and the rows that public rules pick by value.

Values go in and out as plain Python values, whatever the columns' types are: a whole number is an int, from
a column of floats or booleans too, a date is a date, and what Python has no type for is its text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpjoin.engine import caps, sumproduct
from dpjoin.engine.arrow import array_of, column_of, is_numeric
from dpjoin.engine.buckets import Bucketed
from dpjoin.engine.encode import as_double
from dpjoin.engine.integers import FLOAT_LIMIT, INT_LIMIT, Exact, count_by, times
from dpjoin.engine.interface import LISTED, Clip, ExactDegrees, Labels, RowWeights, Rules, Scope, Value
from dpjoin.engine.sumproduct import Counts, Variable, compact
from dpjoin.spec.dates import EPOCH
from dpjoin.spec.schema import Attribute, DegreeBound, Schema
from dpjoin.spec.workload import IntArray

KEY, ID, CODE = "key", "id", "code"
"""Kinds of variables: the number of a key, the number of one of its attributes, the code of a touched attribute."""
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, eq=False)
class Values:
    """The values of one join attribute by their number: a run of whole numbers, or listed."""

    kind: Any
    """The Arrow type of the columns."""
    digits: bool
    """Whether text stands for whole numbers, which may be too wide for Arrow."""
    size: int
    exact_low: int
    exact_listed: Any | None
    """Arrow values by number, dates as numbers; None for the run from `exact_low` on."""
    buckets: Bucketed | None = None
    """Of which buckets the whole numbers are; then `exact_low` and `exact_listed` are without the gaps in between."""

    def at(self, numbers: NDArray[Any]) -> list[object]:
        """The values that have these numbers."""
        if self.exact_listed is None:
            stored = [self.exact_low + n for n in numbers.tolist()]
        else:
            stored = self.exact_listed.take(column_of(numbers)).to_pylist()
        stored = stored if self.buckets is None else list(map(self.buckets.opened, stored))
        is_date, is_time = pa.types.is_date32(self.kind), pa.types.is_timestamp(self.kind)
        return list(map(_date if is_date else _time if is_time else int if self.digits else plain, stored))

    def whole(self, numbers: NDArray[Any]) -> IntArray | None:
        """The same as an array of int64, where the columns' type has no others."""
        # By the type alone: which values there are must not decide in which order rows are put.
        if not pa.types.is_integer(self.kind) or pa.types.is_uint64(self.kind):
            return None
        return self._exact_stored(numbers).astype(np.int64, copy=False)

    def _exact_stored(self, numbers: NDArray[Any]) -> NDArray[Any]:
        if self.exact_listed is None:
            stored = np.asarray(numbers, dtype=np.int64) + self.exact_low
        else:
            stored = array_of(self.exact_listed.take(column_of(numbers)))
        return stored if self.buckets is None else np.asarray(self.buckets.opened(stored))

    def column(self, numbers: NDArray[Any]) -> Any:
        """The Arrow column that has these numbers."""
        if self.exact_listed is not None and not is_numeric(self.kind):
            return self.exact_listed.take(column_of(numbers)).cast(self.kind)
        stored = column_of(self._exact_stored(numbers))
        return (stored.cast(pa.int32()) if pa.types.is_date32(self.kind) else stored).cast(self.kind)

    def numbers(self, values: Sequence[object] | IntArray) -> IntArray:
        """The numbers of some values, -1 for those that do not occur."""
        if isinstance(values, np.ndarray):
            if pa.types.is_integer(self.kind) and self.kind != pa.uint64():
                return self._numbers_of_whole(values)
            return self.numbers(values.tolist())
        stored = self.stored(values)
        if self.buckets is not None:
            own = self.buckets
            stored = [own.closed(v) if isinstance(v, int) and own.holds(v) else None for v in stored]
        if self.exact_listed is None:
            distances = [v - self.exact_low if isinstance(v, int) else -1 for v in stored]
            return np.array([d if 0 <= d < self.size else -1 for d in distances], dtype=np.int64)
        wanted = _fitting(stored, self.exact_listed.type)
        # One pass over the listed values: hashing the few wanted ones is cheaper than hashing all of them.
        import pyarrow.compute as pc  # takes as long to import as the rest of pyarrow

        at = pc.index_in(self.exact_listed, value_set=pa.array(wanted, self.exact_listed.type))
        hits = np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False)).tolist()
        number = dict(zip(map(wanted.__getitem__, at.drop_null().to_pylist()), hits, strict=True))
        return np.array([number.get(v, -1) for v in stored], dtype=np.int64)

    def _numbers_of_whole(self, values: IntArray) -> IntArray:
        stored, fits = values, np.ones(len(values), dtype=bool)
        if self.buckets is not None:
            stored, fits = self.buckets.closed(values), self.buckets.holds(values)
        numbers = np.full(len(values), -1, dtype=np.int64)
        if self.exact_listed is None:
            fits &= (stored >= self.exact_low) & (stored <= self.exact_low + self.size - 1)
            numbers[fits] = stored[fits] - self.exact_low
        else:
            listed, order = np.asarray(array_of(self.exact_listed), dtype=np.int64), np.argsort(stored[fits])
            wanted = stored[fits][order]
            first = np.searchsorted(wanted, listed)
            found = np.flatnonzero(np.append(wanted, 0)[first] == listed)
            found = found[first[found] < len(wanted)]
            by_wanted = np.full(len(wanted), -1, dtype=np.int64)
            by_wanted[first[found]] = found
            by_wanted = by_wanted[np.searchsorted(wanted, wanted)]  # equal values have the number of the first
            numbers[np.flatnonzero(fits)[order]] = by_wanted
        return numbers

    def stored(self, values: Sequence[object]) -> list[Any]:
        """Values as the columns have them; None for those that they cannot have."""
        if pa.types.is_date32(self.kind):
            return [_days(v) for v in values]
        if pa.types.is_timestamp(self.kind):
            return [_ticks(v) for v in values]
        values = [plain(v) for v in values]
        if is_numeric(self.kind):
            return [v if isinstance(v, int | float) else None for v in values]
        if self.digits:
            return [str(v) if isinstance(v, int) and abs(v) < 2**128 else None for v in values]
        return [v if isinstance(v, str) else None for v in values]


def plain(value: object) -> object:
    """A number that is whole as an int, since the join compares 1, 1.0 and true alike; all else as it is.

    >>> plain(-0.0), plain(True), plain(0.5), plain("1")
    (0, 1, 0.5, '1')
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    return value


def by_column(values: Collection[Value], width: int) -> list[list[object] | IntArray]:
    """Values of some attributes, attribute by attribute; whole numbers as an array, which is quicker to look up."""
    found: list[list[object] | IntArray] = []
    for i in range(width):
        column = [plain(value[i]) for value in values]
        narrow = all(type(v) is int and -(2**63) <= v < 2**63 for v in column)
        found.append(np.array(column, dtype=np.int64) if narrow else column)
    return found


def _date(days: int) -> object:
    """The date, or the number of days where Python has no date for it."""
    try:
        return date.fromordinal(EPOCH.toordinal() + days)
    except (ValueError, OverflowError):
        return days


def _days(value: object) -> int | None:
    days = value.toordinal() - EPOCH.toordinal() if type(value) is date else value
    return days if isinstance(days, int) and _date(days) == value else None


def _time(ticks: int) -> object:
    """The time, or the number of microseconds where Python has no time for it."""
    try:
        return EPOCH + ticks * _MICROSECOND
    except OverflowError:
        return ticks


def _ticks(value: object) -> int | None:
    naive = isinstance(value, datetime) and value.tzinfo is None
    ticks = (value - EPOCH) // _MICROSECOND if naive else value  # type: ignore[operator]
    return ticks if isinstance(ticks, int) and _time(ticks) == value else None


def _fitting(stored: Iterable[Any], kind: Any) -> list[Any]:
    """Each value once, without those that no Arrow array of the type can hold."""
    once = dict.fromkeys(stored)
    if pa.types.is_floating(kind):
        return [float(v) for v in once if isinstance(v, int | float) and as_double(v) == v]
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        low, high = int(limits.min), int(limits.max)
        return [v for v in once if isinstance(v, int) and low <= v <= high]
    return [v for v in once if isinstance(v, str) and v.encode(errors="ignore").decode() == v]


@dataclass(frozen=True, eq=False)
class Keys:
    """How the values of one or several attributes are numbered together: as digits, closed up where too sparse."""

    size: int
    values: tuple[Values, ...]
    exact_closed: tuple[IntArray | None, ...]
    """After each attribute: what each number was before gaps were closed; None where they were kept."""

    def ids(self, keys: IntArray) -> list[IntArray]:
        """The number of each attribute's value in some keys."""
        columns: list[IntArray] = []
        for values, before in zip(reversed(self.values[1:]), reversed(self.exact_closed[1:]), strict=True):
            keys = keys if before is None else before[keys]
            rest = keys // values.size
            columns.append(keys - rest * values.size)
            keys = rest
        before = self.exact_closed[0]
        return [keys if before is None else before[keys], *reversed(columns)]


def number_keys(
    columns: Sequence[Sequence[Any]], digits: Sequence[bool], buckets: Bucketed | None = None
) -> tuple[list[IntArray], Keys]:
    """Number the keys of all tables alike: equal values get equal numbers from 0 to the size - 1.

    `columns` has for each table its key columns as Arrow arrays, one at least, and `digits` says which of them hold
    whole numbers if they are text. `buckets` are those that the whole numbers of the only key column are of.
    """
    numbers: list[IntArray] = []
    values: list[Values] = []
    closed: list[IntArray | None] = []
    size = 1
    for column, has_digits in zip(zip(*columns, strict=True), digits, strict=True):
        found, by_number = _number(column, digits=has_digits, buckets=buckets)
        if values and size * by_number.size >= INT_LIMIT:
            numbers, closed[-1], size = _close(numbers)
        pairs = zip(numbers, found, strict=True)
        numbers = [n * by_number.size + f for n, f in pairs] if values else found
        size *= by_number.size
        values.append(by_number)
        closed.append(None)
    if size > compact(sum(map(len, numbers))):
        numbers, closed[-1], size = _close(numbers)
    return numbers, Keys(size, tuple(values), tuple(closed))


def _number(arrays: Sequence[Any], *, digits: bool, buckets: Bucketed | None = None) -> tuple[list[IntArray], Values]:
    """Numbers for the values of one key column of each table: the distance from the lowest, or by a list."""
    kind = arrays[0].type
    if not is_numeric(kind):
        return _listed([a.cast(pa.large_string()) for a in arrays], kind, digits=digits)
    values = list(map(array_of, arrays))
    buckets = None if pa.types.is_floating(kind) else buckets
    if buckets is not None:
        values = list(map(buckets.closed, values))
    if pa.types.is_floating(kind):
        values = [v + 0.0 for v in values]  # -0.0 equals 0.0
        if not all(np.all(np.isfinite(v) & (v == np.rint(v)) & (np.abs(v) < FLOAT_LIMIT)) for v in values):
            return _listed(values, kind)
        values = [v.astype(np.int64) for v in values]
    low = min((int(v.min()) for v in values if len(v)), default=0)
    size = max((int(v.max()) for v in values if len(v)), default=0) - low + 1
    if size > compact(sum(map(len, values))):
        return _listed(values, kind, buckets=buckets)
    numbers = [(v - v.dtype.type(low) if low else v).astype(np.int64, copy=False) for v in values]
    return numbers, Values(kind, False, size, low, None, buckets)


def _listed(
    arrays: Sequence[Any], kind: Any, *, digits: bool = False, buckets: Bucketed | None = None
) -> tuple[list[IntArray], Values]:
    numbers, distinct = _encode(arrays)
    return numbers, Values(kind, digits, max(1, len(distinct)), 0, distinct, buckets)


def _close(numbers: Sequence[IntArray]) -> tuple[list[IntArray], IntArray, int]:
    """The same numbers without gaps, what each new number was before, and how many there are."""
    closed, distinct = _encode(numbers)
    return closed, array_of(distinct), max(1, len(distinct))


def _encode(arrays: Sequence[Any]) -> tuple[list[IntArray], Any]:
    """Numbers in the order of first appearance, by hashing, and the distinct values in that order."""
    parts = [column_of(a) if isinstance(a, np.ndarray) else a for a in arrays]
    columns = [a if isinstance(a, pa.ChunkedArray) else pa.chunked_array([a]) for a in parts]
    whole = pa.chunked_array([chunk for c in columns for chunk in c.chunks], columns[0].type)
    encoded = whole.dictionary_encode().combine_chunks()
    ends = np.cumsum([len(a) for a in arrays])[:-1]
    return np.split(array_of(encoded.indices).astype(np.int64), ends), encoded.dictionary


def id_variables(attributes: Iterable[str]) -> list[Variable]:
    return [(ID, a) for a in attributes]


_listed_by: WeakKeyDictionary[Labels, list[list[object] | IntArray]] = WeakKeyDictionary()
"""The values that labels list, by attribute: public, and the same for every partition."""


class JoinValues:
    """The values of every key; restrictions of the tables share them, since numbers stay as they are.

    `exact_keys` has the keys by their attributes. Counts go in with a number for each key (KEY); what is asked by
    attribute looks at a number for each of them (ID).
    """

    def __init__(self, exact_keys: Mapping[Scope, Keys]) -> None:
        self._exact_keys = exact_keys
        pairs = [(a, v) for scope, keys in exact_keys.items() for a, v in zip(scope, keys.values, strict=True)]
        self._exact_values: dict[str, Values] = dict(pairs)
        self._exact_labels: WeakKeyDictionary[Labels, Counts] = WeakKeyDictionary()

    def by_attribute(self, counts: Counts) -> Counts:
        """The same rows with a number for each join attribute instead of one for each key."""
        variables: list[Variable] = []
        sizes: list[int] = []
        ids: list[NDArray[Any]] = []
        for variable, size, column in zip(counts.variables, counts.sizes, counts.exact_ids, strict=True):
            kind, scope = variable
            keys = self._exact_keys[scope] if kind == KEY else None
            variables += [variable] if keys is None else id_variables(scope)
            sizes += [size] if keys is None else [v.size for v in keys.values]
            ids += [column] if keys is None else keys.ids(column)
        return replace(counts, variables=tuple(variables), sizes=tuple(sizes), exact_ids=tuple(ids))

    def columns(self, counts: Counts, attributes: Scope) -> list[Any]:
        """The values of some join attributes in the rows, as Arrow columns."""
        numbers = self.by_attribute(counts).ids(id_variables(attributes))
        return [self._exact_values[a].column(n) for a, n in zip(attributes, numbers, strict=True)]

    def satisfying(self, counts: Counts, rules: Rules) -> Counts:
        """The rows that satisfy the rules."""
        if not rules:
            return counts
        hit, parts = np.ones(counts.rows, dtype=bool), self.by_attribute(counts)
        for labels, bucket in rules.items():
            # A row's bucket is that of its value if it is listed and 0 if not, which is how factors weigh rows.
            hit &= np.asarray(sumproduct.row_weights(parts, self._exact_buckets(labels)) == bucket, dtype=bool)
        return sumproduct.some_rows(counts, np.flatnonzero(hit))

    def _exact_buckets(self, labels: Labels) -> Counts:
        """The listed values that occur, by their numbers; found once, since labels do not change."""
        found = self._exact_labels.get(labels)
        if found is None:
            buckets = np.fromiter(labels.buckets.values(), dtype=np.int64, count=len(labels.buckets))
            columns = _listed_by.get(labels)
            if columns is None:
                columns = _listed_by[labels] = by_column(labels.buckets, len(labels.attributes))
            found = self._exact_labels[labels] = self._exact_occurring(labels.attributes, columns, buckets)
        return found

    def _exact_occurring(
        self, attributes: Scope, listed: Sequence[Sequence[object] | IntArray], weights: IntArray
    ) -> Counts:
        """The listed values that occur, by their numbers, each with its weight."""
        values = [self._exact_values[a] for a in attributes]
        columns = tuple(v.numbers(column) for v, column in zip(values, listed, strict=True))
        sizes = tuple(v.size for v in values)
        every = Counts(tuple(id_variables(attributes)), sizes, columns, weights, len(weights))
        return _with_codes(every)

    def _exact_degree(self, parts: Counts, by: Scope) -> Exact:
        """For each row, how many of its table have its value of some attributes."""
        (group,), size = sumproduct.numbered([parts], id_variables(by))
        exact: Exact = count_by(group, parts.exact_count, size, bound=sumproduct.total(parts))[group]
        return exact

    def weighted(self, counts: Counts, weighting: RowWeights) -> Counts:
        """Every row of a table as often as the weight of its value says: no order of rows is needed."""
        # What a row and its copies count together is at most what its value does, which the Curator has checked to fit.
        weight = weighting.of(self._exact_degree(self.by_attribute(counts), weighting.attributes))
        return sumproduct.counted(counts, counts.exact_counts * weight)

    def clipped(self, counts: Counts, results: Counts, clip: Clip) -> Counts:
        """Every row of a table as often as its owner's weight says; `results` are join results by keys."""
        by_owner = sumproduct.project(self.by_attribute(results), id_variables(clip.owner))
        weights = replace(by_owner, exact_count=clip.of(by_owner.exact_counts))
        of_row = sumproduct.row_weights(self.by_attribute(counts), weights)
        return sumproduct.counted(counts, times(counts.exact_counts, of_row))

    def capped(self, counts: Counts, joins: Scope, bounds: Sequence[DegreeBound]) -> Counts:
        """The rows of a table within the bounds, by the order of `caps`. `joins` are its join attributes.

        Only groups beyond a limit are put in order.
        """
        beyond, parts = np.zeros(counts.rows, dtype=bool), self.by_attribute(counts)
        for bound in bounds:
            beyond |= np.asarray(self._exact_degree(parts, bound.attributes) > bound.limit, dtype=bool)
        if not beyond.any():
            return counts
        # Rows that are alike become one with a count, so that copies are numbered alike however the table was read.
        some = sumproduct.project(sumproduct.some_rows(counts, np.flatnonzero(beyond)), counts.variables)
        many = some.exact_counts.astype(np.int64)
        rows = np.repeat(np.arange(some.rows), many)
        copies = np.arange(len(rows)) - np.repeat(np.cumsum(many) - many, many)
        parts = self.by_attribute(some)
        texts, ranks = self._exact_texts(parts, joins, rows)
        # The code of a join attribute says nothing that its value does not.
        codes = [c[rows] for c in parts.ids(v for v in parts.variables if v[0] == CODE and v[1] not in joins)]
        # Equal hashes are put in order by the rows themselves.
        order_by = [*caps.places(texts, codes, copies), *(c[rows] for c in ranks), *codes, copies]
        stays = np.ones(len(rows), dtype=bool)
        for bound in bounds:
            (group,), _ = sumproduct.numbered([parts], id_variables(bound.attributes))
            stays &= caps.ranks(group[rows], order_by) < bound.limit
        kept = np.bincount(rows[stays], minlength=some.rows)
        whole = sumproduct.some_rows(counts, np.flatnonzero(~beyond))
        return sumproduct.concatenated([whole, sumproduct.counted(some, kept.astype(np.int64))])

    def _exact_texts(self, parts: Counts, joins: Scope, rows: IntArray) -> tuple[list[Any], list[NDArray[Any]]]:
        """For each join attribute, the text or number of each row's value, and its rank in an order of its own.

        The texts are of `rows`, the ranks of the rows that those are copies of.
        """
        texts, ranks = [], []
        for a, column in zip(joins, parts.ids(id_variables(joins)), strict=True):
            distinct, at = np.unique(column, return_inverse=True)
            values = self._exact_values[a]
            whole = values.whole(distinct)
            if whole is not None:
                texts.append(column_of(whole[at][rows]))
                ranks.append(whole[at])
                continue
            floats = pa.types.is_floating(values.kind)
            listed = [float(v) if floats and isinstance(v, int) else v for v in values.at(distinct)]
            written = list(map(caps.text, listed))
            texts.append(pa.array(written, pa.large_string()).take(column_of(at[rows])))
            # By the type alone: numbers go by size and texts by their bytes.
            by = listed if floats else [t.encode() for t in written]
            ranks.append(np.unique(np.array(by, dtype=None if floats else object), return_inverse=True)[1][at])
        return texts, ranks

    def one_table(
        self, schema: Schema, counts: Counts, by: Scope, values: Sequence[Sequence[object] | IntArray], keep: Scope
    ) -> Counts:
        """A table's rows whose value of `by` is listed, as codes of LISTED and `keep`; all rows if `by` is empty.

        `values` are listed by attribute.

        A row's codes come from its own values, not from the table that owns the attribute: what another table holds
        must not show.
        """
        columns: dict[str, NDArray[Any]] = {}
        sizes = [schema.attribute(a).size for a in keep]
        counts = self.by_attribute(counts)
        if by:
            # Positions from 1 on, since the weight of a row that is not listed is 0.
            many = len(values[0])
            listed = self._exact_occurring(by, values, np.arange(1, many + 1))
            position = sumproduct.row_weights(counts, listed)
            at = np.flatnonzero(position)
            counts = sumproduct.some_rows(counts, at)
            columns[LISTED] = position[at] - 1
            sizes = [max(1, many), *sizes]
        for a in keep:
            if (CODE, a) in counts.variables:
                columns[a] = counts.ids([(CODE, a)])[0]
            else:
                columns[a] = self._exact_codes(schema.attribute(a), counts.ids([(ID, a)])[0])
        variables = tuple((CODE, a) for a in columns)
        coded = _with_codes(Counts(variables, tuple(sizes), tuple(columns.values()), counts.exact_count, counts.rows))
        pairs = zip(coded.exact_ids, sizes, strict=True)
        return replace(coded, exact_ids=tuple(c.astype(np.min_scalar_type(s), copy=False) for c, s in pairs))

    def _exact_codes(self, attribute: Attribute, numbers: NDArray[Any]) -> IntArray:
        """The code of the value that each of the numbers stands for, found once per value; -1 for none."""
        values = self._exact_values[attribute.name]
        occurs = np.zeros(values.size, dtype=bool)
        occurs[numbers] = True
        distinct = np.flatnonzero(occurs)
        code: IntArray = np.full(values.size, -1, dtype=np.int64)
        code[distinct] = [_code(attribute, value) for value in values.at(distinct)]
        return np.take(code, numbers)

    def degrees(self, tables: Sequence[Counts], by: Scope, distinct: Scope) -> ExactDegrees:
        """How often each value of `by` occurs: in the rows of one table, or in the values of `distinct` that join."""
        parts = [self.by_attribute(t) for t in tables]
        if distinct:
            ids = [[v for v in p.variables if v[0] == ID] for p in parts]
            present = [sumproduct.presence(sumproduct.project(p, i)) for p, i in zip(parts, ids, strict=True)]
            # All tables have all of `distinct`, so in the end factors go into each other until one is left.
            parts = list(map(sumproduct.presence, sumproduct.eliminate(present, id_variables(distinct))))
        (counts,) = parts
        found = sumproduct.project(counts, id_variables(by))

        def exact_values(positions: NDArray[np.int64]) -> list[Value]:
            if not by:
                return [()] * len(positions)
            pairs = zip(by, found.exact_ids, strict=True)
            return list(zip(*(self._exact_values[a].at(column[positions]) for a, column in pairs), strict=True))

        return ExactDegrees(found.exact_counts, exact_values)


def _with_codes(counts: Counts) -> Counts:
    """The rows that have a number from 0 on everywhere."""
    kept = np.all([np.ones(counts.rows, dtype=bool), *(c >= 0 for c in counts.exact_ids)], axis=0)
    return counts if kept.all() else sumproduct.some_rows(counts, np.flatnonzero(kept))


def _code(attribute: Attribute, value: object) -> int:
    """A value's code, -1 for none. Decimals are numbers, though they join as text."""
    if isinstance(value, str) and not (attribute.values is not None and isinstance(attribute.values[0], str)):
        value = float(value)
    code = attribute.code(value)
    return -1 if code is None else code
