"""What degree bounds say: boundaries, factors and the rows that enforcing them can remove."""

from __future__ import annotations

import numpy as np
import pytest

from dpjoin.engine.interface import RowWeights
from dpjoin.errors import BudgetError
from dpjoin.privacy.degree_bounds import (
    bound_is_public,
    churn,
    declared_limits,
    degree_caps,
    degree_factors,
    most_of_value,
    moves_of_row,
    weighted_bound,
    weighted_limits,
    weighted_results,
)
from dpjoin.spec.hypergraph import boundary
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table


def table(name: str, attributes: str, *bounds: tuple[str, int], enforce: bool = False, private: bool = True) -> Table:
    found = tuple(DegreeBound(attributes=tuple(given), limit=limit) for given, limit in bounds)
    return Table(name=name, attributes=tuple(attributes), bounds=found, enforce=enforce, private=private)


def schema(*tables: Table) -> Schema:
    letters = sorted({a for t in tables for a in t.attributes})
    return Schema(tables, tuple(Attribute(name=a, range=(0, 9)) for a in letters))


def test_a_boundary_is_what_tables_share_with_the_others() -> None:
    """Not what the others have for themselves: only join attributes can be held fixed from outside."""
    path = schema(table("r", "ab"), table("s", "bc"), table("t", "cd"))
    assert boundary(path, frozenset({"r"})) == ("b",)
    assert boundary(path, frozenset({"s"})) == ("b", "c")
    assert boundary(path, frozenset({"r", "s"})) == ("c",)
    assert boundary(path, frozenset({"r", "t"})) == ("b", "c")
    assert boundary(path, frozenset({"r", "s", "t"})) == ()


def test_a_bound_on_what_nobody_holds_fixed_gives_no_cap() -> None:
    """At most 3 rows of r have one a; that says nothing of how many have one b, which is what s can ask for."""
    assert frozenset({"r"}) not in degree_caps(schema(table("r", "ab", ("a", 3)), table("s", "b")))
    assert degree_caps(schema(table("r", "ab", ("b", 3)), table("s", "b")))[frozenset({"r"})] == 3


def test_of_two_bounds_that_apply_the_smaller_is_the_factor() -> None:
    """Both given b; the bound on a alone does not apply."""
    found = degree_factors(schema(table("r", "abc", ("b", 5), ("bc", 2), ("a", 1)), table("s", "bc")))
    assert found == ((frozenset({"r"}), "r", 2),)


def test_enforcing_removes_as_many_rows_as_the_table_with_most_bounds_has() -> None:
    """Public tables and bounds that are only declared remove none."""
    two, one = table("r", "ab", ("a", 1), ("b", 2), enforce=True), table("s", "bc", ("b", 3), enforce=True)
    assert churn(schema(two, one)) == churn(schema(one, two)) == 2
    declared = table("t", "cd", ("c", 1), ("d", 1), ("cd", 1))
    assert churn(schema(one, declared)) == 1
    assert churn(schema(table("r", "ab", ("a", 1)), table("s", "bc"))) == 0


def test_a_bound_is_public_if_every_private_table_meets_public_or_bounded_ones() -> None:
    """One private table that meets an unbounded private one is enough to need noise."""
    r, s = table("r", "ab"), table("s", "bc")
    assert not bound_is_public(schema(r, s))
    assert bound_is_public(schema(r, table("s", "bc", private=False)))
    assert bound_is_public(schema(table("r", "ab", ("b", 2)), table("s", "bc", ("b", 2))))
    assert not bound_is_public(schema(table("r", "ab", ("b", 2)), s))


@pytest.mark.parametrize("each", [[4, 3, 2, 1], [4, 4, 4], [4, 1], [4, 2, 1, 1, 0], [3]])
def test_weights_of_rows_bound_what_a_value_counts_and_a_row_moves(each: list[int]) -> None:
    """Against all numbers of rows in loops: the sum over a value, and by how much the rows' weights change in l2."""
    weights = RowWeights(("b",), np.array(each, dtype=np.int64), 4)

    def of(degree: int) -> list[int]:
        return [each[degree - 1] if degree <= len(each) else 0] * degree

    assert most_of_value(weights) == max(sum(of(d)) for d in range(1, 9))
    moves = moves_of_row(weights)
    largest = 0
    for d in range(8):
        before, after = of(d), of(d + 1)
        others = sum(x - y for x, y in zip(before, after, strict=False))  # all at one value: they move together
        largest = max(largest, after[-1] ** 2 + others**2)
    assert (moves - 1) ** 2 < largest <= moves**2


def test_weighted_counts_are_bounded_in_their_units() -> None:
    """r has weights of full 4 by b, s a declared limit of 3 rows a b: a row of s joins what a value of r counts."""
    tables = schema(table("r", "ab"), table("s", "bc", ("b", 3)))
    weights = {"r": RowWeights(("b",), np.array([4, 3, 2, 1]), 4)}
    limits = declared_limits(tables)
    found = weighted_results(tables, limits, weights)
    assert found == {"r": 3 * moves_of_row(weights["r"]), "s": most_of_value(weights["r"])}
    assert weighted_bound(tables, limits, weights) == max(found.values())
    both = {**weights, "s": RowWeights(("b",), np.array([5, 5]), 5)}
    assert [limit.most for limit in weighted_limits(tables, limits, both)] == [3 * 5, 6, 10]


def test_weights_that_leave_a_partner_unbounded_are_refused() -> None:
    """A row of r would join any number of rows of s."""
    tables = schema(table("r", "ab"), table("s", "bc"))
    with pytest.raises(BudgetError, match="give its partners weights"):
        weighted_results(tables, [], {"r": RowWeights(("b",), np.array([1]), 1)})
