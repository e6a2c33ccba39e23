"""The methods of a release by name, and how to run one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dpjoin.auto.choose import AS_ONE, AUTO, method_with_public_tables, method_without_look
from dpjoin.engine.interface import Engine
from dpjoin.errors import SpecError
from dpjoin.measure.join import DENSE_CELLS
from dpjoin.measure.progress import Progress
from dpjoin.methods.capped import CAPPED
from dpjoin.methods.clipped import CLIPPED
from dpjoin.methods.heavy_light import HEAVY_LIGHT
from dpjoin.methods.method import Method, Outcome, gaussian_only
from dpjoin.methods.per_table import PER_TABLE
from dpjoin.methods.refusals import refuse_persons
from dpjoin.paper.alg4_uniformize import UNIFORMIZE
from dpjoin.paper.alg6_partition_hierarchical import HIERARCHICAL
from dpjoin.privacy.accounting import Budget, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.public_tables import public_links, with_public_bounds
from dpjoin.spec.schema import DegreeBound, Schema, with_caps
from dpjoin.spec.workload import Workload

METHODS = {
    m.name: m for m in (AUTO, CAPPED, CLIPPED, HEAVY_LIGHT, PER_TABLE, *AS_ONE.values(), UNIFORMIZE, HIERARCHICAL)
}
PAPER_CELLS = 2**24
"""Of multiplicative weights on one table of all cells: a round touches few of them, and three tables fit in 500 MB."""


def chosen_method(schema: Schema, name: str, profile: str = "tight", workload: Workload | None = None) -> Method:
    """The method that a spec's choice stands for on this join; SpecError if it cannot serve it, or the workload."""
    bounded = as_if_read(schema)
    method = method_without_look(bounded, profile) if name == "auto" else METHODS[name]
    if profile == "paper" and schema.learned:
        names = ", ".join(schema.learned)
        raise SpecError(f"the profile 'paper' must have declared domains, and learns none; declare those of {names}")
    if profile == "paper" or method not in (CLIPPED, PER_TABLE, *AS_ONE.values()):
        refuse_persons(schema, f"method {method.name!r} with the profile {profile!r}")
    method.check(bounded if method.reads_public_bounds and profile == "tight" else schema, None)
    if profile == "paper" and method.paper is None:
        raise SpecError(f"method {method.name!r} must have the profile tight; the paper has no such method")
    if workload is not None:
        dense = profile == "paper" or not method.one_model
        most = PAPER_CELLS if profile == "paper" and method.one_model else DENSE_CELLS
        if dense and workload.cells > most:
            what = "the profile 'paper'" if method.one_model else f"method {method.name!r}"
            raise SpecError(
                f"{what} must have a workload over at most {most:,} cells, not {workload.cells:,}; ask about fewer "
                "attributes, or use method 'auto' with the profile 'tight'"
            )
    return method


def reads_bounds(method: Method, schema: Schema) -> bool:
    """Whether it reads off public tables how many of their rows share a value: where several tables are private."""
    return method.reads_public_bounds and len(schema.tables) > len(schema.private_tables) > 1


def as_if_read(schema: Schema) -> Schema:
    """As if public tables had every value once, where bounds are read off them: for what can be said before that."""
    if not len(schema.tables) > len(schema.private_tables) > 1:
        return schema
    return with_caps(
        schema, {t: [DegreeBound(attributes=by, limit=1) for by in links] for t, links in public_links(schema).items()}
    )


def may_be_one_table(schema: Schema, name: str, profile: str, workload: Workload | None) -> bool:
    """Whether `auto` reads public tables to choose between the join as one and the private table by itself."""
    return (
        name == "auto"
        and profile == "tight"
        and len(schema.private_tables) == 1
        and not schema.learned
        and PER_TABLE.serves(schema, workload)
    )


def run(
    name: str, profile: str, engine: Engine, workload: Workload, budget: Budget, progress: Progress
) -> tuple[Outcome, Curator]:
    """Split the budget, make a Curator that holds it, run."""
    schema = engine.schema
    method = chosen_method(schema, name, profile, workload)
    if profile == "paper":
        assert method.paper is not None, "the profile was checked"
        curator = Curator(engine, Split(budget=budget, paper=True))
        return replace(method.paper(curator, workload, budget.exact, progress), method=method.name), curator
    errors: Mapping[str, float] = {}
    if may_be_one_table(schema, name, profile, workload):
        method, errors = method_with_public_tables(engine, workload, budget, method)
    elif reads_bounds(method, schema):
        engine = with_public_bounds(engine)
        workload = replace(workload, schema=engine.schema)
    shares = method.split(method.spendable(budget, workload), engine.schema)
    curator = Curator(engine, shares.split)
    outcome = method.run(curator, workload, shares, progress)
    return finished(outcome, method, errors or outcome.predicted), curator


def finished(outcome: Outcome, method: Method, errors: Mapping[str, float]) -> Outcome:
    """The outcome with the method that ran, and the errors that were expected of each."""
    predicted = {name: float(f"{error:.3g}") for name, error in errors.items()}
    return replace(outcome, method=outcome.method or method.name, predicted=predicted)


def without_laplace(method: Method, budget: Budget, workload: Workload) -> Budget:
    """What a method makes of a budget where domains are learned first: with Gaussian noise, which they need."""
    spendable = method.spendable(budget, workload)
    if not spendable.laplace and not spendable.options:
        return spendable
    return gaussian_only(budget, workload)
