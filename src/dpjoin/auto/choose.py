"""The default: a small look at what degrees are like decides between capping, the hybrids, and table by table.

The look is what `capped` begins with: noisy ranks of each table, and noisy join sizes under a few caps. From these the
error of every method that can serve is worked out, and the one that promises least runs with all that is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from dpjoin.auto.forecast import common_degrees, hybrid_error, likely_bound, rounded
from dpjoin.errors import SpecError
from dpjoin.measure.half_widths import half_width
from dpjoin.measure.join import is_large, measure_join
from dpjoin.measure.progress import Progress
from dpjoin.measure.ranks import aligned_size
from dpjoin.measure.shares import COUNT_SHARE, GAUGE_SHARE, PartitionShares, round_down
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods.as_one import Outcome, as_one_name
from dpjoin.methods.capped import (
    ALIGNED,
    RANKS_SHARE,
    SIZES_SHARE,
    Candidate,
    FirstLook,
    Levels,
    best_level,
    measure_first_size,
    measure_levels,
    measure_ranks,
    predicted_noise,
    release_candidate,
    split_capped,
)
from dpjoin.methods.correlation import (
    alignments,
    by_chance,
    key_error,
    meetings_of,
    per_table_error,
    public_degrees,
)
from dpjoin.methods.finish import Finish, exchanged, finishes, joinable, laplace_finish
from dpjoin.methods.hybrid import check_hybrid, hybrid_tight
from dpjoin.methods.keyed import KeyedShares, check_keyed, keyed_choice, release_keyed, split_keyed
from dpjoin.methods.parts import fitted_noise, size_noise
from dpjoin.methods.per_table import SHOWS, check_per_table, clear_error, release_tables, size_under_caps
from dpjoin.model.threads import one_blas_thread
from dpjoin.paper.alg4_uniformize import common_attributes
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public
from dpjoin.privacy.parts import NoisyRanks
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

ASIDE = Fraction(1, 64)
"""Of delta, for the hybrid's degrees or a noisy bound, should they run. Other ways need none, and leave it unspent: so
little is set aside that this hardly costs them anything, and the degrees' shift grows by a tenth only."""
DEGREES_SHARE = Fraction(30, 100)
"""Of rho, for the hybrid's degrees, or for a noisy bound."""
HYBRID_GAIN = 1.5
"""How much less the hybrid must promise: its heavy values have larger single errors than noise that is the same
everywhere."""
CAPPED_GAIN = 1.2
"""Likewise, against `keyed`: hot values that caps cut are the largest errors."""

PER_TABLE_GAIN = 1.15
"""Likewise for `per_table` against `keyed`, under Laplace noise: values that it drowns are among its largest errors."""

CLEAR_GAIN = 1.4
"""Where all values are clear, the forecast of `per_table` is too high: by so much it may promise more than `keyed`."""

DECLARED_GAIN = 1.2
"""Likewise for declared bounds, which cut nothing and find nothing out."""

NO_SHAPE = 0.3
"""The error of `capped`, as a share of the size, where the join does not show under caps."""


@dataclass(frozen=True)
class AutoShares:
    """The split of `auto`: the look, then whatever is chosen takes the rest."""

    split: Split
    ranks: Concentrated
    size: Concentrated
    count: Concentrated
    hybrid: PartitionShares | None
    """None where the hybrid cannot serve."""
    keyed: KeyedShares
    first: FirstLook | None = None
    bound: Concentrated | None = None
    """One noisy bound for the whole join, if caps tell nothing of it; None where a bound is public."""
    bound_width: int | None = None


