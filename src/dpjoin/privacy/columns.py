"""Columns of private tables, before tables are joined: what a domain is learned from.

A list names the values that many rows have; counts say how many rows lie between some edges. Where persons are
protected, owners are counted instead of rows, each at a limited number of values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dpjoin.canonical import real
from dpjoin.engine.interface import Engine, ExactDegrees, ExactNumbers
from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import Accountant, Concentrated
from dpjoin.privacy.gate import Gate, values_above
from dpjoin.privacy.ledger import Event
from dpjoin.privacy.mechanisms import Mechanism, Move, hiding, hiding_each, root
from dpjoin.privacy.numbers import Numbers
from dpjoin.privacy.parts import CHECK

MOST_CELLS = 2**16


@dataclass(frozen=True, kw_only=True)
class ColumnOf:
    """The column of an attribute that one table has; an owner, where they are protected, counts at so many values."""

    attribute: str
    values: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "attribute", CHECK.text(self.attribute, "an attribute"))
        object.__setattr__(self, "values", CHECK.whole(self.values, "values of an owner", least=1))


@dataclass(frozen=True, eq=False)
class NoisyValues:
    """The values with a noisy count above `threshold`, which is twice the half-width; zero for a public table."""

    threshold: int
    listed: Mapping[object, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "listed", MappingProxyType(dict(self.listed)))


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """How many numbers lie from one edge up to the next one, which belongs to the next count."""

    edges: tuple[float, ...]
    noisy: tuple[int, ...]
    variance: float
    """Of each count's noise; zero for a public table."""


class Column:
    """One column with its allowance, which only a Curator makes; of a public table without one. Proof: P-82."""

    def __init__(
        self, engine: Engine, asked: ColumnOf, moved: tuple[int, int], purse: Accountant | None, gate: Gate, part: str
    ) -> None:
        self._engine, self._asked, self._purse, self._gate, self._part = engine, asked, purse, gate, part
        self._in_list, self._in_counts = moved
        self._exact: ExactNumbers | None = None

    @property
    def attribute(self) -> str:
        return self._asked.attribute

    @property
    def private(self) -> bool:
        """Whether questions cost anything."""
        return self._purse is not None

    @property
    def moved(self) -> int:
        """How many values of a list change by one each, at most, with one row or one owner."""
        return self._in_list

    @property
    def kind(self) -> str:
        """What the column holds, by its type: text, untyped, integer, float or boolean. Public."""
        return self._engine.kind_of(self.attribute)

    @property
    def left(self) -> Concentrated:
        """What is left of the allowance."""
        return Concentrated(Fraction(0)) if self._purse is None else self._purse.left

    def noisy_values(self, cost: Concentrated, *, half_width: int) -> NoisyValues:
        """The values with a noisy count above twice the half-width; of a public table all, at no cost. Proof: P-82."""
        width = CHECK.whole(half_width, "half_width", least=0)
        if width >= 2**61:
            raise BudgetError("half_width must be below 2^61; spend more, or set more of delta aside")

        def exact() -> ExactDegrees:
            return self._engine.exact_values(self.attribute, self._asked.values)

        if self._purse is None:
            counted = exact()
            return NoisyValues(0, _single(values_above(counted, counted.exact_counts, 0)))
        composition = self._purse.composition
        mechanism = hiding_each(self._in_list, CHECK.instance(cost, Concentrated, "a cost"), composition, width)
        event = self._event(mechanism, "values", {"values": self._in_list})
        listed = self._gate.values(self._purse, event, mechanism, exact, 2 * width)
        return NoisyValues(2 * width, _single(listed))

    def noisy_counts(self, edges: Sequence[float], cost: Concentrated) -> NoisyCounts:
        """How many numbers lie from each edge up to the next; of a public table exact, at no cost. Proof: P-82."""
        cuts = _cuts(edges)

        def exact() -> Numbers:
            if self._exact is None:
                self._exact = self._engine.exact_numbers(self.attribute)
            return counts_between(self._exact, cuts)

        if self._purse is None:
            return NoisyCounts(cuts, tuple(map(int, exact())), 0.0)
        cost = CHECK.instance(cost, Concentrated, "a cost")
        mechanism = hiding(Move(root(self._in_counts), self._in_counts), cost, self._purse.composition)
        noisy = self._gate.numbers(self._purse, self._event(mechanism, "counts"), mechanism, exact)
        return NoisyCounts(cuts, tuple(map(int, noisy)), float(mechanism.law.variance))

    def _event(self, mechanism: Mechanism, what: str, more: Mapping[str, int] = MappingProxyType({})) -> Event:
        return Event(
            mechanism=mechanism.law.name,
            purpose=f"domain of {self.attribute}: {what}",
            cost=mechanism.cost,
            moves=Fraction(mechanism.moves),
            parameters={**mechanism.law.parameters, **more},
            part=self._part,
        )


def counts_between(exact: ExactNumbers, edges: Sequence[float]) -> NDArray[np.int64]:
    """How many numbers lie from each edge up to the next one. Proof: P-82."""
    at = np.searchsorted(np.array(edges), exact.exact_values, side="right") - 1
    inside = (at >= 0) & (at < len(edges) - 1)
    counts = np.zeros(len(edges) - 1, dtype=np.int64)
    np.add.at(counts, at[inside], exact.exact_counts[inside])
    return counts


def _single(listed: Mapping[tuple[object, ...], int]) -> dict[object, int]:
    return {value: count for (value,), count in listed.items()}


def _cuts(edges: object) -> tuple[float, ...]:
    """Edges between which numbers are counted. Proof: P-82."""
    cuts = tuple(real(e, "an edge", error=BudgetError) for e in CHECK.items(edges, "edges"))
    if not 2 <= len(cuts) <= MOST_CELLS or not all(math.isfinite(e) for e in cuts) or list(cuts) != sorted(set(cuts)):
        raise BudgetError("edges must be some increasing finite numbers, two at least")
    return cuts
