"""Small joins whose domains are learned, with enough rows of each value to be listed, and engines for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

import dpjoin as dj
from dpjoin.auto.learned import run_learned
from dpjoin.auto.plan import check_feasible
from dpjoin.measure.progress import silent
from dpjoin.privacy.curator import Curator
from support.audit import Tape, attach
from support.brute import BruteEngine
from support.owners import Rows, owner_of, people, random_rows

LOUD = dj.Budget(epsilon=30.0, delta=1e-2)
"""With so little noise a dozen rows are seen."""


def learnable(schema: dj.Schema, **domains: Any) -> dj.Schema:
    """The schema with lists, or bins for b, in place of its domains."""
    wanted: dict[str, Any] = {"a": True, "b": {"bins": 2}, "c": True, **domains}
    attributes = tuple(
        a if a.key else dj.Attribute(name=a.name, learn=wanted[a.name]) if a.name in wanted else a
        for a in schema.attributes
    )
    return replace(schema, attributes=attributes)


def many_rows(schema: dj.Schema, rng: np.random.Generator, copies: int = 6) -> Rows:
    """Rows of a few persons, several times over; what is unique stays so."""
    rows = random_rows(schema, rng)
    for table in schema.tables:
        if not table.bounds:
            rows[table.name] = [dict(r) for r in rows[table.name] for _ in range(int(rng.integers(1, copies)))]
    return rows


def one_less(schema: dj.Schema, rows: Rows, rng: np.random.Generator) -> Rows | None:
    """Without one owner with all rows or, where rows are protected, without one row; None where there is none."""
    if schema.unit:
        there = people(schema, rows)
        if not there:
            return None
        person = there[int(rng.integers(len(there)))]
        return {
            t.name: [r for r in rows[t.name] if not t.private or owner_of(schema, rows, t.name, r) != person]
            for t in schema.tables
        }
    table = schema.private_tables[int(rng.integers(len(schema.private_tables)))]
    if not rows[table]:
        return None
    at = int(rng.integers(len(rows[table])))
    return {**rows, table: rows[table][:at] + rows[table][at + 1 :]}


def neighbours(schema: dj.Schema, count: int, seed: int) -> Iterator[tuple[Rows, Rows]]:
    """Instances that differ by one protected unit; replaced, by another one in its place."""
    rng = np.random.default_rng(seed)
    while count:
        rows = many_rows(schema, rng)
        less = one_less(schema, rows, rng)
        if less is None:
            continue
        count -= 1
        if schema.neighbours == "add":
            yield rows, less
            continue
        (name, *_) = [t for t in rows if len(rows[t]) > len(less[t])] or [schema.private_tables[0]]
        if not schema.unit:
            other = {k: int(rng.integers(0, 3)) for k in schema.table(name).attributes}
            yield rows, {**less, name: [*less[name], other]}
            continue
        # The same person comes with other rows.
        (person,) = set(people(schema, rows)) - set(people(schema, less)) or [(0,)]
        more = random_rows(schema, rng)
        yield (
            rows,
            {
                t.name: [
                    *less[t.name],
                    *(r for r in more[t.name] if t.private and owner_of(schema, more, t.name, r) == person),
                ]
                for t in schema.tables
            },
        )


def learned_runner(
    schema: dj.Schema, workload: dj.Workload, budget: dj.Budget, kept: list[Curator], name: str = "auto"
) -> Any:
    """A whole release with learned domains as `replay_violations` runs it; its curators go into `kept`."""

    def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
        def make(engine: Any, split: Any) -> Curator:
            kept.append(attach(kind(engine, split), tape))
            return kept[-1]

        engine = BruteEngine(schema, tables)
        outcome, curator, facts = run_learned(
            name, "tight", engine, workload, budget, silent, check=check_feasible, make=make
        )
        told = [str(facts), *map(str, curator.schema.attributes)]
        answers = [float(x) for g in workload.over(curator.schema).groups for x in outcome.model.answer(g)]
        return (told, answers, outcome.noisy_total)

    return run


def typed(schema: dj.Schema, rows: Rows, columns: dict[str, pa.DataType]) -> dict[str, pa.Table]:
    """Arrow tables whose columns have these types, whole numbers where nothing else is said."""
    return {
        t.name: pa.table(
            {a: pa.array([r.get(a) for r in rows[t.name]], columns.get(a, pa.int64())) for a in t.attributes}
        )
        for t in schema.tables
    }
