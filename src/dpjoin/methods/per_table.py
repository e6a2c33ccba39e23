"""Per table, then join: each table is modelled, keys included, with nearly the whole budget, and the models are joined.

Good where few values are heavy, and where joins are small: a row moves one cell by one, however many rows it meets.
What the tables do not tell is the size of the join where frequent values are the same in all of them; a small part of
the budget goes to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dpjoin import constants
from dpjoin.errors import SpecError
from dpjoin.measure.join import domain_of
from dpjoin.measure.laplace import ANY_CORRELATION, ByValue
from dpjoin.measure.progress import Progress
from dpjoin.measure.ranks import degree_sequence, rows_beyond
from dpjoin.measure.shares import tight_shares
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods.capped import check_capped, look_stages
from dpjoin.methods.correlated_degrees import (
    correlation_range,
    counted_deviation,
    is_berge_cyclic,
    key_degrees,
    lost_to_noise,
    per_table_error,
    public_degrees,
    size_by_chance,
    size_shrinkage,
)
from dpjoin.methods.look import Look, LookShares, closer_look, count_after_look, first_look, look_shares, place
from dpjoin.methods.method import GAUSSIAN_NOISE, LAPLACE_NOISE, Method, Outcome, Stage
from dpjoin.methods.refusals import check_rows_known
from dpjoin.methods.remainder import Remainder, exchanged, for_tables, laplace_remainder, remainders, rest_of
from dpjoin.methods.table_models import check_joinable, kept_attributes, measure_tables, public_model
from dpjoin.model.joined import Joined
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public
from dpjoin.privacy.owners import rows_per_owner
from dpjoin.privacy.parts import OneTable
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

TABLE_CELLS = 2**22
"""Of one table's model."""


def check_per_table(schema: Schema, workload: Workload | None = None) -> None:
    """Refuse what cannot be modelled table by table, given the workload also what is too large."""
    if len(schema.tables) < 2:
        raise SpecError("method 'per_table' must have two or more tables; use auto")
    check_joinable(schema, schema.join_attributes, "per_table")
    check_rows_known(schema, "per_table")
    if met := [t.name for t in schema.tables if t.private and t.owners is not None]:
        raise SpecError(f"method 'per_table' must find an owner in table {met[0]!r} itself; use method 'clipped'")
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
        if cells > TABLE_CELLS:
            raise SpecError(
                f"the model of table {table.name!r} would have {cells:,} cells ({', '.join(kept)}), which must be at "
                f"most {TABLE_CELLS:,}; use coarser domains, or method 'heavy_light'"
            )


@dataclass(frozen=True)
class PerTableShares:
    """The split: a look at the size of the join, where caps or declared bounds allow one; the rest is each table's."""

    split: Split
    look: LookShares | None
    """None where nothing is capped."""
    count: Concentrated | None
    """The size of the join; None where it is that of the models' join."""


def per_table_shares(budget: Budget, schema: Schema) -> PerTableShares:
    if schema.unit:  # who may have rows in every table: nothing is measured of single rows
        return PerTableShares(Split(budget=budget), None, None)
    try:
        check_capped(schema)
    except SpecError:
        whole = tight_shares(budget, noisy_bound=False)
        return PerTableShares(whole.split, None, whole.count if bound_is_public(schema) else None)
    return after_look_shares(Split(budget=budget), schema)


def after_look_shares(split: Split, schema: Schema) -> PerTableShares:
    return PerTableShares(split, look_shares(split, schema), count_after_look(split))


def stages(shares: PerTableShares, workload: Workload) -> tuple[Stage, ...]:
    split, found = shares.split, list[Stage]()
    if shares.look is not None:
        found += look_stages(split, shares.look, workload.schema, "of the join")
    mechanism = LAPLACE_NOISE if split.laplace else GAUSSIAN_NOISE
    if shares.count is not None:
        share = shares.count.epsilon / split.laplace if split.laplace else shares.count.rho / split.rho
        found.append(Stage("join size", mechanism, float(share), "unbiased"))
    left = 1 - sum(s.share for s in found)
    count = left * float(constants.COUNT_SHARE)
    return (
        *found,
        Stage("sizes", mechanism, count, "of each table: a row is in one, so each has all of it"),
        Stage("queries", mechanism, left - count, "each table's marginals, with its join attributes"),
    )


