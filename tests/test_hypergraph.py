"""Facts of joins that follow from the schema alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpjoin.errors import SpecError
from dpjoin.spec.hypergraph import (
    AttributeNode,
    attribute_tree,
    boundary,
    components,
    cyclic_core,
    drawing,
    is_acyclic,
    is_hierarchical,
    join_class,
    join_tree,
    residual_components,
)
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.theory import exponents
from dpjoin.theory.exponents import agm_exponent, boundary_exponent, edge_cover, worst_case_error_exponent


def join(*tables: Sequence[str], names: Sequence[str] = ()) -> Schema:
    """A schema of key attributes: table x1 has the first attributes (letters, unless given as a list), and so on."""
    attributes = sorted({a for t in tables for a in t})
    names = names or [f"x{i + 1}" for i in range(len(tables))]
    return Schema(
        tuple(Table(name=n, attributes=tuple(t)) for n, t in zip(names, tables, strict=True)),
        tuple(Attribute(name=a, key=True) for a in attributes),
    )


FIGURE_4 = join("ABD", "ABF", "ABGK", "ABGL", "AC")
ONE = join("AB")
TWO = join("AB", "BC")
TRIANGLE = join("AB", "BC", "AC")
SQUARE = join("AB", "BC", "CD", "AD")
PATH_3 = join("AB", "BC", "CD")
PATH_4 = join("AB", "BC", "CD", "DE")
STAR_3 = join("AB", "AC", "AD")
NARROW_MIDDLE = join("AB", "B", "BC")
DISCONNECTED = join("A", "B")
CONTAINED = join("AB", "ABC")
SAME = join("AB", "AB")
SNOWFLAKE = join("ABC", "AD", "BE", "CF")


def tables(*numbers: int) -> frozenset[str]:
    return frozenset(f"x{i}" for i in numbers)


def proper_subsets(schema: Schema) -> list[frozenset[str]]:
    names = [t.name for t in schema.tables]
    return [frozenset(s) for k in range(len(names)) for s in itertools.combinations(names, k)]


@st.composite
def joins(draw: st.DrawFn, most_tables: int = 5, letters: str = "ABCDEF") -> Schema:
    """A join of up to five tables over up to six attributes, of any shape."""
    edge = st.sets(st.sampled_from(letters), min_size=1, max_size=4).map(lambda s: "".join(sorted(s)))
    return join(*draw(st.lists(edge, min_size=1, max_size=most_tables)))


# Boundaries and components


@pytest.mark.paper
def test_figure_4_boundary_and_components() -> None:
    """For E = {3, 4, 5} the boundary is {A, B} and the residual join falls into {3, 4} and {5}."""
    assert boundary(FIGURE_4, tables(3, 4, 5)) == ("A", "B")
    assert residual_components(FIGURE_4, tables(3, 4, 5)) == (tables(3, 4), tables(5))


@pytest.mark.paper
def test_figure_4_attribute_tree() -> None:
    """A is the root, B and C hang below it, D, F and G below B, K and L below G; every table is a path."""
    tree = attribute_tree(FIGURE_4)
    assert tree is not None
    above = {c.attributes: n.attributes for n in tree.walk() for c in n.children}
    assert tree.attributes == ("A",)
    assert {c[0]: p[0] for c, p in above.items()} == {
        "B": "A",
        "C": "A",
        "D": "B",
        "F": "B",
        "G": "B",
        "K": "G",
        "L": "G",
    }
    assert not any(n.virtual for n in tree.walk())


def test_boundary_of_everything_and_of_nothing_is_empty() -> None:
    """A set of tables without an outside or without an inside has no boundary."""
    for schema in (FIGURE_4, TRIANGLE, DISCONNECTED):
        everything = frozenset(t.name for t in schema.tables)
        assert boundary(schema, everything) == boundary(schema, frozenset()) == ()
        assert residual_components(schema, frozenset()) == ()


def test_a_table_without_attributes_left_is_its_own_component() -> None:
    """Two copies of a contained table have no attribute off the boundary and stay apart."""
    schema = join("A", "A", "AB")
    assert residual_components(schema, tables(1, 2)) == (tables(1), tables(2))


def test_the_ends_of_a_path_are_separate() -> None:
    """Without its middle a path has the middle's attributes as boundary and two components."""
    assert boundary(PATH_3, tables(1, 3)) == ("B", "C")
    assert residual_components(PATH_3, tables(1, 3)) == (tables(1), tables(3))


