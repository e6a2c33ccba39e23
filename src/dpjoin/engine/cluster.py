"""A cluster that computes: what is asked of it, and counts of tables that stay there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpjoin.engine.dialect import Dialect
from dpjoin.engine.encode import as_double
from dpjoin.engine.integers import INT_LIMIT, Exact
from dpjoin.engine.interface import Scope
from dpjoin.engine.join_keys import Values, number_keys
from dpjoin.engine.relations import WIDE, Relation, summed
from dpjoin.spec.schema import Schema

ListedColumns = Sequence[Sequence[object] | NDArray[np.int64]]
"""Listed values, attribute by attribute."""


class Frozen(Protocol):
    """Rows that lie on the cluster and do not change, for as long as somebody holds this."""

    @property
    def name(self) -> str:
        """What SQL calls them."""
        ...


class Cluster(Protocol):
    """Where SQL runs. Fails in words that repeat nothing of the rows."""

    @property
    def dialect(self) -> Dialect: ...

    def exact_query(self, sql: str) -> Any:
        """The result of a query, as an Arrow table."""
        ...

    def frozen(self, sql: str) -> Frozen:
        """The result of a query, computed once and written down."""
        ...

    def uploaded(self, rows: Any) -> Frozen:
        """An Arrow table as rows of the cluster."""
        ...


class TableOnCluster:
    """The counts of one table, and their sums by join attributes; each is made when it is needed first."""

    def __init__(self, rows: Callable[[], Relation], by_key: Callable[[], Relation], exact_total: int) -> None:
        self._rows, self._by_key, self.exact_total = rows, by_key, exact_total

    @cached_property
    def rows(self) -> Relation:
        return self._rows()

    @cached_property
    def by_key(self) -> Relation:
        return self._by_key()


def join_column(schema: Schema, attribute: str) -> str:
    """What relations call the value of a join attribute."""
    return f"j{schema.compared_attributes.index(attribute)}"


def join_columns(schema: Schema, attributes: Iterable[str]) -> Scope:
    return tuple(join_column(schema, a) for a in attributes)


def code_column(schema: Schema, attribute: str) -> str:
    """What relations call the code of an attribute."""
    return f"c{[a.name for a in schema.attributes].index(attribute)}"


def cell(schema: Schema, scope: Scope, start: int = 0) -> str:
    """The number of a scope's cell that a row lies in, from `start` on."""
    terms = [str(start)] if start or not scope else []
    for i, a in enumerate(scope):
        below = schema.cells(scope[i + 1 :])
        code = f"CAST({code_column(schema, a)} AS BIGINT)"
        terms.append(code if below == 1 else f"{code} * {below}")
    return f"CAST({' + '.join(terms)} AS BIGINT)"


def frozen(cluster: Cluster, relation: Relation) -> Relation:
    """The same relation, computed once."""
    made = cluster.frozen(fetching(cluster, f"SELECT * FROM {relation.sql} r"))
    return Relation(
        made.name, relation.columns, relation.exact_total, relation.exact_most, relation.exact_rows, (made,)
    )


def fetching(cluster: Cluster, sql: str) -> str:
    return sql.replace(WIDE, cluster.dialect.wide)


def as_table(cluster: Cluster, rows: Callable[[], Relation], exact_total: int) -> TableOnCluster:
    """A table of some rows; its sums by join attributes are computed once."""

    def by_key() -> Relation:
        return frozen(cluster, summed(table.rows, [c for c in table.rows.columns if c.startswith("j")]))

    table = TableOnCluster(rows, by_key, exact_total)
    return table


def exact_integers(column: Any) -> Exact:
    """An Arrow column of whole numbers, decimals among them, as int64 or Python integers."""
    if pa.types.is_integer(column.type):
        return np.asarray(column.to_numpy(), dtype=np.int64)
    numbers = [int(n) for n in column.to_pylist()]
    narrow = all(abs(n) < INT_LIMIT for n in numbers)
    exact = np.empty(len(numbers), dtype=np.int64 if narrow else object)
    exact[:] = numbers
    return exact


@dataclass(frozen=True)
class JoinKind:
    """How a join attribute's values lie on the cluster."""

    type: Any
    """The Arrow type that they come home with."""
    digits: bool
    """Whether text stands for whole numbers."""

    @property
    def name(self) -> str:
        """What dialects call the type."""
        known = {pa.float64(): "DOUBLE", pa.date32(): "DATE", pa.int64(): "BIGINT"}
        return "TIMESTAMP" if pa.types.is_timestamp(self.type) else known.get(self.type, "VARCHAR")

    def plain(self, column: Any) -> list[object]:
        """Values that came home, as plain Python values."""
        (numbers,), keys = number_keys([[column]], [self.digits])
        return keys.values[0].at(keys.ids(numbers)[0])

    def fitting(self, values: Sequence[object]) -> list[Any]:
        """Plain values as the cluster has them; None for those that it cannot have."""
        stored = Values(self.type, self.digits, 1, 0, None).stored(values)
        return [v if v is None else self._fitting(v) for v in stored]

    def _fitting(self, value: Any) -> Any:
        if pa.types.is_floating(self.type):
            return float(value) if as_double(value) == value else None
        if pa.types.is_integer(self.type) or pa.types.is_temporal(self.type):
            bits = 31 if pa.types.is_date32(self.type) else 63
            return value if isinstance(value, int) and -(2**bits) <= value < 2**bits else None
        return value if value.encode(errors="ignore").decode() == value else None

    def column(self, fitting: Sequence[Any]) -> Any:
        """Values as the cluster has them as a column to upload."""
        if pa.types.is_temporal(self.type):
            whole = pa.int32() if pa.types.is_date32(self.type) else pa.int64()
            return pa.array(fitting, whole).cast(self.type)
        text = not (pa.types.is_integer(self.type) or pa.types.is_floating(self.type))
        return pa.array(fitting, pa.string() if text else self.type)


def listed_rows(kinds: Sequence[JoinKind], values: ListedColumns) -> tuple[list[Any], NDArray[np.int64]]:
    """Columns of those values that can occur at all, and their positions; without any attribute, the one value."""
    columns = [kind.fitting(list(v)) for kind, v in zip(kinds, values, strict=True)]
    at = [i for i, row in enumerate(zip(*columns, strict=True)) if None not in row] if columns else [0]
    return [k.column([c[i] for i in at]) for k, c in zip(kinds, columns, strict=True)], np.array(at, dtype=np.int64)


def sizes_product(sizes: Iterable[int]) -> int:
    return math.prod(max(1, s) for s in sizes)
