"""The samplers follow their laws, and the tests would notice if they did not."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from dpjoin.privacy import noise
from dpjoin.privacy.rational import exp_lower, log_lower

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
    "laplace": (repeat(lambda: noise.discrete_laplace(scale=SCALE)), laplace),
    "gaussian": (repeat(lambda: noise.discrete_gaussian(variance=VARIANCE)), gaussian),
    "laplace array": (lambda n: noise.discrete_laplace_array(scale=SCALE, size=n), laplace),
    "gaussian array": (lambda n: noise.discrete_gaussian_array(variance=VARIANCE, size=n), gaussian),
    "truncated laplace": (
        repeat(lambda: noise.truncated_discrete_laplace(scale=SCALE, half_width=HALF_WIDTH)),
        within(laplace),
    ),
    "truncated gaussian": (
        repeat(lambda: noise.truncated_discrete_gaussian(variance=VARIANCE, half_width=HALF_WIDTH)),
        within(gaussian),
    ),
    "truncated laplace array": (
        lambda n: noise.truncated_discrete_laplace_array(scale=SCALE, half_width=HALF_WIDTH, size=n),
        within(laplace),
    ),
    "truncated gaussian array": (
        lambda n: noise.truncated_discrete_gaussian_array(variance=VARIANCE, half_width=HALF_WIDTH, size=n),
        within(gaussian),
    ),
    "choice": (repeat(lambda: noise.exponential_choice(SCORES, rate=RATE)), choice),
    "choice of big ints": (
        repeat(lambda: noise.exponential_choice([s * 10**25 for s in SCORES], rate=RATE / 10**25)),
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


@pytest.mark.statistical
@pytest.mark.parametrize("name", SAMPLERS)
def test_law_is_accepted_and_neighbours_are_rejected(name: str) -> None:
    """20 000 draws fit the true scale and fit neither 0.8 nor 1.2 times it."""
    assert_law(name, 20_000)


@pytest.mark.full
@pytest.mark.statistical
@pytest.mark.parametrize("name", SAMPLERS)
def test_law_at_full_size(name: str) -> None:
    """200 000 draws say the same."""
    assert_law(name, 200_000)


@pytest.mark.statistical
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


@pytest.mark.statistical
def test_refinement_alone_gives_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with every decision on rationals the Gaussian array keeps its law."""
    monkeypatch.setattr(noise, "_LOG_MARGIN", 1.0)
    monkeypatch.setattr(noise, "_EXP_MARGIN", 2.0)
    monkeypatch.setattr(noise, "_SMALL_WORD", 1 << 63)
    assert_law("gaussian array", 10_000)


@pytest.mark.statistical
def test_magnitudes_in_two_parts_have_the_same_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """What serves scales beyond 2^30, forced on a small one: two bits are low ones."""
    monkeypatch.setattr(noise, "_LARGEST_FLOAT_SCALE", 2)
    assert_law("gaussian array", 20_000)


def test_a_magnitude_beyond_64_bits_is_an_error_and_does_not_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens with a probability below exp(-2^10): the high part is made up."""
    huge = np.full(40, 1 << 41, dtype=np.int64), np.zeros(40, dtype=bool)
    monkeypatch.setattr(noise, "_magnitudes", lambda scale, count: huge)
    with pytest.raises(OverflowError):
        noise.discrete_gaussian_array(variance=Fraction(4**51), size=2)


@pytest.mark.statistical
@pytest.mark.parametrize("bits", [29, 31, 40, 52])
def test_gaussians_of_any_width_are_whole_numbers_of_that_width(bits: int) -> None:
    """Deviation and lowest bits: also the low part is noise."""
    drawn = noise.discrete_gaussian_array(variance=Fraction(4**bits) - 1, size=20_000)
    assert drawn.dtype == np.int64
    assert np.std(drawn / 2.0**bits) == pytest.approx(1, abs=0.04)
    for low in range(4):
        assert np.mean(drawn >> low & 1) == pytest.approx(0.5, abs=0.03)


@pytest.mark.statistical
@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(1), Fraction(7, 3)])
def test_bernoulli_exp_has_its_probability(gamma: Fraction) -> None:
    """20 000 trials lie within 6 standard deviations of exp(-gamma), and not of exp(-0.8·gamma)."""
    trials = 20_000
    share = sum(noise.bernoulli_exp(gamma) for _ in range(trials)) / trials
    p, other = np.exp(-float(gamma)), np.exp(-0.8 * float(gamma))
    assert abs(share - p) < 6 * np.sqrt(p * (1 - p) / trials)
    assert abs(share - other) > 6 * np.sqrt(other * (1 - other) / trials)


@pytest.mark.statistical
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


@pytest.mark.statistical
def test_equal_candidates_are_chosen_alike() -> None:
    """Seven candidates share the best score; whoever is far behind, on the last level, is never chosen."""
    scores = [10**6 if i % 3 == 0 else i for i in range(20)]
    counts = np.bincount([noise.exponential_choice(scores, rate=Fraction(1, 7)) for _ in range(14_000)], minlength=20)
    assert not counts[[i for i in range(20) if i % 3]].any()
    assert chi2.sf(((counts[::3] - 2_000) ** 2 / 2_000).sum(), 6) > ALARM


@pytest.mark.statistical
def test_the_last_level_is_chosen_as_often_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few levels most candidates lie on the last one, and are refused by how much further behind they are."""
    monkeypatch.setattr(noise, "_LAST_LEVEL", 8)
    noise._level_weights.cache_clear()
    assert_law("choice", 20_000)
    noise._level_weights.cache_clear()


