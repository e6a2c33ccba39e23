"""The default engine: DuckDB reads and groups the tables, numpy contracts them; the join never exists.

Each table is read once, as rows (key, codes of the touched attributes, count). Keys of two tables are
numbered alike, and everything the engine is asked is a sum over keys of products of counts. From three
tables on each join attribute is numbered by itself, and `sumproduct` eliminates one after the other.
"""

from __future__ import annotations

import itertools
import math
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpjoin.engine import contract, encode, sumproduct
from dpjoin.engine.contract import Block, Exact, Rows
from dpjoin.engine.sources import OpenedTable, check_columns, connect, disconnect, open_source, same_source, unreadable
from dpjoin.engine.sumproduct import Counts, Memo, Variable
from dpjoin.errors import SourceError, SpecError, suggest
from dpjoin.schema import Schema, Table
from dpjoin.workload import Group, IntArray, Products

Scope = tuple[str, ...]

UNGROUPED_ROWS = 4_000_000
"""Up to this many rows it is faster to fetch them as they are than to group them in DuckDB first."""
MARGINAL_CELLS = 2**24
"""Product queries go through the marginal over their scope up to this many cells, else key by key."""
MOST_TABLES = 8
STACKED_CELLS = 2**12
"""Up to this many cells of a table's scopes, and this many rows, go into one elimination."""
STACKED_ROWS = 2**23
_WORD_BITS = 62
_ID, _CODE, _CELL = "id", "code", "cell"
"""Kinds of variables: a join attribute's number, a touched attribute's code, the cell of a scope."""


@dataclass(frozen=True)
class _Side:
    """One table, read: its rows, the codes of the attributes it owns, and its degrees."""

    rows: Rows
    exact_codes: dict[str, NDArray[Any]]
    exact_degree: Exact


