"""The paper's instances as generators: figures, Example 4.2, and the families behind its lower bounds.

Every instance states its join size and local sensitivity; tests count them again. All values are made up, so
everything here is public.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.spec.schema import Attribute, Schema, Table

Columns = Mapping[str, NDArray[np.int64]]
SHAPES = {
    "two_table": ("AB", "BC"),
    "star": ("AB", "AC", "AD"),
    "path": ("AB", "BC", "CD"),
    "triangle": ("AB", "BC", "CA"),
}
"""The attributes of each table, one letter each."""
VALUES_USED = 8


@dataclass(frozen=True, eq=False)
class Instance:
    """Made-up tables, and what is stated about them."""

    schema: Schema
    tables: Mapping[str, Columns]
    join_size: int
    """OUT."""
    sensitivity: int
    """Δ: the local sensitivity of the join size."""

    @property
    def rows(self) -> int:
        """n: rows of all tables together."""
        return sum(len(next(iter(columns.values()))) for columns in self.tables.values())

    def arrow(self) -> dict[str, Any]:
        """The tables as a release takes them."""
        import pyarrow as pa

        return {name: pa.table(dict(columns)) for name, columns in self.tables.items()}


def shape_schema(shape: str, sizes: Mapping[str, int], extra: Mapping[str, Sequence[str]] | None = None) -> Schema:
    """Tables R1, R2, … of a shape. Attributes with a size have the domain 0 … size - 1; the others are keys."""
    more = extra or {}
    tables = {f"R{i}": (*letters, *more.get(f"R{i}", ())) for i, letters in enumerate(SHAPES[shape], 1)}
    names = dict.fromkeys(a for attributes in tables.values() for a in attributes)
    attributes = (
        Attribute(name=a, range=(0, sizes[a] - 1)) if a in sizes else Attribute(name=a, key=True) for a in names
    )
    return Schema(tuple(Table(name=n, attributes=a) for n, a in tables.items()), tuple(attributes))


# Figures and examples ------------------------------------------------------------------------------------------------


def figure_1(n: int) -> tuple[Instance, Instance]:
    """Neighbours with join sizes n and 0: all of A joins b_0, and R2 holds (b_0, c_0) or nothing."""
    schema = shape_schema("two_table", {"A": n, "B": n, "C": n})
    first = {"A": np.arange(n), "B": np.zeros(n, np.int64)}
    found = []
    for count in (1, 0):
        tables = {"R1": first, "R2": {"B": np.zeros(count, np.int64), "C": np.zeros(count, np.int64)}}
        found.append(Instance(schema, tables, n * count, n))
    return found[0], found[1]


def figure_2() -> Instance:
    """The lower bound's instance for T = (4, 2, 3): n = 9, Δ = 3, OUT = 27."""
    return reduction("two_table", (4, 2, 3), 3, carried=False)


def figure_3(root: int) -> Instance:
    """One join value of degree i in both tables, for every i up to sqrt(n)."""
    return by_degrees([(i, 1) for i in range(1, root + 1)], values=root)


