"""Certificates against full enumeration in 60-digit decimals."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpjoin.privacy.truncated import (
    gaussian_delta,
    laplace_delta,
)
from support.truncated import (
    gaussian_half_width,
    gaussian_smallest_half_width,
    laplace_half_width,
)


@pytest.fixture(autouse=True)
def _sixty_digits() -> Iterator[None]:
    with localcontext() as context:
        context.prec = 60
        yield


@given(
    st.fractions(min_value=Fraction(1, 1000), max_value=20),
    st.integers(min_value=1, max_value=300),
    st.integers(min_value=1, max_value=10**12),
)
def test_laplace_half_width_passes_and_its_predecessor_fails(
    epsilon: Fraction, exponent: int, sensitivity: int
) -> None:
    """The search ends between a failing and a passing half-width over many magnitudes."""
    delta = Fraction(1, 2**exponent)
    width = laplace_half_width(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    assert laplace_delta(epsilon=epsilon, sensitivity=sensitivity, half_width=width) <= delta
    if width > sensitivity - 1:
        assert laplace_delta(epsilon=epsilon, sensitivity=sensitivity, half_width=width - 1) > delta


@settings(max_examples=30)
@given(
    st.fractions(min_value=Fraction(1, 100), max_value=10**8, max_denominator=1000),
    st.integers(min_value=1, max_value=10**6),
    st.integers(min_value=2, max_value=100),
)
def test_gaussian_half_width_passes_and_its_predecessor_fails(
    variance: Fraction, sensitivity: int, exponent: int
) -> None:
    """The search ends between a failing (or disallowed) and a passing half-width over many magnitudes."""
    delta = Fraction(1, 2**exponent)
    width = gaussian_half_width(variance=variance, delta=delta, sensitivity=sensitivity)
    assert gaussian_delta(variance=variance, sensitivity=sensitivity, half_width=width) <= delta
    if width > gaussian_smallest_half_width(variance=variance, sensitivity=sensitivity):
        assert gaussian_delta(variance=variance, sensitivity=sensitivity, half_width=width - 1) > delta
