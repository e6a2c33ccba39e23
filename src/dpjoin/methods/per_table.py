"""Per table, then join: each table is modelled, keys included, with nearly the whole budget, and the models are joined.

Good where few values are heavy, and where joins are small: a row moves one cell by one, however many rows it meets.
What the tables do not tell is the size of the join where frequent values are the same in all of them; a small part of
the budget goes to that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpjoin.errors import SpecError
from dpjoin.measure.join import domain_of
from dpjoin.measure.laplace import ANYHOW, ByValue
from dpjoin.measure.progress import Progress
from dpjoin.measure.ranks import degree_sequence, rows_beyond
from dpjoin.measure.shares import tight_shares
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods.as_one import Outcome
from dpjoin.methods.capped import (
    CONTRADICTS,
    Candidate,
    CappedShares,
    capped_shares,
    check_capped,
    measure_first_size,
    measure_levels,
    measure_ranks,
    measure_whole,
)
from dpjoin.methods.correlation import (
    alignments,
    counted_doubt,
    drowned_share,
    flattened_size,
    is_tangled,
    meetings_of,
    per_table_error,
    public_degrees,
)
from dpjoin.methods.finish import exchanged, finishes, laplace_finish, rest_of
from dpjoin.methods.table_models import check_joinable, kept_attributes, measure_alone, public_model
from dpjoin.model.joined import Joined
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public
from dpjoin.privacy.parts import NoisyRanks, OneTable
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

MOST_CELLS = 2**22
"""Of one table's model."""
FLATTENED = 0.35
"""Where ranks do not tell what a join of models lacks: about which share of what it has beyond rows that meet by
chance, if the models tell nothing apart."""
CLEAR, MISCOUNTED = 0.035, 0.05
"""How far off models of clear tables may be, and how far off the size that they counted, as shares of it."""
DROWNED = 8.0
"""By how many times the noise of all cells together may exceed a table's rows: beyond that a fit, in which no cell is
negative, finds rows in it that heavy values then lack."""
HIDDEN_SHAPE = 0.15
"""By which factor, as a logarithm, a value may be more or less frequent in the join than models tell, where noise
drowns what they say of single values of the keys. A guess: some joins of the development data hide next to nothing, and
some several times as much."""
SHOWS = 2.0
"""By how many deviations a join must show under caps for these to tell its size."""
UNDER_CAPS = 0.3
"""There, how far off the size under caps may be beyond its noise, as a share: what caps lose is judged for each meeting
of tables by itself."""


def check_per_table(schema: Schema, workload: Workload | None = None) -> None:
    """Refuse what cannot be modelled table by table, given the workload also what is too large."""
    if len(schema.tables) < 2:
        raise SpecError("method 'per_table' must have two or more tables; use auto")
    check_joinable(schema, schema.join_attributes, "per_table")
    if workload is None:
        return
    for table in schema.tables:
        kept = kept_attributes(workload, table.name, ())
        if not kept:
            raise SpecError(
                f"method 'per_table' must have something to model in table {table.name!r}, which shares nothing and is "
                "not asked about; use method 'multi_table'"
            )
        cells = schema.cells(kept)
        if cells > MOST_CELLS:
            raise SpecError(
                f"the model of table {table.name!r} would have {cells:,} cells ({', '.join(kept)}), which must be at "
                f"most {MOST_CELLS:,}; use coarser domains, or method 'hybrid'"
            )


@dataclass(frozen=True)
class PerTableShares:
    """The split: a look at the size of the join, where caps or declared bounds allow one; the rest is each table's."""

    split: Split
    look: CappedShares | None
    """What tells where to cap; None where nothing is capped."""
    count: Concentrated | None
    """The size of the join; None where it is that of the models' join."""


def per_table_shares(budget: Budget, schema: Schema) -> PerTableShares:
    try:
        check_capped(schema)
    except SpecError:
        whole = tight_shares(budget, noisy_bound=False)
        return PerTableShares(whole.split, None, whole.count if bound_is_public(schema) else None)
    look = capped_shares(budget, schema)
    return PerTableShares(look.split, look, look.count)


