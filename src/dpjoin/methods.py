"""The methods of a release by name: which joins each can serve, and how to run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dpjoin.algorithms.auto import auto_shares, auto_tight
from dpjoin.algorithms.hierarchical import (
    check_hierarchical,
    hierarchical_paper,
    hierarchical_shares,
    hierarchical_tight,
)
from dpjoin.algorithms.hybrid import check_hybrid, hybrid_tight
from dpjoin.algorithms.path import check_path, path_shares, path_tight
from dpjoin.algorithms.per_table import check_per_table, per_table_tight
from dpjoin.algorithms.progress import Progress
from dpjoin.algorithms.shares import partition_shares, tight_shares
from dpjoin.algorithms.truncate import check_truncate, truncate_shares, truncate_tight
from dpjoin.algorithms.two_table import Outcome, two_table_paper, two_table_tight
from dpjoin.algorithms.uniformize import check_common, uniformize_paper, uniformize_tight
from dpjoin.engine.interface import Engine
from dpjoin.errors import SpecError
from dpjoin.privacy.budget import Budget, ConcentratedAccountant, PaperAccountant
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.public_bounds import bound_is_public, churn
from dpjoin.schema import Schema
from dpjoin.workload import Workload

Run = Callable[[Engine, Workload, Budget, Progress], tuple[Outcome, Curator]]


@dataclass(frozen=True)
class Method:
    """One way to release a join."""

    name: str
    check: Callable[[Schema], None]
    """Refuses a join that the method cannot serve."""
    tight: Run
    paper: Run | None = None

    def run(
        self, profile: str, engine: Engine, workload: Workload, budget: Budget, progress: Progress
    ) -> tuple[Outcome, Curator]:
        chosen = self.tight if profile == "tight" else self.paper
        assert chosen is not None, "the profile was checked"
        return chosen(engine, workload, budget, progress)


def chosen_method(schema: Schema, name: str, profile: str = "tight") -> Method:
    """The method that a spec's choice stands for on this join; SpecError if it cannot serve it."""
    if name == "auto":
        name = {1: "single_table", 2: "two_table"}.get(len(schema.tables), "multi_table")
        if profile == "tight" and _may_be_hybrid(schema):
            name = "auto"
    method = _METHODS[name]
    method.check(schema)
    if profile == "paper" and method.paper is None:
        raise SpecError(f"method {name!r} must have the profile tight; the paper has no such method")
    return method


def _may_be_hybrid(schema: Schema) -> bool:
    """Whether there is anything to choose: a noisy bound is needed, and the hybrid could serve."""
    if len(schema.tables) < 2 or bound_is_public(schema):
        return False
    try:
        check_hybrid(schema)
    except SpecError:
        return False
    return True


# Joins as one table ----------------------------------------------------------------------------------------------


def _as_one_tight(engine: Engine, workload: Workload, budget: Budget, progress: Progress) -> tuple[Outcome, Curator]:
    schema = engine.schema
    shares = tight_shares(budget, noisy_bound=not bound_is_public(schema), sensitivity=max(1, churn(schema)))
    curator = Curator(engine, shares.accountant)
    return two_table_tight(curator, workload, shares, progress), curator


def _as_one_paper(engine: Engine, workload: Workload, budget: Budget, progress: Progress) -> tuple[Outcome, Curator]:
    curator = Curator(engine, PaperAccountant(budget))
    return two_table_paper(curator, workload, budget.exact, progress), curator


def _auto_tight(engine: Engine, workload: Workload, budget: Budget, progress: Progress) -> tuple[Outcome, Curator]:
    rows = churn(engine.schema)
    shares = auto_shares(budget, tables=len(engine.schema.tables), moves_bound=max(1, rows), moves_degrees=1 + rows)
    curator = Curator(engine, shares.accountant)
    return auto_tight(curator, workload, shares, progress), curator


def _check_two(schema: Schema) -> None:
    if len(schema.tables) != 2:
        raise SpecError(f"method 'two_table' must have two tables, not {len(schema.tables)}; use auto")


def _check_several(schema: Schema) -> None:
    if len(schema.tables) < 2:
        raise SpecError("method 'multi_table' must have several tables; use auto for a single one")


# Partitions ------------------------------------------------------------------------------------------------------


def _uniformize_tight(
    engine: Engine, workload: Workload, budget: Budget, progress: Progress
) -> tuple[Outcome, Curator]:
    schema = engine.schema
    shares = partition_shares(budget, gauge=len(schema.tables) > 2, sensitivity=1 + churn(schema))
    curator = Curator(engine, shares.accountant)
    return uniformize_tight(curator, workload, shares, progress), curator


def _uniformize_paper(
    engine: Engine, workload: Workload, budget: Budget, progress: Progress
) -> tuple[Outcome, Curator]:
    curator = Curator(engine, PaperAccountant(budget))
    return uniformize_paper(curator, workload, budget.exact, progress), curator


def _hierarchical_tight(
    engine: Engine, workload: Workload, budget: Budget, progress: Progress
) -> tuple[Outcome, Curator]:
    shares = hierarchical_shares(budget, engine.schema)
    curator = Curator(engine, shares.accountant)
    return hierarchical_tight(curator, workload, shares, progress), curator


def _hierarchical_paper(
    engine: Engine, workload: Workload, budget: Budget, progress: Progress
) -> tuple[Outcome, Curator]:
    curator = Curator(engine, PaperAccountant(budget))
    return hierarchical_paper(curator, workload, budget.exact, progress), curator


def _hybrid_tight(engine: Engine, workload: Workload, budget: Budget, progress: Progress) -> tuple[Outcome, Curator]:
    schema = engine.schema
    shares = partition_shares(budget, gauge=len(schema.tables) > 2, sensitivity=1 + churn(schema))
    curator = Curator(engine, shares.accountant)
    return hybrid_tight(curator, workload, shares, progress), curator


def _per_table_tight(engine: Engine, workload: Workload, budget: Budget, progress: Progress) -> tuple[Outcome, Curator]:
    curator = Curator(engine, ConcentratedAccountant(budget))
    return per_table_tight(curator, workload, progress), curator


def _check_path(schema: Schema) -> None:
    check_path(schema)


def _path_tight(engine: Engine, workload: Workload, budget: Budget, progress: Progress) -> tuple[Outcome, Curator]:
    shares = path_shares(budget, sensitivity=1 + churn(engine.schema))
    curator = Curator(engine, shares.accountant)
    return path_tight(curator, workload, shares, progress), curator


def _truncate_tight(engine: Engine, workload: Workload, budget: Budget, progress: Progress) -> tuple[Outcome, Curator]:
    shares = truncate_shares(budget, engine.schema)
    curator = Curator(engine, shares.accountant)
    return truncate_tight(curator, workload, shares, progress), curator


_METHODS = {
    m.name: m
    for m in (
        Method("single_table", lambda _: None, _as_one_tight, _as_one_paper),
        Method("auto", check_hybrid, _auto_tight),
        Method("two_table", _check_two, _as_one_tight, _as_one_paper),
        Method("multi_table", _check_several, _as_one_tight, _as_one_paper),
        Method("uniformize", check_common, _uniformize_tight, _uniformize_paper),
        Method("hybrid", check_hybrid, _hybrid_tight),
        Method("per_table", check_per_table, _per_table_tight),
        Method("path", _check_path, _path_tight),
        Method("truncate", check_truncate, _truncate_tight),
        Method("hierarchical", check_hierarchical, _hierarchical_tight, _hierarchical_paper),
    )
}
