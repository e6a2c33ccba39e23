"""Persons: how far one owner, one row or a row replaced moves the join with clipped results, by the definitions."""

from __future__ import annotations

import numpy as np

from dpjoin.engine.interface import Clip


def test_weights_of_many_owners_are_those_of_one() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        clip = Clip(
            owner=("o",), limit=int(rng.integers(1, 50)), full=int(rng.integers(1, 2000)), steep=rng.random() < 0.5
        )
        results = np.array([1, clip.limit, clip.limit + 1, *rng.integers(1, 10**6, size=20), 2**70], dtype=object)
        assert clip.of(results).tolist() == [clip.weight(int(n)) for n in results]
