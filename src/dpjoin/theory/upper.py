"""Upper bounds on the largest error of any query, in join results.

`theorem` is what a theorem states, with 1 for the constant in O(.). `proved` is what its proof gives with all
constants, for queries with weights in [-1, 1], except with probability `failure`, and for the noise of a profile:

* `paper`: Algorithm 2 as it is here. The proof is the paper's own, mended: docs/report.md, section 2.
* `tight`: the best of three ways that have a proof: measure every query, measure every cell, adaptive rounds. A release
  chooses among more ways by predicted error and refits what it measured: it is measured, not proved, that this does
  no harm.

For hierarchical joins the partition is the one by true degrees, with caps widened by the largest noise; what the noisy
partition loses beyond that is not in the bound. No bound exceeds the trivial one, the (noisy) join size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from dpjoin import constants
from dpjoin.errors import SpecError
from dpjoin.measure.shares import tight_shares
from dpjoin.paper.alg2_pmw import paper_rounds
from dpjoin.privacy.accounting import Budget
from dpjoin.privacy.gauge import gauge, gauge_bound
from dpjoin.privacy.sensitivity import squared_norm, weight_ranges
from dpjoin.spec.hypergraph import attribute_tree
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Products, Workload
from dpjoin.theory.exponents import worst_case_error_exponent
from dpjoin.theory.facts import Facts, configurations, copies_of, uniform_partition

BOUNDED_METHODS = ("single_table", "two_table", "multi_table", "uniformize", "hierarchical")


@dataclass(frozen=True, kw_only=True)
class Task:
    """The public numbers that a bound needs beside the data's."""

    budget: Budget
    cells: float
    """|D|: cells of the attributes that the workload asks about."""
    queries: int
    """|Q|."""
    norm: float
    """Squared l2 norm of all queries together at the worst cell: what measuring them together costs."""
    width: float = 1.0
    """From the least to the largest weight of a query, 1 at least."""

    @classmethod
    def of(cls, workload: Workload, budget: Budget) -> Task:
        norm = width = 0.0
        for group in workload.groups:
            ranges, unit = weight_ranges(group), float(group.unit)
            if (most := float(ranges.largest.max()) * unit) > 1:
                raise SpecError(f"weights of {group.name!r} ({most:g}) must lie in [-1, 1]; leave the group out")
            widths = ranges.width.astype(float) * unit
            together = (widths**2).sum() / 4 if isinstance(group, Products) else squared_norm(group) * unit**2
            norm, width = norm + float(together), max(width, float(widths.max()), 1.0)
        return cls(budget=budget, cells=float(workload.cells), queries=len(workload), norm=norm, width=width)

    @property
    def lam(self) -> float:
        """λ = ln(1/δ)/ε."""
        return math.log(1 / self.budget.delta) / self.budget.epsilon

    @property
    def log_cells(self) -> float:
        return math.log(max(2.0, self.cells))

    @property
    def log_queries(self) -> float:
        return math.log(max(3, self.queries))

    @property
    def f_lower(self) -> float:
        return math.sqrt(math.sqrt(self.log_cells) / self.budget.epsilon)

    @property
    def f_upper(self) -> float:
        return self.f_lower * math.sqrt(self.log_queries * math.log(1 / self.budget.delta))


def as_one(tables: int) -> str:
    """The method that treats the join as one table."""
    return BOUNDED_METHODS[min(tables, 3) - 1]


def needed(method: str, schema: Schema) -> str:
    """What a join must have for the theorem about a method, if this one has it not."""
    tables, tree = len(schema.tables), attribute_tree(schema)
    nested = tables > 1 and tree is not None and not tree.virtual
    wanted = {
        "single_table": ("one table", tables == 1),
        "two_table": ("two tables", tables == 2),
        "uniformize": ("two tables, both private", tables == 2 == len(schema.private_tables)),
        "hierarchical": ("two or more tables, all connected, and be hierarchical", nested),
    }
    words, has = wanted.get(method, ("", True))
    return "" if has else words


# As the theorems state them ------------------------------------------------------------------------------------------


def theorem(known: Facts, task: Task, method: str) -> float:
    """Theorems 1.3, 3.3, 1.5, 4.4 and C.2 with 1 for the hidden constant."""
    lam, size = task.lam, known.join_size
    if method == "single_table":
        found = math.sqrt(size)
    elif method in ("two_table", "multi_table"):
        bound = known.local + lam if method == "two_table" else known.residual(1 / lam)
        found = math.sqrt(size * bound) + bound * math.sqrt(lam)
    elif method == "uniformize":
        parts = uniform_partition(known, lam).items()
        found = lam**1.5 * (known.local + lam) + sum(math.sqrt(part * 2**i * lam) for i, part in parts)
    else:
        every = [(c.join_size, c.residual(1 / lam)) for c in configurations(known, lam)]
        found = sum(math.sqrt(part * bound * lam) + bound * lam for part, bound in every)
    return found * task.f_upper


# With the constants that the proofs give -----------------------------------------------------------------------------


