"""Hierarchical joins: typed parts cut the join exactly, caps hold on both neighbours, no row pays more than stated."""

from __future__ import annotations

import numpy as np
import pytest

from dpjoin.paper.alg6_partition_hierarchical import (
    MOST_PARTS,
)
from support.hierarchical import (
    SHAPES,
    audit,
    changed,
    schema_of,
    skewed_rows,
)


def many_audits(shape: str, profile: str, count: int) -> None:
    rng = np.random.default_rng([len(shape), profile == "tight", count])
    several = 0
    for turn in range(count):
        schema = schema_of(shape, public="r1" if turn % 5 == 4 else None)
        rows = skewed_rows(schema, rng)
        found, parts = audit(schema, rows, changed(schema, rows, rng)[1], profile)
        assert found == []
        assert parts <= MOST_PARTS
        several += parts > 1
    # Otherwise the test would say nothing about partitions.
    assert several >= count // 3


@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replay_on_neighbours(shape: str, profile: str) -> None:
    """Same questions, declared moves hold, nobody pays more than the ledger says, which is the whole budget."""
    many_audits(shape, profile, 4 if shape in {"deep", "figure4"} else 12)


@pytest.mark.full
@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replay_on_many_neighbours(shape: str, profile: str) -> None:
    many_audits(shape, profile, 300)
