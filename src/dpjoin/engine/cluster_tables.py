"""The tables of one instance where their rows stay: what `Tables` answers in memory, as SQL over frozen counts.

What comes home are marginals, sizes, and degrees as runs: how many values have the same one. Of values only those are
fetched that are asked for. Questions whose numbers the cluster cannot hold are answered at home, by `Tables`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpjoin.engine import cluster_rows
from dpjoin.engine.answers import products_bound
from dpjoin.engine.checks import joins_of
from dpjoin.engine.cluster import (
    Cluster,
    JoinKind,
    ListedColumns,
    TableOnCluster,
    as_table,
    cell,
    code_column,
    exact_integers,
    fetching,
    frozen,
    join_columns,
    listed_rows,
    sizes_product,
)
from dpjoin.engine.integers import Exact, fit
from dpjoin.engine.interface import LISTED, Clip, ExactDegrees, Labels, RowWeights, Rules, Scope, Value
from dpjoin.engine.join_keys import CODE, by_column
from dpjoin.engine.relations import WIDEST_NUMBER, Relation, eliminate, summed, total_of, whole
from dpjoin.engine.scopes import by_tables, exact_each, of_two_tables, rectangles, split
from dpjoin.engine.sumproduct import Counts
from dpjoin.engine.tables import STACKED_CELLS, Tables
from dpjoin.spec.schema import DegreeBound, Schema
from dpjoin.spec.workload import Products, largest_weight

CLUSTER_TABLES = 4
"""Products of counts of more tables may be wider than the cluster's numbers: they are computed at home."""
HASHED = 1024
"""Into how many parts values of one degree are put, so that a few of them are found quickly."""
SPREAD_CELLS = 32
"""How many cells of a table may lie in columns."""
QUERIES_AT_ONCE = 64
"""How many product queries are computed at a time."""
_ROOM = 2**40
"""How much wider than the product of all counts a number may get on the way: weights of products, scopes stacked."""


def tables_on_cluster(
    schema: Schema,
    cluster: Cluster,
    tables: Mapping[str, TableOnCluster],
    kinds: Mapping[str, JoinKind],
    home: Callable[[], Tables],
) -> ClusterTables | Tables:
    """The tables on the cluster, or at home where their join may be larger than the cluster's widest numbers."""
    total = sizes_product(t.exact_total for t in tables.values())
    if len(tables) > CLUSTER_TABLES or total * _ROOM >= WIDEST_NUMBER:
        return home()
    return ClusterTables(schema, cluster, tables, kinds, home)


