"""auto: a small look chooses, from noisy numbers only; whichever way is taken, no more than the budget is spent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.auto import choose as auto
from dpjoin.auto.choose import auto_shares, auto_tight
from dpjoin.constants import VISIBLE
from dpjoin.measure.progress import silent
from dpjoin.measure.totals import NoisyTotal
from dpjoin.privacy.curator import Curator
from support.audit import Tape, attach, published, replay_violations
from support.auto import SHARP, declared
from support.brute import BruteEngine
from support.skewed import skewed_rows


@pytest.mark.parametrize("exact", [False, True])
def test_going_by_the_exact_size_where_caps_show_nothing_is_caught(
    exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a join shows under caps must be told by charged sizes; the honest release is not flagged."""
    schema = declared("path")
    workload = dj.Workload.marginals(schema, 1)
    rows = skewed_rows(schema, np.random.default_rng(3))
    other = rows | {"r": rows["r"][1:]}
    measured, sizes = auto.closer_look, []

    def true_look(curator: Curator, *more: Any) -> Any:
        sizes.append(float(curator._engine.exact_join_size()))
        # With a threshold between the two sizes, so that one neighbour shows and the other does not.
        return replace(measured(curator, *more), size=NoisyTotal(sizes[-1], sizes[0] / VISIBLE))

    honest = auto.forecasts

    def capped_first(*given: Any) -> list[auto.Forecast]:
        return [replace(f, error=float(f.method != "capped")) for f in honest(*given)]

    monkeypatch.setattr(auto, "forecasts", capped_first)
    if exact:
        monkeypatch.setattr(auto, "closer_look", true_look)

    def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
        shares = auto_shares(SHARP, schema)
        return published(
            auto_tight(attach(kind(BruteEngine(schema, tables), shares.split), tape), workload, shares, silent)
        )

    assert bool(replay_violations(run, rows, other)) == exact
    assert not exact or sizes[1] < sizes[0]
