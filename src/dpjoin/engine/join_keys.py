"""Join keys: numbers for their values, values for their numbers, and the rows that public rules pick by value.

Values go in and out as plain Python values, whatever the columns' types are: a whole number is an int, from
a column of floats or booleans too, a date is a date, and what Python has no type for is its text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpjoin.engine import caps as cap
from dpjoin.engine import sumproduct
from dpjoin.engine.columns import array_of
from dpjoin.engine.interface import LISTED, ExactDegrees, Labels, Rules, Value
from dpjoin.engine.key_sums import Scope
from dpjoin.engine.sumproduct import Counts, Variable
from dpjoin.errors import SpecError, suggest
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from dpjoin.spec.workload import IntArray

ID, CODE = "id", "code"
"""Kinds of variables: a join attribute's number, a touched attribute's code."""
_EPOCH = datetime(1970, 1, 1)
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

    def at(self, numbers: NDArray[Any]) -> list[object]:
        """The values that have these numbers."""
        if self.exact_listed is None:
            stored = [self.exact_low + n for n in numbers.tolist()]
        else:
            stored = self.exact_listed.take(pa.array(numbers)).to_pylist()
        if pa.types.is_date32(self.kind):
            return list(map(_date, stored))
        if pa.types.is_timestamp(self.kind):
            return list(map(_time, stored))
        return list(map(int if self.digits else plain, stored))

    def whole(self, numbers: NDArray[Any]) -> IntArray | None:
        """The same as an array of int64, where the columns' type has no others."""
        # By the type alone: which values there are must not decide in which order rows are put.
        if not pa.types.is_integer(self.kind) or pa.types.is_uint64(self.kind):
            return None
        if self.exact_listed is None:
            return np.asarray(numbers, dtype=np.int64) + self.exact_low
        stored = self.exact_listed.take(pa.array(numbers)).to_numpy(zero_copy_only=False)
        return np.asarray(stored, dtype=np.int64)

    def numbers(self, values: Sequence[object]) -> IntArray:
        """The numbers of some values, -1 for those that do not occur."""
        stored = self._stored(values)
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

    def _stored(self, values: Sequence[object]) -> list[Any]:
        """Values as the columns have them; None for those that they cannot have."""
        if pa.types.is_date32(self.kind):
            return [_days(v) for v in values]
        if pa.types.is_timestamp(self.kind):
            return [_ticks(v) for v in values]
        values = [plain(v) for v in values]
        if _is_numeric(self.kind):
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


def _date(days: int) -> object:
    """The date, or the number of days where Python has no date for it."""
    try:
        return date.fromordinal(_EPOCH.toordinal() + days)
    except (ValueError, OverflowError):
        return days


def _days(value: object) -> int | None:
    days = value.toordinal() - _EPOCH.toordinal() if type(value) is date else value
    return days if isinstance(days, int) and _date(days) == value else None


def _time(ticks: int) -> object:
    """The time, or the number of microseconds where Python has no time for it."""
    try:
        return _EPOCH + ticks * _MICROSECOND
    except OverflowError:
        return ticks


def _ticks(value: object) -> int | None:
    naive = isinstance(value, datetime) and value.tzinfo is None
    ticks = (value - _EPOCH) // _MICROSECOND if naive else value  # type: ignore[operator]
    return ticks if isinstance(ticks, int) and _time(ticks) == value else None


def _fitting(stored: Iterable[Any], kind: Any) -> list[Any]:
    """Each value once, without those that no Arrow array of the type can hold."""
    once = dict.fromkeys(stored)
    if pa.types.is_floating(kind):
        return [float(v) for v in once if isinstance(v, float) or (isinstance(v, int) and _is_double(v))]
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        low, high = int(limits.min), int(limits.max)
        return [v for v in once if isinstance(v, int) and low <= v <= high]
    return [v for v in once if isinstance(v, str) and v.encode(errors="ignore").decode() == v]


def _is_double(number: int) -> bool:
    try:
        return float(number) == number
    except OverflowError:
        return False


@dataclass(frozen=True, eq=False)
class Keys:
    """How the keys of several attributes are numbered: as digits, one per attribute, closed up where too sparse."""

    size: int
    values: tuple[Values, ...]
    exact_closed: tuple[IntArray | None, ...]
    """After each attribute: what each number was before gaps were closed; None where they were kept."""

    def ids(self, keys: IntArray) -> list[IntArray]:
        """The number of each attribute's value in some keys."""
        columns: list[IntArray] = []
        for i in reversed(range(len(self.values))):
            before = self.exact_closed[i]
            keys = keys if before is None else before[keys]
            if i:
                rest = keys // self.values[i].size
                columns.append(keys - rest * self.values[i].size)
                keys = rest
            else:
                columns.append(keys)
        return columns[::-1]


