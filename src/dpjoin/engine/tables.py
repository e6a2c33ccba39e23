"""What an engine computes from the rows of its tables: every answer is a sum of products over their keys.

A *key* are the join attributes that the same tables share: one variable, so that two tables have one key, and more
tables as many as their join has edges. Each table is `Counts` over the numbers of its keys and the codes of the
attributes it owns; where those come from does not matter here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine import matrix_product, sumproduct
from dpjoin.engine.answers import products_bound
from dpjoin.engine.checks import joins_of
from dpjoin.engine.integers import FLOAT_LIMIT, Exact, count_by, fit, times
from dpjoin.engine.interface import Clip, ExactDegrees, RowWeights, Rules, Scope
from dpjoin.engine.join_keys import CODE, KEY, JoinValues
from dpjoin.engine.matrix_product import CountMatrix
from dpjoin.engine.scopes import by_tables, exact_each, of_two_tables, rectangles, split
from dpjoin.engine.sumproduct import Counts, Memo, Variable
from dpjoin.spec.schema import DegreeBound, Schema
from dpjoin.spec.workload import Products

STACKED_CELLS = 2**12
"""Up to this many cells of a table's scopes, and this many rows, go into one elimination."""
STACKED_ROWS = 2**23
_CELL = "cell"
"""The kind of variable that the cell of a scope is."""


def keys_of(schema: Schema, table: str | None = None) -> list[Scope]:
    """The keys of the join, or of one of its tables: join attributes that the same tables share."""
    found: dict[Scope, list[str]] = {}
    for a in schema.compared_attributes if table is None else joins_of(schema, table):
        found.setdefault(schema.tables_with(a), []).append(a)
    return list(map(tuple, found.values()))


class TableCounts:
    """The counts of one table, and their sums by key; each is computed when it is needed first."""

    def __init__(self, rows: Callable[[], Counts], by_key: Callable[[], Counts] | None = None) -> None:
        # Not cached properties, which are one after the other for all threads in Python 3.11.
        self.exact_rows, self.exact_by_key = cache(rows), cache(by_key or self._projected)

    @classmethod
    def of(cls, counts: Counts) -> TableCounts:
        return cls(lambda: counts)

    def _projected(self) -> Counts:
        rows = self.exact_rows()
        return sumproduct.project(rows, [v for v in rows.variables if v[0] == KEY])


