"""A release beside what theory says of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpjoin.errors import SpecError
from dpjoin.evaluation import evaluate
from dpjoin.privacy.accounting import Budget
from dpjoin.released.release import Release
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload
from dpjoin.theory import lower, upper
from dpjoin.theory.facts import Private, facts
from dpjoin.theory.upper import Task


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Errors of the worst query, in join results, of made-up tables."""

    join_size: int
    lower: float
    """The theorem's, without constants: of the worst instance with such statistics."""
    neighbours: float
    """Half the local sensitivity: on these tables or on a neighbour, every private release errs by as much in one of
    1 + exp(ε) runs."""
    measured: float | None
    """What the release got."""
    theorem: float
    """The upper bound without constants."""
    proved: float
    """The upper bound with all constants."""


class PrivateBounds(Private, Bounds):
    """The same of private tables."""


def bounds(
    schema: Schema,
    tables: Mapping[str, Any],
    release: Release | None = None,
    *,
    workload: Workload | None = None,
    budget: Budget | None = None,
    method: str | None = None,
    profile: str = "tight",
    public: bool = False,
) -> Bounds:
    """Lower bound, what the release got, upper bound.

    Without a release: the bounds of the workload (all 2-way marginals) under the budget (1, 1e-6). The method is one
    of upper.METHODS; by default two_table for two tables and multi_table for more. Nothing is released here, and no
    budget is spent. Opens the tables: the answer is PrivateBounds unless `public` says that they are made up.
    """
    if release is not None:
        workload, budget, profile = release.workload, release.budget, release.profile
        method = method or (release.method if release.method in upper.METHODS else None)
    workload = workload or Workload.marginals(schema, 2)
    task = Task.of(workload, budget or Budget(epsilon=1.0, delta=1e-6))
    method = method or upper.as_one(len(schema.tables))
    if method not in upper.METHODS:
        raise SpecError(f"method {method!r} must be one of {', '.join(upper.METHODS)}; no other has a theorem")
    known = facts(schema, tables, public=public)
    return (Bounds if public else PrivateBounds)(
        join_size=known.join_size,
        lower=lower.theorem(known, task, method),
        neighbours=lower.neighbours(known.local, epsilon=task.budget.epsilon, delta=task.budget.delta)[0],
        measured=None if release is None else evaluate(release, tables).max_error,
        theorem=upper.theorem(known, task, method),
        proved=upper.proved(known, task, method, profile),
    )
