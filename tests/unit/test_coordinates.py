"""The coordinates of a fit: there and back, slopes, and what they are for."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from dpjoin.model import coordinates, fit
from dpjoin.model.coordinates import Coordinates
from dpjoin.model.fit import Evidence, maximise, start
from dpjoin.model.terms import Domain, Terms


def many_pairs(seed: int) -> tuple[fit.Fit[Terms], Evidence]:
    """Ten attributes of three values, all pairs: one-way marginals are known ten times better than pairs."""
    rng = np.random.default_rng(seed)
    names = tuple(f"x{i}" for i in range(10))
    domain = Domain(names[:5], names[5:], dict.fromkeys(names, 3))
    terms = Terms(domain, (*((a,) for a in names), *combinations(names, 2)))
    truth = np.concatenate([rng.normal(0, 0.3 if len(c) == 1 else 0.1, 3 ** len(c)) for c in terms.cliques])
    exact = terms.answers(terms.table(truth, 1e5))
    sigma = np.where(np.arange(terms.size) < 30, 20.0, 200.0)
    evidence = Evidence(exact + sigma * rng.standard_normal(terms.size), 1 / sigma**2)
    return start(terms, 1e5), evidence


def test_few_steps_are_enough_where_many_pairs_share_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps come far closer to the minimum than without; both end at the same place."""
    begun, evidence = many_pairs(0)

    def value(found: fit.Fit[Terms]) -> float:
        miss = found.total * found.oracle.means(found.potentials) - evidence.noisy
        return 0.5 * float(miss**2 @ evidence.precision + (found.potentials / found.tau_each) ** 2 @ np.ones(len(miss)))

    best = value(maximise(begun, evidence, steps=500, tolerance=1e-12))
    few = value(maximise(begun, evidence, steps=3, tolerance=0.0))
    with monkeypatch.context() as patch:
        none: Any = np.zeros(0, dtype=np.intp)
        patch.setattr(coordinates, "_wider_and_single", lambda cliques, shapes: (none, none))
        plain = value(maximise(begun, evidence, steps=3, tolerance=0.0))
        same = value(maximise(begun, evidence, steps=2000, tolerance=1e-12))
    assert same == pytest.approx(best, rel=2e-2)
    assert few - best < 0.4 * (plain - best)


def test_a_search_begins_where_attributes_are_independent() -> None:
    """At the one-way marginals as measured, also where noise has left nothing of a cell."""
    begun, evidence = many_pairs(0)
    evidence.noisy[0] = -50.0
    found = fit.at_independence(begun, evidence)
    means = found.total * found.oracle.means(found.potentials)
    np.testing.assert_allclose(means[3:30], evidence.noisy[3:30], rtol=0.01)
    assert 0 < means[0] < 0.05 * found.total
    assert found.potentials[0] == -fit.FURTHEST, "two deviations of all rows would be further from zero"
    assert not found.potentials[30:].any()
    unknown = fit.at_independence(begun, Evidence.none(len(evidence.noisy)))
    assert not unknown.potentials.any()


def test_terms_that_are_no_cliques_are_scaled_only() -> None:
    cliques, shapes = (("a",), ("a", "b")), ((2,), (2, 3), (4,))
    at = Coordinates.of(cliques, shapes, np.full(12, 0.5), np.full(12, 2.0))
    x = np.random.default_rng(0).standard_normal(12)
    np.testing.assert_array_equal(at.potentials(x)[8:], 2 * x[8:])
    np.testing.assert_array_equal(at.slopes(x)[8:], 2 * x[8:])
