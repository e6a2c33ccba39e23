"""Truncation by noisy degrees, for any connected join: release what joins light values only, and say what was dropped.

Experimental: the paper leaves joins without a common attribute open. One hot value sets the sensitivity of the whole
join. Here each table's values are counted privately where the table meets another; rows at heavy values are left out.
Which values are heavy is public, so a row stays or goes by public rules, and what stays is one part with small caps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.errors import SpecError
from dpjoin.measure.join import measure_join
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import PartitionShares, partition_shares
from dpjoin.measure.totals import measure_total
from dpjoin.methods.as_one import Outcome
from dpjoin.methods.parts import shape_noise, size_noise
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.accounting import Budget, Concentrated
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import Limit, churn, declared_limits, most_results
from dpjoin.privacy.parts import Labels, NoisyDegrees, Question, Rules, Value
from dpjoin.spec.hypergraph import components
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

MOST_THRESHOLDS = 16
"""Candidates for each threshold, from twice the half-width to the largest noisy degree."""
UNLISTED = 0.25
"""An unlisted value has from 0 to 2s rows; where a number is needed we take this share of s. A guess."""

Meeting = tuple[str, tuple[str, ...]]
"""A table, and the attributes on which it meets another."""


def check_truncate(schema: Schema) -> None:
    """Refuse a join of one table, and one with parts that share nothing."""
    if len(schema.tables) < 2 or len(components(schema)) > 1:
        raise SpecError("method 'truncate' must have two or more tables that are connected; use method 'multi_table'")


def meetings(schema: Schema) -> tuple[Meeting, ...]:
    """Each table with every set of attributes that it shares with one other table."""
    found: dict[Meeting, None] = {}
    for table in schema.tables:
        for other in schema.tables:
            shared = schema.in_order(set(table.attributes) & set(other.attributes))
            if other.name != table.name and shared:
                found[table.name, shared] = None
    return tuple(found)


def truncate_shares(budget: Budget, schema: Schema) -> PartitionShares:
    """Split a budget: degrees at every meeting, for three and more tables a noisy bound in the part, then queries."""
    private = set(schema.private_tables)
    of_table = [sum(1 for name, _ in meetings(schema) if name == table) for table in private]
    gauge = len(schema.tables) > 2
    return partition_shares(budget, gauge=gauge, sensitivity=1 + churn(schema), questions=max(of_table))


@dataclass(frozen=True, eq=False)
class _Crossing:
    """The listed values of one set of attributes: what each table says of them, and about what is lost with them."""

    by: tuple[str, ...]
    values: tuple[Value, ...]
    noisy: Mapping[str, NDArray[np.int64]]
    """By table, the noisy degrees; 0 where the table does not list the value."""
    results: NDArray[np.float64]
    """About how many join results have the value."""

    def heavy(self, thresholds: Mapping[Meeting, int]) -> NDArray[np.bool_]:
        """The values that some table has too often."""
        heavy = np.zeros(len(self.values), dtype=np.bool_)
        for table, noisy in self.noisy.items():
            heavy |= noisy > thresholds[table, self.by]
        return heavy


def truncate_tight(curator: Curator, workload: Workload, shares: PartitionShares, progress: Progress) -> Outcome:
    """The `tight` profile: noisy degrees, thresholds by predicted error, one part. Spends all of the budget."""
    schema = curator.schema
    check_truncate(schema)
    progress("degrees", 0, 1)
    questions = [
        Question(name=f"degrees of {table} by {', '.join(by)}", rules={table: {}}, by=by)
        for table, by in meetings(schema)
    ]
    answers = curator.noisy_degrees("degrees", questions, shares.degrees, half_width=shares.degrees_width)
    degrees = dict(zip(meetings(schema), answers, strict=True))
    progress("degrees", 1, 1)

    crossings = _crossings(schema, degrees, shares.degrees_width)
    thresholds, predicted = _best_thresholds(schema, workload, degrees, crossings, curator.rho_left)
    labels = {
        (table, by): curator.labels(
            f"heavy {', '.join(by)} of {table}", [answer], _heavy_alone(answer, thresholds[table, by])
        )
        for (table, by), answer in degrees.items()
    }
    rules = {"light": _light(schema, labels.values())}
    delta = shares.bound.delta if shares.bound else Fraction(0)
    (part,) = curator.restrict("parts", rules, [Concentrated(curator.rho_left, delta)])
    progress("sensitivity", 0, 1)
    if shares.bound is None:
        bound = part.part_bound()
    else:
        # The caps multiply the largest noise of several tables; the gauge adds noise once. The smaller one counts.
        bound = part.sensitivity_bound(shares.bound, half_width=shares.bound_width)
    progress("sensitivity", 1, 1)
    heavy = {crossing.by: crossing.heavy(thresholds) for crossing in crossings}
    dropped = float(sum(c.results[heavy[c.by]].sum() for c in crossings))
    with one_blas_thread():
        total = measure_total(part, bound, shares.count)
        model, strategy = measure_join(part, workload, bound, total, progress)
    # What was dropped may lie anywhere, so it widens every bar.
    model = replace(model, floor=model.floor + dropped)
    facts: dict[str, Any] = {
        "part": 0,
        "values": "all that are light in every table",
        "thresholds": {f"{table} by {', '.join(by)}": most for (table, by), most in thresholds.items()},
        "dropped_values": sum(int(h.sum()) for h in heavy.values()),
        "dropped_results_estimate": round(dropped),
        "sensitivity_bound": bound.value,
        "size": round(model.total),
        "predicted_error": float(f"{predicted:.3g}"),
        "strategy": strategy,
    }
    words = f"one part without {facts['dropped_values']} heavy values; {strategy}"
    return Outcome(model, bound.value, round(model.total), words, (facts,))


def _heavy_alone(degrees: NoisyDegrees, threshold: int) -> dict[Value, int]:
    """Bucket 1 for values above the threshold. Values up to it are merged into bucket 0, whose cap rises with them."""
    return {value: 1 for value, noisy in degrees.listed.items() if noisy > threshold}


def _light(schema: Schema, labels: Collection[Labels]) -> dict[str, Rules]:
    """Bucket 0 under all labels a table has the attributes of.

    Its own would do for the join; those of others remove rows that join nothing, and that lowers the gauge.
    """
    return {t.name: {made: 0 for made in labels if set(made.attributes) <= set(t.attributes)} for t in schema.tables}


def _crossings(schema: Schema, degrees: Mapping[Meeting, NoisyDegrees], half_width: int) -> list[_Crossing]:
    """The listed values by attribute set, with an estimate of their join results from noisy degrees alone.

    At a value, each table that lists it counts with its noisy degree less the mean noise; each other one with a
    constant, as if its rows were spread evenly.
    """
    usual = max(1.0, UNLISTED * half_width)
    crossings = []
    for by in dict.fromkeys(by for _, by in degrees):
        tables = [table for table, at in degrees if at == by]
        values = sorted({v for table in tables for v in degrees[table, by].listed}, key=repr)
        noisy = {
            table: np.array([degrees[table, by].listed.get(v, 0) for v in values], dtype=np.int64) for table in tables
        }
        results = np.full(len(values), usual ** (len(schema.tables) - len(tables)))
        for counts in noisy.values():
            results = results * np.where(counts > 0, counts - half_width, usual)
        crossings.append(_Crossing(by, tuple(values), noisy, results))
    return crossings


def _best_thresholds(
    schema: Schema,
    workload: Workload,
    degrees: Mapping[Meeting, NoisyDegrees],
    crossings: Sequence[_Crossing],
    rho: Fraction,
) -> tuple[dict[Meeting, int], float]:
    """The thresholds that promise the least error, dropped results and noise together; and that error.

    One threshold is improved at a time, once from the lowest and once from the highest of each.
    """

    def cap(meeting: Meeting, threshold: int) -> int:
        kept = [noisy for noisy in degrees[meeting].listed.values() if noisy <= threshold]
        return max([degrees[meeting].threshold, *kept])

    def promise(thresholds: Mapping[Meeting, int]) -> float:
        limits = declared_limits(schema)
        for (table, by), threshold in thresholds.items():
            limits.append(
                Limit(
                    tables=frozenset([table]),
                    given=frozenset(by),
                    then=frozenset(schema.table(table).attributes),
                    most=cap((table, by), threshold),
                    rows_of=table,
                )
            )
        names = frozenset(t.name for t in schema.tables)
        found = [most_results(schema, names - {table}, limits) for table in schema.private_tables]
        bound = max(1, *(most for most in found if most is not None))
        dropped = float(sum(c.results[c.heavy(thresholds)].sum() for c in crossings))
        return dropped + size_noise(bound, rho) + shape_noise(workload, bound=bound, size=1.0, rho=rho)

    candidates = {meeting: _candidates(answer) for meeting, answer in degrees.items()}
    best: tuple[float, dict[Meeting, int]] | None = None
    for end in (0, -1):
        current = {meeting: some[end] for meeting, some in candidates.items()}
        error, before = promise(current), math.inf
        while error < before:
            before = error
            for meeting, some in candidates.items():
                promises = {most: promise({**current, meeting: most}) for most in some}
                choice = min(promises, key=lambda most: (promises[most], most))
                if promises[choice] < error:
                    current, error = {**current, meeting: choice}, promises[choice]
        if best is None or error < best[0]:
            best = error, current
    assert best is not None
    return best[1], best[0]


def _candidates(degrees: NoisyDegrees) -> list[int]:
    """The lowest threshold, and listed noisy degrees above it: all, or some at even ranks up to the largest."""
    listed = sorted(set(degrees.listed.values()))
    if len(listed) > MOST_THRESHOLDS:
        at = np.unique(np.linspace(0, len(listed) - 1, MOST_THRESHOLDS).astype(np.int64))
        listed = [listed[i] for i in at]
    return [degrees.threshold, *listed]
