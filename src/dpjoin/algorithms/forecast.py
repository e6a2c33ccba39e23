"""What each method promises, from noisy ranks and noisy join sizes alone: public numbers, before any of them runs.

Noisy ranks tell how many values have how many rows in each table, though not which. That is enough to work out about
how large the noise of each method would be. Errors are in join results, on average over the workload's marginals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpjoin.algorithms.alone import Scope, measured_scopes
from dpjoin.algorithms.hybrid import BLUR, best_cut, clear_share, fitted_variance, marginals_of
from dpjoin.algorithms.parts import CLEAR, SHRINKAGE
from dpjoin.algorithms.ranks import MOST_VALUES, chance_size, degree_sequence
from dpjoin.algorithms.uniformize import common_attributes
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.partition import NoisyDegrees, NoisyRanks, Question, Value
from dpjoin.schema import Schema
from dpjoin.workload import Workload

MOST_LISTED = 2048
"""How many of the most frequent values the forecast of the hybrid looks at one by one."""
VARIES = 0.1
"""A model of all values learns from all of them what they have in common, so that it is off by less than one of a few
heavy values would be: how far a value's share in a cell is likely to be from that of others, squared, in its units."""
TOGETHER, APART, POOLED_BLUR = 1.6, 1.5, 0.48
"""What the three parts of the error of `per_table` count: fitted to 48 random pairs of `benchmarks/unseen.py` (seeds
200 to 247) and the first seven rows of `benchmarks/methods.py`, where the forecast is off by a factor of 1.5 on
average."""

DEGREES_KNOWN = 0.4
"""Of a table's budget, about what tells how many rows each value has."""


def common_degrees(schema: Schema, ranks: Sequence[NoisyRanks]) -> dict[str, FloatArray]:
    """About each table's degrees by the attributes that all tables share; empty unless all are known."""
    common = common_attributes(schema)
    found = {next(iter(r.question.rules)): degree_sequence(r) for r in ranks if r.question.by == common}
    return found if len(found) == len(schema.tables) else {}


def hybrid_error(
    workload: Workload, degrees: Mapping[str, FloatArray], *, half_width: int, rho: Fraction, aligned: bool
) -> float:
    """What the hybrid would predict of itself, if noisy degrees were about these."""
    common = common_attributes(workload.schema)
    listed = {}
    for n, (table, found) in enumerate(degrees.items()):
        # Values of one rank are taken to be the same in all tables, or never the same.
        names = range(len(found)) if aligned else range(n * MOST_VALUES, n * MOST_VALUES + len(found))
        seen: dict[Value, int] = {
            (name,): int(d) + half_width for name, d in zip(names, found[:MOST_LISTED], strict=False)
        }
        question = Question(name=table, rules={table: {}}, by=common)
        over = {value: d for value, d in seen.items() if d > 2 * half_width}
        listed[table] = NoisyDegrees(question, 2 * half_width, over)
    return best_cut(workload, listed, half_width=half_width, rho=rho).error


def per_table_error(workload: Workload, degrees: Mapping[str, FloatArray], *, size: float, rho: Fraction) -> float:
    """The error of joining a model of each table, keys included, where the join has about this size.

    There is noise in what a table says of all values together, noise in what it says of each of them, and what it blurs
    because noise drowns single values. All but the first depend on whether frequent values are the same in all tables,
    and the size tells how far they are.
    """
    meeting = Meeting.of(workload, degrees, size)
    together = np.mean([_together(workload, meeting, scope, rho) for scope in measured_scopes(workload) or [()]])
    apart = np.mean([_apart(workload, meeting, scope, rho) for scope in measured_scopes(workload) or [()]])
    return float(TOGETHER * size * together + APART * apart + POOLED_BLUR * _blurred(workload, meeting, rho))