def auto_shares(budget: Budget, schema: Schema) -> AutoShares:
    """Split a budget; delta is set aside where a noisy bound or the hybrid may need it."""
    hybrid_serves, bound_needed = serves(check_hybrid, schema), not bound_is_public(schema)
    aside = budget.exact.delta * ASIDE if hybrid_serves or bound_needed else Fraction(0)
    split = Split(budget=budget, truncation_delta=aside)
    look = split_capped(split, schema)
    several = len(schema.tables) > 2

    def one_sided(share: Fraction, delta: Fraction) -> tuple[Concentrated, int]:
        cost = Concentrated(round_down(split.rho * share), delta)
        return cost, half_width(budget.composition, cost.rho, delta, moves=1)

    left = split.rho * (1 - RANKS_SHARE - SIZES_SHARE)
    count = Concentrated(round_down(left * COUNT_SHARE))
    hybrid = None
    if hybrid_serves:
        degrees, width = one_sided(DEGREES_SHARE, aside / (2 if several else 1))
        gauge, gauge_width = one_sided(GAUGE_SHARE, aside / 2) if several else (None, None)
        hybrid = PartitionShares(split, degrees, width, gauge, gauge_width, count)
    bound, bound_width = one_sided(DEGREES_SHARE, aside) if bound_needed else (None, None)
    keyed = split_keyed(split, RANKS_SHARE + SIZES_SHARE)
    return AutoShares(split, look.ranks, look.size, count, hybrid, keyed, look.first, bound, bound_width)


def auto_tight(curator: Curator, workload: Workload, shares: AutoShares, progress: Progress) -> Outcome:
    """Look, decide, release. Spends all of rho, whatever is chosen."""
    schema = curator.schema
    progress("caps", 0, 2)
    ranks: list[NoisyRanks] = []
    if shares.first is not None:
        ranks = measure_ranks(curator, shares.first.ranks)
        early = None
        if joinable(curator.schema):
            size = measure_first_size(curator, workload, ranks, shares.first.size)
            early = early_choice(curator, workload, shares, ranks, size)
        if early is not None:
            if early.method == "keyed":
                outcome = release_keyed(curator, workload, shares.keyed, ranks, early.finish, progress)
            elif early.method == "per_table":
                curator.exchange()
                outcome = release_tables(curator, workload, None, progress, ranks, early.known)
            else:
                count = exchanged(curator, early.finish, shares.count)
                outcome = _as_one(curator, workload, shares, count, progress)
            return replace(outcome, method=early.method, predicted=rounded(early.errors))
    ranks = measure_ranks(curator, shares.ranks, before=ranks)
    progress("caps", 1, 2)
    levels = measure_levels(curator, workload, ranks, shares.size)
    progress("caps", 2, 2)
    ways = [predicted_errors(curator, workload, shares, ranks, levels, f) for f in finishes(curator, workload)]
    way = min(ways, key=lambda w: min(w.errors.values(), default=math.inf))
    method, finish = min(way.errors, key=way.errors.__getitem__), way.finish
    if method == "capped" and not shows(levels.whole):
        method = _method_without_caps(shares, workload)
    if method == "hybrid":
        assert shares.hybrid is not None
        outcome = hybrid_tight(curator, workload, shares.hybrid, progress)
    elif method == "keyed":
        outcome = release_keyed(curator, workload, shares.keyed, ranks, finish, progress)
    elif method == "per_table":
        count = exchanged(curator, finish, shares.count)
        under_caps = size_under_caps(curator, workload, ranks, levels.candidates, count, rho=finish.alone)
        known = alignments(curator.schema, ranks, levels.whole, public_degrees(curator))
        outcome = release_tables(curator, workload, under_caps, progress, ranks, known)
    elif method == as_one_name(schema):
        outcome = _as_one(curator, workload, shares, exchanged(curator, finish, shares.count), progress)
    else:
        outcome = release_candidate(way.best, workload, shares.count, progress)
    predicted = {name: min(w.errors.get(name, math.inf) for w in ways) for w in ways for name in w.errors}
    return replace(outcome, method=method, predicted=rounded(predicted))


