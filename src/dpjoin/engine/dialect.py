"""What the SQL of the stores differs in: DuckDB's way, which the others change where theirs is another.

Types go by DuckDB's names whatever a store calls them, so that the rules about types are written once. A dialect says
how one store writes an expression; it gives the same values on all of them, raises on none, and where a value has no
place in a type it gives NULL.
"""

from __future__ import annotations

from collections.abc import Mapping

DAYS = "days"
"""The part of a moment that is its date: days since 1970."""


class Dialect:
    """DuckDB's way, whose casts are NULL already where a value does not fit. Expressions in, expressions out."""

    types: Mapping[str, str] = {}
    """The types that the store calls otherwise."""
    parts: Mapping[str, str] = {
        "year": "year({})",
        "month": "month({})",
        "weekday": "isodow({})",
        "hour": "hour({})",
        DAYS: "datediff('day', DATE '1970-01-01', CAST({} AS DATE))",
    }
    texts: Mapping[str, str] = {
        # The text of a time outside the calendar raises, and DuckDB may write that of a row that is left out.
        "TIMESTAMP": "CAST(epoch_us({}) AS VARCHAR)",
        "TIMESTAMP WITH TIME ZONE": "CAST(make_timestamp(epoch_us({})) AS VARCHAR) || '+00'",
        "DATE": "CAST({} - DATE '1970-01-01' AS VARCHAR)",
        "BLOB": "hex({})",
    }
    """Texts of values by their types; of others by a cast."""
    wide = "HUGEINT"
    """A type that holds whole numbers below 10^38."""
    divided = "//"
    """Between two whole numbers: their quotient, rounded down."""
    hashed = "hash({}) % {}"
    """A number below the second, the same for the same values of the first."""
    copies = "unnest(range(1, {} + 1))"
    """Each row so many times, with a number from 1 on."""

    def name(self, name: str) -> str:
        """A name, quoted."""
        return identifier(name)

    def literal(self, text: str) -> str:
        """A text, quoted."""
        return literal(text)

    def holds(self, text: str) -> bool:
        """Whether a column of the store can hold a text."""
        return True

    def constant(self, text: str, kind: str) -> str:
        """The value of a type that some public text stands for; `inf`, `-inf` and `nan` are texts of DOUBLE."""
        return f"CAST({literal(text)} AS {self.types.get(kind, kind)})"

    def cast(self, value: str, kind: str, target: str) -> str:
        """A value of one type in another; a text of a whole number stands for it, others of numbers are not rounded."""
        return f"TRY_CAST({value} AS {self.types.get(target, target)})"

    def by_bytes(self, text: str) -> str:
        """A text such that it compares by its bytes in UTF-8."""
        return text

    def length(self, text: str) -> str:
        """How many bytes a text has in UTF-8."""
        return f"strlen({text})"

    def is_nan(self, value: str) -> str:
        """Whether a DOUBLE is not a number."""
        return f"isnan({value})"

    def is_whole(self, value: str) -> str:
        """Whether a DOUBLE equals its whole part."""
        return f"{value} = trunc({value})"

    def moment(self, value: str, kind: str) -> str:
        """A text or a time with a zone as a TIMESTAMP, the latter in UTC, wherever it is read."""
        return f"make_timestamp(epoch_us({value}))" if "ZONE" in kind else f"TRY_CAST({value} AS TIMESTAMP)"

    def part(self, part: str, moment: str, kind: str) -> str:
        """A part of a DATE, TIME or TIMESTAMP that counts: year, month, weekday, hour or days."""
        return self.parts[part].format(moment)

    def text(self, value: str, kind: str) -> str:
        """The text of a value that is no DOUBLE, the same on every store."""
        cast = f"CAST({{}} AS {self.types.get('VARCHAR', 'VARCHAR')})"
        return self.texts.get(kind, cast).format(value)

    def small(self, code: str, size: int) -> str:
        """A code below a size, in a narrow type."""
        kind = "UTINYINT" if size <= 2**8 else "USMALLINT" if size <= 2**16 else "UINTEGER"
        return f"TRY_CAST({code} AS {kind})"


DUCKDB = Dialect()


def identifier(name: str) -> str:
    """A name quoted for SQL, quotes inside it doubled."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text quoted for SQL.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
