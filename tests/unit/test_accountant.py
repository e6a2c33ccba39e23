"""Conversion and composition against other formulas and another library."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from dpjoin.privacy.conversion import (
    advanced_composition_epsilon,
    largest_rho,
    selection_epsilon,
    zcdp_delta,
)
from support.accountant import log_delta

BUDGETS = [
    (Fraction(epsilon), Fraction(delta))
    for epsilon in ("0.001", "0.1", "1", "8", "50")
    for delta in ("1e-15", "1e-6", "0.1")
]


def least_log_delta(rho: float, epsilon: float) -> float:
    """The same minimum by another search, over the logarithm of order - 1."""
    return float(
        minimize_scalar(
            lambda z: log_delta(rho, epsilon, 1 + math.exp(z)),
            bounds=(-12, 16),
            method="bounded",
            options={"xatol": 1e-10},
        ).fun
    )


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_largest_rho_is_certified_and_nearly_optimal(epsilon: Fraction, delta: Fraction) -> None:
    """The certificate holds, and 1 + 1e-9 times the rho would miss delta at every order."""
    rho, order = largest_rho(epsilon=epsilon, delta=delta)
    assert zcdp_delta(rho=rho, epsilon=epsilon, order=order) <= delta
    larger = rho * (1 + Fraction(1, 10**9))
    near = [order - 1 + (order - 1) * Fraction(k, 10**7) for k in range(-50, 51)]
    assert all(zcdp_delta(rho=larger, epsilon=epsilon, order=1 + above) > delta for above in near)
    # Globally, as far as floats can tell.
    assert least_log_delta(float(rho) * (1 + 1e-6), float(epsilon)) > math.log(delta) - 1e-9
    assert least_log_delta(float(rho), float(epsilon)) == pytest.approx(math.log(delta), abs=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_largest_rho_is_a_short_dyadic(epsilon: Fraction, delta: Fraction) -> None:
    """rho and order are dyadic rationals that fit on a line of a report."""
    for number in largest_rho(epsilon=epsilon, delta=delta):
        assert number.denominator & (number.denominator - 1) == 0
        assert number.denominator.bit_length() <= 80


def test_largest_rho_at_the_usual_budget() -> None:
    """(1, 1e-6) buys rho = 0.02436."""
    rho, _ = largest_rho(epsilon=Fraction(1), delta=Fraction(1, 10**6))
    assert round(float(rho), 5) == 0.02436


@pytest.mark.parametrize(("epsilon", "delta"), [(Fraction(1), Fraction(1, 10**6)), (Fraction(4), Fraction(1, 10**9))])
def test_conversion_agrees_with_dp_accounting(epsilon: Fraction, delta: Fraction) -> None:
    """Google's accountant, given our rho and fine orders, arrives at our delta and not below."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dp_accounting import dp_event, rdp
    rho, order = largest_rho(epsilon=epsilon, delta=delta)
    orders = list(float(order) + np.linspace(-0.5, 0.5, 101))
    accountant = rdp.RdpAccountant(orders=orders)
    accountant.compose(dp_event.ZCDpEvent(float(rho)))
    assert accountant.get_delta(float(epsilon)) == pytest.approx(float(delta), rel=1e-6)


@pytest.mark.parametrize("count", [1, 10, 5000])
@pytest.mark.parametrize("epsilon", ["0.001", "0.5", "2"])
def test_advanced_composition_bounds_its_formula(count: int, epsilon: str) -> None:
    """The certified number is the float formula up to float error, and more steps cost more."""
    each, delta = Fraction(epsilon), Fraction(1, 10**6)
    x = float(each)
    formula = math.sqrt(2 * count * math.log(1e6)) * x + count * x * math.expm1(x)
    bound = advanced_composition_epsilon(count=count, epsilon_each=each, delta=delta)
    assert float(bound) == pytest.approx(formula, rel=1e-12)
    assert bound < advanced_composition_epsilon(count=count + 1, epsilon_each=each, delta=delta)


def test_parameters_outside_their_range_are_refused() -> None:
    """Every guard speaks up and names the parameter."""
    one, half, zero = Fraction(1), Fraction(1, 2), Fraction(0)
    with pytest.raises(ValueError, match=r"rho \(-1\) must not be negative"):
        zcdp_delta(rho=-one, epsilon=one, order=Fraction(2))
    with pytest.raises(ValueError, match=r"epsilon \(0\) must be positive"):
        zcdp_delta(rho=one, epsilon=zero, order=Fraction(2))
    with pytest.raises(ValueError, match=r"order \(1\) must be above 1"):
        zcdp_delta(rho=one, epsilon=one, order=one)
    with pytest.raises(ValueError, match=r"delta \(1\) must be positive, and below 1"):
        largest_rho(epsilon=one, delta=one)
    with pytest.raises(ValueError, match=r"epsilon \(0\) must be positive"):
        largest_rho(epsilon=zero, delta=half)
    with pytest.raises(ValueError, match="too small to buy anything"):
        largest_rho(epsilon=Fraction(1, 10**300), delta=Fraction(1, 10**300))
    with pytest.raises(ValueError, match=r"count \(0\) must be positive"):
        advanced_composition_epsilon(count=0, epsilon_each=one, delta=half)
    with pytest.raises(ValueError, match=r"epsilon_each \(0\) must be positive"):
        advanced_composition_epsilon(count=1, epsilon_each=zero, delta=half)
    with pytest.raises(ValueError, match=r"delta \(0\) must be positive, and below 1"):
        advanced_composition_epsilon(count=1, epsilon_each=one, delta=zero)
    with pytest.raises(ValueError, match=r"rho \(0\) must be positive"):
        selection_epsilon(zero)
