"""Replay: the same questions on neighbours, no exact value moves more than declared, the same publication."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpjoin.measure.shares import tight_shares
from dpjoin.privacy.degree_bounds import bound_is_public
from support.audit import ledger_violations, replay_violations
from support.replay import BUDGET, runner
from support.strategies import neighbour, random_instance


@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("block", range(10))
def test_replay_on_random_neighbours(profile: str, block: int) -> None:
    """Control flow and publication depend on noisy answers only, and every declared sensitivity holds."""
    rng = np.random.default_rng([block, 1 if profile == "tight" else 2])
    for _ in range(30):
        schema, workload, tables = random_instance(rng)
        ledgers: list[Any] = []
        run = runner(schema, workload, profile, ledgers)
        assert replay_violations(run, tables, neighbour(rng, schema, tables)) == []
        assert ledger_violations(ledgers[0], BUDGET) == []
        if profile == "tight":
            rho = tight_shares(BUDGET, noisy_bound=not bound_is_public(schema)).split.rho
            assert ledgers[0].rho == rho
        else:
            assert (ledgers[0].epsilon, ledgers[0].delta) == (BUDGET.exact.epsilon, BUDGET.exact.delta)
