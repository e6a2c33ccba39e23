"""The one door for randomness: exact samplers fed by the operating system.

No function takes a seed. No law here is an approximation: the scalar samplers are those of Canonne, Kamath
and Steinke (2020) on rationals; the array samplers decide almost every draw in float64 with a margin that
covers all rounding, and settle the few draws inside the margin on rationals, with more random bits as needed.

The one assumption: numpy's exp and log of a float64 have relative error below 2**-44 (they claim a few units
of 2**-53). How long a draw takes is not part of any claim.
"""

from __future__ import annotations

import os
import secrets
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate
from math import ceil, floor, isqrt
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dpjoin.privacy.rational import exp_lower, exp_upper, log_lower, log_upper

IntArray: TypeAlias = NDArray[np.int64]
_FloatArray: TypeAlias = NDArray[np.float64]

_LOG_MARGIN = 2.0**-39
"""Covers the error of -scale·ln(U) in float64, as a share of the scale."""

_EXP_MARGIN = 2.0**-32
"""Covers the error of exp(-gamma) in float64 and the bits of U that are not drawn yet."""

_SMALL_WORD = 1 << 43
"""A 63-bit uniform below this is too coarse for the margin and is settled on rationals."""

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
    if bound < 1:
        raise ValueError(f"bound ({bound}) must be positive")
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


def discrete_laplace(*, scale: Fraction) -> int:
    """An integer x with probability exactly proportional to exp(-|x|/scale). Proof: P-6."""
    _require_positive("scale", scale)
    top, bottom = scale.numerator, scale.denominator
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


def discrete_gaussian(*, variance: Fraction) -> int:
    """An integer x with probability exactly proportional to exp(-x²/(2·variance)). Proof: P-7.

    `variance` is the parameter σ²; the variance of the law itself is at most σ².
    """
    _require_positive("variance", variance)
    scale = isqrt(floor(variance)) + 1
    while True:
        x = discrete_laplace(scale=Fraction(scale))
        if bernoulli_exp(_gaussian_exponent(abs(x), variance, scale)):
            return x


def discrete_laplace_array(*, scale: Fraction, size: int) -> IntArray:
    """`size` independent draws of `discrete_laplace`, the same exact law. Proof: P-8.

    The dtype is int64 for scale <= 2**30; above, float64 decides too little and Python ints from the scalar
    sampler are returned in an object array.

    >>> discrete_laplace_array(scale=Fraction(1, 10**9), size=3)
    array([0, 0, 0])
    """
    _require_positive("scale", scale)
    if scale > _LARGEST_FLOAT_SCALE:
        return _object_array(lambda: discrete_laplace(scale=scale), size)
    return _collect(lambda count: _laplace_batch(scale, count), size)


def discrete_gaussian_array(*, variance: Fraction, size: int) -> IntArray:
    """`size` independent draws of `discrete_gaussian`, the same exact law. Proof: P-9.

    The dtype is int64 for variance < 2**104; from there on, Python ints in an object array.

    >>> discrete_gaussian_array(variance=Fraction(10**6), size=4).shape
    (4,)
    """
    _require_positive("variance", variance)
    if variance >= _LARGEST_SCALE**2:
        return _object_array(lambda: discrete_gaussian(variance=variance), size)
    if variance < _SMALLEST_FLOAT_VARIANCE:
        return _object_array(lambda: discrete_gaussian(variance=variance), size).astype(np.int64)
    scale = isqrt(floor(variance)) + 1
    return _collect(lambda count: _gaussian_batch(variance, scale, count), size)


def truncated_discrete_laplace(*, scale: Fraction, half_width: int) -> int:
    """half_width + Z, Z discrete Laplace conditioned on |Z| <= half_width. Proof: P-10.

    Postcondition: an integer in {0, …, 2·half_width}, so adding it never lowers a value. Conditioned, not
    clamped: clamping would put extra mass at the ends and has a different proof.
    """
    _require_positive("scale", scale)
    _require_half_width(half_width)
    if half_width <= scale:
        return _by_uniform(half_width, lambda x: Fraction(abs(x)) / scale)
    return _by_rejection(half_width, lambda: discrete_laplace(scale=scale))


