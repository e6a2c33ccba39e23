"""Composition and conversion, on the safe side in exact arithmetic.

zCDP costs add up as rationals; one conversion at the end turns them into (epsilon, delta). Floats only look
for a good order (α): any order above 1 is valid, so a poor one wastes budget and harms nobody.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor, frexp, inf, log, log1p

from dpjoin.privacy.rational import exp_upper, log_lower, log_upper, sqrt_lower, sqrt_upper

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
    _require_positive("epsilon", epsilon)
    if order <= 1:
        raise ValueError(f"order ({order}) must be above 1")
    above = order - 1
    return exp_upper(above * (order * rho - epsilon) + order * log_upper(above / order)) / above


def best_order(*, rho: Fraction, epsilon: Fraction) -> Fraction:
    """The order with nearly the least `zcdp_delta`: a float search, with no claim on privacy. Proof: P-19.

    >>> round(float(best_order(rho=Fraction(1, 50), epsilon=Fraction(1))), 2)
    26.46
    """
    _require_positive("rho", rho)
    _require_positive("epsilon", epsilon)
    return _significant(_order_above(float(rho), float(epsilon)), _ORDER_BITS) + 1


def largest_rho(*, epsilon: Fraction, delta: Fraction) -> tuple[Fraction, Fraction]:
    """(rho, order) with zcdp_delta at most delta, rho nearly as large as can be. Proof: P-20.

    >>> rho, order = largest_rho(epsilon=Fraction(1), delta=Fraction(1, 10**6))
    >>> f"{float(rho):.5f}"
    '0.02436'
    >>> zcdp_delta(rho=rho, epsilon=Fraction(1), order=order) <= Fraction(1, 10**6)
    True
    """
    _require_positive("epsilon", epsilon)
    if not 0 < delta < 1:
        raise ValueError(f"delta ({delta}) must be between 0 and 1")
    order = best_order(rho=_guess_rho(float(epsilon), float(delta)), epsilon=epsilon)
    above = order - 1
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
    if count < 1:
        raise ValueError(f"count ({count}) must be positive")
    _require_positive("epsilon_each", epsilon_each)
    if not 0 < delta < 1:
        raise ValueError(f"delta ({delta}) must be between 0 and 1")
    spread = sqrt_upper(2 * count * log_upper(1 / delta)) * epsilon_each
    return spread + count * epsilon_each * (exp_upper(epsilon_each) - 1)


def selection_epsilon(rho: Fraction) -> Fraction:
    """Nearly the largest ε with ε²/8 <= rho, rounded down: an exponential mechanism costing rho. Proof: P-22.

    >>> selection_epsilon(Fraction(1, 2))
    Fraction(2, 1)
    """
    _require_positive("rho", rho)
    return sqrt_lower(8 * rho, bits=_ORDER_BITS)


def _order_above(rho: float, epsilon: float) -> float:
    """α - 1 at the root of d/dα log(zcdp_delta) = (2α-1)ρ - ε + ln(1-1/α), which increases in α."""
    low, high = 0.0, 1.0
    while _slope(high, rho, epsilon) < 0 and high < 1e15:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        if _slope(middle, rho, epsilon) < 0:
            low = middle
        else:
            high = middle
    return high


def _slope(above: float, rho: float, epsilon: float) -> float:
    return (2 * above + 1) * rho - epsilon - log1p(1 / above) if above > 0 else -inf


def _guess_rho(epsilon: float, delta: float) -> Fraction:
    """The rho whose best order gives delta, in floats."""
    low, high = 0.0, epsilon + 1.0
    target = log(delta)
    for _ in range(100):
        rho = (low + high) / 2
        above = _order_above(rho, epsilon)
        bound = above * ((above + 1) * rho - epsilon) - log(above) - (above + 1) * log1p(1 / above)
        if bound <= target:
            low = rho
        else:
            high = rho
    return Fraction(high)


def _significant(value: float, bits: int) -> Fraction:
    """The float with only its first `bits` bits."""
    mantissa, exponent = frexp(value)
    return Fraction(floor(mantissa * (1 << bits))) / (1 << bits) * Fraction(2) ** exponent


def _require_positive(name: str, value: Fraction) -> None:
    if value <= 0:
        raise ValueError(f"{name} ({value}) must be positive")