def test_level_weights_are_no_less_than_what_they_stand_for() -> None:
    """Each is above exp(margin - level/16), by less than one part in a thousand of a level."""
    for level, weight in enumerate(noise._level_weights(noise._LEVEL_MARGIN)):
        exact = exp_lower(noise._LEVEL_MARGIN - Fraction(level, noise._LEVELS_PER_UNIT), bits=200) * 2**128
        assert exact <= weight <= exact * (1 + Fraction(1, 2**20))


def test_what_is_surely_kept_is_kept_by_every_candidate_below_the_last_level() -> None:
    """The candidate that is kept least: at the far end of its level, and the margin further."""
    kept = Fraction(noise._surely_kept(noise._LEVEL_MARGIN), 1 << 32)
    weights = noise._level_weights(noise._LEVEL_MARGIN)
    for level in range(0, noise._LAST_LEVEL, 37):
        furthest = Fraction(level + 1, noise._LEVELS_PER_UNIT) + noise._LEVEL_MARGIN
        least = exp_lower(-furthest, bits=256) * 2**128 / weights[level]
        assert kept <= least <= kept + Fraction(1, 2**31)


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


def test_arrays_are_int64_and_of_the_size_asked_for() -> None:
    """Arrays have int64 entries and any size from 0 upward, also across batches."""
    for size in (0, 1, 7, 200_000):
        for values in (
            noise.discrete_laplace_array(scale=Fraction(3), size=size),
            noise.discrete_gaussian_array(variance=Fraction(3), size=size),
            noise.truncated_discrete_gaussian_array(variance=Fraction(3), half_width=9, size=size),
        ):
            assert values.dtype == np.int64
            assert values.shape == (size,)


@pytest.mark.parametrize("exponent", [53, 200])
def test_large_scales_return_python_ints(exponent: int) -> None:
    """Above scale 2**30 (Gaussians: 2**52) the arrays hold Python ints of the right magnitude."""
    scale = 1 << exponent
    for values in (
        noise.discrete_laplace_array(scale=Fraction(scale), size=30),
        noise.discrete_gaussian_array(variance=Fraction(scale**2), size=30),
    ):
        assert values.dtype == object
        assert all(isinstance(value, int) for value in values)
        assert scale // 2**40 < max(abs(int(value)) for value in values) < scale * 60


@pytest.mark.parametrize("bits", [3, 60, 600, 3000])
def test_tiny_parameters_give_zero(bits: int) -> None:
    """Noise far narrower than 1 is 0, even where the parameter underflows in float64."""
    tiny = Fraction(1, 40 * 2**bits)
    assert not noise.discrete_laplace_array(scale=tiny, size=50).any()
    assert not noise.discrete_gaussian_array(variance=tiny, size=50).any()
    assert noise.discrete_laplace(scale=tiny) == noise.discrete_gaussian(variance=tiny) == 0


@pytest.mark.parametrize("half_width", [0, 1, 2, 40])
@pytest.mark.parametrize("parameter", [Fraction(1, 3), Fraction(50), Fraction(10**70)])
def test_truncated_noise_stays_on_its_support(half_width: int, parameter: Fraction) -> None:
    """Truncated noise lies in {0, …, 2·half_width}, for narrow and wide laws alike."""
    for _ in range(50):
        assert 0 <= noise.truncated_discrete_laplace(scale=parameter, half_width=half_width) <= 2 * half_width
        x = noise.truncated_discrete_gaussian(variance=parameter, half_width=half_width)
        assert 0 <= x <= 2 * half_width
    for values in (
        noise.truncated_discrete_laplace_array(scale=parameter, half_width=half_width, size=50),
        noise.truncated_discrete_gaussian_array(variance=parameter, half_width=half_width, size=50),
    ):
        assert values.dtype == np.int64
        assert ((values >= 0) & (values <= 2 * half_width)).all()


@pytest.mark.statistical
def test_wide_truncated_noise_is_nearly_uniform() -> None:
    """With a scale far above the half-width every point of the support is equally likely."""
    draws = [noise.truncated_discrete_gaussian(variance=Fraction(10**9), half_width=2) for _ in range(5_000)]
    counts = np.bincount(draws, minlength=5)
    assert chi2.sf(((counts - 1_000) ** 2 / 1_000).sum(), 4) > ALARM