class DuckEngine:
    """Exact aggregates of the natural join of one to eight tables, over any source that `open_source` knows.

    `tables` maps each table to its source: a path, a (path, table) pair or a Python object. `attributes`
    are those that queries touch; the engine answers about no others.
    """

    def __init__(self, schema: Schema, tables: Mapping[str, object], *, attributes: Sequence[str]) -> None:
        self._schema = schema
        self._touched = _touched(schema, attributes)
        sources = _sources(schema, tables)
        # One connection per table, so that tables can be read side by side.
        self._connections = {t.name: connect() for t in schema.tables}
        self._close = weakref.finalize(self, _discard, list(self._connections.values()))
        try:
            self._opened = {
                t.name: open_source(
                    self._connections[t.name],
                    t.name,
                    sources[t.name],
                    table=t.source_table,
                    columns=[t.column(a) for a in t.attributes],
                )
                for t in schema.tables
            }
            check_columns(schema, self._opened)
        except BaseException:
            self._close()
            raise

    @property
    def schema(self) -> Schema:
        return self._schema

    def exact_join_size(self) -> int:
        return self._exact_size

    def exact_boundary(self, tables: frozenset[str]) -> int:
        for name in tables:
            self._schema.table(name)
        if not tables:
            return 1
        if len(tables) == len(self._schema.tables):
            return self._exact_size
        if self._many:
            return self._exact_largest(tables)
        (side,) = (s for t, s in zip(self._schema.tables, self._exact_sides, strict=True) if t.name in tables)
        return int(side.exact_degree.max(initial=0))

    def exact_answers(self, groups: Sequence[Group]) -> list[NDArray[Any]]:
        for group in groups:
            for a in group.scope:
                if a not in self._touched:
                    raise SpecError(
                        f"group {group.name!r} asks about {a!r}, which the engine did not read; "
                        f"{suggest(a, self._touched)}"
                    )
            if self._many and isinstance(group, Products) and group.cells > MARGINAL_CELLS:
                raise SpecError(
                    f"products {group.name!r} look at {group.cells} cells of {len(self._schema.tables)} tables; from "
                    f"three tables on {MARGINAL_CELLS} cells are the most, so let them look at fewer attributes"
                )
        through_keys = [self._goes_through_keys(g) for g in groups]
        scopes = {self._schema.in_order(g.scope) for g, apart in zip(groups, through_keys, strict=True) if not apart}
        exact_marginals = self._exact_marginals(scopes)
        answers = []
        for group, apart in zip(groups, through_keys, strict=True):
            if isinstance(group, Products):
                if apart:
                    answers.append(self._exact_products_over_keys(group))
                    continue
                ordered = self._schema.in_order(group.scope)
                exact_marginal = exact_marginals[ordered].transpose([ordered.index(a) for a in group.scope])
                answers.append(contract.apply_products(group, exact_marginal, join_size=self._exact_size))
            else:
                exact_marginal = exact_marginals[group.scope]
                answers.append(contract.apply_kronecker(group, exact_marginal, join_size=self._exact_size))
        return answers

    # Reading

    @cached_property
    def _exact_sides(self) -> tuple[_Side, ...]:
        """Read every table; the connection is closed afterwards, nothing else needs it."""
        joins = self._schema.join_attributes
        if len(self._schema.tables) == 2:
            first, second = self._schema.tables
            tables = list(
                contract.at_once(lambda: self._exact_table(first, joins), lambda: self._exact_table(second, joins))
            )
        else:
            tables = [self._exact_table(t, joins) for t in self._schema.tables]
        self._close()
        exact_keys, keys = number_keys([[t.column(f"k{i}") for i in range(len(joins))] for t in tables])
        sides = []
        for table, data, exact_key in zip(self._schema.tables, tables, exact_keys, strict=True):
            owned = self._owned(table)
            key = np.zeros(data.num_rows, dtype=np.int64) if exact_key is None else exact_key
            count = data.column("n").to_numpy() if "n" in data.column_names else None
            codes = _unpacked(self._schema, owned, data)
            rows, codes = _condensed(self._schema, Rows(key, count), codes, keys)
            sides.append(_Side(rows, codes, contract.degrees(rows, keys)))
        return tuple(sides)

    @cached_property
    def _exact_size(self) -> int:
        if self._many:
            return self._exact_count_of(self._schema.tables)
        first, *rest = self._exact_sides
        if not rest:
            return contract.total_count(first.rows)
        return contract.dot(first.exact_degree, rest[0].exact_degree)

    def _owned(self, table: Table) -> Scope:
        return tuple(a for a in self._touched if self._schema.owner(a) == table.name)

    def _exact_table(self, table: Table, joins: Sequence[str]) -> Any:
        opened = self._opened[table.name]
        connection = self._connections[table.name]
        with unreadable(table.name, opened.origin, "complete"):
            exact_rows = None
            if opened.countable:
                ((exact_rows,),) = connection.execute(f"SELECT count(*) FROM {opened.view}").fetchall()
            grouped = exact_rows is None or exact_rows > UNGROUPED_ROWS
            data = connection.sql(self._sql(table, joins, grouped=grouped)).to_arrow_table()
            # A code that is NULL marks a row that the public rule drops.
            return data.drop_null() if any(c.null_count for c in data.columns) else data

    def _sql(self, table: Table, joins: Sequence[str], *, grouped: bool) -> str:
        """The one scan of a table: key columns, codes, and a count when grouped."""
        opened = self._opened[table.name]
        owned = self._owned(table)
        outputs, conditions = [], []
        for i, name in enumerate(joins):
            value = encode.join_value(self._schema.attribute(name), self._columns(name), _column(opened, table, name))
            outputs.append(f"{value} AS k{i}")
            conditions.append(f"{value} IS NOT NULL")
        codes = []
        for name in table.attributes:
            attribute, column = self._schema.attribute(name), _column(opened, table, name)
            if attribute.key:
                continue
            bare = encode.bare_code(attribute, column)
            if name not in owned or bare is not None:
                condition = encode.kept(attribute, column)
                conditions += [condition] if condition is not None else []
            if name in owned:
                codes.append((name, encode.code(attribute, column) if bare is None else bare))
        ordered = dict(codes)
        if grouped:
            for i, word in enumerate(_words(self._schema, owned)):
                packed = " + ".join(f"CAST({ordered[a]} AS BIGINT) * {1 << shift}" for a, shift in word)
                outputs.append(f"{packed} AS w{i}")
            outputs.append("count(*) AS n")
        else:
            for i, name in enumerate(owned):
                outputs.append(f"TRY_CAST({ordered[name]} AS {_small(self._schema.attribute(name).size)}) AS c{i}")
        if not outputs:
            outputs.append("CAST(0 AS UTINYINT) AS nothing")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        group_by = " GROUP BY ALL" if grouped else ""
        return f"SELECT {', '.join(outputs)} FROM {self._within_bounds(table, joins)}{where}{group_by}"

    def _within_bounds(self, table: Table, joins: Sequence[str]) -> str:
        """The table's rows whose rank in each group of a declared degree bound is within the limit.

        Ranks go by a hash of the row, then by its text, and are taken on the rows that the public rule keeps,
        before any join. Where the bounds hold, no row goes.
        """
        opened = self._opened[table.name]
        if not table.bounds:
            return opened.view
        values, conditions = {}, []
        for name in table.attributes:
            attribute, column = self._schema.attribute(name), _column(opened, table, name)
            values[name] = encode.identifier(column.name)
            if name in joins:
                values[name] = encode.join_value(attribute, self._columns(name), column)
                conditions.append(f"{values[name]} IS NOT NULL")
            condition = None if attribute.key else encode.kept(attribute, column)
            conditions += [condition] if condition is not None else []
        words = ", '|', ".join(f"coalesce(CAST({v} AS VARCHAR), '')" for v in values.values())
        text = f"concat('dpjoin|', {words})"
        ranks = []
        for bound in table.bounds:
            group = ", ".join(values[a] for a in bound.attributes)
            ranks.append(f"row_number() OVER (PARTITION BY {group} ORDER BY md5({text}), {text}) <= {bound.limit}")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"(SELECT * FROM {opened.view}{where} QUALIFY {' AND '.join(ranks)})"

    def _columns(self, attribute: str) -> list[encode.Column]:
        holders = [self._schema.table(t) for t in self._schema.tables_with(attribute)]
        return [_column(self._opened[t.name], t, attribute) for t in holders]

    # Contracting

    def _exact_codes(self, side: int, attribute: str) -> NDArray[Any]:
        """An attribute's code for each row of a side; join attributes of the other table go by key."""
        here = self._exact_sides[side]
        if attribute in here.exact_codes:
            return here.exact_codes[attribute]
        owner = self._exact_sides[1 - side]
        by_key = np.zeros(len(owner.exact_degree), dtype=owner.exact_codes[attribute].dtype)
        by_key[owner.rows.exact_key] = owner.exact_codes[attribute]
        return by_key[here.rows.exact_key]  # keys that the owner lacks join nothing

    def _exact_index(self, side: int, scope: Scope) -> NDArray[Any]:
        """The cell of the scope that each row of a side lies in."""
        if len(scope) == 1:
            return self._exact_codes(side, scope[0])
        # A narrow type is quicker to compute with; every cell number fits into it.
        cells = self._schema.cells(scope)
        index = np.zeros(len(self._exact_sides[side].rows), dtype=np.min_scalar_type(cells) if cells < 2**31 else "i8")
        for i, name in enumerate(scope):
            if i:
                index *= self._schema.attribute(name).size
            index += self._exact_codes(side, name)
        return index

    def _exact_marginals(self, scopes: Iterable[Scope]) -> dict[Scope, Exact]:
        """The marginals of the join over the scopes, each with one axis per attribute."""
        within: list[list[Scope]] = [[], []]
        across: list[tuple[Scope, Scope]] = []
        joins, tables = self._schema.join_attributes, self._schema.tables
        if self._many:
            return self._exact_marginals_of_many(scopes)
        for scope in scopes:
            right = tuple(a for a in scope if a not in tables[0].attributes)
            left = tuple(a for a in scope if a not in right)
            if right and any(a not in joins for a in left):
                across.append((left, right))
            else:
                within[1 if right else 0].append(scope)
        _ = self._exact_size  # read the tables before two threads ask for them
        first, second = contract.at_once(
            lambda: self._exact_within(0, within[0]) if within[0] else {},
            lambda: self._exact_within(1, within[1]) if within[1] else {},
        )
        return first | second | self._exact_across(across)

    def _exact_within(self, side: int, scopes: list[Scope]) -> dict[Scope, Exact]:
        """Marginals over attributes of one table: rows weighted by their key's degree in the other."""
        here = self._exact_sides[side]
        weight = self._exact_sides[1 - side].exact_degree if len(self._exact_sides) == 2 else None
        union = self._schema.in_order(a for s in scopes for a in s)
        computed: dict[Scope, Exact] = {}
        if self._schema.cells(union) <= max(2**12, min(2**20, len(here.rows))):
            scopes_first = [union, *scopes]
        else:
            scopes_first = sorted(scopes, key=self._schema.cells, reverse=True)
        for scope in scopes_first:
            wider = [s for s in computed if set(scope) <= set(s)]
            if wider:
                computed[scope] = self._narrowed(min(wider, key=self._schema.cells), scope, computed)
                continue
            exact = contract.weighted(
                here.rows,
                self._exact_index(side, scope),
                self._schema.cells(scope),
                weight,
                join_size=self._exact_size,
            )
            computed[scope] = exact.reshape(self._schema.shape(scope))
        return {s: computed[s] for s in scopes}

    def _narrowed(self, wide: Scope, scope: Scope, known: Mapping[Scope, Exact]) -> Exact:
        """A marginal summed from a wider one."""
        exact = known[wide].sum(axis=tuple(i for i, a in enumerate(wide) if a not in scope))
        return np.asarray(exact)

    def _exact_across(self, pairs: Sequence[tuple[Scope, Scope]]) -> dict[Scope, Exact]:
        """Marginals over attributes of both tables, as few matrix products as it takes."""
        maximal = [
            p for p in pairs if not any(p != q and set(p[0]) <= set(q[0]) and set(p[1]) <= set(q[1]) for q in pairs)
        ]
        computed: dict[Scope, Exact] = {}
        for lefts, rights in _batches(maximal):
            computed |= self._exact_batch(lefts, rights)
        found = {}
        for left, right in pairs:
            scope = self._schema.in_order((*left, *right))
            if scope in computed:
                found[scope] = computed[scope]
                continue
            wider = [s for s in computed if set(scope) <= set(s)]
            found[scope] = self._narrowed(min(wider, key=self._schema.cells), scope, computed)
        return found

    def _exact_batch(self, lefts: Sequence[Scope], rights: Sequence[Scope]) -> dict[Scope, Exact]:
        first, second = self._exact_sides
        cells = self._schema.cells
        exact = contract.cross(
            first.rows,
            [Block(self._exact_index(0, s), cells(s)) for s in lefts],
            second.rows,
            [Block(self._exact_index(1, s), cells(s)) for s in rights],
            len(first.exact_degree),
            join_size=self._exact_size,
        )
        found, top = {}, 0
        for left in lefts:
            start = 0
            for right in rights:
                part = exact[top : top + cells(left), start : start + cells(right)]
                names = (*left, *right)
                scope = self._schema.in_order(names)
                shaped = part.reshape(self._schema.shape(names))
                found[scope] = shaped.transpose([names.index(a) for a in scope])
                start += cells(right)
            top += cells(left)
        return found

    def _goes_through_keys(self, group: Group) -> bool:
        return isinstance(group, Products) and len(self._schema.tables) == 2 and group.cells > MARGINAL_CELLS

    def _exact_products_over_keys(self, group: Products) -> Exact:
        """Each part is weighed in a table that has all its attributes, then multiplied key by key."""
        parts = list(group.parts)
        if len(parts) == 1:
            parts.append(((), np.ones((len(group), 1), dtype=np.int64)))
        inside = [set(t.attributes) for t in self._schema.tables]
        if not (set(parts[0][0]) <= inside[0] and set(parts[1][0]) <= inside[1]):
            parts.reverse()
        blocks = [Block(self._exact_index(i, parts[i][0]), parts[i][1].shape[1]) for i in (0, 1)]
        first, second = self._exact_sides
        return contract.products_over_keys(
            first.rows,
            blocks[0],
            parts[0][1],
            second.rows,
            blocks[1],
            parts[1][1],
            len(first.exact_degree),
            join_size=self._exact_size,
        )

    # Three tables and more

    @property
    def _many(self) -> bool:
        return len(self._schema.tables) > 2

    @cached_property
    def _memo(self) -> Memo:
        return Memo()

    @cached_property
    def _exact_counts(self) -> dict[str, Counts]:
        """Read every table as counts of its join attributes' numbers and its own attributes' codes."""
        tables = self._schema.tables
        joins = {t.name: [a for a in self._schema.join_attributes if a in t.attributes] for t in tables}
        with ThreadPoolExecutor(2) as readers:
            read = list(readers.map(lambda t: self._exact_table(t, joins[t.name]), tables))
        self._close()
        data = {t.name: d for t, d in zip(tables, read, strict=True)}
        ids: dict[tuple[str, str], NDArray[Any]] = {}
        sizes: dict[str, int] = {}
        for a in self._schema.join_attributes:
            holders = self._schema.tables_with(a)
            numbers, sizes[a] = number_keys([[data[t].column(f"k{joins[t].index(a)}")] for t in holders])
            ids |= {(t, a): n for t, n in zip(holders, numbers, strict=True) if n is not None}
        found = {}
        for table in tables:
            owned, rows = self._owned(table), data[table.name]
            count = rows.column("n").to_numpy() if "n" in rows.column_names else None
            codes = _unpacked(self._schema, owned, rows)
            counts = Counts(
                (*((_ID, a) for a in joins[table.name]), *((_CODE, a) for a in owned)),
                (*(sizes[a] for a in joins[table.name]), *self._schema.shape(owned)),
                (*(ids[table.name, a] for a in joins[table.name]), *(codes[a] for a in owned)),
                count,
                rows.num_rows,
                frozenset([table.name]),
            )
            # Few combinations: every later sum is short. Without any column a count of zero is a row, too.
            alike = math.prod(counts.sizes) <= counts.rows // 4 or not counts.variables
            found[table.name] = sumproduct.project(counts, counts.variables) if alike else counts
        return found

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

    def _exact_count_of(self, tables: Iterable[Table]) -> int:
        (exact,) = sumproduct.eliminate(self._exact_factors(tables), (), memo=self._memo)
        return sumproduct.total(exact)

    def _exact_largest(self, names: frozenset[str]) -> int:
        """T_E: all but the boundary summed out, then the largest count over the boundary."""
        inside = [t for t in self._schema.tables if t.name in names]
        outside = {a for t in self._schema.tables if t.name not in names for a in t.attributes}
        boundary = {(_ID, a) for t in inside for a in t.attributes if a in outside}
        return sumproduct.largest_count(self._exact_factors(inside), boundary, memo=self._memo)

    def _exact_marginals_of_many(self, scopes: Iterable[Scope]) -> dict[Scope, Exact]:
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
                computed[()] = contract.fit(np.array(self._exact_size, dtype=object), self._exact_size)
            elif len(tables) == 1:
                computed |= self._exact_within_one(tables[0], [part for (part,) in found])
            elif len(tables) == 2:
                for lefts, rights in _batches([(left, right) for left, right in found]):
                    for some in self._pieces(tables[0], lefts):
                        for others in self._pieces(tables[1], rights):
                            computed |= self._exact_stacked(tables, [some, others])
            else:
                for parts_of in found:
                    computed |= self._exact_stacked(tables, [[part] for part in parts_of])
        for scope in sorted(wanted, key=len, reverse=True):
            if scope not in computed:
                wider = [s for s in computed if set(scope) <= set(s)]
                computed[scope] = self._narrowed(min(wider, key=self._schema.cells), scope, computed)
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
            if (_CODE, a) in raw.variables:
                (code,) = raw.ids([(_CODE, a)])
            else:
                owner = self._exact_counts[self._schema.owner(a)]
                at, codes = owner.ids([(_ID, a), (_CODE, a)])
                by_id = np.zeros(owner.sizes_of([(_ID, a)])[0], dtype=index.dtype)
                by_id[at] = codes
                code = by_id[raw.ids([(_ID, a)])[0]]  # numbers that the owner lacks join nothing
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
            exact = sumproduct.dense(counts, [(_CELL, scope)], bound=self._exact_size)
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
        exact = sumproduct.dense(whole, kept, bound=self._exact_size)
        found = {}
        offsets = [np.cumsum([0, *map(self._schema.cells, scopes)]) for scopes in parts]
        for at in itertools.product(*(range(len(scopes)) for scopes in parts)):
            block = exact[tuple(slice(o[i], o[i + 1]) for o, i in zip(offsets, at, strict=True))]
            names = tuple(a for scopes, i in zip(parts, at, strict=True) for a in scopes[i])
            scope = self._schema.in_order(names)
            found[scope] = block.reshape(self._schema.shape(names)).transpose([names.index(a) for a in scope])
        return found


