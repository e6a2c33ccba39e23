"""Hybrid: heavy key values table by table, light ones as one join.

At one value of the key the join is a cross product. A heavy value's rows can be modelled in each table alone, where a
row moves one cell by one, however many join results it is in. Light values together are a join as one table, whose
bound is now that of light values. A row is heavy or light and in one table, so every part spends all that is left.

A value that is heavy in one table and hardly occurs in another has few join results, and their number is all noise in
the second table. Such odd values may go together into a part of which only the size is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpjoin.errors import SpecError
from dpjoin.measure.join import domain_of, measure_join
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import PartitionShares
from dpjoin.measure.totals import measure_total
from dpjoin.measure.weighted_sums import weighed_noise
from dpjoin.methods.as_one import Outcome
from dpjoin.methods.levels import expected_results, expected_rows, value_cap
from dpjoin.methods.parts import (
    SHRINKAGE,
    borrowed_shape,
    cells_of,
    fitted_noise,
    part_facts,
    predicted,
    settled,
    shape_noise,
    size_noise,
)
from dpjoin.methods.table_models import (
    check_joinable,
    kept_attributes,
    measure_alone,
    measured_scopes,
    own_scopes,
    shared_attributes,
)
from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.model.terms import BoolArray, FloatArray
from dpjoin.model.threads import one_blas_thread
from dpjoin.model.union import Part, Union
from dpjoin.paper.alg4_uniformize import check_common, common_attributes, everywhere, noisy_degrees_by_table
from dpjoin.privacy.accounting import Concentrated
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import NoisyDegrees, OneTable, Rules, Value
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

MOST_CELLS = 2**17
"""Of a table's model of the heavy values: beyond, fewer values are heavy."""
CANDIDATES = 48
"""How many thresholds between heavy and light are compared."""
HEAVY, ODD = 1, 2
"""Buckets of the labels; light values have 0."""
BLUR = 0.05
"""How far (total variation) the shape at one value is from that of all others, at values that noise drowns: a guess."""
ODD_RATIO = 1.75
"""A value that one table does not list may be odd if another has this many times the rows that listing takes."""
SEEN_TOO_LARGE = 0.4
"""Where a table has fewer rows of a value than noise, its model has about this share of the noise too many: it has no
negative counts."""


def check_hybrid(schema: Schema, method: str = "hybrid") -> None:
    check_common(schema, method)
    if len(schema.private_tables) < len(schema.tables):
        raise SpecError(f"method {method!r} must have private tables only; use method 'auto'")
    check_joinable(schema, shared_attributes(schema, common_attributes(schema)), method)


@dataclass(frozen=True)
class Cut:
    """Which listed values are heavy and which odd, and the error that this promises, in join results."""

    heavy: tuple[Value, ...]
    error: float
    light_error: float
    heavy_error: float
    odd: tuple[Value, ...] = ()
    odd_error: float = 0.0


