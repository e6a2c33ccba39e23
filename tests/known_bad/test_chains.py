"""Tables that meet others in several places: what `per_table` asks of them, from public and noisy numbers only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.methods import table_models as alone
from dpjoin.privacy.curator import Curator
from support.audit import Tape
from support.brute import BruteEngine
from support.heavy_light import DECLARED, per_table_on, problems, schema_of, told


@pytest.mark.parametrize("exact", [False, True])
def test_scopes_from_the_exact_number_of_rows_are_caught(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row less, and another marginal is asked for; by the noisy number, the same ones are."""
    schema = schema_of("path", DECLARED)
    rng = np.random.default_rng(1)
    cells = schema.cells(("B", "C"))
    rows = {t.name: [{a: int(rng.integers(0, 3)) for a in t.attributes} for _ in range(cells)] for t in schema.tables}
    fewer = {**rows, "s": rows["s"][1:]}
    seen: list[Curator] = []
    total, with_rows = alone.measure_total, alone._with_enough_rows

    def watched(curator: Curator, *more: Any) -> Any:
        seen.append(curator)
        return total(curator, *more)

    def by_rows(schema: dj.Schema, scopes: Any, key: Any, links: Any, noisy: float) -> Any:
        known = float(seen[-1]._engine.exact_join_size()) if exact else noisy
        found = with_rows(schema, scopes, key, links, known)
        # The narrowest marginals have no parts; here they are left out instead, which is the same leak.
        return found if known >= cells else [s[:1] for s in found]

    monkeypatch.setattr(alone, "measure_total", watched)
    monkeypatch.setattr(alone, "_with_enough_rows", by_rows)

    def run(kind: type[Curator], tables: Any, tape: Tape) -> tuple[Any, Curator]:
        outcome, curator = per_table_on(BruteEngine(schema, tables), kind, tape)
        return told(outcome), curator

    assert any(problems(run, rows, fewer)) == exact
