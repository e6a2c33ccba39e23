"""What a ledger's rho means in (epsilon, delta), by other formulas."""

from __future__ import annotations

import math


def log_delta(rho: float, epsilon: float, order: float) -> float:
    return (order - 1) * (order * rho - epsilon) - math.log(order - 1) + order * math.log1p(-1 / order)
