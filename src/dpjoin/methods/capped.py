"""Capped: count at most so many rows of each key value, and release what is left as one join.

A noisy bound must exceed the largest degree, so it is that degree plus a shift, whatever the other degrees are. A cap
needs no shift: it is a public number, and rows beyond it go. What it costs are the join results that are lost, and
what a row more moves by pushing others out. Where marginals are asked and one cap a table is enough, the rows of a
value fade instead: they count less, the more of them there are (`fading`), which costs less of both. Elsewhere rows
beyond the cap are removed, which costs a factor of the square root of two (P-62). Where to cap is decided after a look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpjoin import constants
from dpjoin.errors import SpecError
from dpjoin.measure.join import measure_join
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import round_down
from dpjoin.measure.totals import NoisyTotal
from dpjoin.methods.look import (
    Candidate,
    Levels,
    Look,
    LookShares,
    cap_attributes,
    closer_look,
    count_after_look,
    fades_of,
    fading_price,
    look_shares,
    price_for,
    public_bound_of,
)
from dpjoin.methods.method import GAUSSIAN_NOISE, Method, NoiseLevel, Outcome, Stage, changed
from dpjoin.methods.noise_forecast import fitted_noise, size_noise
from dpjoin.methods.refusals import refuse_enforced
from dpjoin.methods.remainder import Remainder
from dpjoin.model.model import Model
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import declared_limits, weighted_bound
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload


def check_capped(schema: Schema, workload: Workload | None = None) -> None:
    if len(schema.private_tables) < 2:
        raise SpecError("method 'capped' must have two or more private tables; use auto")
    refuse_enforced(schema, "capped", "multi_table")
    if not cap_attributes(schema):
        raise SpecError("method 'capped' must have something to cap, and keys serve already; use auto")


@dataclass(frozen=True)
class CappedShares:
    """The split: a look, the join size; the rest is for queries. No delta is set aside."""

    split: Split
    look: LookShares
    count: Concentrated


def split_capped(split: Split, schema: Schema) -> CappedShares:
    return CappedShares(split, look_shares(split, schema), count_after_look(split))


def look_stages(split: Split, look: LookShares, schema: Schema, note: str) -> list[Stage]:
    """A look, as a plan tells it."""
    questions = max((len(sets) for sets in cap_attributes(schema).values()), default=1)
    first = (look.first_ranks.rho if look.first_ranks else 0) * questions
    ranks = float((look.ranks.rho * questions + first) / split.rho)
    sizes = float(look.whole / split.rho) - ranks
    return [
        Stage("ranks", GAUSSIAN_NOISE, ranks, "rows that are first, second, … of a key value"),
        Stage("sizes under caps", GAUSSIAN_NOISE, sizes, note),
    ]


def capped_stages(
    shares: CappedShares, workload: Workload, note: str = "where to cap", rest: str = "of what the caps leave"
) -> tuple[Stage, ...]:
    count = float(shares.count.rho / shares.split.rho)
    looks = look_stages(shares.split, shares.look, workload.schema, note)
    left = 1 - count - sum(s.share for s in looks)
    return *looks, Stage("join size", GAUSSIAN_NOISE, count, "unbiased"), Stage("queries", GAUSSIAN_NOISE, left, rest)


def capped_noise_level(shares: CappedShares, workload: Workload, degree: int) -> NoiseLevel:
    """If the caps are this degree everywhere."""
    schema, sets = workload.schema, cap_attributes(workload.schema)
    caps = {(table, by): degree for table, some in sets.items() for by in some}
    removed, bound = max(len(some) for some in sets.values()), float(public_bound_of(schema, caps))
    lengthened = math.sqrt(1 + removed**2)
    if (price := price_for(degree, fading_price(workload))) is not None:
        fades = fades_of(caps, price)
        full = math.prod(fade.full for fade in fades.values())
        bound, removed, lengthened = weighted_bound(schema, declared_limits(schema), fades) / full, 1, 1.0
    left = shares.split.rho - shares.look.whole - shares.count.rho
    times, cells = removed * changed(schema), lengthened * changed(schema)
    return NoiseLevel.gaussian(workload, bound, count=shares.count.rho, queries=left, times=times, cells=cells)


def capped_tight(curator: Curator, workload: Workload, shares: CappedShares, progress: Progress) -> Outcome:
    """The `tight` profile: ranks, candidates, the best of them. Spends the whole budget."""
    progress("caps", 0, 1)
    look = closer_look(curator, workload, shares.look)
    progress("caps", 1, 1)
    rho = curator.rho_left
    return replace(release_capped(look, Remainder(rho, rho, rho), shares, progress), rows=look.rows)


def forecast(look: Look, left: Remainder, shares: CappedShares) -> float | None:
    """Noise of the best caps, and what they lose.

    Where rows are capped, Laplace noise grows by √2 more, and what is left of rho tells too little of the size.
    """
    if look.levels is None or left.laplace or not look.visible:
        return None
    return best_caps(look.workload, look.levels, left.capped).error


def release_capped(look: Look, left: Remainder, shares: CappedShares, progress: Progress) -> Outcome:
    """Measure the join that the caps leave, and scale it to the size of the whole one."""
    assert look.levels is not None
    best = best_caps(look.workload, look.levels, left.capped).candidate
    with one_blas_thread():
        whole, kept = measure_sizes(look.levels, best, shares.count)
        # How uncertain the size is comes in with the whole one.
        model, strategy = measure_join(best.curator, look.workload, best.bound, NoisyTotal(kept, 1.0), progress)
    caps = ", ".join(f"{limit:,} of {table} by {'+'.join(by)}" for (table, by), limit in sorted(best.caps.items()))
    how = f"at most {caps}" if best.price is None else f"rows of a value beyond {caps} fade"
    grew = grown(model, NoisyTotal(max(0.0, whole.noisy - model.total), whole.deviation))
    return Outcome(grew, math.ceil(best.results), max(1, round(grew.total)), f"{how}; {strategy}")


@dataclass(frozen=True, eq=False)
class Best:
    """The best of several caps, about how much they lose, and the error that this promises, in join results."""

    candidate: Candidate
    lost: NoisyTotal
    error: float


def best_caps(workload: Workload, levels: Levels, rho: Fraction) -> Best:
    """The best caps after a look, if what follows has noise as of this rho."""
    size = max(1.0, levels.whole.noisy)
    promised = [size * c.share for c in levels.candidates]
    return best_candidate(
        workload, levels.candidates, rho, promised=promised, unseen=size * levels.unseen, whole=levels.whole
    )


def best_candidate(
    workload: Workload,
    candidates: Sequence[Candidate],
    rho: Fraction,
    *,
    promised: Sequence[float],
    unseen: float,
    whole: NoisyTotal,
) -> Best:
    """The candidate with the least predicted error: noise of its bound, and what it loses. From noisy numbers alone.

    `promised` is how many join results each candidate's caps lose, as far as is known without their sizes; `unseen`,
    how many the most generous ones may lose; `whole`, the size of the join.
    """
    found: list[Best] = []
    asked = any(set(by) & set(workload.attributes) for candidate in candidates[:1] for _, by in candidate.caps)
    counts = constants.LOST_ASKED if asked else constants.LOST
    for candidate, expected in zip(candidates, promised, strict=True):
        # What is lost: as far as noisy sizes show it, and as was promised. Rows that go may join more than others do,
        # so a promise may be off by twice itself.
        seen = max(0.0, whole.noisy - candidate.total.noisy)
        told = NoisyTotal(seen, math.hypot(whole.deviation, candidate.total.deviation))
        promise = NoisyTotal(expected, max(1.0, unseen, 2 * expected))
        surprising = seen - expected > constants.SURPRISE * math.hypot(told.deviation, promise.deviation)
        lost = told if surprising else told.combined(promise)
        error = capped_noise(workload, candidate, rho, size=whole.noisy) + counts * lost.noisy
        found.append(Best(candidate, lost, error))
    return min(found, key=lambda best: best.error)


def capped_noise(workload: Workload, candidate: Candidate, rho: Fraction, *, size: float) -> float:
    """The noise of measuring what the caps leave of a join of about this size, in join results."""
    removed = max(sum(1 for table, _ in candidate.caps if table == t) for t, _ in candidate.caps)
    results = candidate.results
    bound = results * math.sqrt(1 + removed**2) if candidate.price is None else results
    return fitted_noise(workload, bound=bound, size=max(1.0, size), rho=rho) + size_noise(results, rho)


def measure_sizes(levels: Levels, best: Candidate, count: Concentrated) -> tuple[NoisyTotal, float]:
    """The size of the whole join, and of what the caps leave of it, each with half of what is for the size.

    The whole size is measured under caps of its own: under generous ones that lose nothing there is more noise, under
    strict ones more is lost.
    """
    half = round_down(count.rho / 2)
    levels = levels.measured_again(levels.most_telling(half), half).measured_again(best, count.rho - half)
    whole = levels.whole
    kept = next(c.total for c in levels.candidates if c.curator is best.curator)
    left = (1 - best.share) * (1 - best.left.hidden)
    promised = NoisyTotal(whole.noisy * left, math.hypot(whole.deviation, best.share * whole.noisy))
    return whole, max(1.0, min(kept.combined(promised).noisy, levels.most))


def grown(model: Model, lost: NoisyTotal) -> Model:
    """With the size that was lost; its shape is taken to be that of what is left.

    Members stand for what is uncertain: this size, and that shape. What is lost may have any value more or less often
    by some factor; as a share of all, that factor's logarithm adds to the value's potential.
    """
    whole = model.total + lost.noisy
    rng = np.random.default_rng(len(model.members))  # public randomness
    off = lost.deviation * rng.standard_normal(len(model.members))
    differs = constants.LOST_DIFFERS * max(0.0, lost.noisy) / whole
    members = []
    for (potentials, total), more in zip(model.members, off, strict=True):
        shifted = potentials.copy()
        for where in model.single_terms.values():
            shifted[where] += differs * rng.standard_normal(where.stop - where.start)
        # Not in proportion: what is left may be next to nothing, and members of it many times as large.
        members.append((shifted, max(1.0, total + lost.noisy + more)))
    return replace(model, total=whole, members=tuple(members))


CAPPED = Method(
    name="capped",
    why=lambda _: "rows beyond so many per key value (noisy degrees say how many) fade or go; the rest is one join",
    check=check_capped,
    split=lambda budget, schema: split_capped(Split(budget=budget), schema),
    split_after_look=split_capped,
    stages=capped_stages,
    noise_level=capped_noise_level,
    run=capped_tight,
    forecast=forecast,
    resume=release_capped,
    one_model=True,
    reads_public_bounds=True,
)
