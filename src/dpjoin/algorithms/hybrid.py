"""Hybrid: heavy key values table by table, light ones as one join.

At one value of the key the join is a cross product. A heavy value's rows can be modelled in each table alone, where a
row moves one cell by one, however many join results it is in. Light values together are a join as one table, whose
bound is now that of light values. A row is heavy or light and in one table, so every part spends all that is left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpjoin.algorithms.alone import kept_attributes, measure_alone, measured_scopes, own_scopes, shared_attributes
from dpjoin.algorithms.as_one import domain_of, measure_join, measure_total
from dpjoin.algorithms.levels import value_cap
from dpjoin.algorithms.parts import SHRINKAGE, cells_of, shape_noise, size_noise
from dpjoin.algorithms.progress import Progress
from dpjoin.algorithms.shares import PartitionShares
from dpjoin.algorithms.two_table import Outcome
from dpjoin.algorithms.uniformize import check_common, common_attributes, everywhere, noisy_degrees_by_table
from dpjoin.errors import SpecError
from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.model.terms import FloatArray
from dpjoin.model.threads import one_blas_thread
from dpjoin.model.union import Part, Union
from dpjoin.privacy.budget import Concentrated
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.partition import Alone, NoisyDegrees, Rules, Value
from dpjoin.schema import Schema
from dpjoin.workload import Workload

MOST_CELLS = 2**17
"""Of a table's model of the heavy values: beyond, fewer values are heavy."""
CANDIDATES = 48
"""How many thresholds between heavy and light are compared."""
UNLISTED = 0.25
"""A value that a table does not list has 0 to 2s rows there; where a number is needed it is this share of s."""


def check_hybrid(schema: Schema) -> None:
    check_common(schema, "hybrid")
    if len(schema.private_tables) < len(schema.tables):
        raise SpecError("method 'hybrid' must have private tables only; use method 'uniformize'")
    for a in shared_attributes(schema, common_attributes(schema)):
        if schema.attribute(a).key:
            raise SpecError(
                f"method 'hybrid' must know the domain of {a!r}, which some tables share beyond the common key; "
                "declare its values or range, or use method 'uniformize'"
            )


@dataclass(frozen=True)
class Cut:
    """Which listed values are heavy, and the error that this promises, in join results."""

    heavy: tuple[Value, ...]
    error: float
    light_error: float
    heavy_error: float


def hybrid_tight(curator: Curator, workload: Workload, shares: PartitionShares, progress: Progress) -> Outcome:
    """The `tight` profile: noisy degrees, a threshold by predicted error, then both kinds. Spends the whole budget."""
    schema, common = curator.schema, common_attributes(curator.schema)
    progress("degrees", 0, 1)
    degrees = noisy_degrees_by_table(curator, shares.degrees, shares.degrees_width)
    progress("degrees", 1, 1)
    rho = curator.rho_left
    cut = best_cut(workload, degrees, half_width=shares.degrees_width, rho=rho)
    labels = curator.labels("heavy", list(degrees.values()), dict.fromkeys(cut.heavy, 1))
    parts: dict[str, Mapping[str, Rules] | Alone] = {"light values": everywhere(schema, labels, 0)}
    costs = [Concentrated(rho, shares.bound.delta if shares.bound else Fraction(0))]
    if cut.heavy:
        for table in schema.tables:
            kept = kept_attributes(workload, table.name, common)
            parts[f"heavy values of {table.name}"] = Alone(table.name, kept, labels)
            costs.append(Concentrated(rho))
    light, *alone = curator.restrict("parts", parts, costs)
    models: dict[str, Part] = {}
    with one_blas_thread():
        if shares.bound is None:
            bound = light.part_bound()
        else:
            bound = light.sensitivity_bound(shares.bound, half_width=shares.bound_width)
        total = measure_total(light, bound, shares.count.rho)
        support = cells_of(workload, everywhere(schema, labels, 0))
        models["light values"], strategy = measure_join(light, workload, bound, total, progress, support=support)
        if cut.heavy:
            named = dict(zip((t.name for t in schema.tables), alone, strict=True))
            tables = measure_alone(workload, named, common, listed=True, progress=progress)
            models["heavy values"] = _joined(workload, tables, common, cut.heavy)
    facts = [
        {
            "part": 0,
            "values": "all that are not heavy",
            "sensitivity_bound": bound.value,
            "size": round(models["light values"].total),
            "predicted_error": float(f"{cut.light_error:.3g}"),
            "strategy": strategy,
        }
    ]
    if cut.heavy:
        facts.append(
            {
                "part": 1,
                "values": f"{len(cut.heavy)} heavy",
                "sensitivity_bound": 1,
                "size": round(models["heavy values"].total),
                "predicted_error": float(f"{cut.heavy_error:.3g}"),
                "strategy": "each table alone, joined afterwards",
            }
        )
    union = Union(tuple(models.values()), tuple(models))
    words = f"{len(cut.heavy)} heavy values table by table, the rest as one join" if cut.heavy else strategy
    return Outcome(union, bound.value, max(1, round(union.total)), words, tuple(facts))


