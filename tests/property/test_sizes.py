"""The size of a join from noisy sizes under caps: no case is taken for granted, and one lucky noise is not believed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpjoin.constants import ALIGNMENTS
from dpjoin.measure.estimates import Left, likely_shares, likely_size
from dpjoin.measure.totals import NoisyTotal
from support.sizes import CURVES

LEFT = [Left(*both, larger=20.0) for both in CURVES]


@pytest.mark.parametrize("aligned", [0.0, 0.1, 1.0])
def test_how_sizes_fall_tells_what_is_lost(aligned: float) -> None:
    """Hardly anything is known from generous caps, and strict ones lose up to 96 %."""
    kept = [some.between(aligned) for some in LEFT]
    noise = [0.6, 0.3, 0.1, 0.02, 0.004]
    rng = np.random.default_rng(0)
    found, shares = [], []
    for _ in range(60):
        totals = [NoisyTotal(1e6 * (k + n * rng.standard_normal()), 1e6 * n) for k, n in zip(kept, noise, strict=True)]
        found.append(likely_size(totals, LEFT))
        shares.append(likely_shares(totals, LEFT))
    assert np.median([f.noisy for f in found]) == pytest.approx(1e6, rel=0.2)
    assert np.mean([abs(f.noisy - 1e6) < 1.645 * f.deviation for f in found]) >= 0.75
    assert np.median(shares, axis=0)[2] == pytest.approx(1 - kept[2], abs=0.25)


@given(
    st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(1.0, 1e9)), min_size=1, max_size=8),
    st.floats(1.0, 1e6),
    st.floats(0.0, 1e9) | st.none(),
)
def test_whatever_noise_says_there_is_an_answer(
    seen: list[tuple[float, float]], larger: float, by_chance: float | None
) -> None:
    """Finite, uncertain, and between what is told under some caps or another."""
    left = [Left(1 - n / 20, max(1e-3, 1 - n / 8), larger, by_chance) for n in range(len(seen))]
    totals = [NoisyTotal(*s) for s in seen]
    found, shares = likely_size(totals, left), likely_shares(totals, left)
    assert math.isfinite(found.noisy)
    assert found.deviation > 0
    told = [t.noisy / some.between(a) for t, some in zip(totals, left, strict=True) for a in ALIGNMENTS]
    assert min(told) - 1e-6 * abs(min(told)) - 1e-6 <= found.noisy <= max(told) + 1e-6 * abs(max(told)) + 1e-6
    for share, some in zip(shares, left, strict=True):
        assert 1 - some.by_chance - 1e-9 <= share <= 1 - some.aligned + 1e-9
