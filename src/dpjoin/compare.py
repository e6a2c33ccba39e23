"""Two releases or plans side by side: what each promises, does and can tell. All is public; no table is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpjoin.auto.plan import Plan, plan
from dpjoin.errors import ReleaseError
from dpjoin.page.shell import html_page
from dpjoin.released.files import load
from dpjoin.released.release import Release
from dpjoin.released.report.cost import cost_of
from dpjoin.released.shown import number
from dpjoin.spec.hypergraph import describe_join
from dpjoin.spec.persons import protects
from dpjoin.spec.toml import Spec
from dpjoin.spec.workload import Workload

COMPARED_GROUPS = 200
"""Of how many groups bars are compared."""


@dataclass(frozen=True)
class Side:
    """A release, or the plan of one."""

    name: str
    kind: str
    facts: Mapping[str, str]
    """What there is to say, in words."""
    groups: Mapping[str, float | None]
    """The median bar of each group of questions; None where it is not known, as in a plan."""
    shares: Mapping[str, float]
    """Of the budget, by purpose."""


@dataclass(frozen=True)
class Comparison:
    """Two of them, with what both or one of them says."""

    a: Side
    b: Side
    facts: tuple[tuple[str, str, str], ...] = field(default=())
    """What it is about, and what each says; empty where it says nothing."""
    groups: tuple[tuple[str, float | None, float | None], ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(first: str | Path, second: str | Path) -> Comparison:
    """Compare release folders and spec files, of which the plan is taken."""
    a, b = side(Path(first)), side(Path(second))
    names = list(dict.fromkeys([*a.facts, *b.facts]))
    asked = [name for name in a.groups if name in b.groups]
    return Comparison(
        a,
        b,
        tuple((name, a.facts.get(name, ""), b.facts.get(name, "")) for name in names),
        tuple((name, a.groups[name], b.groups[name]) for name in asked),
    )


def side(path: Path) -> Side:
    """What is at a path: a release folder or a spec."""
    if path.is_dir():
        return _of_release(path.name, load(path))
    if path.suffix != ".toml" or not path.exists():
        raise ReleaseError(f"{path}: must be a release folder or a spec file (.toml); give one of these")
    return _of_plan(path.name, plan(Spec.from_toml(path)))


def _of_release(name: str, release: Release) -> Side:
    size, bar = (float(f("SELECT COUNT(*) FROM joined")[0]) for f in (release.answer, release.error))
    groups: dict[str, float | None] = {}
    for group in release.workload.groups[:COMPARED_GROUPS]:
        bars = release.error(Workload(release.schema, (group,)))
        known = bars[np.isfinite(bars)]
        groups[group.name] = float(np.median(known)) if len(known) else None
    cost = cost_of(release.manifest())
    facts = {
        "join": describe_join(release.schema),
        **_promised(release.budget.epsilon, release.budget.delta, protects(release.schema)),
        "method": f"{release.method} ({release.profile})",
        "questions": f"{len(release.workload):,} in {len(release.workload.groups):,} groups",
        "attributes": ", ".join(release.attributes),
        "cells": f"{release.workload.cells:,}",
        "join size": f"{number(size, bar)} ± {number(bar)}",
        "synthetic rows": f"{release.synthetic.num_rows:,}",
        "one row moves": f"{release.facts['sensitivity_bound']:,} at most",
        "strategy": str(release.facts["strategy"]),
        "charges": f"{len(release.ledger.events):,}",
    }
    if release.schema.unit:
        facts["one owner moves"] = facts.pop("one row moves")
    # Costs in several currencies are no shares of one budget.
    paid = next(iter(cost["stages"].values())) if len(cost["stages"]) == 1 else {}
    whole = sum(paid.values())
    return Side(name, "release", facts, groups, {stage: own / whole for stage, own in paid.items()})


def _of_plan(name: str, planned: Plan) -> Side:
    facts = {
        "join": planned.join,
        **_promised(planned.epsilon, planned.delta, planned.protects),
        "method": f"{planned.method} ({planned.profile})",
        "questions": f"{planned.queries:,} in {len(planned.groups):,} groups",
        "attributes": ", ".join(planned.attributes),
        "cells": f"{planned.cells:,}",
        "model": planned.model,
    }
    facts |= {f"each count at degree {e.degree:,}": f"± {number(e.cell)}" for e in planned.expected}
    groups: dict[str, float | None] = {g.name: None for g in planned.groups[:COMPARED_GROUPS]}
    return Side(name, "plan", facts, groups, {s.name: s.share for s in planned.stages})


def _promised(epsilon: float, delta: float, protected: str) -> dict[str, str]:
    return {"epsilon": f"{epsilon:g}", "delta": f"{delta:g}", "protects": protected}


def comparison_page(found: Comparison) -> str:
    """The comparison as a page."""
    title = f"{found.a.name} and {found.b.name} side by side"
    return html_page(title, {"kind": "comparison"} | found.to_json(), ("compare.js",))