def _joined(workload: Workload, tables: tuple[Model, ...], common: Sequence[str], heavy: Sequence[Value]) -> Joined:
    """The heavy values' models, and the code of each value for the key attributes that queries look at."""
    codes = {}
    for at, a in enumerate(common):
        if a in workload.attributes:
            found = [workload.schema.attribute(a).code(value[at]) for value in heavy]
            codes[a] = np.array([-1 if code is None else code for code in found], dtype=np.int64)
    listed = tables[0].domain.attributes[0]
    return Joined(domain_of(workload), tables, listed, codes)


def best_cut(workload: Workload, degrees: Mapping[str, NoisyDegrees], *, half_width: int, rho: Fraction) -> Cut:
    """The threshold on a value's cap above which it is heavy, by predicted error: a function of noisy degrees."""
    schema, common = workload.schema, common_attributes(workload.schema)
    listed = sorted({v for d in degrees.values() for v in d.listed}, key=repr)
    caps = {v: value_cap(schema, degrees, v) for v in listed}
    order = sorted(listed, key=lambda v: -caps[v])
    lowest = value_cap(schema, degrees, None)
    cells = max(schema.cells(kept_attributes(workload, t.name, common)) for t in schema.tables)
    most = min(len(order), MOST_CELLS // max(1, cells))
    # Each table's rows at each value, less the mean noise; a constant where the table does not list it.
    usual = max(1.0, UNLISTED * half_width)
    sizes = {
        t: np.array([d.listed[v] - half_width if v in d.listed else usual for v in order], dtype=np.float64)
        for t, d in degrees.items()
    }
    heavy_errors = _heavy_errors(workload, sizes, rho)
    counts = sorted({0, most, *(int(c) for c in np.geomspace(1, max(1, most), CANDIDATES)), *range(min(most, 8))})
    best: Cut | None = None
    for count in counts:
        if count > most:
            continue
        bound = max([lowest, *(caps[v] for v in order[count : count + 1])])
        light = shape_noise(workload, bound=bound, size=1.0, rho=rho) + size_noise(bound, rho)
        heavy = float(heavy_errors[count - 1]) if count else 0.0
        error = math.hypot(light, heavy)
        if best is None or error < best.error:
            best = Cut(tuple(order[:count]), error, light, heavy)
    assert best is not None
    return best


def _heavy_errors(workload: Workload, sizes: Mapping[str, FloatArray], rho: Fraction) -> FloatArray:
    """By how many of the first values are heavy, the error of their models' join, averaged over the workload's scopes.

    A cell at one value is a product of one count for each table, each about size/cells with noise of its own.
    """
    schema, common = workload.schema, common_attributes(workload.schema)
    noise = {t: len(own_scopes(workload, t, common)) / (2 * float(rho)) for t in sizes}
    scopes = measured_scopes(workload) or [()]
    errors = []
    for scope in scopes:
        count = len(next(iter(sizes.values())))
        both, clean = np.ones(count), np.ones(count)
        for t, size in sizes.items():
            own = [a for a in scope if a in schema.table(t).attributes and a not in common]
            squared = (size / schema.cells(tuple(own))) ** 2
            both, clean = both * (squared + noise[t]), clean * squared
        cells = schema.cells(tuple(a for a in scope if a not in common))
        errors.append(0.4 * SHRINKAGE * cells * np.sqrt(np.cumsum(both - clean)))
    mean: FloatArray = np.mean(errors, axis=0)
    return mean
