"""The factored model is the dense one without its table: same answers, same fit, same bars, and rows besides."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpjoin.model import fit
from dpjoin.model.fit import Evidence
from dpjoin.model.terms import Domain, Terms
from dpjoin.model.triangulate import tree_of


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_same_potentials_same_answers(sizes: list[int], data: st.DataObject) -> None:
    """Clique totals, curvature, posterior widths and every pair equal those of the table, whatever the cliques."""
    names = {f"x{i}": n for i, n in enumerate(sizes)}
    every = [c for r in range(1, 4) for c in itertools.permutations(names, r)]
    cliques = tuple({frozenset(c): c for c in data.draw(st.lists(st.sampled_from(every), max_size=6))}.values())
    terms, tree = Terms(Domain.split(names), cliques), tree_of(names, cliques)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    assert tree.slices == terms.slices
    potentials, tau = rng.standard_normal(terms.size), rng.uniform(0.1, 2.0, len(cliques))
    dense = replace(fit.start(terms, 800.0), potentials=potentials, tau=tau)
    loose = replace(fit.start(tree, 800.0), potentials=potentials, tau=tau)
    assert np.allclose(800.0 * loose.means, 800.0 * dense.means, rtol=1e-9)
    assert np.allclose(loose.curvature, dense.curvature, rtol=1e-9, atol=1e-9)
    evidence = Evidence(rng.uniform(0, 100, terms.size), rng.uniform(0, 0.1, terms.size))
    assert np.allclose(fit.relearn_prior(loose, evidence).tau, fit.relearn_prior(dense, evidence).tau, rtol=1e-9)
    for pair in itertools.combinations(names, 2):
        want = dense.marginal(pair)
        assert np.allclose(loose.marginal(pair), want, rtol=1e-9)
