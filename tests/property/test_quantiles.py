"""Edges at noisy quantiles are finite and increase, whatever the numbers and the noise are."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from dpjoin.measure.quantiles import noisy_edges
from dpjoin.privacy.columns import NoisyCounts


def numbers(rng: np.random.Generator) -> np.ndarray:
    """Small whole numbers, ordinary ones, ones of any size, and the largest there are."""
    n = int(10 ** rng.uniform(0, 4))
    kinds = (
        rng.integers(-5, 100, n).astype(float),
        rng.normal(0, 1e3, n),
        np.floor(np.exp(rng.normal(0, 30, n))),
        rng.choice([-1.7e308, 1.7e308, 0.0], n),
    )
    return kinds[int(rng.integers(len(kinds)))]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_edges_are_finite_and_increase(seed: int, whole: bool) -> None:
    """Also where noise is all there is; an error here would come after the budget was spent."""
    rng = np.random.default_rng(seed)
    data, deviation = numbers(rng), 10 ** rng.uniform(-1, 4)

    def count(edges: Sequence[float], share: float) -> NoisyCounts:
        at = np.searchsorted(np.array(edges), data, side="right") - 1
        exact = np.bincount(at[(at >= 0) & (at < len(edges) - 1)], minlength=len(edges) - 1)
        off = deviation / math.sqrt(share)
        noisy = np.rint(exact + rng.normal(0, off, len(exact)))
        return NoisyCounts(tuple(edges), tuple(int(n) for n in noisy), off**2)

    found = noisy_edges(count, 8, whole=whole)
    assert found
    assert all(math.isfinite(e) for e in found)
    assert list(found) == sorted(set(found))
