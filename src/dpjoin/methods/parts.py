"""Release a join that was cut into public parts: each is measured under its own bound, and what they say adds up.

A part whose noise would drown its shape spends everything on its size, and borrows the shape of the others. What is
worth it is decided from public numbers: bounds, noisy sizes, the budget and the workload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpjoin.measure.join import domain_of, measure_join, varying_products
from dpjoin.measure.product_queries import prospect
from dpjoin.measure.progress import Progress, nested
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods.as_one import Outcome, two_table_paper
from dpjoin.model.model import Model, clique_scopes
from dpjoin.model.terms import BoolArray, FloatArray, support_of
from dpjoin.model.union import Union
from dpjoin.privacy.accounting import Approximate, Concentrated
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.parts import Labels, Rules, Value
from dpjoin.spec.workload import Workload

SHAPE_DISTANCE = 0.25
"""How far (total variation) the shape of a part is from that of the others, where it is not measured: a guess."""
SHRINKAGE = 0.5
"""What a fit with learnt priors leaves of the noise of measured marginals, about."""


CLEAR = 0.05
"""Beyond this ratio of a cell's noise to what cells hold on average, a fit leaves less of it: as the root of the ratio.
Chosen on lastfm_wedge, nyc_weather and oulad_two of the development data."""


GUESSED = 0.7
"""How far off (total variation) a marginal is of which noise leaves nothing: seen on keys of real joins."""


@dataclass(frozen=True, eq=False)
class MeasuredPart:
    """A part after its first look: its bound, its noisy size, what it holds in words, and which cells it can be in."""

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


def shape_noise(workload: Workload, *, bound: float, size: float, rho: Fraction) -> float:
    """About how large an error, in join results, the noise of the workload's queries leaves."""
    noise = 0.0
    products = varying_products(workload)
    if products:
        size = max(1.0, size)  # noise may show an empty join; shares of nothing say nothing
        ways = prospect(products, total=size, bound=math.ceil(bound), rho=rho, cells=workload.cells)
        noise = size * min(ways.histogram, ways.measure_all, ways.rounds)
    scopes = clique_scopes(workload.groups)
    if scopes:
        cells = sum(math.prod(workload.schema.shape(s)) for s in scopes) / len(scopes)
        # Half the mean absolute noise of a cell, times the cells, is a marginal's total variation.
        noise = max(noise, 0.4 * SHRINKAGE * size_noise(bound, rho) * math.sqrt(len(scopes)) * cells)
    return noise


def fitted_noise(workload: Workload, *, bound: float, size: float, rho: Fraction) -> float:
    """The same, knowing that a fit leaves less of noise that is large beside what an average cell holds.

    Few cells of a large marginal hold most of it, and the noise of the others is seen to be noise.
    """
    if varying_products(workload):
        return shape_noise(workload, bound=bound, size=size, rho=rho)
    scopes = clique_scopes(workload.groups)
    each = 0.4 * SHRINKAGE * size_noise(bound, rho) * math.sqrt(len(scopes))
    cells = [math.prod(workload.schema.shape(s)) for s in scopes]
    # A marginal of which nothing is left but a guess is off by no more than that, however many cells it has: one of a
    # key must not decide for all others.
    clear = [n for n in cells if _left(each * n, size) < GUESSED * size]
    found = _left(each * sum(clear) / len(clear), size) if clear else 0.0
    return (len(clear) * found + (len(cells) - len(clear)) * GUESSED * size) / max(1, len(cells))


def _left(noise: float, size: float) -> float:
    """What a fit leaves of noise. In units of the size it is that of a cell over what cells hold on average, by 0.4."""
    return noise * min(1.0, math.sqrt(CLEAR * 0.4 * size / noise)) if noise > 0 else noise


def size_noise(bound: float, rho: Fraction) -> float:
    """The deviation of a size on which this rho is spent."""
    return bound / math.sqrt(2 * float(rho))