@dataclass(frozen=True, eq=False)
class Size:
    """The size of the join, measured on the join itself, and by how much a join of models is likely to be smaller."""

    total: NoisyTotal
    shrinkage: float | None
    """None: ranks do not tell."""
    most: float = math.inf
    """No join is larger."""


def per_table_tight(curator: Curator, workload: Workload, shares: PerTableShares, progress: Progress) -> Outcome:
    """The `tight` profile: a look at the join's size, then the tables."""
    check_per_table(curator.schema, workload)
    if shares.look is None:
        size = None
        if shares.count is not None:
            bound = curator.public_bound()
            assert bound is not None, "declared bounds were seen to serve"
            size = Size(measure_total(curator, bound, shares.count), None)
        return release_tables(Look(curator, workload, (), NoisyTotal(1.0, math.inf)), size, progress)
    look = None
    if shares.look.first_ranks is not None:
        look = first_look(curator, workload, shares.look)
        now = remainders(curator, workload)[-1]
        if now.laplace and clear_error(look, now) is not None:
            return release_per_table(look, now, shares, progress)
    look = closer_look(curator, workload, shares.look, look)
    left = max(remainders(curator, workload), key=lambda way: way.one_table)
    return release_per_table(look, left, shares, progress)


def forecast(look: Look, left: Remainder, shares: PerTableShares) -> float | None:
    """After a first look, with Laplace noise: only where all tables are well above the noise."""
    schema, size, early = look.curator.schema, max(1.0, look.size.noisy), look.levels is None
    if early and left.laplace and look.curator.offer is not None and left.epsilon == look.curator.offer.epsilon:
        error = clear_error(look, left)
        return None if error is None else error / constants.CLEAR_GAIN
    keys = key_degrees(schema, look.ranks, size, public_degrees(look.curator))
    if not keys:
        return None
    if not early and not look.visible:  # it may be far smaller than it seems under caps
        least = min(look.size.deviation, size_by_chance(schema, keys))
        size = max(1.0, least, look.size.noisy - look.size.deviation)
    return per_table_error(look.workload, keys, size=size, rho=left.one_table)


def clear_error(look: Look, left: Remainder) -> float | None:
    """The error to expect where a first look shows that noise leaves every table clear, in join results; else None.

    How correlated degrees are is known to lie in a range: it must be clear at both ends. Then the size of the join is
    what the tables counted, and there is nothing else to look at.
    """
    workload, schema, public = look.workload, look.workload.schema, public_degrees(look.curator)
    if is_berge_cyclic(schema):
        return None
    rho, errors = left.one_table, []
    for r in look.ranks:
        cells = schema.cells(kept_attributes(workload, place(r)[0], ()))
        if cells / math.sqrt(2 * float(rho)) > constants.NOISE_OVER_TABLE * float(rows_beyond(r)[0]):
            return None
    for correlation in correlation_range(schema, look.ranks, look.size, public):
        found = [replace(k, correlation=correlation) for k in key_degrees(schema, look.ranks, 1.0, public)]
        if len(found) != 1:
            return None
        size = found[0].size
        error = per_table_error(workload, found, size=size, rho=rho)
        if (
            size <= 0
            or counted_deviation(workload, found[0], rho=rho) > constants.MISCOUNTED * size
            or error > constants.CLEAR_ERROR * size
        ):
            return None
        errors.append(error)
    return errors[-1]


def release_per_table(look: Look, left: Remainder, shares: PerTableShares, progress: Progress) -> Outcome:
    """After a look: one more measurement of the join's size, unless a first look has shown that tables tell it."""
    assert shares.count is not None
    count, size = exchanged(look.curator, left, shares.count), None
    if look.levels is not None:
        size = size_under_caps(look, count, rho=left.one_table)
    return release_tables(look, size, progress)


def size_under_caps(look: Look, cost: Concentrated, *, rho: Fraction) -> Size:
    """The size of the join by one more measurement under caps, and how a join of models is likely to compare.

    `rho` is what the models' noise will be worth.
    """
    assert look.levels is not None
    levels = look.levels.measured_again(look.levels.most_telling(cost.rho), cost.rho)
    total, schema = levels.whole, look.workload.schema
    keys = key_degrees(schema, look.ranks, max(1.0, total.noisy), public_degrees(look.curator))
    return Size(total, size_shrinkage(schema, keys, size=total.noisy, rho=rho), levels.most)


