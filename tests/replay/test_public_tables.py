"""Private tables beside public ones: public rows are read as they are, and knowing more never makes answers worse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpjoin.auto.choose import auto_shares, auto_tight
from dpjoin.measure.progress import silent
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.public_tables import with_public_bounds
from dpjoin.spec.workload import Workload
from support.audit import Tape, attach, ledger_violations, overpaid, replay_violations
from support.auto import UNSEEN, force
from support.brute import BruteEngine
from support.heavy_light import ANY, SHARP, audit, few_members, hot_rows, told
from support.public_tables import beside
from support.skewed import changed


@pytest.mark.parametrize("shape", ANY)
def test_per_table_beside_public_tables_replays_on_neighbours(shape: str) -> None:
    """One public table or all but one: same questions, declared moves hold, and the ledger has the whole budget."""
    rng = np.random.default_rng(len(shape))
    several = len(ANY[shape])
    for turn in range(6):
        public = {turn % several} if turn % 2 else set(range(several)) - {turn % several}
        schema = beside(shape, public)
        rows = hot_rows(schema, rng)
        found, parts = audit("per_table", schema, rows, changed(schema, rows, rng), turn)
        assert found == [], f"turn {turn}"
        assert parts == several - len(public)


@pytest.mark.parametrize("way", ["capped", "per_table", UNSEEN, None])
@pytest.mark.parametrize("shape", ["star", "nested", "path", "triangle"])
def test_auto_beside_public_tables_replays_on_neighbours(
    shape: str, way: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bounds that are read off them: same questions, declared moves hold, all of rho is spent."""
    force(way, monkeypatch)
    rng = np.random.default_rng([len(shape), len(way or "")])
    for turn in range(4):
        schema = beside(shape, {turn % 3})
        rows = hot_rows(schema, rng)
        curators: list[Any] = []

        def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
            engine = with_public_bounds(BruteEngine(schema, tables))  # noqa: B023
            shares = auto_shares(SHARP, engine.schema)
            curator = attach(kind(engine, shares.split), tape)
            curators.append(curator)  # noqa: B023
            with few_members():
                outcome = auto_tight(curator, Workload.marginals(engine.schema, 1), shares, silent)
            assert outcome.method == way or (way in (None, UNSEEN) and (outcome.method, way) != ("capped", UNSEEN))
            return told(outcome)

        assert replay_violations(run, rows, changed(schema, rows, rng)) == []
        assert overpaid(curators[1]) == []
        assert ledger_violations(curators[0].ledger, SHARP) == []
        assert curators[0].rho_left == 0
