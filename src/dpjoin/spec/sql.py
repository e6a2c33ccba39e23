"""Counts, sums and averages over the join, asked in SQL.

DuckDB parses the statement; this module walks the tree it prints and accepts exactly what linear
queries, and ratios of two of them, can say:

    SELECT [columns,] COUNT(*) | SUM(column) | AVG(column) [, …] FROM joined [WHERE …] [GROUP BY columns | ALL]

where WHERE compares declared attributes with constants, with AND, OR and NOT. A workload holds OR within one attribute
only; a release is asked it across several.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.errors import SpecError, suggest
from dpjoin.spec.schema import OTHER, Attribute, Schema
from dpjoin.spec.workload import (
    CELLS,
    MOST_VALUES,
    Average,
    Factor,
    Kronecker,
    Masked,
    amounts,
    check_askable,
    kronecker,
    where,
)

Node = Mapping[str, Any]
Constant = str | int | float | bool
Shown = Callable[[Mapping[str, int], Sequence[float]], bool]
"""Whether a row of the answer is shown, from the codes of its grouped attributes and its numbers."""

_COMPARE = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_SAME = {"COMPARE_NOT_DISTINCT_FROM": "=", "COMPARE_DISTINCT_FROM": "<>"}
"""Comparisons that are never unknown, `x IS TRUE` among them."""
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SEVERAL = "SQL: OR cannot be asked of several columns; ask each case, add them, and take away what both have"
_COLUMNS_ONLY = "SQL: GROUP BY takes columns only; put the grouping into the attribute's values or bins"
_ACCEPTED = "ask SELECT columns, COUNT(*), SUM(column) or AVG(column) FROM joined WHERE … AND … GROUP BY columns"


class Unsupported(SpecError):
    """The statement is good SQL, but not a linear query that a workload can hold."""


@dataclass(frozen=True)
class Measure:
    """One aggregate of a statement: what to call it, and the group of queries or averages it stands for."""

    title: str
    asked: Kronecker | Average


@dataclass(frozen=True)
class Query:
    """A statement, understood."""

    by: tuple[str, ...]
    """The grouped attributes, in the order of the statement."""
    names: tuple[str, ...]
    """What the statement calls them."""
    measures: tuple[Measure, ...]
    kept: Mapping[str, frozenset[int]]
    """For a grouped attribute that is also filtered: the codes to show."""
    order: tuple[tuple[int, bool], ...] = ()
    """Columns of the result to sort by, and whether downwards."""
    limit: int | None = None
    offset: int = 0
    having: Shown | None = None
    hidden: tuple[Measure, ...] = ()
    """What HAVING looks at and the statement does not select; their numbers follow those of `measures`."""


def parse_groups(schema: Schema, statement: str) -> list[Kronecker]:
    """The groups of queries that a statement asks for, one per aggregate; averages are none."""
    groups = []
    for asked in parse_measures(schema, statement):
        if isinstance(asked, Average):
            other = f" WHERE {asked.attribute} <> '{OTHER}'" if schema.attribute(asked.attribute).other else ""
            raise Unsupported(
                f"SQL: AVG cannot be in a workload; put SUM({asked.attribute}) and COUNT(*){other} there, and ask the "
                "release for AVG"
            )
        if isinstance(asked, Masked):
            raise Unsupported(_SEVERAL)
        groups.append(asked)
    return groups


def parse_measures(schema: Schema, statement: str) -> list[Kronecker | Average]:
    """What a statement asks for, one group per aggregate, with no cells left out and in no other order."""
    query = read_query(schema, statement)
    for attribute in query.kept:
        raise Unsupported(
            f"SQL: {attribute!r} is both grouped and filtered; leave the filter out here and filter the answers"
        )
    if query.having is not None:
        raise Unsupported("SQL: HAVING cannot be asked here; leave it out and filter the answers")
    if query.order or query.limit is not None or query.offset:
        raise Unsupported("SQL: ORDER BY and LIMIT do not change what is asked; leave them out and sort the answers")
    return [m.asked for m in query.measures]


def read_query(schema: Schema, statement: str) -> Query:
    """Understand a statement, or say what in it cannot be asked."""
    node = _select_node(statement)
    select = list(node["select_list"])
    if not node.get("group_expressions") and all(e["class"] == "COLUMN_REF" for e in select):
        for e in select:
            _column(schema, e)
        raise Unsupported(
            f"SQL: columns alone ask for rows, not for numbers; {_ACCEPTED}, or draw rows with synthesize"
        )
    columns = [(i, _column(schema, e)) for i, e in enumerate(select) if e["class"] == "COLUMN_REF"]
    names = [name for _, name in columns]
    by = _grouped(schema, node, select, names)
    filters: dict[str, frozenset[int]] = {}
    regions: list[_Region] = []
    texts: list[tuple[str, str]] = []
    for condition in _conjuncts(node.get("where_clause")):
        region = _region(schema, condition)
        attribute, *others = region.scope
        if others:
            regions.append(region)
            texts.append(("", region.text))
            continue
        codes = frozenset(np.flatnonzero(region.mask).tolist())
        filters[attribute] = filters.get(attribute, frozenset(range(schema.attribute(attribute).size))) & codes
        texts.append((attribute, region.text))
    for attribute, codes in filters.items():
        if not codes:
            asked = " AND ".join(t for a, t in texts if a == attribute)
            raise SpecError(f"SQL: no value of {attribute!r} satisfies WHERE {asked}; correct it")
    aggregates = [(i, e) for i, e in enumerate(select) if e["class"] != "COLUMN_REF"]
    if not aggregates:
        raise Unsupported(f"SQL: the statement asks for no COUNT(*), SUM(column) or AVG(column); {_ACCEPTED}")
    # A group has one matrix per attribute, so a grouped attribute's cells are all asked and some not shown.
    kept = {a: filters.pop(a) for a in by if a in filters}
    for region in regions:
        if not region.mask.any():
            raise SpecError(f"SQL: nothing satisfies WHERE {region.text}; correct it")
        for a in set(by).intersection(region.scope):
            some = frozenset(np.flatnonzero(region.over((a,)).any(axis=0).reshape(-1)).tolist())
            kept[a] = kept.get(a, some) & some
    words = [t for a, t in texts if a not in kept]
    measures = tuple(_measure(schema, e, by, filters, regions, words) for _, e in aggregates)
    shown = tuple(dict.fromkeys([*names, *by]))
    positions = {i: shown.index(name) for i, name in columns}
    positions |= {i: len(shown) + k for k, (i, _) in enumerate(aggregates)}
    titles = {e["alias"].lower(): i for i, e in enumerate(select) if e.get("alias")}
    order, limit, offset = _presentation(schema, node, select, positions, titles, names)
    called = {name: str(select[i].get("alias") or name) for i, name in columns}
    known = [_aggregate(schema, e) for _, e in aggregates]
    hidden: list[Measure] = []

    def number_of(expression: Node) -> int | None:
        """Where the number of an aggregate, or of the alias of one, is among a row's; None for anything else."""
        if expression["class"] == "COLUMN_REF":
            alias = str(expression["column_names"][-1]).lower()
            found = None if _matching(schema, alias) else titles.get(alias)
            return None if found is None or found not in positions else positions[found] - len(shown)
        if expression["class"] != "FUNCTION" or _is_constant(expression):
            return None
        wanted = _aggregate(schema, expression)
        if wanted not in known:
            known.append(wanted)
            hidden.append(_measure(schema, expression, by, filters, regions, words))
        return known.index(wanted)

    having = None if node.get("having") is None else _having(schema, node["having"], by, number_of)
    names_shown = tuple(called.get(a, a) for a in shown)
    return Query(shown, names_shown, measures, kept, order, limit, offset, having, tuple(hidden))