def test_components_follow_chains_of_shared_attributes() -> None:
    """Tables are connected through others, whatever their order in the schema."""
    assert components(join("AB", "EF", "CD", "BC", "F")) == (tables(1, 3, 4), tables(2, 5))
    assert components(PATH_4) == (tables(1, 2, 3, 4),)


def test_unknown_tables_are_named() -> None:
    """A misspelt table is an error and not an empty set."""
    for ask in (boundary, residual_components, boundary_exponent, agm_exponent):
        with pytest.raises(SpecError, match="table 'x9' is not declared"):
            ask(TWO, frozenset({"x1", "x9"}))


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


# Acyclic joins


def test_join_trees_of_small_joins() -> None:
    """Elimination starts at the end and roots the tree at the first table."""
    assert join_tree(PATH_3) == (("x3", "x2"), ("x2", "x1"), ("x1", None))
    assert join_tree(STAR_3) == (("x3", "x1"), ("x2", "x1"), ("x1", None))
    assert join_tree(NARROW_MIDDLE) == (("x3", "x1"), ("x2", "x1"), ("x1", None))
    assert join_tree(CONTAINED) == (("x2", "x1"), ("x1", None))
    assert join_tree(DISCONNECTED) == (("x2", None), ("x1", None))
    assert join_tree(ONE) == (("x1", None),)


def test_cycles_have_no_join_tree() -> None:
    """The triangle and the square are cyclic; a table that holds the whole triangle makes it acyclic."""
    assert join_tree(TRIANGLE) is None
    assert not is_acyclic(SQUARE)
    assert is_acyclic(join("AB", "BC", "AC", "ABC"))


def test_the_cyclic_core_drops_what_hangs_on_it() -> None:
    """Tables attached to a triangle are not part of its cycle; an acyclic join has no core."""
    assert cyclic_core(join("AB", "BC", "AC", "CD", "DE")) == tables(1, 2, 3)
    assert cyclic_core(SNOWFLAKE) == frozenset()


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


# Hierarchical joins


def test_hierarchical_or_not() -> None:
    """Stars and containments are hierarchical, paths of three and cycles are not."""
    for schema in (FIGURE_4, ONE, TWO, STAR_3, NARROW_MIDDLE, DISCONNECTED, CONTAINED, SAME):
        assert is_hierarchical(schema)
    for schema in (PATH_3, PATH_4, TRIANGLE, SQUARE, SNOWFLAKE):
        assert not is_hierarchical(schema)
        assert attribute_tree(schema) is None


def test_attributes_of_the_same_tables_are_one_node() -> None:
    """Attributes that always occur together, private ones included, are merged."""
    tree = attribute_tree(join("ABCD", "ABE"))
    assert tree is not None
    assert [n.attributes for n in tree.walk()] == [("A", "B"), ("C", "D"), ("E",)]


def test_a_fully_shared_table_has_a_virtual_leaf() -> None:
    """R2(B) between R1(A,B) and R3(B,C) owns no attribute and gets a leaf with path B."""
    leaf = AttributeNode(attributes=(), path=("B",), tables=tables(2))
    assert attribute_tree(NARROW_MIDDLE) == AttributeNode(
        attributes=("B",),
        path=("B",),
        tables=tables(1, 2, 3),
        children=(
            AttributeNode(attributes=("A",), path=("A", "B"), tables=tables(1)),
            leaf,
            AttributeNode(attributes=("C",), path=("B", "C"), tables=tables(3)),
        ),
    )
    assert leaf.virtual