def hybrid_tight(curator: Curator, workload: Workload, shares: PartitionShares, progress: Progress) -> Outcome:
    """The `tight` profile: noisy degrees, a threshold by predicted error, then both kinds. Spends the whole budget."""
    schema, common = curator.schema, common_attributes(curator.schema)
    progress("degrees", 0, 1)
    degrees = noisy_degrees_by_table(curator, shares.degrees, shares.degrees_width)
    progress("degrees", 1, 1)
    rho = curator.rho_left
    cut = best_cut(workload, degrees, half_width=shares.degrees_width, rho=rho)
    buckets = dict.fromkeys(cut.heavy, HEAVY) | dict.fromkeys(cut.odd, ODD)
    labels = curator.labels("heavy", list(degrees.values()), buckets)
    parts: dict[str, Mapping[str, Rules] | OneTable] = {"light values": everywhere(schema, labels, 0)}
    costs = [Concentrated(rho, shares.bound.delta if shares.bound else Fraction(0))]
    if cut.odd:
        parts["odd values"] = everywhere(schema, labels, ODD)
        costs.append(Concentrated(rho))
    if cut.heavy:
        for table in schema.tables:
            kept = kept_attributes(workload, table.name, common)
            parts[f"heavy values of {table.name}"] = OneTable(table.name, kept, labels, HEAVY)
            costs.append(Concentrated(rho))
    light, *others = curator.restrict("parts", parts, costs)
    facts: list[dict[str, Any]] = []

    def told(values: str, bound: int, size: float, error: float, strategy: str) -> None:
        facts.append(part_facts(len(facts), values, bound, round(size), strategy, predicted_error=error))

    with one_blas_thread():
        if shares.bound is None:
            bound = light.part_bound()
        else:
            bound = light.sensitivity_bound(shares.bound, half_width=shares.bound_width)
        total = measure_total(light, bound, shares.count)
        support = cells_of(workload, everywhere(schema, labels, 0))
        shape, strategy = measure_join(light, workload, bound, total, progress, support=support)
        models: dict[str, Part] = {"light values": shape}
        told("all that are neither heavy nor odd", bound.value, shape.total, cut.light_error, strategy)
        odd = others.pop(0) if cut.odd else None
        if cut.heavy:
            named = dict(zip((t.name for t in schema.tables), others, strict=True))
            tables = measure_alone(workload, named, common, listed=True, progress=progress)
            models["heavy values"] = joined = joined_heavy(workload, tables, common, cut.heavy)
            strategy = "each table alone, joined afterwards"
            told(f"{len(cut.heavy)} heavy", 1, joined.total, cut.heavy_error, strategy)
        if odd is not None:
            expected = sum(expected_results(degrees, v, shares.degrees_width) for v in cut.odd)
            support = cells_of(workload, everywhere(schema, labels, ODD))
            model, strategy = measure_odd(odd, workload, models, expected, support, shares.count, progress)
            models["odd values"] = model
            told(f"{len(cut.odd)} odd", odd.part_bound().value, model.total, cut.odd_error, strategy)
    union = Union(tuple(models.values()), tuple(models))
    words = [f"{len(cut.heavy)} heavy values table by table"] if cut.heavy else []
    words += [f"{len(cut.odd)} odd ones apart"] if cut.odd else []
    strategy = ", ".join([*words, "the rest as one join"]) if words else facts[0]["strategy"]
    return Outcome(union, bound.value, max(1, round(union.total)), strategy, tuple(facts))


def measure_odd(
    curator: Curator,
    workload: Workload,
    others: Mapping[str, Part],
    expected: float,
    support: BoolArray | None,
    count: Concentrated,
    progress: Progress,
) -> tuple[Model, str]:
    """Odd values: as one join if that shows more than noise, else by size, with the shape of the others."""
    bound = curator.part_bound()
    seen = measure_total(curator, bound, count)
    if predicted(workload, bound=bound.value, size=settled(seen, expected).noisy, rho=curator.rho_left).shaped:
        return measure_join(curator, workload, bound, seen, progress, support=support, seed=1)
    size = settled(seen.combined(measure_total(curator, bound, Concentrated(curator.rho_left))), expected)
    light, *heavy = others.values()
    # Light values are more like odd ones, unless there are too few of them to tell.
    enough = light.total >= size.noisy or not heavy
    known = light.table if enough else np.sum([model.table for model in others.values()], axis=0)
    return borrowed_shape(workload, known, size, support), "their size alone; the shape is that of others"


def joined_heavy(
    workload: Workload, tables: tuple[Model, ...], common: Sequence[str], heavy: Sequence[Value]
) -> Joined:
    """The heavy values' models, and the code of each value for the key attributes that queries look at."""
    codes = {}
    for at, a in enumerate(common):
        if a in workload.attributes:
            found = [workload.schema.attribute(a).code(value[at]) for value in heavy]
            codes[a] = np.array([-1 if code is None else code for code in found], dtype=np.int64)
    listed = tables[0].domain.attributes[0]
    return Joined(domain_of(workload), tables, listed, codes)


