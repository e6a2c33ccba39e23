"""What callers hand over is checked and kept as it was: queries, caps, weights of rows, rules and costs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpjoin.privacy.sensitivity import absolute_norm, squared_norm, weight_ranges
from dpjoin.spec.workload import Factor, kronecker
from support.trust import ONE

WIDE = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**32, -(2**31), 2**62, 1, 0]))


@given(st.lists(WIDE, min_size=4, max_size=12).map(lambda x: x[: len(x) // 4 * 4]))
def test_norms_of_wide_rows_are_exact(numbers: list[int]) -> None:
    """As sums of Python integers, up to the ends of int64."""
    rows = [numbers[i : i + 4] for i in range(0, len(numbers), 4)]
    group = kronecker(ONE, {"a": Factor("rows", packed=np.array(rows, dtype=np.int64).tobytes())})
    assert squared_norm(group) == max(sum(w**2 for w in column) for column in zip(*rows, strict=True))
    assert absolute_norm(group) == max(sum(abs(w) for w in column) for column in zip(*rows, strict=True))
    assert [weight_ranges(group).of(i) for i in range(len(rows))] == [(min(row), max(row)) for row in rows]
    assert group.max_abs == max(map(abs, numbers))
