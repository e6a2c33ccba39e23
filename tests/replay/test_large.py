"""Domains too large to write down: end to end, privately, and as the dense model would where both can serve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.auto.choose import auto_shares, auto_tight
from dpjoin.measure import join as as_one
from dpjoin.measure import large_domains as chosen
from dpjoin.measure.progress import silent
from dpjoin.methods.as_one import as_one_shares, as_one_tight
from dpjoin.model.model import Model
from dpjoin.privacy.curator import Curator
from dpjoin.spec.schema import Schema
from support.audit import DELTA_LEFT, Tape, attach, audited
from support.brute import BruteEngine
from support.large import SHARP, one_table, pair_of_tables


def small_rows(schema: Schema, rng: np.random.Generator, count: int) -> dict[str, list[dict[str, int]]]:
    return {t.name: [{a: int(rng.integers(3)) for a in t.attributes} for _ in range(count)] for t in schema.tables}


@pytest.mark.parametrize("tree_cells", [2**18, 100])
@pytest.mark.parametrize("kind", ["one table", "pair"])
def test_replay_on_neighbours(kind: str, tree_cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same questions, declared moves, the whole budget, the same model; also where marginals are left out."""
    monkeypatch.setattr(as_one, "DENSE_CELLS", 10)
    monkeypatch.setattr(chosen, "ALL_CELLS", tree_cells)
    monkeypatch.setattr(chosen, "TREE_CELLS", tree_cells)
    rng = np.random.default_rng(tree_cells)
    schema = one_table(6, 3) if kind == "one table" else pair_of_tables(6, 3)
    workload = dj.Workload.marginals(schema, 2)

    def run(curators: type[Curator], tables: Any, tape: Tape) -> Any:
        engine = BruteEngine(schema, tables)
        if kind == "pair":
            look = auto_shares(SHARP, schema)
            curator = attach(curators(engine, look.split), tape)
            return auto_tight(curator, workload, look, silent), curator
        shares = as_one_shares(SHARP, schema)
        curator = attach(curators(engine, shares.split), tape)
        return as_one_tight(curator, workload, shares, silent), curator

    for n in range(3):
        rows = small_rows(schema, rng, 12)
        table = schema.tables[n % len(schema.tables)].name
        other = rows | {table: rows[table][1:]}
        wrong, outcome = audited(run, rows, other, SHARP)
        if kind == "one table":  # auto leaves delta unspent where it does not take the hybrid
            assert wrong == []
        assert [w for w in wrong if w != DELTA_LEFT] == []
        assert isinstance(outcome.model, Model)
        assert outcome.model.tree is not None
        assert bool(outcome.model.misfits) == (tree_cells == 100)
