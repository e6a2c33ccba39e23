"""Gaussian composition: certified numbers against floats, and discrete Gaussians against what is claimed of them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import integrate, stats

from dpjoin.errors import BudgetError, SpecError
from dpjoin.measure.shares import half_width, without_choices
from dpjoin.privacy.accounting import (
    GAUSSIAN,
    ZERO_CONCENTRATED,
    Budget,
    Concentrated,
    Split,
)
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.gaussian import (
    GRAIN,
    LARGEST_DELTA,
    SLACK,
    SMALLEST_EPSILON,
    gaussian_conversion_delta,
    largest_gaussian_rho,
    mills,
    tail_delta,
)
from dpjoin.privacy.parts import Question
from dpjoin.privacy.truncated import gaussian_delta
from dpjoin.spec.schema import Attribute, Schema, Table
from support.audit import numeric_gaussian_delta
from support.brute import BruteEngine
from support.gaussian import discrete_gaussian, hockey_stick, worst_excess


@pytest.mark.parametrize("variance", [3.1, 4.0, 7.5, 30.0])
def test_a_rounded_gaussian_is_the_discrete_one(variance: float) -> None:
    """P-66, by numerical integration: N(0, variance - GRAIN), rounded by a discrete Gaussian of variance GRAIN."""
    wide = discrete_gaussian(variance, 60)
    near = np.arange(-40, 41)

    def rounded(z: int) -> float:
        def density(y: float) -> float:
            kernel = np.exp(-((near + round(y) - y) ** 2) / (2 * GRAIN)).sum()
            return float(
                stats.norm.pdf(y, scale=math.sqrt(variance - GRAIN)) * math.exp(-((z - y) ** 2) / (2 * GRAIN)) / kernel
            )

        reach = 12 * math.sqrt(variance - GRAIN)
        return float(integrate.quad(density, -reach, reach, epsabs=0, epsrel=1e-12, limit=500)[0])

    for z in (0, 1, 3, 6):
        assert rounded(z) == pytest.approx(wide[60 + z], rel=1e-9)


@pytest.mark.parametrize(("rho", "moves"), [(0.5, 1), (0.1, 1), (0.05, 3), (0.02, 1), (2.0, 7), (0.001, 1)])
def test_noise_with_the_grain_is_as_private_as_claimed(rho: float, moves: int) -> None:
    variance = float(GAUSSIAN.variance(moves**2, Fraction(rho)))
    assert worst_excess(variance, moves, math.sqrt(2 * rho)) <= 1e-6


def test_truncated_and_plain_noise_together() -> None:
    """P-67 in full: one truncated and one plain Gaussian, every pair of outcomes counted."""
    rhos, half_width = (0.05, 0.08), 30
    first, second = (float(GAUSSIAN.variance(1, Fraction(r))) for r in rhos)
    delta = float(gaussian_delta(variance=Fraction(first), sensitivity=1, half_width=half_width))
    delta += float(tail_delta(variance=Fraction(first), half_width=half_width))
    cut = np.concatenate([discrete_gaussian(first, half_width), [0.0]])
    plain = discrete_gaussian(second, 80)
    p = np.multiply.outer(cut, plain[1:])
    q = np.multiply.outer(np.roll(cut, 1), plain[:-1])
    for epsilon in np.linspace(0.0, 4.0, 80):
        claimed = numeric_gaussian_delta(sum(rhos), float(epsilon))
        if claimed <= LARGEST_DELTA:
            assert hockey_stick(p, q, float(epsilon)) <= delta + claimed * (1 + 1e-9)
            assert hockey_stick(q, p, float(epsilon)) <= delta + claimed * (1 + 1e-9)


def test_a_budget_chooses_what_buys_more() -> None:
    usual = Budget(epsilon=1.0, delta=1e-6)
    assert usual.composition is ZERO_CONCENTRATED
    assert without_choices(usual).composition is GAUSSIAN
    assert without_choices(usual) == usual
    assert repr(without_choices(usual)) == "Budget(epsilon=1.0, delta=1e-06)"
    more = Split(budget=without_choices(usual)).rho / Split(budget=usual).rho
    assert 1.14 < more < 1.16
    # Where noise is small the grain would cost more than Gaussian composition gains; there large deltas have no proof.
    for epsilon, delta in ((20.0, 1e-6), (1.0, 1e-3), (1e-4, 1e-6)):
        assert without_choices(Budget(epsilon=epsilon, delta=delta)).composition is ZERO_CONCENTRATED


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (1e-4, 1e-6)])
def test_gaussian_composition_is_refused_where_its_proofs_do_not_hold(epsilon: float, delta: float) -> None:
    """Also if most of delta were set aside for truncation, so that the conversion's own would be small enough."""
    with pytest.raises(SpecError, match="Gaussian composition must have epsilon at least"):
        Budget(epsilon=epsilon, delta=delta, composition=GAUSSIAN)
    with pytest.raises(ValueError, match="too small, or delta"):
        largest_gaussian_rho(epsilon=Fraction(epsilon), delta=Fraction(delta))


