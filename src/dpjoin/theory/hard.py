"""The paper's instances as generators: figures, Example 4.2, and the families behind its lower bounds.

Every instance states its join size and local sensitivity; tests count them again. All values are made up, so
everything here is public.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.theory.exponents import cover_and_packing

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


def shape_schema(shape: str, sizes: Mapping[str, int]) -> Schema:
    """Tables R1, R2, … of a shape. Attributes with a size have the domain 0 … size - 1; the others are keys."""
    return _schema({f"R{i}": letters for i, letters in enumerate(SHAPES[shape], 1)}, sizes)


def _schema(tables: Mapping[str, Iterable[str]], sizes: Mapping[str, int]) -> Schema:
    names = dict.fromkeys(a for attributes in tables.values() for a in attributes)
    declared = (Table(name=n, attributes=tuple(a)) for n, a in tables.items())
    made = (Attribute(name=a, range=(0, sizes[a] - 1)) if a in sizes else Attribute(name=a, key=True) for a in names)
    return Schema(tuple(declared), tuple(made))


# Figures and examples ------------------------------------------------------------------------------------------------


def figure_1(n: int) -> tuple[Instance, Instance]:
    """Neighbours with join sizes n and 0: all of A joins b_0, and R2 holds (b_0, c_0) or nothing."""
    schema = shape_schema("two_table", {"A": n, "B": n, "C": n})
    first, zero = {"A": np.arange(n), "B": np.zeros(n, np.int64)}, np.zeros(1, np.int64)
    both = ({"R1": first, "R2": dict.fromkeys("BC", rows)} for rows in (zero, zero[:0]))
    one, none = (Instance(schema, tables, size, n) for tables, size in zip(both, (n, 0), strict=True))
    return one, none


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
    each, keys, place = _counted(degrees)
    tables = {"R1": {"A": place % values, "B": keys}, "R2": {"B": keys, "C": place % values}}
    schema = shape_schema("two_table", {"A": values, "C": values})
    return Instance(schema, tables, int((each.astype(object) ** 2).sum()), int(each.max()))


def _counted(degrees: Sequence[tuple[int, int]]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Of (degree, how many values have it): the degree of each value, and each row's value and number within it."""
    each = np.repeat([d for d, _ in degrees], [count for _, count in degrees])
    keys = np.repeat(np.arange(len(each)), each)
    return each, keys, np.arange(len(keys)) - np.repeat(np.cumsum(each) - each, each)


# Lower-bound families ------------------------------------------------------------------------------------------------


def reduction(shape: str, single: Sequence[int], side: int, *, carried: bool = True) -> Instance:
    """Theorems 1.6 and 3.5: R1 encodes a single table T (how often each value occurs), the others amplify it by Δ.

    Every attribute outside R1 has `side` values, so Δ = side^(their number) and OUT = |T|·Δ. A row of T has an
    identity, which is its value in all attributes of R1. In the paper the other tables hold every combination. A table
    that shares no attribute with R1 then joins all of T, and the local sensitivity is at least |T|. With `carried`
    (ours) the attributes outside R1 carry the identity too, so every row joins at most one row of T.
    """
    n, (first, *others) = sum(single), SHAPES[shape]
    ids = np.arange(len(single) * n)
    used = np.array([value * n + j for value, count in enumerate(single) for j in range(count)])
    outside = sorted({a for letters in others for a in letters} - set(first))
    delta = side ** len(outside)
    tables: dict[str, Columns] = {"R1": dict.fromkeys(first, used)}
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
    each, amplified, place = _counted([(degree, n) for n, degree in levels])
    people = np.arange(len(each))
    tables = {"R1": {"A": people, "B": people}, "R2": {"B": amplified, "C": place}}
    return Instance(shape_schema("two_table", {"C": int(each.max())}), tables, int(each.sum()), int(each.max()))


def with_bits(instance: Instance, bits: int, rng: np.random.Generator) -> Instance:
    """The same with so many random bits q0, q1, … in every row of R1, each bit with a bias drawn uniformly.

    On average over these, tracing bounds the error from below (`lower.fingerprinting`). Other domains become keys.
    """
    first = instance.tables["R1"]
    count, names = len(next(iter(first.values()))), [f"q{i}" for i in range(bits)]
    drawn = {q: (rng.random(count) < bias).astype(np.int64) for q, bias in zip(names, rng.random(bits), strict=True)}
    tables = {**instance.tables, "R1": {**first, **drawn}}
    return replace(instance, schema=_schema(tables, dict.fromkeys(names, 2)), tables=tables)


def uniform(shape: str, *, keys: int, degree: int, size: int, rng: np.random.Generator) -> Instance:
    """The same number of rows for every join value in every table, and a value v1, v2, … of so many in each table.

    With m tables: OUT = keys·degree^m, Δ = degree^(m-1). Only the first VALUES_USED values occur, however many there
    are, with the same skewed shares.
    """
    letters = [[a for a in t if sum(a in other for other in SHAPES[shape]) > 1] for t in SHAPES[shape]]
    key = np.repeat(np.arange(keys), degree)
    skew = rng.dirichlet(np.full(VALUES_USED, 0.5), len(letters))
    tables = {
        f"R{i}": {**dict.fromkeys(joined, key), f"v{i}": rng.choice(VALUES_USED, len(key), p=skew[i - 1])}
        for i, joined in enumerate(letters, 1)
    }
    schema = _schema(tables, {f"v{i}": size for i in range(1, len(letters) + 1)})
    return Instance(schema, tables, keys * degree ** len(letters), degree ** (len(letters) - 1))


def agm_tight(shape: str, base: int) -> Instance:
    """The worst case of the appendix, both factors at the same time: OUT >= n^ρ(H) and Δ >= n^max ρ(H_{E,∂E}).

    Two instances on values of their own. Full tables on domains of size n^p, p a largest fractional packing of the
    attributes, and the same for the join that is left when one table's attributes are fixed. No row repeats, and
    with n = base^2 no table has more than 2n rows.
    """
    tables = SHAPES[shape]
    letters = sorted(set("".join(tables)))
    packings = [cover_and_packing({t: set(t) - set(fixed) for t in tables})[1] for fixed in ("", *tables)]
    fixings = [packings[0], max(packings[1:], key=lambda packing: sum(packing.values()))]
    rows: list[list[NDArray[np.int64]]] = [[] for _ in tables]
    join_size, sensitivity, start = 0, 0, 0
    for exponents in fixings:
        sizes = {a: base ** int(2 * exponents.get(a, 0)) for a in letters}
        for some, attributes in zip(rows, tables, strict=True):
            some.append(np.indices([sizes[a] for a in attributes]).reshape(len(attributes), -1) + start)
        join_size += math.prod(sizes.values())
        sensitivity = max(sensitivity, *(math.prod(sizes[a] for a in letters if a not in t) for t in tables))
        start = max(sizes.values())
    whole = zip(tables, (np.concatenate(some, axis=1) for some in rows), strict=True)
    arrays = {f"R{i}": dict(zip(t, columns, strict=True)) for i, (t, columns) in enumerate(whole, 1)}
    return Instance(shape_schema(shape, {}), arrays, join_size, sensitivity)
