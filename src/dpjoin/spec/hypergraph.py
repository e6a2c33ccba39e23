"""Public facts of a join: boundaries, components, join trees and attribute trees.

A join is a hypergraph H = (x, {x_1 … x_m}): its vertices are the attributes, its edges the tables.
Everything here is a function of the `Schema` alone; no row is ever looked at.
Sets of tables are frozensets of names, and answers keep the order in which the schema declares things.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from dpjoin.spec.schema import Schema

# Boundaries and components


def boundary(schema: Schema, tables: frozenset[str]) -> tuple[str, ...]:
    """The attributes that these tables share with tables outside (∂E)."""
    inside = _attributes(schema, tables)
    outside = _attributes(schema, (t.name for t in schema.tables if t.name not in tables))
    return schema.in_order(inside & outside)


def residual_components(schema: Schema, tables: frozenset[str]) -> tuple[frozenset[str], ...]:
    """The connected parts of these tables once their boundary attributes are removed (C_E).

    A table that has no attribute left is a part of its own.
    """
    fixed = frozenset(boundary(schema, tables))
    return _parts({name: _attributes(schema, [name]) - fixed for name in _listed(schema, tables)})


def components(schema: Schema) -> tuple[frozenset[str], ...]:
    """The connected parts of the whole join; the join is their cross product."""
    return residual_components(schema, frozenset(t.name for t in schema.tables))


def _listed(schema: Schema, tables: Iterable[str]) -> tuple[str, ...]:
    """The tables in the order of declaration; an unknown name is an error."""
    wanted = {schema.table(name).name for name in tables}
    return tuple(t.name for t in schema.tables if t.name in wanted)


def _attributes(schema: Schema, tables: Iterable[str]) -> frozenset[str]:
    return frozenset(a for name in tables for a in schema.table(name).attributes)


def _parts(edges: Mapping[str, frozenset[str]]) -> tuple[frozenset[str], ...]:
    """The connected parts of a hypergraph, the part of the first table first."""
    left, found = list(edges), []
    while left:
        part, reached = [left.pop(0)], set[str]()
        for name in part:  # grows while it is read
            reached |= edges[name]
            part += [other for other in left if edges[other] & reached]
            left = [other for other in left if other not in part]
        found.append(frozenset(part))
    return tuple(found)


# Acyclic joins


def join_tree(schema: Schema) -> tuple[tuple[str, str | None], ...] | None:
    """(table, parent) in the order of GYO elimination, or None if the join is cyclic.

    A table can be eliminated when one other remaining table holds all it shares with the remaining ones;
    that table is its parent. A table that shares nothing with the rest is the root of its part (parent None).
    Postcondition: the tables that hold one attribute are connected in the tree (running intersection).
    Later tables are eliminated first and prefer the earliest parent, so trees are rooted early and stay flat.
    """
    order, core = _eliminate(schema)
    return None if core else order


def is_acyclic(schema: Schema) -> bool:
    """Whether the join has a join tree (α-acyclic)."""
    return join_tree(schema) is not None


def cyclic_core(schema: Schema) -> frozenset[str]:
    """The tables that GYO elimination cannot remove: none for an acyclic join.

    The core holds every cycle, and also the tables that lie between two cycles.
    """
    return _eliminate(schema)[1]


def _eliminate(schema: Schema) -> tuple[tuple[tuple[str, str | None], ...], frozenset[str]]:
    left = {t.name: frozenset(t.attributes) for t in schema.tables}
    order: list[tuple[str, str | None]] = []
    while ear := _ear(left):
        order.append(ear)
        del left[ear[0]]
    return tuple(order), frozenset(left)


def _ear(left: dict[str, frozenset[str]]) -> tuple[str, str | None] | None:
    """The last table that can be eliminated, with its parent."""
    holders = Counter(a for attributes in left.values() for a in attributes)
    for name, attributes in reversed(left.items()):
        shared = {a for a in attributes if holders[a] > 1}
        if not shared:
            return name, None
        for other, held in left.items():
            if other != name and shared <= held:
                return name, other
    return None


# Hierarchical joins


@dataclass(frozen=True, kw_only=True)
class AttributeNode:
    """A node of the attribute tree of a hierarchical join.

    Attributes with the same tables form one node, since they always share their degrees.
    Every table is the path from the root to one leaf, and every leaf belongs to one table.
    """

    attributes: tuple[str, ...]
    """The node's own attributes; none at a virtual node."""
    path: tuple[str, ...]
    """The attributes of the node and of the nodes above it, in the order of the schema."""
    tables: frozenset[str]
    """The tables that hold the node (atom)."""
    children: tuple[AttributeNode, ...] = ()

    @property
    def virtual(self) -> bool:
        """Whether the node has no attribute: the root of a disconnected join, or the leaf of a fully shared table."""
        return not self.attributes

    def walk(self) -> Iterator[AttributeNode]:
        """This node and all below it, from the top."""
        yield self
        for child in self.children:
            yield from child.walk()


def is_hierarchical(schema: Schema) -> bool:
    """Whether the table sets of every two attributes are nested or disjoint."""
    return all(a <= b or b <= a or not a & b for a, b in combinations(_holders(schema), 2))


def attribute_tree(schema: Schema) -> AttributeNode | None:
    """The attribute tree of a hierarchical join; None if the join is not hierarchical.

    Two kinds of virtual node complete the paper's tree. A table whose attributes are all shared gets a
    leaf of its own with path x_j; its degree there is the multiplicity of a row.
    A disconnected join gets a root without attributes, whose children are the roots of its components.
    """
    if not is_hierarchical(schema):
        return None
    holders, everything = _holders(schema), frozenset(t.name for t in schema.tables)
    return _node(schema, holders, everything, (), holders.get(everything, ()))


