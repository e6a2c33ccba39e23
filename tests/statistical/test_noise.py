"""The samplers follow their laws, and the tests would notice if they did not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from dpjoin.privacy import noise

Sampler = Callable[[int], Sequence[int] | np.ndarray]


Weight = Callable[[np.ndarray, float], np.ndarray]


ALARM = 1e-8  # a true law is rejected this rarely


SCALE = Fraction(27, 4)


VARIANCE = Fraction(181, 4)


HALF_WIDTH = 15


RATE = Fraction(1, 5)


SCORES = [3, 0, 7, 10, 10, -4, 6, 1]


def laplace(x: np.ndarray, factor: float) -> np.ndarray:
    return np.exp(-np.abs(x) / (float(SCALE) * factor))


def gaussian(x: np.ndarray, factor: float) -> np.ndarray:
    return np.exp(-(x**2) / (2 * float(VARIANCE) * factor**2))


def within(weight: Weight) -> Weight:
    def shifted(x: np.ndarray, factor: float) -> np.ndarray:
        return np.where(np.abs(x - HALF_WIDTH) <= HALF_WIDTH, weight(x - HALF_WIDTH, factor), 0.0)

    return shifted


def choice(x: np.ndarray, factor: float) -> np.ndarray:
    inside = (x >= 0) & (x < len(SCORES))
    scores = np.array(SCORES)[np.clip(x, 0, len(SCORES) - 1)]
    return np.where(inside, np.exp(float(RATE) * factor * scores), 0.0)


def repeat(draw: Callable[[], int]) -> Sampler:
    return lambda n: [draw() for _ in range(n)]


SAMPLERS: dict[str, tuple[Sampler, Weight]] = {
    "laplace": (repeat(lambda: noise.DiscreteLaplace(SCALE).one()), laplace),
    "gaussian": (repeat(lambda: noise.DiscreteGaussian(VARIANCE).one()), gaussian),
    "laplace array": (lambda n: noise.DiscreteLaplace(SCALE).many(n), laplace),
    "gaussian array": (lambda n: noise.DiscreteGaussian(VARIANCE).many(n), gaussian),
    "truncated laplace": (
        repeat(lambda: noise.DiscreteLaplace(SCALE, HALF_WIDTH).one()),
        within(laplace),
    ),
    "truncated gaussian": (
        repeat(lambda: noise.DiscreteGaussian(VARIANCE, HALF_WIDTH).one()),
        within(gaussian),
    ),
    "truncated laplace array": (
        lambda n: noise.DiscreteLaplace(SCALE, HALF_WIDTH).many(n),
        within(laplace),
    ),
    "truncated gaussian array": (
        lambda n: noise.DiscreteGaussian(VARIANCE, HALF_WIDTH).many(n),
        within(gaussian),
    ),
    "choice": (repeat(lambda: noise.exponential_choice(np.array(SCORES), rate=RATE)), choice),
    "choice of big ints": (
        repeat(lambda: noise.exponential_choice(np.array([s * 10**25 for s in SCORES]), rate=RATE / 10**25)),
        choice,
    ),
}


VECTORISED = ["laplace array", "gaussian array", "truncated gaussian array", "choice"]


def p_value(sample: Sequence[int] | np.ndarray, weight: Weight, factor: float) -> float:
    """Chi-square p-value of a sample for the law with its scale multiplied by `factor`."""
    values = np.asarray(sample, dtype=np.int64)
    support = np.arange(-400, 401)
    law = weight(support, factor)
    law = law / law.sum()
    observed = np.bincount(values + 400, minlength=801).astype(float)
    assert observed.size == 801
    assert observed[law == 0].sum() == 0
    frequent = law * values.size >= 50
    expected = np.append(law[frequent], law[~frequent].sum()) * values.size
    counts = np.append(observed[frequent], observed[~frequent].sum())
    keep = expected >= 5
    statistic = ((counts - expected)[keep] ** 2 / expected[keep]).sum()
    return float(chi2.sf(statistic, keep.sum() - 1))


def assert_law(name: str, size: int) -> None:
    sampler, weight = SAMPLERS[name]
    sample = sampler(size)
    assert p_value(sample, weight, 1.0) > ALARM
    assert p_value(sample, weight, 0.8) < ALARM
    assert p_value(sample, weight, 1.2) < ALARM


@pytest.mark.parametrize("name", SAMPLERS)
def test_law_is_accepted_and_neighbours_are_rejected(name: str) -> None:
    """20 000 draws fit the true scale and fit neither 0.8 nor 1.2 times it."""
    assert_law(name, 20_000)


@pytest.mark.full
@pytest.mark.parametrize("name", SAMPLERS)
def test_law_at_full_size(name: str) -> None:
    """200 000 draws say the same."""
    assert_law(name, 200_000)


@pytest.mark.parametrize("name", VECTORISED)
def test_refinement_leaves_the_law_unchanged(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With margins so wide that a large share of draws is settled on rationals, the law is the same."""
    refined = 0

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            nonlocal refined
            refined += 1
            return function(*arguments)

        return call

    monkeypatch.setattr(noise, "_LOG_MARGIN", 0.05)
    monkeypatch.setattr(noise, "_EXP_MARGIN", 0.05)
    monkeypatch.setattr(noise, "_LEVEL_MARGIN", Fraction(1, 20))
    monkeypatch.setattr(noise, "_geometric", counted(noise._geometric))
    monkeypatch.setattr(noise, "_below_exp", counted(noise._below_exp))
    assert_law(name, 20_000)
    assert refined > 2_000