def columns_of(schema: Schema, statement: str) -> tuple[str, ...]:
    """The declared attributes that a statement names anywhere, subqueries included, in the order of declaration."""
    written: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, Mapping) and node.get("class") == "COLUMN_REF":
            written.add(str(node["column_names"][-1]).lower())
        for child in node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ():
            walk(child)

    walk(_tree(statement))
    return tuple(a.name for a in schema.attributes if a.name.lower() in written)


@lru_cache(maxsize=64)
def _tree(statement: str) -> Any:
    import duckdb

    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
        try:
            row = connection.execute("SELECT json_serialize_sql(CAST(? AS VARCHAR))", [statement]).fetchone()
        except duckdb.Error as error:
            raise SpecError(f"SQL: {statement!r} cannot be read: {str(error).splitlines()[0]}") from None
    return json.loads(row[0])


def _select_node(statement: str) -> Node:
    """The one SELECT of the statement, with everything a workload cannot hold refused."""
    if not isinstance(statement, str) or not statement.strip():
        raise SpecError(f"SQL ({statement!r}) must be a statement; {_ACCEPTED}")
    tree = _tree(statement)
    if tree.get("error"):
        if "Only SELECT" in tree.get("error_message", ""):
            raise SpecError(f"SQL: only SELECT can be asked; {_ACCEPTED}")
        message = tree.get("error_message", "").splitlines()[0]
        raise SpecError(f"SQL: {statement!r} cannot be read: {message}")
    if len(tree["statements"]) != 1:
        raise SpecError(f"SQL: one statement at a time, not {len(tree['statements'])}; split them")
    node: Node = tree["statements"][0]["node"]
    if node["type"] != "SELECT_NODE":
        raise Unsupported("SQL: UNION and other set operations cannot be asked; ask each SELECT on its own")
    source = node["from_table"]
    if source["type"] == "JOIN":
        raise Unsupported("SQL: the tables are joined already; use FROM joined")
    if source["type"] == "SUBQUERY" or node.get("cte_map", {}).get("map"):
        raise Unsupported("SQL: subqueries cannot be asked; use FROM joined")
    if source["type"] != "BASE_TABLE" or source["table_name"].lower() != "joined" or source.get("schema_name"):
        raise Unsupported(f"SQL: the only table is joined, the join of all tables; {_ACCEPTED}")
    for part, what in (("qualify", "QUALIFY"), ("sample", "SAMPLE")):
        if node.get(part) is not None:
            raise Unsupported(f"SQL: {what} cannot be asked; leave it out and filter the answers")
    if source.get("sample") is not None:
        raise Unsupported("SQL: SAMPLE cannot be asked; leave it out")
    if any(m["type"] == "DISTINCT_MODIFIER" for m in node.get("modifiers", ())):
        raise Unsupported("SQL: DISTINCT cannot be asked; use GROUP BY, whose cells are distinct")
    return node


