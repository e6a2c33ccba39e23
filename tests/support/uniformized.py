"""Uniformize on a small instance, in either profile."""

from __future__ import annotations

from typing import Any

import pytest

import dpjoin as dj
from dpjoin.measure.progress import silent
from dpjoin.measure.shares import partition_shares
from dpjoin.methods.method import Outcome
from dpjoin.paper import alg4_uniformize as uniformize
from dpjoin.paper.alg4_uniformize import uniformize_paper, uniformize_tight
from dpjoin.privacy.accounting import Split
from dpjoin.privacy.curator import Curator
from support.audit import Tape, attach
from support.skewed import GENEROUS


def run_on(engine: Any, kind: type[Curator], profile: str, tape: Tape | None = None) -> tuple[Outcome, Curator]:
    schema = engine.schema
    workload = dj.Workload.marginals(schema, 1)
    if profile == "tight":
        shares = partition_shares(GENEROUS, gauge=len(schema.tables) > 2)
        curator = kind(engine, shares.split)
        attach(curator, tape or Tape())
        with pytest.MonkeyPatch.context() as patch:
            # Any merging is sound. On so few rows the predicted error would merge everything.
            patch.setattr(uniformize, "best_runs", lambda count, _: [range(n, n + 1) for n in range(count)])
            return uniformize_tight(curator, workload, shares, silent), curator
    curator = kind(engine, Split(budget=GENEROUS, paper=True))
    attach(curator, tape or Tape())
    return uniformize_paper(curator, workload, GENEROUS.exact, silent), curator
