"""Gauges and sensitivities of boundary queries, by loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from dpjoin.privacy.residual import (
    Boundaries,
    proper_subsets,
)
from dpjoin.spec.schema import Attribute, Schema, Table
from support.brute import BruteEngine


def sums(b: Boundaries, whole: frozenset[str], s: dict[str, int]) -> int:
    """B_F(s) by its recursive definition."""
    private = [j for j in b.tables if j in whole and j in b.private]
    total = 0
    for size in range(len(private) + 1):
        for taken in itertools.combinations(private, size):
            total += b.values[whole - set(taken)] * math.prod(s[j] for j in taken)
    found = [total, *([b.caps[whole]] if whole in b.caps else [])]
    return min(found + [c * sums(b, whole - {j}, s) for f, j, c in b.factors if f == whole])


def splits(k: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 0:
        yield from [()] if k == 0 else []
    elif parts == 1:
        yield (k,)
    else:
        for first in range(k + 1):
            yield from ((first, *rest) for rest in splits(k - first, parts - 1))


def ls_at_by_loops(b: Boundaries, k: int) -> int:
    best = 0
    for i in b.private:
        others = [j for j in b.tables if j != i and j in b.private]
        for split in splits(k, len(others)) if others else [()]:
            best = max(best, sums(b, frozenset(b.tables) - {i}, dict(zip(others, split, strict=True))))
    return best


Rows = list[dict[str, object]]


Tables = dict[str, Rows]


SHAPES = {
    "two": ("AB", "BC"),
    "path3": ("AB", "BC", "CD"),
    "path4": ("AB", "BC", "CD", "DE"),
    "star3": ("AX", "BX", "CX"),
    "triangle": ("AB", "BC", "CA"),
    "cycle4": ("AB", "BC", "CD", "DA"),
    "middle": ("AB", "B", "BC"),
    "apart": ("A", "B"),
}


BETAS = (Fraction(1, 20), Fraction(3, 10), Fraction(1))


def growth_by_loops(b: Boundaries, last: int) -> dict[frozenset[str], list[int]]:
    """P_F(0), …, P_F(last) by the recurrence."""
    found: dict[frozenset[str], list[int]] = {}
    for subset in proper_subsets(b.tables):
        private = subset & b.private
        if not private:
            found[subset] = [b.values[subset]] * (last + 1)
            continue
        found[subset] = [0]
        for z in range(1, last + 1):
            value = found[subset][-1] + max(found[subset - {j}][z - 1] for j in private)
            ceilings = [b.caps[subset]] if subset in b.caps else []
            ceilings += [c * found[subset - {j}][z] for f, j, c in b.factors if f == subset]
            found[subset].append(min([value, *ceilings]))
    return found


def bound_by_loops(b: Boundaries, last: int) -> list[int]:
    curves = growth_by_loops(b, last)
    return [max(curves[frozenset(b.tables) - {i}][z] for i in b.private) for z in range(last + 1)]


def ls_gauge_by_loops(b: Boundaries, last: int) -> int:
    curve = bound_by_loops(b, 3 * last)
    reached = [ls_at_by_loops(b, k) for k in range(last + 1)]
    return next(z for z in range(2 * last) if all(v <= curve[z + k] for k, v in enumerate(reached)))


def random_boundaries(rng: np.random.Generator, m: int, *, top: int, public: bool = False) -> Boundaries:
    names = tuple("RSTUVW"[:m])
    private = frozenset(names[: int(rng.integers(1, m + 1))] if public else names)
    values = {f: int(rng.integers(0, top ** max(1, len(f)) + 1)) for f in proper_subsets(names)}
    values[frozenset()] = 1
    for f in values:
        if not f & private:  # public tables that join to nothing have a test of their own
            values[f] = max(1, values[f])
    return Boundaries(tables=names, private=private, values=values)


def schema_of(shape: str, *, private: str | None = None) -> Schema:
    parts = SHAPES[shape]
    letters = sorted(set("".join(parts)))
    return Schema(
        tuple(
            Table(name=f"R{n}", attributes=tuple(p), private=private is None or str(n) in private)
            for n, p in enumerate(parts, 1)
        ),
        tuple(Attribute(name=a, range=(0, 1)) for a in letters),
    )


def boundaries_of(schema: Schema, tables: Tables) -> Boundaries:
    engine = BruteEngine(schema, tables)
    names = tuple(t.name for t in schema.tables)
    return Boundaries(
        tables=names,
        private=frozenset(schema.private_tables),
        values={f: engine.exact_boundary(f) for f in proper_subsets(names)},
    )


def every_row(schema: Schema, name: str) -> Rows:
    attributes = schema.table(name).attributes
    return [dict(zip(attributes, v, strict=True)) for v in itertools.product((0, 1), repeat=len(attributes))]


def random_rows(rng: np.random.Generator, schema: Schema, *, most: int = 4) -> Tables:
    found: Tables = {}
    for table in schema.tables:
        rows = every_row(schema, table.name)
        found[table.name] = [rows[i] for i in rng.integers(0, len(rows), int(rng.integers(0, most + 1)))]
    return found


def all_neighbours(schema: Schema, tables: Tables) -> Iterator[Tables]:
    for name in schema.private_tables:
        rows = tables[name]
        for row in every_row(schema, name):
            yield {**tables, name: [*rows, row]}
            if row in rows:
                yield {**tables, name: [*rows[: rows.index(row)], *rows[rows.index(row) + 1 :]]}


def largest_move(before: Boundaries, after: Boundaries, measure: Callable[[Boundaries], int | None]) -> int:
    one, two = measure(before), measure(after)
    return 0 if one is None or two is None else abs(one - two)
