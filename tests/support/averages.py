"""One table with a release whose averages are known."""

from __future__ import annotations

import numpy as np

import dpjoin as dj

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


GROUPS, VALUES = 8, 20


ONE_TABLE = dj.Schema(
    [dj.Table(name="r", attributes=["a", "g", "x"])],
    [
        dj.Attribute(name="a", range=(0, 3)),
        dj.Attribute(name="g", range=(0, GROUPS - 1)),
        dj.Attribute(name="x", range=(0, VALUES - 1), other=True),
    ],
)


STATEMENTS = (
    "SELECT AVG(x) FROM joined",
    "SELECT AVG(x) FROM joined WHERE x >= 4",
    "SELECT g, AVG(x) FROM joined GROUP BY g",
)


def _rows(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values that rise with their group, which a fit that pulls cells together gets wrong; some are `other`."""
    rng = np.random.default_rng(seed)
    share = 0.7 ** np.arange(GROUPS)
    g = rng.choice(GROUPS, rows, p=share / share.sum())
    x = np.clip(np.rint(4 + g + rng.normal(0, 2, rows)), 0, VALUES - 1).astype(int)
    return rng.integers(0, 4, rows), g, np.where(rng.random(rows) < 0.05, 99, x)
