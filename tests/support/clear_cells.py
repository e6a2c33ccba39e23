"""Cells measured with noise, some of them clearly above it."""

from __future__ import annotations

import numpy as np

from dpjoin.model.fit import Evidence, Fit, start
from dpjoin.model.terms import Domain, FloatArray, Terms

VALUES, DEVIATION = 10, 1.6


def measured(table: FloatArray, seed: int) -> tuple[Fit[Terms], Evidence]:
    """A model of keys, the attribute and both, of which Laplace noise has been added to the last."""
    rng, (keys, values) = np.random.default_rng(seed), table.shape
    terms = Terms(Domain(("k",), ("v",), {"k": keys, "v": values}), (("k",), ("v",), ("k", "v")))
    noisy = table + rng.laplace(0, DEVIATION / 2**0.5, table.shape)
    evidence = Evidence.none(terms.size).add(terms.slices[2], noisy.reshape(-1), DEVIATION**2)
    return start(terms, float(table.sum())), evidence
