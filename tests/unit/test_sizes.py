"""The size of a join from noisy sizes under caps: no case is taken for granted, and one lucky noise is not believed."""

from __future__ import annotations

import math

import pytest

from dpjoin.constants import BEYOND, MISJUDGED, SAME_DIRECTION
from dpjoin.measure.estimates import Left, likely_shares, likely_size
from dpjoin.measure.totals import NoisyTotal
from support.sizes import CURVES

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


def test_degrees_tell_where_nothing_else_does() -> None:
    """The same sizes with much noise: a join about as large as by chance loses as by chance."""
    totals = [NoisyTotal(n, 4e3) for n in (1.1e4, 0.8e4, 0.7e4, 0.5e4, 0.35e4)]
    small, large = ([Left(*both, larger=20.0, size=s) for both in CURVES] for s in (1e4, 1e4 / 20))
    by_chance, aligned = (likely_shares(totals, left)[3] for left in (small, large))
    assert by_chance < aligned - 0.1
