"""The default: a small look at what degrees are like decides between capping, the hybrids, and table by table.

The look is what `capped` begins with: noisy ranks of each table, and noisy join sizes under a few caps. From these the
error of every method that can serve is worked out, and the one that promises least runs with all that is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from dpjoin.algorithms.as_one import is_large, measure_join, measure_total
from dpjoin.algorithms.capped import (
    ALIGNED,
    RANKS_SHARE,
    SIZES_SHARE,
    Candidate,
    best_of_levels,
    capped_shares,
    measure_ranks,
    predicted_noise,
    release_candidate,
    whole_size,
)
from dpjoin.algorithms.forecast import common_degrees, hybrid_error
from dpjoin.algorithms.hybrid import check_hybrid, hybrid_tight
from dpjoin.algorithms.keyed import KeyedShares, best_choice, check_keyed, release_keyed, split_keyed
from dpjoin.algorithms.meetings import by_chance, meetings_of, per_table_error
from dpjoin.algorithms.parts import fitted_noise, size_noise
from dpjoin.algorithms.per_table import check_per_table, release_tables, size_under_caps
from dpjoin.algorithms.progress import Progress
from dpjoin.algorithms.ranks import aligned_size
from dpjoin.algorithms.shares import COUNT_SHARE, GAUGE_SHARE, PartitionShares, round_down
from dpjoin.algorithms.two_table import Outcome
from dpjoin.algorithms.uniformize import common_attributes
from dpjoin.errors import SpecError
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.budget import Budget, Concentrated, ConcentratedAccountant
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.partition import NoisyRanks
from dpjoin.schema import Schema
from dpjoin.workload import Workload

ASIDE = Fraction(1, 64)
"""Of delta, for the hybrid's degrees, should it run. Other ways need none, and leave it unspent: so little is set aside
that this hardly costs them anything, and the degrees' shift grows by a tenth only."""
DEGREES_SHARE = Fraction(30, 100)
"""Of rho, for the hybrid's degrees."""
HYBRID_GAIN = 1.5
"""How much less the hybrid must promise: its heavy values have larger single errors than noise that is the same
everywhere."""
CAPPED_GAIN = 1.2
"""Likewise, against `keyed`: hot values that caps cut are the largest errors."""

SHOWS, NO_SHAPE = 2.0, 0.3
"""By how many deviations a join must show under caps for `capped` to learn its shape, and the error, as a share of the
size, where it does not."""


@dataclass(frozen=True)
class AutoShares:
    """The split of `auto`: the look, then whatever is chosen takes the rest."""

    accountant: ConcentratedAccountant
    ranks: Concentrated
    size: Concentrated
    count: Concentrated
    hybrid: PartitionShares | None
    """None where the hybrid cannot serve."""
    keyed: KeyedShares


def auto_shares(budget: Budget, schema: Schema) -> AutoShares:
    """Split a budget; delta is set aside only where the hybrid may need it."""
    if not _serves(check_hybrid, schema):
        capped = capped_shares(budget, schema)
        keyed = split_keyed(capped.accountant, RANKS_SHARE + SIZES_SHARE)
        return AutoShares(capped.accountant, capped.ranks, capped.size, capped.count, None, keyed)
    aside = budget.exact.delta * ASIDE
    accountant = ConcentratedAccountant(budget, truncation_delta=aside)
    look = capped_shares(budget, schema)
    several = len(schema.tables) > 2

    def one_sided(share: Fraction, delta: Fraction) -> tuple[Concentrated, int]:
        cost = Concentrated(round_down(accountant.rho * share), delta)
        return cost, budget.composition.half_width(cost.rho, delta, moves=1)

    degrees, width = one_sided(DEGREES_SHARE, aside / (2 if several else 1))
    gauge, gauge_width = one_sided(GAUGE_SHARE, aside / 2) if several else (None, None)
    left = accountant.rho * (1 - RANKS_SHARE - SIZES_SHARE)
    count = Concentrated(round_down(left * COUNT_SHARE))
    hybrid = PartitionShares(accountant, degrees, width, gauge, gauge_width, count)
    keyed = split_keyed(accountant, RANKS_SHARE + SIZES_SHARE)
    return AutoShares(accountant, look.ranks, look.size, count, hybrid, keyed)


