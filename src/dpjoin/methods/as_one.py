"""Algorithms 1 and 3, TwoTable and MultiTable: bound the sensitivity of the join, then release the join as one table.

Also serves a single table and a private table beside public ones, where the bound costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpjoin.measure.join import domain_of, measure_join
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import TightShares
from dpjoin.measure.totals import measure_total
from dpjoin.model.threads import one_blas_thread
from dpjoin.model.union import Part, Union
from dpjoin.paper.alg2_pmw import pmw
from dpjoin.privacy.accounting import Approximate
from dpjoin.privacy.curator import Curator
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload


@dataclass(frozen=True, eq=False)
class Outcome:
    """A model and the public facts of how it came about."""

    model: Part | Union
    sensitivity: int
    noisy_total: int
    strategy: str
    parts: tuple[dict[str, Any], ...] = field(default=())
    """Public facts of each sub-instance, if there are any."""
    method: str | None = None
    """The method that `auto` chose."""
    predicted: Mapping[str, float] = field(default_factory=dict)
    """What `auto` expected of each way, in join results."""


def as_one_name(schema: Schema) -> str:
    """What a release of the join as one table is called."""
    return {1: "single_table", 2: "two_table"}.get(len(schema.tables), "multi_table")


def two_table_paper(curator: Curator, workload: Workload, whole: Approximate, progress: Progress) -> Outcome:
    """The `paper` profile: half the budget on the bound (truncated Laplace), half on Algorithm 2."""
    progress("sensitivity", 0, 1)
    bound = curator.public_bound()
    if bound is None:
        half = Approximate(whole.epsilon / 2, whole.delta / 2)
        bound, whole = curator.sensitivity_bound(half), half
    progress("sensitivity", 1, 1)
    with one_blas_thread():
        model, noisy_total, count = pmw(curator, list(workload.groups), domain_of(workload), bound, whole, progress)
    return Outcome(model, bound.value, noisy_total, f"multiplicative weights, {count} rounds")


def two_table_tight(curator: Curator, workload: Workload, shares: TightShares, progress: Progress) -> Outcome:
    """The `tight` profile: truncated Gaussian bound, Gaussian measurements, one fit. Spends the budget exactly."""
    progress("sensitivity", 0, 1)
    if shares.bound is None:
        bound = curator.public_bound()
        assert bound is not None, "a bound that costs nothing was planned"
    else:
        bound = curator.sensitivity_bound(shares.bound, half_width=shares.half_width)
    progress("sensitivity", 1, 1)
    with one_blas_thread():
        total = measure_total(curator, bound, shares.count)
        model, strategy = measure_join(curator, workload, bound, total, progress)
    return Outcome(model, bound.value, round(model.total), strategy)
