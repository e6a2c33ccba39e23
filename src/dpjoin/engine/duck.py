"""The default engine: DuckDB reads and groups the tables, numpy contracts them; the join never exists.

Each table is read once, as rows (key, codes of the touched attributes, count). Keys of two tables are
numbered alike, and everything the engine is asked is a sum over keys of products of counts. From three
tables on each join attribute is numbered by itself, see `many`.
"""

from __future__ import annotations

import itertools
import math
import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine import encode, sumproduct
from dpjoin.engine import join_keys as keys
from dpjoin.engine import key_sums as contract
from dpjoin.engine.caps import check_caps, check_fades
from dpjoin.engine.columns import array_of
from dpjoin.engine.interface import ExactDegrees, Fade, Rules, Value
from dpjoin.engine.join_keys import CODE, ID, JoinValues, Keys, Values, number_keys
from dpjoin.engine.key_sums import Rows, Scope
from dpjoin.engine.many_tables import ManyTables
from dpjoin.engine.sources import OpenedTable, check_columns, connect, disconnect, open_source, same_source, unreadable
from dpjoin.engine.sumproduct import Counts
from dpjoin.engine.two_tables import Pair, Side
from dpjoin.errors import SourceError, SpecError, suggest
from dpjoin.spec.schema import DegreeBound, Schema, Table, with_caps
from dpjoin.spec.workload import Group, Products

