"""The paper's definitions in loops: slow, obvious, and the judge of every other engine."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from hashlib import md5
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine.caps import text
from dpjoin.engine.checks import check_caps, check_degrees, check_rules, check_weightings, one_table_schema, owner_table
from dpjoin.engine.integers import FLOAT_LIMIT
from dpjoin.engine.interface import LISTED, Clip, ExactDegrees, ExactNumbers, RowWeights, Rules, Value
from dpjoin.engine.join_keys import plain
from dpjoin.errors import SpecError, suggest
from dpjoin.spec.persons import link_of, owner_of, owners_counted
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table, with_caps
from dpjoin.spec.workload import Factor, Group, Kronecker

Row = Mapping[str, object]


WEIGHT = "\0weight of "
"""Under such a name a row has its weight, if its table has weights; no attribute is called so."""


class BruteEngine:
    """Any number of tables and any natural join. Tables are lists of rows, a row maps columns to values."""

    def __init__(self, schema: Schema, tables: Mapping[str, Sequence[Row]]) -> None:
        self._schema, self._tables = schema, tables
        self._exact_rows = {t.name: _kept_rows(schema, t.name, tables[t.name]) for t in schema.tables}

    @property
    def schema(self) -> Schema:
        return self._schema

    def exact_join_size(self) -> int:
        return sum(map(_weight, self._exact_join([t.name for t in self._schema.tables])))

    def exact_boundary(self, tables: frozenset[str]) -> int:
        if not tables:
            return 1
        names = [t.name for t in self._schema.tables]
        for name in tables:
            if name not in names:
                raise SpecError(f"table {name!r} is not declared; {suggest(name, names)}")
        inside = {a for n in names if n in tables for a in self._schema.table(n).attributes}
        outside = {a for n in names if n not in tables for a in self._schema.table(n).attributes}
        boundary = sorted(inside & outside)
        exact_sizes: Counter[Value] = Counter()
        for result in self._exact_join([n for n in names if n in tables]):
            exact_sizes[tuple(result[a] for a in boundary)] += _weight(result)
        return max(exact_sizes.values(), default=0)

    def exact_answers(self, groups: Sequence[Group]) -> list[NDArray[Any]]:
        exact_results = self._exact_join([t.name for t in self._schema.tables])
        answers = []
        for group in groups:
            exact_total = [0] * len(group)
            for result in exact_results:
                codes = {a: self._schema.attribute(a).code(result[a]) for a in group.scope}
                for i, weight in enumerate(_weights(group, codes)):
                    exact_total[i] += weight * _weight(result)
            answers.append(_as_array(exact_total))
        return answers

    def exact_degrees(
        self, rules: Mapping[str, Rules], by: tuple[str, ...], distinct: tuple[str, ...] = ()
    ) -> ExactDegrees:
        check_degrees(self._schema, rules, by, distinct)
        exact_results = _join([self._exact_satisfying(name, some) for name, some in rules.items()])
        counted = [_value(result, by) for result in exact_results]
        if distinct:
            occurring = {_value(result, distinct) for result in exact_results}
            counted = [tuple(value[distinct.index(a)] for a in by) for value in occurring]
        exact = Counter(counted)
        values = list(exact)
        return ExactDegrees(
            np.array(list(exact.values()), dtype=np.int64), lambda positions: [values[i] for i in positions]
        )

    def kind_of(self, attribute: str) -> str:
        return "untyped"

    def exact_values(self, attribute: str, most: int) -> ExactDegrees:
        exact = Counter((v,) for v in self._exact_column(attribute, most, _listed))
        values = list(exact)
        return ExactDegrees(_as_array(list(exact.values())), lambda positions: [values[i] for i in positions])

    def exact_numbers(self, attribute: str) -> ExactNumbers:
        exact = Counter(self._exact_column(attribute, 1, _finite))
        return ExactNumbers(np.array(list(exact), dtype=np.float64), _as_array(list(exact.values())))

    def _exact_column(self, attribute: str, most: int, form: Callable[[object], object]) -> list[Any]:
        """A value for each row, or for each owner at each of so many of its values."""
        (name,) = self._schema.tables_with(attribute)
        rows = {t.name: _kept(self._schema, t.name, self._tables[t.name]) for t in self._schema.tables}
        table = self._schema.table(name)
        if not owners_counted(self._schema, table):
            return [v for v in (form(r[attribute]) for r in rows[name]) if v is not None]

        def owners(holder: Table, row: Mapping[str, object]) -> list[Value]:
            if named := owner_of(self._schema, holder):
                return [_value(row, named)]
            linked, via = link_of(self._schema, holder), str(holder.owner_via)
            assert linked is not None
            return [o for r in rows[linked.name] if r[via] == row[via] for o in owners(linked, r)]

        pairs = {(o, form(row[attribute])) for row in rows[name] for o in owners(table, row)}
        known = [(o, v) for o, v in pairs if v is not None]
        texts = [(tuple(str(_text(x)) for x in o), str(_text(v))) for o, v in known]
        return [known[i][1] for i in picked(texts, most)]

    def learned(self, schema: Schema) -> BruteEngine:
        return BruteEngine(schema, self._tables)

    def restricted(self, rules: Mapping[str, Rules]) -> BruteEngine:
        check_rules(self._schema, rules)
        engine = copy(self)
        exact_some = {name: self._exact_satisfying(name, some) for name, some in rules.items()}
        vars(engine)["_exact_rows"] = {**self._exact_rows, **exact_some}
        return engine

    def capped(self, caps: Mapping[str, Sequence[DegreeBound]]) -> BruteEngine:
        check_caps(self._schema, caps)
        engine = copy(self)
        exact_some = {name: self._exact_within(name, bounds) for name, bounds in caps.items()}
        vars(engine).update(_schema=with_caps(self._schema, caps), _exact_rows={**self._exact_rows, **exact_some})
        return engine

    def weighted(self, weightings: Mapping[str, RowWeights]) -> BruteEngine:
        check_weightings(self._schema, weightings)
        engine = copy(self)
        exact_some = {}
        for name, weighting in weightings.items():
            exact_rows = self._exact_rows[name]
            degree = Counter(_value(row, weighting.attributes) for row in exact_rows)
            weights = [*weighting.weights.tolist(), *[0] * len(exact_rows)]
            exact_some[name] = [
                {**row, f"{WEIGHT}{name}": weights[degree[_value(row, weighting.attributes)] - 1]} for row in exact_rows
            ]
        vars(engine)["_exact_rows"] = {**self._exact_rows, **exact_some}
        return engine

    def exact_results(self, by: tuple[str, ...]) -> ExactDegrees:
        owner_table(self._schema, by)
        exact: Counter[Value] = Counter()
        for result in self._exact_join([t.name for t in self._schema.tables]):
            exact[_value(result, by)] += _weight(result)
        values = list(exact)
        return ExactDegrees(_as_array(list(exact.values())), lambda positions: [values[i] for i in positions])

    def clipped(self, clip: Clip) -> BruteEngine:
        engine, name = copy(self), owner_table(self._schema, clip.owner)
        results = Counter(_value(r, clip.owner) for r in self._exact_join([t.name for t in self._schema.tables]))
        exact_rows = [
            {**row, f"{WEIGHT}owners": clip.weight(results[_value(row, clip.owner)])} for row in self._exact_rows[name]
        ]
        vars(engine)["_exact_rows"] = {**self._exact_rows, name: exact_rows}
        return engine

    def _exact_within(self, name: str, bounds: Sequence[DegreeBound]) -> list[dict[str, object]]:
        """The table's rows whose rank in each of their groups is within the limit."""
        schema, rows = self._schema, self._exact_rows[name]
        attributes = schema.table(name).attributes
        joins = [a for a in schema.compared_attributes if a in attributes]
        coded = [a for a in schema.queryable if a in attributes and a not in joins]
        copies: Counter[tuple[object, ...]] = Counter()
        places: list[tuple[Any, ...]] = []
        for row in rows:
            values, codes = _value(row, joins), [_some(schema.attribute(a).code(row[a])) for a in coded]
            places.append(place(values, codes, copies[values, *codes]))
            copies[values, *codes] += 1
        stays = [True] * len(rows)
        for bound in bounds:
            seen: Counter[Value] = Counter()
            for i in sorted(range(len(rows)), key=places.__getitem__):
                value = _value(rows[i], bound.attributes)
                seen[value] += 1
                stays[i] &= seen[value] <= bound.limit
        return [row for row, kept in zip(rows, stays, strict=True) if kept]

    def one_table(self, table: str, by: tuple[str, ...], values: Sequence[Value], keep: tuple[str, ...]) -> BruteEngine:
        schema = one_table_schema(self._schema, table, by, values, keep)
        position = {value: i for i, value in enumerate(values)}
        exact_some: list[dict[str, object]] = []
        for row in self._exact_rows[table]:
            codes: dict[str, object] = {a: self._schema.attribute(a).code(row[a]) for a in keep}
            if not by:
                exact_some.append(codes)
            elif _value(row, by) in position:
                exact_some.append({LISTED: position[_value(row, by)], **codes})
        return BruteEngine(schema, {table: exact_some})

    def _exact_satisfying(self, name: str, rules: Rules) -> list[dict[str, object]]:
        """The table's rows whose value has the given bucket under each of the labels."""
        return [
            row
            for row in self._exact_rows[name]
            if all(labels.buckets.get(_value(row, labels.attributes), 0) == bucket for labels, bucket in rules.items())
        ]

    def _exact_join(self, names: Sequence[str]) -> list[dict[str, object]]:
        return _join([self._exact_rows[name] for name in names])


