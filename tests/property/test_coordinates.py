"""The coordinates of a fit: there and back, slopes, and what they are for."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpjoin.model.coordinates import Coordinates
from dpjoin.model.terms import Domain, FloatArray, Terms


def some_coordinates(sizes: list[int], seed: int) -> tuple[Coordinates, Terms]:
    """One-way terms of all attributes but the last, if there are three, some wider ones, and any one-way means."""
    rng = np.random.default_rng(seed)
    names = tuple(f"x{i}" for i in range(len(sizes)))
    domain = Domain(names[:1], names[1:], dict(zip(names, sizes, strict=True)))
    singles = [(a,) for a in (names[:-1] if len(names) > 2 else names)]
    wide = [c for n in (2, 3) for c in combinations(names, n) if rng.random() < 0.7]
    terms = Terms(domain, (*singles, *wide))
    table = rng.dirichlet(np.ones(domain.cells)).reshape(domain.rows, domain.columns)
    shapes = tuple(tuple(domain.sizes[a] for a in c) for c in terms.cliques)
    width = rng.uniform(0.1, 3, terms.size)
    return Coordinates.of(terms.cliques, shapes, terms.answers(table), width), terms


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 10**6))
def test_there_and_back(sizes: list[int], seed: int) -> None:
    """Both ways, for points and for slopes; and slopes say how a function of potentials changes by coordinates."""
    at, terms = some_coordinates(sizes, seed)
    x, direction, gradient = np.random.default_rng(seed).standard_normal((3, terms.size))
    np.testing.assert_allclose(at.inverse(at.potentials(x)), x, rtol=1e-9, atol=1e-9)
    # A linear function: its change along any direction is the same, whichever way it is written.
    assert gradient @ at.potentials(direction) == pytest.approx(at.slopes(gradient) @ direction, rel=1e-9, abs=1e-9)


def test_a_wider_potential_leaves_one_way_marginals_alone() -> None:
    """Where attributes are independent, to first order; by itself it would move them."""
    rng = np.random.default_rng(1)
    names, sizes = ("a", "b", "c"), (3, 4, 5)
    domain = Domain(names[:1], names[1:], dict(zip(names, sizes, strict=True)))
    terms = Terms(domain, (("a",), ("b",), ("c",), ("a", "b"), ("a", "b", "c")))
    potentials = np.zeros(terms.size)
    potentials[: sum(sizes)] = rng.standard_normal(sum(sizes))
    shapes = tuple(tuple(domain.sizes[a] for a in c) for c in terms.cliques)

    def one_way(potentials: FloatArray) -> FloatArray:
        return terms.answers(terms.table(potentials, 1.0))[: sum(sizes)]

    at = Coordinates.of(terms.cliques, shapes, terms.answers(terms.table(potentials, 1.0)), np.ones(terms.size))
    for term in range(sum(sizes), terms.size):
        step = 1e-4 * np.eye(terms.size)[term]
        alone = np.abs(one_way(potentials + step) - one_way(potentials)).max()
        moved = np.abs(one_way(potentials + at.potentials(step)) - one_way(potentials)).max()
        assert moved < 1e-3 * alone
