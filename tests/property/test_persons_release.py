"""Releases that protect a person: replay on neighbours, ledgers, refusals, an attack, and the way from a spec file."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

import dpjoin as dj
from dpjoin.measure.owners import owners_told
from dpjoin.methods.clipped import best_clipping
from dpjoin.privacy.owners import NoisyOwners
from support.owners import (
    SHAPES,
)


def test_noise_beyond_the_last_owner_does_not_move_the_limit() -> None:
    """Many owners of eight results each; noise in a hundred empty buckets must not be taken for a few huge owners."""
    schema = SHAPES["two tables"]
    workload, rng = dj.Workload.marginals(schema, 2), np.random.default_rng(3)
    from dpjoin.measure.ranks import EDGES

    counts = np.zeros(len(EDGES) + 1)
    counts[EDGES.index(8)] = 20_000
    limits = []
    for _ in range(50):
        noisy = tuple(int(n) for n in np.rint(counts + 20 * rng.standard_normal(len(counts))))
        told = owners_told(NoisyOwners(("o",), EDGES, noisy, 20.0))
        limits.append(best_clipping(workload, told, Fraction(1, 50)).clip.limit)
    assert set(limits) <= {7, 8, 9}
