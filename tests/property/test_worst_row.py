"""What one row pays at most: against every choice of a bucket for each label, in loops."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np

from dpjoin.privacy.ledger import Place, largest_total

LABELS = "uvwx"


def in_loops(places: list[tuple[Place, Fraction]]) -> Fraction:
    best = Fraction(0)
    for choice in product(range(3), repeat=len(LABELS)):
        row = dict(zip(LABELS, choice, strict=True))
        best = max(best, sum((a for place, a in places if place.items() <= row.items()), Fraction(0)))
    return best


def test_the_largest_total_is_that_of_the_worst_row() -> None:
    """Of random sub-instances with random amounts, labels in common or not."""
    rng = np.random.default_rng(0)
    for _ in range(150):
        places: list[tuple[Place, Fraction]] = [
            (
                {name: int(rng.integers(3)) for name in LABELS if rng.random() < 0.4},
                Fraction(int(rng.integers(1, 9)), int(rng.integers(1, 4))),
            )
            for _ in range(int(rng.integers(1, 8)))
        ]
        assert largest_total(places) == in_loops(places)
    assert largest_total([]) == 0
