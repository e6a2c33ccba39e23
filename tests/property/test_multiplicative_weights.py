"""The incremental iterate is the naive loop: the same choices, the same average, whatever the groups look like."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpjoin as dj
from dpjoin.measure.progress import silent
from dpjoin.model import multiplicative_weights as iterates
from dpjoin.model.multiplicative_weights import Iterate, marginals
from dpjoin.model.terms import Domain
from dpjoin.paper import alg2_pmw as algorithm
from dpjoin.paper.alg2_pmw import pmw, query_weights
from dpjoin.privacy.accounting import Approximate
from dpjoin.privacy.sensitivity import weight_ranges
from dpjoin.spec.workload import (
    CELLS,
    PREFIXES,
    RANGES,
    Factor,
    Group,
    kronecker,
    product_group,
    weight_rows,
    where,
)
from support.naive import cell_weights, naive_answers, naive_rounds
from support.strategies import split_schema

TOTAL = 2**7 * 3**4 * 5**4
"""Every marginal of the uniform table is whole then: no first answer lies between two grid points, where the last bit
of a sum would decide how it is rounded."""


BUDGET = Approximate(Fraction(1), Fraction(1, 10**6))


def some_factor(rng: np.random.Generator, schema: dj.Schema, attribute: str) -> Factor:
    size = schema.attribute(attribute).size
    kind = rng.integers(7)
    if kind < 3:
        return (CELLS, PREFIXES, RANGES)[kind]
    if kind == 3:
        return where(schema, attribute, rng.choice(size, size=rng.integers(1, size + 1), replace=False).tolist())
    if kind == 4:
        return Factor("weights", tuple(int(w) for w in rng.integers(-9, 10, size)), Fraction(1, 4))
    rows = rng.integers(0, 2, (3, size)) if kind == 5 else rng.uniform(-1, 1, (2, size))
    return weight_rows(rows)


def some_groups(rng: np.random.Generator, schema: dj.Schema) -> list[Group]:
    """Groups of every kind, with attributes in any order, and the join size."""
    names = list(schema.queryable)
    groups: list[Group] = [kronecker(schema, {})]
    for _ in range(rng.integers(1, 6)):
        scope = rng.choice(names, size=rng.integers(1, min(4, len(names) + 1)), replace=False)
        groups.append(kronecker(schema, {str(a): some_factor(rng, schema, str(a)) for a in scope}))
    groups += [kronecker(schema, dict.fromkeys(pair, CELLS)) for pair in pairwise(names)]
    if rng.integers(2):
        weights: dict[str, Any] = {}
        for table in schema.tables:
            own = [a for a in table.attributes if a != "k"]
            if own:
                kept = [str(a) for a in rng.permutation(own)[: rng.integers(1, len(own) + 1)]]
                weights[table.name] = (kept, rng.uniform(-1, 1, (4, *schema.shape(kept))))
        groups.append(product_group(schema, weights))
    return [g for g in groups if g.max_abs]  # a group without any weight asks nothing


@dataclass
class Found:
    values: Any


@dataclass
class Fixed:
    """Stands for a Curator with given noise: it chooses and measures as one does, from a seed."""

    exact: list[Any]
    total: int
    seed: int
    chosen: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def join_size(self, bound: Any, cost: Any) -> Any:
        return SimpleNamespace(noisy=self.total)

    def prepare(self, groups: Any) -> None: ...

    def reserve_rounds(self, count: int, each: Any, cost: Any) -> None: ...

    def worst_query(self, groups: Any, model: Any, bound: Any, each: Any) -> tuple[int, int]:
        scores = [
            np.abs(e - np.asarray(m, dtype=float)) / max(1, g.max_abs)
            + self.total / 20 * self.rng.gumbel(size=len(g))
            - 1e9 * np.array([np.ptp(w) == 0 for w in weights_of(g)])
            for e, m, g in zip(self.exact, model, groups, strict=True)
        ]
        g = int(np.argmax([s.max() for s in scores]))
        self.chosen.append((g, int(scores[g].argmax())))
        return self.chosen[-1]

    def measure_query(self, group: Any, index: int, bound: Any, each: Any) -> Found:
        g = self.chosen[-1][0]
        noise = self.total * group.max_abs * self.rng.laplace(scale=0.3)
        return Found(np.array([(float(self.exact[g][index]) + noise) * float(group.unit)]))


def weights_of(group: Group) -> list[Any]:
    """Each query's weights on the cells of its scope."""
    domain = Domain(group.scope, (), dict(zip(group.scope, group.shape, strict=True)))
    return [cell_weights(domain, group, i) for i in range(len(group))]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(2, 5), min_size=2, max_size=5),
    st.integers(0, 10**6),
    st.integers(2, 25),
    st.sampled_from(["slabs", "blocks"]),
)
def test_rounds_equal_the_naive_loop(sizes: list[int], seed: int, count: int, way: str) -> None:
    """Same noise: the same queries are chosen, and the average differs by 1e-12 at most, relatively, at every cell."""
    rng = np.random.default_rng(seed)
    schema = split_schema(sizes)
    groups = some_groups(rng, schema)
    names = list(schema.queryable)
    cut = int(rng.integers(0, len(names) + 1))
    domain = Domain(tuple(names[:cut]), tuple(names[cut:]), dict(zip(names, sizes, strict=True)))
    hidden = rng.dirichlet(np.full(domain.cells, 0.3)).reshape(domain.rows, domain.columns) * TOTAL
    exact = [np.rint(naive_answers(domain, hidden, g)) for g in groups]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(algorithm, "paper_rounds", lambda **_: count)
        # Small tables: both paths must be walked.
        patch.setattr(iterates, "LARGE_BOX", 1.0 if way == "slabs" else 0.05)
        patch.setattr(iterates, "DIRECT_CELLS", 4)
        patch.setattr(iterates, "CACHED_CELLS", 16)
        patch.setattr(iterates, "ROUNDS_UNTIL_ANEW", 7)
        curator: Any = Fixed(exact, TOTAL, seed)
        bound: Any = Bounded()
        model, _, rounds = pmw(curator, groups, domain, bound, BUDGET, silent)
    other = Fixed(exact, TOTAL, seed)
    average, chosen = naive_rounds(other, groups, domain, float(TOTAL), count, bound, None)
    assert rounds == count
    assert curator.chosen == chosen
    np.testing.assert_allclose(model.table, average, rtol=1e-12, atol=0)


