"""Certificates against full enumeration in 60-digit decimals."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest

from dpjoin.errors import BudgetError
from dpjoin.privacy.truncated import (
    gaussian_delta,
    laplace_delta,
    paper_laplace_half_width,
)
from support.truncated import (
    LAPLACE_GRID,
    decimal,
    gaussian_half_width,
    gaussian_smallest_half_width,
    laplace_half_width,
)

GAUSSIAN_GRID = [
    (Fraction(variance), sensitivity, Fraction(delta))
    for variance in ("0.3", "1", "10.5", "400")
    for sensitivity in (1, 3, 10)
    for delta in ("0.05", "1e-6", "1e-10")
]


@pytest.fixture(autouse=True)
def _sixty_digits() -> Iterator[None]:
    with localcontext() as context:
        context.prec = 60
        yield


def normalised(weights: list[Decimal]) -> list[Decimal]:
    total = sum(weights)
    return [weight / total for weight in weights]


def laplace_law(epsilon: Fraction, sensitivity: int, half_width: int) -> list[Decimal]:
    step = decimal(epsilon / sensitivity)
    return normalised([(-abs(x) * step).exp() for x in range(-half_width, half_width + 1)])


def gaussian_law(variance: Fraction, half_width: int) -> list[Decimal]:
    return normalised([(-(x * x) / decimal(2 * variance)).exp() for x in range(-half_width, half_width + 1)])


def hockey_stick(law: list[Decimal], shift: int, epsilon: Fraction) -> Decimal:
    """sup_S P[X in S] - e^epsilon P[X + shift in S], point by point."""
    factor = decimal(epsilon).exp()
    total = Decimal(0)
    for x, p in enumerate(law):
        other = law[x - shift] if 0 <= x - shift < len(law) else Decimal(0)
        total += max(Decimal(0), p - factor * other)
    return total


def renyi_on_overlap(law: list[Decimal], shift: int, order: Decimal) -> Decimal:
    """Rényi divergence of X from X + shift, both conditioned on the points that both can give."""
    overlap = [x for x in range(len(law)) if 0 <= x - shift < len(law)]
    p = normalised([law[x] for x in overlap])
    q = normalised([law[x - shift] for x in overlap])
    return sum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True)).ln() / (order - 1)


@pytest.mark.parametrize(("epsilon", "delta", "sensitivity"), LAPLACE_GRID)
def test_laplace_certificate_is_exact(epsilon: Fraction, delta: Fraction, sensitivity: int) -> None:
    """The certificate bounds the enumerated divergence of every shift and equals that of the largest."""
    half_width = laplace_half_width(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    certificate = decimal(laplace_delta(epsilon=epsilon, sensitivity=sensitivity, half_width=half_width))
    law = laplace_law(epsilon, sensitivity, half_width)
    exact = [hockey_stick(law, shift, epsilon) for size in range(1, sensitivity + 1) for shift in (size, -size)]
    assert max(exact) <= certificate * (1 + Decimal("1e-40"))
    assert certificate <= max(exact) * (1 + Decimal("1e-6"))
    assert certificate <= decimal(delta)


@pytest.mark.parametrize(("epsilon", "delta", "sensitivity"), LAPLACE_GRID)
def test_laplace_half_width_is_least(epsilon: Fraction, delta: Fraction, sensitivity: int) -> None:
    """One less violates delta by enumeration, or is below what the theorem allows."""
    half_width = laplace_half_width(epsilon=epsilon, delta=delta, sensitivity=sensitivity)
    if half_width > sensitivity - 1:
        law = laplace_law(epsilon, sensitivity, half_width - 1)
        assert hockey_stick(law, sensitivity, epsilon) > decimal(delta)


def test_laplace_half_width_fourteen() -> None:
    """At (1, 1e-6) and sensitivity 1 the half-width 14 is needed: 13 gives 1.045 times delta."""
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    assert laplace_half_width(epsilon=epsilon, delta=delta, sensitivity=1) == 14
    ratio = laplace_delta(epsilon=epsilon, sensitivity=1, half_width=13) / delta
    assert round(float(ratio), 3) == 1.045
    assert hockey_stick(laplace_law(epsilon, 1, 13), 1, epsilon) > decimal(delta)


@pytest.mark.parametrize(("variance", "sensitivity", "delta"), GAUSSIAN_GRID)
def test_gaussian_divergence_on_the_overlap(variance: Fraction, sensitivity: int, delta: Fraction) -> None:
    """At the chosen half-width the Rényi divergence is at most αΔ²/(2σ²), both ways, for every shift."""
    half_width = gaussian_half_width(variance=variance, delta=delta, sensitivity=sensitivity)
    law = gaussian_law(variance, half_width)
    for size in {1, sensitivity}:
        for order in ("1.001", "1.5", "2", "7.3", "40"):
            bound = Decimal(order) * size**2 / decimal(2 * variance)
            for shift in (size, -size):
                assert renyi_on_overlap(law, shift, Decimal(order)) <= bound * (1 + Decimal("1e-30"))


@pytest.mark.parametrize(("variance", "sensitivity", "delta"), GAUSSIAN_GRID)
def test_gaussian_certificate_is_tight(variance: Fraction, sensitivity: int, delta: Fraction) -> None:
    """The certificate is at least the enumerated mass below the sensitivity, at most 2 % above, and least."""
    half_width = gaussian_half_width(variance=variance, delta=delta, sensitivity=sensitivity)
    certificate = gaussian_delta(variance=variance, sensitivity=sensitivity, half_width=half_width)
    exact = sum(gaussian_law(variance, half_width)[:sensitivity])
    assert exact * (1 - Decimal("1e-40")) <= decimal(certificate) <= exact * Decimal("1.02")
    assert certificate <= delta
    if half_width > gaussian_smallest_half_width(variance=variance, sensitivity=sensitivity):
        assert gaussian_delta(variance=variance, sensitivity=sensitivity, half_width=half_width - 1) > delta


@pytest.mark.parametrize("sensitivity", [1, 500, 20_000])
@pytest.mark.parametrize("delta", [Fraction(1, 10**6), Fraction(1, 10**12)])
def test_gaussian_blocks_stay_within_two_percent(sensitivity: int, delta: Fraction) -> None:
    """Where the sums go by blocks the certificate is still a bound and at most 2 % loose."""
    variance = Fraction(6000**2)
    half_width = gaussian_half_width(variance=variance, delta=delta, sensitivity=sensitivity)
    certificate = float(gaussian_delta(variance=variance, sensitivity=sensitivity, half_width=half_width))
    weights = [2.718281828459045 ** (-(x * x) / float(2 * variance)) for x in range(half_width + 1)]
    exact = sum(weights[half_width - sensitivity + 1 :]) / (2 * sum(weights) - 1)
    assert exact * (1 - 1e-9) <= certificate <= 1.02 * exact


def test_half_widths_that_the_theorems_do_not_cover_are_refused() -> None:
    """Too small a half-width raises and says what would do."""
    with pytest.raises(ValueError, match=r"half_width \(11\) must be at least .* \(12\); widen"):
        gaussian_delta(variance=Fraction(100), sensitivity=1, half_width=11)
    with pytest.raises(ValueError, match="widen the noise"):
        gaussian_delta(variance=Fraction(1, 100), sensitivity=5, half_width=5)
    with pytest.raises(ValueError, match=r"half_width \(5\) must be at least sensitivity - 1 \(6\)"):
        laplace_delta(epsilon=Fraction(1), sensitivity=7, half_width=5)


def test_parameters_outside_their_range_are_refused() -> None:
    """Every guard speaks up and names the parameter."""
    one = Fraction(1)
    with pytest.raises(ValueError, match=r"epsilon \(0\) must be positive"):
        laplace_delta(epsilon=Fraction(0), sensitivity=1, half_width=3)
    with pytest.raises(ValueError, match=r"sensitivity \(0\) must be positive"):
        laplace_delta(epsilon=one, sensitivity=0, half_width=3)
    with pytest.raises(ValueError, match=r"delta \(1\) must be positive, and below 1"):
        paper_laplace_half_width(epsilon=one, delta=one, sensitivity=1)
    with pytest.raises(ValueError, match=r"delta \(0\) must be positive, and below 1"):
        paper_laplace_half_width(epsilon=one, delta=Fraction(0), sensitivity=1)
    with pytest.raises(ValueError, match=r"variance \(0\) must be positive"):
        gaussian_delta(variance=Fraction(0), sensitivity=1, half_width=9)
    with pytest.raises(ValueError, match=r"sensitivity \(0\) must be positive"):
        gaussian_delta(variance=one, sensitivity=0, half_width=9)
    with pytest.raises(BudgetError, match=r"delta \(2\) of one-sided noise must be between 0 and 1"):
        gaussian_half_width(variance=one, delta=Fraction(2), sensitivity=1)
