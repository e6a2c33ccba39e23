"""Columns before joins: DuckDB's counts of values, of owners and of numbers are those of the definitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.privacy.columns import counts_between
from support.brute import BruteEngine
from support.learned import learnable, many_rows, typed
from support.owners import SHAPES

WEIRD: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["red", "it's", "Ünïcode", "", "5", " 5", None]),
    "whole": (pa.int64(), [0, 1, -3, 2**62, None]),
    "float": (pa.float64(), [0.0, -0.0, 1.5, 2.0, 1e300, float("nan"), float("inf"), float("-inf"), None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "date": (pa.date32(), [date(2020, 2, 29), date(1, 1, 1), date(9999, 12, 31), None]),
}


def counts_of(engine: Any, attribute: str, most: int) -> dict[Any, int]:
    exact = engine.exact_values(attribute, most)
    values = exact.exact_values(np.arange(len(exact.exact_counts)))
    return dict(zip(values, exact.exact_counts.tolist(), strict=True))


def numbers_of(engine: Any, attribute: str) -> dict[float, int]:
    exact = engine.exact_numbers(attribute)
    return dict(zip(exact.exact_values.tolist(), exact.exact_counts.tolist(), strict=True))


@pytest.mark.parametrize("kind", WEIRD)
def test_values_of_a_column(kind: str) -> None:
    """Rows that a declared domain or a missing key drops do not count; odd values do not raise."""
    rng = np.random.default_rng(3)
    dtype, values = WEIRD[kind]
    part = "date" if kind == "date" else None
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("k", "d", "x")), dj.Table(name="s", attributes=("k",))),
        (
            dj.Attribute(name="k", key=True),
            dj.Attribute(name="d", range=(0, 2)),
            dj.Attribute(name="x", part=part, learn=True),
        ),
    )
    for _ in range(2):
        rows = {
            "r": [
                {
                    "k": None if rng.random() < 0.1 else int(rng.integers(4)),
                    "d": int(rng.integers(0, 4)),
                    "x": values[rng.integers(len(values))],
                }
                for _ in range(60)
            ],
            "s": [{"k": 1}],
        }
        brute = BruteEngine(schema, rows)
        engine = DuckEngine(schema, typed(schema, rows, {"x": dtype}), attributes=("d",))
        found = counts_of(engine, "x", 1)
        assert found == counts_of(brute, "x", 1)
        assert found  # something was there to compare
        assert type(next(iter(found))[0]) in (str, int, bool)
        if kind not in ("text",):
            assert numbers_of(engine, "x") == numbers_of(brute, "x")


@pytest.mark.parametrize("shape", ["two tables", "deep", "snowflake", "two attributes"])
def test_owners_of_each_value(shape: str) -> None:
    """Every owner at so many values of its own, along foreign keys too; orphans and missing owners at none."""
    schema, rng = learnable(SHAPES[shape]), np.random.default_rng(4)
    for most in (1, 2, 4):
        rows = many_rows(schema, rng)
        brute = BruteEngine(schema, rows)
        engine = DuckEngine(schema, typed(schema, rows, {}), attributes=())
        for name in schema.learned:
            found = counts_of(engine, name, most)
            assert found == counts_of(brute, name, most)
            assert numbers_of(engine, name) == numbers_of(brute, name)
            table = schema.table(schema.owner(name))
            if table.private and table.owner_via is None:
                pairs = {(tuple(r[a] for a in schema.unit), r[name]) for r in rows[table.name]}
                known = Counter(o for o, v in pairs if None not in o and v is not None)
                assert sum(found.values()) <= sum(min(most, n) for n in known.values())


def test_counts_between_edges() -> None:
    """A number on an edge belongs to the count that begins there; what is outside belongs to none."""
    schema = dj.Schema((dj.Table(name="r", attributes=("x",)),), (dj.Attribute(name="x", learn={"bins": 2}),))
    rng = np.random.default_rng(5)
    values = [float(v) for v in rng.choice([0, 1, 2.5, 7, -3], 200)]
    engine = DuckEngine(schema, {"r": pa.table({"x": values})}, attributes=("x",))
    edges = (-3.0, 0.0, 2.5, 3.0)
    wanted = [sum(low <= v < high for v in values) for low, high in ((-3, 0), (0, 2.5), (2.5, 3))]
    assert counts_between(engine.exact_numbers("x"), edges).tolist() == wanted


def test_learned_engines_answer_as_declared_ones() -> None:
    """After the domains are set nothing reminds of how they came about; the columns of files may be text."""
    schema = learnable(SHAPES["star"])
    rng = np.random.default_rng(6)
    known = {
        "a": dj.Attribute(name="a", values=(1, 2), other=True),
        "b": dj.Attribute(name="b", bins=(0, 1, 2), other=True),
        "c": dj.Attribute(name="c", values=(), other=True),
    }
    declared = replace(schema, attributes=tuple(known.get(a.name, a) for a in schema.attributes))
    workload = dj.Workload.marginals(declared, 2)
    for _ in range(2):
        rows = many_rows(schema, rng)
        tables = typed(schema, rows, {})
        engines = [
            BruteEngine(schema, rows).learned(declared),
            DuckEngine(schema, tables, attributes=("a", "b", "c")).learned(declared),
            DuckEngine(declared, tables, attributes=("a", "b", "c")),
        ]
        answers = [[a.tolist() for a in e.exact_answers(workload.groups)] for e in engines]
        assert answers[0] == answers[1] == answers[2]
