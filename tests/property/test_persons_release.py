"""Releases that protect a person: replay on neighbours, ledgers, refusals, an attack, and the way from a spec file."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

import dpjoin as dj
from dpjoin.measure.owner_counts import Owners, owners_told
from dpjoin.measure.ranks import EDGES
from dpjoin.methods.clipped import best_clipping
from dpjoin.privacy.owners import NoisyOwners
from support.owners import (
    SHAPES,
)


def test_noise_beyond_the_last_owner_does_not_move_the_limit() -> None:
    """Many owners of eight results each; noise in a hundred empty buckets must not be taken for a few huge owners."""
    schema = SHAPES["two tables"]
    workload, rng = dj.Workload.marginals(schema, 2), np.random.default_rng(3)
    counts = np.zeros(len(EDGES) + 1)
    counts[EDGES.index(8)] = 20_000
    limits = []
    for _ in range(50):
        noisy = tuple(int(n) for n in np.rint(counts + 20 * rng.standard_normal(len(counts))))
        told = owners_told(NoisyOwners(("o",), EDGES, noisy, 20.0))
        limits.append(best_clipping(workload, told, Fraction(1, 50)).clip.limit)
    assert set(limits) <= {7, 8, 9}


def test_owners_that_are_alike_are_not_cut_because_they_are_few() -> None:
    """A stricter limit has less noise, of a join that is smaller in the same proportion: nothing is gained."""
    attributes = (dj.Attribute(name="k", key=True), *(dj.Attribute(name=n, range=(0, 29)) for n in "ab"))
    tables = (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "b")))
    workload = dj.Workload.marginals(dj.Schema(tables, attributes, unit=("k",)), 2)
    edges = np.array(EDGES, dtype=float)
    lows = np.array([0, *EDGES[:-1]], dtype=float)
    for count in (200, 500, 2000):
        owners = np.where((lows < 100) & (edges >= 100), float(count), 0.0)
        found = best_clipping(workload, Owners((lows + 1 + edges) / 2, owners, 20.0, edges, owners), Fraction(1, 30))
        assert 79 <= found.clip.limit <= 137
