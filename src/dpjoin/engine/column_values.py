"""The values of one column, before tables are joined: for domains that are learned.

Only rows that the public rule keeps take part, by the domains that are declared. Where persons are protected a row's
owner is its own or, along foreign keys, that of another table's row; rows without one take no part, and an owner counts
once at each of so many values, which a hash of owner and value picks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjoin.engine import encode
from dpjoin.engine.dialect import DUCKDB
from dpjoin.engine.encode import Column
from dpjoin.engine.integers import FLOAT_LIMIT
from dpjoin.engine.interface import ExactDegrees, ExactNumbers
from dpjoin.engine.scan import Scan, Store
from dpjoin.engine.sources import connected
from dpjoin.spec.persons import link_of, owner_of, owners_counted
from dpjoin.spec.schema import Schema


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a store's tables whose domain is to be learned."""

    schema: Schema
    store: Store

    def kind_of(self, attribute: str) -> str:
        """What a column holds, by its type alone: text, untyped, integer, float or boolean."""
        return self._column(attribute).kind

    def exact_values(self, attribute: str, most: int) -> ExactDegrees:
        exact = self._counted(attribute, listed_value(self._column(attribute)), most)
        values = exact.column("v")
        counts = exact.column("n").to_numpy().astype(np.int64)
        return ExactDegrees(counts, lambda at: [(v,) for v in values.take(at).to_pylist()])

    def exact_numbers(self, attribute: str) -> ExactNumbers:
        exact = self._counted(attribute, number_value(self._column(attribute)), 1)
        return ExactNumbers(
            exact.column("v").to_numpy().astype(np.float64), exact.column("n").to_numpy().astype(np.int64)
        )

    def _column(self, attribute: str) -> Column:
        (name,) = self.schema.tables_with(attribute)
        column = self.store.opened[name].column(self.schema.table(name).column(attribute))
        return encode.taken(self.schema.attribute(attribute), column)

    def _scan(self, table: str) -> Scan:
        return Scan(self.schema, self.schema.table(table), (), self.store.opened)

    def _counted(self, attribute: str, value: str, most: int) -> Any:
        """Each value that occurs (v), with its number of rows, or of owners (n)."""
        (name,) = self.schema.tables_with(attribute)
        table = self.schema.table(name)
        if not owners_counted(self.schema, table):
            return self._query(name, {"v": value}, "count(*) AS n", grouped=True)
        # The tables on the way to the owner, each with the key that points to the next.
        way = [table]
        while not owner_of(self.schema, way[-1]):
            linked = link_of(self.schema, way[-1])
            assert linked is not None, "the schema was checked"
            way.append(linked)
        owner = owner_of(self.schema, way[-1])
        with connected() as connection:
            for i, (here, before) in enumerate(zip(way, [None, *way], strict=False)):
                key = self._scan(here.name).join_value
                columns = {"v": value} if before is None else {f"k{i}": key(str(before.owner_via))}
                columns |= {f"k{i + 1}": key(str(here.owner_via))} if here is not way[-1] else {}
                columns |= {f"o{n}": key(a) for n, a in enumerate(owner)} if here is way[-1] else {}
                connection.register(f"t{i}", self._query(here.name, columns, "", grouped=True))
            joined = "t0" + "".join(f" JOIN t{i} ON t{i - 1}.k{i} = t{i}.k{i}" for i in range(1, len(way)))
            names = [*(f"o{n}" for n in range(len(owner))), "v"]
            connection.execute(f"CREATE TEMP TABLE pairs AS SELECT DISTINCT {', '.join(names)} FROM {joined}")
            pairs = connection.table("pairs")
            return connection.sql(_picked_sql(pairs.columns, list(map(str, pairs.types)), most)).to_arrow_table()

    def _query(self, table: str, columns: dict[str, str], more: str, *, grouped: bool) -> Any:
        scan = self._scan(table)
        shown = ", ".join([*(f"{sql} AS {name}" for name, sql in columns.items()), *([more] if more else [])])
        present = [f"({sql}) IS NOT NULL" for sql in columns.values()]
        where = " AND ".join([*scan.kept_rows, *present])
        sql = f"SELECT {shown} FROM {self.store.opened[table].view} WHERE {where}"
        by = ", ".join(str(i + 1) for i in range(len(columns)))
        return self.store.exact_query(table, f"{sql} GROUP BY {by}" if grouped else sql)


def listed_value(column: Column) -> str:
    """A column's value as one that a domain may list: text, whole numbers of 64 bits, booleans; NULL for others."""
    dialect = column.dialect
    if column.kind == "integer":
        return dialect.cast(column.sql, column.type, "BIGINT")
    if column.kind == "float":
        number = encode.number_of(column)
        whole = f"{dialect.is_whole(number)} AND abs({number}) <= {FLOAT_LIMIT}"
        return f"CASE WHEN {whole} THEN {dialect.cast(number, 'DOUBLE', 'BIGINT')} END"
    return dialect.text(column.sql, column.type) if column.type == "ENUM" else column.sql


def number_value(column: Column) -> str:
    """A column's value as a finite number; NULL for others."""
    dialect, kind = column.dialect, encode.number_type(column)
    number = encode.number_of(column)
    number = number if kind == "DOUBLE" else dialect.cast(number, kind, "DOUBLE")
    infinite = dialect.constant("inf", "DOUBLE")
    return f"CASE WHEN abs({number}) < {infinite} THEN {number} + 0 END"  # NaN is larger than every number


def _picked_sql(names: Sequence[str], kinds: Sequence[str], most: int) -> str:
    """Owners of `pairs` by value, at so many of its values: by a hash of owner and value, then these themselves."""
    text = " || ".join(encode.field(DUCKDB, encode.text_of(DUCKDB, n, k)) for n, k in zip(names, kinds, strict=True))
    order = ", ".join([f"md5({text})", text, *names])
    rank = f"row_number() OVER (PARTITION BY {', '.join(names[:-1])} ORDER BY {order})"
    return f"SELECT v, count(*) AS n FROM (SELECT v FROM pairs QUALIFY {rank} <= {most}) GROUP BY v"