def number_keys(columns: Sequence[Sequence[Any]], digits: Sequence[bool]) -> tuple[list[IntArray | None], Keys]:
    """Number the keys of all tables alike: equal values get equal numbers from 0 to the size - 1.

    `columns` has for each table its key columns as Arrow arrays, and `digits` says which of them hold whole numbers
    if they are text. Without key columns all rows share one key.
    """
    if not columns[0]:
        return [None] * len(columns), Keys(1, (), ())
    if len(columns[0]) == 1 and (offsets := _offsets([c[0] for c in columns])) is not None:
        return offsets
    lengths = [len(c[0]) for c in columns]
    numbers, size = np.zeros(sum(lengths), dtype=np.int64), 1
    values: list[Values] = []
    closed: list[IntArray | None] = []
    for i in range(len(columns[0])):
        column, found = _number([c[i] for c in columns], digits=digits[i])
        if i and size * found.size >= 2**62:
            numbers, before = _close(numbers)
            closed[-1], size = before, len(before)
        numbers = numbers * found.size + column if i else column
        size *= found.size
        values.append(found)
        closed.append(None)
    if size > _compact(len(numbers)):
        numbers, before = _close(numbers)
        closed[-1], size = before, len(before)
    return list(np.split(numbers, np.cumsum(lengths)[:-1])), Keys(max(1, size), tuple(values), tuple(closed))


def _offsets(arrays: Sequence[Any]) -> tuple[list[IntArray | None], Keys] | None:
    """The usual case, one 64-bit integer key in a compact range: the distance from the lowest."""
    if any(a.type != pa.int64() or not len(a) for a in arrays):
        return None
    values = [array_of(a) for a in arrays]
    low, high = min(int(v.min()) for v in values), max(int(v.max()) for v in values)
    size = high - low + 1
    if size > _compact(sum(map(len, values))):
        return None
    run = Values(pa.int64(), False, size, low, None)
    return [v - low if low else v for v in values], Keys(size, (run,), (None,))


def _compact(rows: int) -> int:
    """Up to how many numbers it is cheaper to keep gaps than to close them."""
    return 4 * rows + 2**16


def _number(arrays: Sequence[Any], *, digits: bool) -> tuple[IntArray, Values]:
    """Numbers for the values of one key column."""
    kind = arrays[0].type
    if not _is_numeric(kind):
        chunks = [chunk for a in arrays for chunk in a.cast(pa.large_string()).chunks]
        return _listed(pa.chunked_array(chunks, pa.large_string()), kind, digits=digits)
    if pa.types.is_date32(kind):
        arrays = [a.cast(pa.int32()) for a in arrays]
    elif pa.types.is_timestamp(kind):
        arrays = [a.cast(pa.int64()) for a in arrays]
    values = np.concatenate([array_of(a) for a in arrays])
    if not len(values):
        return np.zeros(0, dtype=np.int64), Values(kind, False, 1, 0, None)
    if values.dtype.kind == "f":
        values = values + 0.0  # -0.0 equals 0.0
        if not np.all(np.isfinite(values) & (values == np.rint(values)) & (np.abs(values) < 2**53)):
            return _listed(values, kind)
        values = values.astype(np.int64)
    low, high = int(values.min()), int(values.max())
    if high - low >= _compact(len(values)):
        return _listed(values, kind)
    numbers = (values - values.dtype.type(low)).astype(np.int64, copy=False)
    return numbers, Values(kind, False, high - low + 1, low, None)


def _is_numeric(kind: Any) -> bool:
    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_date32, pa.types.is_timestamp)
    return any(is_kind(kind) for is_kind in known)


def _listed(values: Any, kind: Any, *, digits: bool = False) -> tuple[IntArray, Values]:
    numbers, distinct = _encode(values)
    return numbers, Values(kind, digits, max(1, len(distinct)), 0, distinct)


def _close(numbers: IntArray) -> tuple[IntArray, IntArray]:
    """The same numbers without gaps, and what each new number was before."""
    closed, distinct = _encode(numbers)
    return closed, array_of(distinct)


def _encode(values: Any) -> tuple[IntArray, Any]:
    """Numbers in the order of first appearance, by hashing, and the distinct values in that order."""
    array = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([pa.array(values)])
    if not len(array):
        return np.zeros(0, dtype=np.int64), pa.array([], array.type)
    encoded = array.dictionary_encode().combine_chunks()
    return array_of(encoded.indices).astype(np.int64), encoded.dictionary