def _ids(table: Table) -> set[Variable]:
    return {(_ID, a) for a in table.attributes}


def _discard(connections: Sequence[Any]) -> None:
    for connection in connections:
        disconnect(connection)


def _touched(schema: Schema, attributes: Iterable[str]) -> Scope:
    for name in attributes:
        if schema.attribute(name).key:
            raise SpecError(f"attribute {name!r} is a key that no query can look at; remove it from the queries")
    return schema.in_order(attributes)


def _sources(schema: Schema, tables: Mapping[str, object]) -> dict[str, object]:
    """Each table's source, after the checks that need no data."""
    if len(schema.tables) > MOST_TABLES:
        raise SpecError(
            f"joins of {len(schema.tables)} tables are not supported; join at most {MOST_TABLES}, "
            "or release them in parts"
        )
    names = [t.name for t in schema.tables]
    for name in tables:
        if name not in names:
            raise SpecError(f"table {name!r} is not declared; {suggest(name, names)}")
    sources: dict[str, object] = {}
    for table in schema.tables:
        source = tables.get(table.name, table.source)
        if source is None:
            raise SourceError(f"table {table.name!r} has no source; set tables.{table.name}.source or pass the table")
        if isinstance(source, str | os.PathLike) and table.source_table is not None:
            source = (source, table.source_table)
        sources[table.name] = source
    for first, second in itertools.combinations(schema.private_tables, 2):
        if same_source(sources[first], sources[second]):
            raise SpecError(
                f"tables {first!r} and {second!r} have the same source, so one row would change both, and the "
                "guarantee is for a row of one table; split the rows into two disjoint tables"
            )
    return sources


