"""What a release will do, from the spec alone: no table is opened."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from dpjoin.auto.domain_plan import DomainPlan, domain_notes, domain_plans, with_domain_stage
from dpjoin.auto.learned import learning_budget
from dpjoin.auto.registry import as_if_read, chosen_method, may_be_one_table, reads_bounds
from dpjoin.canonical import shown, whole
from dpjoin.errors import SpecError
from dpjoin.measure.join import DENSE_CELLS, is_large, varying_products
from dpjoin.measure.large_domains import ALL_CELLS, CLIQUE_CELLS, cells_limit, looked_at
from dpjoin.measure.marginals import wanted_cliques
from dpjoin.methods.method import Method, Stage
from dpjoin.methods.table_models import kept_attributes
from dpjoin.model.triangulate import tree_of
from dpjoin.paper.alg4_uniformize import Bucket, degree_buckets
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.hypergraph import describe_join, drawing, join_class
from dpjoin.spec.persons import protects
from dpjoin.spec.schema import Schema, describe_bounds
from dpjoin.spec.toml import Spec
from dpjoin.spec.workload import Group, Workload

MAX_TABLES = 8
"""The gauge looks at every subset of the tables."""
MOST_QUERIES = 2**24
"""Of one group: its answers with their error bars take about 200 bytes each."""
BYTES_PER_CELL = 48
"""The fit holds about six tables of the domain in double precision."""
BYTES_PER_TREE_CELL = 300
"""A factored model and its members hold a bag twice each, and the fit a few copies more."""
USUAL_DEGREES = (1, 10, 100, 1000)
"""For which largest degrees the plan says what the noise will be, when it is not told one."""


@dataclass(frozen=True)
class Expected:
    """What to expect at one largest degree (and join size, if told): half-widths that cover 90 %."""

    degree: int
    sensitivity: int
    count: float
    cell: float
    share_of_join: float | None


@dataclass(frozen=True)
class GroupPlan:
    name: str
    queries: int
    cells: int


@dataclass(frozen=True)
class Plan:
    """A public description of a release that has not happened."""

    join: str
    join_class: str
    drawing: str
    method: str
    why: str
    profile: str
    epsilon: float
    delta: float
    protects: str
    """Who cannot be told apart."""
    attributes: tuple[str, ...]
    cells: int
    model: str
    """Whether the model is a table of all cells or factored."""
    memory: int
    queries: int
    groups: tuple[GroupPlan, ...]
    stages: tuple[Stage, ...]
    expected: tuple[Expected, ...]
    buckets: tuple[Bucket, ...]
    domains: tuple[DomainPlan, ...]
    """Of attributes whose domain is to be learned."""
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def check_feasible(schema: Schema, workload: Workload) -> None:
    """Refuse what this version cannot release, before any table is opened."""
    if len(schema.tables) > MAX_TABLES:
        raise SpecError(
            f"a release joins at most {MAX_TABLES} tables; the schema has {len(schema.tables)}; leave some out"
        )
    for group in workload.groups:
        if len(group) > MOST_QUERIES:
            raise SpecError(
                f"the group {group.name!r} has {len(group):,} queries, which must be at most {MOST_QUERIES:,}; use "
                "coarser bins, or prefixes, of which any range is a difference"
            )
    if is_large(workload):
        _check_large(schema, workload)


def _check_large(schema: Schema, workload: Workload) -> None:
    """Refuse what a factored model cannot hold."""
    if products := varying_products(workload):
        raise SpecError(
            f"product queries ({products[0].name}) must have a workload over at most {DENSE_CELLS:,} cells, not "
            f"{workload.cells:,}; ask for marginals instead, or about fewer attributes"
        )
    for clique in wanted_cliques(workload):
        cells = schema.cells(clique)
        if cells > CLIQUE_CELLS:
            sizes = ", ".join(f"{a} {schema.attribute(a).size}" for a in clique)
            raise SpecError(
                f"the marginal of {', '.join(clique)} has {cells:,} cells ({sizes}), which must be at most "
                f"{CLIQUE_CELLS:,} in a domain of {workload.cells:,} cells (it would take "
                f"{memory_text(cells * BYTES_PER_TREE_CELL)}); leave it out or use coarser bins"
            )


@dataclass(frozen=True)
class Layout:
    """How the model is kept in memory."""

    words: str
    cells: int
    """That are written down, at most."""
    memory: int


def layout(workload: Workload, profile: str = "tight", method: str = "auto") -> Layout:
    """Whether the model is a table of all cells or factored, and how large it gets."""
    if method == "per_table" and is_large(workload):
        schema = workload.schema
        most = max(schema.cells(kept_attributes(workload, t.name, ())) for t in schema.tables)
        return Layout(f"one for each table, of at most {most:,} cells", most, most * BYTES_PER_CELL)
    if not is_large(workload) or profile == "paper":
        return Layout("dense: a table of all cells", workload.cells, workload.cells * BYTES_PER_CELL)
    cliques = wanted_cliques(workload)
    tree = tree_of({a: workload.schema.attribute(a).size for a in workload.attributes}, cliques)
    wide = [c for c in cliques if len(c) > 1]
    looks = len(looked_at(wide))
    if looks == len(wide) and tree.cells <= ALL_CELLS:
        words = f"factored: all marginals, in parts of at most {tree.largest:,} cells"
        return Layout(words, tree.cells, tree.cells * BYTES_PER_TREE_CELL)
    most = cells_limit(workload.schema.cells(c) for c in wide)
    which = f"the {looks}" if looks == len(wide) else f"{looks} of the {len(wide)}"
    words = f"factored: marginals are chosen after a noisy look at {which} wider ones, up to {most:,} cells"
    return Layout(words, most, most * BYTES_PER_TREE_CELL)


def memory_text(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.3g} {unit}"
        size /= 1000
    return ""


@dataclass(frozen=True)
class _Spending:
    """How a method will spend a budget, as far as the spec tells."""

    schema: Schema
    workload: Workload
    budget: Budget
    stages: tuple[Stage, ...]
    shares: Any = None
    """None under the profile `paper`."""
    domains: tuple[DomainPlan, ...] = ()
    notes: tuple[str, ...] = ()


def _spending(schema: Schema, workload: Workload, budget: Budget, method: Method, profile: str) -> _Spending:
    if profile == "paper":
        assert method.paper_stages is not None, "the profile was checked"
        return _Spending(schema, workload, budget, method.paper_stages(budget, schema))
    notes: list[str] = []
    if reads_bounds(method, schema):
        schema = as_if_read(schema)
        workload = replace(workload, schema=schema)
        notes.append("Public tables are read when the tables are; noise is as if each value were there once.")
    if not schema.learned:
        budget = method.spendable(budget, workload)
        shares = method.split(budget, schema)
        return _Spending(schema, workload, budget, method.stages(shares, workload), shares, notes=tuple(notes))
    budget, costs = learning_budget(method, budget, workload)
    domains = domain_plans(schema, budget, costs)
    taken = float(costs.total.rho / (budget.rho() + costs.total.rho))
    notes += domain_notes(taken, domains)
    shares = method.split(budget, schema)
    stages = with_domain_stage(method.stages(shares, workload), taken, domains)
    return _Spending(schema, workload, budget, stages, shares, domains, tuple(notes))


def planned_stages(
    schema: Schema, workload: Workload, budget: Budget, method: str, profile: str
) -> list[dict[str, Any]]:
    """How the budget is meant to be spent, as a release states it: the stages of its plan."""
    chosen = chosen_method(schema, method, profile, workload)
    stages = _spending(schema, workload, budget, chosen, profile).stages
    return [{"name": s.name, "share": float(f"{s.share:.4g}"), "mechanism": s.mechanism} for s in stages]


def plan(
    spec: Spec | Schema,
    workload: Workload | None = None,
    budget: Budget | None = None,
    *,
    method: str | None = None,
    profile: str | None = None,
    degree: int | None = None,
    join_size: int | None = None,
) -> Plan:
    """What `release` would do with this spec, or with this schema, workload and budget.

    The noise depends on the largest degree, which is private: the plan shows it for usual degrees, or
    for the `degree` and `join_size` that the custodian expects.
    """
    known = _spec_of(spec, workload, budget, method, profile)
    for name, number in (("degree", degree), ("join_size", join_size)):
        if number is not None:
            whole(number, name, least=1)
    schema, workload, budget = known.schema, known.workload, known.budget
    check_feasible(schema, workload)
    chosen = chosen_method(schema, known.method, known.profile, workload)
    notes, why = _notes(schema), chosen.why(schema)
    if may_be_one_table(schema, known.method, known.profile, workload):
        why += "; or it is released by itself, if what they hold promises less error so"
    clipped, single = chosen.name == "clipped", len(schema.tables) == 1
    degrees = (1,) if single and not clipped else USUAL_DEGREES if degree is None else (degree,)
    if clipped and schema.max_results is not None:
        degrees = (schema.max_results,)
    expected: tuple[Expected, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    spending = _spending(schema, workload, budget, chosen, known.profile)
    schema, workload, budget, stages = spending.schema, spending.workload, spending.budget, spending.stages
    notes += spending.notes
    if (shares := spending.shares) is not None:
        if chosen.noise_level is not None:
            levels = {d: chosen.noise_level(shares, workload, d) for d in degrees}
            expected = tuple(
                Expected(d, x.sensitivity, x.count, x.cell, x.cell / join_size if join_size else None)
                for d, x in levels.items()
            )
        if chosen.name == "uniformize":
            buckets = degree_buckets(shares, workload, max(degrees))
    kept = layout(workload, known.profile, chosen.name)
    return Plan(
        join=describe_join(schema),
        join_class=join_class(schema),
        drawing=drawing(schema),
        method=chosen.name,
        why=why,
        profile=known.profile,
        epsilon=budget.epsilon,
        delta=budget.delta,
        protects=protects(schema),
        attributes=workload.attributes,
        cells=workload.cells,
        model=kept.words,
        memory=kept.memory,
        queries=len(workload),
        groups=tuple(GroupPlan(_name(workload, g), len(g), g.cells) for g in workload.groups),
        stages=stages,
        expected=expected,
        buckets=buckets,
        domains=spending.domains,
        notes=(*notes, *_laplace_note(budget)),
    )


def _spec_of(
    spec: object, workload: Workload | None, budget: Budget | None, method: str | None, profile: str | None
) -> Spec:
    """One spec of what was given."""
    how = {key: value for key, value in (("method", method), ("profile", profile)) if value is not None}
    if isinstance(spec, Schema):
        parts = {"workload": (workload, Workload), "budget": (budget, Budget)}
        for name, (given, kind) in parts.items():
            if not isinstance(given, kind):
                raise SpecError(f"{name} ({shown(given)}) must be a dj.{kind.__name__}; a plan needs all three")
        assert workload is not None
        assert budget is not None
        if workload.schema != spec:
            raise SpecError("the workload must be built from the schema it is planned with")
        return replace(Spec(spec, workload, budget), **how)  # type: ignore[arg-type]
    if not isinstance(spec, Spec):
        raise SpecError(f"what is planned ({shown(spec)}) must be a dj.Spec, or a dj.Schema with workload and budget")
    if workload is not None or budget is not None:
        raise SpecError("a spec has its own workload and budget; plan it alone, or its schema with others")
    return replace(spec, **how)  # type: ignore[arg-type]


def _name(workload: Workload, group: Group) -> str:
    counts = workload.importance_of(group)
    return group.name if counts == 1.0 else f"{group.name} (counts {counts:g} times)"


def _notes(schema: Schema) -> list[str]:
    notes = ["Rows outside a declared domain count as 'other' where an attribute has it, and are dropped otherwise."]
    keys = [a.name for a in schema.attributes if a.key and len(schema.tables_with(a.name)) == 1]
    if keys:
        notes.append(f"Keys in one table only ({', '.join(keys)}) join nothing and are ignored.")
    return notes + describe_bounds(schema)


def _laplace_note(budget: Budget) -> list[str]:
    """What may happen after a look, where few marginals are asked for."""
    if not budget.options:
        return []
    most, least = (float(some(budget.options) / budget.exact.epsilon) for some in (max, min))
    return [
        f"Where a model of each table promises the least error, what is left after the look is exchanged for Laplace "
        f"noise with {least:.0%} of epsilon ({most:.0%} if a first look is enough): less noise for so few marginals."
    ]
