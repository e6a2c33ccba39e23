"""The one door for randomness: exact samplers fed by the operating system.

No function takes a seed. No law here is an approximation: the scalar samplers are those of Canonne, Kamath
and Steinke (2020) on rationals; the array samplers decide almost every draw in float64 with a margin that
covers all rounding, and decide the few draws inside the margin on rationals, with more random bits as needed.

The one assumption: numpy's exp and log of a float64 have relative error below 2**-44 (they claim a few units
of 2**-53). How long a draw takes is not part of any claim.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import ceil, floor, isqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpjoin.privacy.numbers import Numbers, narrow
from dpjoin.privacy.rational import exp_lower, exp_upper, log_lower, log_upper, positive

IntArray = NDArray[np.int64]
_FloatArray = NDArray[np.float64]

_LOG_MARGIN = 2.0**-39
"""Covers the error of -scale·ln(U) in float64, as a share of the scale."""

_EXP_MARGIN = 2.0**-32
"""Covers the error of exp(-gamma) in float64 and the bits of U that are not drawn yet."""

_SMALL_WORD = 1 << 43
"""A 63-bit uniform below this is too coarse for the margin and is decided on rationals."""

_LEVELS_PER_UNIT = 16
"""Candidates of one level differ by less than a factor exp(1/16)."""

_LAST_LEVEL = 64 * _LEVELS_PER_UNIT
"""It holds all that are as far behind, or further; they are nearly never proposed."""

_LEVEL_BITS = 128
_LEVEL_MARGIN = Fraction(1, 1 << 40)
"""Covers the error of rate·gap in float64, below the last level."""

_LEVEL_BLOCK = 1 << 13
"""Scores that are sorted at once: small enough for the processor's cache."""

_LARGEST_FLOAT_SCALE = 1 << 30
_LARGEST_SCALE = 1 << 52
"""Up to here a magnitude is drawn in two parts, and fits int64 but for a probability below exp(-2**10)."""
_SMALLEST_FLOAT_VARIANCE = Fraction(1, 1 << 500)
_CHUNK = 1 << 16


def uniform_below(bound: int) -> int:
    """A uniform integer in {0, …, bound - 1}. Proof: P-4.

    >>> uniform_below(1)
    0
    """
    return secrets.randbelow(bound)


def bernoulli_exp(gamma: Fraction) -> bool:
    """True with probability exactly exp(-gamma), gamma >= 0. Proof: P-5.

    >>> bernoulli_exp(Fraction(0))
    True
    """
    if gamma < 0:
        raise ValueError(f"gamma ({gamma}) must not be negative")
    whole = floor(gamma)
    for _ in range(whole):
        if not _bernoulli_exp_unit(Fraction(1)):
            return False
    return _bernoulli_exp_unit(gamma - whole)


