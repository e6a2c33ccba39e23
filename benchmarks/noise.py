"""Exact noise: dpjoin's samplers against OpenDP's, on integer arrays of 100,000."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from statistics import median
from typing import Any

import numpy as np

from dpjoin.privacy.noise import DiscreteGaussian, exponential_choice

SIGMA = 1000
EPSILON = Fraction(1, 10)


def measure(size: int, repetitions: int) -> dict[str, Any]:
    """Median seconds of both, for a vector of Gaussians and for one selection."""
    rng = np.random.default_rng(3)
    values = rng.integers(0, 10**6, size)
    scores = rng.integers(0, 1000, size)
    # The hard case for a rejection sampler: a single candidate is ever accepted.
    winner = np.where(np.arange(size) == size // 2, 10**6, scores)
    gaussian, select = _opendp()
    jobs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "gaussians": (
            lambda: values + DiscreteGaussian(Fraction(SIGMA**2)).many(size),
            lambda: gaussian(values),
        ),
        "selection": (
            lambda: exponential_choice(scores, rate=EPSILON / 2),
            lambda: select(scores),
        ),
        "clear winner": (
            lambda: exponential_choice(winner, rate=EPSILON / 2),
            lambda: select(winner),
        ),
    }
    found: dict[str, Any] = {"size": size, "repetitions": repetitions, "sigma": SIGMA, "epsilon": float(EPSILON)}
    for name, (ours, theirs) in jobs.items():
        mine, other = [], []
        for _ in range(repetitions):
            mine.append(_seconds(ours))
            other.append(_seconds(theirs))
        found[name] = {"dpjoin": median(mine), "opendp": median(other), "ratio": median(other) / median(mine)}
    return found


def _opendp() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """A discrete Gaussian on i64 vectors, and a selection with the same epsilon.

    OpenDP's noisy maximum under pure privacy is permute-and-flip, a different law from the exponential mechanism
    for the same job; a scale of 2 / epsilon costs the same epsilon.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    vector = dp.vector_domain(dp.atom_domain(T="i64"))
    gaussian = dp.m.make_gaussian(vector, dp.l2_distance(T="i64"), scale=float(SIGMA))
    select = dp.m.make_noisy_max(vector, dp.linf_distance(T="i64"), dp.max_divergence(), scale=float(2 / EPSILON))
    return gaussian, select


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
