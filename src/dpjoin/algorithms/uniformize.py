"""Algorithm 4, Uniformize: cut the join by noisy degrees of its common key, and release each part with its own bound.

A key value's rows are all in one part, so every row is in exactly one, and each part may spend what the partition has
left. Where one hot value would drown the rest in its noise, it gets a part of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpjoin.algorithms.as_one import NoisyTotal, domain_of, measure_join, measure_total, varying_products
from dpjoin.algorithms.levels import Level, best_runs, bucket_numbers, levels_of
from dpjoin.algorithms.progress import Progress, nested
from dpjoin.algorithms.rounds import prospect
from dpjoin.algorithms.shares import PartitionShares
from dpjoin.algorithms.two_table import Outcome, two_table_paper
from dpjoin.errors import SpecError
from dpjoin.model.model import Model, clique_scopes
from dpjoin.model.terms import BoolArray, support_of
from dpjoin.model.threads import one_blas_thread
from dpjoin.model.union import Union
from dpjoin.privacy.budget import Approximate, Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.partition import Labels, NoisyDegrees, Question, Value
from dpjoin.privacy.truncated import paper_laplace_half_width
from dpjoin.schema import Schema
from dpjoin.workload import Workload

SHAPE_DISTANCE = 0.25
"""How far (total variation) the shape of a part is from that of the others, where it is not measured: a guess."""
SHRINKAGE = 0.5
"""What a fit with learnt priors leaves of the noise of measured marginals, about."""


def common_attributes(schema: Schema) -> tuple[str, ...]:
    """The attributes that every table has."""
    return tuple(a for a in schema.join_attributes if len(schema.tables_with(a)) == len(schema.tables))


def check_common(schema: Schema) -> None:
    if len(schema.tables) < 2 or not common_attributes(schema):
        raise SpecError(
            "method 'uniformize' must have an attribute that all tables share; "
            "use method 'multi_table', or 'hierarchical' for a hierarchical join"
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
    degrees = _noisy_degrees(curator, shares.degrees, shares.degrees_width)
    levels = levels_of(schema, degrees)
    progress("degrees", 1, 1)

    every = list(degrees.values())
    by_level = curator.labels("level", every, {v: n for n, level in enumerate(levels) for v in level.values if n})
    allowance = Concentrated(
        shares.count.rho + (shares.bound.rho if shares.bound else 0),
        shares.bound.delta if shares.bound else Fraction(0),
    )
    rules = {f"level {n}": _everywhere(schema, by_level, n) for n in range(len(levels))}
    measured = []
    for n, part in enumerate(curator.restrict("levels", rules, [allowance] * len(levels))):
        progress("sizes", n, len(levels))
        if shares.bound is None:
            bound = part.part_bound()
        else:
            bound = part.sensitivity_bound(shares.bound, half_width=shares.bound_width)
        measured.append(_Measured(levels[n], bound, measure_total(part, bound, shares.count.rho)))
    progress("sizes", len(levels), len(levels))

    rho = curator.rho_left
    runs = best_runs(len(levels), lambda i, j: _predicted(workload, measured[i:j], rho)[0])
    by_part = curator.labels("part", every, bucket_numbers(levels, runs))
    rules = {f"part {n}": _everywhere(schema, by_part, n) for n in range(len(runs))}
    parts = curator.restrict("parts", rules, [Concentrated(rho)] * len(runs))
    with one_blas_thread():
        return _measure_parts(workload, parts, [[measured[at] for at in run] for run in runs], by_part, progress)


def _measure_parts(
    workload: Workload,
    parts: Sequence[Curator],
    members: Sequence[Sequence[_Measured]],
    labels: Labels,
    progress: Progress,
) -> Outcome:
    """Measure each part, then give those of which only the size was measured the shape of the others."""
    models: dict[int, Model] = {}
    sizes: dict[int, NoisyTotal] = {}
    facts: list[dict[str, Any]] = []
    for n, (part, inside) in enumerate(zip(parts, members, strict=True)):
        bound = part.bound_of_levels([m.bound for m in inside])
        total = _sum_of([m.total for m in inside])
        error, shaped = _predicted(workload, inside, part.rho_left)
        say = nested(progress, n, len(parts))
        support = _support(workload, labels, n)
        if shaped or len(parts) == 1:
            models[n], strategy = measure_join(part, workload, bound, total, say, support=support, seed=n)
        else:
            sizes[n] = total.combined(measure_total(part, bound, part.rho_left))
            strategy = "its size alone; the shape is that of the other parts"
        listed = sum(len(m.level.values) for m in inside)
        size = round(models[n].total) if n in models else max(0, round(sizes[n].noisy))
        facts.append(
            {
                "part": n,
                "values": f"{listed} listed"
                if n
                else "all that are not listed" + (f", and {listed} listed" if listed else ""),
                "sensitivity_bound": bound.value,
                "size": size,
                "predicted_error": float(f"{error:.3g}"),
                "strategy": strategy,
            }
        )
    shape = sum((m.table for m in models.values()), np.zeros((domain_of(workload).rows, domain_of(workload).columns)))
    shape = shape / shape.sum() if shape.sum() > 0 else np.full_like(shape, 1 / shape.size)
    for n, measured in sizes.items():
        mass = max(1.0, measured.noisy)
        # Neither the size is known well, nor where in the domain it lies.
        unsure = math.hypot(measured.deviation, 2 * SHAPE_DISTANCE * max(mass, measured.deviation))
        known = tuple(frozenset(g.scope) for g in workload.groups)
        models[n] = Model(domain_of(workload), mass, plain=shape * mass, unsure=unsure, known=known)
    union = Union(tuple(models[n] for n in sorted(models)), tuple(f"part {n}" for n in sorted(models)))
    strategy = f"{len(models)} parts by degree" if len(models) > 1 else f"one part; {facts[0]['strategy']}"
    largest = max(f["sensitivity_bound"] for f in facts)
    return Outcome(union, largest, max(1, round(union.total)), strategy, tuple(facts))


def uniformize_paper(curator: Curator, workload: Workload, whole: Approximate, progress: Progress) -> Outcome:
    """The `paper` profile: half the budget on truncated Laplace degrees, half on Algorithm 1 or 3 in every bucket.

    The first bucket reaches to the largest noise, so that absent values need none; from there they double.
    """
    schema = curator.schema
    half = Approximate(whole.epsilon / 2, whole.delta / 2)
    progress("degrees", 0, 1)
    width = paper_laplace_half_width(epsilon=half.epsilon, delta=half.delta, sensitivity=curator.rows_moved)
    degrees = _noisy_degrees(curator, half, width)
    levels = levels_of(schema, degrees)
    progress("degrees", 1, 1)
    labels = curator.labels(
        "part", list(degrees.values()), bucket_numbers(levels, [range(n, n + 1) for n in range(len(levels))])
    )
    rules = {f"part {n}": _everywhere(schema, labels, n) for n in range(len(levels))}
    models: list[Model] = []
    facts: list[dict[str, Any]] = []
    for n, part in enumerate(curator.restrict("parts", rules, [half] * len(levels))):
        outcome = two_table_paper(part, workload, half, nested(progress, n, len(levels)))
        assert isinstance(outcome.model, Model)
        models.append(outcome.model)
        facts.append(
            {
                "part": n,
                "values": f"{len(levels[n].values)} listed" if n else "all that are not listed",
                "sensitivity_bound": outcome.sensitivity,
                "size": outcome.noisy_total,
                "strategy": outcome.strategy,
            }
        )
    union = Union(tuple(models), tuple(f"part {n}" for n in range(len(models))))
    largest = max(f["sensitivity_bound"] for f in facts)
    return Outcome(union, largest, round(union.total), f"{len(models)} parts by degree", tuple(facts))


def _noisy_degrees(curator: Curator, cost: Approximate | Concentrated, width: int) -> dict[str, NoisyDegrees]:
    """Each table's noisy degrees by the common attributes. A row is in one table, so it takes part in one question."""
    by = common_attributes(curator.schema)
    questions = [Question(name=f"degrees of {t.name}", rules={t.name: {}}, by=by) for t in curator.schema.tables]
    answers = curator.noisy_degrees("degrees", questions, cost, half_width=width)
    return {t.name: answer for t, answer in zip(curator.schema.tables, answers, strict=True)}


