"""Terms of a log-linear model that has, beside cliques, weighed sums: marginals added up over one attribute.

All sums have the same weights, one for each row of the domain's matrix. So all of them together cost two products of
the matrix with a vector, however many cells they have.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from dpjoin.model.terms import SPARSE_SIDE_ENTRIES, Designs, FloatArray, RealArray, Terms, side_by_side


@dataclass(frozen=True, eq=False)
class WeighedTerms(Terms):
    """Cliques, then sums: potentials are one flat vector, term after term."""

    row_weights: FloatArray = field(default_factory=lambda: np.zeros(0))
    """One for each row, that is for each cell of the domain's left side."""
    summed: tuple[tuple[str, ...], ...] = ()
    """Attributes of the right side, by which each sum is taken."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.products or self.row_weights.shape != (self.domain.rows,):
            raise ValueError(f"weighed sums must have {self.domain.rows} weights and no product queries beside them")

    @property
    def others(self) -> int:
        return len(self.summed)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        sizes = [math.prod(self.domain.sizes[a] for a in scope) for scope in (*self.cliques, *self.summed)]
        edges = np.cumsum([0, *sizes])
        return tuple(slice(int(a), int(b)) for a, b in pairwise(edges))

    @cached_property
    def _columns(self) -> Any:
        """Which cell of each sum a column lies in, sums side by side."""
        return side_by_side(self.domain, self.domain.right, self.summed, SPARSE_SIDE_ENTRIES, np.float64)[0]

    def answers_by(self, designs: Designs, table: RealArray) -> FloatArray:
        return np.concatenate([designs.marginals(table), (self.row_weights @ table) @ self._columns])

    def logits_by(self, designs: Designs, potentials: FloatArray, out: RealArray) -> None:
        first = self.clique_size
        designs.logits(potentials[:first], out)
        out += np.outer(self.row_weights, self._columns @ potentials[first:])

    def curvature(self, table: FloatArray) -> FloatArray:
        mean, total = self.answers(table), float(table.sum())
        second = mean.copy()
        second[self.clique_size :] = (self.row_weights**2 @ table) @ self._columns
        return np.maximum(second - mean**2 / total, 0.0)

    def folded(self, potentials: FloatArray) -> FloatArray:
        """Potentials of the cliques alone that make the same model: a sum's are part of those of its rows and cells."""
        out = potentials[: self.clique_size].copy()
        for scope, where in zip(self.summed, self.slices[len(self.cliques) :], strict=True):
            at = self.slices[self.cliques.index(self.domain.left + scope)]
            out[at] += np.outer(self.row_weights, potentials[where]).reshape(-1)
        return out
