"""Release a join that was cut into public parts: each is measured under its own bound, and what they say adds up.

A part whose shape has a low signal-to-noise ratio spends everything on its size, and borrows the shape of the others.
What is worth it is decided from public numbers: bounds, noisy sizes, the budget and the workload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpjoin import constants
from dpjoin.measure.join import domain_of, measure_join
from dpjoin.measure.progress import Progress, nested
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods.common_key import part_facts
from dpjoin.methods.method import ROUNDS, TRUNCATED_LAPLACE, Outcome, Stage
from dpjoin.methods.noise_forecast import shape_noise, size_noise
from dpjoin.model.model import Model
from dpjoin.model.terms import BoolArray, FloatArray
from dpjoin.model.union import Union
from dpjoin.paper.alg1_two_table import two_table_paper
from dpjoin.privacy.accounting import Approximate, Budget, Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.truncated import paper_laplace_half_width
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload


@dataclass(frozen=True, eq=False)
class MeasuredPart:
    """A part with its bound, its noisy size, what it holds in words, and which cells it can be in."""

    curator: Curator
    bound: Bound
    total: NoisyTotal
    words: str
    support: BoolArray | None
    expected: float | None = None
    """About how many join results noisy degrees promise, if they do."""


@dataclass(frozen=True)
class Prediction:
    """About how large an error (in join results) a part leaves, and whether its shape is worth measuring."""

    error: float
    shaped: bool


def predicted(workload: Workload, *, bound: int, size: float, rho: Fraction) -> Prediction:
    """What to expect of a part with this bound and noisy size, if it may spend this rho."""
    size = max(1.0, size)
    shape, borrowed = shape_noise(workload, bound=bound, size=size, rho=rho), constants.SHAPE_DISTANCE * size
    return Prediction(size_noise(bound, rho) + min(shape, borrowed), shape <= borrowed)


def measure_parts(workload: Workload, parts: Sequence[MeasuredPart], progress: Progress) -> Outcome:
    """Spend all that the parts have left: on their queries, or on measuring their size again."""
    looks = [predicted(workload, bound=p.bound.value, size=p.total.noisy, rho=p.curator.rho_left) for p in parts]
    shaped = {n for n, look in enumerate(looks) if look.shaped and _is_clear(parts[n].total)}
    # Something must give a shape. Chosen by noisy size it would be the part with the luckiest noise, so go by bounds.
    shaped = shaped or {min(range(len(parts)), key=lambda n: parts[n].bound.value)}
    models: dict[str, Model] = {}
    sizes: dict[int, NoisyTotal] = {}
    facts: list[dict[str, Any]] = []
    for n, part in enumerate(parts):
        say = nested(progress, n, len(parts))
        if n in shaped:
            model, strategy = measure_join(
                part.curator, workload, part.bound, part.total, say, support=part.support, seed=n
            )
            models[f"part {n}"], size = model, model.total
        else:
            seen = part.total.combined(measure_total(part.curator, part.bound, Concentrated(part.curator.rho_left)))
            sizes[n] = shrunk_size(seen, part.expected)
            strategy, size = "its size alone; the shape is that of the other parts", sizes[n].noisy
        facts.append(part_facts(n, part.words, part.bound.value, round(size), strategy, predicted_error=looks[n].error))
    shape = np.sum([m.table for m in models.values()], axis=0)
    for name, which in _by_cells(parts, list(sizes)).items():
        deviation = math.sqrt(sum(sizes[n].deviation ** 2 for n in which))
        total = NoisyTotal(sum(sizes[n].noisy for n in which), deviation)
        models[name] = borrowed_shape(workload, shape, total, parts[which[0]].support)
    return _outcome(models, facts)


def borrowed_shape(workload: Workload, shape: FloatArray, total: NoisyTotal, support: BoolArray | None) -> Model:
    """A model of which only the size is known: the shape is that of another table of cells, within the support."""
    mass = max(1.0, total.noisy)
    # A little everywhere, lest a part that lies where the others have nothing gets no shape at all.
    borrowed = shape if support is None else np.where(support, shape + shape.mean() / 100, 0.0)
    # Neither the size is known well, nor where in the domain it lies.
    unsure = math.hypot(total.deviation, 2 * constants.SHAPE_DISTANCE * max(mass, total.deviation))
    known = tuple(frozenset(g.scope) for g in workload.groups)
    return Model(domain_of(workload), mass, plain=borrowed * (mass / borrowed.sum()), unsure=unsure, known=known)


def _is_clear(total: NoisyTotal) -> bool:
    return total.noisy > 2 * total.deviation


def shrunk_size(total: NoisyTotal, expected: float | None) -> NoisyTotal:
    """A noisy size with a low signal-to-noise ratio, made the best of.

    With nothing else known, a size within twice its noise counts as none, and a larger one is pulled towards none by
    as much as it may be noise (James and Stein): many empty parts must not add up. Where degrees promise a size, the
    two are averaged by precision; the promise counts for no more than its own distance from what was measured.
    """
    seen = max(0.0, total.noisy)
    if expected is None:
        kept = seen * (1 - (total.deviation / seen) ** 2) if _is_clear(total) else 0.0
        return NoisyTotal(kept, total.deviation)
    return NoisyTotal(seen, total.deviation).combined(NoisyTotal(expected, max(expected, abs(seen - expected), 1.0)))


def _by_cells(parts: Sequence[MeasuredPart], which: Sequence[int]) -> dict[str, list[int]]:
    """Parts of which only the size is known, by name: those that can be anywhere go together."""
    found = {f"part {n}": [n] for n in which if parts[n].support is not None}
    anywhere = [n for n in which if parts[n].support is None]
    return found | ({"other parts": anywhere} if anywhere else {})


def measure_paper_parts(
    curators: Sequence[Curator], words: Sequence[str], workload: Workload, each: Approximate, progress: Progress
) -> Outcome:
    """Algorithm 1 or 3 in every part, each with the same budget: the `paper` profile."""
    models: list[Model] = []
    facts: list[dict[str, Any]] = []
    for n, (curator, told) in enumerate(zip(curators, words, strict=True)):
        outcome = two_table_paper(curator, workload, each, nested(progress, n, len(curators)))
        assert isinstance(outcome.model, Model)
        models.append(outcome.model)
        facts.append(part_facts(n, told, outcome.sensitivity, outcome.noisy_total, outcome.strategy))
    return _outcome({f"part {n}": model for n, model in enumerate(models)}, facts)


def _outcome(models: Mapping[str, Model], facts: Sequence[dict[str, Any]]) -> Outcome:
    union = Union(tuple(models.values()), tuple(models))
    strategy = f"{len(facts)} parts by degree" if len(facts) > 1 else f"one part; {facts[0]['strategy']}"
    bound = max(fact["sensitivity_bound"] for fact in facts)
    return Outcome(union, bound, max(1, round(union.total)), strategy, tuple(facts))


def paper_stages(budget: Budget, schema: Schema) -> tuple[Stage, ...]:
    shift = paper_laplace_half_width(epsilon=budget.exact.epsilon / 2, delta=budget.exact.delta / 2, sensitivity=1)
    note = f"each table's degrees plus {shift} on average; listed above {2 * shift}"
    return (
        Stage("degrees", TRUNCATED_LAPLACE, 0.5, note),
        Stage("sensitivity", TRUNCATED_LAPLACE, 0.25, "of each part"),
        Stage("join size", TRUNCATED_LAPLACE, 0.125, "of each part, an upper bound"),
        Stage("rounds", ROUNDS, 0.125, "in each part"),
    )
