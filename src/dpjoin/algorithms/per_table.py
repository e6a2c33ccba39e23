"""Per table, then join: each table is modelled, keys included, with nearly the whole budget, and the models are joined.

Good where few values are heavy, and where joins are small: a row moves one cell by one, however many rows it meets.
What the tables do not tell is the size of the join where frequent values are the same in all of them; a small part of
the budget goes to that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpjoin.algorithms.alone import check_joinable, kept_attributes, measure_alone
from dpjoin.algorithms.as_one import NoisyTotal, domain_of, measure_total
from dpjoin.algorithms.capped import (
    CONTRADICTS,
    Candidate,
    CappedShares,
    best_of_levels,
    capped_shares,
    check_capped,
    measure_ranks,
    measure_whole,
)
from dpjoin.algorithms.meetings import flattened_size, meetings_of
from dpjoin.algorithms.progress import Progress
from dpjoin.algorithms.shares import COUNT_SHARE, round_down
from dpjoin.algorithms.two_table import Outcome
from dpjoin.errors import SpecError
from dpjoin.model.joined import Joined
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.budget import Budget, Concentrated, ConcentratedAccountant
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.partition import Alone, NoisyRanks
from dpjoin.privacy.public_bounds import bound_is_public
from dpjoin.schema import Schema
from dpjoin.workload import Workload

MOST_CELLS = 2**22
"""Of one table's model."""
FLATTENED = 0.35
"""Where ranks do not tell what a join of models lacks: about which share of what it has beyond rows that meet by
chance, if the models tell nothing apart."""
UNDER_CAPS = 0.3
"""There, how far off the size under caps may be beyond its noise, as a share: what caps lose is judged for each meeting
of tables by itself."""


def check_per_table(schema: Schema, workload: Workload | None = None) -> None:
    """Refuse what cannot be modelled table by table, given the workload also what is too large."""
    if len(schema.tables) < 2 or len(schema.private_tables) < len(schema.tables):
        raise SpecError("method 'per_table' must have two or more tables, all private; use auto")
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

    accountant: ConcentratedAccountant
    look: CappedShares | None
    """What tells where to cap; None where nothing is capped."""
    count: Concentrated | None
    """The size of the join; None where it is that of the models' join."""


def per_table_shares(budget: Budget, schema: Schema) -> PerTableShares:
    try:
        check_capped(schema)
    except SpecError:
        accountant = ConcentratedAccountant(budget)
        count = Concentrated(round_down(accountant.rho * COUNT_SHARE))
        return PerTableShares(accountant, None, count if bound_is_public(schema) else None)
    look = capped_shares(budget, schema)
    return PerTableShares(look.accountant, look, look.count)


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
    size = None
    if shares.look is not None and shares.count is not None:
        progress("size", 0, 2)
        ranks = measure_ranks(curator, shares.look.ranks)
        progress("size", 1, 2)
        best = best_of_levels(curator, workload, ranks, shares.look.size)
        size = size_under_caps(curator, workload, ranks, best, shares.count)
        progress("size", 2, 2)
    elif shares.count is not None:
        bound = curator.public_bound()
        assert bound is not None, "declared bounds were seen to serve"
        size = Size(measure_total(curator, bound, shares.count.rho), None)
    return release_tables(curator, workload, size, progress)


def size_under_caps(
    curator: Curator, workload: Workload, ranks: Sequence[NoisyRanks], best: Candidate, cost: Concentrated
) -> Size:
    """The size of the join by one more look under caps, and what ranks tell of how a join of models will compare."""
    total, schema = measure_whole(best.among, cost), workload.schema
    meetings = meetings_of(schema, ranks, max(1.0, total.noisy))
    flattened = flattened_size(schema, meetings, size=total.noisy, rho=curator.rho_left)
    return Size(total, flattened, best.among[0].most)


def release_tables(curator: Curator, workload: Workload, size: Size | None, progress: Progress) -> Outcome:
    """A model of each table, joined. A row pays in its own table only, so each table spends all that is left."""
    schema = curator.schema
    parts = {f"table {t.name}": Alone(t.name, kept_attributes(workload, t.name, ())) for t in schema.tables}
    costs = [Concentrated(curator.rho_left)] * len(parts)
    alone = dict(zip((t.name for t in schema.tables), curator.restrict("tables", parts, costs), strict=True))
    with one_blas_thread():
        models = measure_alone(workload, alone, (), listed=False, progress=progress)
        joined = Joined(domain_of(workload), models)
        strategy = f"{len(models)} tables, each with all that is left"
        if size is not None:
            likely = likely_total(joined, size)
            joined = joined.resized(max(1.0, likely.noisy), likely.deviation)
            strategy += ", scaled to the size of the join"
    return Outcome(joined, 1, max(1, round(joined.total)), strategy)


def likely_total(joined: Joined, size: Size) -> NoisyTotal:
    """What the size of the join and that of the models' join make of each other, by precision.

    Noise hides how many rows each value has, so models pull values together, and their join lacks what values with many
    rows in all tables have beyond others. Nothing in the tables shows how much that is: the join itself does.
    """
    own = float(np.sqrt(((joined.member_totals - joined.total) ** 2).mean()))
    total, flattened = size.total, size.flattened
    if flattened is None:
        flattened = FLATTENED * (1 - joined.told_apart) * abs(joined.total - joined.by_chance)
        total = replace(total, deviation=math.hypot(total.deviation, UNDER_CAPS * total.noisy))
    models = NoisyTotal(min(joined.total, size.most), max(1.0, math.hypot(own, flattened)))
    if abs(total.noisy - models.noisy) > CONTRADICTS * math.hypot(total.deviation, models.deviation):
        return total
    return total.combined(models)
