"""What lies outside a proof's precondition is refused, before anything is computed or drawn."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import pytest

from dpjoin.canonical import real
from dpjoin.errors import SpecError
from dpjoin.privacy import noise, truncated

ZERO, ONE, TENTH = Fraction(0), Fraction(1), Fraction(1, 10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(noise.DiscreteLaplace, ZERO), r"scale \(0\) must be positive"),
        (partial(noise.DiscreteGaussian, ZERO), r"variance \(0\) must be positive"),
        (partial(noise.DiscreteLaplace, ZERO, 0), r"scale \(0\) must be positive"),
        (partial(noise.DiscreteGaussian, ZERO, 0), r"variance \(0\) must be positive"),
        (
            partial(truncated.paper_laplace_half_width, epsilon=ZERO, delta=TENTH, sensitivity=1),
            r"epsilon \(0\) must be positive",
        ),
    ],
)
def test_a_parameter_outside_its_range_is_refused(call: Callable[[], object], message: str) -> None:
    """Also where nothing would be drawn, or where the noise would be 0 wide."""
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("value", [None, "1", True, Fraction(1, 2), 2**53 + 1, 10**400])
def test_what_is_no_float_is_refused(value: object) -> None:
    """Not a number, or a whole number that would be rounded."""
    with pytest.raises(SpecError, match=r"epsilon .* must be a number"):
        real(value, "epsilon")
