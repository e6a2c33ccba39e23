"""SQL text for the public rule: the code of an attribute's value in a column, NULL when the row is dropped.

Pure text, no data. The SQL gives the same codes as `Attribute.code` on every store and raises on no value: what stores
write differently is in their dialects, and arithmetic is done on numbers that are known to be small. Listed values and
bins are found by a binary search written as nested CASE; measured in DuckDB against casts to ENUM, lists and maps it
is the fastest from a few values to many, and it does not slow down on values outside the domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dpjoin.engine.dialect import DAYS, DUCKDB, Dialect
from dpjoin.spec.dates import DATE
from dpjoin.spec.schema import Attribute

_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"}
_UNSIGNED = {"UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"}
_NARROW = {"TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT"}
_HUGE = 2**127 - 1
_EXACT_DOUBLE = 2.0**53
LARGE = 2.0**62
FLOAT_TYPES = {"FLOAT", "DOUBLE"}
_PASSED_ON = {"BIGINT", "UBIGINT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP"}
"""The types in which join values are compared as they are; others are compared as text."""
_SPANS = {
    "TIMESTAMP_S": ("0001-01-01 00:00:00", "9999-12-31 23:59:59"),
    "TIMESTAMP_MS": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999"),
    "TIMESTAMP": ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"),
    "TIMESTAMP WITH TIME ZONE": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
    "TIME": ("00:00:00", "24:00:00"),
    "TIME_NS": ("00:00:00", "24:00:00"),
}
"""The times that count, by type: years 1 to 9999, within a day. Of other types, dates among them, all values do."""
_DATES = ("0001-01-01", "9999-12-31")
"""The dates that have parts."""


@dataclass(frozen=True)
class Column:
    """A column of an opened table. `untyped`: its values arrive as text, whatever they mean."""

    name: str
    type: str
    untyped: bool = False
    value: str | None = None
    """SQL of its values, if they are not taken as they are."""
    dialect: Dialect = DUCKDB

    @property
    def sql(self) -> str:
        """The column's value; NULL where it is a time outside the calendar, which not all casts of DuckDB survive."""
        if self.value is not None:
            return self.value
        return _in_span(self.dialect, self.dialect.name(self.name), self.type)

    @property
    def group(self) -> str:
        """What its rows are grouped by: equal numbers are alike, of other values equal texts."""
        return f"CASE WHEN {self.sql} <> 0 THEN {self.sql} ELSE 0 END" if self.type in FLOAT_TYPES else self.text

    @property
    def text(self) -> str:
        """The text of its value, by which rows are put in order."""
        return text_of(self.dialect, self.sql, self.type)

    @property
    def kind(self) -> str:
        """One of untyped, text, integer, float, boolean, time, scalar, nested."""
        if self.untyped:
            return "untyped"
        if self.type in _INTEGERS or self.type in _UNSIGNED or self._whole_decimal:
            return "integer"
        if self.type in {"FLOAT", "DOUBLE"} or self.type.startswith("DECIMAL"):
            return "float"
        if self.type == "BOOLEAN":
            return "boolean"
        if self.type in {"VARCHAR", "ENUM"}:
            return "text"
        if self.type.endswith("]") or self.type.startswith(("STRUCT", "MAP", "UNION", "VARIANT")):
            return "nested"
        if self.type == "DATE" or self.type.startswith("TIMESTAMP"):
            return "time"
        return "scalar"

    @property
    def _whole_decimal(self) -> bool:
        return self.type.startswith("DECIMAL(") and self.type.endswith(",0)")


def field(dialect: Dialect, text: str) -> str:
    """A text such that fields one after another can be told apart: its length goes first.

    >>> field(DUCKDB, "x")
    "coalesce(CAST(strlen(x) AS VARCHAR) || ':' || x, '-')"
    """
    length = dialect.text(dialect.length(text), "BIGINT")
    return f"coalesce({length} || ':' || {text}, '-')"


def taken(attribute: Attribute, column: Column) -> Column:
    """What an attribute takes of a column: the column, or the part of its dates or times, a whole number.

    Text is read as DuckDB reads dates and times, one by one; what it cannot read has no part.
    """
    if attribute.part is None or column.value is not None:
        return column
    dialect, text = column.dialect, column.kind in {"untyped", "text"}
    if column.type.startswith("TIME") and not column.type.startswith("TIMESTAMP"):
        return replace(column, type="BIGINT", value=dialect.part("hour", column.sql, "TIME"))
    kind, value = column.type, column.sql
    if text or "ZONE" in kind:
        kind, value = "TIMESTAMP", dialect.moment(value, "VARCHAR" if text else kind)
    moment = _between(dialect, value, kind, _DATES) if kind == "DATE" else value
    if text:
        moment = _in_span(dialect, value, kind)
    if attribute.part == DATE:
        value = dialect.part(DAYS, moment, kind)
    elif attribute.part == "hour" and kind == "DATE":
        value = f"CASE WHEN {moment} IS NOT NULL THEN 0 END"
    else:
        value = dialect.part(attribute.part, moment, kind)
    if text and attribute.part == "hour":
        value = f"coalesce({value}, {dialect.part('hour', dialect.cast(column.sql, 'VARCHAR', 'TIME'), 'TIME')})"
    return replace(column, type="BIGINT", untyped=False, value=dialect.cast(value, "BIGINT", "BIGINT"))


