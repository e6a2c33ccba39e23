"""Buckets of join values: rows that join are in one, so each can be worked at by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BUCKETS = 1021
"""A prime, so that keys at equal distances do not meet in a few buckets."""


@dataclass(frozen=True)
class Bucketed:
    """Whole numbers of the buckets from `first` on, `width` of them, as numbers without gaps in between."""

    first: int
    width: int

    def closed(self, values: Any) -> Any:
        """Without the gaps.

        >>> import numpy as np
        >>> Bucketed(first=20, width=2).closed(np.array([20, 21, 1041, 1042, 2062]))
        array([0, 1, 2, 3, 4])
        """
        return values // BUCKETS * self.width + (values % BUCKETS - self.first)

    def opened(self, closed: Any) -> Any:
        """With the gaps again.

        >>> import numpy as np
        >>> Bucketed(first=20, width=2).opened(np.array([0, 1, 2, 3, 4]))
        array([  20,   21, 1041, 1042, 2062])
        """
        return closed // self.width * BUCKETS + (closed % self.width + self.first)

    def holds(self, values: Any) -> Any:
        bucket = values % BUCKETS
        return (self.first <= bucket) & (bucket < self.first + self.width)
