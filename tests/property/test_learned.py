"""Learned domains are valid whatever noise says: no noisy answer may raise, and edges lie where they should."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpjoin as dj
from dpjoin.engine.interface import ExactNumbers
from dpjoin.measure.domains import domain_costs, is_list
from dpjoin.measure.quantiles import first_edges, noisy_edges, roundest
from dpjoin.privacy.accounting import GAUSSIAN
from dpjoin.privacy.columns import NoisyCounts, counts_between
from dpjoin.spec.learning import Learn
from support.learned import learnable
from support.owners import SHAPES

DATE = "date"


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    bins=st.integers(1, 12),
    kind=st.sampled_from(["number", "whole", "date"]),
    what=st.sampled_from(["noise", "zero", "negative", "huge", "one cell"]),
)
def test_any_noisy_answers_give_a_domain(seed: int, bins: int, kind: str, what: str) -> None:
    """Also answers that are nothing but noise: increasing finite edges that an attribute takes."""
    rng = np.random.default_rng(seed)

    def count(edges: Sequence[float], share: float) -> NoisyCounts:
        assert all(a < b for a, b in pairwise(edges))
        cells = len(edges) - 1
        noisy = {
            "noise": rng.normal(0, 50, cells).round(),
            "zero": np.zeros(cells),
            "negative": -rng.integers(1, 1000, cells),
            "huge": rng.integers(0, 10**9, cells),
            "one cell": np.eye(1, cells, int(rng.integers(cells)))[0] * 10**6,
        }[what]
        return NoisyCounts(tuple(edges), tuple(int(x) for x in noisy), 2500.0)

    part = DATE if kind == "date" else None
    edges = noisy_edges(count, bins, whole=kind != "number", part=part)
    attribute = dj.Attribute(name="x", bins=edges, other=True, part=part)
    assert all(math.isfinite(e) for e in edges)
    assert attribute.size >= 2
    assert attribute.labels[-1] == "other"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), bins=st.integers(2, 10), whole=st.booleans())
def test_without_noise_bins_hold_equally_many(seed: int, bins: int, whole: bool) -> None:
    """Each bin has about its share, but for numbers that are frequent themselves; next to nothing is left out."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-2, 6)
    values = rng.normal(rng.normal(0, scale), scale, 5000)
    values = np.floor(values) if whole else values
    exact = ExactNumbers(*np.unique(values, return_counts=True))

    def count(edges: Sequence[float], share: float) -> NoisyCounts:
        return NoisyCounts(tuple(edges), tuple(counts_between(exact, edges).tolist()), 1e-3)

    edges = np.array(noisy_edges(count, bins, whole=whole), dtype=float)
    below, upto = ((values[None, :] < edges[:, None]).mean(1), (values[None, :] <= edges[:, None]).mean(1))
    frequent = max(exact.exact_counts) / len(values)
    for j in range(1, bins):
        off = np.maximum(np.maximum(below - j / bins, j / bins - upto), 0.0).min()
        assert off <= 0.02 + frequent
    assert below[0] <= 0.01 + frequent
    assert upto[-1] >= 0.99 - frequent


@given(st.floats(-1e12, 1e12, allow_nan=False), st.floats(0, 1e12, allow_nan=False), st.booleans())
def test_round_numbers_lie_within(low: float, more: float, whole: bool) -> None:
    """Where a whole number is wanted it may be the first one above, if there is none between."""
    found = roundest(low, low + more, whole=whole)
    assert low <= found
    assert found <= max(low + more, math.ceil(low)) if whole else found <= low + more
    assert not whole or found == math.floor(found)


@pytest.mark.parametrize("part", [None, DATE])
@pytest.mark.parametrize("whole", [True, False])
def test_first_edges_are_public_and_cover_everything(whole: bool, part: str | None) -> None:
    """They do not depend on anything but the kind of column."""
    edges = first_edges(whole=whole, part=part)
    assert list(edges) == sorted(set(edges))
    assert edges[0] <= (-719162 if part else -1e308)
    assert edges[-1] > (2932896 if part else 1e308)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("person", [True, False])
def test_costs_add_up_to_the_share(shape: str, person: bool) -> None:
    """A row pays for the columns of its table, a person for all; 5 to 10 % of rho, and what lists need of delta."""
    base = learnable(SHAPES[shape])
    unit = base.unit if person else ()
    tables = tuple(dj.Table(name=t.name, attributes=t.attributes, private=t.private) for t in base.tables)
    schema = dj.Schema(base.tables if person else tables, base.attributes, unit)
    budget = dj.Budget(epsilon=1.0, delta=1e-6, composition=GAUSSIAN)
    costs = domain_costs(schema, budget)
    assert 0.049 < costs.total.rho / budget.rho() <= 0.1
    payers = [schema.learned] if person else [[a for a in schema.learned if schema.owner(a) == t.name] for t in tables]
    for columns in payers:
        assert sum(costs.each[a].rho for a in columns) <= costs.total.rho
        assert sum(costs.each[a].delta for a in columns) <= costs.total.delta
    for a in schema.learned:
        private = schema.table(schema.owner(a)).private
        assert (costs.each[a].rho > 0) == private
        assert (costs.each[a].delta > 0) == (private and is_list(schema, a))


def test_learn_is_what_a_spec_may_say() -> None:
    """true, bins or values; as it is written again."""
    for given_, plain in ((True, True), ({"bins": 8}, {"bins": 8}), ({"values": 50}, {"values": 50})):
        attribute = dj.Attribute(name="x", learn=given_)
        assert attribute.learned is not None
        assert attribute.learned.to_plain() == plain
    assert dj.Attribute(name="x", learn=Learn(bins=3)).size == 4


@settings(max_examples=20, deadline=None)
@given(low=st.integers(-3000, 3000), more=st.integers(0, 7), seed=st.integers(0, 2**31))
def test_few_whole_numbers_are_told_apart(low: int, more: int, seed: int) -> None:
    """All of them lie between the ends, which are next to numbers that occur."""
    rng = np.random.default_rng(seed)
    values = np.concatenate([rng.integers(low, low + more + 1, 3000), np.repeat([low, low + more], 200)])
    exact = ExactNumbers(*np.unique(values.astype(float), return_counts=True))

    def count(edges: Sequence[float], share: float) -> NoisyCounts:
        exact_counts = counts_between(exact, edges)
        return NoisyCounts(tuple(edges), tuple((exact_counts + rng.integers(-3, 4, len(edges) - 1)).tolist()), 4.0)

    edges = noisy_edges(count, 8, whole=True)
    assert low - 1 <= edges[0] <= low
    assert low + more <= edges[-1] <= low + more + 1
