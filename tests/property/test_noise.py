"""The samplers follow their laws, and the tests would notice if they did not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpjoin.privacy import noise
from dpjoin.privacy.rational import exp_lower, log_lower


@given(st.integers(min_value=0, max_value=2**63 - 1), st.fractions(min_value=Fraction(1, 50), max_value=10**6))
def test_geometric_refinement_agrees_with_its_definition(word: int, scale: Fraction) -> None:
    """The refined magnitude y has exp(-(y+1)/scale) < U <= exp(-y/scale), within the bits drawn."""
    y = noise._geometric(word, 63, scale)
    unit = Fraction(1, 1 << 63)
    assert Fraction(word, 1 << 63) <= exp_lower(-y / scale) + unit
    assert Fraction(word + 1, 1 << 63) >= exp_lower(-(y + 1) / scale) - unit


@given(st.lists(st.floats(min_value=2.0**-60, max_value=1.0), min_size=1, max_size=50))
def test_numpy_log_and_exp_keep_the_assumed_error(values: list[float]) -> None:
    """numpy's log and exp are within relative 2**-44 of certified bounds on this machine."""
    array = np.array(values)
    for x, logarithm, exponential in zip(array, np.log(array), np.exp(-30 * array), strict=True):
        exact = log_lower(Fraction(float(x)))
        assert abs(Fraction(float(logarithm)) - exact) <= abs(exact) / 2**44
        exact = exp_lower(Fraction(float(-30 * x)))
        assert abs(Fraction(float(exponential)) - exact) <= exact / 2**44