def test_equal_tables_are_two_virtual_leaves() -> None:
    """Two tables with the same attributes have one root and a leaf each."""
    tree = attribute_tree(SAME)
    assert tree is not None
    assert tree.attributes == ("A", "B")
    assert [(n.virtual, n.path, n.tables) for n in tree.children] == [
        (True, ("A", "B"), tables(1)),
        (True, ("A", "B"), tables(2)),
    ]


def test_a_disconnected_join_has_a_virtual_root() -> None:
    """The root without attributes has the components' roots as children."""
    tree = attribute_tree(join("AB", "AC", "D"))
    assert tree is not None
    assert tree.virtual
    assert tree.path == ()
    assert [n.attributes for n in tree.children] == [("A",), ("D",)]


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


# Sizes


@pytest.mark.parametrize(
    ("schema", "exponent"),
    [
        (ONE, Fraction(1)),
        (TWO, Fraction(2)),
        (TRIANGLE, Fraction(3, 2)),
        (SQUARE, Fraction(2)),
        (PATH_3, Fraction(2)),
        (PATH_4, Fraction(3)),
        (STAR_3, Fraction(3)),
        (NARROW_MIDDLE, Fraction(2)),
        (DISCONNECTED, Fraction(2)),
        (CONTAINED, Fraction(1)),
        (FIGURE_4, Fraction(5)),
        (join("ABC", "ABD", "ACD", "BCD"), Fraction(4, 3)),
        (join("AB", "BC", "CD", "DE", "AE"), Fraction(5, 2)),
    ],
)
def test_agm_exponents(schema: Schema, exponent: Fraction) -> None:
    """Known joins have their known fractional edge cover numbers."""
    assert agm_exponent(schema) == exponent
    assert sum(edge_cover(schema).values()) == exponent


def test_exponents_of_some_tables() -> None:
    """Two sides of a triangle make n² results, and at one value of their boundary n."""
    assert agm_exponent(TRIANGLE, tables(1, 2)) == 2
    assert boundary_exponent(TRIANGLE, tables(1, 2)) == 1
    assert agm_exponent(TRIANGLE, frozenset()) == boundary_exponent(TRIANGLE, frozenset()) == 0


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
    cover = edge_cover(schema)
    assert all(0 <= w <= 1 for w in cover.values())
    assert all(sum(cover[n] for n in schema.tables_with(a.name)) >= 1 for a in schema.attributes)
    names, letters = [t.name for t in schema.tables], [a.name for a in schema.attributes]
    value = sum(cover.values())
    assert value == _least([[names.index(n) for n in schema.tables_with(a)] for a in letters], len(names))
    assert value == _greatest([[letters.index(a) for a in t.attributes] for t in schema.tables], len(letters))


def test_a_wide_cycle_has_an_exact_cover() -> None:
    """Thirteen tables in a ring weigh one half each."""
    letters = "ABCDEFGHIJKLM"
    ring = join(*(letters[i] + letters[(i + 1) % 13] for i in range(13)))
    assert set(edge_cover(ring).values()) == {Fraction(1, 2)}


