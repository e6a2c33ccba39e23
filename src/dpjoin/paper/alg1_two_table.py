"""Algorithm 1, TwoTable: a noisy bound on the largest degree, then the join as one table.

The `tight` profile is `methods.as_one`. It also serves a single table, whose bound is one.
"""

from __future__ import annotations

from dataclasses import replace

from dpjoin.errors import SpecError
from dpjoin.measure.join import domain_of
from dpjoin.measure.progress import Progress
from dpjoin.methods.as_one import JOIN_AS_ONE, check_as_one
from dpjoin.methods.method import ROUNDS, TRUNCATED_LAPLACE, Outcome, Stage
from dpjoin.model.threads import one_blas_thread
from dpjoin.paper.alg2_pmw import pmw
from dpjoin.privacy.accounting import Approximate, Budget
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public
from dpjoin.privacy.truncated import paper_laplace_half_width
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload


def check_one(schema: Schema, workload: Workload | None = None) -> None:
    check_as_one(schema)
    if len(schema.tables) != 1:
        raise SpecError(f"method 'single_table' must have one table, not {len(schema.tables)}; use auto")


def check_two(schema: Schema, workload: Workload | None = None) -> None:
    check_as_one(schema)
    if len(schema.tables) != 2:
        raise SpecError(f"method 'two_table' must have two tables, not {len(schema.tables)}; use auto")


def two_table_paper(curator: Curator, workload: Workload, whole: Approximate, progress: Progress) -> Outcome:
    """The `paper` profile: half the budget on the bound (truncated Laplace), half on Algorithm 2."""
    progress("sensitivity", 0, 1)
    bound = curator.public_bound()
    if bound is None:
        half = Approximate(whole.epsilon / 2, whole.delta / 2)
        bound, whole = curator.sensitivity_bound(half), half
    progress("sensitivity", 1, 1)
    with one_blas_thread():
        model, noisy_total, count = pmw(curator, list(workload.groups), domain_of(workload), bound, whole, progress)
    return Outcome(model, bound.value, noisy_total, f"multiplicative weights, {count} rounds")


def paper_stages(budget: Budget, schema: Schema) -> tuple[Stage, ...]:
    left, stages = 1.0, list[Stage]()
    if not bound_is_public(schema):
        shift = paper_laplace_half_width(epsilon=budget.exact.epsilon / 2, delta=budget.exact.delta / 2, sensitivity=1)
        stages.append(Stage("sensitivity", TRUNCATED_LAPLACE, 0.5, f"the largest degree plus {shift} on average"))
        left = 0.5
    stages.append(Stage("join size", TRUNCATED_LAPLACE, left / 2, "an upper bound"))
    return *stages, Stage("rounds", ROUNDS, left / 2, "advanced composition")


SINGLE_TABLE = replace(JOIN_AS_ONE, check=check_one, paper=two_table_paper, paper_stages=paper_stages)
TWO_TABLE = replace(SINGLE_TABLE, name="two_table", check=check_two)
