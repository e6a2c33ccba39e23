"""The model: matrix products equal plain sums, the fit recovers what it is told, bars and rows behave."""

from __future__ import annotations

import numpy as np
import pytest

from dpjoin import constants
from dpjoin.model import ensemble
from support.model import shapes_of_keys


def test_bars_hold_where_a_few_keys_count_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over keys of which the first has a quarter of the weight: one width for all values is not enough."""

    def covered() -> float:
        held = []
        for seed in range(6):
            table, found, evidence = shapes_of_keys(seed)
            weights = np.arange(1, len(table) + 1) ** -1.3
            members = ensemble.ensemble(found, evidence, total_deviation=1.0)
            likely = weights @ found.terms.table(found.potentials, found.total)
            spread = np.array([weights @ found.terms.table(p, found.total) for p, _ in members]) - likely
            bars = 1.645 * constants.STRETCH * np.sqrt((spread**2).mean(axis=0))
            held.append(np.abs(likely - weights @ table) < bars)
        return float(np.mean(held))

    assert covered() > 0.84
    monkeypatch.setattr(ensemble, "widths_by_value", lambda found, evidence: found.tau_each)
    assert covered() < 0.78