@dataclass(frozen=True, eq=False)
class Size:
    """The size of the join, seen from the join itself, and by how much a join of models is likely to be smaller."""

    total: NoisyTotal
    flattened: float | None
    """None: ranks do not tell."""
    most: float = math.inf
    """No join is larger."""


def per_table_tight(curator: Curator, workload: Workload, shares: PerTableShares, progress: Progress) -> Outcome:
    """The `tight` profile: a look at the join's size, then the tables."""
    check_per_table(curator.schema, workload)
    size, known = None, ANYHOW
    ranks: list[NoisyRanks] = []
    if shares.look is not None and shares.count is not None:
        progress("size", 0, 2)
        if (first := shares.look.first) is not None:
            ranks = measure_ranks(curator, first.ranks)
            size_seen = measure_first_size(curator, workload, ranks, first.size)
            known = alignments(curator.schema, ranks, size_seen, public_degrees(curator))
            if clear_error(curator, workload, ranks, known) is not None:
                curator.exchange()
                return release_tables(curator, workload, None, progress, ranks, known)
        ranks = measure_ranks(curator, shares.look.ranks, before=ranks)
        progress("size", 1, 2)
        levels = measure_levels(curator, workload, ranks, shares.look.size)
        known = alignments(curator.schema, ranks, levels.whole, public_degrees(curator))
        finish = max(finishes(curator, workload), key=lambda way: way.alone)
        count = exchanged(curator, finish, shares.count)
        size = size_under_caps(curator, workload, ranks, levels.candidates, count, rho=finish.alone)
        progress("size", 2, 2)
    elif shares.count is not None:
        bound = curator.public_bound()
        assert bound is not None, "declared bounds were seen to serve"
        size = Size(measure_total(curator, bound, shares.count), None)
    return release_tables(curator, workload, size, progress, ranks, known)


def clear_error(
    curator: Curator, workload: Workload, ranks: Sequence[NoisyRanks], known: tuple[float, float]
) -> float | None:
    """The error to expect where a first look shows that noise leaves every table clear, in join results; else None.

    How far frequent values are the same in all tables is known to lie between two degrees: it must be clear at both.
    Then the size of the join is what the tables counted, and there is nothing else to look at.
    """
    schema, offer = workload.schema, curator.offer
    if offer is None or is_tangled(schema):
        return None
    rho, errors = laplace_finish(workload, offer.epsilon).alone, []
    for r in ranks:
        table = next(iter(r.question.rules))
        cells = schema.cells(kept_attributes(workload, table, ()))
        if cells / math.sqrt(2 * float(rho)) > DROWNED * float(rows_beyond(r)[0]):
            return None
    for aligned in known:
        met = [replace(m, aligned=aligned) for m in meetings_of(schema, ranks, 1.0, public_degrees(curator))]
        if len(met) != 1:
            return None
        size = met[0].size
        error = per_table_error(workload, met, size=size, rho=rho)
        if size <= 0 or counted_doubt(workload, met[0], rho=rho) > MISCOUNTED * size or error > CLEAR * size:
            return None
        errors.append(error)
    return errors[-1]


def size_under_caps(
    curator: Curator,
    workload: Workload,
    ranks: Sequence[NoisyRanks],
    among: Sequence[Candidate],
    cost: Concentrated,
    *,
    rho: Fraction,
) -> Size:
    """The size of the join by one more look under caps, and what ranks tell of how a join of models will compare.

    `rho` is what the models' noise will be worth.
    """
    total, schema = measure_whole(among, cost), workload.schema
    meetings = meetings_of(schema, ranks, max(1.0, total.noisy), public_degrees(curator))
    flattened = flattened_size(schema, meetings, size=total.noisy, rho=rho)
    return Size(total, flattened, among[0].most)