def _column(schema: Schema, node: Node) -> str:
    """The declared attribute a column reference means; case does not matter, as in SQL."""
    written = str(node["column_names"][-1])
    matches = _matching(schema, written)
    if len(matches) != 1:
        raise SpecError(
            f"SQL: {written!r} is not an attribute; {suggest(written, [a.name for a in schema.attributes])}"
        )
    if schema.attribute(matches[0]).key:
        raise SpecError(
            f"SQL: {matches[0]!r} is a key that no query can look at; give it values, a range or bins instead"
        )
    check_askable(schema.attribute(matches[0]))
    return matches[0]


def _matching(schema: Schema, written: str) -> list[str]:
    known = [a.name for a in schema.attributes]
    return [a for a in known if a == written] or [a for a in known if a.lower() == written.lower()]


def _grouped(schema: Schema, node: Node, select: list[Any], names: list[str]) -> tuple[str, ...]:
    if len(node.get("group_sets", ())) > 1:
        raise Unsupported("SQL: ROLLUP, CUBE and GROUPING SETS cannot be asked; ask one GROUP BY for each set")
    if node.get("aggregate_handling") == "FORCE_AGGREGATES":
        return tuple(dict.fromkeys(names))
    by: list[str] = []
    for expression in node.get("group_expressions", ()):
        if expression["class"] == "CONSTANT":
            position = _constant(expression)
            if not isinstance(position, int) or not 1 <= position <= len(select):
                raise SpecError(f"SQL: GROUP BY {position} must be the number of a selected column; name the column")
            expression = select[position - 1]
        if expression["class"] != "COLUMN_REF":
            raise Unsupported(_COLUMNS_ONLY)
        alias = str(expression["column_names"][-1]).lower()
        aliased = [e for e in select if e.get("alias", "").lower() == alias]
        if aliased and aliased[0]["class"] != "COLUMN_REF" and not _matching(schema, alias):
            raise Unsupported(_COLUMNS_ONLY)
        by.append(_column(schema, aliased[0] if aliased and aliased[0]["class"] == "COLUMN_REF" else expression))
    for name in names:
        if name not in by:
            raise SpecError(f"SQL: {name!r} is selected and not grouped; add GROUP BY {', '.join([*by, name])}")
    return tuple(dict.fromkeys(by))