@dataclass(frozen=True)
class Early:
    """What a first look settles."""

    method: str
    finish: Finish
    errors: Mapping[str, float]
    known: tuple[float, float]
    """Between which degrees frequent values are the same in all tables."""


def early_choice(
    curator: Curator, workload: Workload, shares: AutoShares, ranks: list[NoisyRanks], size: NoisyTotal
) -> Early | None:
    """Where a first look shows that Laplace noise is better than anything else; None where it takes a closer look.

    That is so where noise leaves every table clear, or the same values are frequent in all of them and `keyed` promises
    less than it could with Gaussian noise, with or without heavy values, or each table alone; or where declared bounds
    promise less than all of these. By noisy numbers alone.
    """
    schema = curator.schema
    gaussian, *rest = finishes(curator, workload)
    if not rest:
        return None
    (laplace,) = rest
    public = public_degrees(curator)
    known, likely = alignments(schema, ranks, size, public), meetings_of(schema, ranks, max(1.0, size.noisy), public)
    errors: dict[str, float] = {}
    finishing = (gaussian, laplace_finish(workload, min(o.epsilon for o in curator.options)))
    later: list[float] = []
    mixed = False
    if likely and serves(lambda s: check_per_table(s, workload), schema):
        later += [per_table_error(workload, likely, size=size.noisy, rho=f.alone) for f in finishing]
        if (error := clear_error(curator, workload, ranks, known)) is not None:
            errors["per_table"] = error
    degrees = common_degrees(schema, ranks)
    if likely and known[1] >= ALIGNED and degrees and serves(check_keyed, schema):
        off = {f: size.noisy * key_error(workload, likely, f.alone) for f in (gaussian, laplace)}
        # With no heavy values: `capped`.
        later.append(keyed_choice(workload, degrees, shares.keyed, gaussian).error + off[gaussian])
        chosen = keyed_choice(workload, degrees, shares.keyed, laplace)
        if chosen.heavy < schema.cells(common_attributes(schema)):  # all heavy: `per_table` with less to spend
            errors["keyed"] = chosen.error + off[laplace]
            mixed = chosen.heavy > 0
        if (bounded := _declared_error(curator, workload, size.noisy, laplace)) is not None:
            errors[as_one_name(schema)] = bounded
    by_table, by_key = errors.get("per_table", math.inf), errors.get("keyed", math.inf)
    if errors.get(as_one_name(schema), math.inf) < DECLARED_GAIN * min(by_table, by_key, *later):
        return Early(as_one_name(schema), laplace, errors, known)
    if by_table < CLEAR_GAIN * by_key:
        return Early("per_table", laplace, errors, known)
    sure = mixed and likely[0].aligned >= ALIGNED and shows(size)
    return Early("keyed", laplace, errors, known) if sure and by_key < min(later) else None


def _declared_error(curator: Curator, workload: Workload, size: float, finish: Finish) -> float | None:
    """What it promises on a join of this size; None where declared bounds do not serve."""
    if (declared := curator.public_bound()) is None:
        return None
    noise = fitted_noise(workload, bound=declared.value, size=max(1.0, size), rho=finish.whole)
    return noise + size_noise(declared.value, finish.whole)


def _as_one(
    curator: Curator, workload: Workload, shares: AutoShares, count: Concentrated, progress: Progress
) -> Outcome:
    """The join as one table, with the bound that declared ones give, or else a noisy one: no row goes."""
    bound = curator.public_bound()
    if bound is None:
        assert shares.bound is not None, "a noisy bound was planned"
        bound = curator.sensitivity_bound(shares.bound, half_width=shares.bound_width)
    with one_blas_thread():
        total = measure_total(curator, bound, count)
        model, strategy = measure_join(curator, workload, bound, total, progress)
    return Outcome(model, bound.value, round(model.total), strategy)


def shows(size: NoisyTotal) -> bool:
    """Whether a join shows under caps. Where it does not, it may be empty, or they may lose nearly all of it."""
    return size.noisy >= SHOWS * size.deviation


