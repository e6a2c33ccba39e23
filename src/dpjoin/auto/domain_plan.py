"""What a plan says of domains that are to be learned: what they cost, and how many rows a value must have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpjoin import constants
from dpjoin.measure.domains import DomainCosts, is_list
from dpjoin.methods.method import GAUSSIAN_NOISE, TRUNCATED_GAUSSIAN, Stage
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.learning import ASSUMED_VALUES
from dpjoin.spec.persons import owners_counted
from dpjoin.spec.schema import Schema


@dataclass(frozen=True)
class DomainPlan:
    """One attribute whose domain is to be learned."""

    attribute: str
    table: str
    public: bool
    """Of a public table: its domain is read, at no cost."""
    counts: str
    """What is counted: rows, or owners."""
    share: float
    """Of rho."""
    listed_above: int | None
    """A value that more have is listed for certain; half of the time from half as many on. None for bins."""
    rank_off: int | None
    """By about how many the edges of bins are off in rank; None for a list."""


def domain_plans(schema: Schema, budget: Budget, costs: DomainCosts) -> tuple[DomainPlan, ...]:
    """What to expect of each learned domain."""
    found = []
    rho = budget.rho() + costs.total.rho
    for name in schema.learned:
        table, cost = schema.table(schema.owner(name)), costs.each[name]
        listed, off = None, None
        if table.private and is_list(schema, name):
            listed = 2 * costs.half_width(schema, budget.composition, name)
        elif table.private:
            off = math.ceil(constants.RANK_NOISE / math.sqrt(2 * float(cost.rho)))
        counts = " and ".join(schema.unit) if owners_counted(schema, table) else "rows"
        share = float(cost.rho / rho)
        found.append(DomainPlan(name, table.name, not table.private, counts, share, listed, off))
    return tuple(found)


def with_domain_stage(stages: Sequence[Stage], share: float, plans: Sequence[DomainPlan]) -> tuple[Stage, ...]:
    """The stages of a method in what domains leave, after theirs."""
    if not share:
        return tuple(stages)
    lists, bins = any(p.listed_above is not None for p in plans), any(p.rank_off is not None for p in plans)
    mechanism = " and ".join([TRUNCATED_GAUSSIAN] * lists + [GAUSSIAN_NOISE] * bins)
    rest = [Stage(s.name, s.mechanism, s.share * (1 - share), s.note) for s in stages]
    return (Stage("domains", mechanism, share, "which values there are; what is declared costs nothing"), *rest)


def domain_notes(share: float, plans: Sequence[DomainPlan]) -> list[str]:
    """The same in sentences."""
    if not plans:
        return []
    notes = [f"Learned domains are taken to have {ASSUMED_VALUES} values, or the bins asked for, until they are known."]
    lists: dict[tuple[str, str, int], list[str]] = {}
    edges: dict[tuple[str, str, int], list[str]] = {}
    for p in plans:
        for found, number in ((lists, p.listed_above), (edges, p.rank_off)):
            if number is not None:
                found.setdefault((p.table, p.counts, number), []).append(p.attribute)
    for (table, counts, above), names in lists.items():
        notes.append(
            f"A value of {', '.join(names)} ({table}) is listed if more than {above:,} {counts} have it, half of the "
            f"time from about {above // 2:,} on, never if none has; the rest count as 'other'."
        )
    for (table, counts, off), names in edges.items():
        notes.append(f"Bins of {', '.join(names)} ({table}) end at quantiles, off by about {off:,} {counts}.")
    if public := [p.attribute for p in plans if p.public]:
        notes.append(f"Domains of {', '.join(public)} are read from public tables, at no cost.")
    if share:
        gain = 1 - math.sqrt(1 - share)
        notes.append(
            f"Domains take {share:.0%} of rho. Declared ones would make all other noise {gain:.1%} smaller, and may "
            "name rare values."
        )
    return notes