def truncated_discrete_gaussian(*, variance: Fraction, half_width: int) -> int:
    """half_width + Z, Z discrete Gaussian conditioned on |Z| <= half_width (TDG). Proof: P-11.

    Postcondition: an integer in {0, …, 2·half_width}.
    """
    _require_positive("variance", variance)
    _require_half_width(half_width)
    if half_width**2 <= 2 * variance:
        return _by_uniform(half_width, lambda x: x * x / (2 * variance))
    return _by_rejection(half_width, lambda: discrete_gaussian(variance=variance))


def truncated_discrete_laplace_array(*, scale: Fraction, half_width: int, size: int) -> IntArray:
    """`size` independent draws of `truncated_discrete_laplace`, int64; half_width < 2**62. Proof: P-10."""
    _require_positive("scale", scale)
    _require_half_width(half_width, below=1 << 62)
    if half_width <= scale or scale > _LARGEST_FLOAT_SCALE:
        draws = _object_array(lambda: truncated_discrete_laplace(scale=scale, half_width=half_width), size)
        return draws.astype(np.int64)
    return half_width + _collect(lambda count: _within(_laplace_batch(scale, count), half_width), size)


def truncated_discrete_gaussian_array(*, variance: Fraction, half_width: int, size: int) -> IntArray:
    """`size` independent draws of `truncated_discrete_gaussian`, int64; half_width < 2**62. Proof: P-11."""
    _require_positive("variance", variance)
    _require_half_width(half_width, below=1 << 62)
    if half_width**2 <= 2 * variance or not _SMALLEST_FLOAT_VARIANCE <= variance < _LARGEST_FLOAT_SCALE**2:
        draws = _object_array(lambda: truncated_discrete_gaussian(variance=variance, half_width=half_width), size)
        return draws.astype(np.int64)
    scale = isqrt(floor(variance)) + 1
    return half_width + _collect(lambda count: _within(_gaussian_batch(variance, scale, count), half_width), size)


def exponential_choice(scores: Sequence[int] | NDArray[Any], *, rate: Fraction) -> int:
    """An index c with probability exactly proportional to exp(rate·scores[c]), rate >= 0. Proof: P-12.

    Scores are integers of any size: an int64 array is fast, Python ints of any magnitude are right too.

    >>> exponential_choice([5], rate=Fraction(1))
    0
    >>> exponential_choice([0, 10**40], rate=Fraction(1))
    1
    """
    if rate < 0:
        raise ValueError(f"rate ({rate}) must not be negative; negate the scores to prefer small ones")
    if len(scores) == 0:
        raise ValueError("scores (none) must hold at least one candidate")
    whole, top = _whole_scores(scores)
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
        index, word = int(np.flatnonzero(levels == level)[member]), secrets.randbits(32)
        if level < _LAST_LEVEL and word < _surely_kept(_LEVEL_MARGIN):
            return index
        if _below_exp(word, 32, rate * (top - int(whole[index])), Fraction(weights[level], 1 << _LEVEL_BITS)):
            return index
    return 0