def predicted(workload: Workload, *, bound: int, size: float, rho: Fraction) -> Prediction:
    """What to expect of a part with this bound and noisy size, if it may spend this rho."""
    size = max(1.0, size)
    shape, borrowed = shape_noise(workload, bound=bound, size=size, rho=rho), SHAPE_DISTANCE * size
    return Prediction(size_noise(bound, rho) + min(shape, borrowed), shape <= borrowed)


def measure_parts(workload: Workload, parts: Sequence[MeasuredPart], progress: Progress) -> Outcome:
    """Spend all that the parts have left: on their queries, or on a second look at their size."""
    looks = [predicted(workload, bound=p.bound.value, size=p.total.noisy, rho=p.curator.rho_left) for p in parts]
    shaped = {n for n, look in enumerate(looks) if look.shaped and _clear(parts[n].total)}
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
            sizes[n] = settled(seen, part.expected)
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
    unsure = math.hypot(total.deviation, 2 * SHAPE_DISTANCE * max(mass, total.deviation))
    known = tuple(frozenset(g.scope) for g in workload.groups)
    return Model(domain_of(workload), mass, plain=borrowed * (mass / borrowed.sum()), unsure=unsure, known=known)


def _clear(total: NoisyTotal) -> bool:
    return total.noisy > 2 * total.deviation


def settled(total: NoisyTotal, expected: float | None) -> NoisyTotal:
    """A noisy size that may be lost in its noise, made the best of.

    With nothing else known, a size within twice its noise counts as none, and a larger one is pulled towards none by
    as much as it may be noise (James and Stein): many empty parts must not add up. Where degrees promise a size, the
    two are averaged by precision; the promise counts for no more than its own distance from what was measured.
    """
    seen = max(0.0, total.noisy)
    if expected is None:
        kept = seen * (1 - (total.deviation / seen) ** 2) if _clear(total) else 0.0
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


def part_facts(n: int, words: str, bound: int, size: int, strategy: str, **numbers: float) -> dict[str, Any]:
    """The public facts of a part, for the manifest."""
    rounded = {name: float(f"{value:.3g}") for name, value in numbers.items()}
    return {"part": n, "values": words, "sensitivity_bound": bound, "size": size, **rounded, "strategy": strategy}


def _outcome(models: Mapping[str, Model], facts: Sequence[dict[str, Any]]) -> Outcome:
    union = Union(tuple(models.values()), tuple(models))
    strategy = f"{len(facts)} parts by degree" if len(facts) > 1 else f"one part; {facts[0]['strategy']}"
    bound = max(fact["sensitivity_bound"] for fact in facts)
    return Outcome(union, bound, max(1, round(union.total)), strategy, tuple(facts))


def cells_of(workload: Workload, rules: Mapping[str, Rules]) -> BoolArray | None:
    """The cells in which a part can have anything, as far as labels of the workload's attributes tell; None: all."""
    found: BoolArray | None = None
    for labels, bucket in {(labels, b): None for part in rules.values() for labels, b in part.items()}:
        some = _cells_of_bucket(workload, labels, bucket)
        if some is not None:
            found = some if found is None else found & some
    return found if found is not None and found.any() else None


def _cells_of_bucket(workload: Workload, labels: Labels, bucket: int) -> BoolArray | None:
    schema = workload.schema
    if not labels.attributes or not set(labels.attributes) <= set(workload.attributes):
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
        return support_of(domain_of(workload), labels.attributes, allowed)
    # A cell is empty of light values only if it stands for one value, and that one is in another bucket.
    if any((a.values is None and a.range is None) or a.other for a in attributes):
        return None
    allowed = np.ones(schema.shape(labels.attributes), dtype=np.bool_)
    for value, code in codes.items():
        if labels.buckets[value] and None not in code:
            allowed[code] = False
    return support_of(domain_of(workload), labels.attributes, allowed)
