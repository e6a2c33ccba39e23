"""A sum of models: the join is cut publicly into parts that are released on their own, and F is the sum of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from dpjoin.model.joined import Joined
from dpjoin.model.model import Estimate, Model, answers_on
from dpjoin.model.terms import Domain, FloatArray
from dpjoin.spec.workload import Group, Kronecker

Part = Model | Joined


@dataclass(frozen=True, eq=False)
class Union(Estimate):
    """Models of parts of the join, on the same cells and with independent noise; what they say adds up.

    A part of which only the size was estimated is a model without members, and with a floor.
    """

    parts: tuple[Part, ...]
    names: tuple[str, ...]
    """One per part, all different."""

    def __post_init__(self) -> None:
        if not self.parts or len(self.names) != len(self.parts) or len(set(self.names)) < len(self.names):
            raise ValueError("a union must have at least one part, and a different name for each")
        first = self.parts[0].domain
        for name, part in zip(self.names, self.parts, strict=True):
            if _layout(part.domain) != _layout(first):
                raise ValueError(f"part {name!r} must have the cells of part {self.names[0]!r}, split alike")

    @property
    def domain(self) -> Domain:
        return self.parts[0].domain

    @property
    def total(self) -> float:
        return sum(part.total for part in self.parts)

    @cached_property
    def table(self) -> FloatArray:
        """Cells as a matrix, left by right: the sum of the parts'."""
        if not self._joined:
            return self._dense
        table = self._dense.copy()
        for part in self._joined:
            table += part.tabulated()
        return table

    @cached_property
    def _dense(self) -> FloatArray:
        """The sum of the parts that are models of all cells."""
        table = np.zeros((self.domain.rows, self.domain.columns))
        for part in self.parts:
            if isinstance(part, Model):
                # Rows and answers need the sum only: the parts' own tables wait until bars are asked for.
                table += part.tabulated()
        return table

    @property
    def _joined(self) -> list[Joined]:
        """The parts that answer from their tables, without looking at all cells."""
        return [part for part in self.parts if isinstance(part, Joined)]

    def knows(self, scope: Sequence[str]) -> bool:
        """Whether error bars are known within a scope."""
        return all(part.knows(scope) for part in self.parts)

    def answer(self, group: Group) -> FloatArray:
        """The group's answers, added up over the parts."""
        answers = [part.answer(group) for part in self._joined]
        if len(answers) < len(self.parts):
            answers.append(answers_on(partial(self.domain.marginal, self._dense), group))
        return _sum(answers)

    @property
    def shared(self) -> float:
        """See `Estimate`."""
        return max((part.shared for part in self.parts), default=0.0)

    def spreads(self, group: Group) -> list[FloatArray]:
        """How far each member of a part moves the answers, members x queries, for the parts that have some."""
        return [spread for part in self.parts for spread in part.spreads(group)]

    def slack(self, group: Group) -> FloatArray:
        """The parts' floors, added as they are: nobody knows that they are independent."""
        return _sum([part.slack(group) for part in self.parts])

    def noise(self, group: Kronecker) -> FloatArray:
        """The standard deviation with which each cell of a marginal was measured, over all parts."""
        return np.sqrt(_sum([part.noise(group) ** 2 for part in self.parts]))

    def measured(self, group: Kronecker) -> FloatArray:
        """The variance with which each cell of a marginal was measured, over all parts."""
        return _sum([part.measured(group) for part in self.parts])


def _layout(domain: Domain) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    return domain.left, domain.right, domain.shape


def _sum(each: list[FloatArray]) -> FloatArray:
    """One number per query, added up over the parts."""
    total: FloatArray = np.sum(each, axis=0)
    return total