def release_tables(look: Look, size: Size | None, progress: Progress) -> Outcome:
    """A model of each table, joined. A row pays in its own table only, so each table spends all that is left."""
    curator, workload, schema = look.curator, look.workload, look.curator.schema
    names, public = schema.private_tables, public_degrees(curator)
    known = correlation_range(schema, look.ranks, look.size, public) if look.ranks else ANY_CORRELATION
    by_rank: dict[str, list[ByValue]] = {}
    for r in look.ranks:
        seen = ByValue(schema.in_order(r.question.by), degree_sequence(r), known)
        by_rank.setdefault(place(r)[0], []).append(seen)
    models = {t.name: public_model(curator.public_counts, workload, t.name) for t in schema.tables if not t.private}
    parts = {f"table {name}": OneTable(name, kept_attributes(workload, name, ())) for name in names}
    rest = rest_of(curator)
    if schema.unit:  # a person pays in every table
        rest = Concentrated(rest.rho / len(parts))
    single = dict(zip(names, curator.restrict("tables", parts, [rest] * len(parts)), strict=True))
    with one_blas_thread():
        found = measure_tables(workload, single, (), listed=False, progress=progress, by_rank=by_rank)
        models |= dict(zip(names, found, strict=True))
        joined = Joined(domain_of(workload), tuple(models[t.name] for t in schema.tables))
        strategy = "the private table" if len(names) == 1 else f"{len(names)} tables, each"
        strategy += " with its share" if schema.unit else " with all that is left"
        if size is not None or joined.counted is not None:
            likely = likely_total(joined, size)
            joined = joined.resized(max(1.0, likely.noisy), likely.deviation)
            strategy += ", scaled to the size of the join"
        keys = key_degrees(schema, look.ranks, max(1.0, joined.total), public)
        worth = laplace_remainder(workload, rest.epsilon).one_table if rest.epsilon else rest.rho
        joined = unsure_of_shapes(joined, constants.HIDDEN_SHAPE * lost_to_noise(workload, keys, worth))
    most = max(rows_per_owner(schema).values(), default=1) if schema.unit else 1
    return Outcome(joined, most, max(1, round(joined.total)), strategy)


def unsure_of_shapes(joined: Joined, by: float) -> Joined:
    """With members in which any value of an attribute is more or less frequent, by this much as a logarithm.

    Members tell how far noise may be off. Where it hides what tables say of single values, models know nothing of how
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
    """The size of the join, as measured on it, by counted rows, and as the models' join has it, weighed.

    Noise hides how many rows each value has, so models pull values together, and their join lacks what values with many
    rows in all tables have beyond others. Counted rows lack nothing, and have more noise. Both come from the same noisy
    numbers, so one of them is taken, and weighed by precision against what the join itself shows.
    """
    own = float(np.sqrt(((joined.member_totals - joined.total) ** 2).mean()))
    total, shrinkage = (None, 0.0) if size is None else (size.total, size.shrinkage)
    if shrinkage is None:
        shrinkage = constants.FLATTENED * (1 - joined.link_certainty) * abs(joined.total - joined.by_chance)
        assert total is not None
        total = replace(total, deviation=math.hypot(total.deviation, constants.UNDER_CAPS * total.noisy))
    models = NoisyTotal(joined.total, max(1.0, math.hypot(own, shrinkage)))
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
    if total.noisy < constants.VISIBLE * total.deviation and models.noisy > total.noisy:
        return models  # the join does not stand out under caps, which may lose nearly all of it
    if abs(total.noisy - models.noisy) > constants.CONTRADICTS * math.hypot(total.deviation, models.deviation):
        # Caps may lose more than they seem to; where next to nothing is pulled together, the models know.
        lost = size.shrinkage is not None and shrinkage < own and total.noisy < models.noisy
        return models if lost or unbiased else total
    return total.combined(models)


PER_TABLE = Method(
    name="per_table",
    why=lambda _: (
        "each table is modelled, keys included, with all but a little for the join's size; the models are joined"
    ),
    check=check_per_table,
    spendable=for_tables,
    split=per_table_shares,
    split_after_look=after_look_shares,
    stages=stages,
    run=per_table_tight,
    forecast=forecast,
    resume=release_per_table,
    one_model=True,
    reads_public_bounds=True,
)