def best_cut(
    workload: Workload,
    degrees: Mapping[str, NoisyDegrees],
    *,
    half_width: int,
    rho: Fraction,
    size: float | None = None,
) -> Cut:
    """Which listed values are heavy or odd, by predicted error: a function of noisy degrees alone.

    Values whose cap exceeds a threshold leave the light ones. They are all heavy, or those that not every table lists
    are odd, whichever promises less. With a `size` of the join, the error is that of fits.
    """
    schema = workload.schema
    listed = sorted({v for d in degrees.values() for v in d.listed}, key=repr)
    caps = {v: value_cap(schema, degrees, v) for v in listed}
    order = sorted(listed, key=lambda v: -caps[v])
    even = [v for v in order if _is_even(degrees, v)]
    lowest = value_cap(schema, degrees, None)
    best: Cut | None = None
    for some in [order, even] if len(even) < len(order) else [order]:
        inside = set(some)
        found = _cut_of(workload, degrees, some, half_width, rho)
        odd_masses = np.cumsum([0.0 if v in inside else expected_results(degrees, v, half_width) for v in order])
        heavy_before = np.cumsum([v in inside for v in order])
        for count in _candidates(len(order)):
            heavy = int(heavy_before[count - 1]) if count else 0
            if heavy > found.most:
                continue
            bound = max([lowest, *(caps[v] for v in order[count : count + 1])])
            light = size_noise(bound, rho)
            if size is None:
                light += shape_noise(workload, bound=bound, size=1.0, rho=rho)
            else:
                light += fitted_noise(workload, bound=bound, size=size, rho=rho)
            odd = tuple(v for v in order[:count] if v not in inside)
            mass = float(odd_masses[count - 1]) if odd else 0.0
            odd_error = predicted(workload, bound=caps[odd[0]], size=mass, rho=rho).error if odd else 0.0
            heavy_error = float(found.errors[heavy - 1]) if heavy else 0.0
            too_large = float(found.too_large[heavy - 1]) if heavy else 0.0
            error = math.hypot(light, heavy_error, odd_error) + too_large / 2
            if best is None or error < best.error:
                best = Cut(tuple(some[:heavy]), error, light, heavy_error, odd, odd_error)
    assert best is not None
    return best


def _is_even(degrees: Mapping[str, NoisyDegrees], value: Value) -> bool:
    """Whether all tables may have about equally many rows: all list the value, or none has far more than it takes."""
    if all(value in d.listed for d in degrees.values()):
        return True
    return all(d.most(value) <= ODD_RATIO * d.threshold for d in degrees.values())


@dataclass(frozen=True, eq=False)
class _Heavy:
    """What is expected if the first values, one by one, become heavy."""

    errors: FloatArray
    too_large: FloatArray
    """By how many join results all together."""
    most: int