@pytest.mark.parametrize(
    "scores",
    [
        [0, 1000],
        [-(10**30), 0],
        [-(2**63), 2**63 - 1],
        [0, 2**64 - 1],
        [2**63, 2**70],
        np.array([-(2**63), 2**63 - 1]),
        np.array([0, 2**64 - 1], dtype=np.uint64),
        np.array([10**50, 10**60], dtype=object),
        np.array([3, 200], dtype=np.uint8),
    ],
)
def test_choice_is_right_beyond_int64(scores: Sequence[int] | np.ndarray) -> None:
    """A candidate ahead by a hundred or more at rate 1 always wins, also where int64 would overflow."""
    assert all(noise.exponential_choice(scores, rate=Fraction(1)) == 1 for _ in range(30))


@pytest.mark.statistical
@pytest.mark.parametrize("rate", [Fraction(0), Fraction(1, 2**400)])
def test_choice_at_rate_zero_is_uniform(rate: Fraction) -> None:
    """A rate of zero, or one that underflows beside its scores, prefers nobody."""
    counts = np.bincount([noise.exponential_choice([0, 5, 2**63], rate=rate) for _ in range(3_000)], minlength=3)
    assert chi2.sf(((counts - 1_000) ** 2 / 1_000).sum(), 2) > ALARM


@given(st.lists(st.integers(min_value=-(10**25), max_value=10**25), min_size=2, max_size=20))
def test_gaps_are_exact(scores: list[int]) -> None:
    """Gaps to the best score are exact Python arithmetic for scores of any size."""
    whole, top = noise._whole_scores(scores)
    assert [int(gap) for gap in top - whole] == [max(scores) - score for score in scores]


def test_one_candidate_needs_no_draw() -> None:
    """A single candidate is returned."""
    assert noise.exponential_choice([-5], rate=Fraction(3)) == 0


def test_parameters_outside_their_range_are_refused() -> None:
    """Every guard speaks up and names the parameter."""
    one = Fraction(1)
    with pytest.raises(ValueError, match=r"bound \(0\) must be positive"):
        noise.uniform_below(0)
    with pytest.raises(ValueError, match=r"gamma \(-1\) must not be negative"):
        noise.bernoulli_exp(-one)
    with pytest.raises(ValueError, match=r"scale \(0\) must be positive"):
        noise.discrete_laplace(scale=Fraction(0))
    with pytest.raises(ValueError, match=r"variance \(0\) must be positive"):
        noise.discrete_gaussian(variance=Fraction(0))
    with pytest.raises(ValueError, match=r"scale \(-1\) must be positive"):
        noise.discrete_laplace_array(scale=-one, size=1)
    with pytest.raises(ValueError, match=r"variance \(0\) must be positive"):
        noise.discrete_gaussian_array(variance=Fraction(0), size=1)
    with pytest.raises(ValueError, match=r"size \(-1\) must not be negative"):
        noise.discrete_gaussian_array(variance=one, size=-1)
    with pytest.raises(ValueError, match=r"size \(-1\) must not be negative"):
        noise.discrete_laplace_array(scale=Fraction(2**40), size=-1)
    with pytest.raises(ValueError, match=r"half_width \(-1\) must not be negative"):
        noise.truncated_discrete_laplace(scale=one, half_width=-1)
    with pytest.raises(ValueError, match=r"must be below \d+ for an int64 array"):
        noise.truncated_discrete_gaussian_array(variance=one, half_width=1 << 62, size=1)
    with pytest.raises(ValueError, match=r"rate \(-1\) must not be negative"):
        noise.exponential_choice([1, 2], rate=-one)
    with pytest.raises(ValueError, match=r"scores \(none\) must hold"):
        noise.exponential_choice([], rate=one)


@pytest.mark.parametrize("scores", [[0.5, 1.5], np.array([1.0, 2.0]), [Decimal(1), 2], np.ones((2, 2), dtype=int)])
def test_scores_that_are_no_integers_are_refused(scores: object) -> None:
    """Float scores have no exact sensitivity, so they are turned away."""
    with pytest.raises(ValueError, match="integers"):
        noise.exponential_choice(scores, rate=Fraction(1))  # type: ignore[arg-type]


def test_no_sampler_takes_a_seed() -> None:
    """No public function has a parameter through which randomness could be fixed."""
    for name, function in inspect.getmembers(noise, inspect.isfunction):
        if function.__module__ == noise.__name__:
            assert not {"seed", "rng", "random_state", "generator"} & set(inspect.signature(function).parameters), name


def test_noise_comes_from_the_operating_system() -> None:
    """Tests put their own stream behind the door; without them it is the system's."""
    told = "import os, secrets; from dpjoin.privacy import noise; print(noise.os is os, noise.secrets is secrets)"
    found = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "True"]