def _join(tables: Sequence[Sequence[Mapping[str, object]]]) -> list[dict[str, object]]:
    """Every combination of one row per table that agrees on the shared attributes."""
    results: list[dict[str, object]] = [{}]
    for rows in tables:
        results = [
            {**row, **result}
            for result in results
            for row in rows
            if all(result[a] == row[a] for a in row if a in result)
        ]
    return results


def _weight(result: Mapping[str, object]) -> int:
    """How often a join result counts: once, or as the weights of its rows say."""
    return math.prod(w for a, w in result.items() if a.startswith(WEIGHT) and isinstance(w, int))


def _value(row: Mapping[str, object], attributes: Sequence[str]) -> Value:
    return tuple(plain(row[a]) for a in attributes)


def _kept_rows(schema: Schema, name: str, rows: Sequence[Row]) -> list[dict[str, object]]:
    """The public rule: a row needs a code for every domain and a value for every join attribute."""
    table = schema.table(name)
    domains, joins = _domains(schema, table), [a for a in table.attributes if a in schema.compared_attributes]
    # A key that joins nothing plays no part.
    kept = _within_bounds(schema, table, _kept(schema, name, rows))
    return [{a: v for a, v in r.items() if a in joins or a in domains} for r in kept]


def _domains(schema: Schema, table: Table) -> dict[str, Attribute]:
    known = (schema.attribute(a) for a in table.attributes)
    return {a.name: a for a in known if not a.key and a.learned is None}


