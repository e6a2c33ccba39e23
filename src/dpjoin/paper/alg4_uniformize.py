"""Algorithm 4, Uniformize: cut the join by noisy degrees of its common key, and release each part with its own bound.

A key value's rows are all in one part, so every row is in exactly one, and each part may spend what the partition has
left. Where one hot value would drown the rest in its noise, it gets a part of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpjoin.errors import SpecError
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import PartitionShares
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods.as_one import Outcome
from dpjoin.methods.levels import Level, best_runs, bucket_numbers, expected_results, levels_of
from dpjoin.methods.parts import MeasuredPart, cells_of, measure_paper_parts, measure_parts, predicted
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.accounting import Approximate, Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.parts import Labels, NoisyDegrees, Question
from dpjoin.privacy.truncated import paper_laplace_half_width
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload


def common_attributes(schema: Schema) -> tuple[str, ...]:
    """The attributes that every table has."""
    return tuple(a for a in schema.join_attributes if len(schema.tables_with(a)) == len(schema.tables))


def check_common(schema: Schema, method: str = "uniformize") -> None:
    if len(schema.tables) < 2 or not common_attributes(schema):
        raise SpecError(
            f"method {method!r} must have an attribute that all tables share; "
            "use method 'auto', or 'hierarchical' for a hierarchical join"
        )


@dataclass(frozen=True, eq=False)
class _Measured:
    """A level after its first look: its bound, and its noisy size."""

    level: Level
    bound: Bound
    total: NoisyTotal


def uniformize_tight(curator: Curator, workload: Workload, shares: PartitionShares, progress: Progress) -> Outcome:
    """The `tight` profile: levels by truncated Gaussian degrees, merged by predicted error. Spends the whole budget."""
    schema = curator.schema
    progress("degrees", 0, 1)
    degrees = noisy_degrees_by_table(curator, shares.degrees, shares.degrees_width)
    levels = levels_of(schema, degrees)
    progress("degrees", 1, 1)

    every = list(degrees.values())
    by_level = curator.labels("level", every, {v: n for n, level in enumerate(levels) for v in level.values if n})
    allowance = Concentrated(
        shares.count.rho + (shares.bound.rho if shares.bound else 0),
        shares.bound.delta if shares.bound else Fraction(0),
    )
    rules = {f"level {n}": everywhere(schema, by_level, n) for n in range(len(levels))}
    measured = []
    for n, part in enumerate(curator.restrict("levels", rules, [allowance] * len(levels))):
        progress("sizes", n, len(levels))
        if shares.bound is None:
            bound = part.part_bound()
        else:
            bound = part.sensitivity_bound(shares.bound, half_width=shares.bound_width)
        measured.append(_Measured(levels[n], bound, measure_total(part, bound, shares.count)))
    progress("sizes", len(levels), len(levels))

    rho = curator.rho_left
    runs = best_runs(len(levels), lambda i, j: _predicted_error(workload, measured[i:j], rho))
    by_part = curator.labels("part", every, bucket_numbers(levels, runs))
    rules = {f"part {n}": everywhere(schema, by_part, n) for n in range(len(runs))}
    parts = curator.restrict("parts", rules, [Concentrated(rho)] * len(runs))
    inside = [[measured[at] for at in run] for run in runs]
    with one_blas_thread():
        return measure_parts(
            workload,
            [
                MeasuredPart(
                    part,
                    part.part_bound(),
                    _sum_of([m.total for m in levels]),
                    _words(n, sum(len(m.level.values) for m in levels)),
                    cells_of(workload, rules[f"part {n}"]),
                    _expected(degrees, levels, shares.degrees_width) if n else None,
                )
                for n, (part, levels) in enumerate(zip(parts, inside, strict=True))
            ],
            progress,
        )


def uniformize_paper(curator: Curator, workload: Workload, whole: Approximate, progress: Progress) -> Outcome:
    """The `paper` profile: half the budget on truncated Laplace degrees, half on Algorithm 1 or 3 in every bucket.

    The first bucket reaches to the largest noise, so that absent values need none; from there they double.
    """
    schema = curator.schema
    half = Approximate(whole.epsilon / 2, whole.delta / 2)
    progress("degrees", 0, 1)
    width = paper_laplace_half_width(epsilon=half.epsilon, delta=half.delta, sensitivity=curator.rows_moved)
    degrees = noisy_degrees_by_table(curator, half, width)
    levels = levels_of(schema, degrees)
    progress("degrees", 1, 1)
    labels = curator.labels(
        "part", list(degrees.values()), bucket_numbers(levels, [range(n, n + 1) for n in range(len(levels))])
    )
    rules = {f"part {n}": everywhere(schema, labels, n) for n in range(len(levels))}
    words = [_words(n, len(level.values)) for n, level in enumerate(levels)]
    curators = curator.restrict("parts", rules, [half] * len(levels))
    return measure_paper_parts(curators, words, workload, half, progress)


def noisy_degrees_by_table(curator: Curator, cost: Approximate | Concentrated, width: int) -> dict[str, NoisyDegrees]:
    """Each table's noisy degrees by the common attributes. A row is in one table, so it takes part in one question."""
    by = common_attributes(curator.schema)
    questions = [Question(name=f"degrees of {t.name}", rules={t.name: {}}, by=by) for t in curator.schema.tables]
    answers = curator.noisy_degrees("degrees", questions, cost, half_width=width)
    return {t.name: answer for t, answer in zip(curator.schema.tables, answers, strict=True)}


def everywhere(schema: Schema, labels: Labels, bucket: int) -> dict[str, Mapping[Labels, int]]:
    """One bucket of common attributes, in all tables."""
    return {t.name: {labels: bucket} for t in schema.tables}


def _sum_of(totals: Sequence[NoisyTotal]) -> NoisyTotal:
    return NoisyTotal(sum(t.noisy for t in totals), math.sqrt(sum(t.deviation**2 for t in totals)))


def _predicted_error(workload: Workload, inside: Sequence[_Measured], rho: Fraction) -> float:
    bound = max(m.bound.value for m in inside)
    return predicted(workload, bound=bound, size=sum(max(0.0, m.total.noisy) for m in inside), rho=rho).error


def _expected(degrees: Mapping[str, NoisyDegrees], inside: Sequence[_Measured], half_width: int) -> float:
    return sum(expected_results(degrees, value, half_width) for m in inside for value in m.level.values)


def _words(n: int, listed: int) -> str:
    """What a part holds, for people."""
    if n:
        return f"{listed} listed"
    return "all that are not listed" + (f", and {listed} listed" if listed else "")
