"""How far one join result moves a group of queries: the norms against every cell and every query, in loops."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from dpjoin.privacy.residual import Boundaries, sensitivity_forms, undominated
from dpjoin.privacy.sensitivity import absolute_norm, squared_norm, weight_ranges
from dpjoin.spec.workload import Factor, Group, Kronecker, Products

ROWS = (("a",), np.array([[2, -3], [1, 1], [-4, -5]]))


COLUMNS = (("b",), np.array([[1, 0, 2], [-2, 3, 1], [-1, -2, -3]]))


GROUPS: dict[str, Group] = {
    "products": Products("p", ("a", "b"), (2, 3), (ROWS, COLUMNS), Fraction(1)),
    "weights": Kronecker("k", ("a", "b"), (Factor("weights", (2, -3)), Factor("prefixes")), (2, 3)),
    "cells": Kronecker("k", ("a", "b"), (Factor("cells"), Factor("weights", (-4, 1, 3))), (2, 3)),
    "one": Kronecker("k", ("a", "b"), (Factor("cells"), Factor("ranges")), (1, 3)),
}


def by_cell(group: Group) -> list[list[int]]:
    """The weights of all queries at each cell: the answers on a marginal that holds one result."""
    columns = []
    for cell in itertools.product(*map(range, group.shape)):
        marginal = np.zeros(group.shape, dtype=np.int64)
        marginal[cell] = 1
        columns.append([int(x) for x in group.apply(marginal).reshape(-1)])
    return columns


@pytest.mark.parametrize("name", GROUPS)
def test_ranges_hold_the_least_and_the_largest_weight(name: str) -> None:
    """Of each query, over all cells."""
    columns, ranges = by_cell(GROUPS[name]), weight_ranges(GROUPS[name])
    assert ranges.low.tolist() == [min(weights) for weights in zip(*columns, strict=True)]
    assert ranges.high.tolist() == [max(weights) for weights in zip(*columns, strict=True)]


@pytest.mark.parametrize("name", GROUPS)
def test_norms_are_those_of_the_longest_column(name: str) -> None:
    """Exact for queries built factor by factor; for products no less, and the sum of each one's largest weight."""
    columns = by_cell(GROUPS[name])
    absolute, squared = (max(sum(abs(x) ** power for x in column) for column in columns) for power in (1, 2))
    if isinstance(GROUPS[name], Kronecker):
        assert (absolute_norm(GROUPS[name]), squared_norm(GROUPS[name])) == (absolute, squared)
    else:
        largest = [max(map(abs, weights)) for weights in zip(*columns, strict=True)]
        assert absolute <= absolute_norm(GROUPS[name]) == sum(largest)
        assert squared <= squared_norm(GROUPS[name]) == sum(x * x for x in largest)


def test_of_two_factors_for_one_table_the_smaller_counts() -> None:
    """T_{ab} <= 2·T_b and T_{ab} <= 5·T_b: the second says nothing new, in either order."""
    values = {frozenset(s): 3 ** len(s) for s in ("", "a", "b", "c", "ab", "ac", "bc")}
    found = []
    for limits in ((2,), (2, 5), (5, 2)):
        factors = tuple((frozenset("ab"), "a", c) for c in limits)
        b = Boundaries(tables=("a", "b", "c"), private=frozenset("c"), values=values, factors=factors)
        found.append(min(form[0] for form in sensitivity_forms(b)[0]))
    assert found == [6, 6, 6]


def test_forms_that_another_one_replaces_are_left_out() -> None:
    """In a minimum those that are nowhere smaller, in a maximum those that are nowhere larger; equal ones stay once."""
    forms = [(1, 2), (2, 2), (3, 1), (1, 2)]
    assert undominated(forms, smaller=True) == [(1, 2), (3, 1)]
    assert undominated(forms) == [(2, 2), (3, 1)]