def test_a_cover_without_proof_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are rounded too coarsely fail their check, and a problem without a solution is an error."""
    monkeypatch.setattr(exponents, "LARGEST_DENOMINATOR", 1)
    with pytest.raises(ArithmeticError, match="3 tables has no proof with small fractions"):
        edge_cover(TRIANGLE)
    with pytest.raises(ArithmeticError, match="could not be computed"):
        exponents._corner([[0]], cover=True)


@pytest.mark.paper
def test_worst_case_error_of_known_joins() -> None:
    """(ρ(H) + max ρ(H_{E,∂E})) / 2: 3/2 for two tables, 5/4 for the triangle, 2 for the path of three."""
    assert worst_case_error_exponent(ONE) == Fraction(1, 2)
    assert worst_case_error_exponent(TWO) == Fraction(3, 2)
    assert worst_case_error_exponent(TRIANGLE) == Fraction(5, 4)
    assert worst_case_error_exponent(PATH_3) == 2
    assert worst_case_error_exponent(STAR_3) == Fraction(5, 2)


@pytest.mark.paper
def test_worst_case_error_with_repeated_rows() -> None:
    """Where rows repeat, m tables have exponent m - 1/2, whatever they share."""
    assert worst_case_error_exponent(TWO, repeated_rows=True) == Fraction(3, 2)
    assert worst_case_error_exponent(TRIANGLE, repeated_rows=True) == Fraction(5, 2)


@pytest.mark.paper
@settings(max_examples=40, deadline=None)
@given(joins(most_tables=4))
def test_worst_case_error_is_the_formula_over_all_subsets(schema: Schema) -> None:
    """The maximum over every proper subset is the one over the largest ones, and never exceeds the join size."""
    largest = max(boundary_exponent(schema, e) for e in proper_subsets(schema))
    assert worst_case_error_exponent(schema) == (agm_exponent(schema) + largest) / 2
    assert worst_case_error_exponent(schema) <= agm_exponent(schema)


# Words and pictures


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (ONE, "one table"),
        (TWO, "two tables"),
        (CONTAINED, "two tables"),
        (DISCONNECTED, "disconnected"),
        (join("AB", "AC", "D"), "disconnected"),
        (STAR_3, "star"),
        (NARROW_MIDDLE, "star"),
        (join("ABX", "ABY", "AB", "ABZ"), "star"),
        (PATH_3, "path"),
        (join("BC", "AB", "DE", "CD"), "path"),
        (FIGURE_4, "hierarchical"),
        (join("ABC", "ABD", "AE"), "hierarchical"),
        (SNOWFLAKE, "acyclic"),
        (TRIANGLE, "cyclic"),
        (SQUARE, "cyclic"),
        (join("ABX", "BCX", "ACX"), "cyclic"),
    ],
)
def test_join_classes(schema: Schema, word: str) -> None:
    """Each join gets the most specific word that fits it."""
    assert join_class(schema) == word


@given(joins())
def test_join_classes_agree_with_the_facts(schema: Schema) -> None:
    """A word never contradicts what the other functions say."""
    word = join_class(schema)
    assert is_acyclic(schema) or word in ("cyclic", "disconnected")
    assert is_hierarchical(schema) or word in ("path", "acyclic", "cyclic", "disconnected")
    assert (word == "disconnected") == (len(components(schema)) > 1)
    if word in ("path", "acyclic"):
        assert not is_hierarchical(schema)


def test_drawing_of_a_tree() -> None:
    """The join tree with the shared attributes at every edge."""
    assert drawing(FIGURE_4) == ("x1\n├─ x2  on A, B\n├─ x3  on A, B\n│  └─ x4  on A, B, G\n└─ x5  on A")


def test_drawing_of_a_forest() -> None:
    """Tables that share nothing begin at the margin."""
    assert drawing(join("A", "BC", "CD")) == "x1\nx2\n└─ x3  on C"


def test_drawing_of_a_cycle() -> None:
    """Every edge, and the tables that elimination cannot remove, one line per connected part."""
    assert drawing(join("AB", "BC", "AC", "CD")) == (
        "x1 ─ x2  on B\nx1 ─ x3  on A\nx2 ─ x3  on C\nx2 ─ x4  on C\nx3 ─ x4  on C\ncyclic part: x1, x2, x3"
    )
    assert drawing(join("AB", "BC", "AC", "D")).splitlines()[-2:] == ["x4", "cyclic part: x1, x2, x3"]
    two = drawing(join("AB", "BC", "AC", "DE", "EF", "DF")).splitlines()
    assert two[-2:] == ["cyclic part: x1, x2, x3", "cyclic part: x4, x5, x6"]


def test_drawings_hold_nothing_that_moves_the_cursor() -> None:
    """Names come from a file: what is not printable is replaced."""
    text = drawing(join("AB", "BC", names=["r", "two\nlines\x1b[2J"]))
    assert text == "r\n└─ two?lines?[2J  on B"


@given(joins())
def test_drawings_name_every_table(schema: Schema) -> None:
    """No table is left out of a picture."""
    text = drawing(schema).replace(",", " ").split()
    assert {t.name for t in schema.tables} <= set(text)
