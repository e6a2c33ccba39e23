"""Algorithm 5, Partition-TwoTable: values of the common key in buckets by noisy degree, which double.

The first bucket reaches to the largest noise, so that values that are not listed need none of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dpjoin import constants
from dpjoin.privacy.parts import NoisyDegrees, Value
from dpjoin.spec.schema import Schema

MOST_LEVELS = 24
"""Degrees double from level to level, so this reaches 2^24 times the largest noise."""


@dataclass(frozen=True)
class Level:
    """Values whose join results one row can be in at most `cap` of."""

    cap: int
    values: tuple[Value, ...]
    """Those listed; the first level also holds every value that is not."""


def levels_of(schema: Schema, degrees: Mapping[str, NoisyDegrees]) -> list[Level]:
    """The light level first, then listed values by their cap, which doubles from level to level."""
    lowest = value_cap(schema, degrees, None)
    listed = sorted({v for d in degrees.values() for v in d.listed}, key=repr)
    found: dict[int, list[Value]] = {0: []}
    caps = {0: lowest}
    for value in listed:
        cap = value_cap(schema, degrees, value)
        number = min(MOST_LEVELS, max(0, math.ceil(math.log2(cap / lowest))))
        found.setdefault(number, []).append(value)
        caps[number] = max(caps.get(number, 0), cap)
    return [Level(caps[n], tuple(found[n])) for n in sorted(found)]


def value_cap(schema: Schema, degrees: Mapping[str, NoisyDegrees], value: Value | None) -> int:
    """How many join results one row can be in at this value: the largest product of the other tables' degrees."""
    most = {t: d.threshold if value is None else d.most(value) for t, d in degrees.items()}
    return max(math.prod(m for t, m in most.items() if t != i) for i in schema.private_tables)


def best_runs(count: int, cost: Callable[[int, int], float]) -> list[range]:
    """Cut 0 … count - 1 into runs of neighbours with the least total cost; cost(i, j) is of the run i … j - 1."""
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, count + 1):
        best.append(min((best[begin][0] + cost(begin, end), begin) for begin in range(end)))
    runs: list[range] = []
    end = count
    while end:
        begin = best[end][1]
        runs.append(range(begin, end))
        end = begin
    return runs[::-1]


def bucket_numbers(levels: Sequence[Level], numbers: Sequence[int]) -> dict[Value, int]:
    """Each listed value's part, where each level is in a part by its number; part 0 needs no mention."""
    return {v: n for level, n in zip(levels, numbers, strict=True) for v in level.values if n}


def expected_results(degrees: Mapping[str, NoisyDegrees], values: Sequence[Value], half_width: int) -> float:
    """About how many join results listed values have: noisy degrees less the mean noise, few if not listed."""
    few = max(1.0, constants.UNLISTED * half_width)
    each = (
        [float(max(1, d.listed[v] - half_width)) if v in d.listed else few for d in degrees.values()] for v in values
    )
    return sum(map(math.prod, each))
