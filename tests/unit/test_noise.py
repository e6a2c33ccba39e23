"""The samplers follow their laws, and the tests would notice if they did not."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from dpjoin.privacy import noise
from dpjoin.privacy.rational import exp_lower


def test_a_magnitude_beyond_64_bits_is_an_error_and_does_not_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """It happens with a probability below exp(-2^10): the high part is made up."""
    huge = np.full(40, 1 << 41, dtype=np.int64), np.zeros(40, dtype=bool)
    monkeypatch.setattr(noise, "_magnitudes", lambda scale, count: huge)
    with pytest.raises(OverflowError):
        noise.discrete_gaussian_array(variance=Fraction(4**51), size=2)


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
