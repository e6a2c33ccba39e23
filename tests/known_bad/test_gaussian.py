"""Gaussian composition: certified numbers against floats, and discrete Gaussians against what is claimed of them."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from dpjoin.privacy.accounting import (
    ZERO_CONCENTRATED,
)
from support.gaussian import worst_excess


@pytest.mark.parametrize(("rho", "moves"), [(0.5, 1), (0.1, 1), (0.02, 1)])
def test_noise_without_the_grain_is_not(rho: float, moves: int) -> None:
    """Discrete Gaussians are not Gaussian: with the variance of zCDP they exceed what Gaussian composition claims."""
    variance = float(ZERO_CONCENTRATED.variance(moves**2, Fraction(rho)))
    assert worst_excess(variance, moves, math.sqrt(2 * rho)) > 1e-3
