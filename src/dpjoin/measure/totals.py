"""Noisy join sizes, and how far off they typically are."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpjoin.privacy.accounting import Concentrated
from dpjoin.privacy.curator import Bound, Curator


@dataclass(frozen=True)
class NoisyTotal:
    """A noisy join size, and how far off it typically is."""

    noisy: float
    deviation: float

    @property
    def whole(self) -> int:
        return max(1, round(self.noisy))

    def combined(self, other: NoisyTotal) -> NoisyTotal:
        """Both by precision."""
        ours, theirs = self.deviation**-2, other.deviation**-2
        return NoisyTotal((self.noisy * ours + other.noisy * theirs) / (ours + theirs), (ours + theirs) ** -0.5)


def measure_total(curator: Curator, bound: Bound, cost: Concentrated) -> NoisyTotal:
    """The join size, by the discrete Gaussian, or with Laplace noise if the cost is of that."""
    size = curator.join_size(bound, cost)
    unit = float(size.unit)
    return NoisyTotal(size.noisy * unit, unit * math.sqrt(size.variance))