def _method_without_caps(shares: AutoShares, workload: Workload) -> str:
    """What serves a join that does not show under caps: methods whose noise goes by degrees as they are."""
    hybrid_serves = shares.hybrid is not None and not is_large(workload)
    return "hybrid" if hybrid_serves and shares.bound is not None else as_one_name(workload.schema)


@dataclass(frozen=True, eq=False)
class Way:
    """What to expect of each method, in join results, if the budget is finished so; and the best caps then."""

    finish: Finish
    best: Candidate
    errors: Mapping[str, float]


def predicted_errors(
    curator: Curator,
    workload: Workload,
    shares: AutoShares,
    ranks: list[NoisyRanks],
    levels: Levels,
    finish: Finish,
) -> Way:
    """The error that each method promises: a function of noisy numbers alone."""
    best = best_level(workload, levels, finish.pushed)
    schema, predicted = curator.schema, {"capped": best.error}
    if (error := _declared_error(curator, workload, best.total.noisy + best.lost.noisy, finish)) is not None:
        predicted[as_one_name(schema)] = error
    elif shares.bound is not None and shares.bound_width is not None and ranks and not finish.laplace:
        bound = likely_bound(schema, ranks, shares.bound_width)
        size, left = max(1.0, best.total.noisy + best.lost.noisy), curator.rho_left - shares.bound.rho
        noise = fitted_noise(workload, bound=bound, size=size, rho=left) + size_noise(bound, left)
        predicted[as_one_name(schema)] = noise
    # What several models add up to must be written down; a join of models need not.
    degrees = {} if is_large(workload) else common_degrees(schema, ranks)
    if degrees and shares.hybrid is not None and not finish.laplace:  # its degrees cost more rho than that leaves
        left = curator.rho_left - shares.hybrid.degrees.rho - (shares.hybrid.bound.rho if shares.hybrid.bound else 0)
        size = max(1.0, best.total.noisy + best.lost.noisy)
        aligned = size > ALIGNED * aligned_size(list(degrees.values()))
        width = shares.hybrid.degrees_width
        error = hybrid_error(workload, degrees, half_width=width, rho=left, aligned=aligned, size=size)
        predicted["hybrid"] = HYBRID_GAIN * error
    if degrees and serves(check_keyed, schema):
        chosen = keyed_choice(workload, degrees, shares.keyed, finish)
        if chosen.heavy:  # else it would be `capped` with less to spend
            size = max(1.0, levels.whole.noisy)
            met = meetings_of(schema, ranks, size)
            predicted["keyed"] = chosen.error + size * key_error(workload, met, finish.alone)
            predicted["capped"] *= CAPPED_GAIN
    if serves(lambda s: check_per_table(s, workload), schema):
        whole = levels.whole
        size = max(1.0, whole.noisy)
        meetings = meetings_of(schema, ranks, size, public_degrees(curator))
        if not shows(whole):
            # It may be far smaller than it seems under caps, and has no shape there.
            least = min(whole.deviation, by_chance(schema, meetings)) if meetings else 1.0
            size = max(1.0, least, whole.noisy - whole.deviation)
            error = max(NO_SHAPE * size, predicted_noise(workload, best, finish.pushed, size=size))
            predicted["capped"] = max(predicted["capped"], error)
        if meetings:
            predicted["per_table"] = per_table_error(workload, meetings, size=size, rho=finish.alone)
            if finish.laplace and "keyed" in predicted:
                predicted["per_table"] *= PER_TABLE_GAIN
    if finish.laplace:
        # Where rows are capped, Laplace noise grows by √2 more, and what is left of rho tells too little of the size.
        del predicted["capped"]
    return Way(finish, best, predicted)


def serves(check: Callable[[Schema], None], schema: Schema) -> bool:
    """Whether a check refuses nothing."""
    try:
        check(schema)
    except SpecError:
        return False
    return True