@cache
def _level_weights(margin: Fraction) -> tuple[int, ...]:
    """For each level, a whole number no less than 2^bits·exp(margin - level/levels per unit)."""
    weights = [ceil(exp_upper(margin, bits=2 * _LEVEL_BITS) * (1 << _LEVEL_BITS))]
    shrink = exp_upper(Fraction(-1, _LEVELS_PER_UNIT), bits=2 * _LEVEL_BITS)
    for _ in range(_LAST_LEVEL):
        weights.append(-(-weights[-1] * shrink.numerator // shrink.denominator))
    return tuple(weights)


@cache
def _surely_kept(margin: Fraction) -> int:
    """Of 2**32 proposals of any candidate below the last level, so many at least are kept."""
    least = exp_lower(-Fraction(1, _LEVELS_PER_UNIT) - 2 * margin - Fraction(1, 1 << 60), bits=_LEVEL_BITS)
    return floor(least * (1 << 32))


def _whole_scores(scores: Sequence[int] | NDArray[Any]) -> tuple[NDArray[Any], int]:
    """The scores and their maximum; in int64 when no difference can overflow, else in Python ints."""
    array = np.asarray(scores)
    if array.dtype.kind == "f" or array.dtype == np.uint64:  # a mix of Python ints beyond int64
        array = np.array([_integer(score) for score in scores], dtype=object)
    if array.ndim != 1 or array.dtype.kind not in "iuO":
        raise ValueError(f"scores (dtype {array.dtype}, {array.ndim} axes) must be a list of integers")
    if array.dtype.kind == "O":
        array = np.array([_integer(score) for score in array], dtype=object)
    else:
        array = array.astype(np.int64, copy=False)
    top, bottom = int(array.max()), int(array.min())
    if top - bottom >= 1 << 63:
        array = array.astype(object)
    return array, top


def _integer(score: object) -> int:
    if isinstance(score, int | np.integer):
        return int(score)
    raise ValueError("scores must be integers; scale them by a public power of two first")


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


def _laplace_batch(scale: Fraction, count: int) -> IntArray:
    """At most `count` draws of the discrete Laplace law."""
    return _signed(*_magnitudes(scale, count))


def _wide_laplace_batch(scale: int, count: int) -> IntArray:
    """The same for any scale up to the largest: the high part of a magnitude by floats, the low bits uniform, and kept
    as often as the law asks for."""
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


def _gaussian_batch(variance: Fraction, scale: int, count: int) -> IntArray:
    """At most `count` draws: Laplace proposals, each kept with exp(-(|x| - σ²/scale)²/(2σ²))."""
    proposals = _wide_laplace_batch(scale, count)
    distances = np.abs(proposals) - float(variance / scale)
    exponents = distances * distances / float(2 * variance)
    return proposals[_accept(exponents, lambda i: _gaussian_exponent(abs(int(proposals[i])), variance, scale))]


def _gaussian_exponent(magnitude: int, variance: Fraction, scale: int) -> Fraction:
    return (magnitude - variance / scale) ** 2 / (2 * variance)


def _collect(batch: Callable[[int], IntArray], size: int) -> IntArray:
    """The first `size` values of an endless row of batches."""
    _require_size(size)
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        # Most laws keep two proposals of three or more; a batch that falls short is followed by another.
        values = batch(min((size - filled) * 3 // 2 + 16, _CHUNK))[: size - filled]
        out[filled : filled + values.size] = values
        filled += values.size
    return out


def _within(values: IntArray, half_width: int) -> IntArray:
    return values[np.abs(values) <= half_width]


def _by_uniform(half_width: int, exponent: Callable[[int], Fraction]) -> int:
    """Wide noise, narrow support: a uniform proposal is kept with probability exp(-1) at least."""
    while True:
        x = uniform_below(2 * half_width + 1) - half_width
        if bernoulli_exp(exponent(x)):
            return half_width + x


def _by_rejection(half_width: int, draw: Callable[[], int]) -> int:
    while True:
        x = draw()
        if abs(x) <= half_width:
            return half_width + x


def _object_array(draw: Callable[[], int], size: int) -> IntArray:
    _require_size(size)
    out = np.empty(size, dtype=object)
    out[:] = [draw() for _ in range(size)]
    return cast(IntArray, out)


def _require_positive(name: str, value: Fraction) -> None:
    if value <= 0:
        raise ValueError(f"{name} ({value}) must be positive")


def _require_half_width(half_width: int, *, below: int | None = None) -> None:
    if half_width < 0:
        raise ValueError(f"half_width ({half_width}) must not be negative")
    if below is not None and half_width >= below:
        raise ValueError(f"half_width ({half_width}) must be below {below} for an int64 array")


def _require_size(size: int) -> None:
    if size < 0:
        raise ValueError(f"size ({size}) must not be negative")