def _column(opened: OpenedTable, table: Table, attribute: str) -> encode.Column:
    return opened.column(table.column(attribute))


def _small(size: int) -> str:
    return "UTINYINT" if size <= 2**8 else "USMALLINT" if size <= 2**16 else "UINTEGER"


def _words(schema: Schema, owned: Scope) -> list[list[tuple[str, int]]]:
    """Codes packed into 62-bit words, as (attribute, shift) per word: fewer columns group faster."""
    words: list[list[tuple[str, int]]] = []
    used = _WORD_BITS
    for name in owned:
        bits = _bits(schema, name)
        if used + bits > _WORD_BITS:
            words.append([])
            used = 0
        words[-1].append((name, used))
        used += bits
    return words


def _bits(schema: Schema, name: str) -> int:
    return max(1, (schema.attribute(name).size - 1).bit_length())


def _unpacked(schema: Schema, owned: Scope, data: Any) -> dict[str, NDArray[Any]]:
    if "n" not in data.column_names:
        return {a: data.column(f"c{i}").to_numpy() for i, a in enumerate(owned)}
    codes = {}
    for i, word in enumerate(_words(schema, owned)):
        packed = data.column(f"w{i}").to_numpy()
        for name, shift in word:
            code = (packed >> shift) & ((1 << _bits(schema, name)) - 1)
            codes[name] = code.astype(np.min_scalar_type(schema.attribute(name).size))
    return codes


