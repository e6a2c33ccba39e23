"""Composition and conversion, on the safe side in exact arithmetic.

zCDP costs add up as rationals; one conversion at the end turns them into (epsilon, delta). Floats only look
for a good order (α): any order above 1 is valid, so a poor one wastes budget and harms nobody.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor, frexp, log, log1p

from dpjoin.privacy.rational import exp_upper, log_lower, log_upper, positive, sqrt_lower, sqrt_upper

_RHO_BITS = 60
_ORDER_BITS = 40


def zcdp_delta(*, rho: Fraction, epsilon: Fraction, order: Fraction) -> Fraction:
    """An upper bound on exp((α-1)(αρ-ε))/(α-1) · (1-1/α)^α, α = order. Proof: P-18.

    Postcondition: a rho-zCDP mechanism is (epsilon, result)-DP, for every order above 1.

    >>> delta = zcdp_delta(rho=Fraction(1, 50), epsilon=Fraction(1), order=Fraction(25))
    >>> f"{float(delta):.2e}"
    '9.23e-08'
    """
    if rho < 0:
        raise ValueError(f"rho ({rho}) must not be negative")
    positive(epsilon=epsilon)
    if order <= 1:
        raise ValueError(f"order ({order}) must be above 1")
    above = order - 1
    return exp_upper(above * (order * rho - epsilon) + order * log_upper(above / order)) / above


def largest_rho(*, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
    """(rho, order) with zcdp_delta at most delta, rho nearly as large as can be. Proof: P-20.

    >>> rho, order = largest_rho(epsilon=Fraction(1), delta=Fraction(1, 10**6))
    >>> f"{float(rho):.5f}"
    '0.02436'
    >>> zcdp_delta(rho=rho, epsilon=Fraction(1), order=order) <= Fraction(1, 10**6)
    True
    """
    positive(epsilon=epsilon, delta=delta)
    above = _best_above(float(epsilon), float(delta))
    order = 1 + above
    # zcdp_delta = delta solved for rho at this order, every logarithm rounded against us.
    room = log_lower(delta) + log_lower(above) - order * log_upper(above / order)
    exact = (epsilon + room / above) / order
    if exact <= 0:
        raise ValueError(f"epsilon ({epsilon}) and delta ({delta}) are too small to buy anything")
    bits = max(_RHO_BITS, _ORDER_BITS + exact.denominator.bit_length() - exact.numerator.bit_length())
    steps = floor(exact * (1 << bits))
    while zcdp_delta(rho=Fraction(steps, 1 << bits), epsilon=epsilon, order=order) > delta:
        steps -= 1
    return Fraction(steps, 1 << bits), order


def advanced_composition_epsilon(*, count: int, epsilon_each: Fraction, delta: Fraction) -> Fraction:
    """An upper bound on sqrt(2k·ln(1/δ'))·ε' + k·ε'·(exp(ε') - 1), k = count. Proof: P-21.

    Postcondition: `count` adaptive (epsilon_each, δ'')-DP steps are (result, count·δ'' + delta)-DP together.

    >>> each, delta = Fraction(1, 100), Fraction(1, 10**6)
    >>> round(float(advanced_composition_epsilon(count=100, epsilon_each=each, delta=delta)), 6)
    0.535702
    """
    positive(count=count, epsilon_each=epsilon_each, delta=delta)
    spread = sqrt_upper(2 * count * log_upper(1 / delta)) * epsilon_each
    return spread + count * epsilon_each * (exp_upper(epsilon_each) - 1)


def selection_epsilon(rho: Fraction) -> Fraction:
    """Nearly the largest ε with ε²/8 <= rho, rounded down: an exponential mechanism costing rho. Proof: P-22.

    >>> selection_epsilon(Fraction(1, 2))
    Fraction(2, 1)
    """
    positive(rho=rho)
    return sqrt_lower(8 * rho, bits=_ORDER_BITS)


def _best_above(epsilon: float, delta: float) -> Fraction:
    """An α - 1 that buys nearly the most rho: a float search, with no claim on privacy. Proof: P-19.

    At each α the bound of `zcdp_delta` gives a largest rho; the best α is where that bound is flat in α.
    """

    def falls(above: float) -> bool:
        rho = (epsilon + (log(delta) + log(above) + (above + 1) * log1p(1 / above)) / above) / (above + 1)
        return (2 * above + 1) * rho - epsilon - log1p(1 / above) < 0

    low, high = 0.0, 1.0
    while falls(high) and high < 1e15:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if middle > 0 and falls(middle) else (low, middle)
    mantissa, exponent = frexp(high)
    return Fraction(floor(mantissa * (1 << _ORDER_BITS))) / (1 << _ORDER_BITS) * Fraction(2) ** exponent