def code(attribute: Attribute, column: Column) -> str:
    """The attribute's code, NULL where the row is dropped.

    >>> code(Attribute(name="a", range=(3, 9)), Column("a", "INTEGER"))
    'CASE WHEN "a" BETWEEN 3 AND 9 THEN CAST("a" AS BIGINT) - 3 END'
    """
    column = taken(attribute, column)
    rest = f"ELSE {attribute.size - 1} " if attribute.other else ""
    low = low_of_range(attribute)
    if low is not None:
        return f"CASE WHEN {_in_range(attribute, column)} THEN {_offset(low, column)} {rest}END"
    missing = str(attribute.size - 1) if attribute.other else "NULL"
    if attribute.texts:
        texts = sorted(
            (v, i) for i, v in enumerate(attribute.values or ()) if isinstance(v, str) and column.dialect.holds(v)
        )
        texts.sort(key=lambda pair: pair[0].encode("utf-8", "surrogatepass"))  # the order DuckDB compares in
        text = column.sql if column.type == "VARCHAR" else column.dialect.text(column.sql, column.type)
        listed = [column.dialect.literal(v) for v, _ in texts]
        return _search(column.dialect.by_bytes(text), listed, [i for _, i in texts], missing)
    if attribute.values is not None:
        return _search_numbers(attribute, column, missing)
    return _search_bins(attribute, column, missing)


def kept(attribute: Attribute, column: Column) -> list[str]:
    """The conditions that are true exactly where the row is kept: one, or none when every row is."""
    if attribute.other:
        return []
    column = taken(attribute, column)
    if low_of_range(attribute) is not None:
        return [_in_range(attribute, column)]
    return [f"({code(attribute, column)}) IS NOT NULL"]


def low_of_range(attribute: Attribute) -> int | None:
    """The first number of a domain that is a run of 32-bit whole numbers; None for other domains."""
    if attribute.range is not None:
        return attribute.range[0]
    if attribute.values and all(type(v) is int for v in attribute.values):
        numbers = [int(v) for v in attribute.values]
        small = abs(numbers[0]) < 2**31 - 2 and abs(numbers[-1]) < 2**31 - 2
        if small and numbers == list(range(numbers[0], numbers[0] + len(numbers))):
            return numbers[0]
    return None


def _in_range(attribute: Attribute, column: Column) -> str:
    low = low_of_range(attribute)
    assert low is not None
    high = low + attribute.size - attribute.other - 1
    number = number_of(column)
    condition = f"{number} BETWEEN {low} AND {high}"
    # NaN is larger than every number in all stores, so the interval excludes it.
    whole = column.kind in {"integer", "boolean"}
    return condition if whole else f"({condition} AND {column.dialect.is_whole(number)})"


def _offset(low: int, column: Column) -> str:
    """Value minus low, in BIGINT from a 32-bit number: no overflow, also on rows that are dropped later."""
    number = column.sql
    if column.type not in _NARROW:
        number = column.dialect.cast(number_of(column), number_type(column), "INTEGER")
    return f"CAST({number} AS BIGINT)" + (f" - {low}" if low >= 0 else f" + {-low}")


def number_of(column: Column) -> str:
    """The column as a number that compares with any literal without an error: an integer or a DOUBLE."""
    target = number_type(column)
    return column.sql if column.type == target else column.dialect.cast(column.sql, _source(column), target)


def number_type(column: Column) -> str:
    if column.kind == "boolean":
        return "INTEGER"
    if column.kind != "integer":
        return "DOUBLE"
    # Comparing an unsigned 128-bit number with a signed one raises beyond 2^127.
    return "HUGEINT" if column.type == "UHUGEINT" or column.type.startswith("DECIMAL") else column.type


def _source(column: Column) -> str:
    """The type of what a column's SQL gives."""
    return "VARCHAR" if column.untyped else column.type