def _condensed(
    schema: Schema, rows: Rows, codes: dict[str, NDArray[Any]], keys: int
) -> tuple[Rows, dict[str, NDArray[Any]]]:
    """Rows that are alike merged, when there are few keys and codes, so that every later sum is short."""
    shape = (keys, *schema.shape(tuple(codes)))
    cells = math.prod(shape)
    if cells > len(rows) // 4:
        return rows, codes
    index = np.ravel_multi_index((rows.exact_key, *(c.astype(np.int64) for c in codes.values())), shape)
    bound = contract.total_count(rows)
    exact = contract.count_by(index, rows.exact_count, cells, bound=bound)
    if exact.dtype == object:
        return rows, codes
    present = np.flatnonzero(exact)
    key, *merged = np.unravel_index(present, shape)
    small = {a: m.astype(codes[a].dtype) for a, m in zip(codes, merged, strict=True)}
    return Rows(np.asarray(key, dtype=np.int64), exact[present]), small


def _batches(pairs: Sequence[tuple[Scope, Scope]]) -> list[tuple[list[Scope], list[Scope]]]:
    """Group the pairs (left, right) into full rectangles: left scopes that need the same right scopes."""
    partners: dict[Scope, list[Scope]] = {}
    for left, right in pairs:
        partners.setdefault(left, []).append(right)
    rectangles: dict[tuple[Scope, ...], list[Scope]] = {}
    for left, rights in partners.items():
        rectangles.setdefault(tuple(sorted(rights)), []).append(left)
    return [(lefts, list(rights)) for rights, lefts in rectangles.items()]