def _measure(
    schema: Schema,
    node: Node,
    by: tuple[str, ...],
    filters: Mapping[str, frozenset[int]],
    regions: Sequence[_Region],
    texts: list[str],
) -> Measure:
    everywhere = {a: range(schema.attribute(a).size) for region in regions for a in region.scope}
    factors: dict[str, Factor] = {a: where(schema, a, codes) for a, codes in {**everywhere, **filters}.items()}
    factors |= dict.fromkeys(by, CELLS)
    function, column = _aggregate(schema, node)
    title = {"count": "count", "sum": f"sum of {column}", "avg": f"average of {column}"}[function]
    name = None
    if factors.keys() - set(by) or regions or column is not None:
        name = title
        name += f" by {', '.join(by)}" if by else ""
        name += f" where {' and '.join(texts)}" if texts else ""

    def group(more: Mapping[str, Factor]) -> Kronecker:
        whole = kronecker(schema, {**factors, **more}, name=name)
        if not regions:
            return whole
        mask = np.ones((1,) * len(whole.scope), dtype=np.bool_)
        for region in regions:
            mask = mask & region.within(whole.scope)
        if mask.size > MOST_VALUES:
            raise Unsupported(_SEVERAL)
        return Masked(whole.name, whole.scope, whole.factors, whole.shape, mask)

    asked: Kronecker | Average
    if column is None:
        asked = group({})
    elif column in by:
        what = "a count times a constant" if function == "sum" else f"{column} itself"
        raise Unsupported(f"SQL: {function.upper()}({column}) GROUP BY {column} is {what}; ask COUNT(*)")
    elif function == "sum":
        weights = _amounts(schema, column, filters)
        if not any(weights.row):
            raise SpecError(f"SQL: SUM({column}) is always 0 here; leave it out")
        asked = group({column: weights})
    else:
        asked = _average(schema, column, filters, group)
    return Measure(str(node.get("alias") or title), asked)


def _amounts(schema: Schema, column: str, filters: Mapping[str, frozenset[int]]) -> Factor:
    """What a sum adds up, where the column is filtered itself only what the filter keeps."""
    weights = amounts(schema, column)
    kept = filters.get(column, range(len(weights.row)))
    return Factor("weights", tuple(w if i in kept else 0 for i, w in enumerate(weights.row)), weights.unit)


def _average(
    schema: Schema,
    column: str,
    filters: Mapping[str, frozenset[int]],
    group: Callable[[Mapping[str, Factor]], Kronecker],
) -> Average:
    """A sum over a count of the rows with a known value: what is missing has no say in an average."""
    attribute = schema.attribute(column)
    try:
        weights = _amounts(schema, column, filters)
    except SpecError as error:
        reason = str(error).partition(";")[0].replace("summed", "averaged")
        raise SpecError(f"SQL: {reason}; ask SELECT {column}, COUNT(*) FROM joined GROUP BY {column}") from None
    kept = filters.get(column, frozenset(range(attribute.size))) - _other(attribute)
    if not kept:
        raise SpecError(f"SQL: AVG({column}) has no values here, only {OTHER!r}; ask COUNT(*)")
    values = [float(weights.row[i] * weights.unit) for i in kept]
    return Average(
        column,
        total=group({column: weights}),
        count=group({column: where(schema, column, kept)}),
        low=min(values),
        high=max(values),
    )


def _aggregate(schema: Schema, node: Node) -> tuple[str, str | None]:
    """Which aggregate is asked ("count", "sum" or "avg"), and of which attribute; None for a count."""
    if node["class"] == "STAR":
        raise Unsupported(f"SQL: SELECT * asks for rows, not for numbers; {_ACCEPTED}, or draw rows with synthesize")
    if node["class"] == "WINDOW":
        raise Unsupported("SQL: window functions cannot be asked; ask the counts and compute on the answers")
    if node["class"] != "FUNCTION" or node.get("is_operator"):
        raise Unsupported("SQL: expressions cannot be asked; select columns, COUNT(*) or SUM(column), then compute")
    function, arguments = str(node["function_name"]).lower(), _arguments(node)
    shown = "COUNT(*)" if function == "count_star" else f"{function.upper()}(…)"
    if node.get("distinct"):
        raise Unsupported(f"SQL: DISTINCT inside {shown} cannot be asked; count with GROUP BY instead")
    if node.get("filter") is not None:
        raise Unsupported(f"SQL: FILTER after {shown} cannot be asked; put the condition into WHERE")
    if function == "count_star" or (function == "count" and not arguments):
        return "count", None
    if function == "count" and _is_constant(arguments[0]):
        return "count", None
    named = _column(schema, arguments[0]) if arguments and arguments[0]["class"] == "COLUMN_REF" else None
    if function == "count":
        if named is not None and None not in schema.attribute(named).labels:
            return "count", None
        # Among numbers and booleans `other` is missing, and is not counted.
        apart = "" if named is None or not schema.attribute(named).other else f" WHERE {named} <> '{OTHER}'"
        raise Unsupported(f"SQL: COUNT(column) cannot be asked; ask COUNT(*){apart}")
    if function not in ("sum", "avg", "mean"):
        raise Unsupported(f"SQL: {function.upper()} cannot be asked; only COUNT(*), SUM(column) and AVG(column) can")
    if len(arguments) != 1 or named is None:
        raise Unsupported(
            f"SQL: {function.upper()} takes one column, not an expression; declare an attribute for what it should take"
        )
    return ("sum" if function == "sum" else "avg"), named


