"""Tables in partitions of their key: what is asked of all is asked of each, and the answers are added up.

Rows that join are in one partition, so the join is the union of the partitions' joins. A question by other attributes
than those that the tables are partitioned by is asked of all partitions put together, which takes memory for them all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpjoin.engine import sumproduct
from dpjoin.engine.answers import products_bound
from dpjoin.engine.integers import Exact, fit, one_thread
from dpjoin.engine.interface import Clip, ExactDegrees, RowWeights, Rules, Scope, Value
from dpjoin.engine.sumproduct import Counts
from dpjoin.engine.tables import Tables
from dpjoin.spec.schema import DegreeBound, Schema
from dpjoin.spec.workload import Products

_Answer = TypeVar("_Answer")
WORKERS = min(4, os.cpu_count() or 1)
"""So many partitions are worked at, at the same time."""


def partitioned_by(schema: Schema) -> Scope:
    """The attributes whose values decide in which partition a row is: all tables have them. None, if there are none."""
    compared = schema.compared_attributes
    common = tuple(a for a in compared if len(schema.tables_with(a)) == len(schema.tables))
    owner = schema.in_order(schema.unit)
    return owner if owner and set(owner) <= set(common) else common


class Partitions:
    """The same as `Tables`, of which each partition is one. `by` are the attributes that they are partitioned by.

    `parts` make the partitions, each for one question; `whole` puts all of them into one. Restrictions, caps and
    weights are done again for each question: only the rows as they were read are kept.
    """

    def __init__(
        self, schema: Schema, parts: Sequence[Callable[[], Tables]], by: Scope, whole: Callable[[], Tables]
    ) -> None:
        self._schema, self._parts, self._by, self._whole = schema, parts, set(by), whole

    def restricted(self, rules: Mapping[str, Rules]) -> Partitions:
        return self._each(self._schema, lambda tables: tables.restricted(rules))

    def capped(self, schema: Schema, caps: Mapping[str, Sequence[DegreeBound]]) -> Partitions | Tables:
        attributes = [b.attributes for bounds in caps.values() for b in bounds]
        return self._changed(schema, attributes, lambda tables: tables.capped(schema, caps))

    def weighted(self, weightings: Mapping[str, RowWeights]) -> Partitions | Tables:
        attributes = [w.attributes for w in weightings.values()]
        return self._changed(self._schema, attributes, lambda tables: tables.weighted(weightings))

    def clipped(self, name: str, clip: Clip) -> Partitions | Tables:
        return self._changed(self._schema, [clip.owner], lambda tables: tables.clipped(name, clip))

    def _changed(
        self, schema: Schema, attributes: Iterable[Scope], change: Callable[[Tables], Tables]
    ) -> Partitions | Tables:
        """A change that looks at the rows with the same values of some attributes together."""
        if all(self._by <= set(some) for some in attributes):
            return self._each(schema, change)
        return change(self._whole())

    def _each(self, schema: Schema, change: Callable[[Tables], Tables]) -> Partitions:
        def changed(part: Callable[[], Tables]) -> Callable[[], Tables]:
            return lambda: change(part())

        return Partitions(schema, list(map(changed, self._parts)), tuple(self._by), changed(self._whole))

    def _answers(self, ask: Callable[[Tables], _Answer]) -> Iterator[_Answer]:
        """Every partition's answer, in order, and never many at a time."""
        with one_thread(), ThreadPoolExecutor(WORKERS) as workers:
            for start in range(0, len(self._parts), WORKERS):
                yield from workers.map(lambda part: ask(part()), self._parts[start : start + WORKERS])

    @cached_property
    def exact_size(self) -> int:
        return sum(self._answers(lambda tables: tables.exact_size))

    def exact_largest(self, names: frozenset[str]) -> int:
        """T_E: its boundary has the attributes that the tables are partitioned by, unless E is all or none of them."""
        if len(names) == len(self._schema.tables):
            return self.exact_size
        return max(self._answers(lambda tables: tables.exact_largest(names))) if names else 1

    def exact_marginals(self, scopes: Iterable[Scope]) -> dict[Scope, Exact]:
        wanted = list(scopes)
        answers = self._answers(lambda tables: list(tables.exact_marginals(wanted).values()))
        return dict(zip(wanted, self._exact_sums(answers, self.exact_size), strict=True))

    def exact_products_over_keys(self, group: Products) -> Exact:
        answers = self._answers(lambda tables: [tables.exact_products_over_keys(group)])
        return self._exact_sums(answers, products_bound(group, self.exact_size))[0]

    def _exact_sums(self, answers: Iterator[list[Exact]], bound: int) -> list[Exact]:
        """Array by array; `bound` is above all that is added up."""
        whole = [fit(exact, bound) for exact in next(answers)]
        for some in answers:
            whole = [a + fit(b, bound) for a, b in zip(whole, some, strict=True)]
        return whole

    def exact_degrees(self, rules: Mapping[str, Rules], by: Scope, distinct: Scope) -> ExactDegrees:
        return self._exact_degrees(by, lambda tables: tables.exact_degrees(rules, by, distinct))

    def exact_results(self, by: Scope) -> ExactDegrees:
        return self._exact_degrees(by, lambda tables: tables.exact_results(by))

    def _exact_degrees(self, by: Scope, ask: Callable[[Tables], ExactDegrees]) -> ExactDegrees:
        """Degrees of values that are in one partition each, one partition after the other."""
        if not self._by or not self._by <= set(by):
            return ask(self._whole())
        exact_counts = list(self._answers(lambda tables: ask(tables).exact_counts))
        ends = np.cumsum(list(map(len, exact_counts)))

        def exact_values(positions: NDArray[np.int64]) -> list[Value]:
            # Few values are asked for, so the others are not kept.
            at = np.asarray(positions, dtype=np.int64)
            found: dict[int, Value] = {}
            parts = np.searchsorted(ends, at, side="right")
            for part in np.unique(parts).tolist():
                here = at[parts == part]
                degrees = ask(self._parts[part]())
                start = ends[part] - len(degrees.exact_counts)
                found |= dict(zip(here.tolist(), degrees.exact_values(here - start), strict=True))
            return [found[i] for i in at.tolist()]

        wide = any(c.dtype == object for c in exact_counts)
        return ExactDegrees(np.concatenate([c.astype(object) if wide else c for c in exact_counts]), exact_values)

    def exact_one_table(self, name: str, by: Scope, values: Sequence[Any], keep: Scope) -> Counts:
        def codes(tables: Tables) -> Counts:
            found = tables.exact_one_table(name, by, values, keep)
            return sumproduct.project(found, found.variables)

        def both(first: Counts, second: Counts) -> Counts:
            return sumproduct.project(sumproduct.concatenated([first, second]), first.variables)

        return reduce(both, self._answers(codes))
