"""Conditions in SQL: which cells of which attributes satisfy WHERE."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.errors import SpecError, suggest
from dpjoin.spec.dates import DATE, part_of
from dpjoin.spec.schema import OTHER, Attribute, Schema, edge_text
from dpjoin.spec.sql_tree import Constant, Node, Unsupported, column, constant, constants
from dpjoin.spec.workload import MOST_VALUES

Mask = NDArray[np.bool_]
OF_SEVERAL = "SQL: OR cannot be asked of several columns; ask each case, add them, and take away what both have"

_COMPARE = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_NOT_DISTINCT_FROM": "=",
    "COMPARE_DISTINCT_FROM": "<>",
}
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"COMPARE_NOT_IN": "COMPARE_IN", "OPERATOR_IS_NOT_NULL": "OPERATOR_IS_NULL"}
_CONJUNCTIONS = {"CONJUNCTION_AND": "CONJUNCTION_OR", "CONJUNCTION_OR": "CONJUNCTION_AND"}


@dataclass(frozen=True, eq=False)
class Region:
    """The cells of some attributes that satisfy a condition, one axis per attribute, and the condition in words."""

    scope: tuple[str, ...]
    mask: Mask
    text: str

    def within(self, scope: Sequence[str]) -> Mask:
        """The same with an axis, of length one, for every further attribute; both scopes are in the schema's order."""
        return self.mask.reshape([self.mask.shape[self.scope.index(a)] if a in self.scope else 1 for a in scope])

    def along(self, attribute: str) -> Mask:
        """The values of one attribute that some cell has."""
        others = tuple(i for i, a in enumerate(self.scope) if a != attribute)
        return np.asarray(self.mask.any(axis=others))


def conjuncts(node: Node | None) -> Iterator[Node]:
    """The conditions that must all hold."""
    if node is None:
        return
    node = inward(node)
    if node["type"] == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from conjuncts(child)
    else:
        yield node


def inward(node: Node) -> Node:
    """NOT moves past AND, OR and another NOT, to a single comparison."""
    if node["type"] != "OPERATOR_NOT":
        return node
    (child,) = node["children"]
    if child["type"] == "OPERATOR_NOT":
        return inward(child["children"][0])
    if child["type"] not in _CONJUNCTIONS:
        return node
    return {
        **child,
        "type": _CONJUNCTIONS[child["type"]],
        "children": [{**node, "children": [c]} for c in child["children"]],
    }


def is_conjunction(node: Node) -> bool:
    return node["type"] in _CONJUNCTIONS


def region(schema: Schema, node: Node) -> Region:
    """What a condition asks of one attribute, or of several that OR brings together."""
    node = inward(node)
    if not is_conjunction(node):
        negated = node["type"] == "OPERATOR_NOT"
        return _comparison(schema, node["children"][0] if negated else node, negated)
    parts = [region(schema, child) for child in node["children"]]
    scope = schema.in_order(a for part in parts for a in part.scope)
    if schema.cells(scope) > MOST_VALUES:
        raise Unsupported(OF_SEVERAL)
    either = node["type"] == "CONJUNCTION_OR"
    mask = parts[0].within(scope)
    for part in parts[1:]:
        mask = mask | part.within(scope) if either else mask & part.within(scope)
    text = (" or " if either else " and ").join(part.text for part in parts)
    return Region(scope, mask, f"({text})")


def _comparison(schema: Schema, node: Node, negated: bool) -> Region:
    """One comparison of one column, or what does not satisfy it.

    In comparisons by order a missing value satisfies neither; elsewhere `other` is different from everything else.
    """
    kind = _NEGATED.get(node["type"], node["type"])
    negated = negated != (kind != node["type"])
    said = "not " if negated else ""
    unknown = False
    if kind == "COLUMN_REF":
        attribute = schema.attribute(column(schema, node))
        mask, text, unknown = _codes(attribute, "=", True), f"{said}{attribute.name}", True
    elif kind == "OPERATOR_IS_NULL":
        attribute = _compared(schema, node["children"][0])
        if attribute.other and None not in attribute.labels:
            asked = f"{attribute.name} {'<>' if negated else '='} '{OTHER}'"
            raise SpecError(f"SQL: missing values of {attribute.name!r} count as {OTHER!r}; ask {asked}")
        mask, text = _other(attribute), f"{attribute.name} is {said}null"
    elif kind in _COMPARE:
        op, left, right = _COMPARE[kind], _uncast(node["left"]), _uncast(node["right"])
        if left["class"] != "COLUMN_REF":
            op, left, right = _MIRRORED.get(op, op), right, left
        attribute, value = _compared(schema, left), constant(right)
        mask, unknown = _codes(attribute, op, value), op in _MIRRORED
        opposite = {"=": "<>", "<>": "="}.get(op, f"not {op}")
        text = f"{attribute.name} {opposite if negated else op} {_shown(value)}"
    elif kind == "COMPARE_BETWEEN":
        attribute, (low, high) = _compared(schema, node["input"]), constants([node["lower"], node["upper"]])
        mask, unknown = _codes(attribute, ">=", low) & _codes(attribute, "<=", high), True
        text = f"{attribute.name} {said}between {_shown(low)} and {_shown(high)}"
    elif kind == "COMPARE_IN":
        attribute, values = _compared(schema, node["children"][0]), constants(node["children"][1:])
        mask = np.logical_or.reduce([_codes(attribute, "=", v) for v in values])
        text = f"{attribute.name} {said}in ({', '.join(map(_shown, values))})"
    elif node["class"] == "SUBQUERY":
        raise Unsupported("SQL: subqueries cannot be asked; list the values with IN")
    else:
        raise Unsupported(
            "SQL: WHERE takes column = constant, <>, <, <=, >, >=, BETWEEN, IN, IS NULL with AND, OR and NOT; "
            "rewrite it"
        )
    if negated:
        mask = ~mask & ~_other(attribute) if unknown else ~mask
    return Region((attribute.name,), mask, text)