@dataclass
class Bounded:
    value: int = 1


@pytest.mark.parametrize("seed", range(3))
def test_two_hundred_rounds_drift_by_less_than_1e12(seed: int) -> None:
    """Long runs with large steps, through many fresh starts: table, marginals and the sum of tables stay right."""
    rng = np.random.default_rng(seed)
    schema = split_schema([6, 5, 4, 3])
    groups = some_groups(rng, schema)
    domain = Domain.split(dict(zip(schema.queryable, (6, 5, 4, 3), strict=True)))
    fast = Iterate(domain, 50.0, [g.scope for g in groups])
    table = np.full((domain.rows, domain.columns), 50.0 / domain.cells)
    total = table.copy()
    for _ in range(200):
        group = groups[int(rng.integers(1, len(groups)))]
        index, step = int(rng.integers(len(group))), float(rng.uniform(-0.5, 0.5))
        fast.update(query_weights(group, index), step)
        table = table * np.exp(cell_weights(domain, group, index) * step)
        table *= 50.0 / table.sum()
        total += table
    np.testing.assert_allclose(fast.table(), table, rtol=1e-12, atol=0)
    np.testing.assert_allclose(fast.sum_of_tables(), total, rtol=1e-12, atol=0)
    for group in groups:
        expected = naive_answers(domain, table, group)
        np.testing.assert_allclose(fast.answers(group), expected, rtol=1e-11, atol=1e-10 * group.max_abs)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_marginals_equal_plain_sums(shape: list[int], data: st.DataObject) -> None:
    """Three long sums, and the same again within them, give what one sum for each marginal gives."""
    axes = st.lists(st.sampled_from(range(len(shape))), unique=True).map(lambda x: tuple(sorted(x)))
    wanted = data.draw(st.lists(axes, unique=True, max_size=6))
    table = np.random.default_rng(1).random(shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(iterates, "DIRECT_CELLS", 2)
        found = marginals(table, wanted)
    assert set(found) == set(wanted)
    for kept, array in found.items():
        expected = table.sum(axis=tuple(a for a in range(len(shape)) if a not in kept))
        np.testing.assert_allclose(array, expected, rtol=1e-13)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_some_rows_of_a_group_are_some_of_its_answers(seed: int) -> None:
    """Groups of every kind, halves one after the other: the same as all at once, and exactly so in whole numbers."""
    rng = np.random.default_rng(seed)
    schema = split_schema([3, 4, 2])
    for group in some_groups(rng, schema):
        table = rng.integers(0, 50, group.shape)
        count = group.answer_shape[0] if group.answer_shape else 1
        cut = int(rng.integers(0, count + 1))
        pieces = [slice(0, cut), slice(cut, count)] if group.scope else [slice(None)]
        found = np.concatenate([group.apply(table, rows) for rows in pieces])
        assert found.tolist() == group.apply(table).tolist()
        expected = [(np.ravel(table) * np.rint(w.ravel() * group.max_abs)).sum() for w in weights_of(group)]
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_ranges_of_weights_are_those_of_the_cells(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for group in some_groups(rng, split_schema([3, 1, 4, 2])):
        ranges = weight_ranges(group)
        weights = [np.rint(w * group.max_abs) for w in weights_of(group)]
        assert ranges.low.tolist() == [w.min() for w in weights]
        assert ranges.high.tolist() == [w.max() for w in weights]
        assert ranges.none_negative == all(w.min() >= 0 for w in weights)
        assert [ranges.of(i) for i in range(len(group))] == [(w.min(), w.max()) for w in weights]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_questions_are_rows_of_the_matrix(seed: int) -> None:
    """One row, made without the others."""
    rng = np.random.default_rng(seed)
    schema = split_schema([4, 6])
    factor = some_factor(rng, schema, "x1")
    matrix = factor.matrix(6)
    assert factor.count(6) == len(matrix)
    assert factor.largest == max(1, int(np.abs(matrix).max()))
    for number, row in enumerate(matrix):
        assert factor.question(6, number).tolist() == row.tolist()
