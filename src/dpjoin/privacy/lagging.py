"""Choose among very many queries by a model's answers of some rounds ago, with the law of today's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpjoin.canonical import frozen, instance, items, real, whole, whole_numbers
from dpjoin.errors import BudgetError
from dpjoin.privacy import noise
from dpjoin.privacy.numbers import Numbers, narrow
from dpjoin.spec.workload import Group


@dataclass(frozen=True, eq=False)
class Lagging:
    """What a model answered some rounds ago, and its table of today: public, for `Curator.worst_query`. Proof: P-32.

    All answers of a large workload take long to work out. One answer of today's table does not.
    """

    answers: tuple[Numbers, ...]
    """Of some rounds ago, in units, one array per group; the same tuple as long as they stay."""
    tables: tuple[NDArray[np.floating[Any]], ...]
    """Of today: the marginal over each group's scope, but for `scale`."""
    scale: float
    drift: tuple[int, ...]
    """For each group, by how many units an answer can have moved since."""
    _last: dict[tuple[int, int], float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        # Whoever watches a table or a drift being read sees which candidates were tried: only plain arrays and numbers.
        instance(self.answers, tuple, "answers that lag behind", error=BudgetError)
        for answers in self.answers:
            instance(answers, np.ndarray, "answers that lag behind", error=BudgetError)
            whole_numbers(answers, "answers that lag behind", error=BudgetError)
        tables = items(self.tables, "tables of today", error=BudgetError)
        for table in tables:
            if type(table) is not np.ndarray or table.dtype.kind != "f":
                raise BudgetError("tables of today must be arrays of floats")
        object.__setattr__(self, "tables", tables)
        object.__setattr__(self, "scale", real(self.scale, "the scale of today's tables", error=BudgetError))
        drift = items(self.drift, "drift", error=BudgetError)
        object.__setattr__(self, "drift", tuple(whole(d, "drift", least=0, error=BudgetError) for d in drift))

    def today(self, groups: Sequence[Group], group: int, query: int) -> float:
        """One answer of today's table, in units. The last one is kept, since the chosen query is looked at again; no
        other may be, for a caller must not see which candidates were tried."""
        if (group, query) not in self._last:
            self._last.clear()
            self._last[group, query] = self.scale * groups[group].one_answer(self.tables[group], query)
        return self._last[group, query]

    def check(self, groups: Sequence[Group]) -> None:
        """Refuse what does not fit the groups, before anything is drawn: no later error may depend on a draw.

        Nor may anybody write into the answers: a choice that was prepared from them is used again.
        """
        if any(frozen(answers) is not answers for answers in self.answers):
            raise BudgetError("answers that lag behind must stay as they are; freeze them")
        if not len(self.answers) == len(self.tables) == len(self.drift) == len(groups) or any(
            len(answers) != len(group) or table.size != group.cells
            for answers, table, group in zip(self.answers, self.tables, groups, strict=True)
        ):
            raise BudgetError("answers that lag behind must have one per query, and a table of every group's cells")


@dataclass(frozen=True, eq=False)
class LateChoice:
    """What was prepared for answers that lag behind, and for which."""

    groups: tuple[Group, ...]
    answers: tuple[Numbers, ...]
    rate: Fraction
    choice: noise.Choice


@dataclass(frozen=True, eq=False)
class LateScores:
    """Scores of today by way of earlier ones: a candidate of those is kept as often as today's score asks for."""

    choice: noise.Choice
    exact_gap: Callable[[int], int]
    """By how much a candidate's score of today lies below its earlier score and the largest allowance together."""

    def chosen(self, rate: Fraction) -> int:
        while True:
            candidate = self.choice.draw()
            if noise.bernoulli_exp(rate * self.exact_gap(candidate)):
                return candidate

    def __call__(self) -> Numbers:
        """All scores of today, up to a constant."""
        whole = self.choice.scores
        gaps = np.array([self.exact_gap(i) for i in range(len(whole))], dtype=object)
        return narrow(whole.astype(object) - gaps)