def test_refinement_alone_gives_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with every decision on rationals the Gaussian array keeps its law."""
    monkeypatch.setattr(noise, "_LOG_MARGIN", 1.0)
    monkeypatch.setattr(noise, "_EXP_MARGIN", 2.0)
    monkeypatch.setattr(noise, "_SMALL_WORD", 1 << 63)
    assert_law("gaussian array", 10_000)


def test_magnitudes_in_two_parts_have_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """What serves scales beyond 2^30, forced on a small one: two bits are low ones."""
    monkeypatch.setattr(noise, "_LARGEST_FLOAT_SCALE", 2)
    assert_law("gaussian array", 20_000)


@pytest.mark.parametrize("bits", [29, 31, 40, 52])
def test_gaussians_of_any_width_are_whole_numbers_of_that_width(bits: int) -> None:
    """Deviation and lowest bits: also the low part is noise."""
    drawn = noise.DiscreteGaussian(Fraction(4**bits) - 1).many(20_000)
    assert drawn.dtype == np.int64
    assert np.std(drawn / 2.0**bits) == pytest.approx(1, abs=0.04)
    for low in range(4):
        assert np.mean(drawn >> low & 1) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(1), Fraction(7, 3)])
def test_bernoulli_exp_has_its_probability(gamma: Fraction) -> None:
    """20 000 trials lie within 6 standard deviations of exp(-gamma), and not of exp(-0.8·gamma)."""
    trials = 20_000
    share = sum(noise.bernoulli_exp(gamma) for _ in range(trials)) / trials
    p, other = np.exp(-float(gamma)), np.exp(-0.8 * float(gamma))
    assert abs(share - p) < 6 * np.sqrt(p * (1 - p) / trials)
    assert abs(share - other) > 6 * np.sqrt(other * (1 - other) / trials)


@pytest.mark.parametrize("margin", [noise._LEVEL_MARGIN, Fraction(1, 20), Fraction(3, 5)])
def test_many_candidates_keep_the_law(margin: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """60,000 candidates on many levels and several blocks; levels proposed too often are refused as often."""
    monkeypatch.setattr(noise, "_LEVEL_MARGIN", margin)
    scores = np.random.default_rng(4).permutation(60_000) // 20
    rate = Fraction(1, 400)
    sample = scores[[noise.exponential_choice(scores, rate=rate) for _ in range(5_000)]]
    law = np.exp(float(rate) * np.arange(3_000))
    expected = 5_000 * np.add.reduceat(law / law.sum(), np.arange(0, 3_000, 100))
    observed = np.add.reduceat(np.bincount(sample, minlength=3_000), np.arange(0, 3_000, 100))
    keep = expected >= 5
    statistic = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    assert chi2.sf(statistic, keep.sum()) > ALARM
    steeper = np.exp(1.2 * float(rate) * np.arange(3_000))
    expected = 5_000 * np.add.reduceat(steeper / steeper.sum(), np.arange(0, 3_000, 100))
    assert chi2.sf(((observed - expected)[keep] ** 2 / expected[keep]).sum(), keep.sum()) < ALARM


def test_equal_candidates_are_chosen_alike() -> None:
    """Seven candidates share the best score; whoever is far behind, on the last level, is never chosen."""
    scores = np.array([10**6 if i % 3 == 0 else i for i in range(20)])
    counts = np.bincount([noise.exponential_choice(scores, rate=Fraction(1, 7)) for _ in range(14_000)], minlength=20)
    assert not counts[[i for i in range(20) if i % 3]].any()
    assert chi2.sf(((counts[::3] - 2_000) ** 2 / 2_000).sum(), 6) > ALARM


def test_the_last_level_is_chosen_as_often_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few levels most candidates lie on the last one, and are refused by how much further behind they are."""
    monkeypatch.setattr(noise, "_LAST_LEVEL", 8)
    noise._level_weights.cache_clear()
    assert_law("choice", 20_000)
    noise._level_weights.cache_clear()


def test_wide_truncated_noise_is_nearly_uniform() -> None:
    """With a scale far above the half-width every point of the support is equally likely."""
    draws = [noise.DiscreteGaussian(Fraction(10**9), 2).one() for _ in range(5_000)]
    counts = np.bincount(draws, minlength=5)
    assert chi2.sf(((counts - 1_000) ** 2 / 1_000).sum(), 4) > ALARM


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(1, 2**400)])
def test_choice_at_rate_zero_is_uniform(rate: Fraction) -> None:
    """A rate of zero, or one that underflows beside its scores, prefers nobody."""
    scores = np.array([0, 5, 10**19], dtype=object)
    counts = np.bincount([noise.exponential_choice(scores, rate=rate) for _ in range(3_000)], minlength=3)
    assert chi2.sf(((counts - 1_000) ** 2 / 1_000).sum(), 2) > ALARM
