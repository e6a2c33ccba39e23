"""Divergences of discrete Gaussians, by sums over all values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from support.audit import numeric_gaussian_delta

FloatArray = NDArray[np.float64]


def discrete_gaussian(variance: float, reach: int) -> FloatArray:
    """Its probabilities on -reach … reach."""
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    return np.asarray(weights / weights.sum())


def hockey_stick(p: FloatArray, q: FloatArray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def worst_excess(variance: float, moves: int, mu: float) -> float:
    """By how much a discrete Gaussian exceeds the delta of a Gaussian with this mu, over many epsilons, relatively."""
    reach = int(14 * math.sqrt(variance)) + moves
    noise = discrete_gaussian(variance, reach + moves)
    p, q = noise[moves:], noise[:-moves]
    excess = -1.0
    for epsilon in np.linspace(0.0, min(8.0, 8 * mu + mu**2 / 2), 200):
        claimed = numeric_gaussian_delta(mu**2 / 2, float(epsilon))
        if claimed > 1e-10:
            excess = max(excess, hockey_stick(p, q, float(epsilon)) / claimed - 1)
    return excess
