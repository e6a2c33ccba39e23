"""Releases with learned domains, replayed on neighbours: same questions, small moves, no one pays more than charged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import dpjoin as dj
from dpjoin.privacy.curator import Curator
from support.audit import ledger_violations, overpaid, replay_violations
from support.learned import LOUD, learnable, learned_runner, neighbours
from support.owners import SHAPES

UNITS: dict[str, dict[str, Any]] = {
    "person": {},
    "person replaced": {"neighbours": "replace"},
    "row": {"unit": ()},
    "row replaced": {"unit": (), "neighbours": "replace"},
}


@pytest.mark.parametrize("shape", ["two tables", "deep", "snowflake"])
@pytest.mark.parametrize("unit", UNITS)
def test_a_release_with_learned_domains_hides_its_unit(shape: str, unit: str) -> None:
    """A row, a person, or one in another's place: in domains, in the release after them, and in the ledger."""
    base = SHAPES[shape]
    if not UNITS[unit].get("unit", base.unit):
        tables = tuple(replace(t, owner_via=None) for t in base.tables)
        base = replace(base, tables=tables, unit=())
    schema = learnable(replace(base, **{k: v for k, v in UNITS[unit].items() if k != "unit"}))
    workload = dj.Workload.marginals(schema, 2)
    name = "clipped" if schema.unit or schema.neighbours == "replace" else "auto"
    if name == "clipped" and not schema.unit and shape == "deep":
        name = "multi_table" if schema.neighbours == "add" else "two_table"
    listed = 0
    for rows, other in neighbours(schema, 3, seed=21):
        kept: list[Curator] = []
        run = learned_runner(schema, workload, LOUD, kept, name)
        assert replay_violations(run, rows, other) == []
        assert overpaid(kept[1]) == []  # type: ignore[arg-type]
        assert ledger_violations(kept[0].ledger, LOUD) == []
        kept[0].ledger.check_within(LOUD)
        listed += sum("values" in e.purpose for e in kept[0].ledger.events)
    assert listed  # lists were asked for


@pytest.mark.parametrize("method", ["capped", "per_table", "heavy_light", "uniformize", "hierarchical", "two_table"])
def test_every_method_goes_on_from_learned_domains(method: str) -> None:
    """One ledger for domains and method, within the budget."""
    schema = learnable(replace(SHAPES["two tables"], unit=()))
    attributes = tuple(dj.Attribute(name="o", range=(0, 2)) if a.name == "o" else a for a in schema.attributes)
    schema = replace(schema, attributes=attributes)
    workload = dj.Workload.marginals(schema, [("a", "b")])
    for rows, other in neighbours(schema, 2, seed=22):
        kept: list[Curator] = []
        assert replay_violations(learned_runner(schema, workload, LOUD, kept, method), rows, other) == []
        assert overpaid(kept[1]) == []  # type: ignore[arg-type]
        assert ledger_violations(kept[0].ledger, LOUD) == []
