"""Spark's SQL: how expressions are written there, and what its types are called everywhere else.

What holds for ANSI mode is relied on; sessions without it are refused.
"""

from __future__ import annotations

from typing import Any

from dpjoin.engine.dialect import DAYS
from dpjoin.engine.encode import Column

_TYPES = {
    "VARCHAR": "STRING",
    "INTEGER": "INT",
    "HUGEINT": "DECIMAL(38,0)",
    "BLOB": "BINARY",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
}
"""The types that Spark calls otherwise."""
_NAMES = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "VARCHAR",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}
"""Spark's types by the names of DuckDB's."""
EPOCH = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
_PARTS = {"year": "year({})", "month": "month({})", "weekday": "weekday({}) + 1", "hour": "hour({})"}


class SparkDialect:
    """See `dialect.Dialect`."""

    def name(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def literal(self, text: str) -> str:
        r"""Quoted where quotes mean the same in every session, else by its bytes.

        >>> SparkDialect().literal("it"), SparkDialect().literal("it's")
        ("'it'", "CAST(X'69742773' AS STRING)")
        """
        if text.isprintable() and text.isascii() and not set(text) & set("'\\$"):
            return f"'{text}'"
        return f"CAST(X'{text.encode('utf-8', 'surrogatepass').hex()}' AS STRING)"

    def constant(self, text: str, kind: str) -> str:
        text = text.replace("24:00:00", "23:59:59.999999")  # a day has no end in Spark
        return f"CAST('{text}' AS {_TYPES.get(kind, kind)})"

    def holds(self, text: str) -> bool:
        return True

    def cast(self, value: str, kind: str, target: str) -> str:
        return f"TRY_CAST({value} AS {_TYPES.get(target, target)})"

    def by_bytes(self, text: str) -> str:
        return text  # columns with a collation of their own are opened without it

    def length(self, text: str) -> str:
        return f"octet_length({text})"

    def is_nan(self, value: str) -> str:
        return f"isnan({value})"

    def is_whole(self, value: str) -> str:
        return f"{value} = rint({value})"

    def moment(self, value: str, kind: str) -> str:
        if "ZONE" in kind:
            return f"timestampadd(MICROSECOND, unix_micros({value}), {EPOCH})"  # in UTC, wherever it is read
        return f"TRY_CAST({value} AS TIMESTAMP_NTZ)"

    def part(self, part: str, moment: str, kind: str) -> str:
        if part == DAYS:
            return f"unix_date(CAST({moment} AS DATE))"
        return _PARTS[part].format(moment)

    def text(self, value: str, kind: str) -> str:
        if kind == "TIMESTAMP":
            return f"CAST(timestampdiff(MICROSECOND, {EPOCH}, {value}) AS STRING)"
        if kind == "TIMESTAMP WITH TIME ZONE":
            return f"concat(CAST({self.moment(value, kind)} AS STRING), '+00')"
        if kind == "DATE":
            return f"CAST(unix_date({value}) AS STRING)"
        return f"hex({value})" if kind == "BLOB" else f"CAST({value} AS STRING)"

    def small(self, code: str, size: int) -> str:
        return f"TRY_CAST({code} AS INT)"


SPARK = SparkDialect()


def columns_of(frame_schema: Any) -> tuple[Column, ...]:
    """The columns of a frame by its schema."""
    return tuple(
        Column(f.name, type_name(f.dataType), untyped=f.dataType.typeName() == "void", dialect=SPARK)
        for f in frame_schema.fields
    )


def type_name(kind: Any) -> str:
    """What a type of Spark's is called everywhere else."""
    name = str(kind.typeName())
    if name == "decimal":
        return f"DECIMAL({kind.precision},{kind.scale})"
    if name == "array":
        return f"{type_name(kind.elementType)}[]"
    if name in {"char", "varchar"}:
        return "VARCHAR"
    return _NAMES.get(name.partition(" ")[0].partition("(")[0], name.upper())