def _bernoulli_exp_unit(gamma: Fraction) -> bool:
    """bernoulli_exp on [0, 1]: the first k whose Bernoulli(gamma/k) fails is odd so often."""
    k = 1
    while uniform_below(gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1


class Law:
    """What the ledger says about a mechanism. Proof: P-76."""

    kind: ClassVar[str]
    half_width: int | None = None

    @property
    def name(self) -> str:
        return self.kind if self.half_width is None else f"truncated {self.kind}"

    @property
    def parameters(self) -> dict[str, Fraction | int | str]:
        return {name: x for name, x in vars(self).items() if x is not None}


class Noise(Law, ABC):
    """A law of noise on whole numbers, by its parameters: those of P-6 and P-7, and as P-10 says with a half-width.

    A half-width conditions the noise z on |z| <= half_width and adds half_width, so that what is drawn lies in
    {0, …, 2·half_width} and never lowers a value. Conditioned, not clamped: clamping would put extra mass at the ends
    and has a different proof.
    """

    variance: Fraction

    def __post_init__(self) -> None:
        positive(**{name: x for name, x in vars(self).items() if name != "half_width"})
        if self.half_width is not None and self.half_width < 0:
            raise ValueError(f"half_width ({self.half_width}) must not be negative")

    def one(self) -> int:
        """A draw. Proof: P-10."""
        if self.half_width is None:
            return self._one()
        # In a narrow window rejection would be slow: a uniform proposal is kept with probability exp(-1) at least.
        narrow_window = self._exponent(self.half_width) <= 1
        while True:
            x = uniform_below(2 * self.half_width + 1) - self.half_width if narrow_window else self._one()
            if abs(x) <= self.half_width and (not narrow_window or bernoulli_exp(self._exponent(x))):
                return self.half_width + x

    def many(self, size: int) -> Numbers:
        """Independent draws, int64 where they fit. Proof: P-8."""
        width = self.half_width
        if not self._serves_floats() or (width is not None and (width >= 1 << 62 or self._exponent(width) <= 1)):
            return narrow(np.array([self.one() for _ in range(size)], dtype=object))
        out = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            # Most laws keep two proposals of three or more; a batch that falls short is followed by another.
            values = self._batch(min((size - filled) * 3 // 2 + 16, _CHUNK))
            values = (values if width is None else values[np.abs(values) <= width])[: size - filled]
            out[filled : filled + values.size] = values
            filled += values.size
        return out if width is None else out + width

    @abstractmethod
    def _one(self) -> int:
        """A draw without half-width."""

    @abstractmethod
    def _exponent(self, x: int) -> Fraction:
        """P[x] is proportional to exp of minus this."""

    @abstractmethod
    def _serves_floats(self) -> bool:
        """Whether `_batch` has a proof."""

    @abstractmethod
    def _batch(self, count: int) -> IntArray:
        """At most `count` draws without half-width."""


@dataclass(frozen=True)
class DiscreteLaplace(Noise):
    """An integer x with probability exactly proportional to exp(-|x|/scale).

    >>> DiscreteLaplace(scale=Fraction(1, 10**9)).many(3)
    array([0, 0, 0])
    """

    scale: Fraction
    half_width: int | None = None
    kind: ClassVar[str] = "discrete Laplace"

    @property
    def variance(self) -> Fraction:  # type: ignore[override]
        """At most."""
        return 2 * self.scale**2

    def _one(self) -> int:
        """Proof: P-6."""
        top, bottom = self.scale.numerator, self.scale.denominator
        while True:
            fine = uniform_below(top)
            if not bernoulli_exp(Fraction(fine, top)):
                continue
            while _bernoulli_exp_unit(Fraction(1)):
                fine += top
            size = fine // bottom
            negative = uniform_below(2) == 1
            if size or not negative:
                return -size if negative else size

    def _exponent(self, x: int) -> Fraction:
        return abs(x) / self.scale

    def _serves_floats(self) -> bool:
        return self.scale <= _LARGEST_FLOAT_SCALE

    def _batch(self, count: int) -> IntArray:
        """Proof: P-8."""
        return _signed(*_magnitudes(self.scale, count))


@dataclass(frozen=True)
class DiscreteGaussian(Noise):
    """An integer x with probability exactly proportional to exp(-x²/(2·variance)).

    `variance` is the parameter σ²; the variance of the law itself is at most σ².

    >>> DiscreteGaussian(variance=Fraction(10**6)).many(4).shape
    (4,)
    """

    variance: Fraction
    half_width: int | None = None
    kind: ClassVar[str] = "discrete Gaussian"

    def _one(self) -> int:
        """Proof: P-7."""
        proposal = DiscreteLaplace(Fraction(self._scale))
        while True:
            x = proposal.one()
            if bernoulli_exp(self._refused(abs(x))):
                return x

    @property
    def _scale(self) -> int:
        """Of the Laplace noise that proposes."""
        return isqrt(floor(self.variance)) + 1

    def _refused(self, size: int) -> Fraction:
        """A proposal of this size is kept with probability exp of minus this."""
        return (size - self.variance / self._scale) ** 2 / (2 * self.variance)

    def _exponent(self, x: int) -> Fraction:
        return x * x / (2 * self.variance)

    def _serves_floats(self) -> bool:
        return _SMALLEST_FLOAT_VARIANCE <= self.variance < _LARGEST_SCALE**2

    def _batch(self, count: int) -> IntArray:
        """Proof: P-9."""
        proposals = _wide_laplace_batch(self._scale, count)
        distances = np.abs(proposals) - float(self.variance / self._scale)
        exponents = distances * distances / float(2 * self.variance)
        return proposals[_accept(exponents, lambda i: self._refused(abs(int(proposals[i]))))]


def exponential_choice(scores: Numbers, *, rate: Fraction) -> int:
    """An index c with probability exactly proportional to exp(rate·scores[c]), rate >= 0. Proof: P-12.

    Scores are integers of any size: int64, or Python ints in an object array.

    >>> exponential_choice(np.array([5]), rate=Fraction(1))
    0
    >>> exponential_choice(np.array([0, 10**40]), rate=Fraction(1))
    1
    """
    if rate < 0:
        raise ValueError(f"rate ({rate}) must not be negative; negate the scores to prefer small ones")
    if len(scores) == 0 or scores.dtype not in (np.int64, object):
        raise ValueError(f"scores ({len(scores)} of {scores.dtype}) must be integers, one at least")
    top = int(scores.max())
    whole = scores if top - int(scores.min()) < 1 << 63 else scores.astype(object)
    # Candidates lie on levels by how far behind they are, rate·gap. A level is proposed by a whole number that is a
    # little above exp(-rate·gap) for all of its candidates, one of them uniformly, and that is kept with the exact
    # ratio. So most proposals are kept, however the scores are spread.
    levels = np.empty(len(whole), dtype=np.int16)
    for start in range(0, len(whole), _LEVEL_BLOCK):
        part = slice(start, start + _LEVEL_BLOCK)
        levels[part] = np.minimum(_exponents(top - whole[part], rate * _LEVELS_PER_UNIT), _LAST_LEVEL)
    counts, weights = np.bincount(levels), _level_weights(_LEVEL_MARGIN)
    occupied = np.flatnonzero(counts).tolist()
    edges = list(accumulate(int(counts[level]) * weights[level] for level in occupied))
    while len(whole) > 1:
        at = uniform_below(edges[-1])
        place = bisect_right(edges, at)
        level = occupied[place]
        member = (at - (edges[place - 1] if place else 0)) // weights[level]
        index, width = int(np.flatnonzero(levels == level)[member]), Fraction(weights[level], 1 << _LEVEL_BITS)
        if _below_exp(secrets.randbits(32), 32, rate * (top - int(whole[index])), width):
            return index
    return 0


@dataclass(frozen=True)
class Exponential(Law):
    """The exponential mechanism: candidates with probability proportional to exp(epsilon·score/(2·move of a score))."""

    epsilon: Fraction
    kind: ClassVar[str] = "exponential mechanism"


@cache
def _level_weights(margin: Fraction) -> tuple[int, ...]:
    """For each level, a whole number no less than 2^bits·exp(margin - level/levels per unit)."""
    weights = [ceil(exp_upper(margin, bits=2 * _LEVEL_BITS) * (1 << _LEVEL_BITS))]
    shrink = exp_upper(Fraction(-1, _LEVELS_PER_UNIT), bits=2 * _LEVEL_BITS)
    for _ in range(_LAST_LEVEL):
        weights.append(-(-weights[-1] * shrink.numerator // shrink.denominator))
    return tuple(weights)


def _exponents(gaps: NDArray[Any], rate: Fraction) -> _FloatArray:
    """rate·gap in float64, each with relative error below 2**-50 or above 2**20 - 1."""
    if gaps.dtype != object and (rate == 0 or Fraction(1, 1 << 200) < rate < 1 << 200):
        return gaps.astype(np.float64) * float(rate)
    top, bottom = rate.numerator, rate.denominator
    most = bottom << 20  # exp(-2**20) is 0 in float64 already
    return np.array([min(int(gap) * top, most) / bottom for gap in gaps], dtype=np.float64)


def _accept(exponents: _FloatArray, exact_exponent: Callable[[int], Fraction]) -> NDArray[np.bool_]:
    """Independent exact Bernoulli(exp(-exponent)); `exact_exponent(i)` is called for undecided draws only."""
    words = np.frombuffer(os.urandom(4 * exponents.size), dtype=np.uint32)
    difference = np.exp(-exponents) - (words + 0.5) * 2.0**-32
    accepted: NDArray[np.bool_] = difference > 0
    for i in np.flatnonzero(np.abs(difference) <= _EXP_MARGIN):
        accepted[i] = _below_exp(int(words[i]), 32, exact_exponent(int(i)))
    return accepted


def _below_exp(word: int, drawn: int, gamma: Fraction, width: Fraction = Fraction(1)) -> bool:
    """Whether width·U <= exp(-gamma), for U uniform given that its first `drawn` bits are `word`."""
    while True:
        bits = 2 * drawn + 32
        if width * Fraction(word + 1, 1 << drawn) <= exp_lower(-gamma, bits=bits):
            return True
        if width * Fraction(word, 1 << drawn) >= exp_upper(-gamma, bits=bits):
            return False
        word, drawn = word << 64 | secrets.randbits(64), drawn + 64


def _geometric(word: int, drawn: int, scale: Fraction) -> int:
    """floor(-scale·ln U), for U uniform given that its first `drawn` bits are `word`."""
    while True:
        bits = drawn + 64
        least = floor(scale * log_lower(Fraction(1 << drawn, word + 1), bits=bits))
        if word and least == floor(scale * log_upper(Fraction(1 << drawn, word), bits=bits)):
            return least
        word, drawn = word << 64 | secrets.randbits(64), drawn + 64


def _wide_laplace_batch(scale: int, count: int) -> IntArray:
    """At most `count` draws of the discrete Laplace law, for a scale up to the largest: the high part of a magnitude by
    floats, the low bits uniform, and kept as often as the law asks for."""
    shift = max(0, (scale - 1).bit_length() - _LARGEST_FLOAT_SCALE.bit_length() + 1)
    high, negative = _magnitudes(Fraction(scale, 1 << shift), count)
    if not shift:
        return _signed(high, negative)
    if int(high.max(initial=0)) >> (62 - shift):
        raise OverflowError("a draw does not fit 64 bits")
    low = (np.frombuffer(os.urandom(8 * count), dtype=np.uint64) >> np.uint64(64 - shift)).astype(np.int64)
    kept = _accept(low / float(scale), lambda i: Fraction(int(low[i]), scale))
    return _signed(((high << shift) + low)[kept], negative[kept])


def _magnitudes(scale: Fraction, count: int) -> tuple[IntArray, NDArray[np.bool_]]:
    """Draws of the one-sided law, 63 bits (or more, if needed) for each, and a bit for the sign of each."""
    words = np.frombuffer(os.urandom(8 * count), dtype=np.uint64)
    fine = (words >> np.uint64(1)).astype(np.int64)
    real = np.log((fine + 0.5) * 2.0**-63) * -float(scale)
    near = np.rint(real)
    sizes = np.floor(real).astype(np.int64)
    # The integer 0 is no boundary: a magnitude is never negative, so 0 and a little less are both 0.
    doubtful = (np.abs(real - near) < float(scale) * _LOG_MARGIN) & (near > 0) | (fine < _SMALL_WORD)
    np.maximum(sizes, 0, out=sizes)
    for i in np.flatnonzero(doubtful):
        sizes[i] = _geometric(int(fine[i]), 63, scale)
    return sizes, (words & np.uint64(1)).astype(np.bool_)


def _signed(sizes: IntArray, negative: NDArray[np.bool_]) -> IntArray:
    """Magnitudes with their signs, without one of the two zeros."""
    kept: NDArray[np.bool_] = (sizes > 0) | ~negative
    signed: IntArray = np.where(negative, -sizes, sizes)[kept]
    return signed