def _search_numbers(attribute: Attribute, column: Column, missing: str) -> str:
    assert attribute.values is not None
    numbers = sorted((int(v), i) for i, v in enumerate(attribute.values))
    booleans = isinstance(attribute.values[0], bool)
    expression = number_of(column)
    if column.kind == "untyped" and booleans:
        expression = _boolean_number(column)
    if column.kind == "untyped" and any(abs(v) > _EXACT_DOUBLE for v, _ in numbers):
        # DOUBLE cannot tell such numbers apart; a fraction must not be rounded into one either.
        whole = column.dialect.cast(column.sql, "VARCHAR", "HUGEINT")
        expression = f"CASE WHEN {column.dialect.is_whole(expression)} THEN {whole} END"
    elif column.kind in {"untyped", "float"}:
        numbers = [(v, i) for v, i in numbers if as_double(v) == v]
        return _search(
            expression, [_double(column.dialect, float(v)) for v, _ in numbers], [i for _, i in numbers], missing
        )
    numbers = [(v, i) for v, i in numbers if abs(v) <= _HUGE]
    return _search(expression, [str(v) for v, _ in numbers], [i for _, i in numbers], missing)


def as_double(value: float) -> float:
    """The nearest float; NaN, which equals nothing, for a whole number beyond all of them."""
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _search_bins(attribute: Attribute, column: Column, missing: str) -> str:
    assert attribute.bins is not None
    edges, last = attribute.bins, attribute.bins[-1]
    compare: Callable[[str, float], str]
    if column.kind in {"integer", "boolean"} and column.type != "UHUGEINT":
        x, compare = number_of(column), _compare_whole
    else:
        x = number_of(column) if column.type != "UHUGEINT" else column.dialect.cast(column.sql, column.type, "DOUBLE")
        compare = partial(_compare_double, column.dialect)
    tests = []
    if math.isfinite(edges[0]):
        tests.append(f"{x} {compare('>=', edges[0])}")
    if math.isfinite(last):
        tests.append(f"{x} {compare('<=', last)}")
    if column.kind in {"float", "untyped"}:
        tests.append(f"NOT {column.dialect.is_nan(x)}")
    tests.append(f"{x} IS NOT NULL")
    found = _branch(0, len(edges) - 1, lambda middle: f"{x} {compare('<', edges[middle])}", str)
    return f"CASE WHEN {' AND '.join(tests)} THEN {found} ELSE {missing} END"


def _compare_double(dialect: Dialect, operator: str, edge: float) -> str:
    return f"{operator} {_double(dialect, edge)}"


def _compare_whole(operator: str, edge: float) -> str:
    """Whole numbers compare exactly with the next whole number; DOUBLE would round large ones."""
    number = math.floor(edge) if operator == "<=" else math.ceil(edge)
    if abs(number) > _HUGE:  # beyond every integer type, so the answer is the same for all values
        return "IS NOT NULL" if (number > 0) == (operator != ">=") else "IS NULL"
    return f"{operator} {number}"


def _double(dialect: Dialect, number: float) -> str:
    return dialect.constant(repr(number), "DOUBLE")


def _search(expression: str, sorted_literals: Sequence[str], codes: Sequence[int], missing: str) -> str:
    """The code of the literal that equals the expression; `missing` where none does, NULL included."""
    if not codes:
        return f"CAST({missing} AS INTEGER)"
    return _branch(
        0,
        len(codes),
        lambda middle: f"{expression} < {sorted_literals[middle]}",
        lambda at: f"CASE WHEN {expression} = {sorted_literals[at]} THEN {codes[at]} ELSE {missing} END",
    )


def _branch(low: int, high: int, is_below: Callable[[int], str], leaf: Callable[[int], str]) -> str:
    if high - low == 1:
        return leaf(low)
    middle = (low + high) // 2
    left, right = _branch(low, middle, is_below, leaf), _branch(middle, high, is_below, leaf)
    return f"CASE WHEN {is_below(middle)} THEN {left} ELSE {right} END"


def join_value(attribute: Attribute, columns: Sequence[Column], column: Column) -> str:
    """A join attribute's value in one of its columns, in a type that all of them share.

    NULL where there is none. Untyped values take the type of the typed columns, or of the domain.
    """
    value, kind = _shared_value(attribute, columns, column), _shared_type(attribute, columns)
    return value if kind in _PASSED_ON else column.dialect.text(value, kind)


def join_text(attribute: Attribute, columns: Sequence[Column], column: Column) -> str:
    """The text of a join value; of a DOUBLE, what most of them differ in."""
    value = _shared_value(attribute, columns, column)
    return text_of(column.dialect, value, _shared_type(attribute, columns))


def is_double(attribute: Attribute, columns: Sequence[Column]) -> bool:
    """Whether the join compares numbers that text does not tell apart."""
    return _shared_type(attribute, columns) == "DOUBLE"