def _arguments(node: Node) -> list[Node]:
    """A function's arguments; DuckDB has printed them in two ways."""
    if "arguments" in node:
        return [a["expression"] for a in node["arguments"]]
    return list(node.get("children", ()))


# -- WHERE -------------------------------------------------------------------------------------------


def _conjuncts(node: Node | None) -> Iterable[Node]:
    if node is None:
        return
    node = _inward(node)
    if node["type"] == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from _conjuncts(child)
    else:
        yield node


def _inward(node: Node) -> Node:
    """NOT moves past AND, OR and another NOT, to a single comparison."""
    if node["type"] != "OPERATOR_NOT":
        return node
    (child,) = node["children"]
    if child["type"] == "OPERATOR_NOT":
        return _inward(child["children"][0])
    swapped = {"CONJUNCTION_AND": "CONJUNCTION_OR", "CONJUNCTION_OR": "CONJUNCTION_AND"}.get(child["type"])
    if swapped is None:
        return node
    return {**child, "type": swapped, "children": [{**node, "children": [c]} for c in child["children"]]}


@dataclass(frozen=True, eq=False)
class _Region:
    """The cells of some attributes that satisfy a condition, one axis per attribute, and the condition in words."""

    scope: tuple[str, ...]
    mask: NDArray[np.bool_]
    text: str

    def within(self, scope: Sequence[str]) -> NDArray[np.bool_]:
        """The same with an axis, of length one, for every further attribute; both scopes are in the schema's order."""
        return self.mask.reshape([self.mask.shape[self.scope.index(a)] if a in self.scope else 1 for a in scope])

    def over(self, last: tuple[str, ...]) -> NDArray[np.bool_]:
        """A row for each cell of the other attributes, and a column for each of these."""
        moved = np.moveaxis(self.mask, [self.scope.index(a) for a in last], range(-len(last), 0))
        return moved.reshape(-1, math.prod(moved.shape[-len(last) :]))


def _region(schema: Schema, node: Node) -> _Region:
    """What a condition asks of one attribute, or of several that OR brings together."""
    node = _inward(node)
    if node["type"] not in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        name, codes, text = _condition(schema, node)
        return _Region((name,), np.isin(np.arange(schema.attribute(name).size), list(codes)), text)
    parts = [_region(schema, child) for child in node["children"]]
    scope = schema.in_order(a for part in parts for a in part.scope)
    if schema.cells(scope) > MOST_VALUES:
        raise Unsupported(_SEVERAL)
    either = node["type"] == "CONJUNCTION_OR"
    mask = parts[0].within(scope)
    for part in parts[1:]:
        mask = mask | part.within(scope) if either else mask & part.within(scope)
    text = (" or " if either else " and ").join(part.text for part in parts)
    return _Region(scope, mask, f"({text})")


