"""The released model: a non-negative table over the cells that the workload looks at, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from dpjoin.model.fit import DEAR_CELLS, Evidence, Fit, maximise, table_of
from dpjoin.model.terms import Domain, FloatArray, Terms
from dpjoin.workload import Group, Kronecker

MEMBERS = 12
"""How many plausible models stand for the uncertainty; the spread of 12 is known to about a fifth."""
STRETCH = 1.2
"""Bars are this much longer than the members' spread: twelve members know it roughly, the prior widths are
estimated themselves, and real interactions have longer tails than a Gaussian."""
PRODUCT_STRETCH = 1.65
"""The same for product queries, which sum over many cells: without it 90 % bars held three quarters of them."""


@dataclass(frozen=True, eq=False)
class Model:
    """A log-linear model (`terms`, `potentials`) or a plain table, scaled to `total`.

    `members` are further potentials and totals that the noisy measurements make about as plausible: their
    spread is the error bar. `floor` is added to every bar, for what the spread cannot know.
    """

    domain: Domain
    total: float
    terms: Terms | None = None
    potentials: FloatArray | None = None
    plain: FloatArray | None = None
    members: tuple[tuple[FloatArray, float], ...] = ()
    floor: float = 0.0
    """Half-width that holds for a query with weights up to one, beyond the spread of the members."""
    known: tuple[frozenset[str], ...] = ()
    """Sets of attributes within which error bars are known."""
    deviations: tuple[float, ...] = ()
    """The noise's standard deviation in a cell of each clique."""

    @cached_property
    def table(self) -> FloatArray:
        """Cells as a matrix, left by right."""
        if self.plain is not None:
            return self.plain
        assert self.terms is not None
        assert self.potentials is not None
        return table_of(self.terms, self.potentials, self.total)

    @cached_property
    def _member_tables(self) -> list[FloatArray]:
        assert self.terms is not None
        return [table_of(self.terms, potentials, total) for potentials, total in self.members]

    def answer(self, group: Group) -> FloatArray:
        """The group's answers on the model."""
        return self._answer(self.table, group)

    def _answer(self, table: FloatArray, group: Group) -> FloatArray:
        answers = group.apply(self.domain.marginal(table, group.scope))
        return np.asarray(answers, dtype=np.float64) * float(group.unit)

    def error(self, group: Group, coverage: float) -> FloatArray:
        """Half-widths that cover the exact answers with about this probability; nan where nothing is known."""
        if not any(set(group.scope) <= scope for scope in self.known):
            return np.full(len(group), np.nan)
        quantile = NormalDist().inv_cdf(0.5 + coverage / 2)
        floor = self.floor * group.max_abs * float(group.unit)
        if not self.members:
            return np.full(len(group), floor)
        spread = np.array([self._answer(table, group) for table in self._member_tables]) - self.answer(group)
        # Twelve members tell the width only roughly; pooling with the group's own rule of width against
        # size keeps a cell whose members happen to agree from getting a bar that is too short.
        width = np.sqrt((spread**2).mean(axis=0))
        stretch = STRETCH if isinstance(group, Kronecker) else PRODUCT_STRETCH
        bars = stretch * quantile * _pooled(width, np.abs(self.answer(group))) + floor
        if isinstance(group, Kronecker) and group.is_marginal:
            # A small cell that the noise cannot tell from an empty one may be empty.
            size = np.abs(self.answer(group))
            bars = np.where(size < quantile * self._noise(group), np.maximum(bars, size), bars)
        return bars

    def _noise(self, group: Kronecker) -> float:
        """The standard deviation with which a cell of a marginal was measured, directly or as a sum."""
        cliques = self.terms.cliques if self.terms is not None else ()
        found = [
            deviation * math.sqrt(math.prod(self.domain.sizes[a] for a in clique) / group.cells)
            for clique, deviation in zip(cliques, self.deviations, strict=False)
            if set(group.scope) <= set(clique)
        ]
        return min(found, default=0.0)


def _pooled(width: FloatArray, size: FloatArray) -> FloatArray:
    """Average each width with the widths of answers of similar size (in squares)."""
    if len(width) < 4:
        return width
    order = np.argsort(size)
    squares = width[order] ** 2
    window = min(9, len(width)) | 1
    padded = np.pad(squares, window // 2, mode="edge")
    smooth = np.convolve(padded, np.ones(window) / window, mode="valid")[: len(width)]
    out = np.empty_like(width)
    out[order] = np.sqrt((squares + smooth) / 2)
    return out


def plausible(
    fit: Fit, evidence: Evidence, *, total_deviation: float, members: int = MEMBERS, steps: int = 25
) -> tuple[tuple[FloatArray, float], ...]:
    """Potentials drawn from about the posterior: perturb the measurements and the prior, and fit again.

    Public randomness with a fixed seed: everything here is post-processing, and the release stays a
    function of the noisy answers.
    """
    rng = np.random.default_rng(0)
    if fit.terms.domain.cells > DEAR_CELLS:
        members //= 2
    deviation = np.where(evidence.precision > 0, 1.0 / np.sqrt(np.maximum(evidence.precision, 1e-300)), 0.0)
    out = []
    for _ in range(members):
        jittered = Evidence(evidence.noisy + deviation * rng.standard_normal(len(deviation)), evidence.precision)
        centre = fit.tau_each * rng.standard_normal(len(deviation))
        moved = maximise(fit, jittered, steps=steps, prior_mean=centre)
        out.append((moved.potentials, max(1.0, fit.total + total_deviation * float(rng.standard_normal()))))
    return tuple(out)


def clique_scopes(groups: Sequence[Group]) -> list[tuple[str, ...]]:
    """The scopes of the groups that lie in no other group's scope."""
    scopes = list(dict.fromkeys(g.scope for g in groups if isinstance(g, Kronecker) and g.scope))
    return [s for s in scopes if not any(set(s) < set(t) for t in scopes)]


def state_of(model: Model) -> dict[str, Any]:
    """The arrays of a model, for saving."""
    state: dict[str, Any] = {"total": np.array([model.total]), "floor": np.array([model.floor])}
    state["deviations"] = np.array(model.deviations)
    if model.plain is not None:
        state["plain"] = model.plain
    if model.potentials is not None:
        state["potentials"] = model.potentials
    if model.members:
        state["member_potentials"] = np.array([p for p, _ in model.members])
        state["member_totals"] = np.array([t for _, t in model.members])
    return state