def _everywhere(schema: Schema, labels: Labels, bucket: int) -> dict[str, Mapping[Labels, int]]:
    return {t.name: {labels: bucket} for t in schema.tables}


def _sum_of(totals: Sequence[NoisyTotal]) -> NoisyTotal:
    return NoisyTotal(sum(t.noisy for t in totals), math.sqrt(sum(t.deviation**2 for t in totals)))


def _predicted(workload: Workload, inside: Sequence[_Measured], rho: Fraction) -> tuple[float, bool]:
    """About how large an error (in join results) these levels leave as one part, and whether its shape is measured."""
    bound = max(m.bound.value for m in inside)
    size = max(1.0, sum(max(0.0, m.total.noisy) for m in inside))
    unit = bound / math.sqrt(2 * float(rho))
    shape = 0.0
    products = varying_products(workload)
    if products:
        ways = prospect(products, total=size, bound=bound, rho=rho, cells=workload.cells)
        shape = size * min(ways.histogram, ways.measure_all, ways.rounds)
    scopes = clique_scopes(workload.groups)
    if scopes:
        cells = sum(math.prod(workload.schema.shape(s)) for s in scopes) / len(scopes)
        # Half the mean absolute noise of a cell, times the cells, is a marginal's total variation.
        shape = max(shape, 0.4 * SHRINKAGE * unit * math.sqrt(len(scopes)) * cells)
    borrowed = SHAPE_DISTANCE * size
    return unit + min(shape, borrowed), shape <= borrowed


def _support(workload: Workload, labels: Labels, bucket: int) -> BoolArray | None:
    """The cells in which a part can have anything, where the common attributes are among the workload's."""
    schema = workload.schema
    if not set(labels.attributes) <= set(workload.attributes):
        return None
    attributes = [schema.attribute(a) for a in labels.attributes]
    codes: dict[Value, tuple[int | None, ...]] = {
        v: tuple(a.code(x) for a, x in zip(attributes, v, strict=True)) for v in labels.buckets
    }
    if bucket:
        allowed = np.zeros(schema.shape(labels.attributes), dtype=np.bool_)
        for value, code in codes.items():
            if labels.buckets[value] == bucket and None not in code:
                allowed[code] = True
        return support_of(domain_of(workload), labels.attributes, allowed) if allowed.any() else None
    # A cell is empty of light values only if it stands for one value, and that one is listed.
    if any((a.values is None and a.range is None) or a.other for a in attributes):
        return None
    allowed = np.ones(schema.shape(labels.attributes), dtype=np.bool_)
    for code in codes.values():
        if None not in code:
            allowed[code] = False
    return support_of(domain_of(workload), labels.attributes, allowed) if allowed.any() else None
