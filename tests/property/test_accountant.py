"""Conversion and composition against other formulas and another library."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpjoin.privacy.conversion import (
    selection_epsilon,
    zcdp_delta,
)
from support.accountant import log_delta


@given(
    st.fractions(min_value=0, max_value=5),
    st.fractions(min_value=Fraction(1, 1000), max_value=10),
    st.fractions(min_value=Fraction(1001, 1000), max_value=50),
)
def test_zcdp_delta_bounds_its_formula(rho: Fraction, epsilon: Fraction, order: Fraction) -> None:
    """The certified number equals the float formula up to float error."""
    delta = zcdp_delta(rho=rho, epsilon=epsilon, order=order)
    expected = log_delta(float(rho), float(epsilon), float(order))
    exact = math.log(delta.numerator) - math.log(delta.denominator)
    assert exact == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.fractions(min_value=Fraction(1, 10**12), max_value=100))
def test_selection_epsilon_is_just_below(rho: Fraction) -> None:
    """ε²/8 is at most rho, and 1 + 1e-9 times the ε would exceed it."""
    epsilon = selection_epsilon(rho)
    assert epsilon**2 / 8 <= rho < (epsilon * (1 + Fraction(1, 10**9))) ** 2 / 8
