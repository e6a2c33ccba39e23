"""A release from Python: every kind of input and workload, saved, loaded, asked and sampled."""

from __future__ import annotations

import numpy as np
import pytest

import dpjoin as dj
from support.release import BUDGET, SCHEMA, TABLES


@pytest.mark.parametrize("profile", ["tight", "paper"])
def test_product_queries(profile: str) -> None:
    """General product queries are answered in both profiles, much better than uniform in the tight one."""
    rng = np.random.default_rng(5)
    weights = {
        "r": (("a", "b"), rng.uniform(-1, 1, (60, 4, 3))),
        "s": (("c", "d"), rng.uniform(0, 1, (60, 5, 2))),
    }
    workload = dj.Workload.products(SCHEMA, weights)
    # The queries share their noise, so one release's coverage swings; three together say more.
    covered = []
    for _ in range(3):
        release = dj.release(SCHEMA, workload, TABLES, BUDGET, profile=profile)
        found = dj.evaluate(release, TABLES)
        covered.append(found.covered)
    assert np.mean(covered) > 0.75
    if profile == "tight":
        assert found.max_error < 0.05 * release.join_size
