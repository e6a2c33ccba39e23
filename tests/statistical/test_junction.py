"""The junction tree equals the whole table on domains small enough to write down, and is quick on larger ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpjoin.model.triangulate import tree_of
from support.junction import CASES, Whole, flattened, instance


@pytest.mark.parametrize("even", [False, True])
@pytest.mark.parametrize("case", ["cycle", "three parts, one free", "overlapping triples", "sizes of one"])
def test_rows_follow_the_model(case: str, even: bool) -> None:
    """Chi-square of the whole table within four deviations; with any one clique's potential 0.25 off, far outside."""
    names, cliques, potentials = instance(*CASES[case], seed=3)
    tree, whole = tree_of(names, cliques), Whole(names, cliques, potentials)
    rows = 40_000

    def misfit(drawn: dict[str, np.ndarray]) -> float:
        assert list(drawn) == list(names)
        counts = np.zeros(whole.shape)
        np.add.at(counts, tuple(drawn.values()), 1)
        expected = whole.table * rows
        seen = expected >= 5
        rest = expected[~seen].sum()
        square = ((counts - expected)[seen] ** 2 / expected[seen]).sum()
        if rest > 5:
            square += (counts[~seen].sum() - rest) ** 2 / rest
        degrees = max(1, int(seen.sum()) - 1)
        return float((square - degrees) / math.sqrt(2 * degrees))

    rng = np.random.default_rng(11)
    assert misfit(tree.calibrate(flattened(potentials)).sample(rows, rng, even=even)) < 4
    for i, clique in enumerate(cliques):
        middle = np.abs(whole.marginal(clique) - 0.5).reshape(-1)
        if middle.min() < 0.4:
            wrong = [p.copy() for p in potentials]
            wrong[i].reshape(-1)[middle.argmin()] += 0.25
            assert misfit(tree.calibrate(flattened(wrong)).sample(rows, rng, even=even)) > 6, clique