def number_keys(columns: Sequence[Sequence[Any]]) -> tuple[list[IntArray | None], int]:
    """Number the keys of all tables alike: equal values get equal numbers from 0 to keys - 1.

    `columns` has for each table its key columns as Arrow arrays. Without key columns all rows share one key.
    """
    if not columns[0]:
        return [None] * len(columns), 1
    if len(columns[0]) == 1 and (offsets := _offsets([c[0] for c in columns])) is not None:
        return offsets
    lengths = [len(c[0]) for c in columns]
    numbers, keys = np.zeros(sum(lengths), dtype=np.int64), 1
    for i in range(len(columns[0])):
        column, size = _number([c[i] for c in columns])
        if i and keys * size >= 2**62:
            numbers, keys = _encode(numbers)
        numbers = numbers * size + column if i else column
        keys *= size
    if keys > _compact(len(numbers)):
        numbers, keys = _encode(numbers)
    return list(np.split(numbers, np.cumsum(lengths)[:-1])), max(1, keys)


def _offsets(arrays: Sequence[Any]) -> tuple[list[IntArray | None], int] | None:
    """The usual case, one 64-bit integer key in a compact range: the distance from the lowest."""
    if any(a.type != pa.int64() or not len(a) for a in arrays):
        return None
    values = [a.to_numpy() for a in arrays]
    low, high = min(int(v.min()) for v in values), max(int(v.max()) for v in values)
    if high - low >= _compact(sum(map(len, values))):
        return None
    return [v - low if low else v for v in values], high - low + 1


