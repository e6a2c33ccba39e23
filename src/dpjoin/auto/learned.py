"""A release whose domains are learned first: one budget, one ledger, then any method on what was learned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dpjoin.auto.registry import as_if_read, chosen_method, finished, reads_bounds, without_laplace
from dpjoin.engine.interface import Engine
from dpjoin.errors import SpecError
from dpjoin.measure.domains import DomainCosts, Learned, domain_costs, learn_domains
from dpjoin.measure.progress import Progress
from dpjoin.methods.method import Method, Outcome
from dpjoin.privacy.accounting import Budget, Split
from dpjoin.privacy.curator import Curator
from dpjoin.spec.learning import with_domains
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

Check = Callable[[Schema, Workload], None]
"""Refuses what this version cannot release."""


def learning_budget(method: Method, budget: Budget, workload: Workload) -> tuple[Budget, DomainCosts]:
    """The budget that a method has left, with what domains take of it: a public division."""
    spendable = without_laplace(method, budget, workload)
    costs = domain_costs(workload.schema, spendable)
    if not costs.total.rho:
        return spendable, costs
    return replace(spendable, domains=costs.total), costs


def run_learned(
    name: str,
    profile: str,
    engine: Engine,
    workload: Workload,
    budget: Budget,
    progress: Progress,
    *,
    check: Check,
    make: Callable[[Engine, Split], Curator] = Curator,
) -> tuple[Outcome, Curator, dict[str, Any]]:
    """Learn the domains, build the workload over them, run the method with what is left.

    The facts are, by attribute, what was learned and at what cost.
    """
    method = chosen_method(engine.schema, name, profile, workload)
    bounds = reads_bounds(method, engine.schema)
    planned = as_if_read(engine.schema) if bounds else engine.schema
    spendable, costs = learning_budget(method, budget, replace(workload, schema=planned))
    shares = method.split(spendable, planned)
    curator = make(engine, shares.split)
    found = fitting(learn_domains(curator, costs, progress), engine.schema, workload, name, profile, check)
    curator = curator.learned([x.attribute for x in found], public_bounds=bounds)
    workload = workload.over(curator.schema)
    # What depends on the domains may be divided anew, if that leaves the whole as it was certified.
    again = method.split(spendable, curator.schema)
    shares = again if again.split == shares.split else shares
    outcome = method.run(curator, workload, shares, progress)
    return finished(outcome, method, outcome.predicted), curator, {x.attribute.name: dict(x.facts) for x in found}


def fitting(
    found: list[Learned], schema: Schema, workload: Workload, name: str, profile: str, check: Check
) -> list[Learned]:
    """The domains, the largest ones cut until the workload can be released: by what was learned alone."""
    while True:
        known = with_domains(schema, {x.attribute.name: x.attribute for x in found})
        try:
            asked = workload.over(known)
            check(known, asked)
            chosen_method(known, name, profile, asked)
        except SpecError:
            longest = max(found, key=lambda x: x.most)
            if longest.most <= 0:
                raise
            found = [x.narrowed() if x is longest else x for x in found]
        else:
            return found
