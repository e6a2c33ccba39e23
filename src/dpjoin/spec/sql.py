"""Counts, sums and averages over the join, asked in SQL.

DuckDB parses the statement; this module reads the tree and accepts exactly what linear queries, and ratios of two of
them, can say:

    SELECT [columns,] COUNT(*) | SUM(column) | AVG(column) [, …] FROM joined [WHERE …] [GROUP BY columns | ALL]

where WHERE compares declared attributes with constants, with AND, OR and NOT. A workload holds OR within one attribute
only; a release is asked it across several. HAVING, ORDER BY and LIMIT become a statement over the answers, which DuckDB
runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.errors import SpecError
from dpjoin.spec.schema import OTHER, Attribute, Schema
from dpjoin.spec.sql_conditions import OF_SEVERAL, Region, conjuncts, inward, is_conjunction, region
from dpjoin.spec.sql_tree import (
    ACCEPTED,
    Node,
    Unsupported,
    arguments,
    column,
    constant,
    expression,
    is_constant,
    matching,
    parsed,
    rows_of,
    select_node,
    walk,
    written,
)
from dpjoin.spec.workload import CELLS, MOST_VALUES, Average, Factor, Kronecker, Masked, amounts, kronecker, where

_COLUMNS_ONLY = "SQL: GROUP BY takes columns only; put the grouping into the attribute's values or bins"
_ANSWERS = "SELECT row FROM answers"


@dataclass(frozen=True)
class Measure:
    """One aggregate of a statement: what to call it, and the group of queries or averages it stands for."""

    title: str
    asked: Kronecker | Average
    of: str | None = None
    """The column that is summed or averaged."""
    bins: Kronecker | None = None
    """Where only bins of that column are known: the rows in each."""
    halves: tuple[float, ...] = ()
    """Half the width of each of those bins."""


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
    presented: str | None = None
    """Which rows to show, in which order: SQL over the table `answers`, whose columns are `row`, the codes of the
    grouped attributes (c0, c1, …) and the numbers of `measures` and `hidden` (n0, n1, …)."""
    hidden: tuple[Measure, ...] = ()
    """What `presented` looks at and the statement does not select."""


def parse_groups(schema: Schema, statement: str) -> list[Kronecker]:
    """The groups of queries that a statement asks for, one per aggregate; averages are none."""
    groups = []
    for measure in parse_measures(schema, statement):
        asked = measure.asked
        if isinstance(asked, Average):
            other = f" WHERE {asked.attribute} <> '{OTHER}'" if schema.attribute(asked.attribute).other else ""
            raise Unsupported(
                f"SQL: AVG cannot be in a workload; put SUM({asked.attribute}) and COUNT(*){other} there, and ask the "
                "release for AVG"
            )
        if isinstance(asked, Masked):
            raise Unsupported(OF_SEVERAL)
        groups.append(asked)
    return groups


def parse_measures(schema: Schema, statement: str) -> list[Measure]:
    """The aggregates that a statement asks for, with no cells left out and in no other order."""
    query = read_query(schema, statement)
    for attribute in query.kept:
        raise Unsupported(
            f"SQL: {attribute!r} is both grouped and filtered; leave the filter out here and filter the answers"
        )
    if query.presented is not None:
        raise Unsupported("SQL: HAVING, ORDER BY and LIMIT cannot be asked here; leave them out and sort the answers")
    return list(query.measures)


def read_query(schema: Schema, statement: str) -> Query:
    """Understand a statement, or say what in it cannot be asked."""
    node = select_node(statement, [a.name for a in schema.attributes if not a.key])
    select = list(node["select_list"])
    columns = {i: column(schema, e) for i, e in enumerate(select) if e["class"] == "COLUMN_REF"}
    if len(columns) == len(select):
        if node.get("group_expressions"):
            raise Unsupported(f"SQL: the statement asks for no COUNT(*), SUM(column) or AVG(column); {ACCEPTED}")
        raise Unsupported(f"SQL: columns alone ask for rows, not for numbers; {ACCEPTED}, or draw rows with synthesize")
    if len(set(columns.values())) < len(columns):
        raise SpecError("SQL: a column is selected twice; select it once")
    by = _grouped(schema, node, select, list(columns.values()))
    asked = _Asked(schema, by, *_filters(schema, node.get("where_clause"), by))
    measures = [asked.measure(e) for i, e in enumerate(select) if i not in columns]
    shown = tuple(dict.fromkeys([*columns.values(), *by]))
    called = {name: str(select[i].get("alias") or name) for i, name in columns.items()}
    presented = _presented(node, select, shown, asked)
    hidden = tuple(asked.measures[len(measures) :])
    return Query(shown, tuple(called.get(a, a) for a in shown), tuple(measures), asked.kept, presented, hidden)


def columns_of(schema: Schema, statement: str) -> tuple[str, ...]:
    """The declared attributes that a statement names anywhere, subqueries included, in the order of declaration."""
    found = (e["column_names"][-1] for e in walk(parsed(statement)) if e["class"] == "COLUMN_REF")
    return schema.in_order(a for a in (matching(schema, str(name)) for name in found) if a)


def _grouped(schema: Schema, node: Node, select: list[Any], names: list[str]) -> tuple[str, ...]:
    """The attributes of GROUP BY, from names, aliases and positions."""
    if node.get("aggregate_handling") == "FORCE_AGGREGATES":
        return tuple(names)
    aliased = {e["alias"].lower(): e for e in select if e.get("alias")}
    by: list[str] = []
    for item in node.get("group_expressions", ()):
        chosen = item
        if item["class"] == "CONSTANT":
            position = constant(item)
            if not isinstance(position, int) or not 1 <= position <= len(select):
                raise SpecError(f"SQL: GROUP BY {position} must be the number of a selected column; name the column")
            chosen = select[position - 1]
        elif item["class"] == "COLUMN_REF":
            name = str(item["column_names"][-1])
            named = aliased.get(name.lower(), item)
            if named["class"] == "COLUMN_REF" or matching(schema, name) is None:
                chosen = named
        if chosen["class"] != "COLUMN_REF":
            raise Unsupported(_COLUMNS_ONLY)
        by.append(column(schema, chosen))
    for name in names:
        if name not in by:
            raise SpecError(f"SQL: {name!r} is selected and not grouped; add GROUP BY {', '.join([*by, name])}")
    return tuple(dict.fromkeys(by))


def _filters(
    schema: Schema, condition: Node | None, by: tuple[str, ...]
) -> tuple[dict[str, frozenset[int]], list[Region], list[str], dict[str, frozenset[int]]]:
    """WHERE taken apart: codes of single attributes, cells of several, words, and what to show of grouped ones.

    A group has one matrix per attribute, so a grouped attribute's cells are all asked and some not shown.
    """
    found = [region(schema, c) for c in conjuncts(condition)]
    filters: dict[str, frozenset[int]] = {}
    for part in found:
        for a in part.scope if len(part.scope) == 1 else set(by).intersection(part.scope):
            codes = frozenset(np.flatnonzero(part.along(a)).tolist())
            filters[a] = filters.get(a, codes) & codes
    for part in found:
        asked = " AND ".join(p.text for p in found if p.scope == part.scope)
        if len(part.scope) == 1 and not filters[part.scope[0]]:
            raise SpecError(f"SQL: no value of {part.scope[0]!r} satisfies WHERE {asked}; correct it")
        if not part.mask.any():
            raise SpecError(f"SQL: nothing satisfies WHERE {part.text}; correct it")
    kept = {a: filters.pop(a) for a in by if a in filters}
    words = [p.text for p in found if len(p.scope) > 1 or p.scope[0] not in kept]
    return filters, [p for p in found if len(p.scope) > 1], words, kept


@dataclass
class _Asked:
    """The groups of queries of a statement, as its aggregates are read one after the other."""

    schema: Schema
    by: tuple[str, ...]
    filters: Mapping[str, frozenset[int]]
    regions: list[Region]
    words: list[str]
    kept: Mapping[str, frozenset[int]]
    measures: list[Measure] = field(default_factory=list)
    _known: list[tuple[str, str | None]] = field(default_factory=list)

    def number(self, node: Node) -> int:
        """Which of the measures an aggregate is; one that was not asked yet is asked now."""
        wanted = _aggregate(self.schema, node)
        if wanted not in self._known:
            self.measure(node)
        return self._known.index(wanted)

    def measure(self, node: Node) -> Measure:
        function, of = _aggregate(self.schema, node)
        title = {"count": "count", "sum": f"sum of {of}", "avg": f"average of {of}"}[function]
        asked: Kronecker | Average
        if of is None:
            asked = self._group(title, {})
        elif of in self.by:
            what = "a count times a constant" if function == "sum" else f"{of} itself"
            raise Unsupported(f"SQL: {function.upper()}({of}) GROUP BY {of} is {what}; ask COUNT(*)")
        else:
            asked = self._sum(title, of) if function == "sum" else self._average(title, of)
        made = Measure(str(node.get("alias") or title), asked, of, *self._bins(title, of))
        self.measures.append(made)
        self._known.append((function, of))
        return made

    def _group(self, title: str, more: Mapping[str, Factor]) -> Kronecker:
        factors = {a: where(self.schema, a, codes) for a, codes in self.filters.items()}
        for a in (a for part in self.regions for a in part.scope if a not in factors):
            factors[a] = where(self.schema, a, range(self.schema.attribute(a).size))
        factors |= dict.fromkeys(self.by, CELLS) | dict(more)
        name = None
        if factors.keys() - set(self.by) or self.regions:
            name = title + (f" by {', '.join(self.by)}" if self.by else "")
            name += f" where {' and '.join(self.words)}" if self.words else ""
        whole = kronecker(self.schema, factors, name=name)
        if not self.regions:
            return whole
        mask = np.ones((1,) * len(whole.scope), dtype=np.bool_)
        for part in self.regions:
            mask = mask & part.within(whole.scope)
        if mask.size > MOST_VALUES:
            raise Unsupported(OF_SEVERAL)
        return Masked(whole.name, whole.scope, whole.factors, whole.shape, mask)

    def _bins(self, title: str, of: str | None) -> tuple[Kronecker | None, tuple[float, ...]]:
        """The rows in each bin of a column that is summed, and half the width of each."""
        edges = self.schema.attribute(of).bins if of is not None else None
        if of is None or edges is None:
            return None, ()
        kept = [i for i in range(len(edges) - 1) if i in self.filters.get(of, (i,))]
        rows = np.eye(self.schema.attribute(of).size, dtype=np.int64)[kept]
        halves = tuple((edges[i + 1] - edges[i]) / 2 for i in kept)
        return self._group(title, {of: Factor("rows", packed=rows.tobytes())}), halves

    def _amounts(self, of: str) -> Factor:
        """What a sum adds up, where the column is filtered itself only what the filter keeps."""
        weights = amounts(self.schema, of)
        kept = self.filters.get(of, range(len(weights.row)))
        return Factor("weights", tuple(w if i in kept else 0 for i, w in enumerate(weights.row)), weights.unit)

    def _sum(self, title: str, of: str) -> Kronecker:
        weights = self._amounts(of)
        if not any(weights.row):
            raise SpecError(f"SQL: SUM({of}) is always 0 here; leave it out")
        return self._group(title, {of: weights})

    def _average(self, title: str, of: str) -> Average:
        """A sum over a count of the rows with a known value: what is missing has no say in an average."""
        attribute = self.schema.attribute(of)
        try:
            weights = self._amounts(of)
        except SpecError as error:
            reason = str(error).partition(";")[0].replace("summed", "averaged")
            raise SpecError(f"SQL: {reason}; ask SELECT {of}, COUNT(*) FROM joined GROUP BY {of}") from None
        known = range(attribute.size - attribute.other)
        kept = [i for i in known if i in self.filters.get(of, known)]
        if not kept:
            raise SpecError(f"SQL: AVG({of}) has no values here, only {OTHER!r}; ask COUNT(*)")
        values = [float(weights.row[i] * weights.unit) for i in kept]
        total, count = (self._group(title, {of: f}) for f in (weights, where(self.schema, of, kept)))
        return Average(of, total=total, count=count, low=min(values), high=max(values))


def _aggregate(schema: Schema, node: Node) -> tuple[str, str | None]:
    """Which aggregate is asked ("count", "sum" or "avg"), and of which attribute; None for a count."""
    if node["class"] == "STAR":
        raise Unsupported(f"SQL: SELECT * asks for rows, not for numbers; {ACCEPTED}, or draw rows with synthesize")
    if node["class"] == "WINDOW":
        raise Unsupported("SQL: window functions cannot be asked; ask the counts and compute on the answers")
    if node["class"] != "FUNCTION" or node.get("is_operator"):
        raise Unsupported("SQL: expressions cannot be asked; select columns, COUNT(*) or SUM(column), then compute")
    function, inner = str(node["function_name"]).lower(), arguments(node)
    shown = "COUNT(*)" if function == "count_star" else f"{function.upper()}(…)"
    if node.get("distinct"):
        raise Unsupported(f"SQL: DISTINCT inside {shown} cannot be asked; count with GROUP BY instead")
    if node.get("filter") is not None:
        raise Unsupported(f"SQL: FILTER after {shown} cannot be asked; put the condition into WHERE")
    if function == "count_star" or (function == "count" and (not inner or is_constant(inner[0]))):
        return "count", None
    named = column(schema, inner[0]) if inner and inner[0]["class"] == "COLUMN_REF" else None
    if function == "count":
        if named is not None and None not in schema.attribute(named).labels:
            return "count", None
        # Among numbers and booleans `other` is missing, and is not counted.
        apart = "" if named is None or not schema.attribute(named).other else f" WHERE {named} <> '{OTHER}'"
        raise Unsupported(f"SQL: COUNT(column) cannot be asked; ask COUNT(*){apart}")
    if function not in ("sum", "avg", "mean"):
        raise Unsupported(f"SQL: {function.upper()} cannot be asked; only COUNT(*), SUM(column) and AVG(column) can")
    if len(inner) != 1 or named is None:
        raise Unsupported(
            f"SQL: {function.upper()} takes one column, not an expression; declare an attribute for what it should take"
        )
    return ("sum" if function == "sum" else "avg"), named


# -- HAVING, ORDER BY and LIMIT ----------------------------------------------------------------------


def _presented(node: Node, select: list[Any], shown: tuple[str, ...], asked: _Asked) -> str | None:
    """HAVING, ORDER BY and LIMIT as a statement over the answers, noise included; None where there are none of them."""
    if node.get("having") is None and not node.get("modifiers"):
        return None
    aliased = {e["alias"].lower(): e for e in select if e.get("alias")}

    def translated(tree: Any) -> Any:
        """The tree with aggregates and grouped columns replaced by the columns of the answers."""
        if isinstance(tree, list):
            return [translated(child) for child in tree]
        if not isinstance(tree, Mapping):
            return tree
        if tree.get("class") == "COLUMN_REF":
            written_as = str(tree["column_names"][-1])
            named = aliased.get(written_as.lower(), tree)
            if named is not tree and (named["class"] != "COLUMN_REF" or matching(asked.schema, written_as) is None):
                return translated(named)
            name = column(asked.schema, tree)
            if name not in shown:
                raise SpecError(f"SQL: {name!r} is a column that is not grouped; put it into GROUP BY or WHERE")
            return expression(f"v{shown.index(name)}")
        if tree.get("class") in ("FUNCTION", "WINDOW", "STAR") and not (tree.get("is_operator") or is_constant(tree)):
            return expression(f"n{asked.number(tree)}")
        return {key: translated(child) for key, child in tree.items()}

    def condition(tree: Node) -> Node:
        """HAVING with conditions on columns replaced by their codes."""
        tree = inward(tree)
        if is_conjunction(tree):
            return {**tree, "children": [condition(child) for child in tree["children"]]}
        if any(e["class"] == "FUNCTION" and not is_constant(e) for e in walk(tree)) or any(
            e["class"] == "COLUMN_REF" and matching(asked.schema, str(e["column_names"][-1])) is None
            for e in walk(tree)
        ):
            found: Node = translated(tree)
            return found
        part = region(asked.schema, tree)
        if part.scope[0] not in shown:
            raise SpecError(f"SQL: HAVING {part.text} is of a column that is not grouped; put it into WHERE")
        codes = np.flatnonzero(part.mask).tolist()
        return expression(f"c{shown.index(part.scope[0])} IN ({', '.join(map(str, codes or [-1]))})")

    parts: dict[str, Any] = {}
    if node.get("having") is not None:
        parts["where_clause"] = condition(node["having"])
    orders = []
    modifiers = []
    for modifier in node.get("modifiers", ()):
        if modifier["type"] != "ORDER_MODIFIER":
            modifiers.append(modifier)
            continue
        for item in modifier["orders"]:
            chosen = item["expression"]
            if chosen["class"] == "CONSTANT":
                position = constant(chosen)
                if not isinstance(position, int) or not 1 <= position <= len(select):
                    raise SpecError(f"SQL: ORDER BY {position} must be the number of a selected column")
                chosen = select[position - 1]
            orders.append({**item, "expression": translated(chosen)})
    # Ties stay in the order of the codes.
    by_row = parsed(f"{_ANSWERS} ORDER BY row")["statements"][0]["node"]["modifiers"][0]
    parts["modifiers"] = [{**by_row, "orders": [*orders, *by_row["orders"]]}, *modifiers]
    presented = written(_ANSWERS, **parts)
    # DuckDB finds what is wrong when it meets a row.
    attributes = [asked.schema.attribute(a) for a in shown]
    rows_shown(presented, attributes, [np.zeros(1, int)] * len(shown), [np.zeros(1)] * len(asked.measures))
    return presented


def rows_shown(
    presented: str, attributes: Sequence[Attribute], codes: Sequence[NDArray[Any]], numbers: Sequence[NDArray[Any]]
) -> list[int]:
    """Which rows of the answers a statement shows, in its order: text by its letters, and what is missing last, as
    DuckDB has it."""
    import pyarrow as pa

    table: dict[str, Any] = {"row": np.arange(len(numbers[0]))} | {f"c{i}": c for i, c in enumerate(codes)}
    for i, (attribute, code) in enumerate(zip(attributes, codes, strict=True)):
        known: list[Any] = list(range(attribute.size) if attribute.bins is not None else attribute.labels)
        if attribute.other and not attribute.texts:
            known[-1] = None
        table[f"v{i}"] = pa.array([known[c] for c in code])
    table |= {f"n{i}": pa.array(n, from_pandas=True) for i, n in enumerate(numbers)}
    return [row for (row,) in rows_of(presented, answers=pa.table(table))]
