"""The methods of a release by name: which joins each can serve, and how to run it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from dpjoin.auto.choose import auto_shares, auto_tight, serves
from dpjoin.auto.forecast import rounded
from dpjoin.engine.interface import Engine
from dpjoin.errors import SpecError
from dpjoin.measure.cliques import wanted_cliques
from dpjoin.measure.composition import without_choices
from dpjoin.measure.join import DENSE_CELLS, is_large, varying_products
from dpjoin.measure.laplace import laplace_pays
from dpjoin.measure.large_domains import holds_all
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import PartitionShares, TightShares, partition_shares, tight_shares
from dpjoin.methods.as_one import Outcome, as_one_name, two_table_paper, two_table_tight
from dpjoin.methods.capped import capped_shares, capped_tight, check_capped
from dpjoin.methods.finish import laplace_finish, laplace_pays_alone, with_options
from dpjoin.methods.hybrid import check_hybrid, hybrid_tight
from dpjoin.methods.keyed import check_keyed, keyed_shares, keyed_tight
from dpjoin.methods.per_table import check_per_table, per_table_shares, per_table_tight
from dpjoin.methods.public_partners import beside_errors
from dpjoin.paper.alg4_uniformize import check_common, uniformize_paper, uniformize_tight
from dpjoin.paper.alg6_hierarchical import (
    check_hierarchical,
    hierarchical_paper,
    hierarchical_shares,
    hierarchical_tight,
)
from dpjoin.privacy.accounting import Approximate, Budget, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public, churn
from dpjoin.privacy.public_tables import public_counts, public_links, with_public_bounds
from dpjoin.spec.schema import DegreeBound, Schema, with_caps
from dpjoin.spec.workload import Workload

Run = Callable[[Engine, Workload, Budget, Progress], tuple[Outcome, Curator]]


# What noise a budget is spent on: public decisions, before anything is opened ----------------------------------------


def spendable(budget: Budget, workload: Workload) -> Budget:
    """The budget with the composition that buys most: only product queries may need choices. Public."""
    return budget if varying_products(workload) else without_choices(budget)


def at_once(budget: Budget, workload: Workload) -> Budget:
    """The same for a join whose bound is public: Laplace noise alone where few marginals are asked for. Public."""
    concentrated = spendable(budget, workload)
    if not bound_is_public(workload.schema) or varying_products(workload) or not laplace_pays(concentrated, workload):
        return concentrated
    sizes = {a: workload.schema.attribute(a).size for a in workload.attributes}
    if is_large(workload) and not holds_all(sizes, wanted_cliques(workload)):
        return concentrated
    return replace(budget, laplace=budget.exact.epsilon)


def after_a_look(budget: Budget, workload: Workload) -> Budget:
    """The same for methods that look first: with an option on Laplace noise. Public."""
    return with_options(spendable(budget, workload), workload)


def alone(budget: Budget, workload: Workload) -> Budget:
    """The same for tables by themselves: if one is private, there is nothing to look at first. Public."""
    if len(workload.schema.private_tables) > 1:
        return after_a_look(budget, workload)
    concentrated = spendable(budget, workload)
    pays = laplace_pays_alone(concentrated, workload)
    return replace(budget, laplace=budget.exact.epsilon) if pays else concentrated


# Methods ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """One way to release a join."""

    name: str
    check: Callable[[Schema], None]
    """Refuses a join that the method cannot serve."""
    tight: Run
    paper: Run | None = None
    spendable: Callable[[Budget, Workload], Budget] = spendable
    """What the tight profile makes of a budget."""

    def run(
        self, profile: str, engine: Engine, workload: Workload, budget: Budget, progress: Progress
    ) -> tuple[Outcome, Curator]:
        if profile == "tight":
            return self.tight(engine, workload, self.spendable(budget, workload), progress)
        assert self.paper is not None, "the profile was checked"
        return self.paper(engine, workload, budget, progress)


@dataclass(frozen=True)
class BesidePublic(Method):
    """One private table beside public ones: as one join, or alone. What the public ones hold decides, at no cost."""

    def run(
        self, profile: str, engine: Engine, workload: Workload, budget: Budget, progress: Progress
    ) -> tuple[Outcome, Curator]:
        if profile != "tight":
            return super().run(profile, engine, workload, budget, progress)
        joined, apart = at_once(budget, workload), alone(budget, workload)
        laplace = laplace_finish(workload, budget.exact.epsilon)
        errors = beside_errors(
            workload,
            partial(public_counts, engine),
            as_one=laplace.whole if joined.laplace else joined.rho(),
            alone=laplace.alone if apart.laplace else apart.rho(),
        )
        name = min(errors, key=errors.__getitem__, default=self.name)
        outcome, curator = _METHODS[name].run(profile, engine, workload, budget, progress)
        return replace(outcome, method=name, predicted=rounded(errors)), curator


@dataclass(frozen=True)
class ReadsBounds(Method):
    """Several private tables beside public ones: how many rows of these share a value is read off them, at no cost."""

    def run(
        self, profile: str, engine: Engine, workload: Workload, budget: Budget, progress: Progress
    ) -> tuple[Outcome, Curator]:
        bounded = with_public_bounds(engine)
        return super().run(profile, bounded, replace(workload, schema=bounded.schema), budget, progress)


def as_if_bounded(schema: Schema) -> Schema:
    """The same, as if public tables had every value once: for what can be said before they are read."""
    return with_caps(
        schema, {t: [DegreeBound(attributes=by, limit=1) for by in links] for t, links in public_links(schema).items()}
    )


BOUNDED = ("auto", "capped", "per_table")
"""The methods that want bounds of public tables."""
LARGE = ("single_table", "two_table", "multi_table", "capped", "per_table", "auto")
"""The methods whose model need not be a table of all cells: they have one part only, or one for each table."""


PAPER_CELLS = 2**24
"""Of multiplicative weights on one table of all cells: a round touches few of them, and three tables fit in 500 MB."""


def chosen_method(schema: Schema, name: str, profile: str = "tight", workload: Workload | None = None) -> Method:
    """The method that a spec's choice stands for on this join; SpecError if it cannot serve it, or the workload."""
    if profile == "tight" and name in BOUNDED and len(schema.tables) > len(schema.private_tables) > 1:
        method = _chosen(as_if_bounded(schema), name, profile, workload)
        return ReadsBounds(**vars(method)) if method.name in BOUNDED else _chosen(schema, name, profile, workload)
    return _chosen(schema, name, profile, workload)