def _compact(rows: int) -> int:
    """Up to how many numbers it is cheaper to keep gaps than to close them."""
    return 4 * rows + 2**16


def _number(arrays: Sequence[Any]) -> tuple[IntArray, int]:
    """Numbers for the values of one key column."""
    kind = arrays[0].type
    if not _is_numeric(kind):
        chunks = [chunk for a in arrays for chunk in a.cast(pa.large_string()).chunks]
        return _encode(pa.chunked_array(chunks, pa.large_string()))
    if pa.types.is_date32(kind):
        arrays = [a.cast(pa.int32()) for a in arrays]
    elif pa.types.is_timestamp(kind):
        arrays = [a.cast(pa.int64()) for a in arrays]
    values = np.concatenate([a.to_numpy() for a in arrays])
    if not len(values):
        return np.zeros(0, dtype=np.int64), 1
    if values.dtype.kind == "f":
        values = values + 0.0  # -0.0 equals 0.0
        if not np.all(np.isfinite(values) & (values == np.rint(values)) & (np.abs(values) < 2**53)):
            return _encode(values)
        values = values.astype(np.int64)
    low, high = int(values.min()), int(values.max())
    if high - low >= _compact(len(values)):
        return _encode(values)
    return (values - values.dtype.type(low)).astype(np.int64, copy=False), high - low + 1


def _is_numeric(kind: Any) -> bool:
    known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_date32, pa.types.is_timestamp)
    return any(is_kind(kind) for is_kind in known)


def _encode(values: Any) -> tuple[IntArray, int]:
    """Numbers in the order of first appearance, by hashing."""
    array = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([pa.array(values)])
    if not len(array):
        return np.zeros(0, dtype=np.int64), 1
    encoded = array.dictionary_encode().combine_chunks()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
