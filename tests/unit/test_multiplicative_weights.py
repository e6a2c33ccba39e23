"""The incremental iterate is the naive loop: the same choices, the same average, whatever the groups look like."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.auto.plan import layout
from dpjoin.auto.registry import PAPER_CELLS, chosen_method
from dpjoin.errors import SpecError
from dpjoin.model.multiplicative_weights import Iterate
from dpjoin.model.terms import Domain
from dpjoin.privacy.sensitivity import weight_ranges
from dpjoin.spec.workload import (
    Factor,
    group_from_json,
    group_to_json,
    kronecker,
)
from support.strategies import split_schema


def test_a_slab_that_grows_for_ever_neither_overflows_nor_cancels() -> None:
    """Five hundred steps of the largest size at one cell: the normaliser would leave float64 without fresh starts."""
    domain = Domain(("a",), ("b",), {"a": 40, "b": 30})
    fast = Iterate(domain, 9.0, [("a",)])
    table = np.full((40, 30), 9.0 / 1200)
    total = table.copy()
    weights = {("a",): np.eye(40)[3], ("b",): np.eye(30)[29]}
    for done in range(500):
        step = 0.5 if done < 250 else -0.5
        fast.update(weights, step)
        table[3, 29] *= np.exp(step)
        table *= 9.0 / table.sum()
        total += table
    np.testing.assert_allclose(fast.sum_of_tables(), total, rtol=1e-12, atol=0)
    np.testing.assert_allclose(fast.table(), table, rtol=1e-12, atol=0)


def test_ranges_beyond_64_bits_are_whole_numbers_too() -> None:
    """Five factors of 16 bits."""
    schema = split_schema([2] * 5)
    group = kronecker(schema, dict.fromkeys(schema.queryable, Factor("weights", (-(2**16), 2**16 - 1), Fraction(1))))
    ranges = weight_ranges(group)
    assert ranges.of(0) == (-(2**80), 2**64 * (2**16 - 1))
    assert int(ranges.largest[0]) == 2**80


def test_crossed_workloads_survive_a_round_trip_and_say_what_is_wrong() -> None:
    """As plain data and back; weights must be rows within [-1, 1], one number per value."""
    schema = split_schema([4, 3])
    workload = dj.Workload.crossed(schema, {"x0": np.eye(4), "x1": [[0.5, -1, 0.25]]})
    (group,) = workload.groups
    again = group_from_json(schema, group_to_json(group))
    assert again == group
    assert hash(again) == hash(group)
    assert [str(f.unit) for f in group.factors] == ["1", "1/65536"]
    with pytest.raises(SpecError, match="rows of 4 numbers"):
        dj.Workload.crossed(schema, {"x0": [[1, 0, 0]]})
    with pytest.raises(SpecError, match="one row per question"):
        dj.Workload.crossed(schema, {"x0": [1, 0, 0, 1]})
    with pytest.raises(SpecError, match=r"must lie in \[-1, 1\]"):
        dj.Workload.crossed(schema, {"x0": [[2, 0, 0, 1]]})


def test_the_paper_profile_serves_ten_million_cells_and_says_where_it_ends() -> None:
    """The limit is that of a dense table, above that of the tight profile; the plan says that the model is dense."""
    schema = split_schema([10] * 7)
    workload = dj.Workload.marginals(schema, 2)
    assert chosen_method(schema, "two_table", "paper", workload).name == "two_table"
    assert layout(workload, "paper").words.startswith("dense")
    assert layout(workload).words.startswith("factored")
    larger = split_schema([10] * 8)
    with pytest.raises(SpecError, match=f"at most {PAPER_CELLS:,} cells"):
        chosen_method(larger, "two_table", "paper", dj.Workload.marginals(larger, 2))