def id_variables(attributes: Iterable[str]) -> list[Variable]:
    return [(ID, a) for a in attributes]


class JoinValues:
    """The values of every join attribute; restrictions of the tables share them, since numbers stay as they are."""

    def __init__(self, exact_values: Mapping[str, Values]) -> None:
        self._exact_values = exact_values
        self._exact_labels: WeakKeyDictionary[Labels, Counts] = WeakKeyDictionary()

    def satisfying(self, counts: Counts, rules: Rules) -> IntArray:
        """The positions of the rows that satisfy the rules."""
        hit = np.ones(counts.rows, dtype=bool)
        for labels, bucket in rules.items():
            # A row's bucket is that of its value if it is listed and 0 if not, which is how factors weigh rows.
            hit &= np.asarray(sumproduct.row_weights(counts, self._exact_buckets(labels)) == bucket, dtype=bool)
        return np.flatnonzero(hit)

    def _exact_buckets(self, labels: Labels) -> Counts:
        """The listed values that occur, by their numbers; found once, since labels do not change."""
        found = self._exact_labels.get(labels)
        if found is None:
            buckets = np.fromiter(labels.buckets.values(), dtype=np.int64, count=len(labels.buckets))
            found = self._exact_occurring(labels.attributes, labels.buckets, buckets)
            self._exact_labels[labels] = found
        return found

    def _exact_occurring(self, attributes: Scope, listed: Collection[Value], weights: IntArray) -> Counts:
        """The listed values that occur, by their numbers, each with its weight."""
        values = [self._exact_values[a] for a in attributes]
        columns = [v.numbers([value[i] for value in listed]) for i, v in enumerate(values)]
        at = np.flatnonzero(np.all([np.ones(len(weights), dtype=bool), *(c >= 0 for c in columns)], axis=0))
        variables, sizes = tuple(id_variables(attributes)), tuple(v.size for v in values)
        return Counts(variables, sizes, tuple(c[at] for c in columns), weights[at], len(at))

    def capped(self, counts: Counts, joins: Scope, bounds: Sequence[DegreeBound]) -> Counts:
        """The rows of a table within the bounds, by the order of `cap`. `joins` are its join attributes."""

        def content(rows: Counts) -> cap.Content:
            seeds, ranks = [], []
            for a in joins:
                distinct, at = np.unique(rows.ids([(ID, a)])[0], return_inverse=True)
                values = self._exact_values[a]
                whole = values.whole(distinct)
                if whole is None:
                    listed = values.at(distinct)
                    seeds.append(cap.seeds(listed)[at])
                    ranks.append(np.unique([repr(v) for v in listed], return_inverse=True)[1][at])
                else:
                    seeds.append(cap.seeds(whole)[at])
                    ranks.append(whole[at])
            # The code of a join attribute says nothing that its value does not.
            codes = [v for v in rows.variables if isinstance(v, tuple) and v[0] == CODE and v[1] not in joins]
            return cap.Content(seeds, ranks, rows.ids(codes))

        return cap.capped(counts, {tuple(id_variables(b.attributes)): b.limit for b in bounds}, content)

    def alone(self, schema: Schema, counts: Counts, by: Scope, values: Sequence[Value], keep: Scope) -> Counts:
        """A table's rows whose value of `by` is listed, as codes of LISTED and `keep`; all rows if `by` is empty.

        A row's codes come from its own values, not from the table that owns the attribute: what another table holds
        must not show. The variables are the attributes' names.
        """
        columns: dict[str, NDArray[Any]] = {}
        at = np.arange(counts.rows)
        if by:
            # Positions from 1 on, since the weight of a row that is not listed is 0.
            listed = self._exact_occurring(by, values, np.arange(1, len(values) + 1))
            position = sumproduct.row_weights(counts, listed)
            at = np.flatnonzero(position)
            columns[LISTED] = position[at] - 1
        for a in keep:
            if (CODE, a) in counts.variables:
                columns[a] = counts.ids([(CODE, a)])[0][at]
            else:
                columns[a] = self._exact_codes(schema.attribute(a), counts.ids([(ID, a)])[0][at])
        count = None if counts.exact_count is None else counts.exact_count[at]
        sizes = tuple(max(1, len(values)) if a == LISTED and by else schema.attribute(a).size for a in columns)
        found = Counts(tuple(columns), sizes, tuple(columns.values()), count, len(at))
        coded = np.all([c >= 0 for c in columns.values()], axis=0)
        return found if coded.all() else sumproduct.some_rows(found, np.flatnonzero(coded))

    def _exact_codes(self, attribute: Attribute, numbers: NDArray[Any]) -> IntArray:
        """The code of the value that each of the numbers stands for, found once per value."""
        values = self._exact_values[attribute.name]
        occurs = np.zeros(values.size, dtype=bool)
        occurs[numbers] = True
        distinct = np.flatnonzero(occurs)
        code: IntArray = np.full(values.size, -1, dtype=np.int64)
        code[distinct] = [_code(attribute, value) for value in values.at(distinct)]
        return np.take(code, numbers)

    def degrees(self, tables: Sequence[Counts], by: Scope, distinct: Scope) -> ExactDegrees:
        """How often each value of `by` occurs: in the rows of one table, or in the values of `distinct` that join."""
        if distinct:
            present = [sumproduct.presence(sumproduct.project(t, list(filter(_is_id, t.variables)))) for t in tables]
            # All tables have all of `distinct`, so in the end factors go into each other until one is left.
            (joined,) = sumproduct.eliminate(present, id_variables(distinct))
            counts = sumproduct.presence(joined)
        else:
            (counts,) = tables
        found = sumproduct.project(counts, id_variables(by))

        def exact_values(positions: NDArray[np.int64]) -> list[Value]:
            if not by:
                return [()] * len(positions)
            pairs = zip(by, found.exact_ids, strict=True)
            return list(zip(*(self._exact_values[a].at(column[positions]) for a, column in pairs), strict=True))

        return ExactDegrees(found.exact_counts.astype(np.int64), exact_values)