def _kept(schema: Schema, name: str, rows: Sequence[Row]) -> list[dict[str, object]]:
    """The rows that have a code for every domain that is known, and a value for every join attribute."""
    table = schema.table(name)
    domains, joins = _domains(schema, table), [a for a in table.attributes if a in schema.compared_attributes]
    kept = []
    for row in rows:
        values = {a: schema.attribute(a).taken(row.get(table.column(a))) for a in table.attributes}
        coded = all(domain.code(values[a]) is not None for a, domain in domains.items())
        if coded and not any(_missing(values[a]) for a in joins):
            kept.append(values)
    return kept


def _within_bounds(schema: Schema, table: Table, rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Declared degree bounds: a row stays if its rank in each of its groups is within the limit.

    Ranks go by a hash of what an engine sees of the row, then by that itself; all are taken on the same rows.
    """
    texts = [_seen(schema, table, r) for r in rows]
    order = sorted(range(len(rows)), key=lambda i: (md5(texts[i].encode()).hexdigest(), texts[i]))
    stays = [True] * len(rows)
    for bound in table.bounds:
        seen: Counter[tuple[object, ...]] = Counter()
        for i in order:
            # NaN is one value in a group, as in SQL; rows without a value do not share one.
            value = tuple("nan" if v is not None and _missing(v) else v for v in (rows[i][a] for a in bound.attributes))
            if None not in value:
                seen[value] += 1
                stays[i] &= seen[value] <= bound.limit
    return [row for row, kept in zip(rows, stays, strict=True) if kept]


def _seen(schema: Schema, table: Table, row: Mapping[str, object]) -> str:
    """Join values, what else the bounds group by, and codes, one to one as text: the length of each goes first."""
    bounded = {a for bound in table.bounds for a in bound.attributes}
    fields = []
    for a in table.attributes:
        value = row[a]
        if a in schema.compared_attributes:
            fields.append(_text(int(value) if isinstance(value, bool) else value))
        elif a in bounded:
            fields.append(_text(value))
        if not schema.attribute(a).key and schema.attribute(a).learned is None:
            fields.append(_text(schema.attribute(a).code(value)))
    return "".join("-" if f is None else f"{len(f.encode())}:{f}" for f in fields)


def _text(value: object) -> str | None:
    """A value's text as all stores write it."""
    if value is None or isinstance(value, bool):
        return None if value is None else str(value).lower()
    return "nan" if _missing(value) else text(value)


def _listed(value: object) -> object:
    """A value that a domain may list: text, a whole number of 64 bits, a boolean."""
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value == int(value) and abs(value) <= FLOAT_LIMIT else None
    return value if isinstance(value, str | bool) or (isinstance(value, int) and -(2**63) <= value < 2**63) else None


def _finite(value: object) -> float | None:
    return float(value) + 0.0 if isinstance(value, int | float) and math.isfinite(value) else None


def _missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _weights(group: Group, codes: Mapping[str, int | None]) -> list[int]:
    """The weight that each query of the group gives to one join result."""
    if isinstance(group, Kronecker):
        columns = [
            _column(factor, size, codes[a])
            for a, factor, size in zip(group.scope, group.factors, group.shape, strict=True)
        ]
        return [math.prod(product) for product in itertools.product(*columns)]
    sizes = dict(zip(group.scope, group.shape, strict=True))
    weights = [1] * len(group)
    for attributes, matrix in group.parts:
        cell = 0
        for a in attributes:
            cell = cell * sizes[a] + _some(codes[a])
        weights = [w * int(row[cell]) for w, row in zip(weights, matrix, strict=True)]
    return weights


def _column(factor: Factor, size: int, code: int | None) -> list[int]:
    at = _some(code)
    if factor.kind == "cells":
        return [int(i == at) for i in range(size)]
    if factor.kind == "prefixes":
        return [int(at <= i) for i in range(size)]
    if factor.kind == "ranges":
        return [int(low <= at <= high) for low in range(size) for high in range(low, size)]
    if factor.kind == "rows":
        return [int(row[at]) for row in factor.matrix(size)]
    return [factor.row[at]]


def _some(code: int | None) -> int:
    assert code is not None, "rows without a code were dropped before the join"
    return code


def _as_array(numbers: list[int]) -> NDArray[Any]:
    if all(abs(n) < 2**62 for n in numbers):
        return np.array(numbers, dtype=np.int64)
    exact = np.empty(len(numbers), dtype=object)
    exact[:] = numbers
    return exact


def place(values: Sequence[object], codes: Sequence[int], copy: int) -> tuple[object, ...]:
    """Where a row stands among the others."""
    texts = [*map(text, values), *map(str, codes), str(copy)]
    seen = "".join(f"{len(t.encode())}:{t}" for t in texts)
    return (md5(seen.encode()).hexdigest(), *values, *codes, copy)


def picked(pairs: Sequence[tuple[tuple[str, ...], str]], most: int) -> Sequence[int]:
    """Which of some different pairs of owner and value, as texts, count."""
    texts = ["".join(f"{len(f.encode())}:{f}" for f in (*owner, value)) for owner, value in pairs]
    order = sorted(range(len(pairs)), key=lambda i: (md5(texts[i].encode()).hexdigest(), texts[i]))
    seen: dict[tuple[str, ...], int] = {}
    found = []
    for i in order:
        seen[pairs[i][0]] = seen.get(pairs[i][0], 0) + 1
        if seen[pairs[i][0]] <= most:
            found.append(i)
    return found
