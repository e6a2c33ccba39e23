"""What each method promises, from noisy ranks and noisy join sizes alone: public numbers, before any of them runs.

Noisy ranks tell how many values have how many rows in each table, though not which. That is enough to work out about
how large the noise of each method would be. Errors are in join results, on average over the workload's marginals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from dpjoin.algorithms.hybrid import best_cut, blurred, heavy_errors
from dpjoin.algorithms.ranks import MOST_VALUES
from dpjoin.algorithms.uniformize import common_attributes
from dpjoin.model.terms import FloatArray
from dpjoin.privacy.partition import NoisyDegrees, Question, Value
from dpjoin.workload import Workload

MOST_LISTED = 2048
"""How many of the most frequent values the forecast of the hybrid looks at one by one."""
VARIES, POOLED_BLUR = 0.1, 0.4
"""A model of all values learns from all of them what they have in common, so that it is off by less than one of a few
heavy values would be, and blurs less. Both were chosen on the first seven rows of `benchmarks/methods.py`."""

DEGREES_KNOWN = 0.4
"""Of a table's budget, about what tells how many rows each value has."""


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


def per_table_error(workload: Workload, degrees: Mapping[str, FloatArray], *, rho: Fraction) -> float:
    """The error of joining a model of each table, keys included: its noise, and what it blurs."""
    sizes = _by_value(workload, degrees)
    noise = heavy_errors(workload, sizes, rho, varies=VARIES)
    return float(noise[-1] + POOLED_BLUR * blurred(workload, sizes, rho)[-1])


def flattened_size(workload: Workload, degrees: Mapping[str, FloatArray], *, size: float, rho: Fraction) -> float:
    """By how many join results that join is too small, where the join has this size.

    Noise hides how many rows each value has, so a fit pulls them towards each other: what values with many rows in all
    tables have beyond rows that meet by chance is lost in part.
    """
    sizes = _by_value(workload, degrees)
    values = workload.schema.cells(common_attributes(workload.schema))
    by_chance = values * math.prod(float(rows.sum()) / values for rows in sizes.values())
    variance = 1 / (2 * float(rho) * DEGREES_KNOWN)
    spread = [float((rows**2).sum()) / values - (float(rows.sum()) / values) ** 2 for rows in sizes.values()]
    kept = math.prod(v / (v + variance) for v in spread)
    return (1 - kept) * max(0.0, size - by_chance)


def _by_value(workload: Workload, degrees: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Each table's degrees with zeros for values that have no rows, as far as is written down."""
    values = min(workload.schema.cells(common_attributes(workload.schema)), MOST_VALUES)
    return {t: np.append(d, np.zeros(max(0, values - len(d))))[:values] for t, d in degrees.items()}
