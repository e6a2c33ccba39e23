"""heavy_light and per_table: heavy values table by table, joins of models are exact, a row pays in one part only."""

from __future__ import annotations

import numpy as np
import pytest

from support.heavy_light import (
    ANY,
    DECLARED,
    KEY,
    audit,
    hot_rows,
    schema_of,
)
from support.skewed import SHAPES as COMMON
from support.skewed import changed


def many_audits(method: str, shape: str, count: int) -> None:
    rng = np.random.default_rng([len(shape), method == "heavy_light", count])
    several = 0
    for turn in range(count):
        key = KEY if method == "heavy_light" and turn % 3 else DECLARED
        schema = schema_of(shape, key, bounded=method == "per_table" and turn % 5 == 4)
        rows = hot_rows(schema, rng)
        found, parts = audit(method, schema, rows, changed(schema, rows, rng), turn)
        assert found == [], f"turn {turn}"
        several += parts > 1
    # Otherwise the test would say nothing about tables that are alone.
    assert several > count // 2


@pytest.mark.parametrize("shape", COMMON)
def test_heavy_light_replays_on_neighbours(shape: str) -> None:
    """Same questions, declared moves hold, nobody pays more than the ledger says, which is the whole budget."""
    many_audits("heavy_light", shape, 12)


@pytest.mark.parametrize("shape", ANY)
def test_per_table_replays_on_neighbours(shape: str) -> None:
    """The same: each table spends everything, and the changed row is in one of them."""
    many_audits("per_table", shape, 10)


@pytest.mark.full
@pytest.mark.parametrize("shape", COMMON)
def test_heavy_light_replays_on_many_neighbours(shape: str) -> None:
    many_audits("heavy_light", shape, 300)


@pytest.mark.full
@pytest.mark.parametrize("shape", ANY)
def test_per_table_replays_on_many_neighbours(shape: str) -> None:
    many_audits("per_table", shape, 300)
