"""What the SQL of the stores differs in, and DuckDB's way.

Types go by DuckDB's names whatever a store calls them, so that the rules about types are written once. A dialect says
how one store writes an expression; it gives the same values on all of them, raises on none, and where a value has no
place in a type it gives NULL.
"""

from __future__ import annotations

from typing import Protocol

_PARTS = {"year": "year", "month": "month", "weekday": "isodow", "hour": "hour"}
DAYS = "days"
"""The part of a moment that is its date: days since 1970."""


class Dialect(Protocol):
    """Expressions in, expressions out; nothing is run."""

    def name(self, name: str) -> str:
        """A name, quoted."""
        ...

    def literal(self, text: str) -> str:
        """A text, quoted."""
        ...

    def holds(self, text: str) -> bool:
        """Whether a column of the store can hold a text."""
        ...

    def constant(self, text: str, kind: str) -> str:
        """The value of a type that some public text stands for; `inf`, `-inf` and `nan` are texts of DOUBLE."""
        ...

    def cast(self, value: str, kind: str, target: str) -> str:
        """A value of one type in another; a text of a whole number stands for it, others of numbers are not rounded."""
        ...

    def by_bytes(self, text: str) -> str:
        """A text such that it compares by its bytes in UTF-8."""
        ...

    def length(self, text: str) -> str:
        """How many bytes a text has in UTF-8."""
        ...

    def is_nan(self, value: str) -> str:
        """Whether a DOUBLE is not a number."""
        ...

    def is_whole(self, value: str) -> str:
        """Whether a DOUBLE equals its whole part."""
        ...

    def moment(self, value: str, kind: str) -> str:
        """A text or a time with a zone as a TIMESTAMP, the latter in UTC."""
        ...

    def part(self, part: str, moment: str, kind: str) -> str:
        """A part of a DATE, TIME or TIMESTAMP that counts: year, month, weekday, hour or days."""
        ...

    def text(self, value: str, kind: str) -> str:
        """The text of a value that is no DOUBLE, the same on every store."""
        ...

    def small(self, code: str, size: int) -> str:
        """A code below a size, in a narrow type."""
        ...


class DuckDialect:
    """DuckDB: casts that do not fit are NULL already."""

    def name(self, name: str) -> str:
        return identifier(name)

    def literal(self, text: str) -> str:
        return literal(text)

    def holds(self, text: str) -> bool:
        return True

    def constant(self, text: str, kind: str) -> str:
        return f"CAST({literal(text)} AS {kind})"

    def cast(self, value: str, kind: str, target: str) -> str:
        return f"TRY_CAST({value} AS {target})"

    def by_bytes(self, text: str) -> str:
        return text

    def length(self, text: str) -> str:
        return f"strlen({text})"

    def is_nan(self, value: str) -> str:
        return f"isnan({value})"

    def is_whole(self, value: str) -> str:
        return f"{value} = trunc({value})"

    def moment(self, value: str, kind: str) -> str:
        if "ZONE" in kind:
            return f"make_timestamp(epoch_us({value}))"  # in UTC, wherever it is read
        return f"TRY_CAST({value} AS TIMESTAMP)"

    def part(self, part: str, moment: str, kind: str) -> str:
        if part == DAYS:
            return f"datediff('day', DATE '1970-01-01', CAST({moment} AS DATE))"
        return f"{_PARTS[part]}({moment})"

    def text(self, value: str, kind: str) -> str:
        if kind == "TIMESTAMP":
            # The text of a time outside the calendar raises, and DuckDB may write that of a row in Parquet that is
            # left out.
            return f"CAST(epoch_us({value}) AS VARCHAR)"
        if kind == "TIMESTAMP WITH TIME ZONE":
            return f"CAST(make_timestamp(epoch_us({value})) AS VARCHAR) || '+00'"
        if kind == "DATE":
            return f"CAST({value} - DATE '1970-01-01' AS VARCHAR)"
        return f"hex({value})" if kind == "BLOB" else f"CAST({value} AS VARCHAR)"

    def small(self, code: str, size: int) -> str:
        kind = "UTINYINT" if size <= 2**8 else "USMALLINT" if size <= 2**16 else "UINTEGER"
        return f"TRY_CAST({code} AS {kind})"


DUCKDB = DuckDialect()


def identifier(name: str) -> str:
    """A name quoted for SQL, quotes inside it doubled."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text quoted for SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
