"""The size of a join from noisy sizes under caps: no case is taken for granted, and one lucky noise is not believed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpjoin.constants import ALIGNMENTS, BEYOND, MISJUDGED, SAME_DIRECTION
from dpjoin.measure.estimates import Left, likely_shares, likely_size
from dpjoin.measure.totals import NoisyTotal

NOTHING_LOST = Left(1.0, 1.0)


def size(*seen: tuple[float, float], left: list[Left] | None = None) -> NoisyTotal:
    return likely_size([NoisyTotal(*s) for s in seen], left or [NOTHING_LOST] * len(seen))


def test_without_losses_it_is_the_mean_by_precision() -> None:
    assert size((5_000.0, 100.0), (5_050.0, 100.0)).noisy == pytest.approx(5_025)
    assert size((5_000.0, 100.0), (5_050.0, 100.0)).deviation == pytest.approx(100 / math.sqrt(2))
    assert size((-50.0, 40.0)) == NoisyTotal(pytest.approx(-50), pytest.approx(40))


def test_sizes_that_lie_apart_are_less_certain() -> None:
    assert size((5_000.0, 100.0), (5_400.0, 100.0)).deviation == pytest.approx(200.0)


def test_it_leans_on_caps_that_know() -> None:
    """Generous caps with noise far above the size do not inflate it; without noise it is the largest of them."""
    half = [NOTHING_LOST, NOTHING_LOST, Left(0.5, 0.5)]
    assert 8_000 < size((60_000.0, 40_000.0), (9_500.0, 500.0), (5_100.0, 250.0), left=half).noisy < 12_000
    clear = size((10_000.0, 10.0), (9_990.0, 5.0), (5_000.0, 2.0), left=half)
    assert clear.noisy == pytest.approx(10_000, rel=0.01)


def test_noise_under_generous_caps_is_no_hot_value() -> None:
    lucky = size((60_000.0, 15_000.0), *[(9_900.0, 3_000.0)] * 4)
    assert 8_000 < lucky.noisy < 16_000


def test_a_hot_value_that_ranks_do_not_show_is_believed() -> None:
    """Sizes under all caps that cut it are alike, and too small."""
    hot = size((20_000.0, 300.0), (19_900.0, 200.0), (10_000.0, 50.0), (10_000.0, 50.0))
    assert hot.noisy == pytest.approx(20_000, rel=0.02)
    allowed = [Left(1.0, 1.0, larger=1.5, size=10_000.0 / BEYOND)] * 4
    few = size((20_000.0, 300.0), (19_900.0, 200.0), (10_000.0, 50.0), (10_000.0, 50.0), left=allowed)
    assert few.noisy < 20_000 * 0.98, "degrees allow no such join"


def test_rows_that_noise_hides_count_and_leave_a_doubt_that_more_caps_do_not_remove() -> None:
    """Caps that seem to lose nothing lose a twentieth, give or take a fiftieth: all of them the same rows."""
    hiding = Left(1.0, 1.0, hidden=0.05, doubt=0.02)
    one, many = (size(*[(9_500.0, 10.0)] * n, left=[hiding] * n) for n in (1, 6))
    for found in (one, many):
        assert found.noisy == pytest.approx(10_000)
        assert 0.02 * 10_000 <= found.deviation < 0.025 * 10_000
    # Caps that hide nothing tell better, where noise allows.
    both = size((10_200.0, 50.0), *[(9_500.0, 10.0)] * 6, left=[NOTHING_LOST, *[hiding] * 6])
    assert both.noisy == pytest.approx(10_200, abs=50)
    assert both.deviation < 60


def test_what_is_misjudged_is_so_under_all_caps() -> None:
    """Six caps that lose three tenths each: half of what may be wrong with that, as a variance, is common to them."""
    strict = Left(0.7, 0.7)
    found = size(*[(7_000.0, 1.0)] * 6, left=[strict] * 6)
    off = MISJUDGED * (1 - 0.7) * 10_000
    assert found.noisy == pytest.approx(10_000)
    assert found.deviation == pytest.approx(off * math.sqrt(SAME_DIRECTION + (1 - SAME_DIRECTION) / 6), rel=0.01)


CURVES = [(1.0, 1.0), (0.98, 0.8), (0.85, 0.35), (0.6, 0.1), (0.4, 0.04)]
"""What five caps leave, by chance and aligned."""
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


def test_degrees_tell_where_nothing_else_does() -> None:
    """The same sizes with much noise: a join about as large as by chance loses as by chance."""
    totals = [NoisyTotal(n, 4e3) for n in (1.1e4, 0.8e4, 0.7e4, 0.5e4, 0.35e4)]
    small, large = ([Left(*both, larger=20.0, size=s) for both in CURVES] for s in (1e4, 1e4 / 20))
    by_chance, aligned = (likely_shares(totals, left)[3] for left in (small, large))
    assert by_chance < aligned - 0.1


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