UNGROUPED_ROWS = 4_000_000
"""Up to this many rows it is faster to fetch them as they are than to group them in DuckDB first."""
MARGINAL_CELLS = 2**24
"""Product queries go through the marginal over their scope up to this many cells, else key by key."""
MOST_TABLES = 8
_WORD_BITS = 62


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
        return self._exact_tables.exact_size

    def exact_boundary(self, tables: frozenset[str]) -> int:
        for name in tables:
            self._schema.table(name)
        if not tables:
            return 1
        if len(tables) == len(self._schema.tables):
            return self._exact_tables.exact_size
        return self._exact_tables.exact_largest(tables)

    def exact_answers(self, groups: Sequence[Group]) -> list[NDArray[Any]]:
        for group in groups:
            for a in group.scope:
                if a not in self._touched:
                    raise SpecError(
                        f"group {group.name!r} asks about {a!r}, which the engine did not read; "
                        f"{suggest(a, self._touched)}"
                    )
            if len(self._schema.tables) > 2 and isinstance(group, Products) and group.cells > MARGINAL_CELLS:
                raise SpecError(
                    f"products {group.name!r} look at {group.cells} cells of {len(self._schema.tables)} tables; from "
                    f"three tables on {MARGINAL_CELLS} cells are the most, so let them look at fewer attributes"
                )
        tables = self._exact_tables
        pair = tables if isinstance(tables, Pair) and len(self._schema.tables) == 2 else None
        marginals = [g for g in groups if pair is None or not _is_wide(g)]
        exact_marginals = tables.exact_marginals({self._schema.in_order(g.scope) for g in marginals})
        answers = []
        for group in groups:
            if isinstance(group, Products):
                if pair is not None and _is_wide(group):
                    answers.append(pair.exact_products_over_keys(group))
                    continue
                ordered = self._schema.in_order(group.scope)
                exact_marginal = exact_marginals[ordered].transpose([ordered.index(a) for a in group.scope])
                answers.append(contract.apply_products(group, exact_marginal, join_size=tables.exact_size))
            else:
                exact_marginal = exact_marginals[group.scope]
                answers.append(contract.apply_kronecker(group, exact_marginal, join_size=tables.exact_size))
        return answers

    def exact_degrees(
        self, rules: Mapping[str, Rules], by: tuple[str, ...], distinct: tuple[str, ...] = ()
    ) -> ExactDegrees:
        keys.check_degrees(self._schema, rules, by, distinct)
        return self._exact_tables.exact_degrees(rules, by, distinct)

    def restricted(self, rules: Mapping[str, Rules]) -> DuckEngine:
        keys.check_rules(self._schema, rules)
        engine = copy(self)
        # What was read is all that an engine keeps, so that the copy knows nothing of the other rows.
        vars(engine)["_exact_tables"] = self._exact_tables.restricted(rules)
        return engine

    def capped(self, caps: Mapping[str, Sequence[DegreeBound]]) -> DuckEngine:
        check_caps(self._schema, caps)
        engine = copy(self)
        schema = with_caps(self._schema, caps)
        vars(engine).update(_schema=schema, _exact_tables=self._exact_tables.capped(schema, caps))
        return engine

    def faded(self, fades: Mapping[str, Fade]) -> DuckEngine:
        check_fades(self._schema, fades)
        engine = copy(self)
        vars(engine)["_exact_tables"] = self._exact_tables.faded(fades)
        return engine

    def alone(self, table: str, by: tuple[str, ...], values: Sequence[Value], keep: tuple[str, ...]) -> DuckEngine:
        schema = keys.alone_schema(self._schema, table, by, values, keep)
        readable = (*self._touched, *self._schema.join_attributes)
        for a in keep:
            if a not in readable:
                raise SpecError(
                    f"table {table!r} alone keeps {a!r}, which the engine did not read; {suggest(a, readable)}"
                )
        exact = self._exact_tables.exact_alone(table, by, values, keep)
        codes = {
            a.name: exact.ids([a.name])[0].astype(np.min_scalar_type(a.size), copy=False) for a in schema.attributes
        }
        one_key = np.zeros(exact.rows, dtype=np.int64)
        rows, codes = _condensed(schema, Rows(one_key, exact.exact_count), codes, 1)
        # Nothing of this engine goes along, neither other tables nor other rows.
        engine = DuckEngine.__new__(DuckEngine)
        tables = Pair(schema, [Side(rows, codes, 1)], Keys(1, (), ()), JoinValues({}))
        vars(engine).update(_schema=schema, _touched=schema.queryable, _exact_tables=tables)
        return engine

    # Reading

    @cached_property
    def _exact_tables(self) -> Pair | ManyTables:
        """Read every table; the connections are closed afterwards, nothing else needs them."""
        return self._exact_pair() if len(self._schema.tables) <= 2 else self._exact_many()

    def _exact_pair(self) -> Pair:
        """Read one or two tables as rows with the number of their whole key."""
        joins = self._schema.join_attributes
        if len(self._schema.tables) == 2:
            first, second = self._schema.tables
            tables = list(
                contract.at_once(lambda: self._exact_table(first, joins), lambda: self._exact_table(second, joins))
            )
        else:
            tables = [self._exact_table(t, joins) for t in self._schema.tables]
        self._close()
        columns = [[t.column(f"k{i}") for i in range(len(joins))] for t in tables]
        exact_keys, numbering = number_keys(columns, [self._has_digits(a) for a in joins])
        sides = []
        for table, data, exact_key in zip(self._schema.tables, tables, exact_keys, strict=True):
            owned = self._owned(table)
            key = np.zeros(data.num_rows, dtype=np.int64) if exact_key is None else exact_key
            count = array_of(data.column("n")) if "n" in data.column_names else None
            codes = _unpacked(self._schema, owned, data)
            rows, codes = _condensed(self._schema, Rows(key, count), codes, numbering.size)
            sides.append(Side(rows, codes, numbering.size))
        values = dict(zip(joins, numbering.values, strict=True))
        return Pair(self._schema, sides, numbering, JoinValues(values))

    def _exact_many(self) -> ManyTables:
        """Read every table as counts of its join attributes' numbers and its own attributes' codes."""
        tables = self._schema.tables
        joins = {t.name: [a for a in self._schema.join_attributes if a in t.attributes] for t in tables}
        with ThreadPoolExecutor(2) as readers:
            read = list(readers.map(lambda t: self._exact_table(t, joins[t.name]), tables))
        self._close()
        data = {t.name: d for t, d in zip(tables, read, strict=True)}
        ids: dict[tuple[str, str], NDArray[Any]] = {}
        values: dict[str, Values] = {}
        for a in self._schema.join_attributes:
            holders = self._schema.tables_with(a)
            columns = [[data[t].column(f"k{joins[t].index(a)}")] for t in holders]
            numbers, numbering = number_keys(columns, [self._has_digits(a)])
            (values[a],) = numbering.values
            ids |= {(t, a): n for t, n in zip(holders, numbers, strict=True) if n is not None}
        found = {}
        for table in tables:
            owned, rows = self._owned(table), data[table.name]
            count = array_of(rows.column("n")) if "n" in rows.column_names else None
            codes = _unpacked(self._schema, owned, rows)
            counts = Counts(
                (*((ID, a) for a in joins[table.name]), *((CODE, a) for a in owned)),
                (*(values[a].size for a in joins[table.name]), *self._schema.shape(owned)),
                (*(ids[table.name, a] for a in joins[table.name]), *(codes[a] for a in owned)),
                count,
                rows.num_rows,
                frozenset([table.name]),
            )
            # Few combinations: every later sum is short. Without any column a count of zero is a row, too.
            alike = math.prod(counts.sizes) <= counts.rows // 4 or not counts.variables
            found[table.name] = sumproduct.project(counts, counts.variables) if alike else counts
        return ManyTables(self._schema, found, JoinValues(values))

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
            attribute, column = self._schema.attribute(name), self._coded(table, name)
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

        All ranks go by one order of the rows, copies included: a hash of what the engine sees of a row (its join
        values, its codes, and what else the bounds group by), then these themselves, written one to one. So rows
        that tie are alike to everything that follows, and how the table was read does not matter. Ranks are taken on
        the rows that the public rule keeps, before any join. Where the bounds hold, no row goes.
        """
        opened = self._opened[table.name]
        if not table.bounds:
            return opened.view
        bounded = {a for bound in table.bounds for a in bound.attributes}
        groups, seen, conditions = {}, [], []
        for name in table.attributes:
            attribute, column = self._schema.attribute(name), _column(opened, table, name)
            if name in joins:
                groups[name] = encode.join_value(attribute, self._columns(name), column)
                conditions.append(f"{groups[name]} IS NOT NULL")
                seen.append(encode.join_text(attribute, self._columns(name), column))
            elif name in bounded:
                groups[name] = column.text
                seen.append(groups[name])
            if not attribute.key:
                coded = self._coded(table, name)
                seen.append(encode.code(attribute, coded))
                condition = encode.kept(attribute, coded)
                conditions += [condition] if condition is not None else []
        text = f"concat({', '.join(map(encode.field, seen))})"
        place = "place"
        while place in {c.name.lower() for c in opened.columns}:
            place += " of the row"
        ranks = []
        for bound in table.bounds:
            group = ", ".join(groups[a] for a in bound.attributes)
            ranks.append(
                f"row_number() OVER (PARTITION BY {group} ORDER BY {encode.identifier(place)}) <= {bound.limit}"
            )
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        places = f"row_number() OVER (ORDER BY md5({text}), {text}) AS {encode.identifier(place)}"
        return f"(SELECT * FROM (SELECT *, {places} FROM {opened.view}{where}) QUALIFY {' AND '.join(ranks)})"

    def _has_digits(self, attribute: str) -> bool:
        """Whether the attribute's typed columns hold whole numbers."""
        kinds = {c.kind for c in self._columns(attribute)} - {"untyped"}
        return bool(kinds) and kinds <= {"integer", "boolean"}

    def _coded(self, table: Table, name: str) -> encode.Column:
        """What an attribute's codes are made of: of a join attribute, the values that are compared."""
        column = _column(self._opened[table.name], table, name)
        return encode.coded(self._schema.attribute(name), self._columns(name), column)

    def _columns(self, attribute: str) -> list[encode.Column]:
        holders = [self._schema.table(t) for t in self._schema.tables_with(attribute)]
        return [_column(self._opened[t.name], t, attribute) for t in holders]


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


def _is_wide(group: Group) -> bool:
    """Whether the marginal over the group's scope is too large to hold."""
    return isinstance(group, Products) and group.cells > MARGINAL_CELLS


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
        return {a: array_of(data.column(f"c{i}")) for i, a in enumerate(owned)}
    codes = {}
    for i, word in enumerate(_words(schema, owned)):
        packed = array_of(data.column(f"w{i}"))
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
