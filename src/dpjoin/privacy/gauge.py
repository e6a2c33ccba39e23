"""Gauges: whole numbers that one row moves by at most one, and that bound the local sensitivity of a join.

Everything is a pure function of the boundary values T_F (`Boundaries`). `t_gauge` compares every T_F with a public
growth curve P_F; `ls_gauge` compares the local sensitivity k rows away with a public curve G(level + k).
`gauge` is the smaller of the two. Integers only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from math import comb, factorial, log

import numpy as np

from dpjoin.privacy.residual import (
    MARGIN,
    Array,
    Boundaries,
    Box,
    Form,
    Tables,
    all_but,
    at_corners,
    form_at,
    halves,
    majorant,
    moved_form,
    proper_subsets,
    sensitivity_forms,
    split_forms,
    undominated,
    variable_count,
)

Newton = tuple[int, ...]
"""Coefficients c of the polynomial Σ c_r·C(x, r)."""
Curve = tuple[tuple[int, Newton], ...]
"""Pieces (start, c): from `start` to the next start the value at z is Σ c_r·C(z - start, r); the first start is 0."""


SEARCH_TABLES = 8
"""Up to how many tables `gauge` looks for the smaller gauge: beyond, the exact search can take long."""

_LAST, _LARGEST, _HIGHEST = 2**50, 2**200, 2**700
"""Sums, coefficients and values below which the search in floats is exact enough and cannot overflow."""


def gauge_bound(b: Boundaries, level: int) -> int:
    """G(level), from public things only: tables, private, caps, factors, T_F of public tables. Proof: P-37.

    >>> from dpjoin.privacy.residual import star
    >>> [gauge_bound(star((5, 5, 5)), z) for z in (0, 1, 2, 3, 100)]
    [0, 0, 1, 3, 4950]
    """
    return max(_at(curve, level) for curve in _bounds(b))


def t_gauge(b: Boundaries) -> int:
    """The least level with T_F <= P_F(level) for every F that misses a private table; sensitivity 1. Proof: P-38.

    >>> from dpjoin.privacy.residual import star
    >>> t_gauge(star((1000, 1, 1))), t_gauge(star((10**9, 10**9)))
    (1000, 1000000000)
    """
    curves = _curves(b)
    return (
        max(
            _first(curve, b.values[subset])
            for subset, curve in curves.items()
            if subset & b.private and b.private - subset
        )
        if len(b.private) > 1
        else 0
    )


def ls_gauge(b: Boundaries) -> int | None:
    """The least level with LŜ^k <= G(level + k) for all k >= 0; sensitivity 1. Proof: P-39.

    None stands for infinity. It is also the answer whenever there are caps of tables or factors: a public rule.

    >>> from dpjoin.privacy.residual import star
    >>> ls_gauge(star((1000, 1, 1)))
    502
    """
    if any(b.caps) or b.factors:  # a cap of no tables says nothing: T of these is 1
        return None
    found = [_sorted_form(form) for (form,) in sensitivity_forms(b)]
    if found[0][-1] == 0:  # the public tables join to nothing; the last coefficient is the same for every i
        return None if any(map(any, found)) else 0
    growth = _Growth(found[0][-1], variable_count(found[0]))
    forms = undominated(found)
    best = max(_need(form, (0,) * variable_count(form), growth, 0) for form in forms)
    if variable_count(forms[0]) < 2:
        return best
    highest = tuple(max(column) for column in zip(*forms, strict=True))
    last = _last_total(highest)
    if last < _LAST and max(highest) < _LARGEST and max(highest) * last**growth.degree < _HIGHEST:
        return _largest_needs(forms, growth, best, last)
    for form in forms:
        best = _largest_need(form, growth, best, last)
    return best


def gauge(b: Boundaries) -> int:
    """The smaller of the two gauges; sensitivity 1 and gauge_bound(b, gauge(b)) >= local_sensitivity(b). Proof: P-40.

    >>> from dpjoin.privacy.residual import star
    >>> gauge(star((38, 2, 2))), gauge_bound(star((38, 2, 2)), gauge(star((38, 2, 2))) + 60)
    (22, 3321)
    """
    other = ls_gauge(b) if 2 < len(b.tables) <= SEARCH_TABLES else None  # of two tables t_gauge is no larger
    return t_gauge(b) if other is None else min(t_gauge(b), other)


# Search over boxes -----------------------------------------------------------------------------------------------


def _sorted_form(form: Form) -> Form:
    """The same form with its variables renamed: the one with the largest coefficient without it first."""
    variables = variable_count(form)
    order = sorted(range(variables), key=lambda bit: (-form[(len(form) - 1) ^ (1 << bit)], form[1 << bit]))
    places = [0]
    for bit in order:
        places += [place | 1 << bit for place in places]
    return tuple(form[place] for place in places)


def _swapped(form: Form, bit: int) -> Form:
    """The form with the variables `bit` and `bit` + 1 exchanged."""
    exchanged = []
    for mask in range(len(form)):
        pair = mask >> bit & 3
        exchanged.append(form[mask ^ (3 << bit if pair in (1, 2) else 0)])
    return tuple(exchanged)


@dataclass(frozen=True)
class _Growth:
    """G(z) = scale·C(z, degree)."""

    scale: int
    degree: int

    def __call__(self, z: int) -> int:
        return self.scale * comb(z, self.degree)


def _need(form: Form, point: Sequence[int], growth: _Growth, at_least: int) -> int:
    """The least level >= at_least with form(point) <= G(level + sum of point)."""
    value, total = form_at(form, point), sum(point)
    if value <= growth(at_least + total):
        return at_least
    return _least_with(lambda level: growth(level + total) >= value, at_least)


def _largest_need(form: Form, growth: _Growth, best: int, last: int) -> int:
    """The least level >= best with form(s) <= G(level + sum of s) for all whole s >= 0, sum <= last. Proof: P-39."""
    variables = variable_count(form)
    twins = [n for n in range(variables - 1) if _swapped(form, n) == form]  # s_n >= s_{n+1} is enough
    boxes: list[Box] = [((0,) * variables, (last,) * variables)]
    while boxes:
        low, widths = boxes.pop()
        start = sum(low)
        if start > last or any(low[n + 1] > low[n] + widths[n] for n in twins):
            continue
        widths = tuple(min(w, last - start) for w in widths)
        constant, slopes, unit = majorant(moved_form(form, low), widths)
        before = best
        bad = _first_violation(constant, slopes, unit, widths, growth, best + start)
        if bad is None:
            continue
        best = _need(form, [x + y for x, y in zip(low, bad, strict=True)], growth, best)
        if best > before:
            boxes.append((low, widths))
        elif any(widths):
            boxes.extend(halves((low, widths), slopes))
    return best


@cache
def _layout(variables: int) -> tuple[Array, Array, Array]:
    """0 or 1 for each corner of a box and side; a sign for each pair of sides and corner; the sides of each pair."""
    pairs = list(combinations(range(variables), 2))
    corners = np.array([[float(mask >> j & 1) for j in range(variables)] for mask in range(1 << variables)])
    signs = np.array([(1 - 2 * corners[:, i]) * (1 - 2 * corners[:, j]) for i, j in pairs])
    return corners, signs, np.array([[float(j in pair) for j in range(variables)] for pair in pairs])


def _largest_needs(forms: Sequence[Form], growth: _Growth, best: int, last: int) -> int:
    """The same for all forms at once, G = scale·C(z, v): floats drop boxes, whole numbers decide. Proof: P-39."""
    v = growth.degree
    middle, root = (v - 1) / 2, (factorial(v) / growth.scale) ** (1 / v)
    corners, signs, members = _layout(v)
    table = np.array(forms, dtype=np.float64)
    split = split_forms(forms)
    who, low, high = np.arange(len(forms)), np.zeros((len(forms), v)), np.full((len(forms), v), float(last))
    while True:
        # a + s_j·b is the form: a, b and the form itself at the corners of the box.
        free, slope = at_corners(split[..., who], low.T, high.T)
        ratios = free / np.maximum(slope, 2.0**-200)
        values = np.stack([free[0] + low[:, 0] * slope[0], free[0] + high[:, 0] * slope[0]], axis=1)
        values = values.reshape(-1, len(who))
        # The form is at most exp(top)·Π(s_j + shift_j) in the box.
        shift = np.maximum(np.exp(np.log(np.maximum(ratios, 2.0**-10)).sum(axis=1).T / (1 << (v - 1))), 0.25)
        left, right = np.log(low + shift), np.log(high + shift)
        logs = np.log(np.maximum(values, 2.0**-100))
        top = (logs - corners @ (right - left).T).max(axis=0) - left.sum(axis=-1)
        # root·G(z)^(1/v) is at least z - middle - lack for z >= start.
        start = np.maximum(best + low.sum(axis=-1), v - 1)
        falling = start.copy()
        for n in range(1, v):
            falling *= start - n
        lack = start - middle - falling ** (1 / v)
        # Tangent to the geometric mean of the s_j + shift_j at `touch`, near the worst place of the box.
        u = np.log(np.maximum(start - middle, 0.5) / v)
        for _ in range(3):
            inside = np.minimum(np.maximum(u[:, None], left), right)
            moving = (inside == u[:, None]).sum(axis=-1)
            gap = log(root / v) + (top + inside.sum(axis=-1)) / v - u
            u = u + gap / np.maximum(1 - moving / v, 0.5 / v)
        inside = np.minimum(np.maximum(u[:, None], left), right)
        touch = np.exp(inside)
        rise = np.exp(log(root / v) + (top + inside.sum(axis=-1)) / v)[:, None] / touch
        worst = np.where(rise > 1, high, low)
        excess = (rise * (shift + worst) - worst).sum(axis=-1) - (best - middle - lack)
        keep = excess > -MARGIN * (1 + best + worst.sum(axis=-1))
        # At the worst point of all, s_j + a/b is at least (z - v + 1)/v, and at most z/v unless s_j = 0.
        most = np.minimum(
            middle + lack + root * values[-1] ** (1 / v), best + np.maximum(excess, 0) + high.sum(axis=-1)
        ) * (1 + MARGIN)
        least = np.maximum(start, middle + root * values[0] ** (1 / v)) * (1 - MARGIN)
        limit = np.maximum(most[:, None] / v - ratios.min(axis=1).T * (1 - MARGIN), 0)
        room = low + np.maximum(most - best - low.sum(axis=-1) * (1 - MARGIN), 0)[:, None]
        high = np.minimum(high, np.floor(np.minimum(limit, room)))
        low = np.maximum(low, np.ceil((least[:, None] - v + 1) / v - ratios.max(axis=1).T * (1 + MARGIN)))
        keep &= (low <= high).all(axis=-1) & (low.sum(axis=-1) <= last)
        if not keep.any():
            return best
        who, low, high, shift = who[keep], low[keep], high[keep], shift[keep]
        score = np.abs(signs @ logs[:, keep]).T @ members
        tried = np.minimum(np.maximum(np.rint(touch[keep] - shift), low), high)
        n = int((root * _at_points(table[who], tried) ** (1 / v) - tried.sum(axis=-1)).argmax())
        best = _need(forms[who[n]], [int(x) for x in tried[n]], growth, best)
        # Boxes of width 1 are their corners; the others are cut across the side that varies most with the rest.
        large = (high - low).max(axis=-1) > 1
        if not large.all():
            small = np.flatnonzero(~large)
            points = low[small][:, None] + corners * (high - low)[small][:, None]
            totals = best + points.sum(axis=-1)
            reach = np.full_like(totals, growth.scale / factorial(v))
            for n in range(v):
                reach *= np.maximum(totals - n, 0)
            for box, corner in np.argwhere(_at_points(table[who[small]][:, None], points) > reach * (1 - MARGIN)):
                best = _need(forms[who[small[box]]], [int(x) for x in points[box, corner]], growth, best)
            who, low, high, shift, score = who[large], low[large], high[large], shift[large], score[large]
            if not len(who):
                return best
        spread = np.where(high > low, score + 0.001 * (high + shift) / (low + shift), -1)
        cut = (np.arange(len(who)), spread.argmax(axis=-1))
        place = np.floor((low[cut] + shift[cut]) ** (2 / 3) * (high[cut] + shift[cut]) ** (1 / 3) - shift[cut])
        place = np.minimum(np.maximum(place, low[cut]), high[cut] - 1)
        upper, lower = low.copy(), high.copy()
        upper[cut], lower[cut] = place + 1, place
        who, low, high = np.concatenate([who, who]), np.concatenate([low, upper]), np.concatenate([lower, high])


def _at_points(coefficients: Array, points: Array) -> Array:
    """Values of forms (last axis: coefficients) at points (last axis: variables)."""
    for n in range(points.shape[-1]):
        coefficients = coefficients[..., 0::2] + coefficients[..., 1::2] * points[..., n, None]
    return coefficients[..., 0]


def _last_total(form: Form) -> int:
    """A k beyond which form(s) <= c·C(k, v) for every s with sum k; c is the leading coefficient, v >= 2."""
    variables = variable_count(form)
    largest = [max(c for mask, c in enumerate(form) if mask.bit_count() == r) for r in range(variables + 1)]

    def covered(k: int) -> bool:
        # Maclaurin: the terms of degree r are at most largest_r·C(v, r)·(k/v)^r. Both sides times v^v.
        above = sum(c * comb(variables, r) * k**r * variables ** (variables - r) for r, c in enumerate(largest))
        return bool(above <= form[-1] * comb(k, variables) * variables**variables)

    return _least_with(covered, variables)


def _first_violation(
    constant: int, slopes: Sequence[int], unit: int, widths: Sequence[int], growth: _Growth, z: int
) -> list[int] | None:
    """A point u of the box where constant + slopes·u > unit·G(z + sum of u), the worst on its edge; None if none."""
    order = sorted(range(len(widths)), key=lambda n: -slopes[n])
    reach = constant + sum(slope * width for slope, width in zip(slopes, widths, strict=True))
    if reach <= unit * growth(z):
        return None
    filled, total, value = [0] * len(widths), 0, constant
    for n in [None, *order]:
        width, slope = (0, 0) if n is None else (widths[n], slopes[n])
        if n is not None and width == 0:
            continue
        # G is convex: the gap to a line is least where G begins to rise faster than the line.
        at = z + total
        rise = _least_below(lambda t: unit * (growth(at + t + 1) - growth(at + t)) >= slope, width)  # noqa: B023
        if value + slope * rise > unit * growth(at + rise):
            if n is not None:
                filled[n] = rise
            return filled
        if n is not None:
            filled[n] = width
        total, value = total + width, value + slope * width
    return None


def _least_with(holds: Callable[[int], bool], low: int) -> int:
    """The least n >= low at which a monotone condition holds, by doubling and bisection."""
    if holds(low):
        return low
    step = 1
    while not holds(low + step):
        low, step = low + step, 2 * step
    return low + 1 + _least_below(lambda t: holds(low + 1 + t), step - 1)


def _least_below(holds: Callable[[int], bool], high: int) -> int:
    """The least n in 0 … high at which a monotone condition holds; high if none does before."""
    low = 0
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


# Growth curves ---------------------------------------------------------------------------------------------------


def _bounds(b: Boundaries) -> list[Curve]:
    """P of all tables but i, for each private i."""
    if b.private == set(b.tables) and not any(b.caps) and not b.factors:
        return [((0, (*(0,) * (len(b.tables) - 1), 1)),)]
    curves = _curves(b)
    return [curves[all_but(b, i)] for i in b.tables if i in b.private]


def _curves(b: Boundaries) -> dict[Tables, Curve]:
    """P_F for every proper subset F, from public things only. Proof: P-37."""
    plain = not any(b.caps) and not b.factors
    curves: dict[Tables, Curve] = {}
    for subset in proper_subsets(b.tables):
        private = [j for j in b.tables if j in subset and j in b.private]
        if not private:
            curves[subset] = ((0, (b.values[subset],)),)
        elif plain and len(private) == len(subset):
            curves[subset] = ((0, (*(0,) * len(subset), 1)),)
        else:
            steepest = curves[subset - {private[0]}]
            for j in private[1:]:
                steepest = _chosen(steepest, curves[subset - {j}], larger=True)
            curves[subset] = _bounded_sum(steepest, _ceilings(b, subset, curves))
    return curves


def _ceilings(b: Boundaries, subset: Tables, curves: Mapping[Tables, Curve]) -> list[Curve]:
    """What P_F may never exceed: the cap of F and c·P_{F minus j} for its factors."""
    found: list[Curve] = [((0, (b.caps[subset],)),)] if subset in b.caps else []
    found += [_times(curves[subset - {j}], c) for other, j, c in b.factors if other == subset]
    return found


def _bounded_sum(steps: Curve, ceilings: Sequence[Curve]) -> Curve:
    """P(0) = 0, P(z + 1) = min(ceiling(z + 1), P(z) + steps(z)), as S + min over y <= z of (ceiling - S)(y)."""
    total: list[tuple[int, Newton]] = []
    for start, piece in steps:
        total.append((start, (_at(total, start) if total else 0, *piece)))
    curve = tuple(total)
    if not ceilings:
        return curve
    ceiling = ceilings[0]
    for other in ceilings[1:]:
        ceiling = _chosen(ceiling, other, larger=False)
    return _tidy(_added(curve, _running_least(_added(ceiling, _times(curve, -1)))))


def _running_least(curve: Curve) -> Curve:
    """z -> min(0, min of curve(y) over 1 <= y <= z): 0 at z = 0, where the sum itself starts."""
    least = 0
    found: list[tuple[int, Newton]] = [(0, (0,))]
    for start, end, piece in _spans(curve):
        if start == 0:
            if end == 1:
                continue
            start, end, piece = 1, end, _rebased(piece, 1)
        for low, high in _between(_sign_changes(piece[1:], None if end is None else end - start - 1), start, end):
            part = _rebased(piece, low - start)
            falls = len(part) > 1 and _newton_at(part[1:], 0) < 0
            first = part[0]
            if falls and not (high is not None and high - low == 1):
                size = None if high is None else high - low - 1
                below = (
                    _least_with(lambda t: _newton_at(part, t) < least, 0)  # noqa: B023
                    if size is None
                    else _least_below(lambda t: _newton_at(part, t) < least, size)  # noqa: B023
                )
                if _newton_at(part, below) < least:
                    found.append((low + below, _rebased(part, below)))
                    if high is not None:
                        least = _newton_at(part, high - 1 - low)
                        found.append((high, (least,)))
                    continue
            elif first < least:
                least = first
                found.append((low, (least,)))
    return tuple(found)


def _between(changes: Sequence[int], start: int, end: int | None) -> list[tuple[int, int | None]]:
    """Stretches from start to end, cut at start + change, so that each is monotone."""
    cuts = [start, *(start + c for c in changes), end]
    return [(low, high) for low, high in pairwise(cuts) if low is not None and low != high]


def _chosen(left: Curve, right: Curve, *, larger: bool) -> Curve:
    """The pointwise maximum or minimum of two curves."""
    if left == right:
        return left
    found: list[tuple[int, Newton]] = []
    for start, end in _common(left, right):
        one, two = _piece(left, start), _piece(right, start)
        gap = _plus(one, tuple(-x for x in two))
        for low, _ in _between(_sign_changes(gap, None if end is None else end - start), start, end):
            first = (_newton_at(gap, low - start) >= 0) == larger
            found.append((low, _rebased(one if first else two, low - start)))
    return _tidy(tuple(found))


def _added(left: Curve, right: Curve) -> Curve:
    return tuple((start, _plus(_piece(left, start), _piece(right, start))) for start, _ in _common(left, right))


def _times(curve: Curve, c: int) -> Curve:
    return tuple((start, tuple(c * x for x in piece)) for start, piece in curve)


def _tidy(curve: Curve) -> Curve:
    """The same function without pieces that continue the one before."""
    kept: list[tuple[int, Newton]] = []
    for start, piece in curve:
        while len(piece) > 1 and piece[-1] == 0:
            piece = piece[:-1]
        if not kept or _rebased(kept[-1][1], start - kept[-1][0]) != piece:
            kept.append((start, piece))
    return tuple(kept)


def _common(left: Curve, right: Curve) -> list[tuple[int, int | None]]:
    starts = sorted({start for start, _ in left} | {start for start, _ in right})
    return list(zip(starts, [*starts[1:], None], strict=True))


def _spans(curve: Curve) -> list[tuple[int, int | None, Newton]]:
    ends = [*(start for start, _ in curve[1:]), None]
    return [(start, end, piece) for (start, piece), end in zip(curve, ends, strict=True)]


def _at(curve: Sequence[tuple[int, Newton]], z: int) -> int:
    start, piece = curve[bisect_right(curve, z, key=lambda p: p[0]) - 1]
    return _newton_at(piece, z - start)


def _piece(curve: Curve, z: int) -> Newton:
    """The polynomial that holds at z, with its origin moved there."""
    start, piece = curve[bisect_right(curve, z, key=lambda p: p[0]) - 1]
    return _rebased(piece, z - start)


def _newton_at(piece: Newton, x: int) -> int:
    return sum(c * comb(x, r) for r, c in enumerate(piece))


def _rebased(piece: Newton, x: int) -> Newton:
    """The same polynomial with its origin moved to x (Vandermonde)."""
    if x == 0:
        return piece
    return tuple(_newton_at(piece[r:], x) for r in range(len(piece)))


def _plus(one: Newton, two: Newton) -> Newton:
    size = max(len(one), len(two))
    return tuple((one[r] if r < len(one) else 0) + (two[r] if r < len(two) else 0) for r in range(size))


def _sign_changes(piece: Newton, length: int | None) -> list[int]:
    """The x in 1 … length - 1 at which "value >= 0" differs from that at x - 1; all x if length is None.

    Between the sign changes of its differences the polynomial is monotone, so bisection finds each change.
    """
    while piece and piece[-1] == 0:
        piece = piece[:-1]
    if len(piece) <= 1 or (length is not None and length <= 1):
        return []
    if length is None:
        beyond = 1
        while not _one_sign(_rebased(piece, beyond)):
            beyond *= 2
        length = beyond + 1
    found = []
    turns = [0, *_sign_changes(piece[1:], length - 1), length - 1]
    for low, high in pairwise(turns):
        sign = _newton_at(piece, low) >= 0
        if (_newton_at(piece, high) >= 0) != sign:
            found.append(low + _least_below(lambda t: (_newton_at(piece, low + t) >= 0) != sign, high - low))  # noqa: B023
    return found


def _one_sign(piece: Newton) -> bool:
    return all(x >= 0 for x in piece) or (all(x <= 0 for x in piece) and piece[0] < 0)


def _first(curve: Curve, value: int) -> int:
    """The least z at which a non-decreasing curve reaches `value`."""
    piece = curve[-1][1]
    if value > piece[0] and not any(piece[1:]):
        raise ValueError("caps and factors must hold for the boundary values; a declared bound is too small")
    return _least_with(lambda z: _at(curve, z) >= value, 0)
