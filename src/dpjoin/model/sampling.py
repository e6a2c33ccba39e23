"""Draw rows from tables of weights, many groups at once: post-processing with public randomness."""

from __future__ import annotations

import numpy as np

from dpjoin.model.terms import FloatArray
from dpjoin.spec.workload import IntArray


def drawn(given: FloatArray, group: IntArray, uniform: FloatArray) -> IntArray:
    """For each row the cell where its number in [0, 1) falls, in the distribution of its group."""
    edges = np.cumsum(given, axis=1)
    # The last edge becomes exactly one, so that no row falls into an empty cell at the end.
    edges /= edges[:, -1:]
    edges += np.arange(len(edges))[:, None]
    marks = np.minimum(group + uniform, np.nextafter(group + 1.0, 0.0))
    found: IntArray = np.searchsorted(edges.reshape(-1), marks, side="right") - group * edges.shape[1]
    return found


def evenly(group: IntArray, rng: np.random.Generator) -> FloatArray:
    """Numbers in [0, 1), evenly spaced within each group of rows, in random order, from a random start."""
    order = rng.permutation(len(group))
    order = order[np.argsort(group[order], kind="stable")]
    _, starts, which, counts = np.unique(group[order], return_index=True, return_inverse=True, return_counts=True)
    rank = np.arange(len(group)) - starts[which]
    out = np.empty(len(group))
    out[order] = (rank + rng.random(len(counts))[which]) / counts[which]
    return out