def _compared(schema: Schema, node: Node) -> Attribute:
    if node["class"] != "COLUMN_REF":
        raise Unsupported("SQL: WHERE compares a column with constants; expressions cannot be asked")
    return schema.attribute(column(schema, node))


def _uncast(node: Node) -> Node:
    """A column that is taken for a boolean, as DuckDB does in `x IS TRUE`, is the column itself."""
    if node["class"] != "CAST" or node["child"]["class"] != "COLUMN_REF":
        return node
    kind = node.get("cast_type", {}).get("id") or node.get("type_expr", {}).get("type_name")
    child: Node = node["child"]
    return child if kind == "BOOLEAN" else node


def _shown(value: Constant) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else edge_text(value)


def _other(attribute: Attribute) -> Mask:
    mask = np.zeros(attribute.size, dtype=np.bool_)
    mask[attribute.size - attribute.other :] = True
    return mask


def _codes(attribute: Attribute, op: str, value: Constant) -> Mask:
    """Where every value of a code satisfies the comparison; `other` equals only the word 'other'."""
    if op == "<>":
        return ~_codes(attribute, "=", value)
    if op == "=" and value == OTHER and attribute.other:
        return _other(attribute)
    if attribute.bins is not None:
        found = _bins(attribute, op, value)
    else:
        found = _values(attribute, op, value)
    return np.array([*found, False] if attribute.other else found, dtype=np.bool_)


def _values(attribute: Attribute, op: str, value: Constant) -> list[bool]:
    known: list[Any] = list(attribute.labels)[: attribute.size - attribute.other]
    if not known:
        return []
    if isinstance(value, str) != isinstance(known[0], str) or isinstance(value, bool) != isinstance(known[0], bool):
        wanted = "text" if isinstance(known[0], str) else "true or false" if isinstance(known[0], bool) else "a number"
        raise SpecError(f"SQL: {attribute.name!r} must be compared with {wanted}, not with {_shown(value)}")
    found = [_HOLDS[op](label, value) for label in known]
    if op == "=" and not any(found):
        if attribute.range is not None:
            hint = f"it runs from {attribute.told(attribute.range[0])} to {attribute.told(attribute.range[1])}"
        else:
            hint = suggest(str(value), [str(v) for v in known])
        raise SpecError(f"SQL: {_shown(value)} is not a value of {attribute.name!r}; {hint}")
    return found


def _bins(attribute: Attribute, op: str, value: Constant) -> list[bool]:
    """A comparison with bins must be true of a whole bin or false of it."""
    labels, edges = list(attribute.labels), attribute.bins or ()
    shown = _shown(value)
    if attribute.part == DATE and (day := part_of(DATE, value)) is not None and not isinstance(value, int):
        value = day
    if op == "=" and isinstance(value, str):
        if value not in labels:
            raise SpecError(f"SQL: {value!r} is not a bin of {attribute.name!r}; bins: {', '.join(map(str, labels))}")
        return [label == value for label in labels[: len(edges) - 1]]
    kind = "date" if attribute.part == DATE else "number"
    if isinstance(value, str | bool):
        raise SpecError(f"SQL: {attribute.name!r} has bins; compare it with a {kind}, not with {shown}")
    found = []
    for label, (low, high) in zip(labels, pairwise(edges), strict=False):
        last = high if high == edges[-1] and math.isfinite(high) else math.nextafter(high, -math.inf)
        ends = [_HOLDS[op](end, value) for end in (low, last)]
        if ends[0] != ends[1] or (op == "=" and low <= value <= last):
            raise Unsupported(
                f"SQL: {attribute.name} {op} {shown} splits the bin {label}; a bin holds its left edge, so "
                f"compare with < or >= at an edge ({', '.join(map(attribute.told, edges))}), or with = '{label}'"
            )
        found.append(ends[0])
    return found
