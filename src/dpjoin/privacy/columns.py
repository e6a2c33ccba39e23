"""Columns of private tables, before tables are joined: what a domain is learned from.

A list names the values that many rows have; counts say how many rows lie between some edges. Where persons are
protected, owners are counted instead of rows, each at a limited number of values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dpjoin.canonical import real
from dpjoin.engine.interface import Engine, ExactNumbers
from dpjoin.errors import BudgetError
from dpjoin.privacy.accounting import Concentrated
from dpjoin.privacy.gate import Gate, values_above
from dpjoin.privacy.mechanisms import Move
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

    def __init__(self, engine: Engine, asked: ColumnOf, moved: tuple[Move, Move], gate: Gate | None) -> None:
        self._engine, self._asked, self._gate = engine, asked, gate
        self._in_list, self._in_counts = moved
        self._exact: ExactNumbers | None = None

    @property
    def attribute(self) -> str:
        return self._asked.attribute

    @property
    def private(self) -> bool:
        """Whether questions cost anything."""
        return self._gate is not None

    @property
    def kind(self) -> str:
        """What the column holds, by its type: text, untyped, integer, float or boolean. Public."""
        return self._engine.kind_of(self.attribute)

    @property
    def left(self) -> Concentrated:
        """What is left of the allowance."""
        return Concentrated(Fraction(0)) if self._gate is None else self._gate.accountant.left

    def noisy_values(self, cost: Concentrated, *, half_width: int) -> NoisyValues:
        """The values with a noisy count above twice the half-width; of a public table all, at no cost. Proof: P-82."""
        width = CHECK.whole(half_width, "half_width", least=0)
        exact = partial(self._engine.exact_values, self.attribute, self._asked.values)
        if self._gate is None:
            counted = exact()
            threshold, listed = 0, values_above(counted, counted.exact_counts, 0)
        else:
            cost, moved = CHECK.instance(cost, Concentrated, "a cost"), self._in_list
            mechanism = self._gate.hiding(moved, cost, half_width=width)
            told = f"domain of {self.attribute}: values"
            threshold, listed = self._gate.values(told, mechanism, exact, values=moved.numbers)
        return NoisyValues(threshold, {value: count for (value,), count in listed.items()})

    def noisy_counts(self, edges: Sequence[float], cost: Concentrated) -> NoisyCounts:
        """How many numbers lie from each edge up to the next; of a public table exact, at no cost. Proof: P-82."""
        cuts = _cuts(edges)

        def exact() -> Numbers:
            if self._exact is None:
                self._exact = self._engine.exact_numbers(self.attribute)
            return counts_between(self._exact, cuts)

        if self._gate is None:
            return NoisyCounts(cuts, tuple(map(int, exact())), 0.0)
        mechanism = self._gate.hiding(self._in_counts, CHECK.instance(cost, Concentrated, "a cost"))
        noisy = self._gate.numbers(f"domain of {self.attribute}: counts", mechanism, exact)
        return NoisyCounts(cuts, tuple(map(int, noisy)), float(mechanism.law.variance))


def counts_between(exact: ExactNumbers, edges: Sequence[float]) -> NDArray[np.int64]:
    """How many numbers lie from each edge up to the next one. Proof: P-82."""
    at = np.searchsorted(np.array(edges), exact.exact_values, side="right") - 1
    inside = (at >= 0) & (at < len(edges) - 1)
    counts = np.zeros(len(edges) - 1, dtype=np.int64)
    np.add.at(counts, at[inside], exact.exact_counts[inside])
    return counts


def _cuts(edges: object) -> tuple[float, ...]:
    """Edges between which numbers are counted. Proof: P-82."""
    cuts = tuple(real(e, "an edge", error=BudgetError) for e in CHECK.items(edges, "edges"))
    if not 2 <= len(cuts) <= MOST_CELLS or not all(math.isfinite(e) for e in cuts) or list(cuts) != sorted(set(cuts)):
        raise BudgetError("edges must be some increasing finite numbers, two at least")
    return cuts