def _holders(schema: Schema) -> dict[frozenset[str], tuple[str, ...]]:
    """Which attributes each occurring set of tables has in common: attributes with equal sets are merged."""
    merged: dict[frozenset[str], tuple[str, ...]] = {}
    for attribute in schema.attributes:
        tables = frozenset(schema.tables_with(attribute.name))
        merged[tables] = (*merged.get(tables, ()), attribute.name)
    return merged


def _node(
    schema: Schema,
    holders: Mapping[frozenset[str], tuple[str, ...]],
    tables: frozenset[str],
    above: tuple[str, ...],
    attributes: tuple[str, ...],
) -> AttributeNode:
    path = schema.in_order((*above, *attributes))
    if len(tables) == 1:
        return AttributeNode(attributes=attributes, path=path, tables=tables)
    inner = [s for s in holders if s < tables]
    largest = [s for s in inner if not any(s < other for other in inner)]
    fully_shared = tables.difference(*largest)
    groups = [*largest, *(frozenset({name}) for name in fully_shared)]
    place = {t.name: i for i, t in enumerate(schema.tables)}
    groups.sort(key=lambda s: min(place[name] for name in s))
    children = tuple(_node(schema, holders, s, path, holders.get(s, ())) for s in groups)
    return AttributeNode(attributes=attributes, path=path, tables=tables, children=children)


# Words and pictures


def join_class(schema: Schema) -> str:
    """The most specific of: one table, disconnected, two tables, star, path, hierarchical, acyclic, cyclic.

    In a star every two tables share the same attributes; in a path the tables lie in a line and share
    attributes with their neighbours only.
    """
    if len(schema.tables) == 1:
        return "one table"
    if len(components(schema)) > 1:
        return "disconnected"
    if len(schema.tables) == 2:
        return "two tables"
    pairs = list(combinations(schema.tables, 2))
    if len({frozenset(a.attributes) & frozenset(b.attributes) for a, b in pairs}) == 1:
        return "star"
    joined = _joined_pairs(schema)
    degrees = Counter(name for pair in joined for name in pair[:2])
    if len(joined) == len(schema.tables) - 1 and max(degrees.values()) == 2:
        return "path"
    if is_hierarchical(schema):
        return "hierarchical"
    return "acyclic" if is_acyclic(schema) else "cyclic"


def describe_join(schema: Schema) -> str:
    """The tables and what they join on, in one line."""
    names = [t.name for t in schema.tables]
    if len(names) == 1:
        return f"one table: {names[0]}"
    on = ", ".join(schema.join_attributes)
    return f"{' ⋈ '.join(names)} on {on}" if on else f"{' × '.join(names)} (no shared attribute: every pair of rows)"


def drawing(schema: Schema) -> str:
    """The join in lines of text.

    An acyclic join is drawn as its join tree, every edge with the attributes it shares; a cyclic join becomes a list of
    edges, with the tables of its cyclic part.

    >>> from dpjoin.spec.schema import Attribute, Table
    >>> a, b, c, d = (Attribute(name=n, key=True) for n in "abcd")
    >>> r, s, t = (Table(name=n, attributes=tuple(x)) for n, x in (("r", "ab"), ("s", "bc"), ("t", "cd")))
    >>> print(drawing(Schema((r, s, t), (a, b, c, d))))
    r
    └─ s  on b
       └─ t  on c
    >>> print(drawing(Schema((r, s, Table(name="t", attributes=("a", "c"))), (a, b, c))))
    r ─ s  on b
    r ─ t  on a
    s ─ t  on c
    cyclic part: r, s, t
    """
    tree = join_tree(schema)
    if tree is None:
        lines = [f"{a} ─ {b}  on {', '.join(shared)}" for a, b, shared in _joined_pairs(schema)]
        lines += [name for part in components(schema) if len(part) == 1 for name in part]
        core = {name: _attributes(schema, [name]) for name in _listed(schema, cyclic_core(schema))}
        lines += [f"cyclic part: {', '.join(_listed(schema, part))}" for part in _parts(core)]
    else:
        parents = dict(tree)
        children = {t.name: [s.name for s in schema.tables if parents[s.name] == t.name] for t in schema.tables}
        roots = [t.name for t in schema.tables if parents[t.name] is None]
        lines = [line for r in roots for line in (r, *_branches(schema, children, r, ""))]
    return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)


def _branches(schema: Schema, children: Mapping[str, list[str]], name: str, indent: str) -> Iterator[str]:
    """One line per table below this one."""
    for child in children[name]:
        last = child == children[name][-1]
        yield f"{indent}{'└' if last else '├'}─ {child}  on {', '.join(_shared(schema, name, child))}"
        yield from _branches(schema, children, child, f"{indent}{' ' if last else '│'}  ")


def _joined_pairs(schema: Schema) -> list[tuple[str, str, tuple[str, ...]]]:
    """Every two tables that share attributes, with what they share."""
    names = [t.name for t in schema.tables]
    return [(a, b, shared) for a, b in combinations(names, 2) if (shared := _shared(schema, a, b))]


def _shared(schema: Schema, a: str, b: str) -> tuple[str, ...]:
    return schema.in_order(_attributes(schema, [a]) & _attributes(schema, [b]))