@dataclass(frozen=True, eq=False)
class Meeting:
    """Each table's rows by value of the common key, the most first, and how far the same values come first in all."""

    rows: dict[str, FloatArray]
    values: int
    aligned: float
    """0: rows meet by chance. 1: the most frequent values of one table are those of every other."""

    @classmethod
    def of(cls, workload: Workload, degrees: Mapping[str, FloatArray], size: float) -> Meeting:
        rows, values = _by_value(workload, degrees), workload.schema.cells(common_attributes(workload.schema))
        chance = chance_size(rows.values(), values)
        most = float(np.prod(list(rows.values()), axis=0).sum())
        aligned = (size - chance) / (most - chance) if most > chance else 1.0
        return cls(rows, values, min(1.0, max(0.0, aligned)))

    def total(self, each: Mapping[str, FloatArray]) -> float:
        """About the sum over values of the product of something that each table has for them, in the order of rows."""
        chance = chance_size(each.values(), self.values)
        return (1 - self.aligned) * chance + self.aligned * float(np.prod(list(each.values()), axis=0).sum())


def _together(workload: Workload, meeting: Meeting, scope: Sequence[str], rho: Fraction) -> float:
    """The noise of what tables say of a scope for all values together, as a share."""
    found = 0.0
    for table, rows in meeting.rows.items():
        own = _own(workload, table, scope)
        if own:
            deviation = math.sqrt(marginals_of(workload, table, sums=False) / (2 * float(rho)))
            noise = 0.4 * SHRINKAGE * workload.schema.cells(own) * deviation / max(1.0, float(rows.sum()))
            found += noise * min(1.0, math.sqrt(0.4 * CLEAR / noise))  # as in `fitted_noise`
    return min(1.0, found)


def _apart(workload: Workload, meeting: Meeting, scope: Sequence[str], rho: Fraction) -> float:
    """The noise of what tables say of a scope at each value, in join results: see `heavy_errors`."""
    both, clean = {}, {}
    for table, rows in meeting.rows.items():
        squared = (rows / workload.schema.cells(_own(workload, table, scope))) ** 2
        noise = marginals_of(workload, table, sums=False) / (2 * float(rho))
        both[table], clean[table] = squared + fitted_variance(noise, VARIES * squared), squared
    cells = workload.schema.cells(tuple(a for t in meeting.rows for a in _own(workload, t, scope)))
    return 0.4 * SHRINKAGE * cells * math.sqrt(max(0.0, meeting.total(both) - meeting.total(clean)))


def _blurred(workload: Workload, meeting: Meeting, rho: Fraction) -> float:
    """What is lost where noise drowns what a table says of single values, in join results: see `blurred`."""
    clear = {t: rows * clear_share(workload, t, rows, rho) for t, rows in meeting.rows.items()}
    return BLUR * (meeting.total(meeting.rows) - meeting.total(clear))


def _own(workload: Workload, table: str, scope: Sequence[str]) -> Scope:
    """What a scope has of a table, beside the common key."""
    schema = workload.schema
    common = common_attributes(schema)
    return tuple(a for a in scope if a in schema.table(table).attributes and a not in common)


def flattened_size(workload: Workload, degrees: Mapping[str, FloatArray], *, size: float, rho: Fraction) -> float:
    """By how many join results that join may be too small, where the join has this size.

    Noise hides how many rows each value has, so a fit pulls them towards each other: what values with many rows in all
    tables have beyond others is lost in part. That is what the join has beyond rows that meet by chance, and about the
    square root of as much again, if values with many rows meet by chance.
    """
    sizes = _by_value(workload, degrees)
    values = workload.schema.cells(common_attributes(workload.schema))
    by_chance = chance_size(sizes.values(), values)
    variance = 1 / (2 * float(rho) * DEGREES_KNOWN)
    spread = [float((rows**2).sum()) / values - (float(rows.sum()) / values) ** 2 for rows in sizes.values()]
    kept = math.prod(v / (v + variance) for v in spread)
    return (1 - kept) * math.hypot(max(0.0, size - by_chance), math.sqrt(values * math.prod(spread)))


def _by_value(workload: Workload, degrees: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Each table's degrees with zeros for values that have no rows, as far as is written down."""
    values = min(workload.schema.cells(common_attributes(workload.schema)), MOST_VALUES)
    return {t: np.append(d, np.zeros(max(0, values - len(d))))[:values] for t, d in degrees.items()}