def proved(known: Facts, task: Task, method: str, profile: str, *, failure: float = 0.05) -> float:
    """No query of a release is further off than this, except with probability `failure`."""
    parts, copies = _parts(known, task, method, profile, failure / 3)
    each = 2 * failure / 3 / max(1, len(parts))
    if profile == "paper":
        halves = {"single_table": 1, "two_table": 2, "multi_table": 2}.get(method, 4)
        epsilon, delta = task.budget.epsilon / halves / copies, task.budget.delta / halves / copies
        return sum(paper_part(size, cap, task, epsilon, delta, each) for size, cap in parts)
    shares = tight_shares(task.budget, noisy_bound=True)
    rho, count = float(shares.queries) / copies, float(shares.count.rho) / copies
    return sum(tight_part(size, cap, task, rho, count, each) for size, cap in parts)


def paper_part(size: float, bound: float, task: Task, epsilon: float, delta: float, failure: float) -> float:
    """Algorithm 2 on a (sub-)join of this size with this noisy bound.

    2·n̂·sqrt(ln D / k) + noise + choice + 2·(n̂ - n). n̂ - n is truncated Laplace noise; noise and choice are those of the
    worst of k rounds; the last term is what the paper's proof leaves out.
    """
    shift = largest_shift(epsilon / 2, delta / 2, failure / 3) * bound
    total = size + shift
    asked = {"cells": int(task.cells), "queries": task.queries}
    rounds = partial(paper_rounds, bound=max(1, math.ceil(bound)), epsilon=epsilon, delta=delta, **asked)
    most, least = rounds(total=total), rounds(total=size)
    each = epsilon / (16 * math.sqrt(most * math.log(1 / delta)))
    rare = math.log(3 * most / failure)
    noise, choice = bound / each * (rare + 1), 2 * bound / each * (task.log_queries + rare)
    return min(task.width * total, 2 * total * math.sqrt(task.log_cells / least) + noise + choice + 2 * shift)


def tight_part(size: float, bound: float, task: Task, rho: float, count_rho: float, failure: float) -> float:
    """The best of: every query once, every cell once, m rounds of choice and measurement."""
    rare = failure / 3
    off = bound / math.sqrt(2 * count_rho) * math.sqrt(2 * math.log(2 / rare))
    many = math.sqrt(2 * math.log(2 * task.queries / rare))
    sigma = bound / math.sqrt(2 * rho)
    select = float(constants.SELECT_SHARE)
    direct = sigma * many * math.sqrt(min(task.norm, task.cells)) + off

    def in_rounds(m: float) -> float:
        choose, measure = math.sqrt(8 * select * rho / m), bound / 2 / math.sqrt(2 * (1 - select) * rho / m)
        learn = (size + off) * math.sqrt(task.log_cells / (2 * m))
        gap = bound / choose * (task.log_queries + math.log(m / rare))
        return task.width * (learn + gap + measure * math.sqrt(2 * math.log(2 * m / rare))) + 2 * off

    return min(task.width * (size + off), direct, *(in_rounds(2 ** (i / 4)) for i in range(64)))


def largest_shift(epsilon: float, delta: float, failure: float) -> float:
    """Of truncated Laplace noise for sensitivity 1: not exceeded except with this probability, nor 2τ ever."""
    half_width = math.log1p(math.expm1(epsilon) / delta) / epsilon
    return min(2 * half_width, half_width + math.log(1 / (2 * failure)) / epsilon) + 1


Parts = list[tuple[float, float]]


def _parts(known: Facts, task: Task, method: str, profile: str, failure: float) -> tuple[Parts, int]:
    """(join size, bound on the sensitivity) of each part, and in how many parts one row can be."""
    paper, half = profile == "paper", (task.budget.epsilon / 2, task.budget.delta / 2)
    shares = tight_shares(task.budget, noisy_bound=True)
    assert shares.half_width is not None and shares.bound is not None  # noqa: PT018
    if paper:
        shift = largest_shift(*half, failure)
    else:
        deviation = math.sqrt(math.log(1 / failure) / float(shares.bound.rho))
        shift = math.ceil(min(2.0 * shares.half_width, shares.half_width + deviation + 1))
    if method in BOUNDED_METHODS[:3]:
        smooth, b = paper and method == "multi_table", known.boundaries
        residual = max(1.0, known.residual(1 / task.lam)) * math.exp(shift / task.lam) if smooth else 0.0
        return [(known.join_size, max(1.0, residual if smooth else gauge_bound(b, gauge(b) + math.ceil(shift))))], 1
    copies = 1 if method == "uniformize" else copies_of(known, task.lam)
    widest = 2 * (largest_shift(half[0] / copies, half[1] / copies, 0.5) if paper else shares.half_width * copies)
    if method == "uniformize":
        own = largest_shift(half[0] / 2, half[1] / 2, failure) if paper else 0.0
        levels = uniform_partition(known, widest / 2, noise=widest)
        return [(size, widest / 2 * 2.0**i + own) for i, size in levels.items()], copies
    every = configurations(known, task.lam)
    return [(c.join_size, c.widened(widest).local) for c in every], copies


# The worst case over all instances -----------------------------------------------------------------------------------


def worst_case(schema: Schema, rows: int, *, repeated_rows: bool = False) -> float:
    """n to the exponent of the paper's appendix (fractional edge covers), without logarithms. A public number.

    >>> from dpjoin.theory.hard import shape_schema
    >>> worst_case(shape_schema("triangle", {}), 10_000) == 10_000 ** 1.25
    True
    """
    return float(rows ** float(worst_case_error_exponent(schema, repeated_rows=repeated_rows)))
