"""What a release will do, from the spec alone: no table is opened."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from dpjoin.auto.choose import DEGREES_SHARE, AutoShares, auto_shares
from dpjoin.auto.forecast import Largest, boundaries_of
from dpjoin.auto.registry import (
    BesidePublic,
    ReadsBounds,
    as_if_bounded,
    as_one_shares,
    chosen_method,
    common_key_shares,
)
from dpjoin.errors import SpecError
from dpjoin.measure import large_domains as chosen
from dpjoin.measure.cliques import wanted_cliques
from dpjoin.measure.join import DENSE_CELLS, is_large, varying_products
from dpjoin.measure.large_domains import ALL_CELLS, MOST_CLIQUE_CELLS, cells_limit, looked_at
from dpjoin.measure.marginals import SINGLES_SHARE, pilot_share
from dpjoin.measure.shares import (
    COUNT_SHARE,
    SENSITIVITY_SHARE,
    PartitionShares,
    TightShares,
)
from dpjoin.methods.capped import (
    CappedShares,
    cap_attributes,
    capped_shares,
    fades_of,
    fading_price,
    look_shares,
    price_for,
    public_bound_of,
)
from dpjoin.methods.keyed import keyed_shares
from dpjoin.methods.per_table import per_table_shares
from dpjoin.methods.table_models import kept_attributes
from dpjoin.model.model import clique_scopes
from dpjoin.model.triangulate import tree_of
from dpjoin.paper.alg4_uniformize import common_attributes
from dpjoin.paper.alg6_hierarchical import hierarchical_shares
from dpjoin.privacy.accounting import Budget, Split
from dpjoin.privacy.degree_bounds import bound_is_public, churn, declared_limits, weighted_bound
from dpjoin.privacy.gauge import gauge, gauge_bound
from dpjoin.privacy.truncated import paper_laplace_half_width
from dpjoin.spec.hypergraph import describe_join, drawing, join_class
from dpjoin.spec.schema import Schema, describe_bounds
from dpjoin.spec.toml import Spec
from dpjoin.spec.workload import Group, Products, Workload

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
class Stage:
    """One line of the budget."""

    name: str
    mechanism: str
    share: float
    """Of rho (tight), or of epsilon (paper, and where all noise is Laplace)."""
    note: str


@dataclass(frozen=True)
class Expected:
    """What to expect at one largest degree (and join size, if told): half-widths that cover 90 %."""

    degree: int
    sensitivity: int
    count: float
    cell: float
    share_of_join: float | None


@dataclass(frozen=True)
class Bucket:
    """Key values of similar degree that may be released as one part, and the noise there."""

    degrees: str
    sensitivity: int
    count: float
    cell: float


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
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def needs_noisy_bound(schema: Schema) -> bool:
    """Whether a private table joins others that are neither public nor bounded: only then does sensitivity cost."""
    return not bound_is_public(schema)


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
        if cells > MOST_CLIQUE_CELLS:
            sizes = ", ".join(f"{a} {schema.attribute(a).size}" for a in clique)
            raise SpecError(
                f"the marginal of {', '.join(clique)} has {cells:,} cells ({sizes}), which must be at most "
                f"{MOST_CLIQUE_CELLS:,} in a domain of {workload.cells:,} cells (it would take "
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


def plan(spec: Spec, *, degree: int | None = None, join_size: int | None = None) -> Plan:
    """What `release` would do with this spec.

    The noise depends on the largest degree, which is private: the plan shows it for usual degrees, or
    for the `degree` and `join_size` that the custodian expects.
    """
    schema, workload = spec.schema, spec.workload
    check_feasible(schema, workload)
    chosen_one = chosen_method(schema, spec.method, spec.profile, workload)
    method = chosen_one.name
    notes = _notes(schema)
    if isinstance(chosen_one, ReadsBounds):
        schema = as_if_bounded(schema)
        workload = replace(workload, schema=schema)
        spec = replace(spec, schema=schema, workload=workload)
        notes += ("Public tables are read when the tables are; noise is as if each value were there once.",)
    if spec.profile == "tight":
        spec = replace(spec, budget=chosen_one.spendable(spec.budget, workload))
    kept = layout(workload, spec.profile, method)
    degrees = USUAL_DEGREES if degree is None else (degree,)
    if len(schema.tables) == 1:
        degrees = (1,)
    stages: tuple[Stage, ...]
    expected: tuple[Expected, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    if spec.profile == "tight" and method == "uniformize":
        parts = common_key_shares(spec.budget, schema)
        stages, buckets = _partition_stages(parts), _buckets(spec, parts, max(degrees))
    elif method in ("auto", "capped"):
        look = auto_shares(spec.budget, schema) if method == "auto" else capped_shares(spec.budget, schema)
        stages = _capped_stages(look)
        expected = tuple(_capped_expected(spec, look, d, join_size) for d in degrees)
    elif spec.profile == "tight" and method in _CUT:
        stages = _cut_stages(spec, method)
    elif spec.profile == "tight":
        shares = as_one_shares(spec.budget, schema)
        stages = _tight_stages(shares, workload)
        expected = tuple(_tight_expected(spec, shares, d, join_size) for d in degrees)
    else:
        stages = _paper_stages(spec, partition=method in ("uniformize", *_CUT))
    return Plan(
        join=describe_join(schema),
        join_class=join_class(schema),
        drawing=drawing(schema),
        method=method,
        why=_why(schema, method, alone=isinstance(chosen_one, BesidePublic)),
        profile=spec.profile,
        epsilon=spec.budget.epsilon,
        delta=spec.budget.delta,
        attributes=workload.attributes,
        cells=workload.cells,
        model=kept.words,
        memory=kept.memory,
        queries=len(workload),
        groups=tuple(GroupPlan(_name(workload, g), len(g), g.cells) for g in workload.groups),
        stages=stages,
        expected=expected,
        buckets=buckets,
        notes=(*notes, *_option(spec.budget)),
    )


def _name(workload: Workload, group: Group) -> str:
    counts = workload.importance_of(group)
    return group.name if counts == 1.0 else f"{group.name} (counts {counts:g} times)"


_CUT = {
    "hierarchical": "parts by noisy degrees along the attribute tree, each part with its own bound",
    "per_table": "each table is modelled, keys included, with all but a look at the join's size; the models are joined",
    "hybrid": "heavy values of the common key table by table, light ones as one join",
    "keyed": "heavy values of a declared key table by table, light ones as one join, at most so many rows of each",
}


def _cut_stages(spec: Spec, method: str) -> tuple[Stage, ...]:
    """The budget of the methods that cut the join by degrees at several places."""
    gauge = 0.0
    if method == "per_table":
        tables = per_table_shares(spec.budget, spec.schema)
        whole = tables.split.rho
        looks: list[Stage] = []
        if tables.look is not None:
            note = "how many rows have which rank: where to cap"
            ranks, sizes = _looks(tables.split)
            looks.append(Stage("ranks", "discrete Gaussian", ranks, note))
            looks.append(Stage("sizes under caps", "discrete Gaussian", sizes, "of the join"))
        laplace = tables.split.laplace
        mechanism = "discrete Laplace" if laplace else "discrete Gaussian"
        if tables.count is not None:
            share = tables.count.epsilon / laplace if laplace else tables.count.rho / whole
            looks.append(Stage("join size", mechanism, float(share), "unbiased"))
        left = 1 - sum(s.share for s in looks)
        count = left * float(COUNT_SHARE)
        return (
            *looks,
            Stage("sizes", mechanism, count, "of each table: a row is in one, so each has all of it"),
            Stage("queries", mechanism, left - count, "each table's marginals, with its join attributes"),
        )
    if method == "keyed":
        keyed = keyed_shares(spec.budget, spec.schema)
        looked = keyed.ranks.rho + (keyed.first.rho if keyed.first else 0)
        told = (
            ("ranks", looked, "how many rows have which rank: what degrees are like"),
            ("degrees", keyed.degrees.rho, "of every value of the key in each table, unbiased"),
            ("sizes", keyed.sizes.rho, "of light values under a few caps"),
            ("join size", keyed.count.rho, "of light values, unbiased"),
        )
        whole = keyed.split.rho
        before = [Stage(name, "discrete Gaussian", float(rho / whole), note) for name, rho, note in told]
        note = "of light values as one join, of heavy ones table by table; each has all of it"
        return (*before, Stage("queries", "discrete Gaussian", 1 - sum(s.share for s in before), note))
    if method == "hybrid":
        shares = common_key_shares(spec.budget, spec.schema)
        gauge = float(shares.bound.rho / shares.split.rho) if shares.bound else 0.0
        degrees = float(shares.degrees.rho / shares.split.rho)
        width = f"a shift of {shares.degrees_width} on average; values above {2 * shares.degrees_width} may be heavy"
    else:
        tree = hierarchical_shares(spec.budget, spec.schema)
        degrees = float(SENSITIVITY_SHARE)
        variance = 1 / (2 * float(tree.stage.rho))
        width = f"one stage for each level of the tree, with a deviation of {math.sqrt(variance):.1f} or more"
    stages = [Stage("degrees", "truncated discrete Gaussian", degrees, width)]
    if gauge:
        stages.append(
            Stage("sensitivity", "truncated discrete Gaussian", gauge, "of what is neither heavy nor dropped")
        )
    left = 1 - degrees - gauge
    count = left * float(COUNT_SHARE)
    note = "divided by the number of parts that one row can be in"
    if method == "hybrid":
        note = "of light values as one join, of heavy ones table by table; each has all of it"
    stages.append(Stage("sizes", "discrete Gaussian", count, "of each part, unbiased"))
    stages.append(Stage("queries", "discrete Gaussian", left - count, note))
    return tuple(stages)


def _looks(split: Split) -> tuple[float, float]:
    """Of rho, what looks at ranks and at sizes cost, first ones included."""
    look = look_shares(split)
    found = look.first_ranks + look.ranks, look.first_size + look.sizes
    return float(found[0] / split.rho), float(found[1] / split.rho)


def _capped_stages(shares: AutoShares | CappedShares) -> tuple[Stage, ...]:
    whole = shares.split.rho
    ranks, sizes = _looks(shares.split)
    left = 1 - ranks - sizes - float(shares.count.rho / whole)
    note = "where to cap" if isinstance(shares, CappedShares) else "which method promises least, and where to cap"
    queries = "of what the caps leave"
    if isinstance(shares, AutoShares) and shares.hybrid is not None:
        queries += f"; of heavy and light values if that promises less, after {float(DEGREES_SHARE):.0%} on degrees"
    return (
        Stage("ranks", "discrete Gaussian", ranks, "how many rows have which rank: what degrees are like"),
        Stage("sizes under caps", "discrete Gaussian", sizes, note),
        Stage("join size", "discrete Gaussian", float(shares.count.rho / whole), "unbiased"),
        Stage("queries", "discrete Gaussian", left, queries),
    )


def _capped_expected(spec: Spec, shares: AutoShares | CappedShares, degree: int, join_size: int | None) -> Expected:
    """Half-widths before the fit, if the caps are this degree everywhere."""
    sets = cap_attributes(spec.schema)
    caps = {(table, by): degree for table, some in sets.items() for by in some}
    removed = max(len(some) for some in sets.values())
    bound = float(public_bound_of(spec.schema, caps))
    lengthened = math.sqrt(1 + removed**2)
    if (price := price_for(caps, fading_price(spec.workload))) is not None:
        fades = fades_of(caps, price)
        full = math.prod(fade.full for fade in fades.values())
        bound, removed = weighted_bound(spec.schema, declared_limits(spec.schema), fades) / full, 1
        lengthened = 1.0
    left = float(shares.split.rho - look_shares(shares.split).whole - shares.count.rho)
    count = 1.6449 * bound * removed / math.sqrt(2 * float(shares.count.rho))
    cell = 1.6449 * bound * lengthened * math.sqrt(max(1, _measured(spec.workload)) / (2 * left))
    return Expected(degree, math.ceil(bound), count, cell, cell / join_size if join_size else None)


def _measured(workload: Workload) -> int:
    """How many marginals and queries share the budget."""
    products = sum(len(g) for g in workload.groups if isinstance(g, Products))
    return len(clique_scopes(workload.groups)) + products


def _why(schema: Schema, method: str, *, alone: bool = False) -> str:
    if method == "auto":
        return "noisy degrees decide: cap them, model heavy values table by table, or every table by itself"
    if method == "capped":
        return "rows beyond so many per key value (noisy degrees say how many) fade or go; the rest is one join"
    if method in _CUT:
        return _CUT[method]
    if method == "uniformize":
        on = ", ".join(common_attributes(schema))
        return f"values of {on} in parts by noisy degree, each part with its own bound"
    if len(schema.tables) == 1:
        return "one table: a row changes one cell, so the sensitivity is 1 and costs nothing"
    if not needs_noisy_bound(schema):
        if any(t.bounds for t in schema.tables):
            return "public tables and declared degree bounds limit the sensitivity, so it costs nothing"
        also = "; or it is released alone, if what they hold promises less error so"
        return f"one private table beside public ones: their largest degree bounds the sensitivity{also * alone}"
    if len(schema.tables) == 2:
        return "two private tables: a noisy bound on the largest degree, then the join as one table"
    return f"{len(schema.tables)} tables: a noisy gauge of all boundary queries, then the join as one table"


def _notes(schema: Schema) -> tuple[str, ...]:
    notes = ["Rows outside a declared domain count as 'other' where an attribute has it, and are dropped otherwise."]
    keys = [a.name for a in schema.attributes if a.key and len(schema.tables_with(a.name)) == 1]
    if keys:
        notes.append(f"Keys in one table only ({', '.join(keys)}) join nothing and are ignored.")
    notes += describe_bounds(schema)
    return tuple(notes)


def _option(budget: Budget) -> list[str]:
    """What may happen after a look, where few marginals are asked for."""
    if not budget.options:
        return []
    most, least = (float(some(budget.options) / budget.exact.epsilon) for some in (max, min))
    return [
        f"Where tables by themselves promise least, what is left after the look is exchanged for Laplace noise with "
        f"{least:.0%} of epsilon ({most:.0%} if a first look settles it): less noise for so few marginals."
    ]


def _tight_stages(shares: TightShares, workload: Workload) -> tuple[Stage, ...]:
    if whole := shares.split.laplace:
        count = float(shares.count.epsilon / whole)
        return (
            Stage("join size", "discrete Laplace", count, "unbiased"),
            Stage("queries", "discrete Laplace", 1 - count, "few marginals, each once; no delta is needed"),
        )
    whole = shares.split.rho
    stages = []
    if shares.bound is not None and shares.half_width is not None:
        note = f"the largest degree plus a shift of {shares.half_width} on average, never below it"
        stages.append(Stage("sensitivity", "truncated discrete Gaussian", float(shares.bound.rho / whole), note))
    stages.append(Stage("join size", "discrete Gaussian", float(shares.count.rho / whole), "unbiased"))
    singles, pilot = SINGLES_SHARE, pilot_share(sum(len(scope) > 1 for scope in clique_scopes(workload.groups)))
    if is_large(workload):
        singles, pilot = chosen.SINGLES_SHARE, chosen.PILOT_SHARE
    note = f"{float(singles):.0%} one-way, {float(pilot):.0%} pilot of all, the rest where it helps most"
    stages.append(Stage("queries", "discrete Gaussian", float(shares.queries / whole), note))
    return tuple(stages)


def _partition_stages(shares: PartitionShares) -> tuple[Stage, ...]:
    whole = shares.split.rho
    width = shares.degrees_width
    note = f"each table's degrees plus a shift of {width} on average; listed above {2 * width}"
    stages = [Stage("degrees", "truncated discrete Gaussian", float(shares.degrees.rho / whole), note)]
    if shares.bound is not None:
        note = f"of each part, with a shift of {shares.bound_width} on average"
        stages.append(Stage("sensitivity", "truncated discrete Gaussian", float(shares.bound.rho / whole), note))
    stages.append(Stage("sizes", "discrete Gaussian", float(shares.count.rho / whole), "of each part, unbiased"))
    note = "in each part: a row is in one part only, so each has all of it"
    stages.append(Stage("queries", "discrete Gaussian", float(shares.queries / whole), note))
    return tuple(stages)


def _buckets(spec: Spec, shares: PartitionShares, degree: int) -> tuple[Bucket, ...]:
    """The parts that noisy degrees up to `degree` can fall into, before neighbours are merged."""
    found: list[Bucket] = []
    low, high = 0, 2 * shares.degrees_width
    tables = len(spec.schema.tables)
    quantile = 1.6449 * (1 + churn(spec.schema))
    measured = _measured(spec.workload)
    while not found or low < degree:
        cap = high ** (tables - 1)
        count = quantile * cap / math.sqrt(2 * float(shares.count.rho))
        cell = quantile * cap * math.sqrt(max(1, measured) / (2 * float(shares.queries)))
        found.append(Bucket(f"{low:,} to {high:,}", cap, count, cell))
        low, high = high, 2 * high
    return tuple(found)


def _paper_stages(spec: Spec, *, partition: bool) -> tuple[Stage, ...]:
    whole = spec.budget.exact
    if partition:
        shift = paper_laplace_half_width(epsilon=whole.epsilon / 2, delta=whole.delta / 2, sensitivity=1)
        note = f"each table's degrees plus {shift} on average; listed above {2 * shift}"
        return (
            Stage("degrees", "truncated discrete Laplace", 0.5, note),
            Stage("sensitivity", "truncated discrete Laplace", 0.25, "of each part"),
            Stage("join size", "truncated discrete Laplace", 0.125, "of each part, an upper bound"),
            Stage("rounds", "exponential mechanism and discrete Laplace", 0.125, "in each part"),
        )
    if not needs_noisy_bound(spec.schema):
        return (
            Stage("join size", "truncated discrete Laplace", 0.5, "an upper bound"),
            Stage("rounds", "exponential mechanism and discrete Laplace", 0.5, "advanced composition"),
        )
    shift = paper_laplace_half_width(epsilon=whole.epsilon / 2, delta=whole.delta / 2, sensitivity=1)
    return (
        Stage("sensitivity", "truncated discrete Laplace", 0.5, f"the largest degree plus {shift} on average"),
        Stage("join size", "truncated discrete Laplace", 0.25, "an upper bound"),
        Stage("rounds", "exponential mechanism and discrete Laplace", 0.25, "advanced composition"),
    )


def _expected_sensitivity(schema: Schema, shares: TightShares, degree: int) -> int:
    """The bound to expect when every table has this largest degree."""
    if len(schema.tables) == 1:
        return 1
    expected = boundaries_of(schema, {t.name: Largest(degree, {}) for t in schema.tables})
    caps, values = expected.caps, expected.values
    if shares.half_width is None:
        names = frozenset(expected.tables)
        limits: list[int] = [caps.get(names - {i}, values[names - {i}]) for i in expected.private]
        return max(1, *limits)
    return max(1, gauge_bound(expected, gauge(expected) + shares.half_width))


def _tight_expected(spec: Spec, shares: TightShares, degree: int, join_size: int | None) -> Expected:
    """Half-widths before the fit; the fit makes the cells' usually two to four times smaller."""
    sensitivity = _expected_sensitivity(spec.schema, shares, degree)
    if whole := shares.split.laplace:
        scale = math.log(10) * sensitivity
        count = scale * max(1, churn(spec.schema)) / float(shares.count.epsilon)
        cell = scale * (1 + churn(spec.schema)) * max(1, _measured(spec.workload)) / float(whole - shares.count.epsilon)
        return Expected(degree, sensitivity, count, cell, cell / join_size if join_size else None)
    quantile = 1.6449 * max(1, churn(spec.schema))
    count = quantile * sensitivity / math.sqrt(2 * float(shares.count.rho))
    cell = quantile * sensitivity * math.sqrt(max(1, _measured(spec.workload)) / (2 * float(shares.queries)))
    return Expected(degree, sensitivity, count, cell, cell / join_size if join_size else None)