def _condition(schema: Schema, node: Node) -> tuple[str, frozenset[int], str]:
    """The attribute, the codes that satisfy the condition, and the condition in words."""
    node = _inward(node)
    kind = node["type"]
    if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        (name, codes, text), *others = [_condition(schema, child) for child in node["children"]]
        if any(another != name for another, _, _ in others):
            raise Unsupported(_SEVERAL)
        for _, more, said in others:
            codes = codes | more if kind == "CONJUNCTION_OR" else codes & more
            text += f" {'or' if kind == 'CONJUNCTION_OR' else 'and'} {said}"
        return name, codes, f"({text})"
    if kind == "COLUMN_REF":
        name = _column(schema, node)
        return name, _codes(schema.attribute(name), "=", True), name
    if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
        return _missing(schema, _compared(schema, node["children"][0]), kind == "OPERATOR_IS_NULL")
    if kind in _COMPARE or kind in _SAME:
        op, left, right = (_COMPARE | _SAME)[kind], _uncast(node["left"]), _uncast(node["right"])
        if left["class"] != "COLUMN_REF":
            op, left, right = _MIRRORED[op], right, left
        name = _compared(schema, left)
        value = _constant(right)
        return name, _codes(schema.attribute(name), op, value), f"{name} {op} {_shown(value)}"
    if kind == "COMPARE_BETWEEN":
        name = _compared(schema, node["input"])
        low, high = _constant(node["lower"]), _constant(node["upper"])
        attribute = schema.attribute(name)
        codes = _codes(attribute, ">=", low) & _codes(attribute, "<=", high)
        return name, codes, f"{name} between {_shown(low)} and {_shown(high)}"
    if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
        column, *listed = node["children"]
        name = _compared(schema, column)
        values = [_constant(v) for v in listed]
        attribute = schema.attribute(name)
        inside = frozenset[int]().union(*(_codes(attribute, "=", v) for v in values))
        text = f"in ({', '.join(map(_shown, values))})"
        if kind == "COMPARE_IN":
            return name, inside, f"{name} {text}"
        return name, frozenset(range(attribute.size)) - inside, f"{name} not {text}"
    if kind == "OPERATOR_NOT":
        (child,) = node["children"]
        if child["type"] in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
            return _missing(schema, _compared(schema, child["children"][0]), child["type"] != "OPERATOR_IS_NULL")
        if child["type"] == "COLUMN_REF":
            name = _column(schema, child)
            return name, _codes(schema.attribute(name), "=", False), f"not {name}"
        if child["type"] in (*_COMPARE, *_SAME, "COMPARE_BETWEEN", "COMPARE_IN"):
            name, codes, text = _condition(schema, child)
            rest = frozenset(range(schema.attribute(name).size)) - codes
            if child["type"] not in ("COMPARE_EQUAL", "COMPARE_IN", *_SAME):
                rest -= _other(schema.attribute(name))
            condition = text.removeprefix(f"{name} ")
            words = f"{name} not {condition}" if child["type"] != "COMPARE_EQUAL" else f"{name} <> {condition[2:]}"
            return name, rest, words
    if node["class"] == "SUBQUERY":
        raise Unsupported("SQL: subqueries cannot be asked; list the values with IN")
    raise Unsupported(
        "SQL: WHERE takes column = constant, <>, <, <=, >, >=, BETWEEN, IN, IS NULL with AND, OR and NOT; rewrite it"
    )


def _missing(schema: Schema, name: str, wanted: bool) -> tuple[str, frozenset[int], str]:
    """IS NULL and IS NOT NULL: among numbers and booleans `other` is missing, elsewhere it is the word."""
    attribute = schema.attribute(name)
    if attribute.other and None not in attribute.labels:
        asked = f"{name} {'=' if wanted else '<>'} '{OTHER}'"
        raise SpecError(f"SQL: missing values of {name!r} count as {OTHER!r}; ask {asked}")
    none = _other(attribute)
    codes = none if wanted else frozenset(range(attribute.size)) - none
    return name, codes, f"{name} is {'' if wanted else 'not '}null"


def _compared(schema: Schema, node: Node) -> str:
    if node["class"] != "COLUMN_REF":
        raise Unsupported("SQL: WHERE compares a column with constants; expressions cannot be asked")
    return _column(schema, node)


def _uncast(node: Node) -> Node:
    """A column that is taken for a boolean, as DuckDB does in `x IS TRUE`, is the column itself."""
    if node["class"] != "CAST" or node["child"]["class"] != "COLUMN_REF":
        return node
    kind = node.get("cast_type", {}).get("id") or node.get("type_expr", {}).get("type_name")
    child: Node = node["child"]
    return child if kind == "BOOLEAN" else node


def _constant(node: Node) -> Constant:
    """A literal, in either of the two ways DuckDB has printed them."""
    if node["class"] == "CONSTANT":
        if "literal" in node:
            kind, text = node["literal"]["kind"], node["literal"].get("text", "")
            if kind == "STRING":
                return str(text)
            if kind == "BOOLEAN":
                return str(text).lower() == "true"
            if kind == "INTEGER":
                return int(text)
            if kind == "NUMERIC":
                return float(text)
        elif not node["value"].get("is_null"):
            kind, value = node["value"]["type"]["id"], node["value"]["value"]
            if kind == "DECIMAL":
                return float(int(value) / 10 ** int(node["value"]["type"]["type_info"]["scale"]))
            if isinstance(value, str | int | float):
                return value
    if node["class"] == "FUNCTION" and node.get("function_name") == "-" and len(_arguments(node)) == 1:
        inner = _constant(_arguments(node)[0])
        if not isinstance(inner, str | bool):
            return -inner
    if node["class"] == "CAST" and node.get("cast_type", {}).get("id") == "BOOLEAN":
        inner = _constant(node["child"])
        if inner in ("t", "f"):
            return inner == "t"
    raise Unsupported("SQL: a column can only be compared with text, a number, true or false; write the constant out")