class ClusterTables:
    """Answers as those of `Tables`, method by method."""

    def __init__(
        self,
        schema: Schema,
        cluster: Cluster,
        tables: Mapping[str, TableOnCluster],
        kinds: Mapping[str, JoinKind],
        home: Callable[[], Tables],
    ) -> None:
        self._schema, self._cluster, self._tables, self._kinds, self._home = schema, cluster, tables, kinds, home
        self._listed: WeakKeyDictionary[Labels, Relation] = WeakKeyDictionary()

    # Other instances

    def restricted(self, rules: Mapping[str, Rules]) -> ClusterTables | Tables:
        """The rows that satisfy the rules."""
        some = {name: self._satisfying(name, r) for name, r in rules.items() if r}
        return self._with(self._schema, some, lambda: self._home().restricted(rules))

    def capped(self, schema: Schema, caps: Mapping[str, Sequence[DegreeBound]]) -> ClusterTables | Tables:
        """The rows within the caps, of each table by itself.

        The order of rows writes whole numbers out, and SQL cannot do so for a DOUBLE: by such keys it is made at home.
        """
        if any(self._kinds[a].name == "DOUBLE" for name in caps for a in joins_of(self._schema, name)):
            return self._home().capped(schema, caps)
        some = {name: self._within(name, tuple(bounds)) for name, bounds in caps.items() if bounds}
        return self._with(schema, some, lambda: self._home().capped(schema, caps))

    def weighted(self, weightings: Mapping[str, RowWeights]) -> ClusterTables | Tables:
        """Every row as often as its weight says."""
        some = {name: self._weighed(name, weighting) for name, weighting in weightings.items()}
        return self._with(self._schema, some, lambda: self._home().weighted(weightings))

    def clipped(self, name: str, clip: Clip) -> ClusterTables | Tables:
        """Every row of a table as often as its owner's weight says."""
        table = self._tables[name]

        def rows() -> Relation:
            owners = whole(self._by_key(self._tables), self._columns(clip.owner))
            return frozen(self._cluster, cluster_rows.clipped(table.rows, owners, clip, self._cluster.dialect))

        some = {name: as_table(self._cluster, rows, table.exact_total * clip.full)}
        return self._with(self._schema, some, lambda: self._home().clipped(name, clip))

    def _with(
        self, schema: Schema, some: Mapping[str, TableOnCluster], home: Callable[[], Tables]
    ) -> ClusterTables | Tables:
        return tables_on_cluster(schema, self._cluster, {**self._tables, **some}, self._kinds, _once(home))

    def _satisfying(self, name: str, rules: Rules) -> TableOnCluster:
        table = self._tables[name]

        def some(relation: Relation) -> Relation:
            for labels, bucket in rules.items():
                columns = self._columns(labels.attributes)
                relation = cluster_rows.labelled(relation, columns, self._buckets(labels), bucket)
            return relation

        return TableOnCluster(lambda: some(table.rows), lambda: some(table.by_key), table.exact_total)

    def _buckets(self, labels: Labels) -> Relation:
        """The listed values with their buckets; brought to the cluster once, since labels do not change."""
        found = self._listed.get(labels)
        if found is None:
            values = list(labels.buckets)
            columns, at = self._listed_columns(labels.attributes, by_column(values, len(labels.attributes)))
            buckets = np.array([labels.buckets[v] for v in values], dtype=np.int64)[at[: len(values)]]
            found = self._listed[labels] = self._uploaded({**columns, "bucket": buckets})
        return found

    def _within(self, name: str, bounds: Sequence[DegreeBound]) -> TableOnCluster:
        table, joins = self._tables[name], joins_of(self._schema, name)
        limits = [(self._columns(b.attributes), b.limit) for b in bounds]

        def rows() -> Relation:
            # The code of a join attribute says nothing that its value does not.
            own = [a for a in self._schema.queryable if a in self._schema.table(name).attributes and a not in joins]
            codes = [c for c in (code_column(self._schema, a) for a in own) if c in table.rows.columns]
            values = zip(self._columns(joins), (self._kinds[a].name for a in joins), strict=True)
            seen = {**dict(values), **dict.fromkeys(codes, "BIGINT")}
            return frozen(self._cluster, cluster_rows.capped(table.rows, limits, seen, self._cluster.dialect))

        if all(set(b.attributes) == set(joins) for b in bounds):
            least = min(b.limit for b in bounds)
            return TableOnCluster(
                rows, lambda: cluster_rows.recounted(table.by_key, f"least(n, {least})"), table.exact_total
            )
        return as_table(self._cluster, rows, table.exact_total)

    def _weighed(self, name: str, weighting: RowWeights) -> TableOnCluster:
        table, by = self._tables[name], self._columns(weighting.attributes)
        total = table.exact_total * max(1, int(weighting.weights.max(initial=1)))

        def weights() -> Relation:
            degrees = np.arange(1, len(weighting.weights) + 1)
            return self._uploaded({"degree": degrees, "weight": weighting.weights})

        def rows() -> Relation:
            return frozen(self._cluster, cluster_rows.weighted(table.rows, by, weights(), total))

        if set(weighting.attributes) == set(joins_of(self._schema, name)):
            return TableOnCluster(rows, lambda: cluster_rows.weighted(table.by_key, by, weights(), total), total)
        return as_table(self._cluster, rows, total)

    # Sizes and degrees

    @cached_property
    def exact_size(self) -> int:
        return self._exact_number(whole(self._by_key(self._tables), ()))

    def exact_largest(self, names: frozenset[str]) -> int:
        """T_E: all but the boundary summed out, then the largest count over the boundary."""
        if not names:
            return 1
        others = [t.name for t in self._schema.tables if t.name not in names]
        boundary = {c for name in others for c in self._columns(joins_of(self._schema, name))}
        left = eliminate(self._by_key(names), boundary)
        (largest,) = eliminate(left, (), maximum=True)
        return self._exact_number(largest)

    def exact_degrees(self, rules: Mapping[str, Rules], by: Scope, distinct: Scope) -> ExactDegrees:
        parts = [self._satisfying(name, r).by_key for name, r in rules.items()]
        if distinct:
            present = [cluster_rows.present(p, p.columns) for p in parts]
            (joined,) = eliminate(present, self._columns(distinct))
            parts = [cluster_rows.present(joined, self._columns(distinct))]
        (part,) = parts
        return self._exact_runs(summed(part, self._columns(by)), by)

    def exact_results(self, by: Scope) -> ExactDegrees:
        return self._exact_runs(whole(self._by_key(self._tables), self._columns(by)), by)

    def _exact_runs(self, degrees: Relation, by: Scope) -> ExactDegrees:
        """Values of one count, by a hash of theirs, are alike until one of them is asked for."""
        columns = self._columns(by)
        hashed = self._cluster.dialect.hashed.format(", ".join(columns), HASHED) if columns else "0"
        marked = f"(SELECT {', '.join([*columns, 'n', f'{hashed} AS part'])} FROM {degrees.sql} d)"
        runs = self._exact_rows(f"SELECT n, part, count(*) AS many FROM {marked} m GROUP BY n, part ORDER BY n, part")
        counts, parts, many = (exact_integers(runs.column(c)) for c in ("n", "part", "many"))
        ends = np.cumsum(many)
        kinds = [self._kinds[a] for a in by]

        def exact_values(positions: NDArray[np.int64]) -> list[Value]:
            if not by:
                return [()] * len(positions)
            run = np.searchsorted(ends, positions, side="right")
            place = positions - (ends - many)[run] + 1
            wanted = {"n": runs.column("n").take(pa.array(run)), "part": parts[run], "place": place}
            listed = self._uploaded({**wanted, "position": np.arange(len(positions))})
            some = f"SELECT DISTINCT n, part FROM {listed.sql}"
            order = f"row_number() OVER (PARTITION BY m.n, m.part ORDER BY {', '.join(columns)})"
            ranked = f"SELECT m.*, {order} AS place FROM {marked} m JOIN ({some}) w ON m.n = w.n AND m.part = w.part"
            found = self._exact_rows(
                f"SELECT w.position, {', '.join(f'r.{c}' for c in columns)} FROM ({ranked}) r "
                f"JOIN {listed.sql} w ON r.n = w.n AND r.part = w.part AND r.place = w.place"
            )
            found = found.sort_by("position")
            return list(zip(*(k.plain(found.column(c)) for k, c in zip(kinds, columns, strict=True)), strict=True))

        return ExactDegrees(np.repeat(counts, many), exact_values)

    def exact_one_table(self, name: str, by: Scope, values: ListedColumns, keep: Scope) -> Counts:
        """A table's rows whose value of `by` is listed, as codes of LISTED and `keep`."""
        schema, rows, codes = self._schema, self._tables[name].rows, [code_column(self._schema, a) for a in keep]
        outputs, sizes = [f"f.{c}" for c in codes], [schema.attribute(a).size for a in keep]
        source = f"{rows.sql} f"
        holds: tuple[object, ...] = rows.holds
        if by:
            columns, at = self._listed_columns(by, values)
            listed = self._uploaded({**columns, "position": at})
            on = " AND ".join(f"f.{c} = s.{c}" for c in columns)
            source, outputs, sizes = f"{source} JOIN {listed.sql} s ON {on}", ["s.position", *outputs], [*sizes]
            sizes, holds = [max(1, len(values[0])), *sizes], (*holds, listed)
        number = total_of("f.n", rows.exact_total)
        grouped = f"GROUP BY {', '.join(outputs)}" if outputs else ""
        found = self._exact_rows(f"SELECT {', '.join([*outputs, f'{number} AS n'])} FROM {source} {grouped}")
        del holds
        ids = [exact_integers(found.column(i)) for i in range(len(outputs))]
        exact = exact_integers(found.column("n"))
        variables = tuple((CODE, a) for a in ((LISTED,) if by else ()) + keep)
        narrow = tuple(c.astype(np.min_scalar_type(s), copy=False) for c, s in zip(ids, sizes, strict=True))
        return Counts(variables, tuple(sizes), narrow, exact, len(exact))

    # Marginals

    def exact_marginals(self, scopes: Iterable[Scope]) -> dict[Scope, Exact]:
        """The marginals of the join over the scopes, each with one axis per attribute."""
        wanted = list(scopes)
        maximal = by_tables(self._schema, wanted)
        computed: dict[Scope, Exact] = {}
        for tables, found in sorted(maximal.items(), key=lambda item: -len(item[0])):
            found = [p for p in found if not any({a for s in p for a in s} <= set(c) for c in computed)]
            if not found:
                continue
            if not tables:
                computed[()] = fit(np.array(self.exact_size, dtype=object), self.exact_size)
            elif len(tables) == 1:
                computed |= self._exact_within_one(tables[0], [part for (part,) in found])
            elif len(tables) == 2:
                pairs = [(left, right) for left, right in found]
                within = {t: [p for (p,) in maximal.get((t,), [])] for t in tables}
                at = self._spreading(pairs)
                if at is not None:
                    computed |= self._exact_spread(tables, at, pairs, within)
                    continue
                for lefts, rights in rectangles(pairs):
                    for some, others in itertools.product(self._pieces(lefts), self._pieces(rights)):
                        computed |= self._exact_stacked(tables, [some, others])
            else:
                for parts_of in found:
                    computed |= self._exact_stacked(tables, [[part] for part in parts_of])
        return exact_each(self._schema, wanted, computed)

    def _spreading(self, pairs: Sequence[tuple[Scope, Scope]]) -> int | None:
        """Of two tables that join each other only: which one keeps its rows while the other's cells lie in columns.

        None where neither has few enough cells for that, or what is asked of the other has many together.
        """
        if len(self._schema.tables) > 2 or not self._joined() or not pairs:
            return None
        for at in (0, 1):
            few = sum(map(self._schema.cells, {pair[1 - at] for pair in pairs})) <= SPREAD_CELLS
            union = self._schema.in_order(a for pair in pairs for a in pair[at])
            if few and self._schema.cells(union) <= STACKED_CELLS:
                return at
        return None

    def _joined(self) -> Scope:
        """The columns that all tables have."""
        common = set.intersection(*(set(joins_of(self._schema, t.name)) for t in self._schema.tables))
        return self._columns(self._schema.in_order(common))

    def _exact_spread(
        self, tables: Scope, at: int, pairs: Sequence[tuple[Scope, Scope]], within: Mapping[str, Sequence[Scope]]
    ) -> dict[Scope, Exact]:
        """Marginals of two tables in one pass over the rows of one, which meet the other's cells in columns.

        What is asked of that one alone comes along.
        """
        schema, rows = self._schema, self._tables[tables[at]].rows
        scopes = list(dict.fromkeys(pair[1 - at] for pair in pairs))
        union = schema.in_order(a for pair in pairs for a in pair[at])
        wider = schema.in_order((*union, *(a for s in within[tables[at]] for a in s)))
        union = wider if schema.cells(wider) <= STACKED_CELLS else union
        cells = [(cell(schema, s), schema.cells(s)) for s in scopes]
        others = cluster_rows.spread(self._tables[tables[1 - at]].rows, self._joined(), cells)
        columns = ["w", *(f"w{i}" for i in range(sum(size for _, size in cells)))]
        found = self._exact_rows(cluster_rows.across(rows, cell(schema, union), others, columns))
        numbers = [exact_integers(found.column(c)) for c in columns]
        exact = np.zeros((schema.cells(union), len(columns)), dtype=np.result_type(*numbers))
        exact[exact_integers(found.column("x"))] = np.stack(numbers, axis=1)
        blocks = split(schema, exact[:, 1:], [[union], scopes])
        blocks[union] = exact[:, 0].reshape(schema.shape(union))
        # All cells together are the join, so nobody has to count it once more.
        size = vars(self).setdefault("exact_size", sum(exact[:, 0].tolist()))
        return {s: fit(e, size) for s, e in blocks.items()}

    def _exact_within_one(self, table: str, scopes: Sequence[Scope]) -> dict[Scope, Exact]:
        """Marginals over attributes of one table: over all of these, if that has few cells."""
        union = self._schema.in_order(a for s in scopes for a in s)
        if self._schema.cells(union) <= STACKED_CELLS:
            return self._exact_stacked([table], [[union]])
        found: dict[Scope, Exact] = {}
        for some in self._pieces(scopes):
            found |= self._exact_stacked([table], [some])
        return found

    def _pieces(self, scopes: Sequence[Scope]) -> list[list[Scope]]:
        """The scopes in lists with few cells: so many pairs of cells there may be for one key."""
        pieces: list[list[Scope]] = [[]]
        for scope in scopes:
            if pieces[-1] and sum(map(self._schema.cells, [*pieces[-1], scope])) > STACKED_CELLS:
                pieces.append([])
            pieces[-1].append(scope)
        return pieces

    def _exact_stacked(self, tables: Sequence[str], parts: Sequence[Sequence[Scope]]) -> dict[Scope, Exact]:
        """Every combination of one scope per table, in one query: scopes of a table lie side by side."""
        factors = self._by_key(t.name for t in self._schema.tables if t.name not in tables)
        for i, (table, scopes) in enumerate(zip(tables, parts, strict=True)):
            starts = np.cumsum([0, *map(self._schema.cells, scopes)]).tolist()
            cells = [cell(self._schema, scope, start) for scope, start in zip(scopes, starts, strict=False)]
            joins = self._columns(joins_of(self._schema, table))
            factors.append(cluster_rows.stacked(self._tables[table].rows, joins, cells, f"x{i}"))
        kept = [f"x{i}" for i in range(len(tables))]
        found = self._exact_rows(f"SELECT * FROM {whole(factors, kept).sql} w")
        shape = [sum(map(self._schema.cells, scopes)) for scopes in parts]
        numbers = exact_integers(found.column("n"))
        exact = np.zeros(shape, dtype=numbers.dtype)
        exact[tuple(exact_integers(found.column(c)) for c in kept)] = numbers
        return {s: fit(e, self.exact_size) for s, e in split(self._schema, exact, parts).items()}

    def exact_products_over_keys(self, group: Products) -> Exact:
        """Product queries of two tables: each part is weighed in one that has its attributes, then key by key."""
        tables, parts = self._schema.tables, of_two_tables(self._schema, group)
        exact: list[int] = []
        for start in range(0, len(group), QUERIES_AT_ONCE):
            sides = []
            for table, (scope, weights) in zip(tables, parts, strict=True):
                some = weights[start : start + QUERIES_AT_ONCE]
                columns = {f"w{i}": row for i, row in enumerate(some)}
                listed = self._uploaded({"x": np.arange(some.shape[1]), **columns})
                rows, joins = self._tables[table.name].rows, self._columns(joins_of(self._schema, table.name))
                sides.append(
                    cluster_rows.combined(
                        rows, joins, cell(self._schema, scope), listed, len(some), largest_weight(some)
                    )
                )
            found = self._exact_rows(cluster_rows.products(sides[0], sides[1], len(some)))
            exact += [int(column[0].as_py() or 0) for column in found.columns]
        return fit(np.array(exact, dtype=object), products_bound(group, self.exact_size))

    # What all of them use

    def _columns(self, attributes: Iterable[str]) -> Scope:
        return join_columns(self._schema, attributes)

    def _by_key(self, names: Iterable[str]) -> list[Relation]:
        return [self._tables[name].by_key for name in names]

    def _exact_number(self, relation: Relation) -> int:
        found = self._exact_rows(f"SELECT n FROM {relation.sql} r").column("n").to_pylist()
        return int(found[0]) if found else 0

    def _exact_rows(self, sql: str) -> Any:
        return self._cluster.exact_query(fetching(self._cluster, sql))

    def _listed_columns(self, attributes: Scope, values: ListedColumns) -> tuple[dict[str, Any], NDArray[np.int64]]:
        columns, at = listed_rows([self._kinds[a] for a in attributes], values)
        return dict(zip(self._columns(attributes), columns, strict=True)), at

    def _uploaded(self, columns: Mapping[str, Any]) -> Relation:
        rows = pa.table(dict(columns))
        made = self._cluster.uploaded(rows)
        return Relation(made.name, tuple(columns), 0, 1, rows.num_rows, (made,))


def _once(home: Callable[[], Tables]) -> Callable[[], Tables]:
    found: list[Tables] = []

    def read() -> Tables:
        if not found:
            found.append(home())
        return found[0]

    return read
