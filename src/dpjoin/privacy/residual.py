"""Boundary values T_F, the local sensitivity k rows away (LŜ^k), and residual sensitivity (Definition 3.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from math import ceil, floor, lcm

import numpy as np
from numpy.typing import NDArray

from dpjoin.privacy.rational import exp_lower, exp_upper, log_lower, log_upper

Tables = frozenset[str]
Form = tuple[int, ...]
"""A multilinear polynomial: entry `mask` is the coefficient of the product of s_j over the bits j of `mask`."""
Array = NDArray[np.float64]
Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Lowest corner and widths: the points low, …, low + width."""

MARGIN = 2.0**-30
"""Floats drop a box or a point only if it fails by more than this share; their own error is below 2**-40."""


@dataclass(frozen=True, kw_only=True)
class Boundaries:
    """The boundary values T_F of an instance, and what is public about them.

    `caps` holds public bounds T_F <= cap_F; `factors` holds (F, j, c) with T_F <= c·T_{F minus j}, valid for every
    instance that can occur. Both are the caller's to prove.
    """

    tables: tuple[str, ...]
    private: frozenset[str]
    values: Mapping[Tables, int]
    """T_F for every proper subset F of the tables."""
    caps: Mapping[Tables, int] = field(default_factory=dict)
    factors: tuple[tuple[Tables, str, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.private or not self.private <= set(self.tables):
            raise ValueError(f"private ({sorted(self.private)}) must name at least one of the tables")
        missing = [sorted(subset) for subset in proper_subsets(self.tables) if subset not in self.values]
        if missing:
            raise ValueError(f"values must hold every proper subset of the tables; {missing[0]} is missing")
        if self.values[frozenset()] != 1 or min(self.values.values()) < 0:
            raise ValueError("values must not be negative, and 1 for the empty set")
        if any(c < 0 for c in self.caps.values()) or any(j not in f or c < 0 for f, j, c in self.factors):
            raise ValueError("caps and factors must not be negative, and a factor's table must be in its set")


def proper_subsets(tables: Sequence[str]) -> Iterator[Tables]:
    """Every subset but the whole, small ones first. Proof: P-34."""
    for size in range(len(tables)):
        yield from map(frozenset, combinations(tables, size))


def local_sensitivity(b: Boundaries) -> int:
    """LS: how many join results one row of a private table can be in. Proof: P-34.

    >>> local_sensitivity(star((1000, 1, 1)))
    1000
    """
    return max(b.values[all_but(b, i)] for i in b.private)


def star(degrees: Sequence[int], *, private: Sequence[int] | None = None) -> Boundaries:
    """Tables 1, 2, … whose boundary values are products of the given T_1, T_2, …, for examples. Proof: P-34."""
    names = tuple(str(n) for n in range(1, len(degrees) + 1))
    values = {frozenset[str](): 1}
    for subset in proper_subsets(names):
        for name in sorted(subset)[:1]:
            values[subset] = degrees[int(name) - 1] * values[subset - {name}]
    chosen = names if private is None else tuple(str(n) for n in private)
    return Boundaries(tables=names, private=frozenset(chosen), values=values)


def sensitivity_forms(b: Boundaries) -> list[list[Form]]:
    """For each private i polynomials in the s of the other private tables, whose minimum is B_{all but i}(s).

    All polynomials of one i have the same variables, in the order of `tables`. Proof: P-35.
    """
    return [_forms(b, all_but(b, i)) for i in b.tables if i in b.private]


def residual_sensitivity(b: Boundaries, beta: Fraction) -> Fraction:
    """RS: at least max_k exp(-beta·k)·LŜ^k, and at most 1 + 2**-60 times that. Proof: P-42.

    T_F must be below 2**500. Takes at most about box^(tables - 2) steps, box = 1/beta; without caps far fewer.
    """
    return max((value * exp_upper(-beta * k) for k, value in _candidates(b, beta)), default=Fraction(0))


def residual_level(b: Boundaries, *, beta: Fraction, steps: int) -> int:
    """The least level >= 0 with LŜ^k <= residual_bound(level + steps·k) for all k; sensitivity `steps`. Proof: P-43."""
    _check(beta, steps)
    level = 0
    for k, value in _candidates(b, beta):
        level = max(level, _least_level(value, beta=beta, steps=steps) - steps * k)
    return level


def residual_bound(level: int, *, beta: Fraction, steps: int) -> int:
    """G(level), the whole part of exp(beta·level/steps). Proof: P-43.

    >>> [residual_bound(n, beta=Fraction(1), steps=2) for n in range(5)]
    [1, 1, 2, 4, 7]
    """
    _check(beta, steps)
    x = beta * level / steps
    bits = 128
    while floor(exp_lower(x, bits=bits)) != floor(exp_upper(x, bits=bits)):
        bits *= 2
    return floor(exp_lower(x, bits=bits))


def all_but(b: Boundaries, i: str) -> Tables:
    """Every table except i. Proof: P-34."""
    return frozenset(b.tables) - {i}


def _forms(b: Boundaries, whole: Tables) -> list[Form]:
    """B_F(s) as a minimum: the sum of F, and for every chain of factors c·(sum of a smaller set) or c·cap."""
    names = [t for t in b.tables if t in whole and t in b.private]
    reached = {whole: 1}
    for size in range(len(whole), 0, -1):
        for subset, j, c in b.factors:
            if len(subset) == size and subset in reached:
                cost = c * reached[subset]
                reached[subset - {j}] = min(cost, reached.get(subset - {j}, cost))
    found: list[Form] = []
    for subset, cost in reached.items():
        found.append(tuple(cost * c for c in _expansion(b, subset, names)))
        if subset in b.caps:
            found.append((cost * b.caps[subset], *(0,) * (2 ** len(names) - 1)))
    return undominated(found, smaller=True)


def _expansion(b: Boundaries, subset: Tables, names: Sequence[str]) -> list[int]:
    """Coefficients of Σ_E T_{subset minus E}·Π_{j in E} s_j, E over the private tables in `subset`."""
    left: list[Tables | None] = [subset]
    for name in names:
        left += [None if rest is None or name not in rest else rest - {name} for rest in left]
    return [0 if rest is None else b.values[rest] for rest in left]


def undominated(found: Sequence[Form], *, smaller: bool = False) -> list[Form]:
    """The forms without those that another one replaces in a maximum (or, if `smaller`, in a minimum). Proof: P-35."""
    kept = list(dict.fromkeys(found))
    if smaller:
        return [form for form in kept if not any(other != form and _below(other, form) for other in kept)]
    return [form for form in kept if not any(other != form and _below(form, other) for other in kept)]


def _below(form: Form, other: Form) -> bool:
    return all(x <= y for x, y in zip(form, other, strict=True))


def variable_count(form: Form) -> int:
    """How many variables a form has. Proof: P-35."""
    return len(form).bit_length() - 1


def form_at(form: Form, point: Sequence[int]) -> int:
    """The value of a form at s = point. Proof: P-35."""
    values = list(form)
    for x in reversed(point):
        half = len(values) // 2
        values = [values[n] + x * values[n + half] for n in range(half)]
    return values[0]


def moved_form(form: Form, point: Sequence[int]) -> list[int]:
    """The coefficients of u -> form(point + u). Proof: P-35."""
    values = list(form)
    for bit, x in enumerate(point):
        if x:
            step = 1 << bit
            for mask in range(len(values)):
                if not mask & step:
                    values[mask] += x * values[mask | step]
    return values


def majorant(moved: Sequence[int], widths: Sequence[int]) -> tuple[int, list[int], int]:
    """A linear function above the form on 0 <= u <= widths: constant, slopes, common divisor. Proof: P-36."""
    variables = len(widths)
    unit = lcm(*range(1, variables + 1))
    slopes = [0] * variables
    for mask in range(1, len(moved)):
        if not moved[mask]:
            continue
        bits = [bit for bit in range(variables) if mask >> bit & 1]
        share = moved[mask] * (unit // len(bits))
        for bit in bits:
            product = share
            for other in bits:
                if other != bit:
                    product *= widths[other]
            slopes[bit] += product
    return unit * moved[0], slopes, unit


def halves(box: Box, slopes: Sequence[int]) -> list[Box]:
    """The box cut in two across the side along which its majorant varies most. Proof: P-36."""
    low, widths = box
    cut = max(range(len(low)), key=lambda n: (widths[n] > 0, slopes[n] * widths[n], widths[n]))
    left = widths[cut] // 2
    upper = (*low[:cut], low[cut] + left + 1, *low[cut + 1 :])
    return [
        (low, (*widths[:cut], left, *widths[cut + 1 :])),
        (upper, (*widths[:cut], widths[cut] - left - 1, *widths[cut + 1 :])),
    ]


def _check(beta: Fraction, steps: int) -> None:
    if beta <= 0:
        raise ValueError(f"beta ({beta}) must be positive")
    if steps < 1:
        raise ValueError(f"steps ({steps}) must be at least 1")


def _least_level(value: int, *, beta: Fraction, steps: int) -> int:
    """The least n >= 0 with value <= exp(beta·n/steps)."""
    if value <= 1:
        return 0
    bits = 128
    while True:
        low = ceil(log_lower(Fraction(value), bits=bits) * steps / beta)
        if low == ceil(log_upper(Fraction(value), bits=bits) * steps / beta):
            return low
        bits *= 2


def box_side(beta: Fraction) -> int:
    """A whole number at least 1/(exp(beta) - 1): no larger s_j is needed. Proof: P-41."""
    if not 0 < beta <= 16:
        raise ValueError(f"beta ({beta}) must be positive and at most 16")
    return ceil(1 / (exp_lower(beta) - 1))


def split_forms(forms: Sequence[Form]) -> Array:
    """Axes: without or with a variable, that variable, coefficients in the others, form. Proof: P-35."""
    variables = variable_count(forms[0])
    without = np.array([[mask for mask in range(1 << variables) if not mask >> j & 1] for j in range(variables)])
    table = np.array(forms, dtype=np.float64).T
    return np.stack([table[without], table[without + (1 << np.arange(variables))[:, None]]])


def at_corners(parts: Array, low: Array, high: Array) -> Array:
    """Split forms at the corners of a box in the other variables; last axis: form and its box. Proof: P-35."""
    variables = len(low)
    others = [[i for i in range(variables) if i != j] for j in range(variables)]
    below, above = low[others], high[others]
    for n in range(variables - 1):
        even, odd = parts[..., 0::2, :], parts[..., 1::2, :]
        parts = np.concatenate([even + odd * below[:, n, None], even + odd * above[:, n, None]], axis=-2)
    return parts


def _candidates(b: Boundaries, beta: Fraction) -> Iterator[tuple[int, int]]:
    """Pairs (sum of s, B(s)), among them one at which exp(-beta·sum)·B(s) is largest over all s and all i."""
    side = box_side(beta)
    weights = np.array([float(exp_upper(-beta * t)) for t in range(side + 1)])
    groups = list({tuple(forms): forms for forms in sensitivity_forms(b)}.values())
    if all(len(forms) == 1 for forms in groups):
        groups = [[form] for form in undominated([form for (form,) in groups])]
    shift = max(max(max(form) for form in forms) for forms in groups).bit_length()
    turn = float(1 / (exp_lower(beta) - 1))
    boxes = [_shrunk(forms, side, turn, shift) for forms in groups]
    approximations = [_last_axis(forms, box, weights, turn, shift) for forms, box in zip(groups, boxes, strict=True)]
    largest = max(float(approximation.max()) for approximation in approximations)
    if largest == 0:
        return
    found: dict[int, int] = {}
    for forms, box, approximation in zip(groups, boxes, approximations, strict=True):
        for place in np.argwhere(approximation >= largest * (1 - MARGIN)):
            for point in _extended(box, [int(x) for x in place]):
                k, value = sum(point), min(form_at(form, point) for form in forms)
                found[k] = max(found.get(k, 0), value)
    yield from found.items()


def _shrunk(forms: list[Form], side: int, turn: float, shift: int) -> Box:
    """Lowest corner and widths of a box in which the discounted minimum of the forms is largest; turn is near c."""
    variables = variable_count(forms[0])
    low, high = np.zeros((variables, 1)), np.full((variables, 1), float(side))
    if len(forms) == 1 and variables > 1 and any(forms[0]):
        parts = np.ldexp(split_forms(forms), -shift)
        for _ in range(4):
            free, slope = at_corners(parts, low, high)
            ratios = free / np.maximum(slope, 2.0**-900)
            bottom = np.ceil(turn * (1 - MARGIN) - MARGIN - ratios.max(axis=1) * (1 + MARGIN))
            top = np.floor(np.maximum((turn + 1) * (1 + MARGIN) - ratios.min(axis=1) * (1 - MARGIN), 0))
            low, high = np.maximum(low, bottom), np.minimum(high, top)
    return tuple(int(x) for x in low[:, 0]), tuple(int(x) for x in (high - low)[:, 0])


def _extended(box: Box, place: list[int]) -> Iterator[list[int]]:
    """The points with these first coordinates; the last one runs over the box. Without variables there is one."""
    low, widths = box
    if not low:
        yield []
    else:
        start = [x + y for x, y in zip(low, place, strict=False)]
        yield from ([*start, low[-1] + t] for t in range(widths[-1] + 1))


def _last_axis(forms: list[Form], box: Box, weights: Array, turn: float, shift: int) -> Array:
    """About 2**-shift · max over the last coordinate of exp(-beta·sum)·B(s), for all s in the box but the last."""
    lines = [_lines(form, box, weights, shift) for form in forms]
    if len(forms[0]) == 1:
        lowest: Array = np.array(min(float(constant) for constant, _ in lines))
        return lowest
    first, last = box[0][-1], box[0][-1] + box[1][-1]
    if len(lines) == 1:
        constant, slope = lines[0]
        with np.errstate(over="ignore"):  # a slope of 0 makes infinity of it
            ratio = constant / np.maximum(slope, 2.0**-1000)
        best_t = np.minimum(np.maximum(np.ceil(turn - ratio), first), last)
        result: Array = (constant + slope * best_t) * weights[best_t.astype(np.int64)]
        return result
    best = np.zeros_like(lines[0][0])
    for t in range(first, last + 1):
        weight = weights[t]
        here = lines[0][0] * weight + lines[0][1] * (t * weight)
        for constant, slope in lines[1:]:
            here = np.minimum(here, constant * weight + slope * (t * weight))
        best = np.maximum(best, here)
    return best


def _lines(form: Form, box: Box, weights: Array, shift: int) -> tuple[Array, Array]:
    """Constant and slope in the last variable, for all values of the others in the box, with the others' weights."""
    variables = len(form).bit_length() - 1
    scaled = [float(Fraction(c, 1 << shift)) for c in form]
    # The first variable is the lowest bit: the last axis of the reshaped array.
    tensor = np.array(scaled).reshape((2,) * variables)
    if variables == 0:
        return tensor, tensor
    # Each step contracts the last axis (the next variable) and puts the box in front of what is left.
    done: Array = tensor
    for low, width in list(zip(*box, strict=True))[:-1]:
        side = np.arange(low, low + width + 1)
        basis = np.stack([weights[side], side * weights[side]])
        done = np.moveaxis(np.stack([done[..., 0], done[..., 1]], axis=-1) @ basis, -1, 0)
    order = tuple(range(variables - 2, -1, -1))
    return np.transpose(done[..., 0], order), np.transpose(done[..., 1], order)