def test_numbers_outside_the_preconditions_are_refused() -> None:
    one = Fraction(1)
    for x in (Fraction(0), -one):
        with pytest.raises(ValueError, match="must be positive"):
            mills(x, 100)
        with pytest.raises(ValueError, match="must be positive"):
            gaussian_conversion_delta(mu=x, epsilon=one)
    with pytest.raises(ValueError, match="must exceed mu²/2"):
        gaussian_conversion_delta(mu=Fraction(2), epsilon=one)


def test_too_narrow_truncated_noise_is_refused_for_its_tails_too() -> None:
    """A half-width that would do but for the tails: nothing is charged, nothing drawn. One step wider will do."""
    schema = Schema(
        (Table(name="r", attributes=("k", "a")), Table(name="s", attributes=("k", "b"))),
        (Attribute(name="k", key=True), *(Attribute(name=x, range=(0, 1)) for x in "ab")),
    )
    rows = {"r": [{"k": 0, "a": 0}], "s": [{"k": 0, "b": 1}]}
    rho = Fraction(1, 1000)
    variance, narrow = GAUSSIAN.variance(1, rho), half_width(GAUSSIAN, rho, Fraction(1, 10**7), moves=1) - 1
    delta = gaussian_delta(variance=variance, sensitivity=1, half_width=narrow)
    assert GAUSSIAN.truncation_delta(rho, narrow, moves=1) > delta

    def curator() -> Curator:
        budget = without_choices(Budget(epsilon=1.0, delta=1e-6))
        return Curator(BruteEngine(schema, rows), Split(budget=budget, truncation_delta=Fraction(1, 10**6) / 2))

    made, whole = curator(), curator().rho_left
    with pytest.raises(BudgetError, match="must be large enough"):
        made.sensitivity_bound(Concentrated(rho, delta), half_width=narrow)
    question = Question(name="degrees", rules={"r": {}}, by=("k",))
    with pytest.raises(BudgetError, match="must be large enough"):
        made.noisy_degrees("degrees", [question], Concentrated(rho, delta), half_width=narrow)
    assert made.rho_left == whole
    assert made.ledger.events == ()
    made.sensitivity_bound(Concentrated(rho, Fraction(1, 10**7)), half_width=narrow + 1)


def test_a_concentrated_cost_needs_its_accountant() -> None:
    schema = Schema((Table(name="t", attributes=("a",)),), (Attribute(name="a", range=(0, 1)),))
    curator = Curator(BruteEngine(schema, {"t": []}), Split(budget=Budget(epsilon=1.0, delta=1e-6), paper=True))
    with pytest.raises(BudgetError, match="needs the concentrated accountant"):
        _ = curator.composition


def test_the_slack_pays_for_all_rounding() -> None:
    """As P-66 reckons: 2^46 numbers, each off by a factor c; and it costs less than a ten-thousandth of the budget."""
    eta = 2 * sum(math.exp(-2 * math.pi**2 * GRAIN * j**2) for j in (1, 2, 3))
    factors = 2**46 * (math.log1p(eta) - math.log1p(-eta))
    assert 2 * factors < float(SMALLEST_EPSILON * SLACK)
    assert factors < -math.log1p(-float(SLACK))
    assert SLACK * 10**4 < 1
