"""The model: matrix products equal plain sums, the fit recovers what it is told, bars and rows behave."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpjoin as dj
from dpjoin.algorithms.pmw import _query_weights
from dpjoin.model.fit import Evidence, learn, maximise, start, table_of
from dpjoin.model.terms import Domain, Terms
from dpjoin.synthesize import drawn_counts, whole_counts
from dpjoin.workload import product_group


def _domain(sizes: list[int], cut: int | None = None) -> Domain:
    names = {f"x{i}": n for i, n in enumerate(sizes)}
    if cut is None:
        return Domain.split(names)
    return Domain(tuple(list(names)[:cut]), tuple(list(names)[cut:]), names)


def _schema(sizes: list[int]) -> dj.Schema:
    names = [f"x{i}" for i in range(len(sizes))]
    half = max(1, len(sizes) // 2)
    return dj.Schema(
        (
            dj.Table(name="r", attributes=("k", *names[:half])),
            dj.Table(name="s", attributes=("k", *names[half:])),
        ),
        (
            dj.Attribute(name="k", key=True),
            *(dj.Attribute(name=a, range=(0, n - 1)) for a, n in zip(names, sizes, strict=True)),
        ),
    )


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
    assert math.isclose(float(answers @ potentials), float((terms.logits(potentials) * table).sum()), abs_tol=1e-9)


def test_product_terms_equal_plain_sums() -> None:
    """Product queries through left and right weights equal the sum of weight times table."""
    rng = np.random.default_rng(3)
    schema = _schema([3, 2, 4, 2])
    weights = {"r": (("x1", "x0"), rng.uniform(-1, 1, (7, 2, 3))), "s": (("x3",), rng.uniform(0, 1, (7, 2)))}
    group = product_group(schema, weights)
    for left in ((), ("x0", "x1"), ("x0", "x1", "x2", "x3")):
        sizes = {"x0": 3, "x1": 2, "x2": 4, "x3": 2}
        domain = Domain(left, tuple(a for a in sizes if a not in left), sizes)
        terms = Terms(domain, (), (group,))
        table = rng.random((domain.rows, domain.columns))
        largest = group.max_abs * float(group.unit)
        plain = [float((_query_weights(domain, group, i) * table).sum()) * largest for i in range(7)]
        assert np.allclose(terms.answers(table), plain)
        assert np.allclose(group.apply(domain.marginal(table, group.scope)) * float(group.unit), plain)
        potentials = rng.standard_normal(7)
        pairing = float((terms.logits(potentials) * table).sum())
        assert math.isclose(pairing, float(np.dot(plain, potentials)), abs_tol=1e-9)


def test_the_fit_recovers_exact_marginals() -> None:
    """With next to no noise the fitted model has the marginals it was told."""
    rng = np.random.default_rng(0)
    domain = _domain([3, 4, 2])
    terms = Terms(domain, (("x0",), ("x1",), ("x2",), ("x0", "x1"), ("x1", "x2")))
    truth = rng.dirichlet(np.ones(24)).reshape(domain.rows, domain.columns) * 1e6
    evidence = Evidence.none(terms.size)
    exact = terms.answers(truth)
    for where in terms.slices:
        evidence = evidence.add(where, exact[where], 1.0)
    fit = learn(start(terms, 1e6), evidence, steps=400)
    assert np.abs(terms.answers(fit.table) - exact).max() < 20


def test_the_gradient_is_the_slope() -> None:
    """A step of the optimiser from anywhere does not raise the objective: the fit is a minimum in each potential."""
    rng = np.random.default_rng(1)
    domain = _domain([2, 3])
    terms = Terms(domain, (("x0",), ("x1",), ("x0", "x1")))
    evidence = Evidence(rng.uniform(0, 50, terms.size), np.full(terms.size, 0.04))
    fit = maximise(start(terms, 100.0), evidence, steps=500)

    def objective(potentials: np.ndarray) -> float:
        miss = terms.answers(table_of(terms, potentials, 100.0)) - evidence.noisy
        prior = potentials / fit.tau_each
        return 0.5 * float((miss**2 * evidence.precision).sum() + (prior**2).sum())

    best = objective(fit.potentials)
    for i in range(terms.size):
        for step in (-1e-2, 1e-2):
            moved = fit.potentials.copy()
            moved[i] += step
            assert objective(moved) > best - 1e-6


def test_evidence_is_weighted_by_precision() -> None:
    """Two measurements of one number combine to the precision-weighted mean."""
    evidence = Evidence.none(1).add(slice(0, 1), np.array([10.0]), 4.0).add(slice(0, 1), np.array([20.0]), 1.0)
    assert evidence.noisy[0] == pytest.approx(18.0)
    assert evidence.precision[0] == pytest.approx(1.25)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.integers(0, 500), st.integers(0, 9))
def test_whole_counts_round_every_cell_to_a_neighbour(cells: list[float], rows: int, seed: int) -> None:
    """Counts add up to the rows asked for, and each is the cell's share rounded up or down."""
    weights = np.array(cells) + 1e-9
    counts = whole_counts(weights, rows, np.random.default_rng(seed))
    assert counts.sum() == rows
    assert (counts >= 0).all()
    assert np.abs(counts - weights * rows / weights.sum()).max() < 1 + 1e-6


def test_drawn_counts_add_up() -> None:
    """Independent draws give the number of rows asked for."""
    assert drawn_counts(np.array([1.0, 2.0, 0.0]), 1000, np.random.default_rng(0)).sum() == 1000