def _code(attribute: Attribute, value: object) -> int:
    """A value's code, -1 for none. Decimals are numbers, though they join as text."""
    if isinstance(value, str) and not (attribute.values is not None and isinstance(attribute.values[0], str)):
        value = float(value)
    code = attribute.code(value)
    return -1 if code is None else code


def _is_id(variable: Any) -> bool:
    return bool(variable[0] == ID)


def check_rules(schema: Schema, rules: Mapping[str, Rules]) -> None:
    """Rules look at join attributes of their table."""
    for name, table_rules in rules.items():
        joins = _joins(schema, name)
        for labels in table_rules:
            for a in labels.attributes:
                if a not in joins:
                    raise SpecError(
                        f"labels {labels.name!r} look at {a!r}, which table {name!r} does not join on; "
                        f"{suggest(a, joins)}"
                    )


def check_degrees(schema: Schema, rules: Mapping[str, Rules], by: Scope, distinct: Scope) -> None:
    """Degrees are of one table, or of values that all the tables have."""
    check_rules(schema, rules)
    if not rules or (len(rules) > 1 and not distinct):
        raise SpecError(
            f"degrees of {len(rules)} tables must count distinct values of some; name one table or distinct"
        )
    for name in rules:
        joins = _joins(schema, name)
        for a in (*by, *distinct):
            if a not in joins:
                raise SpecError(
                    f"degrees by {a!r} must be of tables that join on it, not {name!r}; {suggest(a, joins)}"
                )
    for a in by:
        if distinct and a not in distinct:
            raise SpecError(f"degrees by {a!r} must count distinct values that include it; add {a!r} to distinct")


def alone_schema(schema: Schema, name: str, by: Scope, values: Sequence[Value], keep: Scope) -> Schema:
    """The schema of one table by itself, with codes for values.

    It counts as private, whether it is or not: a schema needs a table that is.
    """
    table, joins = schema.table(name), _joins(schema, name)
    for a in by:
        if a not in joins:
            raise SpecError(
                f"values of {a!r} must be of tables that join on it, not {name!r} alone; {suggest(a, joins)}"
            )
    for a in keep:
        if a not in table.attributes:
            raise SpecError(f"table {name!r} alone has no attribute {a!r} to keep; {suggest(a, table.attributes)}")
    if by and (any(len(v) != len(by) for v in values) or len(set(values)) != len(values)):
        raise SpecError(f"listed values of table {name!r} must be distinct, each with {len(by)} attributes")
    if not by and not keep:
        raise SpecError(f"table {name!r} alone must have at least one attribute; name some to keep")
    attributes = [Attribute(name=LISTED, range=(0, max(0, len(values) - 1)))] if by else []
    attributes += [Attribute(name=a, range=(0, schema.attribute(a).size - 1)) for a in keep]
    alone = Table(name=name, attributes=tuple(a.name for a in attributes))
    return Schema((alone,), tuple(attributes))


def _joins(schema: Schema, name: str) -> list[str]:
    attributes = schema.table(name).attributes
    return [a for a in schema.join_attributes if a in attributes]