def release_tables(
    curator: Curator,
    workload: Workload,
    size: Size | None,
    progress: Progress,
    ranks: Sequence[NoisyRanks] = (),
    known: tuple[float, float] = ANYHOW,
) -> Outcome:
    """A model of each table, joined. A row pays in its own table only, so each table spends all that is left.

    Frequent values are known to be the same in all tables to a degree between two.
    """
    schema, names = curator.schema, curator.schema.private_tables
    by_rank: dict[str, list[ByValue]] = {}
    for r in ranks:
        seen = ByValue(schema.in_order(r.question.by), degree_sequence(r), known)
        by_rank.setdefault(next(iter(r.question.rules)), []).append(seen)
    models = {t.name: public_model(curator.public_counts, workload, t.name) for t in schema.tables if not t.private}
    parts = {f"table {name}": OneTable(name, kept_attributes(workload, name, ())) for name in names}
    rest = rest_of(curator)
    alone = dict(zip(names, curator.restrict("tables", parts, [rest] * len(parts)), strict=True))
    with one_blas_thread():
        found = measure_alone(workload, alone, (), listed=False, progress=progress, by_rank=by_rank)
        models |= dict(zip(names, found, strict=True))
        joined = Joined(domain_of(workload), tuple(models[t.name] for t in schema.tables))
        strategy = "the private table" if len(names) == 1 else f"{len(names)} tables, each"
        strategy += " with all that is left"
        if size is not None or joined.counted is not None:
            likely = likely_total(joined, size)
            joined = joined.resized(max(1.0, likely.noisy), likely.deviation)
            strategy += ", scaled to the size of the join"
        met = meetings_of(schema, ranks, max(1.0, joined.total), public_degrees(curator))
        worth = laplace_finish(workload, rest.epsilon).alone if rest.epsilon else rest.rho
        joined = unsure_of_shapes(joined, HIDDEN_SHAPE * drowned_share(workload, met, worth))
    return Outcome(joined, 1, max(1, round(joined.total)), strategy)


def unsure_of_shapes(joined: Joined, by: float) -> Joined:
    """With members in which any value of an attribute is more or less frequent, by this much as a logarithm.

    Members tell how far noise may be off. Where it drowns what tables say of single values, models know nothing of how
    the attributes of one table go with those of others, and all members miss it alike.
    """
    if not by:
        return joined
    rng = np.random.default_rng(len(joined.tables))  # public randomness
    tables = []
    for table in joined.tables:
        members = []
        for potentials, total in table.members:
            shifted = potentials.copy()
            for attribute, where in table.single_terms.items():
                if attribute not in joined.links:
                    shifted[where] += by * rng.standard_normal(where.stop - where.start)
            members.append((shifted, total))
        tables.append(replace(table, members=tuple(members)))
    return replace(joined, tables=tuple(tables))


def likely_total(joined: Joined, size: Size | None) -> NoisyTotal:
    """What the size of the join, seen from it and by counted rows, and that of the models' join make of each other.

    Noise hides how many rows each value has, so models pull values together, and their join lacks what values with many
    rows in all tables have beyond others. Counted rows lack nothing, and have more noise. Both come from the same noisy
    numbers, so one of them is taken, and weighed by precision against what the join itself shows.
    """
    own = float(np.sqrt(((joined.member_totals - joined.total) ** 2).mean()))
    total, flattened = (None, 0.0) if size is None else (size.total, size.flattened)
    if flattened is None:
        flattened = FLATTENED * (1 - joined.link_certainty) * abs(joined.total - joined.by_chance)
        assert total is not None
        total = replace(total, deviation=math.hypot(total.deviation, UNDER_CAPS * total.noisy))
    models = NoisyTotal(joined.total, max(1.0, math.hypot(own, flattened)))
    unbiased = False
    if joined.counted is not None:
        size_counted, deviation = joined.counted
        counted = NoisyTotal(size_counted, max(1.0, deviation))  # public tables may meet nowhere: then it is certain
        missing = max(0.0, abs(counted.noisy - models.noisy) - counted.deviation)
        if unbiased := counted.deviation < math.hypot(models.deviation, missing):
            models = counted
    if size is None or total is None:
        return models
    models = replace(models, noisy=min(models.noisy, size.most))
    if total.noisy < SHOWS * total.deviation and models.noisy > total.noisy:
        return models  # the join does not show under caps, which may lose nearly all of it
    if abs(total.noisy - models.noisy) > CONTRADICTS * math.hypot(total.deviation, models.deviation):
        # Caps may lose more than they seem to; where next to nothing is pulled together, the models know.
        lost = size.flattened is not None and flattened < own and total.noisy < models.noisy
        return models if lost or unbiased else total
    return total.combined(models)