def auto_tight(curator: Curator, workload: Workload, shares: AutoShares, progress: Progress) -> Outcome:
    """Look, decide, release. Spends all of rho, whatever is chosen."""
    progress("caps", 0, 2)
    ranks = measure_ranks(curator, shares.ranks)
    progress("caps", 1, 2)
    best = best_of_levels(curator, workload, ranks, shares.size)
    progress("caps", 2, 2)
    predicted = predicted_errors(curator, workload, shares, ranks, best)
    method = min(predicted, key=predicted.__getitem__)
    if method == "hybrid":
        assert shares.hybrid is not None
        outcome = hybrid_tight(curator, workload, shares.hybrid, progress)
    elif method == "keyed":
        own = [r for r in ranks if r.question.by == common_attributes(curator.schema)]
        outcome = release_keyed(curator, workload, shares.keyed, own, progress)
    elif method == "per_table":
        size = size_under_caps(curator, workload, ranks, best, shares.count)
        outcome = release_tables(curator, workload, size, progress)
    elif method == _declared(curator.schema):
        outcome = _as_declared(curator, workload, shares.count, progress)
    else:
        outcome = release_candidate(best, workload, shares.count, progress)
    return replace(outcome, method=method, predicted={name: float(f"{e:.3g}") for name, e in predicted.items()})


def _declared(schema: Schema) -> str:
    """What the method with declared bounds alone is called."""
    return "two_table" if len(schema.tables) == 2 else "multi_table"


def _as_declared(curator: Curator, workload: Workload, count: Concentrated, progress: Progress) -> Outcome:
    """The join as one table, with the bound that declared ones give: no row goes."""
    bound = curator.public_bound()
    assert bound is not None, "declared bounds were seen to serve"
    with one_blas_thread():
        total = measure_total(curator, bound, count.rho)
        model, strategy = measure_join(curator, workload, bound, total, progress)
    return Outcome(model, bound.value, round(model.total), strategy)


def predicted_errors(
    curator: Curator, workload: Workload, shares: AutoShares, ranks: list[NoisyRanks], best: Candidate
) -> dict[str, float]:
    """The error that each method promises, in join results: a function of noisy numbers alone."""
    schema, predicted = curator.schema, {"capped": best.error}
    if (declared := curator.public_bound()) is not None:
        size, rho = max(1.0, best.total.noisy + best.lost.noisy), curator.rho_left
        noise = fitted_noise(workload, bound=declared.value, size=size, rho=rho)
        predicted[_declared(schema)] = noise + size_noise(declared.value, rho)
    # What several models add up to must be written down; a join of models need not.
    rho, degrees = curator.rho_left, {} if is_large(workload) else common_degrees(schema, ranks)
    if degrees and shares.hybrid is not None:
        left = rho - shares.hybrid.degrees.rho - (shares.hybrid.bound.rho if shares.hybrid.bound else 0)
        aligned = best.total.noisy + best.lost.noisy > ALIGNED * aligned_size(list(degrees.values()))
        width = shares.hybrid.degrees_width
        error = hybrid_error(workload, degrees, half_width=width, rho=left, aligned=aligned)
        predicted["hybrid"] = HYBRID_GAIN * error
    if degrees and _serves(check_keyed, schema):
        chosen = best_choice(workload, degrees, degrees_cost=shares.keyed.degrees, rho=rho - shares.keyed.degrees.rho)
        if chosen.heavy:  # else it would be `capped` with less to spend
            predicted["keyed"] = chosen.error
            predicted["capped"] *= CAPPED_GAIN
    if _serves(lambda s: check_per_table(s, workload), schema):
        whole = whole_size(best.among)
        size = max(1.0, whole.noisy)
        meetings = meetings_of(schema, ranks, size)
        if whole.noisy < SHOWS * whole.deviation:
            # It may be far smaller than it seems under caps, and has no shape there.
            least = min(whole.deviation, by_chance(schema, meetings)) if meetings else 1.0
            size = max(1.0, least, whole.noisy - whole.deviation)
            error = max(NO_SHAPE * size, predicted_noise(workload, best, rho, size=size))
            predicted["capped"] = max(predicted["capped"], error)
        if meetings:
            predicted["per_table"] = per_table_error(workload, meetings, size=size, rho=rho)
    return predicted


def _serves(check: Callable[[Schema], None], schema: Schema) -> bool:
    try:
        check(schema)
    except SpecError:
        return False
    return True
