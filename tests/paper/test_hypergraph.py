"""Facts of joins that follow from the schema alone."""

from __future__ import annotations

import itertools
from fractions import Fraction

from hypothesis import given, settings

from dpjoin.spec.hypergraph import (
    attribute_tree,
    boundary,
    residual_components,
)
from dpjoin.spec.schema import Schema
from dpjoin.theory.exponents import agm_exponent, boundary_exponent, worst_case_error_exponent
from support.hypergraph import FIGURE_4, ONE, PATH_3, STAR_3, TRIANGLE, TWO, joins, tables


def proper_subsets(schema: Schema) -> list[frozenset[str]]:
    names = [t.name for t in schema.tables]
    return [frozenset(s) for k in range(len(names)) for s in itertools.combinations(names, k)]


# Boundaries and components


def test_figure_4_boundary_and_components() -> None:
    """For E = {3, 4, 5} the boundary is {A, B} and the residual join falls into {3, 4} and {5}."""
    assert boundary(FIGURE_4, tables(3, 4, 5)) == ("A", "B")
    assert residual_components(FIGURE_4, tables(3, 4, 5)) == (tables(3, 4), tables(5))


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


def test_worst_case_error_of_known_joins() -> None:
    """(ρ(H) + max ρ(H_{E,∂E})) / 2: 3/2 for two tables, 5/4 for the triangle, 2 for the path of three."""
    assert worst_case_error_exponent(ONE) == Fraction(1, 2)
    assert worst_case_error_exponent(TWO) == Fraction(3, 2)
    assert worst_case_error_exponent(TRIANGLE) == Fraction(5, 4)
    assert worst_case_error_exponent(PATH_3) == 2
    assert worst_case_error_exponent(STAR_3) == Fraction(5, 2)


def test_worst_case_error_with_repeated_rows() -> None:
    """Where rows repeat, m tables have exponent m - 1/2, whatever they share."""
    assert worst_case_error_exponent(TWO, repeated_rows=True) == Fraction(3, 2)
    assert worst_case_error_exponent(TRIANGLE, repeated_rows=True) == Fraction(5, 2)


@settings(max_examples=40, deadline=None)
@given(joins(most_tables=4))
def test_worst_case_error_is_the_formula_over_all_subsets(schema: Schema) -> None:
    """The maximum over every proper subset is the one over the largest ones, and never exceeds the join size."""
    largest = max(boundary_exponent(schema, e) for e in proper_subsets(schema))
    assert worst_case_error_exponent(schema) == (agm_exponent(schema) + largest) / 2
    assert worst_case_error_exponent(schema) <= agm_exponent(schema)
