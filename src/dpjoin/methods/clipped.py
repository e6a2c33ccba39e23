"""Clipped: join results of each owner count less, the more there are; what is left is released as one join.

With n join results each counts T/n of one, so that an owner counts T at most. An owner is the person that is protected,
or any value of what all private tables share. A person then moves the join size, and every marginal, by at most T,
whatever the shape of the join; with steeper weights beyond 3.4·T so does a row (P-78). There is no noisy bound, no
shift and no cap of any table. Where to clip is decided by a noisy histogram of owners by their join results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dpjoin import constants
from dpjoin.errors import SpecError
from dpjoin.measure.join import measure_join
from dpjoin.measure.owner_counts import Owners, few_owners_told, owners_told
from dpjoin.measure.owner_tail import Tail
from dpjoin.measure.progress import Progress
from dpjoin.measure.ranks import EDGES
from dpjoin.measure.shares import round_down
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods.capped import grown
from dpjoin.methods.look import Look
from dpjoin.methods.method import GAUSSIAN_NOISE, Method, NoiseLevel, Outcome, Stage
from dpjoin.methods.noise_forecast import fitted_noise, size_noise
from dpjoin.methods.refusals import refuse_enforced
from dpjoin.methods.remainder import Remainder
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.owners import Clip
from dpjoin.spec.persons import one_owner_per_result
from dpjoin.spec.schema import ADD, Schema
from dpjoin.spec.workload import Workload


def owner_of_results(schema: Schema) -> tuple[str, ...]:
    """Whose join results are clipped: the person's that is protected, or a value's of what all private tables share."""
    if schema.unit:
        return schema.unit
    private = [set(t.attributes) for t in schema.tables if t.private]
    return schema.in_order(set.intersection(*private) & set(schema.join_attributes))


def check_clipped(schema: Schema, workload: Workload | None = None) -> None:
    if schema.unit:
        if not one_owner_per_result(schema):
            raise SpecError(
                f"method 'clipped' must find the {' and '.join(schema.unit)} of every private row in the join: name it "
                "in the attributes of each private table, or give it owner_via"
            )
        return
    if len(schema.private_tables) < 2 or not owner_of_results(schema):
        raise SpecError("method 'clipped' must have two or more private tables that all share a key; use auto")
    refuse_enforced(schema, "clipped", "multi_table")


@dataclass(frozen=True)
class ClippedShares:
    """The split: owners by join results, the join size; the rest is for queries."""

    split: Split
    owners: Concentrated
    count: Concentrated


def split_clipped(split: Split, schema: Schema) -> ClippedShares:
    owners = Concentrated(Fraction(0) if schema.max_results else round_down(split.rho * constants.RANKS_SHARE))
    return ClippedShares(split, owners, Concentrated(round_down((split.rho - owners.rho) * constants.COUNT_SHARE)))


WIDE_EDGES = tuple(4**n for n in range(13))
"""Buckets in which few owners are many enough to be seen."""


def measure_owners(curator: Curator, cost: Concentrated) -> Owners:
    """Owners by their join results."""
    return owners_told(curator.noisy_owners(owner_of_results(curator.schema), EDGES, cost))


def measure_few_owners(curator: Curator) -> Owners:
    """Where none stood out: a second histogram with wide buckets, which costs more."""
    cost = Concentrated(round_down(curator.rho_left * constants.FEW_OWNERS))
    return few_owners_told(curator.noisy_owners(owner_of_results(curator.schema), WIDE_EDGES, cost))


def squared_moves(schema: Schema) -> tuple[int, int]:
    """By how many limits, squared, one protected unit moves the size and the marginals: as the Curator will state."""
    met = max((t.owners or 0 for t in schema.tables if t.private), default=0)
    size, cells = (met**2, 2 * met**2) if met else (1, 1)
    if schema.neighbours == ADD:
        return size, cells
    return (size, 2 * cells) if schema.unit and not met else (4 * size, 4 * cells)


@dataclass(frozen=True)
class Clipping:
    """Where to clip, how many join results that loses, and the error to expect, in join results."""

    clip: Clip
    lost: NoisyTotal
    error: float
    wide: Clip | None = None
    """A larger limit, under which the size of the join is measured, too; None where that would be no better."""
    tail: Tail | None = None
    """What is known of owners that noise hides; None where a limit is declared, so that there are none."""
    size: NoisyTotal | None = None
    """The size of the join as a look saw it."""


def best_clipping(workload: Workload, owners: Owners, rho: Fraction, size: float = 1.0) -> Clipping:
    """The limit with the least noise and loss together: a function of noisy numbers alone.

    A join of this size has at least so many results that no owner shows; these are lost.
    """
    schema = workload.schema
    owner = owner_of_results(schema)
    counts = constants.LOST_ASKED if set(owner) & set(workload.attributes) else constants.LOST_CLIPPED
    whole = max(size, owners.size)
    hidden = whole - owners.size
    for_size, for_cells = (rho / square for square in squared_moves(schema))

    def at(limit: int) -> Clipping:
        clip = Clip(owner=owner, limit=limit, steep=not schema.unit)
        lost = owners.lost(clip)
        if hidden > 0:
            lost = NoisyTotal(lost.noisy + hidden, math.hypot(lost.deviation, hidden))
        # What is left is measured, and grows to the whole size with its noise.
        left = max(whole - lost.noisy, constants.LEAST_KEPT * whole)
        noise = fitted_noise(workload, bound=limit, size=left, rho=for_cells) * whole / left
        noise += size_noise(limit, for_size)
        return Clipping(clip, lost, noise + counts * lost.noisy)

    # The size itself is measured with a small share, and a large limit makes it worst of all.
    count = for_size * constants.COUNT_SHARE
    best = min(map(at, owners.limits), key=lambda found: found.error + size_noise(found.clip.limit, count))
    tail = Tail(owners)
    wide = best_for_size(tail, best.clip, count / 2)
    best = replace(best, lost=tail.lost(best.clip), tail=tail)
    return best if wide == best.clip else replace(best, wide=wide)


def best_for_size(tail: Tail, clip: Clip, rho: Fraction) -> Clip:
    """This clip or a wider one: under which a size on which rho is spent leaves the least doubt about the whole."""
    wider = (replace(clip, limit=limit) for limit in EDGES if clip.limit <= limit <= WIDE_EDGES[-1])
    return min(wider, key=lambda wide: math.hypot(size_noise(wide.limit, rho), tail.doubt(wide)))


def clipped_tight(curator: Curator, workload: Workload, shares: ClippedShares, progress: Progress) -> Outcome:
    """The `tight` profile: owners, a limit, the join. Spends the whole budget.

    Where one row is the unit, all noise hides all rows of an owner as well: moves are no larger for one (P-78, P-79).
    Not so if domains were learned before, of single rows.
    """
    schema, nothing_else = curator.schema, not curator.ledger.events
    outcome = _released(curator, workload, shares, progress)
    if schema.unit or schema.neighbours != ADD or not nothing_else:
        return outcome
    owner, tables = " and ".join(owner_of_results(schema)), ", ".join(schema.private_tables)
    return replace(outcome, also_protects=f"one {owner} with all rows in {tables}")


def _released(curator: Curator, workload: Workload, shares: ClippedShares, progress: Progress) -> Outcome:
    schema = curator.schema
    if schema.max_results is not None:
        clip = Clip(owner=owner_of_results(schema), limit=schema.max_results, steep=not schema.unit)
        return release_clipping(curator, workload, Clipping(clip, NoisyTotal(0.0, 1.0), 0.0), shares.count, progress)
    progress("owners", 0, 1)
    owners = measure_owners(curator, shares.owners)
    if not owners.visible:
        owners = measure_few_owners(curator)
    progress("owners", 1, 1)
    best = best_clipping(workload, owners, curator.rho_left)
    if owners.visible:
        return release_clipping(curator, workload, best, shares.count, progress)
    # Owners that noise hides may have any number of join results: bars say that next to nothing is known.
    unknown = NoisyTotal(0.0, owners.deviation * WIDE_EDGES[len(WIDE_EDGES) // 2])
    outcome = release_clipping(curator, workload, replace(best, lost=unknown), shares.count, progress)
    return replace(outcome, strategy=f"{outcome.strategy}; too few owners to stand out of noise")


def release_clipping(
    curator: Curator, workload: Workload, best: Clipping, count: Concentrated, progress: Progress
) -> Outcome:
    """Measure the clipped join, and make up for what was lost of its size: by its tail, and by the size of a look."""
    count = count if best.wide is None else Concentrated(round_down(count.rho / 2))
    lost = best.lost
    with one_blas_thread():
        if best.wide is not None:
            *_, whole = _size_under(curator, best.wide, count)
        clipped, bound, total = _size_under(curator, best.clip, count)
        model, strategy = measure_join(clipped, workload, bound, total, progress)
        if best.wide is not None and best.tail is not None:
            more = NoisyTotal(whole.noisy - model.total, math.hypot(whole.deviation, total.deviation))
            lost = best.tail.with_sizes(best.clip, best.wide, more).lost(best.clip)
        if best.size is not None:
            seen = NoisyTotal(best.size.noisy - model.total, math.hypot(best.size.deviation, total.deviation))
            # A histogram hides few owners far beyond the others: it is off by what both are apart, if that is no noise.
            off = max(lost.deviation**2, (seen.noisy - lost.noisy) ** 2 - seen.deviation**2)
            lost = NoisyTotal(lost.noisy, math.sqrt(off)).combined(seen)
            lost = replace(lost, noisy=max(0.0, lost.noisy))
    model = grown(model, lost)
    owner, limit = " and ".join(best.clip.owner), best.clip.limit
    how = f"join results of each {owner} count at most as {limit:,}"
    return Outcome(model, limit, max(1, round(model.total)), f"{how}; {strategy}")


def _size_under(curator: Curator, clip: Clip, cost: Concentrated) -> tuple[Curator, Bound, NoisyTotal]:
    """The clipped join, how far an owner moves it, and its noisy size."""
    clipped = curator.clipped(clip)
    bound = clipped.public_bound()
    assert bound is not None, "a clip bounds what is moved"
    return clipped, bound, measure_total(clipped, bound, cost)


def clipping_after(look: Look, left: Remainder) -> Clipping:
    """The best limit for a join that has at least as many results as are beyond doubt."""
    assert look.owners is not None
    surely = max(1.0, look.size.noisy - 2 * look.size.deviation)
    return best_clipping(look.workload, look.owners, left.capped, surely)


def forecast(look: Look, left: Remainder, shares: ClippedShares) -> float | None:
    """Noise of the best limit, and what it loses; after a look that has counted owners."""
    if look.owners is None or left.laplace or not look.owners.visible:
        return None
    return clipping_after(look, left).error


def resume(look: Look, left: Remainder, shares: ClippedShares, progress: Progress) -> Outcome:
    best = replace(clipping_after(look, left), size=look.size)
    return release_clipping(look.curator, look.workload, best, shares.count, progress)


def stages(shares: ClippedShares, workload: Workload) -> tuple[Stage, ...]:
    owner, whole = " and ".join(owner_of_results(workload.schema)), shares.split.rho
    first = [Stage("owners", GAUSSIAN_NOISE, float(shares.owners.rho / whole), f"histogram of join results by {owner}")]
    count = float(shares.count.rho / whole)
    left = 1 - count - float(shares.owners.rho / whole)
    return (
        *(first if shares.owners.rho else []),
        Stage("join size", GAUSSIAN_NOISE, count, "of the clipped join, unbiased"),
        Stage("queries", GAUSSIAN_NOISE, left, "of the clipped join"),
    )


def noise_level(shares: ClippedShares, workload: Workload, results: int) -> NoiseLevel:
    """If join results are clipped at this number."""
    left = shares.split.rho - shares.owners.rho - shares.count.rho
    size, cells = map(math.sqrt, squared_moves(workload.schema))
    return NoiseLevel.gaussian(workload, results, count=shares.count.rho, queries=left, times=size, cells=cells)


def why(schema: Schema) -> str:
    owner = " and ".join(owner_of_results(schema))
    if schema.max_results is not None:
        return f"join results of each {owner} count at most as {schema.max_results:,}; the join is released as one"
    return f"join results of each {owner} are clipped where a noisy histogram says; the join is released as one"


CLIPPED = Method(
    name="clipped",
    why=why,
    check=check_clipped,
    split=lambda budget, schema: split_clipped(Split(budget=budget), schema),
    split_after_look=split_clipped,
    stages=stages,
    noise_level=noise_level,
    run=clipped_tight,
    forecast=forecast,
    resume=resume,
    one_model=True,
)
