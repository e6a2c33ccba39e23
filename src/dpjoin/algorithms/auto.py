"""The default: one small look at the sensitivity decides between the join as one table and the hybrid.

Where no key value is hot, the join as one table has the smallest bound: the largest degree plus one shift. Where some
are, the hybrid's light values have a far smaller one. A noisy bound on a small share of the budget tells which it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dpjoin.algorithms.as_one import measure_join, measure_total
from dpjoin.algorithms.hybrid import hybrid_tight
from dpjoin.algorithms.parts import shape_noise, size_noise
from dpjoin.algorithms.progress import Progress
from dpjoin.algorithms.shares import COUNT_SHARE, GAUGE_SHARE, TRUNCATION_SHARE, PartitionShares, round_down
from dpjoin.algorithms.two_table import Outcome
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.budget import Budget, Concentrated, ConcentratedAccountant
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.public_bounds import churn
from dpjoin.privacy.truncated import gaussian_half_width
from dpjoin.schema import Schema
from dpjoin.workload import Workload

PROBE_SHARE = Fraction(3, 100)
"""Of rho, for the look that decides. Its shift is about three times that of the bound that follows, which is enough to
tell a hot key."""
SECOND_SHARE = Fraction(32, 100)
"""Of rho, for the bound of the join as one table, or for the hybrid's degrees."""
HYBRID_GAIN = 1.5
"""How much smaller the hybrid's bound must be: its heavy values have an error of their own."""


@dataclass(frozen=True)
class AutoShares:
    """The split of `auto`: the probe, then a bound or degrees, and for three and more tables the hybrid's gauge."""

    accountant: ConcentratedAccountant
    probe: Concentrated
    probe_width: int
    bound: Concentrated
    bound_width: int
    degrees: Concentrated
    degrees_width: int
    gauge: Concentrated | None
    gauge_width: int | None

    @property
    def count(self) -> Concentrated:
        left = self.accountant.rho - self.probe.rho - self.bound.rho
        return Concentrated(round_down(left * COUNT_SHARE))

    @property
    def hybrid(self) -> PartitionShares:
        return PartitionShares(
            self.accountant, self.degrees, self.degrees_width, self.gauge, self.gauge_width, self.count
        )


def auto_shares(budget: Budget, schema: Schema) -> AutoShares:
    """Split a budget so that either way uses all of the delta that is set aside."""
    moves_bound, moves_degrees = max(1, churn(schema)), 1 + churn(schema)
    aside = budget.exact.delta * TRUNCATION_SHARE
    accountant = ConcentratedAccountant(budget, truncation_delta=aside)

    def one_sided(share: Fraction, delta: Fraction, moves: int) -> tuple[Concentrated, int]:
        cost = Concentrated(round_down(accountant.rho * share), delta)
        return cost, gaussian_half_width(variance=moves**2 / (2 * cost.rho), delta=delta, sensitivity=moves)

    several = len(schema.tables) > 2
    probe, probe_width = one_sided(PROBE_SHARE, aside / 5, moves_bound)
    bound, bound_width = one_sided(SECOND_SHARE, aside * 4 / 5, moves_bound)
    degrees, degrees_width = one_sided(SECOND_SHARE, aside * 4 / 5 / (2 if several else 1), moves_degrees)
    gauge, gauge_width = one_sided(GAUGE_SHARE, aside * 2 / 5, moves_degrees) if several else (None, None)
    return AutoShares(accountant, probe, probe_width, bound, bound_width, degrees, degrees_width, gauge, gauge_width)


def auto_tight(curator: Curator, workload: Workload, shares: AutoShares, progress: Progress) -> Outcome:
    """Probe, decide, release. Spends the whole budget either way."""
    progress("sensitivity", 0, 2)
    probe = curator.sensitivity_bound(shares.probe, half_width=shares.probe_width)
    progress("sensitivity", 1, 2)
    tables = len(curator.schema.tables)
    # What the second bound would be, if the first is off by its shift; and what light values have.
    level = max(1.0, _level(probe.value, tables) - shares.probe_width)
    as_one = _bound(level + shares.bound_width, tables)
    light = float((2 * shares.degrees_width) ** (tables - 1))
    rho = curator.rho_left - shares.bound.rho
    predicted = {
        "as one": _error(workload, as_one, rho),
        "hybrid": HYBRID_GAIN * _error(workload, light, rho - (shares.gauge.rho if shares.gauge else 0)),
    }
    facts = {name: float(f"{error:.3g}") for name, error in predicted.items()}
    if predicted["hybrid"] < predicted["as one"]:
        outcome = hybrid_tight(curator, workload, shares.hybrid, progress)
        return replace(outcome, method="hybrid", predicted=facts)
    second = curator.sensitivity_bound(shares.bound, half_width=shares.bound_width)
    progress("sensitivity", 2, 2)
    bound = min(probe, second, key=lambda b: b.value)
    with one_blas_thread():
        total = measure_total(curator, bound, shares.count.rho)
        model, strategy = measure_join(curator, workload, bound, total, progress)
    method = "two_table" if tables == 2 else "multi_table"
    return Outcome(model, bound.value, round(model.total), strategy, method=method, predicted=facts)


def _error(workload: Workload, bound: float, rho: Fraction) -> float:
    whole = max(1, round(bound))
    return shape_noise(workload, bound=whole, size=1.0, rho=rho) + size_noise(whole, rho)


def _level(bound: int, tables: int) -> float:
    """The level at which C(level, tables - 1) is about the bound."""
    ways = tables - 1
    return float((bound * math.factorial(ways)) ** (1 / ways)) + (ways - 1) / 2


def _bound(level: float, tables: int) -> float:
    ways = tables - 1
    return max(1.0, (level - (ways - 1) / 2) ** ways / math.factorial(ways))
