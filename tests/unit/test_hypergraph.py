"""Facts of joins that follow from the schema alone."""

from __future__ import annotations

from fractions import Fraction

import pytest

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
from dpjoin.spec.schema import Schema
from dpjoin.theory import exponents
from dpjoin.theory.exponents import agm_exponent, boundary_exponent, cover_and_packing
from support.hypergraph import FIGURE_4, ONE, PATH_3, STAR_3, TRIANGLE, TWO, join, tables

SQUARE = join("AB", "BC", "CD", "AD")


PATH_4 = join("AB", "BC", "CD", "DE")


NARROW_MIDDLE = join("AB", "B", "BC")


DISCONNECTED = join("A", "B")


CONTAINED = join("AB", "ABC")


SAME = join("AB", "AB")


SNOWFLAKE = join("ABC", "AD", "BE", "CF")


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
    for ask in (boundary, residual_components, boundary_exponent):
        with pytest.raises(SpecError, match="table 'x9' is not declared"):
            ask(TWO, frozenset({"x1", "x9"}))


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


def test_exponents_of_some_tables() -> None:
    """Two sides of a triangle make n results at one value of their boundary; no table makes one."""
    assert boundary_exponent(TRIANGLE, tables(1, 2)) == 1
    assert boundary_exponent(TRIANGLE, frozenset()) == 0


def test_a_wide_cycle_has_an_exact_cover() -> None:
    """Thirteen tables in a ring weigh one half each."""
    letters = "ABCDEFGHIJKLM"
    ring = join(*(letters[i] + letters[(i + 1) % 13] for i in range(13)))
    cover, packing = cover_and_packing({t.name: t.attributes for t in ring.tables})
    assert {*cover.values(), *packing.values()} == {Fraction(1, 2)}


def test_a_cover_without_proof_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are rounded too coarsely fail their check."""
    monkeypatch.setattr(exponents, "LARGEST_DENOMINATOR", 1)
    with pytest.raises(ArithmeticError, match="3 tables has no proof with small fractions"):
        agm_exponent(TRIANGLE)


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
