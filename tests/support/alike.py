"""Whether two engines answer every question alike."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpjoin.engine.interface import Engine, ExactDegrees, RowWeights, Rules, Value
from dpjoin.engine.join_keys import plain
from dpjoin.spec.schema import DegreeBound, Schema
from dpjoin.spec.workload import CELLS, Group, kronecker
from support.restricted import joins_of, random_labels, random_rules, some_of
from support.strategies import Tables


def counted(degrees: ExactDegrees) -> Counter[tuple[Any, ...]]:
    """Counts by value and by the types of its parts, however positions are asked for."""
    everything = np.arange(len(degrees.exact_counts))
    values = degrees.exact_values(everything)
    assert len(set(values)) == len(values) == len(degrees.exact_counts)
    assert degrees.exact_values(everything[::-2]) == [values[i] for i in everything[::-2]]
    pairs = zip(values, degrees.exact_counts, strict=True)
    return Counter({(v, tuple(map(type, v))): int(n) for v, n in pairs})


def assert_numbers_alike(fast: Engine, slow: Engine, groups: tuple[Group, ...]) -> int:
    """Join size, boundaries and answers; the join size."""
    assert fast.schema == slow.schema
    assert fast.exact_join_size() == slow.exact_join_size()
    names = [t.name for t in fast.schema.tables]
    for count in range(len(names) + 1):
        for some in itertools.combinations(names, count):
            assert fast.exact_boundary(frozenset(some)) == slow.exact_boundary(frozenset(some)), some
    for group, first, second in zip(groups, fast.exact_answers(groups), slow.exact_answers(groups), strict=True):
        assert first.shape == second.shape == (len(group),)
        assert first.tolist() == second.tolist(), group.name
    return slow.exact_join_size()


def assert_degrees_alike(rng: np.random.Generator, fast: Engine, slow: Engine, rules: dict[str, Rules]) -> int:
    """Degrees of each table and distinct values of some; how many values there were."""
    schema, found = fast.schema, 0
    asked: list[tuple[dict[str, Rules], tuple[str, ...], tuple[str, ...]]] = []
    names = [t.name for t in schema.tables]
    for name in names:
        asked.append(({name: rules.get(name, {})}, some_of(rng, joins_of(schema, name)), ()))
    for count in (1, 2):
        for some in itertools.combinations(names, count):
            common = sorted(set.intersection(*(set(joins_of(schema, n)) for n in some)))
            if distinct := some_of(rng, common):
                asked.append(({n: rules.get(n, {}) for n in some}, some_of(rng, distinct), distinct))
    for question in asked:
        expected = counted(slow.exact_degrees(*question))
        assert counted(fast.exact_degrees(*question)) == expected, question
        found += expected.total()
    return found


def listed_values(rng: np.random.Generator, schema: Schema, tables: Tables, by: tuple[str, ...]) -> list[Value]:
    """Some values that tables have and one that none has."""
    rows = [
        tuple(plain(row[t.column(a)]) for a in by)
        for t in schema.tables
        if set(by) <= set(t.attributes)
        for row in tables[t.name]
    ]
    values = list(dict.fromkeys(v for v in rows if all(x is not None and x == x for x in v)))
    return [*(values[i] for i in rng.permutation(len(values))[:5]), tuple("none" for _ in by)]


def random_caps(rng: np.random.Generator, schema: Schema) -> dict[str, list[DegreeBound]]:
    """One or two caps for most tables, by some of their join attributes."""
    found: dict[str, list[DegreeBound]] = {}
    for table in schema.tables:
        joins = joins_of(schema, table.name)
        sets = {tuple(a for a in joins if rng.random() < 0.6) or tuple(joins) for _ in range(2)}
        if joins and rng.random() < 0.85:
            found[table.name] = [DegreeBound(attributes=s, limit=int(rng.integers(1, 4))) for s in sorted(sets)]
    return found


def random_weights(rng: np.random.Generator, schema: Schema) -> dict[str, RowWeights]:
    """Weights for each table that meets another."""
    found = {}
    for table in schema.tables:
        joins = tuple(joins_of(schema, table.name))
        if joins:
            by = joins if rng.random() < 0.5 else joins[: 1 + int(rng.integers(len(joins)))]
            weights = -np.sort(-rng.integers(0, 9, int(rng.integers(1, 7))))
            weights[0] = max(weights[0], 1)
            found[table.name] = RowWeights(by, weights.astype(np.int64), 9)
    return found


KINDS = ("degrees", "restricted", "capped", "weighted", "alone")


def assert_alike(
    rng: np.random.Generator,
    fast: Engine,
    slow: Engine,
    tables: Tables,
    groups: tuple[Group, ...],
    kinds: Sequence[str] = KINDS,
) -> list[int]:
    """Whatever an engine can be asked, or some kinds of it; how many results, values and listed rows there were."""
    schema = fast.schema
    sizes = [assert_numbers_alike(fast, slow, groups)]
    labels = [random_labels(rng, schema, tables, f"labels {i}") for i in range(2)]
    rules = random_rules(rng, schema, tables, labels)
    caps, fades = random_caps(rng, schema), random_weights(rng, schema)
    if "degrees" in kinds:
        sizes.append(assert_degrees_alike(rng, fast, slow, rules))
    if "restricted" in kinds:
        some, slow_some = fast.restricted(rules), slow.restricted(rules)
        sizes.append(assert_numbers_alike(some, slow_some, groups[:2]))
        if len(kinds) > 1:
            assert_numbers_alike(some.capped(caps).weighted(fades), slow_some.capped(caps).weighted(fades), groups[1:2])
    if "capped" in kinds:
        sizes.append(assert_numbers_alike(fast.capped(caps), slow.capped(caps), groups[:3]))
    if "weighted" in kinds:
        sizes.append(assert_numbers_alike(fast.weighted(fades), slow.weighted(fades), groups[:3]))
    for table in schema.tables if "alone" in kinds else ():
        keep = some_of(rng, [a for a in table.attributes if a in schema.queryable])
        by = some_of(rng, joins_of(schema, table.name))
        if by or keep:
            listed = listed_values(rng, schema, tables, by) if by else []
            alone, slow_alone = (e.one_table(table.name, by, listed, keep) for e in (fast, slow))
            scopes = dict.fromkeys(alone.schema.queryable, CELLS)
            sizes.append(assert_numbers_alike(alone, slow_alone, (kronecker(alone.schema, scopes),)))
    return sizes