class Tables:
    """The tables of one instance. Restrictions, caps and weights make another instance; the keys' numbers stay."""

    def __init__(self, schema: Schema, exact_counts: Mapping[str, TableCounts], exact_values: JoinValues) -> None:
        self._schema = schema
        self._exact_counts = exact_counts
        self._exact_values = exact_values
        self._memo = Memo()

    def restricted(self, rules: Mapping[str, Rules]) -> Tables:
        """The rows that satisfy the rules, which look at keys only."""

        def satisfying(whole: TableCounts, some: Rules) -> TableCounts:
            def of(counts: Counts) -> Counts:
                return self._exact_values.satisfying(counts, some)

            return TableCounts(lambda: of(whole.exact_rows()), lambda: of(whole.exact_by_key()))

        return self._with(
            self._schema, {n: satisfying(self._exact_counts[n], some) for n, some in rules.items() if some}
        )

    def capped(self, schema: Schema, caps: Mapping[str, Sequence[DegreeBound]]) -> Tables:
        """The rows within the caps, of each table by itself."""

        def within(name: str, bounds: Sequence[DegreeBound]) -> TableCounts:
            joins, limit = joins_of(schema, name), min(b.limit for b in bounds)
            return self._changed(
                name,
                [b.attributes for b in bounds],
                lambda rows: self._exact_values.capped(rows, joins, bounds),
                lambda degree: np.minimum(degree, limit),
            )

        return self._with(schema, {name: within(name, tuple(bounds)) for name, bounds in caps.items() if bounds})

    def weighted(self, weightings: Mapping[str, RowWeights]) -> Tables:
        """Every row as often as its weight says."""

        def weighed(name: str, weighting: RowWeights) -> TableCounts:
            return self._changed(
                name,
                [weighting.attributes],
                lambda rows: self._exact_values.weighted(rows, weighting),
                lambda degree: degree * weighting.of(degree),
            )

        return self._with(self._schema, {name: weighed(name, weighting) for name, weighting in weightings.items()})

    def clipped(self, name: str, clip: Clip) -> Tables:
        """Every row of a table as often as its owner's weight says, and so every join result of the owner."""

        def weighed(counts: Counts) -> Counts:
            return self._exact_values.clipped(counts, self._exact_owners(clip.owner), clip)

        whole = self._exact_counts[name]
        clipped = TableCounts(lambda: weighed(whole.exact_rows()), lambda: weighed(whole.exact_by_key()))
        return self._with(self._schema, {name: clipped})

    def exact_results(self, by: Scope) -> ExactDegrees:
        return self._exact_values.degrees([self._exact_owners(by)], by, ())

    def _exact_owners(self, by: Scope) -> Counts:
        """How many join results there are for each combination of the keys that hold some attributes."""
        kept: list[Variable] = [(KEY, key) for key in keys_of(self._schema) if set(key) & set(by)]
        whole, *rest = sumproduct.eliminate(self._exact_factors(self._others([])), kept, memo=self._memo)
        for factor in rest:
            whole = sumproduct.multiply(whole, factor, kept)
        return whole

    def _with(self, schema: Schema, some: Mapping[str, TableCounts]) -> Tables:
        return Tables(schema, {**self._exact_counts, **some}, self._exact_values)

    def _changed(
        self, name: str, by: Iterable[Scope], of_rows: Callable[[Counts], Counts], of_degrees: Callable[[Exact], Exact]
    ) -> TableCounts:
        """A table of which some rows go or count less, by the degrees of their values of some attributes.

        Where these are all of its join attributes, it is enough for many answers to know what is left of the degrees.
        """
        whole, joins = self._exact_counts[name], set(joins_of(self._schema, name))

        def by_key() -> Counts:
            degrees = whole.exact_by_key()
            return sumproduct.counted(degrees, of_degrees(degrees.exact_counts))

        by_degree = all(set(attributes) == joins for attributes in by)
        return TableCounts(lambda: of_rows(whole.exact_rows()), by_key if by_degree else None)

    def exact_degrees(self, rules: Mapping[str, Rules], by: Scope, distinct: Scope) -> ExactDegrees:
        some = [
            self._exact_values.satisfying(c, rules[n]) for n, c in zip(rules, self._exact_factors(rules), strict=True)
        ]
        return self._exact_values.degrees(some, by, distinct)

    def exact_one_table(self, name: str, by: Scope, values: Sequence[Any], keep: Scope) -> Counts:
        return self._exact_values.one_table(self._schema, self._exact_rows(name), by, values, keep)

    def _exact_rows(self, name: str) -> Counts:
        return self._exact_counts[name].exact_rows()

    def _exact_factors(self, names: Iterable[str]) -> list[Counts]:
        """The tables' counts by key."""
        return [self._exact_counts[name].exact_by_key() for name in names]

    def _others(self, names: Iterable[str]) -> list[str]:
        return [t.name for t in self._schema.tables if t.name not in names]

    @property
    def exact_size(self) -> int:
        (exact,) = sumproduct.eliminate(self._exact_factors(self._others([])), (), memo=self._memo)
        return sumproduct.total(exact)

    def exact_largest(self, names: frozenset[str]) -> int:
        """T_E: all but the boundary summed out, then the largest count over the boundary."""
        others = self._others(names)
        boundary = {(KEY, key) for name in others for key in keys_of(self._schema, name)}
        return sumproduct.largest_count(self._exact_factors(self._others(others)), boundary, memo=self._memo)

    # Marginals

    def exact_marginals(self, scopes: Iterable[Scope]) -> dict[Scope, Exact]:
        """The marginals of the join over the scopes, each with one axis per attribute.

        Of one table's attributes by weighing its rows, of two tables' many at a time.
        """
        wanted = list(scopes)
        maximal = by_tables(self._schema, wanted)
        computed = self._exact_within_one(
            {tables[0]: [part for (part,) in found] for tables, found in maximal.items() if len(tables) == 1}
        )
        for tables, found in maximal.items():
            if not tables:
                computed[()] = fit(np.array(self.exact_size, dtype=object), self.exact_size)
            elif len(tables) == 2:
                for lefts, rights in rectangles([(left, right) for left, right in found]):
                    computed |= self._exact_across(tables, lefts, rights)
            elif len(tables) > 2:
                for parts_of in found:
                    computed |= self._exact_stacked(tables, [[part] for part in parts_of])
        return exact_each(self._schema, wanted, computed)

    def _exact_cell(self, table: str, scope: Scope) -> NDArray[Any]:
        """The cell of the scope that each row of a table lies in."""
        if len(scope) == 1:
            return self._exact_codes(table, scope[0])
        # A narrow type is quicker to compute with; every cell number fits into it.
        cells = self._schema.cells(scope)
        index = np.zeros(self._exact_rows(table).rows, dtype=np.min_scalar_type(cells) if cells < 2**31 else "i8")
        for i, a in enumerate(scope):
            if i:
                index *= self._schema.attribute(a).size
            index += self._exact_codes(table, a).astype(index.dtype, copy=False)
        return index

    def _exact_codes(self, table: str, attribute: str) -> NDArray[Any]:
        """An attribute's code for each row of a table; of a join attribute that another table owns, by its key."""
        rows, code = self._exact_rows(table), (CODE, attribute)
        if code in rows.variables:
            return rows.ids([code])[0]
        owner = self._exact_rows(self._schema.owner(attribute))
        (key,) = ((KEY, k) for k in keys_of(self._schema) if attribute in k)
        at, codes = owner.ids([key, code])
        by_key = np.zeros(owner.sizes_of([key])[0], dtype=codes.dtype)
        by_key[at] = codes
        found: NDArray[Any] = by_key[rows.ids([key])[0]]  # keys that the owner lacks join nothing
        return found

    def _exact_weighed(self, table: str, factors: Sequence[Counts], kind: type = np.int64) -> Exact | None:
        """How often each row of the table counts when the factors join it, as numbers of a kind; None for once."""
        rows, weight = self._exact_rows(table), self._exact_rows(table).exact_count
        if factors:
            (present,) = self._exact_factors([table])
            some = [sumproduct.presence(present), *factors]
            for found in sumproduct.eliminate(some, present.variables, memo=self._memo):
                exact = found.exact_counts
                found = replace(found, exact_count=exact if exact.dtype == object else exact.astype(kind, copy=False))
                of_row = sumproduct.row_weights(rows, found)
                weight = of_row if weight is None else times(weight, of_row)
        return weight

    def _exact_within_one(self, scopes: Mapping[str, Sequence[Scope]]) -> dict[Scope, Exact]:
        """Marginals over attributes of one table, for some tables: their rows weighed by all the others."""
        kind = np.float64 if self.exact_size < FLOAT_LIMIT else np.int64
        others = {name: self._exact_factors(self._others([name])) for name in scopes}
        weights = {name: self._exact_weighed(name, factors, kind) for name, factors in others.items()}
        with ThreadPoolExecutor(2) as threads:
            found = threads.map(lambda name: self._exact_sums(name, scopes[name], weights[name]), scopes)
            return {scope: exact for some in found for scope, exact in some.items()}

    def _exact_sums(self, table: str, scopes: Sequence[Scope], weight: Exact | None) -> dict[Scope, Exact]:
        """Marginals over attributes of one table from the weights of its rows."""
        union = self._schema.in_order(a for s in scopes for a in s)
        few = self._schema.cells(union) <= max(2**12, min(2**20, self._exact_rows(table).rows))
        computed: dict[Scope, Exact] = {}
        for scope in [union] if few else scopes:
            cells = self._schema.cells(scope)
            exact = count_by(self._exact_cell(table, scope), weight, cells, bound=self.exact_size)
            computed[scope] = exact.reshape(self._schema.shape(scope))
        return exact_each(self._schema, scopes, computed)

    def _exact_across(self, tables: Sequence[str], lefts: list[Scope], rights: list[Scope]) -> dict[Scope, Exact]:
        """Every pair of a left and a right scope, of two tables."""
        matrices = self._exact_matrices(tables, [lefts, rights])
        if matrices is not None:
            left, right, keys = matrices
            exact = matrix_product.product(left, right, keys, join_size=self.exact_size)
            return split(self._schema, exact, [lefts, rights])
        found: dict[Scope, Exact] = {}
        for some, others in itertools.product(self._pieces(tables[0], lefts), self._pieces(tables[1], rights)):
            found |= self._exact_stacked(tables, [some, others])
        return found

    def _exact_matrices(
        self, tables: Sequence[str], parts: Sequence[Sequence[Scope]]
    ) -> tuple[CountMatrix, CountMatrix, int] | None:
        """Two tables as matrices over the keys that they share, a block of columns per scope.

        All other tables go into the weights of the two tables' rows. That needs that no part of the join holds on to
        both by keys that the two do not share, and counts within int64; None otherwise.
        """
        rows = [self._exact_rows(name) for name in tables]
        held = [set(f.variables) for f in self._exact_factors(tables)]
        factors: list[list[Counts]] = [[], []]
        for part in sumproduct.connected(self._exact_factors(self._others(tables)), held[0] | held[1]):
            boundary = {v for f in part for v in f.variables} & (held[0] | held[1])
            host = next((i for i in (0, 1) if boundary <= held[i]), None)
            if host is None:
                return None
            factors[host] += part
        counts = [self._exact_weighed(name, some) for name, some in zip(tables, factors, strict=True)]
        if any(c is not None and c.dtype == object for c in counts):
            return None
        keys, size = sumproduct.numbered(rows, [v for v in rows[0].variables if v in held[0] & held[1]])
        left, right = (
            CountMatrix(
                key, count, tuple(self._exact_cell(name, s) for s in scopes), tuple(map(self._schema.cells, scopes))
            )
            for name, key, count, scopes in zip(tables, keys, counts, parts, strict=True)
        )
        return left, right, size

    def _pieces(self, table: str, scopes: list[Scope]) -> list[list[Scope]]:
        """The scopes in lists that are short enough for memory."""
        pieces: list[list[Scope]] = [[]]
        for scope in scopes:
            grown = [*pieces[-1], scope]
            wide = sum(map(self._schema.cells, grown)) > STACKED_CELLS
            if pieces[-1] and (wide or len(grown) * self._exact_rows(table).rows > STACKED_ROWS):
                pieces.append([scope])
            else:
                pieces[-1] = grown
        return pieces

    def _exact_stacked(self, tables: Sequence[str], parts: Sequence[list[Scope]]) -> dict[Scope, Exact]:
        """Every combination of one scope per table, in one elimination: scopes of a table lie side by side."""
        factors = self._exact_factors(self._others(tables))
        kept: list[Variable] = []
        for table, scopes in zip(tables, parts, strict=True):
            rows, (by_key,) = self._exact_rows(table), self._exact_factors([table])
            blocks = []
            for scope in scopes:
                counts = Counts(
                    (*by_key.variables, (_CELL, scope)),
                    (*by_key.sizes, self._schema.cells(scope)),
                    (*rows.ids(by_key.variables), self._exact_cell(table, scope)),
                    rows.exact_count,
                    rows.rows,
                    rows.tables,
                )
                blocks.append(sumproduct.project(counts, counts.variables))
            kept.append((_CELL, tuple(scopes)))
            factors.append(sumproduct.stack(blocks, kept[-1]))
        whole, *rest = sumproduct.eliminate(factors, kept, memo=self._memo)
        for factor in rest:
            whole = sumproduct.multiply(whole, factor, kept)
        return split(self._schema, sumproduct.dense(whole, kept, bound=self.exact_size), parts)

    def exact_products_over_keys(self, group: Products) -> Exact:
        """Product queries of two tables: each part is weighed in one that has its attributes, then key by key."""
        tables, parts = self._schema.tables, of_two_tables(self._schema, group)
        matrices = self._exact_matrices([t.name for t in tables], [[scope] for scope, _ in parts])
        assert matrices is not None, "two tables have no others, and their counts are int64"
        left, right, keys = matrices
        bound = products_bound(group, self.exact_size)
        return matrix_product.products_over_keys(left, parts[0][1], right, parts[1][1], keys, bound=bound)
