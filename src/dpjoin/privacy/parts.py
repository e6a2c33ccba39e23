"""Public partitions of a private instance: questions about degrees, their noisy answers, labels and caps.

A question asks for every value of some join attributes how often it occurs. Its answer lists the values whose noisy
degree exceeds 2s, the largest noise; every other value, present or not, is just "at most 2s". Labels sort values into
buckets by such answers, so they are public, and each bucket comes with a cap that no degree in it exceeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dpjoin.canonical import Checks, set_canonical
from dpjoin.engine.interface import LISTED as LISTED
from dpjoin.engine.interface import Labels as Labels
from dpjoin.engine.interface import Rules as Rules
from dpjoin.engine.interface import Value as Value
from dpjoin.errors import BudgetError
from dpjoin.privacy.degree_bounds import Limit
from dpjoin.spec.schema import Schema

CHECK = Checks(BudgetError)


def canonical_rules(rules: object, what: str) -> dict[str, dict[Labels, int]]:
    """Rules by table, copied: names are text, labels are Labels, buckets are whole numbers. Proof: P-73."""
    return {
        CHECK.text(table, f"{what}: a table"): {
            CHECK.instance(labels, Labels, f"{what}: labels"): CHECK.whole(bucket, f"{what}: a bucket")
            for labels, bucket in CHECK.mapping(part, f"{what}: rules of a table").items()
        }
        for table, part in CHECK.mapping(rules, f"{what}: rules").items()
    }


@dataclass(frozen=True, kw_only=True)
class Question:
    """How many rows of a table (or values of `distinct` in the join of tables) each value of `by` has.

    `rules` names the tables that take part, and which of their rows do.
    """

    name: str
    rules: Mapping[str, Rules]
    by: tuple[str, ...]
    distinct: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Limits go by the rows that were asked about: whatever becomes of the caller's rules, nobody can change these.
        set_canonical(self, "a question", name=CHECK.text, by=CHECK.names, distinct=CHECK.names, rules=canonical_rules)
        frozen = {table: MappingProxyType(part) for table, part in self.rules.items()}
        object.__setattr__(self, "rules", MappingProxyType(frozen))


@dataclass(frozen=True, eq=False)
class OneTable:
    """A sub-instance of one table by itself: its rows in one bucket (of all values, without labels).

    Its values are numbered, and the rows keep their codes for the attributes `keep`; other tables play no part.
    """

    table: str
    keep: tuple[str, ...]
    labels: Labels | None = None
    bucket: int = 1

    def __post_init__(self) -> None:
        set_canonical(self, "one table", table=CHECK.text, keep=CHECK.names, bucket=CHECK.whole)
        if self.labels is not None:
            CHECK.instance(self.labels, Labels, "one table: labels")

    @property
    def rules(self) -> dict[str, Rules]:
        return {self.table: {self.labels: self.bucket} if self.labels is not None else {}}

    @property
    def values(self) -> list[Value]:
        """The listed values, in their public order."""
        return [v for v, b in self.labels.buckets.items() if b == self.bucket] if self.labels is not None else []


@dataclass(frozen=True, eq=False)
class NoisyDegrees:
    """The answer: noisy degrees above `threshold`, never below the true ones; other values have at most `threshold`."""

    question: Question
    threshold: int
    listed: Mapping[Value, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "listed", MappingProxyType(dict(self.listed)))  # caps rest on it

    def most(self, value: Value) -> int:
        """What is publicly known of a value's degree: it is not larger."""
        return self.listed.get(value, self.threshold)


@dataclass(frozen=True, eq=False)
class NoisyRanks:
    """How many rows have their rank, within the rows of their value, in each bucket from one edge to the next.

    Bucket k holds the ranks above edges[k - 1] (above 0, for the first) up to edges[k]; the last, all above the last.
    """

    question: Question
    edges: tuple[int, ...]
    noisy: tuple[int, ...]
    deviation: float
    """Of each bucket's noise."""


def rows_by_rank(exact_degrees: NDArray[np.int64], edges: Sequence[int]) -> NDArray[np.int64]:
    """For each bucket of ranks, the rows in it: each value has one row of every rank up to its degree. Proof: P-52."""
    lows = [0, *edges]
    degrees, values = np.unique(exact_degrees, return_counts=True)
    within = [np.minimum(degrees, high) - np.minimum(degrees, low) for low, high in pairwise(lows)]
    above = degrees - np.minimum(degrees, lows[-1])
    return np.array([int(w @ values) for w in [*within, above]], dtype=np.int64)


def check_question(schema: Schema, question: Question) -> None:
    """Refuse a question whose answer one row could change at more than one value. Proof: P-46."""
    fixed = set(question.by) | set(question.distinct)
    if not question.distinct and len(question.rules) != 1:
        raise BudgetError(f"question {question.name!r} counts rows, so it must be about one table; name one")
    if question.distinct and not set(question.by) <= set(question.distinct):
        raise BudgetError(f"question {question.name!r} must count values that include those it groups by")
    for table in question.rules:
        if not fixed <= set(schema.table(table).attributes):
            raise BudgetError(f"question {question.name!r} must group by attributes that {table!r} has")


def bucket_cap(labels: Labels, bucket: int, degrees: NoisyDegrees) -> int:
    """The largest degree that a value in the bucket can have. Proof: P-47."""
    inside = {v for v, b in labels.buckets.items() if b == bucket}
    if bucket == 0:
        inside |= {v for v in degrees.listed if labels.buckets.get(v, 0) == 0}
        return max([degrees.threshold, *(degrees.most(v) for v in inside)])
    return max((degrees.most(v) for v in inside), default=0)


def part_limits(
    schema: Schema, rules: Mapping[str, Rules], known: Mapping[Labels, Sequence[NoisyDegrees]]
) -> list[Limit]:
    """What the labels say about degrees in the sub-instance that the rules take. Proof: P-47."""
    limits = []
    for labels, bucket in {(labels, b) for part in rules.values() for labels, b in part.items()}:
        for degrees in known[labels]:
            asked = degrees.question
            # The degree was asked of these rows or more, and each has the bucket.
            if all(
                rules.get(table, {}).get(labels) == bucket
                and all(rules[table].get(other) == b for other, b in needed.items())
                for table, needed in asked.rules.items()
            ):
                table = next(iter(asked.rules))
                limits.append(
                    Limit(
                        tables=frozenset(asked.rules),
                        given=frozenset(asked.by),
                        then=frozenset(asked.distinct or schema.table(table).attributes),
                        most=bucket_cap(labels, bucket, degrees),
                        rows_of=None if asked.distinct else table,
                    )
                )
    return limits
