"""Joins of three and more tables: declared bounds are sound, replay passes, and a release comes out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.privacy.accounting import Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public
from dpjoin.spec.schema import DegreeBound
from support.brute import BruteEngine
from support.many_tables import BUDGET, make_rows, make_schema


def test_enough_bounds_make_the_sensitivity_free() -> None:
    """A star with bounds on two tables of three still needs a noisy bound; on all three it needs none."""
    schema = make_schema("star")
    bounded = [replace(t, bounds=(DegreeBound(attributes=("A",), limit=i + 2),)) for i, t in enumerate(schema.tables)]
    some = dj.Schema((*bounded[:2], schema.tables[2]), schema.attributes)
    every = dj.Schema(tuple(bounded), schema.attributes)
    assert not bound_is_public(some)
    assert bound_is_public(every)
    curator = Curator(BruteEngine(every, make_rows(every, np.random.default_rng(0))), Split(budget=BUDGET, paper=True))
    bound = curator.public_bound()
    assert bound is not None
    assert bound.value == 3 * 4


def test_a_three_table_release_end_to_end(tmp_path: Path) -> None:
    """Path of three tables with a unique key and a bound: released, saved, loaded, evaluated."""
    rng = np.random.default_rng(4)
    orders = pa.table({"order": np.arange(4000), "customer": rng.integers(0, 500, 4000), "month": np.arange(4000) % 12})
    items = pa.table({"order": rng.integers(0, 4000, 9000), "kind": rng.integers(0, 4, 9000)})
    people = pa.table({"customer": np.arange(500), "region": np.arange(500) % 3})
    spec = dj.Spec.from_dict(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-6},
            "tables": {
                "people": {"attributes": ["customer", "region"], "unique": ["customer"]},
                "orders": {
                    "attributes": ["order", "customer", "month"],
                    "unique": ["order"],
                    "max_degree": {"customer": 30},
                },
                "items": {"attributes": ["order", "kind"], "max_degree": {"order": 12}},
            },
            "attributes": {
                "customer": {"key": True},
                "order": {"key": True},
                "region": {"range": [0, 2]},
                "month": {"range": [0, 11]},
                "kind": {"range": [0, 3]},
            },
            "workload": {"marginals": 2},
        }
    )
    tables = {"people": people, "orders": orders, "items": items}
    release = dj.release(spec.schema, spec.workload, tables, spec.budget, method="multi_table")
    assert release.method == "multi_table"
    assert release.facts["sensitivity_bound"] == 360
    assert release.ledger.events[0].purpose == "join size"
    again = dj.load(release.save(tmp_path / "out"))
    assert np.allclose(again.answer(), release.answer())
    assert any("At most one row of people" in line for line in again.manifest()["assumptions"])
    assert dj.Spec.from_dict(_as_dict(spec)).schema == spec.schema
    assert dj.evaluate(release, tables).join_size_error < 9000
    # The bounds are far above the degrees, and `auto` finds that out.
    assert dj.release(spec.schema, spec.workload, tables, spec.budget).facts["sensitivity_bound"] < 360


def _as_dict(spec: dj.Spec) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(spec.to_toml())


@pytest.mark.parametrize("shape", ["two", "path", "star", "triangle"])
@pytest.mark.parametrize("profile", ["tight", "paper"])
def test_a_broken_promise_raises_nothing(shape: str, profile: str) -> None:
    """Rows beyond an assumed bound are left out silently: an error would tell that they exist."""
    schema = make_schema(shape)
    first = replace(schema.tables[0], bounds=(DegreeBound(attributes=schema.tables[0].attributes[-1:], limit=1),))
    promised = dj.Schema((first, *schema.tables[1:]), schema.attributes)
    rows = {t.name: [dict.fromkeys(t.attributes, 1)] * 30 for t in promised.tables}
    arrow = {
        t.name: pa.table({a: pa.array([r[a] for r in rows[t.name]], pa.int64()) for a in t.attributes})
        for t in promised.tables
    }
    released = dj.release(promised, dj.Workload.marginals(promised, 1), arrow, BUDGET, profile=profile)
    assert released.join_size >= 1
    assert DuckEngine(promised, arrow, attributes=()).exact_boundary(frozenset({first.name})) == 1
