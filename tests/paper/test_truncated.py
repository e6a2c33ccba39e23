"""Certificates against full enumeration in 60-digit decimals."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import localcontext
from fractions import Fraction

import pytest

from dpjoin.privacy.truncated import (
    laplace_delta,
    paper_laplace_half_width,
)
from support.truncated import (
    LAPLACE_GRID,
    decimal,
    laplace_half_width,
)


@pytest.fixture(autouse=True)
def _sixty_digits() -> Iterator[None]:
    with localcontext() as context:
        context.prec = 60
        yield


@pytest.mark.parametrize(("epsilon", "delta", "sensitivity"), LAPLACE_GRID)
def test_paper_half_width_is_valid(epsilon: Fraction, delta: Fraction, sensitivity: int) -> None:
    """The paper's half-width, rounded up, meets delta and is no smaller than the least one."""
    half_width = paper_laplace_half_width(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    assert laplace_delta(epsilon=epsilon, sensitivity=sensitivity, half_width=half_width) <= delta
    assert half_width >= laplace_half_width(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    formula = sensitivity / decimal(epsilon) * (1 + (decimal(epsilon).exp() - 1) / decimal(delta)).ln()
    assert 0 <= half_width - formula < 1
