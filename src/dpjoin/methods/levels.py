"""Which values of the join key go together: levels by noisy degree, and parts made of neighbouring levels.

Everything here is a function of noisy degrees and noisy counts, so it is public.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dpjoin.privacy.parts import NoisyDegrees, Value
from dpjoin.spec.schema import Schema

MOST_LEVELS = 24
"""Degrees double from level to level, so this reaches 2^24 times the largest noise."""

UNLISTED = 0.05
"""A value that a table does not list has 0 to 2s rows there; where a number is needed it is this share of s, since
most keys of skewed tables have few rows."""


@dataclass(frozen=True)
class Level:
    """Values whose join results one row can be in at most `cap` of."""

    cap: int
    values: tuple[Value, ...]
    """Those listed; the first level also holds every value that is not."""


def value_cap(schema: Schema, degrees: Mapping[str, NoisyDegrees], value: Value | None) -> int:
    """How many join results one row can be in at this value: the largest product of the other tables' degrees."""
    most = {t: d.threshold if value is None else d.most(value) for t, d in degrees.items()}
    return max(math.prod(m for t, m in most.items() if t != i) for i in schema.private_tables)


def expected_rows(degrees: NoisyDegrees, value: Value, half_width: int) -> float:
    """About how many rows a table has at a value: the noisy degree less the mean noise, few if it is not listed."""
    if value in degrees.listed:
        return float(max(1, degrees.listed[value] - half_width))
    return max(1.0, UNLISTED * half_width)


def expected_results(degrees: Mapping[str, NoisyDegrees], value: Value, half_width: int) -> float:
    """About how many join results a value has."""
    return math.prod(expected_rows(d, value, half_width) for d in degrees.values())


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


def bucket_numbers(levels: Sequence[Level], runs: Sequence[range]) -> dict[Value, int]:
    """Each listed value's run."""
    return {v: number for number, run in enumerate(runs) for at in run for v in levels[at].values if number}
