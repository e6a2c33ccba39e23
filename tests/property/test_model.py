"""The model: matrix products equal plain sums, the fit recovers what it is told, bars and rows behave."""

from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpjoin.model.fit import (
    Evidence,
    maximise,
    start,
)
from dpjoin.model.terms import Terms
from dpjoin.released.rows import whole_counts
from support.model import _domain


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_terms_equal_plain_sums(sizes: list[int], data: st.DataObject) -> None:
    """Marginals by one matrix product equal sums over axes, wherever the domain is cut; logits are the adjoint."""
    domain = _domain(sizes, data.draw(st.integers(0, len(sizes))))
    names = list(domain.attributes)
    every = [c for r in range(1, len(names) + 1) for c in itertools.permutations(names, r)]
    cliques = tuple({frozenset(c): c for c in data.draw(st.lists(st.sampled_from(every), max_size=5))}.values())
    terms = Terms(domain, cliques)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    table = rng.random((domain.rows, domain.columns))
    plain = [domain.marginal(table, c).reshape(-1) for c in cliques]
    answers = terms.answers(table)
    assert np.allclose(answers, np.concatenate([*plain, np.zeros(0)]))
    potentials = rng.standard_normal(terms.size)
    assert math.isclose(
        float(answers @ potentials), float((terms.logits(potentials, np.empty_like(table)) * table).sum()), abs_tol=1e-9
    )


def test_the_gradient_is_the_slope() -> None:
    """A step of the optimiser from anywhere does not raise the objective: the fit is a minimum in each potential."""
    rng = np.random.default_rng(1)
    domain = _domain([2, 3])
    terms = Terms(domain, (("x0",), ("x1",), ("x0", "x1")))
    evidence = Evidence(rng.uniform(0, 50, terms.size), np.full(terms.size, 0.04))
    fit = maximise(start(terms, 100.0), evidence, steps=500)

    def objective(potentials: np.ndarray) -> float:
        miss = terms.answers(terms.table(potentials, 100.0)) - evidence.noisy
        prior = potentials / fit.tau_each
        return 0.5 * float((miss**2 * evidence.precision).sum() + (prior**2).sum())

    best = objective(fit.potentials)
    for i in range(terms.size):
        for step in (-1e-2, 1e-2):
            moved = fit.potentials.copy()
            moved[i] += step
            assert objective(moved) > best - 1e-6


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.integers(0, 500), st.integers(0, 9))
def test_whole_counts_round_every_cell_to_a_neighbour(cells: list[float], rows: int, seed: int) -> None:
    """Counts add up to the rows asked for, and each is the cell's share rounded up or down."""
    weights = np.array(cells) + 1e-9
    counts = whole_counts(weights, rows, np.random.default_rng(seed))
    assert counts.sum() == rows
    assert (counts >= 0).all()
    assert np.abs(counts - weights * rows / weights.sum()).max() < 1 + 1e-6
