"""An engine in this process: answers by sums of products over tables that are read when they are needed first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from dpjoin.engine import checks
from dpjoin.engine.answers import group_answers
from dpjoin.engine.cluster_tables import ClusterTables
from dpjoin.engine.column_values import Columns
from dpjoin.engine.interface import Clip, ExactDegrees, ExactNumbers, RowWeights, Rules, Scope, Value
from dpjoin.engine.join_keys import JoinValues, by_column
from dpjoin.engine.partitions import Partitions
from dpjoin.engine.sumproduct import merged_alike
from dpjoin.engine.tables import TableCounts, Tables
from dpjoin.errors import SpecError, suggest
from dpjoin.spec.schema import DegreeBound, Schema, with_caps
from dpjoin.spec.workload import Group, Products

MARGINAL_CELLS = 2**24
"""Product queries go through the marginal over their scope up to this many cells, else key by key."""


class LocalEngine:
    """Exact aggregates of the natural join of some tables.

    `touched` are the attributes that queries may look at. `read` gives the tables, coded by a schema; nothing else
    knows where the rows come from.
    """

    def __init__(
        self,
        schema: Schema,
        touched: Scope,
        read: Callable[[Schema], Tables | Partitions | ClusterTables],
        columns: Columns | None = None,
    ) -> None:
        self._schema, self._touched, self._read = schema, touched, read
        self._columns = columns

    @cached_property
    def _exact_tables(self) -> Tables | Partitions | ClusterTables:
        return self._read(self._schema)

    @property
    def schema(self) -> Schema:
        return self._schema

    def exact_join_size(self) -> int:
        return self._exact_tables.exact_size

    def exact_boundary(self, tables: frozenset[str]) -> int:
        for name in tables:
            self._schema.table(name)
        return self._exact_tables.exact_largest(tables)

    def exact_answers(self, groups: Sequence[Group]) -> list[NDArray[Any]]:
        wide = [g for g in groups if isinstance(g, Products) and g.cells > MARGINAL_CELLS]
        for group in groups:
            for a in group.scope:
                if a not in self._touched:
                    raise SpecError(
                        f"group {group.name!r} asks about {a!r}, which the engine did not read; "
                        f"{suggest(a, self._touched)}"
                    )
            if group in wide and len(self._schema.tables) > 2:
                raise SpecError(
                    f"products {group.name!r} look at {group.cells} cells of {len(self._schema.tables)} tables; from "
                    f"three tables on {MARGINAL_CELLS} cells are the most, so let them look at fewer attributes"
                )
        over_keys = wide if len(self._schema.tables) == 2 else []
        tables, in_order = self._exact_tables, self._schema.in_order
        exact_marginals = tables.exact_marginals({in_order(g.scope) for g in groups if g not in over_keys})
        answers = []
        for group in groups:
            if isinstance(group, Products) and group in over_keys:
                answers.append(tables.exact_products_over_keys(group))
                continue
            ordered = in_order(group.scope)
            exact_marginal = exact_marginals[ordered].transpose([ordered.index(a) for a in group.scope])
            answers.append(group_answers(group, exact_marginal, join_size=tables.exact_size))
        return answers

    def exact_degrees(
        self, rules: Mapping[str, Rules], by: tuple[str, ...], distinct: tuple[str, ...] = ()
    ) -> ExactDegrees:
        checks.check_degrees(self._schema, rules, by, distinct)
        return self._exact_tables.exact_degrees(rules, by, distinct)

    def kind_of(self, attribute: str) -> str:
        return self._unread.kind_of(attribute)

    def exact_values(self, attribute: str, most: int) -> ExactDegrees:
        return self._unread.exact_values(attribute, most)

    def exact_numbers(self, attribute: str) -> ExactNumbers:
        return self._unread.exact_numbers(attribute)

    def learned(self, schema: Schema) -> LocalEngine:
        return LocalEngine(schema, self._touched, self._read)

    @property
    def _unread(self) -> Columns:
        assert self._columns is not None, "domains are learned before anything else"
        return self._columns

    def restricted(self, rules: Mapping[str, Rules]) -> LocalEngine:
        checks.check_rules(self._schema, rules)
        return self._on(self._schema, self._exact_tables.restricted(rules))

    def capped(self, caps: Mapping[str, Sequence[DegreeBound]]) -> LocalEngine:
        checks.check_caps(self._schema, caps)
        schema = with_caps(self._schema, caps)
        return self._on(schema, self._exact_tables.capped(schema, caps))

    def weighted(self, weightings: Mapping[str, RowWeights]) -> LocalEngine:
        checks.check_weightings(self._schema, weightings)
        return self._on(self._schema, self._exact_tables.weighted(weightings))

    def exact_results(self, by: tuple[str, ...]) -> ExactDegrees:
        checks.owner_table(self._schema, by)
        return self._exact_tables.exact_results(by)

    def clipped(self, clip: Clip) -> LocalEngine:
        return self._on(self._schema, self._exact_tables.clipped(checks.owner_table(self._schema, clip.owner), clip))

    def _on(self, schema: Schema, exact_tables: Tables | Partitions | ClusterTables) -> LocalEngine:
        return LocalEngine(schema, self._touched, lambda _: exact_tables)

    def one_table(self, table: str, by: tuple[str, ...], values: Sequence[Value], keep: tuple[str, ...]) -> LocalEngine:
        schema = checks.one_table_schema(self._schema, table, by, values, keep)
        readable = (*self._touched, *self._schema.compared_attributes)
        for a in keep:
            if a not in readable:
                raise SpecError(
                    f"table {table!r} alone keeps {a!r}, which the engine did not read; {suggest(a, readable)}"
                )
        # Nothing of this engine goes along, neither other tables nor other rows.
        exact = merged_alike(self._exact_tables.exact_one_table(table, by, by_column(values, len(by)), keep))
        exact_tables = Tables(schema, {table: TableCounts(lambda: exact)}, JoinValues({}))
        return LocalEngine(schema, schema.queryable, lambda _: exact_tables)
