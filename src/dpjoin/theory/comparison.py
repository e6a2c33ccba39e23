"""A release beside what theory says of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpjoin.canonical import instance
from dpjoin.errors import SpecError
from dpjoin.evaluation import evaluate
from dpjoin.privacy.accounting import Budget
from dpjoin.released.release import Release
from dpjoin.spec.plain import check_choice
from dpjoin.spec.schema import Schema
from dpjoin.spec.toml import PROFILES
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
    1 + exp(ε) runs, on the join size or another query that counts all results of the row that differs."""
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

    Without a release: the bounds of the workload (all marginals of two attributes, or of one, or the join size)
    under the budget (1, 1e-6). Weights of queries lie in [-1, 1]. The method is one of upper.BOUNDED_METHODS; by
    default the release's if a theorem is about it and this join, or else that for the join as one table. Nothing is
    released here, and no budget is spent. Opens the tables: the answer is PrivateBounds unless `public` says that
    they are made up. Neighbours differ by one row, as in the paper.
    """
    known = facts(schema, tables, public=public)
    if release is not None:
        if workload is not None or budget is not None:
            raise SpecError("bounds must be of a release, or of a workload and a budget, not both; leave one out")
        instance(release, Release, "release")
        workload, budget, profile = release.workload, release.budget, release.profile
        own = release.method in upper.BOUNDED_METHODS and not upper.needed(release.method, schema)
        method = release.method if method is None and own else method
    budget = instance(Budget(epsilon=1.0, delta=1e-6) if budget is None else budget, Budget, "budget")
    if workload is None:
        workload = Workload.marginals(schema, min(2, len(schema.queryable)) or [()])
    if instance(workload, Workload, "workload").schema != schema:
        raise SpecError("the workload, or the release, must be of the schema that it is compared on")
    task, method = Task.of(workload, budget), upper.as_one(len(schema.tables)) if method is None else method
    check_choice("method", method, upper.BOUNDED_METHODS)
    check_choice("profile", profile, PROFILES)
    if words := upper.needed(method, schema):
        raise SpecError(f"method {method!r} must have {words}; leave it out to take the join as one table")
    return (Bounds if public else PrivateBounds)(
        join_size=known.join_size,
        lower=lower.theorem(known, task, method),
        neighbours=lower.neighbours(known.local, epsilon=task.budget.epsilon, delta=task.budget.delta)[0],
        measured=None if release is None else evaluate(release, tables).max_error,
        theorem=upper.theorem(known, task, method),
        proved=upper.proved(known, task, method, profile),
    )