def example_gap(k: int) -> Instance:
    """Example 4.2: k²/8^i join values of degree 2^i in both tables, for i up to (2/3)·log2 k; k is a power of two."""
    exponent = k.bit_length() - 1
    if k != 1 << exponent:
        raise ValueError(f"k ({k}) must be a power of two")
    return by_degrees([(2**i, k * k // 8**i) for i in range(2 * exponent // 3 + 1)], values=2 ** (2 * exponent // 3))


def by_degrees(degrees: Sequence[tuple[int, int]], *, values: int) -> Instance:
    """Two tables with the same degrees: (degree, how many join values have it). Rows of a join value differ in A, C."""
    each = np.repeat([d for d, _ in degrees], [count for _, count in degrees])
    keys = np.repeat(np.arange(len(each)), each)
    place = np.arange(len(keys)) - np.repeat(np.cumsum(each) - each, each)
    tables = {"R1": {"A": place % values, "B": keys}, "R2": {"B": keys, "C": place % values}}
    schema = shape_schema("two_table", {"A": values, "C": values})
    return Instance(schema, tables, int((each.astype(object) ** 2).sum()), int(each.max()))


# Lower-bound families ------------------------------------------------------------------------------------------------


def reduction(shape: str, single: Sequence[int], side: int, *, carried: bool = True) -> Instance:
    """Theorems 1.6 and 3.5: R1 encodes a single table T (how often each value occurs), the others amplify it by Δ.

    Every attribute outside R1 has `side` values, so Δ = side^(their number) and OUT = |T|·Δ. A row of T has an
    identity, which is its value in all attributes of R1. In the paper the other tables hold every combination. A table
    that shares no attribute with R1 then joins all of T, and the local sensitivity is at least |T|. With `carried`
    (ours) the attributes outside R1 carry the identity too, so every row joins at most one row of T.
    """
    n, universe = sum(single), range(len(single))
    ids = np.array([a * n + j for a in universe for j in range(n)])
    used = [a * n + j for a in universe for j in range(single[a])]
    first, *others = SHAPES[shape]
    outside = sorted({a for letters in others for a in letters} - set(first))
    delta = side ** len(outside)
    tables: dict[str, Columns] = {"R1": {a: np.array(used, dtype=np.int64) for a in first}}
    sensitivity = delta
    for number, letters in enumerate(others, 2):
        new = [a for a in letters if a in outside]
        inside = [a for a in letters if a not in new]
        combinations = np.array(list(product(range(side), repeat=len(new))), dtype=np.int64).reshape(-1, len(new))
        heads = ids if carried or inside else np.zeros(1, np.int64)
        owner, choice = np.repeat(heads, len(combinations)), np.tile(combinations, (len(heads), 1))
        columns = dict.fromkeys(inside, owner)
        columns |= {a: choice[:, i] + (owner * side if carried else 0) for i, a in enumerate(new)}
        tables[f"R{number}"] = columns
        if not carried and not inside:
            sensitivity = max(sensitivity, n * side ** (len(outside) - len(new)))
    return Instance(shape_schema(shape, {}), tables, n * delta, sensitivity)


def conforming(levels: Sequence[tuple[int, int]]) -> Instance:
    """Theorem 4.5: for each level (people, Δ). R1 has a row for each person, R2 has Δ rows for each, whoever is in R1.

    With one level this is Theorem 3.5 again: a single table without repeated values, amplified by Δ.
    """
    count = sum(n for n, _ in levels)
    each = np.repeat([d for _, d in levels], [n for n, _ in levels])
    keys = np.arange(count)
    place = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
    tables = {"R1": {"A": keys, "B": keys}, "R2": {"B": np.repeat(keys, each), "C": place}}
    return Instance(shape_schema("two_table", {"C": int(each.max())}), tables, int(each.sum()), int(each.max()))


def with_bits(instance: Instance, bits: int, rng: np.random.Generator) -> Instance:
    """The same with so many random bits q0, q1, … in every row of R1, each bit with a bias drawn uniformly.

    On average over these, tracing bounds the error from below (`lower.fingerprinting`). Other domains become keys.
    """
    first = instance.tables["R1"]
    count, names = len(next(iter(first.values()))), [f"q{i}" for i in range(bits)]
    drawn = {q: (rng.random(count) < bias).astype(np.int64) for q, bias in zip(names, rng.random(bits), strict=True)}
    old = instance.schema
    attributes = [Attribute(name=a.name, key=True) for a in old.attributes]
    attributes += [Attribute(name=q, range=(0, 1)) for q in names]
    tables = [Table(name=t.name, attributes=(*t.attributes, *(names if t.name == "R1" else ()))) for t in old.tables]
    schema = Schema(tuple(tables), tuple(attributes))
    return replace(instance, schema=schema, tables={**instance.tables, "R1": {**first, **drawn}})


def uniform(shape: str, *, keys: int, degree: int, size: int, rng: np.random.Generator) -> Instance:
    """The same number of rows for every join value in every table, and a value v1, v2, … of so many in each table.

    With m tables: OUT = keys·degree^m, Δ = degree^(m-1). Only the first VALUES_USED values occur, however many there
    are, with the same skewed shares.
    """
    letters = [
        [a for a in attributes if sum(a in other for other in SHAPES[shape]) > 1] for attributes in SHAPES[shape]
    ]
    key = np.repeat(np.arange(keys), degree)
    skew = rng.dirichlet(np.full(VALUES_USED, 0.5), len(letters))
    tables = {
        f"R{i}": {**dict.fromkeys(joined, key), f"v{i}": rng.choice(VALUES_USED, len(key), p=skew[i - 1])}
        for i, joined in enumerate(letters, 1)
    }
    names = sorted({a for joined in letters for a in joined})
    attributes = [Attribute(name=a, key=True) for a in names]
    attributes += [Attribute(name=f"v{i}", range=(0, size - 1)) for i in range(1, len(letters) + 1)]
    schema = Schema(tuple(Table(name=n, attributes=tuple(c)) for n, c in tables.items()), tuple(attributes))
    return Instance(schema, tables, keys * degree ** len(letters), degree ** (len(letters) - 1))


def agm_tight(shape: str, base: int) -> Instance:
    """The worst case of the appendix, both factors at the same time: OUT >= n^ρ(H) and Δ >= n^max ρ(H_{E,∂E}).

    Two instances on values of their own. Full tables on domains of size n^p, p a largest fractional packing of the
    attributes, and the same for the join that is left when one table's attributes are fixed. No row repeats, and
    with n = base^2 no table has more than 2n rows.
    """
    tables = SHAPES[shape]
    letters = sorted(set("".join(tables)))
    fixings = [packing(tables, frozenset())]
    fixings.append(max((packing(tables, frozenset(t)) for t in tables), key=lambda p: sum(p.values())))
    columns: dict[str, dict[str, list[int]]] = {f"R{i}": {a: [] for a in t} for i, t in enumerate(tables, 1)}
    join_size, sensitivity, start = 0, 0, 0
    for exponents in fixings:
        sizes = {a: base ** int(2 * exponents.get(a, Fraction(0))) for a in letters}
        for i, attributes in enumerate(tables, 1):
            for row in product(*(range(start, start + sizes[a]) for a in attributes)):
                for a, value in zip(attributes, row, strict=True):
                    columns[f"R{i}"][a].append(value)
        join_size += math.prod(sizes.values())
        sensitivity = max(sensitivity, *(math.prod(sizes[a] for a in letters if a not in t) for t in tables))
        start = max(sizes.values())
    arrays = {name: {a: np.array(v) for a, v in of.items()} for name, of in columns.items()}
    return Instance(shape_schema(shape, {}), arrays, join_size, sensitivity)


def packing(tables: Sequence[str], fixed: frozenset[str]) -> dict[str, Fraction]:
    """A largest fractional packing of the attributes that are not fixed: weights that sum to <= 1 in every table."""
    from scipy.optimize import linprog

    letters = sorted(set("".join(tables)) - fixed)
    matrix = [[float(a in t) for a in letters] for t in tables]
    solved = linprog([-1.0] * len(letters), A_ub=matrix, b_ub=[1.0] * len(tables), method="highs-ds")
    return {a: Fraction(float(w)).limit_denominator(100) for a, w in zip(letters, solved.x, strict=True)}
