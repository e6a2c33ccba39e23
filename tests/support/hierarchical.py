"""Hierarchical joins with skewed rows, and partitions of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import dpjoin as dj
from dpjoin.engine.interface import Rules, Value
from dpjoin.measure.progress import silent
from dpjoin.methods.method import Outcome
from dpjoin.paper import alg6_partition_hierarchical as hierarchical
from dpjoin.paper.alg6_partition_hierarchical import (
    PartOfJoin,
    hierarchical_paper,
    hierarchical_shares,
    hierarchical_tight,
    partition,
)
from dpjoin.privacy.accounting import Budget, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import NoisyDegrees, Question
from dpjoin.spec.hypergraph import AttributeNode, attribute_tree
from dpjoin.spec.workload import CELLS, kronecker
from support.audit import Tape, attach, audited
from support.brute import BruteEngine

GENEROUS = Budget(epsilon=50.0, delta=0.01)
"""Noise of a few units, so that small instances fall into several parts."""


SHAPES: dict[str, tuple[str, ...]] = {
    "two": ("AB", "AC"),
    "star": ("AB", "AC", "AD"),
    "nested": ("ABD", "ABF", "AC"),
    "contained": ("AB", "B"),
    "equal": ("AB", "AB"),
    "apart": ("AB", "AC", "D"),
    "figure4": ("ABD", "ABF", "ABGK", "ABGL", "AC"),
    "deep": ("ABCDP", "ABCDQ", "ABCER", "ABCES", "ABT", "AZ"),
}


Rows = dict[str, list[dict[str, int]]]


def schema_of(shape: str, *, public: str | None = None) -> dj.Schema:
    """Tables r0, r1, …; the last attribute has a domain, the others do if they join nothing."""
    tables = SHAPES[shape]
    names = sorted({a for attributes in tables for a in attributes})
    shared = {a for a in names if sum(a in t for t in tables) > 1} - {names[-1]}
    return dj.Schema(
        tuple(dj.Table(name=f"r{i}", attributes=tuple(t), private=f"r{i}" != public) for i, t in enumerate(tables)),
        tuple(dj.Attribute(name=a, key=True) if a in shared else dj.Attribute(name=a, range=(0, 2)) for a in names),
    )


def workload_of(schema: dj.Schema) -> dj.Workload:
    """The join size and two marginals: enough to measure, and quickly fitted."""
    return dj.Workload(schema, tuple(kronecker(schema, dict.fromkeys(s, CELLS)) for s in ("", *schema.queryable[-2:])))


def skewed_rows(schema: dj.Schema, rng: np.random.Generator) -> Rows:
    """A few values of every node, a few of them with many more values or rows below; some dangle."""
    root = attribute_tree(schema)
    assert root is not None
    while True:
        rows: Rows = {t.name: [] for t in schema.tables}
        heavy = [3 if len(schema.tables) > 3 else 5]
        fill(rng, root, {}, rows, heavy, top=True)
        if BruteEngine(schema, rows).exact_join_size() <= 1000 and max(map(len, rows.values())) <= 60:
            return rows


def fill(
    rng: np.random.Generator, node: AttributeNode, above: dict[str, int], rows: Rows, heavy: list[int], *, top: bool
) -> None:
    count = int(rng.choice([0, 1, 2, 3], p=[0.08, 0.52, 0.3, 0.1]))
    if heavy[0] and rng.random() < 0.5 and not top:
        heavy[0] -= 1
        count = int(rng.integers(8, 13))
    if not node.children:
        (table,) = node.tables
        rows[table] += [above | {a: int(rng.integers(0, 3)) for a in node.attributes} for _ in range(count)]
        return
    values = range(max(1, count)) if not node.virtual else range(1)
    for number in values:
        for child in node.children:
            fill(
                rng,
                child,
                above | dict.fromkeys(node.attributes, number % 3 if top else number),
                rows,
                heavy,
                top=False,
            )


def changed(schema: dj.Schema, rows: Rows, rng: np.random.Generator) -> tuple[str, Rows]:
    """One row more, or one less, in one private table, which is named."""
    name = str(rng.choice(schema.private_tables))
    table = list(rows[name])
    if table and rng.random() < 0.5:
        del table[rng.integers(len(table))]
    else:
        # Mostly a row that joins: the attributes of a row of this or another table, else any.
        row = {a: int(rng.integers(0, 3)) for a in schema.table(name).attributes}
        seen = [r for some in rows.values() for r in some]
        if seen and rng.random() < 0.8:
            row |= {a: v for a, v in seen[rng.integers(len(seen))].items() if a in row}
        table.append(row)
    return name, {**rows, name: table}


def run_on(engine: Any, kind: type[Curator], profile: str, tape: Tape | None = None) -> tuple[Outcome, Any]:
    schema = engine.schema
    workload = workload_of(schema)
    if profile == "tight":
        shares = hierarchical_shares(GENEROUS, schema)
        curator = attach(kind(engine, shares.split), tape or Tape())
        return hierarchical_tight(curator, workload, shares, silent), curator
    curator = attach(kind(engine, Split(budget=GENEROUS, paper=True)), tape or Tape())
    return hierarchical_paper(curator, workload, GENEROUS.exact, silent), curator


def audit(schema: dj.Schema, rows: Rows, other: Rows, profile: str) -> tuple[list[str], int]:
    """All that is found wrong, and how many parts there were."""

    def run(kind: type[Curator], tables: Any, tape: Tape) -> tuple[Outcome, Curator]:
        return run_on(BruteEngine(schema, tables), kind, profile, tape)

    found, outcome = audited(run, rows, other, GENEROUS)
    return found, len(outcome.parts)


def partitioned(engine: Any, profile: str = "tight", kind: type[Curator] = Curator) -> tuple[Any, list[PartOfJoin]]:
    if profile == "tight":
        shares = hierarchical_shares(GENEROUS, engine.schema)
        curator = kind(engine, shares.split)
        question = partial(hierarchical.gaussian_question, curator.composition)
        return curator, partition(curator, shares.stage, question, silent)
    whole = GENEROUS.exact
    stages = len(hierarchical._levels(hierarchical._tree(engine.schema)))
    stage = replace(whole, epsilon=whole.epsilon / 2 / stages, delta=whole.delta / 2 / stages)
    curator = kind(engine, Split(budget=GENEROUS, paper=True))
    return curator, partition(curator, stage, hierarchical.laplace_question, silent)


def is_in(rules: Mapping[str, Rules], table: str, row: Mapping[str, int]) -> bool:
    return table in rules and all(
        labels.buckets.get(tuple(row[a] for a in labels.attributes), 0) == bucket
        for labels, bucket in rules[table].items()
    )


def crowded(curator: Any, parts: Sequence[PartOfJoin], *worlds: Rows) -> list[str]:
    """Rows that are in more questions of a stage, or in more parts, than the Curator says."""
    asked: dict[int, list[Any]] = {}
    for answer in curator._answered:
        depth = max(hierarchical._height(n) for n in nodes_of(curator.schema) if n.path == answer.question.distinct)
        asked.setdefault(depth if answer.question.distinct else 0, []).append(answer.question)
    found = []
    for stage in [*asked.values(), [part.rules for part in parts]]:
        most = curator.participation(stage)
        for rows in worlds:
            for table in curator.schema.private_tables:
                for row in rows[table]:
                    times = sum(is_in(getattr(x, "rules", x), table, row) for x in stage)
                    found += [f"a row of {table} is in {times} of {len(stage)}, not {most}"] if times > most else []
    return found


def nodes_of(schema: dj.Schema) -> list[AttributeNode]:
    root = attribute_tree(schema)
    assert root is not None
    # A question without values of its own is about a leaf.
    return [*root.walk(), AttributeNode(attributes=(), path=(), tables=frozenset())]


def noisy(by: tuple[str, ...], listed: dict[Value, int], threshold: int = 10) -> NoisyDegrees:
    return NoisyDegrees(Question(name="q", rules={}, by=by), threshold, listed)