def _is_constant(node: Node) -> bool:
    try:
        _constant(node)
    except Unsupported:
        return False
    return True


def _shown(value: Constant) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else f"{value:g}"


def _other(attribute: Attribute) -> frozenset[int]:
    return frozenset({attribute.size - 1}) if attribute.other else frozenset()


def _codes(attribute: Attribute, op: str, value: Constant) -> frozenset[int]:
    """The codes whose every value satisfies the comparison; `other` equals only the word 'other'."""
    everything = frozenset(range(attribute.size))
    if op == "<>":
        return everything - _codes(attribute, "=", value)
    if op == "=" and value == OTHER and attribute.other:
        return _other(attribute)
    if attribute.bins is not None:
        return _bin_codes(attribute, op, value)
    known = list(attribute.labels)[: attribute.size - attribute.other]
    if isinstance(value, str) != isinstance(known[0], str) or isinstance(value, bool) != isinstance(known[0], bool):
        wanted = "text" if isinstance(known[0], str) else "true or false" if isinstance(known[0], bool) else "a number"
        raise SpecError(f"SQL: {attribute.name!r} must be compared with {wanted}, not with {_shown(value)}")
    codes = frozenset(i for i, label in enumerate(known) if _holds(label, op, value))
    if op == "=" and not codes:
        if attribute.range is not None:
            hint = f"it runs from {attribute.range[0]} to {attribute.range[1]}"
        else:
            hint = suggest(str(value), [str(v) for v in known])
        raise SpecError(f"SQL: {_shown(value)} is not a value of {attribute.name!r}; {hint}")
    return codes


def _holds(label: Any, op: str, value: Any) -> bool:
    return bool(
        {
            "=": label == value,
            "<": label < value,
            "<=": label <= value,
            ">": label > value,
            ">=": label >= value,
        }[op]
    )


def _bin_codes(attribute: Attribute, op: str, value: Constant) -> frozenset[int]:
    """A comparison with bins must be true of a whole bin or false of it."""
    labels = list(attribute.labels)
    if op == "=" and isinstance(value, str):
        if value not in labels:
            raise SpecError(f"SQL: {value!r} is not a bin of {attribute.name!r}; bins: {', '.join(map(str, labels))}")
        return frozenset({labels.index(value)})
    if isinstance(value, str | bool):
        raise SpecError(f"SQL: {attribute.name!r} has bins; compare it with a number, not with {_shown(value)}")
    assert attribute.bins is not None
    edges = attribute.bins
    codes = set()
    for i, (low, high) in enumerate(pairwise(edges)):
        closed = i == len(edges) - 2 and math.isfinite(high)
        verdict = _decide(op, float(value), low, high, closed)
        if verdict is None:
            raise SpecError(
                f"SQL: {attribute.name} {op} {_shown(value)} splits the bin {labels[i]}; a bin holds its left edge, so "
                f"compare with < or >= at an edge ({', '.join(f'{e:g}' for e in edges)}), or with = '{labels[i]}'"
            )
        if verdict:
            codes.add(i)
    return frozenset(codes)


def _decide(op: str, value: float, low: float, high: float, closed: bool) -> bool | None:
    """Whether all numbers of the bin satisfy the comparison (True), none (False), or only some (None)."""
    above = low >= value
    below = high < value or (high == value and not closed)
    if op == "<":
        return True if below else False if above else None
    if op == ">=":
        return True if above else False if below else None
    if op == "<=":
        return True if high <= value else False if low > value else None
    if op == ">":
        return True if low > value else False if high <= value else None
    return None if low <= value and not below else False


# -- HAVING ------------------------------------------------------------------------------------------


