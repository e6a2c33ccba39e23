"""auto: a small look chooses, from noisy numbers only; whichever way is taken, no more than the budget is spent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.auto.choose import auto_shares, auto_tight
from dpjoin.measure.progress import silent
from dpjoin.privacy.curator import Curator
from support.audit import Tape, attach, ledger_violations, overpaid, published, replay_violations
from support.auto import CHAINS, SHARP, UNSEEN, bounded, declared, force
from support.brute import BruteEngine
from support.skewed import changed, skewed_rows

WAYS = [
    *((shape, way, False) for shape in ("two", "star", "contained") for way in ("capped", "heavy_light", None)),
    *((shape, "per_table", False) for shape in ("two", "star", "contained", *CHAINS)),
    *((shape, way, False) for shape in CHAINS for way in ("capped", None)),
    *(("star", way, True) for way in ("capped", "multi_table", UNSEEN, None)),
    *((shape, UNSEEN, False) for shape in ("two", "star", *CHAINS)),
]


@pytest.mark.parametrize(("shape", "way", "bounds"), WAYS)
def test_replay_on_neighbours(shape: str, way: str | None, bounds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Same questions on both neighbours, declared moves hold, all of rho is spent; every way is taken."""
    force(way, monkeypatch)
    rng = np.random.default_rng([len(shape), len(way or "")])
    for _ in range(6):
        schema = bounded(shape, 30) if bounds else declared(shape)
        workload = dj.Workload.marginals(schema, 1)
        rows = skewed_rows(schema, rng)
        curators: list[Any] = []

        def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
            shares = auto_shares(SHARP, schema)  # noqa: B023
            curator = attach(kind(BruteEngine(schema, tables), shares.split), tape)  # noqa: B023
            outcome = auto_tight(curator, workload, shares, silent)  # noqa: B023
            curators.append(curator)  # noqa: B023
            assert outcome.method == way or (way in (None, UNSEEN) and (outcome.method, way) != ("capped", UNSEEN))
            return published(outcome)

        assert replay_violations(run, rows, changed(schema, rows, rng)) == []
        assert overpaid(curators[1]) == []
        ledger, limit = curators[0].ledger, curators[0]._gate.accountant.limit
        assert ledger_violations(ledger, SHARP) == []
        assert ledger.rho == limit.rho
        # Delta is set aside for listed degrees or a noisy bound; other ways leave it unspent.
        assert ledger.delta in (0, limit.delta)
