"""What a method is: one object that says what it serves, how it splits a budget, what to expect, and how it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Protocol

from dpjoin.errors import SpecError
from dpjoin.measure.join import varying_products
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import without_choices
from dpjoin.measure.totals import NoisyTotal
from dpjoin.model.model import clique_scopes
from dpjoin.model.union import Part, Union
from dpjoin.privacy.accounting import Approximate, Budget, Split
from dpjoin.privacy.curator import Curator
from dpjoin.spec.schema import REPLACE, Schema
from dpjoin.spec.workload import Products, Workload


@dataclass(frozen=True, eq=False)
class Outcome:
    """A model and the public facts of how it came about."""

    model: Part | Union
    sensitivity: int
    noisy_total: int
    strategy: str
    parts: tuple[dict[str, Any], ...] = field(default=())
    """Public facts of each sub-instance, if there are any."""
    method: str | None = None
    """The method that `auto` chose."""
    also_protects: str = ""
    """Who is protected besides, at the same noise, in words."""
    predicted: Mapping[str, float] = field(default_factory=dict)
    """The error that `auto` expected of each method, in join results."""
    rows: Mapping[str, NoisyTotal] = field(default_factory=dict)
    """About how many rows tables have within their domains, where that was looked at."""


@dataclass(frozen=True)
class Stage:
    """One line of the budget."""

    name: str
    mechanism: str
    share: float
    """Of rho (tight), or of epsilon (paper, and where all noise is Laplace)."""
    note: str


GAUSSIAN_NOISE, TRUNCATED_GAUSSIAN = "discrete Gaussian", "truncated discrete Gaussian"
LAPLACE_NOISE, TRUNCATED_LAPLACE = "discrete Laplace", "truncated discrete Laplace"
ROUNDS = "exponential mechanism and discrete Laplace"
NORMAL_QUANTILE = 1.6449
"""Normal noise is within so many deviations nine times in ten."""


@dataclass(frozen=True)
class NoiseLevel:
    """What a plan says of the noise at one largest degree: half-widths that cover 90 % before the fit."""

    sensitivity: int
    count: float
    cell: float

    @classmethod
    def gaussian(
        cls, workload: Workload, bound: float, *, count: Fraction, queries: Fraction, times: float = 1, cells: float = 1
    ) -> NoiseLevel:
        """With this rho for the size and for all queries; one row moves sizes and cells so many times the bound."""
        half = NORMAL_QUANTILE * bound
        rho = 2 * float(queries) / measured_queries(workload)
        return cls(math.ceil(bound), half * times / math.sqrt(2 * float(count)), half * cells / math.sqrt(rho))

    @classmethod
    def laplace(cls, workload: Workload, bound: int, *, count: Fraction, queries: Fraction) -> NoiseLevel:
        """With this epsilon for the size and for all queries."""
        half = math.log(10) * bound
        return cls(bound, half / float(count), half * measured_queries(workload) / float(queries))


def changed(schema: Schema) -> int:
    """How many rows, or persons, two neighbours do not have in common."""
    return 2 if schema.neighbours == REPLACE else 1


def measured_queries(workload: Workload) -> int:
    """How many marginals and queries share the budget."""
    products = sum(len(g) for g in workload.groups if isinstance(g, Products))
    return max(1, len(clique_scopes(workload.groups)) + products)


class Shares(Protocol):
    """How a method splits a budget. Each has fields of its own."""

    @property
    def split(self) -> Split: ...


def gaussian_only(budget: Budget, workload: Workload) -> Budget:
    """The budget with the composition that buys most: only product queries may need choices. Public."""
    return budget if varying_products(workload) else without_choices(budget)


@dataclass(frozen=True, kw_only=True)
class Method:
    """One way to release a join."""

    name: str
    why: Callable[[Schema], str]
    """What it does, in words, for a plan."""
    check: Callable[[Schema, Workload | None], None]
    """Refuses a join that the method cannot serve; with a workload, also what is too large for it."""
    split: Callable[[Budget, Schema], Any]
    """The tight profile's Shares of a budget."""
    stages: Callable[[Any, Workload], tuple[Stage, ...]]
    """These shares as a plan tells them."""
    run: Callable[[Curator, Workload, Any, Progress], Outcome]
    """The tight profile: spends the whole budget."""
    spendable: Callable[[Budget, Workload], Budget] = gaussian_only
    """What the tight profile makes of a budget: which noise it is spent on."""
    noise_level: Callable[[Any, Workload, int], NoiseLevel] | None = None
    """What to expect if the largest degree is this; None where that does not tell."""
    paper: Callable[[Curator, Workload, Approximate, Progress], Outcome] | None = None
    """The paper profile; None where the paper has no such method."""
    paper_stages: Callable[[Budget, Schema], tuple[Stage, ...]] | None = None
    split_after_look: Callable[[Split, Schema], Any] | None = None
    """The shares of what a look of `auto` leaves."""
    forecast: Callable[[Any, Any, Any], float | None] | None = None
    """What error `auto` has to expect after a look, in join results: a function of the look, of what is left to spend
    and of the method's shares. None where it cannot tell, or the method cannot go on from there."""
    resume: Callable[[Any, Any, Any, Progress], Outcome] | None = None
    """Release after that look."""
    one_model: bool = False
    """Whether it may release workloads too large to write down: its model is one part, or one for each table."""
    reads_public_bounds: bool = False
    """Whether it wants to know how many rows of public tables share a value."""

    def serves(self, schema: Schema, workload: Workload | None = None) -> bool:
        try:
            self.check(schema, workload)
        except SpecError:
            return False
        return True