def text_of(dialect: Dialect, value: str, kind: str) -> str:
    """A value's text, the same on every store. No two write a DOUBLE alike: its whole part, and 53 bits behind it."""
    if kind not in FLOAT_TYPES:
        return dialect.text(value, kind)
    x = value if kind == "DOUBLE" else dialect.cast(value, kind, "DOUBLE")
    rest = f"floor(({x} - floor({x})) * {_double(dialect, _EXACT_DOUBLE)})"
    whole, bits = (dialect.text(dialect.cast(n, "DOUBLE", "BIGINT"), "BIGINT") for n in (f"floor({x})", rest))
    written = f"{whole} || CASE WHEN {rest} > 0 THEN ':' || {bits} ELSE '' END"
    return (
        f"CASE WHEN {x} IS NULL THEN NULL WHEN {dialect.is_nan(x)} THEN 'nan' "
        f"WHEN abs({x}) < {_double(dialect, LARGE)} THEN {written} "
        f"WHEN {x} < 0 THEN '-' ELSE '+' END"
    )


def coded(attribute: Attribute, columns: Sequence[Column], column: Column) -> Column:
    """What an attribute's code is made of: the column, or what the join compares, where that tells fewer values apart.

    Values that join are one value, and must have one code: of several, all rows that join them would get the one of the
    row that was read last.
    """
    if len(columns) == 1:
        return column
    target = _shared_type(attribute, columns)
    rounded = target == "DOUBLE" if column.kind == "integer" else column.kind == "untyped" and target != "VARCHAR"
    if not rounded:
        return column
    return replace(column, type=target, untyped=False, value=_shared_value(attribute, columns, column))


def _shared_value(attribute: Attribute, columns: Sequence[Column], column: Column) -> str:
    """A join attribute's value in one of its columns, in the type that all of them share."""
    target, dialect = _shared_type(attribute, columns), column.dialect
    if column.kind == "untyped" and _has_booleans(attribute, columns):
        value = _boolean_number(column)
    elif column.kind == "untyped" and target in {"BIGINT", "UBIGINT", "HUGEINT"}:
        number = dialect.cast(column.sql, "VARCHAR", "DOUBLE")  # a fraction must not be rounded to a whole number
        value = f"CASE WHEN {dialect.is_whole(number)} THEN {dialect.cast(column.sql, 'VARCHAR', target)} END"
    elif column.type == target:
        value = column.sql
    else:
        value = dialect.cast(column.sql, _source(column), target)
    if target == "DOUBLE":
        return f"CASE WHEN NOT {dialect.is_nan(value)} THEN {value} END"
    # Text and other types of time may stand for any.
    return _in_span(dialect, value, target) if column.type != target else value


def _in_span(dialect: Dialect, value: str, kind: str) -> str:
    """A value of some type; NULL where it is a time that does not count. Comparing within a type never raises."""
    return _between(dialect, value, kind, _SPANS[kind]) if kind in _SPANS else value


def _between(dialect: Dialect, value: str, kind: str, span: tuple[str, str]) -> str:
    low, high = (dialect.constant(time, kind) for time in span)
    return f"CASE WHEN {value} BETWEEN {low} AND {high} THEN {value} END"


def _has_booleans(attribute: Attribute, columns: Sequence[Column]) -> bool:
    listed = attribute.values is not None and isinstance(attribute.values[0], bool)
    return listed or any(c.kind == "boolean" for c in columns)


def _boolean_number(column: Column) -> str:
    """Text as a number, where true and false count as 1 and 0."""
    words = column.dialect.cast(column.dialect.cast(column.sql, "VARCHAR", "BOOLEAN"), "BOOLEAN", "DOUBLE")
    return f"coalesce({column.dialect.cast(column.sql, 'VARCHAR', 'DOUBLE')}, {words})"


def _shared_type(attribute: Attribute, columns: Sequence[Column]) -> str:
    typed = [c for c in columns if c.kind != "untyped"]
    if not typed:
        is_text = attribute.key or (attribute.values is not None and isinstance(attribute.values[0], str))
        return "VARCHAR" if is_text else "DOUBLE"
    types, kinds = {c.type for c in typed}, {c.kind for c in typed}
    if len(typed) < len(columns) and _has_booleans(attribute, columns):
        return "DOUBLE"
    if kinds == {"text"}:
        return "VARCHAR"
    if kinds <= {"integer", "boolean"}:
        if types <= _NARROW | {"BIGINT", "UINTEGER", "BOOLEAN"}:
            return "BIGINT"
        return "UBIGINT" if types <= _UNSIGNED - {"UHUGEINT"} else "UHUGEINT" if types == {"UHUGEINT"} else "HUGEINT"
    if len(types) == 1 and "FLOAT" not in types:
        return next(iter(types))
    return "DOUBLE" if kinds <= {"integer", "float", "boolean"} else "TIMESTAMP"