def _having(schema: Schema, node: Node, by: tuple[str, ...], number_of: Callable[[Node], int | None]) -> Shown:
    """Which rows are shown: comparisons of aggregates with numbers, and of grouped columns, with AND, OR and NOT.

    Aggregates are compared as they are answered, noise included. An average of nothing satisfies no comparison.
    """
    node = _inward(node)
    if node["type"] in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
        parts = [_having(schema, child, by, number_of) for child in node["children"]]
        together = all if node["type"] == "CONJUNCTION_AND" else any
        return lambda codes, numbers: together(part(codes, numbers) for part in parts)
    negated = node["type"] == "OPERATOR_NOT"
    inner = node["children"][0] if negated else node
    if inner["type"] == "COMPARE_BETWEEN" and number_of(inner["input"]) is not None:
        ends = ("COMPARE_GREATERTHANOREQUALTO", inner["lower"]), ("COMPARE_LESSTHANOREQUALTO", inner["upper"])
        compared = [{"type": kind, "left": inner["input"], "right": end} for kind, end in ends]
        both = {"type": "CONJUNCTION_AND", "children": compared}
        return _having(schema, {**node, "children": [both]} if negated else both, by, number_of)
    if inner["type"] in _COMPARE:
        op, left, right = _COMPARE[inner["type"]], inner["left"], inner["right"]
        if number_of(left) is None:
            op, left, right = _MIRRORED[op], right, left
        position = number_of(left)
        if position is not None:
            bound = _constant(right)
            if isinstance(bound, str | bool):
                raise SpecError(f"SQL: HAVING compares {_shown(bound)} with a number; write a number instead")
            op = _OPPOSITE[op] if negated else op
            return lambda _, numbers: not math.isnan(numbers[position]) and _compares(numbers[position], op, bound)
    name, kept, text = _condition(schema, node)
    if name not in by:
        raise SpecError(f"SQL: HAVING {text} is of a column that is not grouped; put it into WHERE")
    return lambda codes, _: codes[name] in kept


def _compares(number: float, op: str, bound: float) -> bool:
    return number != bound if op == "<>" else _holds(number, op, bound)


# -- ORDER BY and LIMIT ------------------------------------------------------------------------------


def _presentation(
    schema: Schema,
    node: Node,
    select: list[Any],
    positions: Mapping[int, int],
    titles: Mapping[str, int],
    names: list[str],
) -> tuple[tuple[tuple[int, bool], ...], int | None, int]:
    """How to show the result: positions among (columns, aggregates) to sort by, how many rows, and after how many."""
    order: list[tuple[int, bool]] = []
    limit: int | None = None
    offset = 0
    for modifier in node.get("modifiers", ()):
        if modifier["type"] == "ORDER_MODIFIER":
            for item in modifier["orders"]:
                index = _ordered(schema, item["expression"], select, titles)
                order.append((positions[index], "DESC" in item["type"]))
        elif modifier["type"] == "LIMIT_MODIFIER" and "PERCENT" not in modifier.get("limit_type", ""):
            if modifier.get("limit") is not None:
                limit = _row_count("LIMIT", modifier["limit"])
            if modifier.get("offset") is not None:
                offset = _row_count("OFFSET", modifier["offset"])
        else:
            raise Unsupported("SQL: LIMIT takes a whole number; leave out what is beside it")
    if len(set(names)) != len(names):
        raise SpecError("SQL: a column is selected twice; select it once")
    return tuple(order), limit, offset


def _row_count(word: str, node: Node) -> int:
    count = _constant(node)
    if not isinstance(count, int):
        raise Unsupported(f"SQL: {word} takes a whole number; leave it out")
    if count < 0:
        raise SpecError(f"SQL: {word} ({count}) must not be negative; leave it out")
    return count


def _ordered(schema: Schema, node: Node, select: list[Any], titles: Mapping[str, int]) -> int:
    if node["class"] == "CONSTANT":
        position = _constant(node)
        if isinstance(position, int) and 1 <= position <= len(select):
            return position - 1
    elif node["class"] == "COLUMN_REF":
        written = str(node["column_names"][-1])
        if written.lower() in titles:
            return titles[written.lower()]
        name = _column(schema, node)
        for i, expression in enumerate(select):
            if expression["class"] == "COLUMN_REF" and _column(schema, expression) == name:
                return i
    elif node["class"] == "FUNCTION":
        asked = _aggregate(schema, node)
        for i, expression in enumerate(select):
            if expression["class"] == "FUNCTION" and _aggregate(schema, expression) == asked:
                return i
    raise Unsupported(
        "SQL: ORDER BY takes a selected column, its number or its alias; leave it out and sort afterwards"
    )
