"""The samplers follow their laws, and the tests would notice if they did not."""

from __future__ import annotations

import inspect
import subprocess
import sys
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
        noise.DiscreteGaussian(Fraction(4**51)).many(2)


def test_level_weights_are_no_less_than_what_they_stand_for() -> None:
    """Each is above exp(margin - level/16), by less than one part in a thousand of a level."""
    for level, weight in enumerate(noise._level_weights(noise._LEVEL_MARGIN)):
        exact = exp_lower(noise._LEVEL_MARGIN - Fraction(level, noise._LEVELS_PER_UNIT), bits=200) * 2**128
        assert exact <= weight <= exact * (1 + Fraction(1, 2**20))


def test_arrays_are_int64_and_of_the_size_asked_for() -> None:
    """Arrays have int64 entries and any size from 0 upward, also across batches."""
    for size in (0, 1, 7, 200_000):
        for values in (
            noise.DiscreteLaplace(Fraction(3)).many(size),
            noise.DiscreteGaussian(Fraction(3)).many(size),
            noise.DiscreteGaussian(Fraction(3), 9).many(size),
        ):
            assert values.dtype == np.int64
            assert values.shape == (size,)


@pytest.mark.parametrize("exponent", [53, 200])
def test_large_scales_return_numbers_as_large(exponent: int) -> None:
    """Above scale 2**30 (Gaussians: 2**52) they are drawn one by one, as Python ints where int64 is too narrow."""
    scale = 1 << exponent
    for values in (
        noise.DiscreteLaplace(Fraction(scale)).many(30),
        noise.DiscreteGaussian(Fraction(scale**2)).many(30),
    ):
        assert values.dtype == (np.int64 if exponent < 60 else object)
        assert scale // 2**40 < max(abs(int(value)) for value in values) < scale * 60


@pytest.mark.parametrize("bits", [3, 60, 600, 3000])
def test_tiny_parameters_give_zero(bits: int) -> None:
    """Noise far narrower than 1 is 0, even where the parameter underflows in float64."""
    tiny = Fraction(1, 40 * 2**bits)
    assert not noise.DiscreteLaplace(tiny).many(50).any()
    assert not noise.DiscreteGaussian(tiny).many(50).any()
    assert noise.DiscreteLaplace(tiny).one() == noise.DiscreteGaussian(tiny).one() == 0


@pytest.mark.parametrize("half_width", [0, 1, 2, 40])
@pytest.mark.parametrize("parameter", [Fraction(1, 3), Fraction(50), Fraction(10**70)])
def test_truncated_noise_stays_on_its_support(half_width: int, parameter: Fraction) -> None:
    """Truncated noise lies in {0, …, 2·half_width}, for narrow and wide laws alike."""
    for _ in range(50):
        assert 0 <= noise.DiscreteLaplace(parameter, half_width).one() <= 2 * half_width
        x = noise.DiscreteGaussian(parameter, half_width).one()
        assert 0 <= x <= 2 * half_width
    for values in (
        noise.DiscreteLaplace(parameter, half_width).many(50),
        noise.DiscreteGaussian(parameter, half_width).many(50),
    ):
        assert values.dtype == np.int64
        assert ((values >= 0) & (values <= 2 * half_width)).all()


@pytest.mark.parametrize(
    "scores",
    [
        np.array([0, 1000]),
        np.array([-(10**30), 0]),
        np.array([-(2**63), 2**63 - 1]),
        np.array([10**50, 10**60]),
        np.array([3, 200], dtype=object),
    ],
)
def test_choice_is_right_beyond_int64(scores: np.ndarray) -> None:
    """A candidate ahead by a hundred or more at rate 1 always wins, also where int64 would overflow."""
    assert all(noise.exponential_choice(scores, rate=Fraction(1)) == 1 for _ in range(30))


def test_noise_wider_than_64_bits_is_of_python_ints() -> None:
    """Also where only the half-width is."""
    for law in (noise.DiscreteGaussian(Fraction(9), 1 << 62), noise.DiscreteLaplace(Fraction(1 << 80), 1 << 90)):
        assert all(abs(x - law.half_width) < 100 * law.variance for x in law.many(4).tolist())


def test_one_candidate_needs_no_draw() -> None:
    """A single candidate is returned."""
    assert noise.exponential_choice(np.array([-5]), rate=Fraction(3)) == 0


def test_parameters_outside_their_range_are_refused() -> None:
    """Every guard speaks up and names the parameter."""
    one = Fraction(1)
    with pytest.raises(ValueError, match=r"gamma \(-1\) must not be negative"):
        noise.bernoulli_exp(-one)
    with pytest.raises(ValueError, match=r"scale \(0\) must be positive"):
        noise.DiscreteLaplace(Fraction(0)).one()
    with pytest.raises(ValueError, match=r"variance \(0\) must be positive"):
        noise.DiscreteGaussian(Fraction(0)).one()
    with pytest.raises(ValueError, match=r"scale \(-1\) must be positive"):
        noise.DiscreteLaplace(-one).many(1)
    with pytest.raises(ValueError, match=r"variance \(0\) must be positive"):
        noise.DiscreteGaussian(Fraction(0)).many(1)
    with pytest.raises(ValueError, match=r"half_width \(-1\) must not be negative"):
        noise.DiscreteLaplace(one, -1).one()
    with pytest.raises(ValueError, match=r"rate \(-1\) must not be negative"):
        noise.exponential_choice(np.array([1, 2]), rate=-one)
    with pytest.raises(ValueError, match=r"scores \(0 of int64\) must be integers, one at least"):
        noise.exponential_choice(np.arange(0), rate=one)


@pytest.mark.parametrize("scores", [np.array([1.0, 2.0]), np.array([0, 2**64 - 1]), np.array([3, 200], dtype=np.uint8)])
def test_scores_that_are_no_integers_are_refused(scores: np.ndarray) -> None:
    """Float scores have no exact sensitivity, and narrow ones wrap, so they are turned away."""
    with pytest.raises(ValueError, match="integers"):
        noise.exponential_choice(scores, rate=Fraction(1))


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
