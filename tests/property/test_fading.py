"""Rows that count less, the more of them share a value: oracle, sensitivity on neighbours, what is refused."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpjoin.engine.interface import RowWeights
from dpjoin.privacy.degree_bounds import most_of_value, moves_of_row


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12))
def test_what_a_row_moves_is_the_worst_over_degrees(weights: list[int]) -> None:
    """Against the definition, degree by degree."""
    falling = sorted(weights, reverse=True)
    fade = RowWeights(("A",), np.array(falling), 30)
    of = [*falling, 0, 0]
    assert most_of_value(fade) == max(d * w for d, w in enumerate(of, 1))
    square = max(of[d] ** 2 + (d * (of[d - 1] - of[d]) if d else 0) ** 2 for d in range(len(of)))
    moves = moves_of_row(fade)
    assert (moves - 1) ** 2 < square <= moves**2 or moves == square == 0
