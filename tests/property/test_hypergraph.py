"""Facts of joins that follow from the schema alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from dpjoin.spec.hypergraph import (
    attribute_tree,
    boundary,
    components,
    drawing,
    is_acyclic,
    is_hierarchical,
    join_class,
    join_tree,
    residual_components,
)
from dpjoin.spec.schema import Schema
from dpjoin.theory.exponents import cover_and_packing
from support.hypergraph import joins


@given(joins(), st.integers(0, 31))
def test_boundary_is_the_definition(schema: Schema, mask: int) -> None:
    """∂E holds x exactly when a table of E and a table outside E both have it."""
    inside = frozenset(t.name for i, t in enumerate(schema.tables) if mask >> i & 1)
    expected = {
        x
        for i in schema.tables
        for j in schema.tables
        for x in i.attributes
        if i.name in inside and j.name not in inside and x in j.attributes
    }
    assert boundary(schema, inside) == tuple(sorted(expected))


@given(joins(), st.integers(0, 31))
def test_residual_components_are_the_finest_split(schema: Schema, mask: int) -> None:
    """Two tables are in one component exactly when a chain of shared non-boundary attributes leads between them."""
    inside = frozenset(t.name for i, t in enumerate(schema.tables) if mask >> i & 1)
    fixed = set(boundary(schema, inside))
    left = {n: set(schema.table(n).attributes) - fixed for n in inside}
    linked = {(a, b) for a in inside for b in inside if a == b or left[a] & left[b]}
    for k in inside:  # Warshall's closure
        linked |= {(a, b) for a in inside for b in inside if (a, k) in linked and (k, b) in linked}
    parts = residual_components(schema, inside)
    assert sorted(n for p in parts for n in p) == sorted(inside)
    assert linked == {(a, b) for p in parts for a in p for b in p}


@given(joins())
def test_join_tree_has_the_running_intersection(schema: Schema) -> None:
    """Every attribute's tables are connected in the tree: all but one of them have it in common with their parent."""
    tree = join_tree(schema)
    if tree is None:
        return
    place = {name: i for i, (name, _) in enumerate(tree)}
    assert sorted(place) == sorted(t.name for t in schema.tables)
    assert all(parent is None or place[name] < place[parent] for name, parent in tree)
    for attribute in schema.attributes:
        holders = schema.tables_with(attribute.name)
        assert sum(parent not in holders for name, parent in tree if name in holders) == 1
    assert sum(parent is None for _, parent in tree) == len(components(schema))


@given(joins())
def test_acyclic_joins_are_those_with_a_heavy_spanning_tree(schema: Schema) -> None:
    """A join is acyclic exactly when a spanning tree of shared attributes weighs Σ(tables of an attribute - 1)."""
    weight = {
        (a.name, b.name): len(set(a.attributes) & set(b.attributes))
        for a, b in itertools.combinations(schema.tables, 2)
    }
    part = {t.name: t.name for t in schema.tables}
    total = 0
    for a, b in sorted(weight, key=lambda pair: -weight[pair]):  # Kruskal's rule
        if part[a] != part[b]:
            total += weight[a, b]
            part = {n: part[b] if p == part[a] else p for n, p in part.items()}
    assert is_acyclic(schema) == (total == sum(len(schema.tables_with(a.name)) - 1 for a in schema.attributes))


@given(joins(letters="ABCD"))
def test_every_table_is_one_path_of_the_attribute_tree(schema: Schema) -> None:
    """Leaves and tables match one to one, with equal attributes; each attribute is at one node with its tables."""
    tree = attribute_tree(schema)
    assert (tree is not None) == is_hierarchical(schema)
    if tree is None:
        return
    assert is_acyclic(schema)
    leaves = [n for n in tree.walk() if not n.children]
    assert sorted((*n.tables, n.path) for n in leaves) == sorted(
        (t.name, schema.in_order(t.attributes)) for t in schema.tables
    )
    placed = {a: n.tables for n in tree.walk() for a in n.attributes}
    assert placed == {a.name: frozenset(schema.tables_with(a.name)) for a in schema.attributes}
    assert sum(len(n.attributes) for n in tree.walk()) == len(schema.attributes)
    for node in tree.walk():
        assert not node.children or node.tables == frozenset().union(*(c.tables for c in node.children))


