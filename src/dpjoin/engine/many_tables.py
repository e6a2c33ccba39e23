"""Joins of three tables and more: each join attribute is numbered by itself and eliminated when its turn comes.

Each table is `Counts` over the numbers of its join attributes and the codes of the attributes it owns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine import caps as cap
from dpjoin.engine import join_keys as keys
from dpjoin.engine import key_sums as contract
from dpjoin.engine import sumproduct
from dpjoin.engine.interface import ExactDegrees, Fade, Rules, Value
from dpjoin.engine.join_keys import CODE, ID, JoinValues
from dpjoin.engine.key_sums import Exact, Scope
from dpjoin.engine.sumproduct import Counts, Memo, Variable
from dpjoin.spec.schema import DegreeBound, Schema, Table

STACKED_CELLS = 2**12
"""Up to this many cells of a table's scopes, and this many rows, go into one elimination."""
STACKED_ROWS = 2**23
_CELL = "cell"
"""The kind of variable that the cell of a scope is."""


class ManyTables:
    """What the engine computes from the counts of three tables and more."""

    def __init__(self, schema: Schema, exact_counts: Mapping[str, Counts], exact_values: JoinValues) -> None:
        self._schema = schema
        self._exact_counts = exact_counts
        self._exact_values = exact_values
        self._memo = Memo()

    def restricted(self, rules: Mapping[str, Rules]) -> ManyTables:
        """The rows that satisfy the rules. Nothing that was computed from the others goes along."""
        some = {name: self._exact_some(name, some_rules) for name, some_rules in rules.items()}
        return ManyTables(self._schema, {**self._exact_counts, **some}, self._exact_values)

    def capped(self, schema: Schema, caps: Mapping[str, Sequence[DegreeBound]]) -> ManyTables:
        """The rows within the caps, of each table by itself."""
        some = {name: self._exact_within(name, tuple(bounds)) for name, bounds in caps.items()}
        return ManyTables(schema, {**self._exact_counts, **some}, self._exact_values)

    def faded(self, fades: Mapping[str, Fade]) -> ManyTables:
        """Every row as often as its weight says."""
        some = {
            name: cap.faded(self._exact_counts[name], tuple(keys.id_variables(fade.attributes)), fade)
            for name, fade in fades.items()
        }
        return ManyTables(self._schema, {**self._exact_counts, **some}, self._exact_values)

    def _exact_within(self, name: str, bounds: Sequence[DegreeBound]) -> Counts:
        attributes = self._schema.table(name).attributes
        joins = tuple(a for a in self._schema.join_attributes if a in attributes)
        return self._exact_values.capped(self._exact_counts[name], joins, bounds)

    def exact_degrees(self, rules: Mapping[str, Rules], by: Scope, distinct: Scope) -> ExactDegrees:
        some = [self._exact_some(name, some_rules) for name, some_rules in rules.items()]
        return self._exact_values.degrees(some, by, distinct)

    def exact_alone(self, name: str, by: Scope, values: Sequence[Value], keep: Scope) -> Counts:
        return self._exact_values.alone(self._schema, self._exact_counts[name], by, values, keep)

    def _exact_some(self, name: str, rules: Rules) -> Counts:
        """A table's rows that satisfy the rules."""
        raw = self._exact_counts[name]
        return sumproduct.some_rows(raw, self._exact_values.satisfying(raw, rules)) if rules else raw

    @cached_property
    def exact_size(self) -> int:
        (exact,) = sumproduct.eliminate(self._exact_factors(self._schema.tables), (), memo=self._memo)
        return sumproduct.total(exact)

    def _exact_factors(self, tables: Iterable[Table]) -> list[Counts]:
        """The tables' counts over their join attributes."""
        factors = []
        for table in tables:
            raw = self._exact_counts[table.name]
            variables = [v for v in raw.variables if v in _ids(table)]
            found = self._memo.get(raw.tables, variables)
            if found is None:
                found = sumproduct.project(raw, variables)
                self._memo.put(found)
            factors.append(found)
        return factors

    def exact_largest(self, names: frozenset[str]) -> int:
        """T_E: all but the boundary summed out, then the largest count over the boundary."""
        inside = [t for t in self._schema.tables if t.name in names]
        outside = {a for t in self._schema.tables if t.name not in names for a in t.attributes}
        boundary = {(ID, a) for t in inside for a in t.attributes if a in outside}
        return sumproduct.largest_count(self._exact_factors(inside), boundary, memo=self._memo)

    def exact_marginals(self, scopes: Iterable[Scope]) -> dict[Scope, Exact]:
        """Marginals of one table's attributes by weighing its rows, of two tables' many at a time."""
        wanted = list(scopes)
        placed: dict[Scope, list[tuple[Scope, ...]]] = {}
        for scope in wanted:
            if not any(scope != s and set(scope) <= set(s) for s in wanted):
                parts = self._placed(scope)
                placed.setdefault(tuple(parts), []).append(tuple(parts.values()))
        computed: dict[Scope, Exact] = {}
        for tables, found in placed.items():
            if not tables:
                computed[()] = contract.fit(np.array(self.exact_size, dtype=object), self.exact_size)
            elif len(tables) == 1:
                computed |= self._exact_within_one(tables[0], [part for (part,) in found])
            elif len(tables) == 2:
                for lefts, rights in contract.rectangles([(left, right) for left, right in found]):
                    for some in self._pieces(tables[0], lefts):
                        for others in self._pieces(tables[1], rights):
                            computed |= self._exact_stacked(tables, [some, others])
            else:
                for parts_of in found:
                    computed |= self._exact_stacked(tables, [[part] for part in parts_of])
        for scope in sorted(wanted, key=len, reverse=True):
            if scope not in computed:
                wider = [s for s in computed if set(scope) <= set(s)]
                wide = min(wider, key=self._schema.cells)
                computed[scope] = contract.narrowed(wide, scope, computed[wide])
        return {s: computed[s] for s in wanted}

    def _placed(self, scope: Scope) -> dict[str, Scope]:
        """Which table looks at which attributes of the scope, as few tables as it takes."""
        joins = self._schema.join_attributes
        at = {a: self._schema.owner(a) for a in scope if a not in joins}
        for a in scope:
            if a in joins:
                holders = self._schema.tables_with(a)
                at[a] = next((t for t in holders if t in at.values()), holders[0])
        return {
            t.name: tuple(a for a in scope if at[a] == t.name) for t in self._schema.tables if t.name in at.values()
        }

    def _pieces(self, table: str, scopes: list[Scope]) -> list[list[Scope]]:
        """The scopes in lists that are short enough for memory."""
        pieces: list[list[Scope]] = [[]]
        for scope in scopes:
            grown = [*pieces[-1], scope]
            wide = sum(map(self._schema.cells, grown)) > STACKED_CELLS
            if pieces[-1] and (wide or len(grown) * self._exact_counts[table].rows > STACKED_ROWS):
                pieces.append([scope])
            else:
                pieces[-1] = grown
        return pieces

    def _exact_cell(self, table: str, scope: Scope) -> NDArray[Any]:
        """The cell of the scope that each row of a table lies in; a join attribute's code goes by its number."""
        raw, cells = self._exact_counts[table], self._schema.cells(scope)
        index = np.zeros(raw.rows, dtype=np.min_scalar_type(cells) if cells < 2**31 else "i8")
        for a in scope:
            if (CODE, a) in raw.variables:
                (code,) = raw.ids([(CODE, a)])
            else:
                owner = self._exact_counts[self._schema.owner(a)]
                at, codes = owner.ids([(ID, a), (CODE, a)])
                by_id = np.zeros(owner.sizes_of([(ID, a)])[0], dtype=index.dtype)
                by_id[at] = codes
                code = by_id[raw.ids([(ID, a)])[0]]  # numbers that the owner lacks join nothing
            index = (index * self._schema.attribute(a).size + code).astype(index.dtype, copy=False)
        return index

    def _exact_with_cells(self, table: str, scopes: Sequence[Scope]) -> Counts:
        """A table's join attributes and, per scope, the cell of each row."""
        raw = self._exact_counts[table]
        ids = [v for v in raw.variables if v in _ids(self._schema.table(table))]
        return Counts(
            (*ids, *((_CELL, s) for s in scopes)),
            (*raw.sizes_of(ids), *map(self._schema.cells, scopes)),
            (*raw.ids(ids), *(self._exact_cell(table, s) for s in scopes)),
            raw.exact_count,
            raw.rows,
            raw.tables,
        )

    def _exact_within_one(self, table: str, scopes: Sequence[Scope]) -> dict[Scope, Exact]:
        """Each row of the table counts as often as the other tables join it."""
        keep = _ids(self._schema.table(table))
        (present,) = self._exact_factors([self._schema.table(table)])
        factors = self._exact_factors(t for t in self._schema.tables if t.name != table)
        weights = sumproduct.eliminate([sumproduct.presence(present), *factors], keep, memo=self._memo)
        counts = self._exact_with_cells(table, scopes)
        for weight in weights:
            counts = sumproduct.multiply(counts, weight, counts.variables)
        found = {}
        for scope in scopes:
            exact = sumproduct.dense(counts, [(_CELL, scope)], bound=self.exact_size)
            found[scope] = exact.reshape(self._schema.shape(scope))
        return found

    def _exact_stacked(self, tables: Sequence[str], parts: Sequence[list[Scope]]) -> dict[Scope, Exact]:
        """Every combination of one scope per table, in one elimination: scopes of a table lie side by side."""
        factors = self._exact_factors(t for t in self._schema.tables if t.name not in tables)
        kept: list[Variable] = []
        for table, scopes in zip(tables, parts, strict=True):
            stacked = (_CELL, tuple(scopes))
            keep = _ids(self._schema.table(table))
            blocks = []
            for scope in scopes:
                counts = self._exact_with_cells(table, [scope])
                wanted = [v for v in counts.variables if v in keep or v == (_CELL, scope)]
                blocks.append(sumproduct.project(counts, wanted))
            factors.append(sumproduct.stack(blocks, stacked))
            kept.append(stacked)
        whole, *rest = sumproduct.eliminate(factors, kept, memo=self._memo)
        for factor in rest:
            whole = sumproduct.multiply(whole, factor, kept)
        exact = sumproduct.dense(whole, kept, bound=self.exact_size)
        found = {}
        offsets = [np.cumsum([0, *map(self._schema.cells, scopes)]) for scopes in parts]
        for at in itertools.product(*(range(len(scopes)) for scopes in parts)):
            block = exact[tuple(slice(o[i], o[i + 1]) for o, i in zip(offsets, at, strict=True))]
            names = tuple(a for scopes, i in zip(parts, at, strict=True) for a in scopes[i])
            scope = self._schema.in_order(names)
            found[scope] = block.reshape(self._schema.shape(names)).transpose([names.index(a) for a in scope])
        return found


def _ids(table: Table) -> set[Variable]:
    return {(ID, a) for a in table.attributes}
