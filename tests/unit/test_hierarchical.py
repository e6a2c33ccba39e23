"""Hierarchical joins: typed parts cut the join exactly, caps hold on both neighbours, no row pays more than stated."""

from __future__ import annotations

import pytest

import dpjoin as dj
from dpjoin.errors import SpecError
from dpjoin.paper.alg6_partition_hierarchical import (
    check_hierarchical,
    hierarchical_shares,
)
from dpjoin.paper.alg7_decompose import Known, fitting_buckets
from dpjoin.spec.hypergraph import attribute_tree
from support.hierarchical import (
    GENEROUS,
    noisy,
    schema_of,
)


def test_buckets_are_made_coarser_until_there_are_few_enough() -> None:
    """Caps double while there is room; the node of most different degrees is the last to lose its buckets."""
    root = attribute_tree(schema_of("two"))
    assert root is not None
    left, right = ((child, ()) for child in root.children)
    listed = {(n,): 10 * 2**n + 1 for n in range(8)}
    degrees = {left: noisy(("A",), listed), right: noisy(("A",), {(0,): 11, (1,): 21})}

    def counts(most: int) -> tuple[int, int]:
        found = fitting_buckets(root, Known(), degrees, most)
        return len({0, *found[left].values()}), len({0, *found[right].values()})

    assert counts(64) == (9, 3)
    assert [counts(n) for n in (1, 2, 3, 4, 8, 16)] == [(1, 1), (2, 1), (3, 1), (3, 1), (5, 1), (5, 3)]
    finest = fitting_buckets(root, Known(), degrees, 64)
    assert finest[left] == {(n,): n + 1 for n in range(8)}
    # Where there is nothing to group by, there is one value.
    apart = {left: noisy((), {(): 99})}
    assert fitting_buckets(root, Known(), apart, 64) == {left: {}}


def test_a_join_that_is_not_hierarchical_is_refused() -> None:
    def schema(*tables: str) -> dj.Schema:
        return dj.Schema(
            tuple(dj.Table(name=t, attributes=tuple(t)) for t in tables),
            tuple(dj.Attribute(name=a, range=(0, 2)) for a in sorted(set("".join(tables)))),
        )

    for tables in (("AB", "BC", "CD"), ("AB", "BC", "CA"), ("AB",)):
        with pytest.raises(SpecError, match="'hierarchical' must have two or more tables"):
            check_hierarchical(schema(*tables))
        with pytest.raises(SpecError, match="use method 'uniformize'"):
            hierarchical_shares(GENEROUS, schema(*tables))
    check_hierarchical(schema("AB", "CD"))