def _least(rows: list[list[int]], variables: int) -> Fraction:
    """min Σw with w ≥ 0 and Σ_{i∈row} w_i ≥ 1, by visiting every corner in exact arithmetic."""
    planes = [([Fraction(int(i in r)) for i in range(variables)], Fraction(1)) for r in rows]
    planes += [([Fraction(int(i == k)) for i in range(variables)], Fraction(0)) for k in range(variables)]
    corners = (_solve(chosen) for chosen in itertools.combinations(planes, variables))
    fits = (w for w in corners if w and all(sum(map(lambda a, b: a * b, p, w)) >= v for p, v in planes))
    return min(sum(w, Fraction(0)) for w in fits)


def _greatest(rows: list[list[int]], variables: int) -> Fraction:
    """max Σw with w ≥ 0 and Σ_{i∈row} w_i ≤ 1, by visiting every corner in exact arithmetic."""
    upper = [([Fraction(int(i in r)) for i in range(variables)], Fraction(1)) for r in rows]
    lower = [([Fraction(int(i == k)) for i in range(variables)], Fraction(0)) for k in range(variables)]
    corners = (_solve(chosen) for chosen in itertools.combinations(upper + lower, variables))
    fits = (w for w in corners if w and min(w) >= 0 and all(sum(map(lambda a, b: a * b, p, w)) <= 1 for p, _ in upper))
    return max(sum(w, Fraction(0)) for w in fits)


def _solve(planes: Sequence[tuple[list[Fraction], Fraction]]) -> list[Fraction] | None:
    """The point where these planes meet, or None if they do not meet in one."""
    rows = [[*p, v] for p, v in planes]
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [v / rows[k][k] for v in rows[k]]
        rows = [r if i == k else [a - r[k] * b for a, b in zip(r, rows[k], strict=True)] for i, r in enumerate(rows)]
    return [r[-1] for r in rows]


@settings(max_examples=60, deadline=None)
@given(joins(most_tables=4, letters="ABCDE"))
def test_edge_cover_is_feasible_and_least(schema: Schema) -> None:
    """Every attribute is covered, and both the cover and the packing problem have this value at their best corner."""
    cover, packing = cover_and_packing({t.name: t.attributes for t in schema.tables})
    assert all(0 <= w <= 1 for w in cover.values())
    assert all(sum(cover[n] for n in schema.tables_with(a.name)) >= 1 for a in schema.attributes)
    names, letters = [t.name for t in schema.tables], [a.name for a in schema.attributes]
    value = sum(cover.values())
    assert value == sum(packing.values())
    assert value == _least([[names.index(n) for n in schema.tables_with(a)] for a in letters], len(names))
    assert value == _greatest([[letters.index(a) for a in t.attributes] for t in schema.tables], len(letters))


@given(joins())
def test_join_classes_agree_with_the_facts(schema: Schema) -> None:
    """A word never contradicts what the other functions say."""
    word = join_class(schema)
    assert is_acyclic(schema) or word in ("cyclic", "disconnected")
    assert is_hierarchical(schema) or word in ("path", "acyclic", "cyclic", "disconnected")
    assert (word == "disconnected") == (len(components(schema)) > 1)
    if word in ("path", "acyclic"):
        assert not is_hierarchical(schema)


@given(joins())
def test_drawings_name_every_table(schema: Schema) -> None:
    """No table is left out of a picture."""
    text = drawing(schema).replace(",", " ").split()
    assert {t.name for t in schema.tables} <= set(text)
