"""A plan as a page, before any data are touched: the tables, the budget, and the noise to expect for other choices.

The curves are the plan's own forecasts, worked out anew for each degree and each epsilon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpjoin.auto.plan import USUAL_DEGREES, Expected, Plan, plan
from dpjoin.errors import DpjoinError
from dpjoin.page.shell import html_page
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.hypergraph import join_tree
from dpjoin.spec.schema import Schema
from dpjoin.spec.toml import Spec

PLAN_SCRIPTS = ("diagram.js", "plan.js")
DEGREES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def plan_page(spec: Spec, planned: Plan, *, degree: int | None = None, join_size: int | None = None) -> str:
    """The page of a plan; the same spec gives the same bytes."""
    return html_page(f"Plan of {planned.join}", plan_data(spec, planned, degree, join_size), PLAN_SCRIPTS)


def plan_data(spec: Spec, planned: Plan, degree: int | None = None, join_size: int | None = None) -> dict[str, Any]:
    """What the page holds."""
    degrees = sorted({*DEGREES, *([degree] if degree else [])})
    clipped = planned.method == "clipped"
    known = clipped and spec.schema.max_results is not None
    several = bool(planned.expected) and (clipped or len(spec.schema.tables) > 1) and not known
    return {
        "kind": "plan",
        "plan": planned.to_json(),
        "budget": {"epsilon": spec.budget.epsilon, "delta": spec.budget.delta},
        "join_size": join_size,
        "tables": _tables(spec.schema),
        "edges": _edges(spec.schema),
        "by_degree": [_told(d, expected(spec, d)) for d in degrees] if several else [],
        "by_epsilon": _by_epsilon(spec, ([degree] if degree else USUAL_DEGREES) if several else [1])
        if planned.expected
        else [],
    }


def expected(spec: Spec, degree: int, epsilon: float | None = None) -> Expected | None:
    """What the plan says at this largest degree and epsilon; None where it says nothing."""
    try:
        budget = spec.budget if epsilon is None else Budget(epsilon=epsilon, delta=spec.budget.delta)
        found = plan(replace(spec, budget=budget), degree=degree).expected
    except DpjoinError:
        return None  # a budget that the method cannot split
    return found[0] if found else None


def _by_epsilon(spec: Spec, degrees: Sequence[int]) -> list[dict[str, Any]]:
    epsilons = sorted({*EPSILONS, spec.budget.epsilon})
    return [{"degree": d, "points": [_told(e, expected(spec, d, e)) for e in epsilons]} for d in degrees]


def _told(at: float, found: Expected | None) -> dict[str, Any]:
    said = {"sensitivity": found.sensitivity, "count": found.count, "cell": found.cell} if found else {}
    return {"at": at} | said


def _tables(schema: Schema) -> list[dict[str, Any]]:
    tree = join_tree(schema)
    parents: Mapping[str, str | None] = dict(tree) if tree else {}
    depth: dict[str, int] = {}
    for table in schema.tables:
        above, steps = parents.get(table.name), 0
        while above is not None:
            above, steps = parents.get(above), steps + 1
        depth[table.name] = steps
    joins = set(schema.join_attributes)
    return [
        {
            "name": t.name,
            "private": t.private,
            "depth": depth[t.name] if tree else None,
            "attributes": [{"name": a, "joins": a in joins, "key": schema.attribute(a).key} for a in t.attributes],
        }
        for t in schema.tables
    ]


def _edges(schema: Schema) -> list[dict[str, Any]]:
    """Which tables are drawn as joined: those of the join tree, or all that share attributes."""
    tree = join_tree(schema)
    names = [t.name for t in schema.tables]
    pairs = [(p, c) for c, p in tree if p is not None] if tree else [(a, b) for a in names for b in names if a < b]
    shared = [(a, b, sorted(set(schema.table(a).attributes) & set(schema.table(b).attributes))) for a, b in pairs]
    return [{"from": a, "to": b, "on": on} for a, b, on in shared if on]
