"""Joins of one or two tables: their whole keys are numbered alike, and all is a sum over keys of products of counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine import caps as cap
from dpjoin.engine import join_keys as keys
from dpjoin.engine import key_sums as contract
from dpjoin.engine.interface import ExactDegrees, Fade, Rules, Value
from dpjoin.engine.join_keys import CODE, JoinValues, Keys
from dpjoin.engine.key_sums import Block, Exact, Rows, Scope
from dpjoin.engine.sumproduct import Counts
from dpjoin.spec.schema import DegreeBound, Schema
from dpjoin.spec.workload import IntArray, Products

KEY = "key"
"""The variable that is the number of a whole key."""


@dataclass(frozen=True)
class Side:
    """One table, read: its rows and the codes of the attributes it owns."""

    rows: Rows
    exact_codes: dict[str, NDArray[Any]]
    keys: int

    @cached_property
    def exact_degree(self) -> Exact:
        return contract.degrees(self.rows, self.keys)

    def at(self, positions: IntArray) -> Side:
        """Only the rows at some positions."""
        codes = {a: code[positions] for a, code in self.exact_codes.items()}
        return Side(self.rows.at(positions), codes, self.keys)


class Pair:
    """What the engine computes from the rows of one or two tables, whose keys are numbered alike."""

    def __init__(self, schema: Schema, sides: Sequence[Side], exact_keys: Keys, exact_values: JoinValues) -> None:
        self._schema = schema
        self.exact_sides = tuple(sides)
        self.exact_keys = exact_keys
        self.exact_values = exact_values

    def restricted(self, rules: Mapping[str, Rules]) -> Pair:
        """The rows that satisfy the rules. Nothing that was computed from the others goes along."""
        return Pair(self._schema, self._exact_some(rules), self.exact_keys, self.exact_values)

    def capped(self, schema: Schema, caps: Mapping[str, Sequence[DegreeBound]]) -> Pair:
        """The rows within the caps, of each table by itself."""
        sides = {name: partial(self.exact_within, name, bounds) for name, bounds in caps.items() if bounds}

        def degree(name: str, exact: Exact) -> Exact:
            return np.minimum(exact, min(b.limit for b in caps[name]))

        whole_keys = self._by_whole_keys(b.attributes for bounds in caps.values() for b in bounds)
        return ChangedPair(schema, self, sides, degree if whole_keys else None)

    def faded(self, fades: Mapping[str, Fade]) -> Pair:
        """Every row as often as its weight says."""
        sides = {name: partial(self._exact_faded, name, fade) for name, fade in fades.items()}

        def degree(name: str, exact: Exact) -> Exact:
            # A key without rows has no weight to look up, and none is needed.
            return exact * fades[name].of(np.maximum(exact, 1))

        whole_keys = self._by_whole_keys(fade.attributes for fade in fades.values())
        return ChangedPair(self._schema, self, sides, degree if whole_keys else None)

    def _by_whole_keys(self, attributes: Iterable[Scope]) -> bool:
        return all(set(by) == set(self._schema.join_attributes) for by in attributes)

    def _exact_faded(self, name: str, fade: Fade) -> Side:
        """A table's rows, each as often as its weight says."""
        side = self._exact_side(name)
        if self._by_whole_keys([fade.attributes]):
            degree = side.exact_degree[side.rows.exact_key]
        else:
            degree = cap.degrees(self._exact_counts(side), tuple(keys.id_variables(fade.attributes)))
        count = 1 if side.rows.exact_count is None else side.rows.exact_count
        exact = np.asarray(count * fade.of(degree), dtype=np.int64)
        at = np.flatnonzero(exact)
        return replace(side.at(at), rows=Rows(side.rows.exact_key[at], exact[at]))

    def _exact_side(self, name: str) -> Side:
        (side,) = (s for t, s in zip(self._schema.tables, self.exact_sides, strict=True) if t.name == name)
        return side

    def exact_degrees(self, rules: Mapping[str, Rules], by: Scope, distinct: Scope) -> ExactDegrees:
        some = zip(self._schema.tables, self._exact_some(rules), strict=True)
        counts = [self._exact_counts(side) for table, side in some if table.name in rules]
        return self.exact_values.degrees(counts, by, distinct)

    def exact_alone(self, name: str, by: Scope, values: Sequence[Value], keep: Scope) -> Counts:
        side = self._exact_side(name)
        return self.exact_values.alone(self._schema, self._exact_coded(side), by, values, keep)

    def _exact_coded(self, side: Side) -> Counts:
        """The rows of a side with a number for each join attribute and its codes."""
        numbers = self._exact_counts(side)
        return Counts(
            (*numbers.variables, *((CODE, a) for a in side.exact_codes)),
            (*numbers.sizes, *self._schema.shape(tuple(side.exact_codes))),
            (*numbers.exact_ids, *side.exact_codes.values()),
            numbers.exact_count,
            numbers.rows,
        )

    def exact_within(self, name: str, bounds: Sequence[DegreeBound]) -> Side:
        """A table's rows within the bounds."""
        side = self._exact_side(name)
        coded = self._exact_coded(side)
        # The number of the whole key goes along, to find the way back.
        coded = replace(
            coded,
            variables=(*coded.variables, KEY),
            sizes=(*coded.sizes, side.keys),
            exact_ids=(*coded.exact_ids, side.rows.exact_key),
        )
        kept = self.exact_values.capped(coded, self._schema.join_attributes, bounds)
        codes = dict(zip(side.exact_codes, kept.ids((CODE, a) for a in side.exact_codes), strict=True))
        return Side(Rows(kept.ids([KEY])[0], kept.exact_count), codes, side.keys)

    def _exact_some(self, rules: Mapping[str, Rules]) -> list[Side]:
        """The tables' rows that satisfy the rules."""
        sides = list(self.exact_sides)
        for i, table in enumerate(self._schema.tables):
            if rules.get(table.name):
                counts = self._exact_counts(sides[i])
                sides[i] = sides[i].at(self.exact_values.satisfying(counts, rules[table.name]))
        return sides

    def _exact_counts(self, side: Side) -> Counts:
        """The rows of a side with a number for each join attribute instead of one for the whole key."""
        variables = tuple(keys.id_variables(self._schema.join_attributes))
        sizes = tuple(v.size for v in self.exact_keys.values)
        ids = tuple(self.exact_keys.ids(side.rows.exact_key))
        return Counts(variables, sizes, ids, side.rows.exact_count, len(side.rows))

    @cached_property
    def exact_size(self) -> int:
        first, *rest = self.exact_sides
        if not rest:
            return contract.total_count(first.rows)
        return contract.dot(first.exact_degree, rest[0].exact_degree)

    def exact_largest(self, names: frozenset[str]) -> int:
        """T_E of one of two tables: its largest degree."""
        (side,) = (s for t, s in zip(self._schema.tables, self.exact_sides, strict=True) if t.name in names)
        return int(side.exact_degree.max(initial=0))

    def _exact_codes(self, side: int, attribute: str) -> NDArray[Any]:
        """An attribute's code for each row of a side; join attributes of the other table go by key."""
        here = self.exact_sides[side]
        if attribute in here.exact_codes:
            return here.exact_codes[attribute]
        owner = self.exact_sides[1 - side]
        by_key = np.zeros(len(owner.exact_degree), dtype=owner.exact_codes[attribute].dtype)
        by_key[owner.rows.exact_key] = owner.exact_codes[attribute]
        return by_key[here.rows.exact_key]  # keys that the owner lacks join nothing

    def _exact_index(self, side: int, scope: Scope) -> NDArray[Any]:
        """The cell of the scope that each row of a side lies in."""
        if len(scope) == 1:
            return self._exact_codes(side, scope[0])
        # A narrow type is quicker to compute with; every cell number fits into it.
        cells = self._schema.cells(scope)
        index = np.zeros(len(self.exact_sides[side].rows), dtype=np.min_scalar_type(cells) if cells < 2**31 else "i8")
        for i, name in enumerate(scope):
            if i:
                index *= self._schema.attribute(name).size
            index += self._exact_codes(side, name)
        return index

    def exact_marginals(self, scopes: Iterable[Scope]) -> dict[Scope, Exact]:
        """The marginals of the join over the scopes, each with one axis per attribute."""
        within: list[list[Scope]] = [[], []]
        across: list[tuple[Scope, Scope]] = []
        joins, tables = self._schema.join_attributes, self._schema.tables
        for scope in scopes:
            right = tuple(a for a in scope if a not in tables[0].attributes)
            left = tuple(a for a in scope if a not in right)
            if right and any(a not in joins for a in left):
                across.append((left, right))
            else:
                within[1 if right else 0].append(scope)
        _ = self.exact_size  # count degrees before two threads ask for them
        first, second = contract.at_once(
            lambda: self._exact_within(0, within[0]) if within[0] else {},
            lambda: self._exact_within(1, within[1]) if within[1] else {},
        )
        return first | second | self._exact_across(across)

    def _exact_within(self, side: int, scopes: list[Scope]) -> dict[Scope, Exact]:
        """Marginals over attributes of one table: rows weighted by their key's degree in the other."""
        here = self.exact_sides[side]
        weight = self.exact_sides[1 - side].exact_degree if len(self.exact_sides) == 2 else None
        union = self._schema.in_order(a for s in scopes for a in s)
        computed: dict[Scope, Exact] = {}
        if self._schema.cells(union) <= max(2**12, min(2**20, len(here.rows))):
            scopes_first = [union, *scopes]
        else:
            scopes_first = sorted(scopes, key=self._schema.cells, reverse=True)
        for scope in scopes_first:
            wider = [s for s in computed if set(scope) <= set(s)]
            if wider:
                wide = min(wider, key=self._schema.cells)
                computed[scope] = contract.narrowed(wide, scope, computed[wide])
                continue
            exact = contract.weighted(
                here.rows,
                self._exact_index(side, scope),
                self._schema.cells(scope),
                weight,
                join_size=self.exact_size,
            )
            computed[scope] = exact.reshape(self._schema.shape(scope))
        return {s: computed[s] for s in scopes}

    def _exact_across(self, pairs: Sequence[tuple[Scope, Scope]]) -> dict[Scope, Exact]:
        """Marginals over attributes of both tables, as few matrix products as it takes."""
        maximal = [
            p for p in pairs if not any(p != q and set(p[0]) <= set(q[0]) and set(p[1]) <= set(q[1]) for q in pairs)
        ]
        computed: dict[Scope, Exact] = {}
        for lefts, rights in contract.rectangles(maximal):
            computed |= self._exact_batch(lefts, rights)
        found = {}
        for left, right in pairs:
            scope = self._schema.in_order((*left, *right))
            if scope in computed:
                found[scope] = computed[scope]
                continue
            wider = [s for s in computed if set(scope) <= set(s)]
            wide = min(wider, key=self._schema.cells)
            found[scope] = contract.narrowed(wide, scope, computed[wide])
        return found

    def _exact_batch(self, lefts: Sequence[Scope], rights: Sequence[Scope]) -> dict[Scope, Exact]:
        first, second = self.exact_sides
        cells = self._schema.cells
        exact = contract.cross(
            first.rows,
            [Block(self._exact_index(0, s), cells(s)) for s in lefts],
            second.rows,
            [Block(self._exact_index(1, s), cells(s)) for s in rights],
            len(first.exact_degree),
            join_size=self.exact_size,
        )
        found, top = {}, 0
        for left in lefts:
            start = 0
            for right in rights:
                part = exact[top : top + cells(left), start : start + cells(right)]
                names = (*left, *right)
                scope = self._schema.in_order(names)
                shaped = part.reshape(self._schema.shape(names))
                found[scope] = shaped.transpose([names.index(a) for a in scope])
                start += cells(right)
            top += cells(left)
        return found

    def exact_products_over_keys(self, group: Products) -> Exact:
        """Each part is weighed in a table that has all its attributes, then multiplied key by key."""
        parts = list(group.parts)
        if len(parts) == 1:
            parts.append(((), np.ones((len(group), 1), dtype=np.int64)))
        inside = [set(t.attributes) for t in self._schema.tables]
        if not (set(parts[0][0]) <= inside[0] and set(parts[1][0]) <= inside[1]):
            parts.reverse()
        blocks = [Block(self._exact_index(i, parts[i][0]), parts[i][1].shape[1]) for i in (0, 1)]
        first, second = self.exact_sides
        return contract.products_over_keys(
            first.rows,
            blocks[0],
            parts[0][1],
            second.rows,
            blocks[1],
            parts[1][1],
            len(first.exact_degree),
            join_size=self.exact_size,
        )


class ChangedPair(Pair):
    """Two tables of which some rows go or count less, by the degrees of their values.

    The sides are worked out when they are needed. The join size needs degrees only, where `degree` tells what is left
    of them.
    """

    def __init__(
        self,
        schema: Schema,
        whole: Pair,
        sides: Mapping[str, Callable[[], Side]],
        degree: Callable[[str, Exact], Exact] | None,
    ) -> None:
        self._schema = schema
        self._whole, self._sides, self._degree = whole, sides, degree
        self.exact_keys, self.exact_values = whole.exact_keys, whole.exact_values

    @cached_property
    def exact_sides(self) -> tuple[Side, ...]:  # type: ignore[override]
        tables = zip(self._schema.tables, self._whole.exact_sides, strict=True)
        return tuple(self._sides[t.name]() if t.name in self._sides else side for t, side in tables)

    @cached_property
    def exact_size(self) -> int:
        if self._degree is None or len(self._schema.tables) < 2:
            return super().exact_size
        tables = zip(self._schema.tables, (s.exact_degree for s in self._whole.exact_sides), strict=True)
        return contract.dot(*(self._degree(t.name, d) if t.name in self._sides else d for t, d in tables))
