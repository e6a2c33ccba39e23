"""Edges at noisy quantiles are finite and increase, whatever the numbers and the noise are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dpjoin.measure.quantiles import noisy_edges
from dpjoin.privacy.columns import NoisyCounts

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, bool]]


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


def learned(data: np.ndarray, deviation: float, rng: np.random.Generator, *, whole: bool) -> tuple[float, ...]:
    """Edges of eight bins, by counts with such a deviation where all of the budget goes to one."""

    def count(edges: Sequence[float], share: float) -> NoisyCounts:
        at = np.searchsorted(np.array(edges), data, side="right") - 1
        exact = np.bincount(at[(at >= 0) & (at < len(edges) - 1)], minlength=len(edges) - 1)
        off = deviation / math.sqrt(share)
        noisy = np.rint(exact + rng.normal(0, off, len(exact)))
        return NoisyCounts(tuple(edges), tuple(int(n) for n in noisy), off**2)

    return noisy_edges(count, 8, whole=whole)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_edges_are_finite_and_increase(seed: int, whole: bool) -> None:
    """Also where noise is all there is; an error here would come after the budget was spent."""
    rng = np.random.default_rng(seed)
    found = learned(numbers(rng), 10 ** rng.uniform(-1, 4), rng, whole=whole)
    assert found
    assert all(math.isfinite(e) for e in found)
    assert list(found) == sorted(set(found))


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, n: (rng.uniform(0, 50, n), False),
        lambda rng, n: (rng.normal(20, 5, n), False),
        lambda rng, n: (np.clip(rng.normal(40, 20, n), 0, 99).round(), True),
    ],
    ids=["even", "normal", "ages"],
)
def test_few_rows_have_rough_edges_and_not_an_empty_bin(draw: Draw) -> None:
    """With a tenth of the rows as noise in each count, edges span what is seen at all, and that is nearly all."""
    rng, inside, bins = np.random.default_rng(600), [], []
    for _ in range(9):
        data, whole = draw(rng, 600)
        edges = learned(data, 29.0, rng, whole=whole)
        inside.append(np.mean((data >= edges[0]) & (data <= edges[-1])))
        bins.append(len(edges) - 1)
    assert np.median(inside) >= 0.8
    assert np.median(bins) >= 5
