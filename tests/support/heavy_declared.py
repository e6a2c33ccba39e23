"""Heavy and light values of a key whose values are declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dpjoin as dj
from dpjoin.engine.interface import Engine
from dpjoin.methods.heavy_light import (
    heavy_light_shares,
    heavy_light_tight,
)
from dpjoin.privacy.accounting import Budget
from support.audit import tight_run
from support.skewed import SHAPES

BLUNT = Budget(epsilon=1.0, delta=1e-6)


def schema_of(shape: str, values: int = 4) -> dj.Schema:
    """Everything declared, the key with a few values more than occur."""
    tables = SHAPES[shape]
    attributes = sorted({a for x in tables.values() for a in x})
    return dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x)) for t, x in tables.items()),
        tuple(dj.Attribute(name=a, range=(0, values if a == "A" else 2)) for a in attributes),
    )


def run_on(make: Callable[[Any], Engine], workload: dj.Workload, budget: Budget) -> Any:
    return tight_run(make, heavy_light_shares, heavy_light_tight, workload, budget)
