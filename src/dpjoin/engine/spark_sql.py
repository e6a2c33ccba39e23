"""Spark's SQL: how expressions are written there, and what its types are called everywhere else.

What holds for ANSI mode is relied on; sessions without it are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpjoin.engine.dialect import DAYS, Dialect
from dpjoin.engine.encode import Column

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
EPOCH_SQL = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
_IN_UTC = f"timestampadd(MICROSECOND, unix_micros({{}}), {EPOCH_SQL})"
"""A time with a zone, wherever it is read."""


class SparkDialect(Dialect):
    """Columns with a collation of their own are opened without it, so texts compare by their bytes."""

    types: Mapping[str, str] = {
        "VARCHAR": "STRING",
        "INTEGER": "INT",
        "HUGEINT": "DECIMAL(38,0)",
        "BLOB": "BINARY",
        "TIMESTAMP": "TIMESTAMP_NTZ",
        "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
    }
    parts: Mapping[str, str] = {
        "year": "year({})",
        "month": "month({})",
        "weekday": "weekday({}) + 1",
        "hour": "hour({})",
        DAYS: "unix_date(CAST({} AS DATE))",
    }
    texts: Mapping[str, str] = {
        "TIMESTAMP": f"CAST(timestampdiff(MICROSECOND, {EPOCH_SQL}, {{}}) AS STRING)",
        "TIMESTAMP WITH TIME ZONE": f"concat(CAST({_IN_UTC} AS STRING), '+00')",
        "DATE": "CAST(unix_date({}) AS STRING)",
        "BLOB": "hex({})",
    }
    wide = "DECIMAL(38,0)"
    divided = "DIV"
    hashed = "pmod(xxhash64({}), {})"
    copies = "explode(sequence(1, {}))"

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
        return super().constant(text.replace("24:00:00", "23:59:59.999999"), kind)  # a day has no end in Spark

    def length(self, text: str) -> str:
        return f"octet_length({text})"

    def is_whole(self, value: str) -> str:
        return f"{value} = rint({value})"

    def moment(self, value: str, kind: str) -> str:
        return _IN_UTC.format(value) if "ZONE" in kind else f"TRY_CAST({value} AS TIMESTAMP_NTZ)"

    def small(self, code: str, size: int) -> str:
        return f"TRY_CAST({code} AS INT)"


SPARK_SQL = SparkDialect()


def columns_of(frame_schema: Any) -> tuple[Column, ...]:
    """The columns of a frame by its schema."""
    return tuple(
        Column(f.name, type_name(f.dataType), untyped=f.dataType.typeName() == "void", dialect=SPARK_SQL)
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
