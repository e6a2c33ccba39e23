"""Joins of small models, and the same by loops."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import dpjoin as dj
from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.model.model import answers_on as answers_by
from dpjoin.model.terms import Domain, Terms
from dpjoin.spec.workload import Group, product_group


def answers_on(domain: Domain, table: Any, group: Any) -> Any:
    """Answers on a table of cells."""
    return answers_by(partial(domain.marginal, table), group)


LISTED = "listed value"


VALUES = 5


SIZES = {"k": 4, "l": 3, "s": 3, "t": 2, "a": 3, "b": 2, "c": 4, "d": 2, "e": 2}


@dataclasses.dataclass(frozen=True)
class Shape:
    """Attributes of each table's model, the workload's attributes, and what stands in for the key."""

    tables: tuple[tuple[str, ...], ...]
    workload: tuple[str, ...]
    codes: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def schema(self) -> dj.Schema:
        keys = tuple(a for a, _ in self.codes)
        tables = [
            dj.Table(name=f"r{i}", attributes=("key", *keys, *(a for a in names if a != LISTED)))
            for i, names in enumerate(self.tables)
        ]
        used = [a for a in SIZES if any(a in t.attributes for t in tables)]
        declared = [dj.Attribute(name=a, range=(0, SIZES[a] - 1)) for a in used]
        return dj.Schema(tuple(tables), (dj.Attribute(name="key", key=True), *declared))


SHAPES = {
    "two tables": Shape(((LISTED, "a", "b"), (LISTED, "c")), ("a", "b", "c")),
    "three tables": Shape(((LISTED, "a", "b"), (LISTED, "c"), (LISTED, "d", "e")), ("c", "a", "b", "d", "e")),
    "one table": Shape(((LISTED, "a", "b"),), ("a", "b")),
    "no attributes": Shape(((LISTED, "a"), (LISTED,), (LISTED, "c")), ("a", "c")),
    "more than asked for": Shape(((LISTED, "a", "b"), (LISTED, "c")), ("a", "c")),
    "shared": Shape(((LISTED, "s", "a"), (LISTED, "s", "c")), ("s", "a", "c")),
    "shared, not asked for": Shape(((LISTED, "s", "a"), (LISTED, "s", "c")), ("a", "c")),
    "chain": Shape(((LISTED, "s", "a"), (LISTED, "s", "t", "b"), (LISTED, "t", "c")), ("s", "a", "b", "c")),
    "triangle": Shape((("s", "t", "a"), ("t", "l", "b"), ("l", "s", "c")), ("s", "a", "b", "c")),
    "shared by three": Shape((("s", "a"), ("s", "b"), ("s", "c")), ("s", "a", "b", "c")),
    "unlisted": Shape((("s", "a"), ("s", "t", "c"), ("t", "d")), ("a", "s", "c", "d")),
    "cross product": Shape((("a", "b"), ("c",)), ("a", "b", "c")),
    "one listed": Shape(((LISTED, "s", "a"), ("s", "c")), ("s", "a", "c")),
    "codes": Shape(((LISTED, "a", "b"), (LISTED, "c")), ("a", "k", "b", "c"), (("k", (2, 0, 2, 3, 1)),)),
    "no code": Shape(((LISTED, "a", "b"), (LISTED, "c")), ("k", "a", "b", "c"), (("k", (2, -1, 2, -1, 1)),)),
    "two codes": Shape(
        ((LISTED, "a", "s"), (LISTED, "s", "c"), (LISTED, "d")),
        ("l", "a", "s", "k", "c", "d"),
        (("k", (3, 0, 2, 3, -1)), ("l", (0, -1, 2, 0, 1))),
    ),
    "no code at all": Shape(((LISTED, "a"), (LISTED, "c")), ("k", "a", "c"), (("k", (-1,) * VALUES),)),
}


def size_of(attribute: str) -> int:
    return VALUES if attribute == LISTED else SIZES[attribute]


def make_table(names: Sequence[str], seed: int, **options: Any) -> Model:
    """A random log-linear model with three members."""
    rng = np.random.default_rng(seed)
    domain = Domain.split({a: size_of(a) for a in names})
    terms = Terms(domain, tuple((a,) for a in names) + tuple(itertools.combinations(names, 2)))
    members = tuple((rng.standard_normal(terms.size), float(rng.uniform(20, 60))) for _ in range(3))
    potentials = rng.standard_normal(terms.size)
    known = (frozenset(names),)
    return dataclasses.replace(Model(domain, 40.0 + seed, terms, potentials, members=members, known=known), **options)


def make_joined(shape: Shape, seed: int = 0) -> Joined:
    tables = tuple(make_table(names, seed + i) for i, names in enumerate(shape.tables))
    listed = LISTED if any(LISTED in names for names in shape.tables) else None
    domain = Domain.split({a: SIZES[a] for a in shape.workload})
    return Joined(domain, tables, listed, {a: np.array(codes) for a, codes in shape.codes})


def brute(joined: Joined, tables: Sequence[np.ndarray]) -> np.ndarray:
    """The join by nested loops over every assignment of every attribute, as an array over the domain."""
    names = list(dict.fromkeys(a for t in joined.tables for a in t.domain.attributes))
    shaped = [table.reshape(t.domain.shape) for t, table in zip(joined.tables, tables, strict=True)]
    out = np.zeros(joined.domain.shape)
    for values in itertools.product(*(range(size_of(a)) for a in names)):
        at = dict(zip(names, values, strict=True))
        at |= {a: int(codes[at[LISTED]]) for a, codes in joined.codes.items()}
        if all(at[a] >= 0 for a in joined.domain.attributes):
            weight = 1.0
            for t, table in zip(joined.tables, shaped, strict=True):
                weight *= table[tuple(at[a] for a in t.domain.attributes)]
            out[tuple(at[a] for a in joined.domain.attributes)] += weight
    return out.reshape(joined.domain.rows, joined.domain.columns)


def groups_of(shape: Shape) -> list[Group]:
    """Marginals of every width, prefixes, ranges, sums and product queries."""
    schema, names = shape.schema, shape.workload
    scopes = [s for k in range(len(names) + 1) for s in itertools.combinations(names, k)]
    workload = dj.Workload.marginals(schema, scopes)
    for a in names:
        by = [x for x in names if x != a][:2]
        workload += dj.Workload.prefixes(schema, [a], by=by) + dj.Workload.ranges(schema, [a])
        workload += dj.Workload.sums(schema, [a], by=by[::-1])
    groups = list(workload.groups)
    rng = np.random.default_rng(5)
    for reverse in (False, True):
        weights: dict[str, tuple[Sequence[str], Any]] = {}
        seen: set[str] = set()
        for table in schema.tables[::-1] if reverse else schema.tables:
            mine = [a for a in table.attributes if a in names and a not in seen][:: -1 if reverse else 1]
            seen.update(mine)
            if mine:
                weights[table.name] = (mine, rng.uniform(-1, 1, (7, *(SIZES[a] for a in mine))))
        groups.append(product_group(schema, weights))
        # One table with weights, the others without.
        first = next(iter(weights))
        groups.append(product_group(schema, {first: weights[first]}))
    return groups
