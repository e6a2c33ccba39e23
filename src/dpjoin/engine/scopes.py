"""Which tables look at which attributes of a marginal, and marginals that are computed side by side: shapes only."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from dpjoin.engine.integers import Exact
from dpjoin.engine.interface import Scope
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import IntArray, Products, widest


def placed(schema: Schema, scope: Scope) -> dict[str, Scope]:
    """Which table looks at which attributes of the scope, as few tables as it takes."""
    joins = schema.compared_attributes
    at = {a: schema.owner(a) for a in scope if a not in joins}
    for a in scope:
        if a in joins:
            holders = schema.tables_with(a)
            at[a] = next((t for t in holders if t in at.values()), holders[0])
    return {t.name: tuple(a for a in scope if at[a] == t.name) for t in schema.tables if t.name in at.values()}


def by_tables(schema: Schema, wanted: Sequence[Scope]) -> dict[Scope, list[tuple[Scope, ...]]]:
    """The scopes that lie in no other, by which tables look at them: for each scope what each of these looks at."""
    found: dict[Scope, list[tuple[Scope, ...]]] = {}
    for scope in widest(wanted):
        parts = placed(schema, scope)
        found.setdefault(tuple(parts), []).append(tuple(parts.values()))
    return found


def of_two_tables(schema: Schema, group: Products) -> list[tuple[Scope, IntArray]]:
    """What product queries ask of each of two tables that have the attributes."""
    parts = list(group.parts)
    if len(parts) == 1:
        parts.append(((), np.ones((len(group), 1), dtype=np.int64)))
    fits = all(set(scope) <= set(t.attributes) for (scope, _), t in zip(parts, schema.tables, strict=True))
    return parts if fits else parts[::-1]


def rectangles(pairs: Sequence[tuple[Scope, Scope]]) -> list[tuple[list[Scope], list[Scope]]]:
    """Group the pairs (left, right) into full rectangles: left scopes that need the same right scopes."""
    partners: dict[Scope, list[Scope]] = {}
    for left, right in pairs:
        partners.setdefault(left, []).append(right)
    found: dict[tuple[Scope, ...], list[Scope]] = {}
    for left, rights in partners.items():
        found.setdefault(tuple(sorted(rights)), []).append(left)
    return [(lefts, list(rights)) for rights, lefts in found.items()]


def exact_each(schema: Schema, wanted: Sequence[Scope], computed: Mapping[Scope, Exact]) -> dict[Scope, Exact]:
    """Every wanted marginal, summed from the smallest wider one if it was not computed."""
    known = dict(computed)
    for scope in sorted(wanted, key=len, reverse=True):
        if scope not in known:
            wide = min((s for s in known if set(scope) <= set(s)), key=schema.cells)
            known[scope] = np.asarray(known[wide].sum(axis=tuple(i for i, a in enumerate(wide) if a not in scope)))
    return {s: known[s] for s in wanted}


def split(schema: Schema, exact: Exact, parts: Sequence[Sequence[Scope]]) -> dict[Scope, Exact]:
    """The marginals that lie side by side along each axis."""
    found = {}
    starts = [np.cumsum([0, *map(schema.cells, scopes)]) for scopes in parts]
    for at in itertools.product(*(range(len(scopes)) for scopes in parts)):
        block = exact[tuple(slice(s[i], s[i + 1]) for s, i in zip(starts, at, strict=True))]
        names = tuple(a for scopes, i in zip(parts, at, strict=True) for a in scopes[i])
        scope = schema.in_order(names)
        found[scope] = block.reshape(schema.shape(names)).transpose([names.index(a) for a in scope])
    return found
