"""Joins of several tables with declared bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

import dpjoin as dj
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.schema import DegreeBound

BUDGET = Budget(epsilon=1.0, delta=1e-6)


SHAPES = {
    "two": ("AB", "BC"),
    "path": ("AB", "BC", "CD"),
    "star": ("AB", "AC", "AD"),
    "triangle": ("AB", "BC", "CA"),
    "contained": ("AB", "B", "BC"),
    "disconnected": ("A", "B", "BC"),
    "cycle": ("AB", "BC", "CD", "DA"),
}


def make_schema(shape: str, rng: np.random.Generator | None = None) -> dj.Schema:
    """Whole-number attributes of three values; with a generator, random public tables and degree bounds."""
    tables = []
    for i, attributes in enumerate(SHAPES[shape]):
        bounds: tuple[DegreeBound, ...] = ()
        private = True
        if rng is not None:
            sets = [tuple(attributes[:1]), tuple(attributes[-1:]), tuple(attributes)]
            chosen = [sets[j] for j in range(3) if rng.random() < 0.3]
            bounds = tuple(DegreeBound(attributes=s, limit=int(rng.integers(1, 4))) for s in dict.fromkeys(chosen))
            private = bool(i == 0 or rng.random() < 0.8)
        tables.append(
            dj.Table(name=f"R{i}", attributes=tuple(attributes), bounds=bounds, enforce=bool(bounds), private=private)
        )
    names = sorted(set("".join(SHAPES[shape])))
    return dj.Schema(tuple(tables), tuple(dj.Attribute(name=a, range=(0, 2)) for a in names))


def make_rows(schema: dj.Schema, rng: np.random.Generator, largest: int = 10) -> dict[str, list[dict[str, Any]]]:
    return {
        t.name: [{a: int(rng.integers(0, 3)) for a in t.attributes} for _ in range(rng.integers(0, largest))]
        for t in schema.tables
    }


ORDERED = ("k", "Place", "x", "y")


ODD_TEXTS = ("", "a", "a|b", "b|c", "c", "1:a", "-", "ß", None)


def odd_schema(limit: int) -> dj.Schema:
    """Texts that run into each other when they are put side by side; NULL is out of the domain, "" is in it."""
    texts = tuple(t for t in ODD_TEXTS if t is not None)
    bounds = (DegreeBound(attributes=("k",), limit=limit), DegreeBound(attributes=("Place", "x"), limit=limit))
    return dj.Schema(
        (
            dj.Table(name="r", attributes=ORDERED, bounds=bounds, enforce=True),
            dj.Table(name="s", attributes=("k",), private=False),
        ),
        (
            *(dj.Attribute(name=a, key=True) for a in ("k", "Place")),
            *(dj.Attribute(name=a, values=texts, other=True) for a in ("x", "y")),
        ),
    )


def odd_answers(engine: Any, schema: dj.Schema) -> list[int]:
    (answers,) = engine.exact_answers(dj.Workload.marginals(schema, [("x", "y")]).groups)
    return [int(n) for n in answers]
