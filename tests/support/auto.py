"""Make auto take one way, on joins of every shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.auto import choose as auto
from dpjoin.methods.correlated_degrees import (
    Degrees,
    KeyDegrees,
    correlated_to,
    on_key,
)
from dpjoin.methods.look import Look
from dpjoin.methods.remainder import Remainder
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.schema import DegreeBound
from support.skewed import schema_of

SHARP = Budget(epsilon=50.0, delta=1e-6)


CHAINS = {"path": {"r": "Ap", "s": "ABq", "t": "Bu"}, "triangle": {"r": "ABp", "s": "BCq", "t": "CAu"}}
"""Joins without an attribute that all tables share."""


def declared(shape: str) -> dj.Schema:
    """The same with a domain for the key, so that tables can be modelled alone."""
    if shape in CHAINS:
        tables = tuple(dj.Table(name=t, attributes=tuple(x)) for t, x in CHAINS[shape].items())
        names = sorted({a for t in tables for a in t.attributes})
        return dj.Schema(tables, tuple(dj.Attribute(name=a, range=(0, 4 if a == "A" else 2)) for a in names))
    schema = schema_of(shape)
    attributes = (dj.Attribute(name=a.name, range=(0, 4)) if a.key else a for a in schema.attributes)
    return dj.Schema(schema.tables, tuple(attributes))


def force_forecast(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a closer look, make one method promise least."""
    honest = auto.forecasts

    def forced(look: Look, left: Remainder, shares: auto.AutoShares) -> list[auto.Forecast]:
        found = honest(look, left, shares)
        return found if look.levels is None else [*found, auto.Forecast(method, left, -1.0)]

    monkeypatch.setattr(auto, "forecasts", forced)


UNSEEN = "a join that does not show under caps"


def force(way: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `auto` go one way; None: as it likes."""
    if way == UNSEEN:
        monkeypatch.setattr(Look, "visible", False)
    elif way is not None:
        force_forecast(way, monkeypatch)


def bounded(shape: str, limit: int) -> dj.Schema:
    """The same, with a declared bound on how many rows of a table have one value of the key."""
    schema = schema_of(shape)
    bound = (DegreeBound(attributes=("A",), limit=limit),)
    return dj.Schema(tuple(replace(t, bounds=bound) for t in schema.tables), schema.attributes)


def even_tables(shape: dict[str, str], rows: int, values: int, rng: np.random.Generator) -> dict[str, pa.Table]:
    """Keys (capital letters) are drawn evenly, or by Zipf's law where there are many; attributes have three values."""
    popular = 1 / np.arange(1, values + 1) if values > 100 else np.ones(values)
    return {
        t: pa.table(
            {
                a: rng.choice(values, rows, p=popular / popular.sum()) if a.isupper() else rng.integers(0, 3, rows)
                for a in attributes
            }
        )
        for t, attributes in shape.items()
    }


def met(degrees: Degrees, size: float) -> list[KeyDegrees]:
    """Two tables that meet by the declared key."""
    schema = declared("two")
    return correlated_to(schema, [on_key(schema, ("A",), degrees)], size)
