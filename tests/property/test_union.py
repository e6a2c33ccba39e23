"""Sums of models and cells known to be empty: answers add up, bars cover, no mass leaves the support."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dpjoin.model.fit import Evidence, learn, start
from dpjoin.model.terms import Domain, Terms, support_of
from dpjoin.released.rows import drawn_counts, whole_counts
from support.naive import table_of
from support.union import CLIQUES, CORNER, DOMAIN, NAMES, SIZES, make_truth


@settings(max_examples=40, deadline=None)
@given(st.permutations(NAMES), st.integers(0, 4), st.integers(0, 4), st.integers(0, 99))
def test_a_support_holds_the_cells_it_allows(order: list[str], wide: int, cut: int, seed: int) -> None:
    """Cell by cell, whatever the order of the attributes and wherever the domain is cut."""
    attributes = tuple(order[:wide])
    domain = Domain(NAMES[:cut], NAMES[cut:], SIZES)
    allowed = np.asarray(np.random.default_rng(seed).random([SIZES[a] for a in attributes]) < 0.5)
    found = support_of(domain, attributes, allowed).reshape(domain.shape)
    for cell in itertools.product(*map(range, domain.shape)):
        assert found[cell] == allowed[tuple(cell[NAMES.index(a)] for a in attributes)]


def test_a_support_makes_the_fit_better() -> None:
    """A join that lives in the support is closer to the fit that knows so."""
    gains = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        truth = make_truth(rng, 1000.0, CORNER)
        noise = rng.standard_normal(Terms(DOMAIN, CLIQUES).size)
        off = []
        for support in (None, CORNER):
            terms = Terms(DOMAIN, CLIQUES, (), support)
            evidence = Evidence.none(terms.size).add(slice(0, terms.size), terms.answers(truth) + 20.0 * noise, 20.0**2)
            fit = learn(start(terms, 1000.0), evidence)
            off.append(np.abs(table_of(fit) - truth).sum())
        gains.append(off[1] / off[0])
    assert max(gains) < 1.0
    assert np.mean(gains) < 0.8


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.0, 0.3, 7.0]), min_size=1, max_size=30), st.integers(0, 300), st.integers(0, 9))
def test_empty_cells_get_no_rows(cells: list[float], rows: int, seed: int) -> None:
    """Unless all of them are empty: then nothing says where the rows belong, and they still add up."""
    table = np.array(cells)
    for counts in (whole_counts, drawn_counts):
        found = counts(table, rows, np.random.default_rng(seed))
        assert found.sum() == rows
        assert (found >= 0).all()
        assert not table.any() or (found[table == 0] == 0).all()
