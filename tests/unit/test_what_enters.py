"""Schemas, queries, weights and rules are checked when they are made: what a proof assumes of them holds."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dpjoin.engine.interface import RowWeights
from dpjoin.errors import BudgetError, SpecError
from dpjoin.privacy.parts import canonical_rules
from dpjoin.privacy.public_tables import with_public_bounds
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.spec.workload import Factor, Kronecker, Products, check_fits
from support.brute import BruteEngine

A, B = (Attribute(name=name, range=(0, 2)) for name in "ab")


ONE = Schema((Table(name="r", attributes=("a", "b")),), (A, B))


WEIGHTS = np.ones((1, 3), dtype=np.int64)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Schema((), (A,)), "must have at least one table"),
        (lambda: Kronecker("k", ("a", "b"), (Factor("cells"),), (3, 3)), "k"),
        (lambda: Kronecker("k", ("a",), (Factor("cells"), Factor("cells")), (3,)), "k"),
        (lambda: Products("p", (), (), (), Fraction(1)), "parts must be pairs"),
        (lambda: Products("p", ("a",), (3,), ((("a",), WEIGHTS, 1),), Fraction(1)), "parts must be pairs"),  # type: ignore[arg-type]
        (lambda: RowWeights(("a",), [1, 2], 2), "whole numbers"),  # type: ignore[arg-type]
        (lambda: RowWeights(("a",), np.array([1.0]), 2), "whole numbers"),  # type: ignore[arg-type]
        (lambda: RowWeights(("a",), WEIGHTS, 2), "whole numbers"),
        (lambda: check_fits(ONE, Kronecker("k", ("a",), (Factor("cells"),), (4,))), "k"),
        (lambda: check_fits(ONE, Products("p", ("a",), (2,), ((("a",), WEIGHTS[:, :2]),), Fraction(1))), "p"),
    ],
)
def test_what_does_not_fit_is_refused(make: Callable[[], object], words: str) -> None:
    """No tables, a query with more attributes than factors, weights that are no whole numbers, another shape."""
    with pytest.raises(SpecError, match=words):
        make()


def test_a_query_of_the_right_shape_fits() -> None:
    """As the schema has it."""
    check_fits(ONE, Kronecker("k", ("a",), (Factor("cells"),), (3,)))


def test_rules_must_map_tables_to_labels() -> None:
    """Anything else is refused with our own error."""
    for rules in (5, [("r", {})], {"r": 5}, {5: {}}, {"r": {"labels": 1}}):
        with pytest.raises(BudgetError, match="a part"):
            canonical_rules(rules, "a part")


def test_a_schema_keeps_plain_names() -> None:
    """Its unit of privacy too, whatever sequence it came in."""
    schema = Schema([Table(name="r", attributes=("a", "b"))], [A, B], unit=[np.str_("a")])  # type: ignore[arg-type]
    assert (type(schema.tables), type(schema.unit), type(schema.unit[0])) == (tuple, tuple, str)


def test_public_tables_are_bounded_by_their_own_degrees() -> None:
    """Two rows share one b at most; without rows the bound is 1."""
    for rows, limit in (([{"a": 0, "b": 1}, {"a": 1, "b": 1}, {"a": 0, "b": 2}], 2), ([], 1)):
        schema = Schema(
            (Table(name="s", attributes=("a", "b"), private=False), Table(name="r", attributes=("b",))), (A, B)
        )
        found = with_public_bounds(BruteEngine(schema, {"s": rows, "r": []})).schema
        assert [(bound.attributes, bound.limit) for bound in found.table("s").bounds] == [(("b",), limit)]
        assert found.table("r").bounds == ()
