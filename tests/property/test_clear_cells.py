"""After a fit, cells that stand out of noise are as measured, and drowned ones have together what is left."""

from __future__ import annotations

import numpy as np

from dpjoin.model.clear_cells import keep_clear_cells
from dpjoin.model.fit import learn, with_sums
from support.clear_cells import measured
from support.naive import table_of


def test_what_was_measured_of_single_values_is_kept() -> None:
    """Clear cells are as noisy as they are; where values were measured too, drowned cells make up for that."""
    rng, by_key = np.random.default_rng(0), 1 / np.arange(1, 101)
    table = 4_000 * np.outer(by_key, by_key) / by_key.sum() ** 2
    off: list[list[float]] = [[], []]
    for seed in range(4):
        begun, evidence = measured(table, seed)
        for n, axis in enumerate((1, 0)):
            noisy = table.sum(axis=axis) + rng.laplace(0, 1.0, 100)
            evidence = evidence.add(begun.terms.slices[n], noisy, 2.0)
        found = learn(begun, with_sums(begun, evidence, every=True))
        for n, model in enumerate((found, keep_clear_cells(found, evidence))):
            off[n].append(float(np.abs(table_of(model).sum(axis=1) - table.sum(axis=1)).mean()))
    assert np.mean(off[1]) < 1.3 * np.mean(off[0])