def _cut_of(
    workload: Workload,
    degrees: Mapping[str, NoisyDegrees],
    values: Sequence[Value],
    half_width: int,
    rho: Fraction,
) -> _Heavy:
    schema, common = workload.schema, common_attributes(workload.schema)
    cells = max(schema.cells(kept_attributes(workload, t.name, common)) for t in schema.tables)

    sizes = {
        t: np.array([expected_rows(d, v, half_width) for v in values], dtype=np.float64) for t, d in degrees.items()
    }
    errors, too_large = heavy_errors(workload, sizes, rho), seen_too_large(workload, sizes, rho)
    most = min(len(values), MOST_CELLS // max(1, cells))
    return _Heavy(errors, too_large, most)


def _candidates(most: int) -> list[int]:
    """How many values may leave the light ones: few, and then ever more."""
    wide = (int(c) for c in np.geomspace(1, max(1, most), CANDIDATES))
    return sorted(c for c in {0, most, *wide, *range(8)} if c <= most)


def heavy_errors(
    workload: Workload, sizes: Mapping[str, FloatArray], rho: Fraction, *, weighed: bool = False
) -> FloatArray:
    """By how many of the first values are heavy, the error of their models' join, averaged over the workload's scopes.

    A cell at one value is a product of one count for each table, each about size/cells with noise of its own.
    `weighed`: whether sums over the values are measured too.
    """
    schema, common = workload.schema, common_attributes(workload.schema)
    noise = {t: marginals_of(workload, t, common, sums=weighed) / (2 * float(rho)) for t in sizes}
    scopes = measured_scopes(workload) or [()]
    errors = []
    for scope in scopes:
        count = len(next(iter(sizes.values())))
        both, clean = np.ones(count), np.ones(count)
        for t, size in sizes.items():
            own = [a for a in scope if a in schema.table(t).attributes and a not in common]
            squared = (size / schema.cells(tuple(own))) ** 2
            both, clean = both * (squared + fitted_variance(noise[t], squared)), clean * squared
        cells = schema.cells(tuple(a for a in scope if a not in common))
        each = both - clean
        errors.append(0.4 * SHRINKAGE * cells * np.sqrt(weighed_noise(each) if weighed else np.cumsum(each)))
    mean: FloatArray = np.mean(errors, axis=0)
    return mean


def fitted_variance(noise: float, likely: FloatArray) -> FloatArray:
    """What a fit leaves of noise: it leans on other values, and is never off by more than counts differ from theirs."""
    return np.asarray(noise * likely / (noise + likely))


def seen_too_large(workload: Workload, sizes: Mapping[str, FloatArray], rho: Fraction) -> FloatArray:
    """By how many of the first values are heavy, by how many join results their models are too large."""
    true, seen = np.ones(1), np.ones(1)
    for table, size in sizes.items():
        cells, variance = _measured_cells(workload, table, rho)
        noise = math.sqrt(cells * variance)
        true, seen = true * size, seen * (size + SEEN_TOO_LARGE * np.maximum(noise - size, 0.0))
    return np.asarray(np.cumsum(seen - true))


def blurred(workload: Workload, sizes: Mapping[str, FloatArray], rho: Fraction) -> FloatArray:
    """By how many of the first values are heavy, what their models blur, in join results.

    Where noise drowns a value's rows, the fit gives it the shape of all others. That is about one attribute at a time:
    how several go together is measured for all values at once.
    """
    results, clear = np.ones(1), np.ones(1)
    for table, size in sizes.items():
        results, clear = (
            results * size,
            clear * clear_share(workload, table, common_attributes(workload.schema), size, rho),
        )
    return BLUR * np.cumsum(results * (1 - clear))


def clear_share(workload: Workload, table: str, key: Sequence[str], rows: FloatArray, rho: Fraction) -> FloatArray:
    """How much of what a table says of one attribute at each value of a key, with so many rows, noise leaves."""
    scopes = own_scopes(workload, table, key)
    cells = max((workload.schema.cells((a,)) for scope in scopes for a in scope), default=1)
    squared = (rows / cells) ** 2
    return np.asarray(squared / (squared + len(scopes) / (2 * float(rho))))


def marginals_of(workload: Workload, table: str, key: Sequence[str], *, sums: bool) -> int:
    """How many marginals of a table share its budget: where there are no sums, those of several attributes twice."""
    scopes = own_scopes(workload, table, key)
    return len(scopes) + (0 if sums else sum(len(scope) > 1 for scope in scopes))


def _measured_cells(workload: Workload, table: str, rho: Fraction) -> tuple[int, float]:
    """Of a table's widest marginal at one value, how many cells it has, and the variance of one."""
    scopes = own_scopes(workload, table, common_attributes(workload.schema))
    cells = max((workload.schema.cells(s) for s in scopes), default=1)
    return cells, len(scopes) / (2 * float(rho))
