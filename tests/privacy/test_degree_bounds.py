"""What degree bounds say: boundaries, factors and the rows that enforcing them can remove."""

from __future__ import annotations

from dpjoin.privacy.degree_bounds import _boundary, bound_is_public, churn, degree_caps, degree_factors
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
    assert _boundary(path, frozenset({"r"})) == {"b"}
    assert _boundary(path, frozenset({"s"})) == {"b", "c"}
    assert _boundary(path, frozenset({"r", "s"})) == {"c"}
    assert _boundary(path, frozenset({"r", "t"})) == {"b", "c"}
    assert _boundary(path, frozenset({"r", "s", "t"})) == set()


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
