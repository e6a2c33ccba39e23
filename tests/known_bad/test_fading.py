"""Rows that count less, the more of them share a value: oracle, sensitivity on neighbours, what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpjoin.engine.interface import RowWeights
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.spec.workload import CELLS, kronecker
from support.audit import replay_violations
from support.brute import BruteEngine
from support.capped import schema_of
from support.fading import BUDGET
from support.skewed import Rows


def test_weights_that_forget_what_the_others_lose_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row's own weight alone: the audit finds the rest."""
    schema = schema_of("two")
    group = kronecker(schema, {"B": CELLS, "C": CELLS})
    fades = {t: RowWeights(("A",), np.array([8] * 5), 8) for t in "rs"}

    def run(curator_class: type[Curator], tables: Any, tape: Any) -> Any:
        curator = curator_class(BruteEngine(schema, tables), Split(budget=BUDGET))
        curator.__dict__["tape"] = tape
        faded = curator.weighted(fades)
        bound = faded.public_bound()
        assert bound is not None
        return faded.measure(group, bound, Concentrated(Fraction(1, 1000))).values.tolist()

    rows: Rows = {"r": [{"A": 0, "B": 1}] * 5, "s": [{"A": 0, "C": 2}] * 5}
    other: Rows = {"r": [{"A": 0, "B": 1}] * 6, "s": rows["s"]}
    assert replay_violations(run, rows, other) == []
    monkeypatch.setattr("dpjoin.privacy.degree_bounds.moves_of_row", lambda fade: int(fade.weights[0]))
    assert any("sensitivity" in w for w in replay_violations(run, rows, other))