def _chosen(schema: Schema, name: str, profile: str, workload: Workload | None) -> Method:
    chosen_by_us = name == "auto"
    if chosen_by_us:
        name = as_one_name(schema)
        if profile == "tight" and serves(check_capped, schema) and len(schema.tables) > 1:
            name = "auto"
    method = _METHODS[name]
    method.check(schema)
    alone_too = len(schema.private_tables) == 1 and serves(partial(check_per_table, workload=workload), schema)
    if chosen_by_us and alone_too:
        method = BesidePublic(**vars(method))
    if profile == "paper" and method.paper is None:
        raise SpecError(f"method {name!r} must have the profile tight; the paper has no such method")
    one_table = name in LARGE
    if workload is not None and (
        (not one_table and is_large(workload)) or (one_table and profile == "paper" and workload.cells > PAPER_CELLS)
    ):
        what, most = ("the profile 'paper'", PAPER_CELLS) if one_table else (f"method {name!r}", DENSE_CELLS)
        raise SpecError(
            f"{what} must have a workload over at most {most:,} cells, not {workload.cells:,}; ask about fewer "
            "attributes, or use method 'auto' with the profile 'tight'"
        )
    return method


# How each is run -----------------------------------------------------------------------------------------------------


class _Shares(Protocol):
    @property
    def split(self) -> Split: ...


S = TypeVar("S", bound=_Shares)


def _tight(
    split: Callable[[Budget, Schema], S],
    run: Callable[[Curator, Workload, S, Progress], Outcome],
) -> Run:
    """Split the budget, make a Curator that holds it, run."""

    def made(engine: Engine, workload: Workload, budget: Budget, progress: Progress) -> tuple[Outcome, Curator]:
        shares = split(budget, engine.schema)
        curator = Curator(engine, shares.split)
        return run(curator, workload, shares, progress), curator

    return made


def _paper(run: Callable[[Curator, Workload, Approximate, Progress], Outcome]) -> Run:
    def made(engine: Engine, workload: Workload, budget: Budget, progress: Progress) -> tuple[Outcome, Curator]:
        curator = Curator(engine, Split(budget=budget, paper=True))
        return run(curator, workload, budget.exact, progress), curator

    return made


def as_one_shares(budget: Budget, schema: Schema) -> TightShares:
    """Of a join as one table: the bound costs nothing where it is public."""
    return tight_shares(budget, noisy_bound=not bound_is_public(schema), sensitivity=max(1, churn(schema)))


def common_key_shares(budget: Budget, schema: Schema) -> PartitionShares:
    """Of a partition by a common key: from three tables on each part also gets a noisy bound."""
    return partition_shares(budget, gauge=len(schema.tables) > 2, sensitivity=1 + churn(schema))


def _check_two(schema: Schema) -> None:
    if len(schema.tables) != 2:
        raise SpecError(f"method 'two_table' must have two tables, not {len(schema.tables)}; use auto")


def _check_several(schema: Schema) -> None:
    if len(schema.tables) < 2:
        raise SpecError("method 'multi_table' must have several tables; use auto for a single one")


_AS_ONE = _tight(as_one_shares, two_table_tight), _paper(two_table_paper)
_METHODS = {
    m.name: m
    for m in (
        Method("single_table", lambda _: None, *_AS_ONE, spendable=at_once),
        Method("auto", check_capped, _tight(auto_shares, auto_tight), spendable=after_a_look),
        Method("two_table", _check_two, *_AS_ONE, spendable=at_once),
        Method("multi_table", _check_several, *_AS_ONE, spendable=at_once),
        Method("uniformize", check_common, _tight(common_key_shares, uniformize_tight), _paper(uniformize_paper)),
        Method(
            "hierarchical",
            check_hierarchical,
            _tight(hierarchical_shares, hierarchical_tight),
            _paper(hierarchical_paper),
        ),
        Method("hybrid", check_hybrid, _tight(common_key_shares, hybrid_tight)),
        Method("keyed", check_keyed, _tight(keyed_shares, keyed_tight), spendable=after_a_look),
        Method("capped", check_capped, _tight(capped_shares, capped_tight)),
        Method("per_table", check_per_table, _tight(per_table_shares, per_table_tight), spendable=alone),
    )
}
