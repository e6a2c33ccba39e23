"""The instances that the paper draws, as rows."""

from __future__ import annotations

from typing import Any

from dpjoin.spec.schema import Attribute, Schema, Table

Tables = dict[str, list[dict[str, Any]]]


def abc_schema(a: int, b: int, c: int, *, key: bool = True) -> Schema:
    """R1(A, B) and R2(B, C) with values 1 … size; B is a key unless its domain is wanted."""
    middle = Attribute(name="B", key=True) if key else Attribute(name="B", range=(1, b))
    return Schema(
        (Table(name="R1", attributes=("A", "B")), Table(name="R2", attributes=("B", "C"))),
        (Attribute(name="A", range=(1, a)), middle, Attribute(name="C", range=(1, c))),
    )


def figure_1(n: int) -> tuple[Tables, Tables]:
    """Neighbours with join sizes n and 0: all of A meets b_1, and R2 holds (b_1, c_1) or nothing."""
    r1 = [{"A": i, "B": 1} for i in range(1, n + 1)]
    return {"R1": r1, "R2": [{"B": 1, "C": 1}]}, {"R1": r1, "R2": []}


def figure_2() -> Tables:
    """The lower bound's instance for T = (4, 2, 3), Delta = 3: nine rows, each with three partners."""
    single_table = {1: 4, 2: 2, 3: 3}
    pairs = [(a, j) for a, count in single_table.items() for j in range(1, count + 1)]
    r1 = [{"A": a, "B": 10 * a + j} for a, j in pairs]
    every_b = [10 * a + j for a in (1, 2, 3) for j in range(1, 10)]
    return {"R1": r1, "R2": [{"B": b, "C": c} for b in every_b for c in (1, 2, 3)]}


def figure_3(root: int) -> Tables:
    """One join value of degree i in both tables, for every i up to sqrt(n)."""
    r1 = [{"A": j, "B": i} for i in range(1, root + 1) for j in range(1, i + 1)]
    r2 = [{"B": i, "C": j} for i in range(1, root + 1) for j in range(1, i + 1)]
    return {"R1": r1, "R2": r2}
