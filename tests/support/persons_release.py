"""Releases that protect persons: schemas and rows for them."""

from __future__ import annotations

from typing import Any

import dpjoin as dj
from support.owners import (
    schema_of,
)

GENEROUS = dj.Budget(epsilon=20.0, delta=1e-3)


def table(name: str, *attributes: str, **more: Any) -> dj.Table:
    return dj.Table(name=name, attributes=attributes, **more)


def bound_by(limit: int, *attributes: str) -> tuple[dj.DegreeBound, ...]:
    return (dj.DegreeBound(attributes=attributes, limit=limit),)


OTHER_SHAPE = schema_of(
    table("r", "o", "a", "b", bounds=bound_by(2, "o")),
    table("s", "v", "b", "c", owner=("v",), bounds=bound_by(1, "v")),
)
"""Tables joined on something else than the owner, which they call by different names."""
