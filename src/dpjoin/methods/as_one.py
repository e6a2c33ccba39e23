"""The join as one table: bound the sensitivity of the join, then measure its marginals under that bound.

Also serves a single table and a private table with public ones, where the bound costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dpjoin import constants
from dpjoin.measure.join import is_large, measure_join, varying_products
from dpjoin.measure.laplace import laplace_pays
from dpjoin.measure.large_domains import holds_all
from dpjoin.measure.marginals import pilot_share, wanted_cliques
from dpjoin.measure.progress import Progress
from dpjoin.measure.shares import TightShares, half_width, round_down, tight_shares
from dpjoin.measure.totals import measure_total
from dpjoin.methods.likely_bound import equal_degrees, expected_bound, ranked_degrees
from dpjoin.methods.look import Look, count_after_look
from dpjoin.methods.method import (
    GAUSSIAN_NOISE,
    LAPLACE_NOISE,
    TRUNCATED_GAUSSIAN,
    Method,
    NoiseLevel,
    Outcome,
    Stage,
    changed,
    gaussian_only,
)
from dpjoin.methods.noise_forecast import fitted_noise, size_noise
from dpjoin.methods.refusals import check_results_known
from dpjoin.methods.remainder import Remainder, exchanged
from dpjoin.model.model import clique_scopes
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public, churn
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload


def as_one_name(schema: Schema) -> str:
    """What a release of the join as one table is called."""
    return {1: "single_table", 2: "two_table"}.get(len(schema.tables), "multi_table")


def check_as_one(schema: Schema, workload: Workload | None = None) -> None:
    """Any join; to protect a person, its bound must be public."""
    check_results_known(schema, as_one_name(schema))


def why_as_one(schema: Schema) -> str:
    if len(schema.tables) == 1:
        return "one table: a row changes one cell, so the sensitivity is 1 and costs nothing"
    if bound_is_public(schema):
        if any(t.bounds for t in schema.tables):
            return "public tables and declared degree bounds limit the sensitivity, so it costs nothing"
        return "one private table with public ones: their largest degree bounds the sensitivity"
    if len(schema.tables) == 2:
        return "two private tables: a noisy bound on the largest degree, then the join as one table"
    return f"{len(schema.tables)} tables: a noisy gauge of all boundary queries, then the join as one table"


def as_one_budget(budget: Budget, workload: Workload) -> Budget:
    """Laplace noise alone where the bound is public and few marginals are asked for. Public."""
    plain = gaussian_only(budget, workload)
    if not bound_is_public(workload.schema) or varying_products(workload) or not laplace_pays(plain, workload):
        return plain
    sizes = {a: workload.schema.attribute(a).size for a in workload.attributes}
    if is_large(workload) and not holds_all(sizes, wanted_cliques(workload)):
        return plain
    return replace(budget, laplace=budget.exact.epsilon)


def as_one_shares(budget: Budget, schema: Schema) -> TightShares:
    """The bound costs nothing where it is public."""
    return tight_shares(budget, noisy_bound=not bound_is_public(schema), sensitivity=_moved(schema))


def _moved(schema: Schema) -> int:
    """By how many bounds the size moves, as the Curator will state: more than one where rows are pushed out."""
    return max(1, churn(schema) * changed(schema))


def after_look_shares(split: Split, schema: Schema) -> TightShares:
    """The same of what a look leaves."""
    count = count_after_look(split)
    if bound_is_public(schema):
        return TightShares(split, None, None, count)
    bound = Concentrated(round_down(split.rho * constants.BOUND_AFTER_LOOK), split.truncation_delta)
    return TightShares(split, bound, half_width(split.budget.composition, bound.rho, bound.delta, moves=1), count)


def as_one_stages(shares: TightShares, workload: Workload) -> tuple[Stage, ...]:
    if whole := shares.split.laplace:
        count = float(shares.count.epsilon / whole)
        note = "few marginals, each once; no delta is needed"
        return Stage("join size", LAPLACE_NOISE, count, "unbiased"), Stage("queries", LAPLACE_NOISE, 1 - count, note)
    whole = shares.split.rho
    stages = []
    if shares.bound is not None:
        note = f"the largest degree plus a shift of {shares.half_width} on average, never below it"
        stages.append(Stage("sensitivity", TRUNCATED_GAUSSIAN, float(shares.bound.rho / whole), note))
    stages.append(Stage("join size", GAUSSIAN_NOISE, float(shares.count.rho / whole), "unbiased"))
    wide = sum(len(scope) > 1 for scope in clique_scopes(workload.groups))
    pilot = constants.LARGE_PILOT if is_large(workload) else pilot_share(wide)
    note = (
        f"{float(constants.SINGLES_SHARE):.0%} one-way, {float(pilot):.0%} pilot of all, the rest where it helps most"
    )
    return *stages, Stage("queries", GAUSSIAN_NOISE, float(shares.queries / whole), note)


def as_one_noise_level(shares: TightShares, workload: Workload, degree: int) -> NoiseLevel:
    """If every table has this largest degree. The fit makes cells' errors usually two to four times smaller."""
    schema, pushed, moved = workload.schema, churn(workload.schema), _moved(workload.schema)
    bound = 1 if len(schema.tables) == 1 else expected_bound(schema, equal_degrees(schema, degree), shares.half_width)
    if whole := shares.split.laplace:
        count, queries = shares.count.epsilon, (whole - shares.count.epsilon) / ((1 + pushed) * changed(schema))
        return NoiseLevel.laplace(workload, bound, count=count / moved, queries=queries)
    cells, count, queries = moved if pushed else math.sqrt(changed(schema)), shares.count.rho, shares.queries
    return NoiseLevel.gaussian(workload, bound, count=count, queries=queries, times=moved, cells=cells)


def as_one_tight(curator: Curator, workload: Workload, shares: TightShares, progress: Progress) -> Outcome:
    """The `tight` profile: truncated Gaussian bound, Gaussian measurements, one fit. Spends the budget exactly."""
    progress("sensitivity", 0, 1)
    if shares.bound is None:
        bound = curator.public_bound()
        assert bound is not None, "a bound that costs nothing was planned"
    else:
        bound = curator.sensitivity_bound(shares.bound, half_width=shares.half_width)
    progress("sensitivity", 1, 1)
    with one_blas_thread():
        total = measure_total(curator, bound, shares.count)
        model, strategy = measure_join(curator, workload, bound, total, progress)
    return Outcome(model, bound.value, round(model.total), strategy)


def forecast(look: Look, left: Remainder, shares: TightShares) -> float | None:
    """Noise of a declared bound, or of a noisy one by the largest degrees that ranks show."""
    schema, rho, size = look.curator.schema, left.as_one, max(1.0, look.size.noisy)
    declared = look.curator.public_bound()
    if declared is not None:
        gain = constants.DECLARED_GAIN if left.laplace else 1.0
        noise = fitted_noise(look.workload, bound=declared.value, size=size, rho=rho)
        return (noise + size_noise(declared.value, rho)) / gain
    if left.laplace or look.levels is None or shares.bound is None or not look.ranks:
        return None
    bound, rho = expected_bound(schema, ranked_degrees(schema, look.ranks), shares.half_width), rho - shares.bound.rho
    return fitted_noise(look.workload, bound=bound, size=size, rho=rho) + size_noise(bound, rho)


def release_as_one(look: Look, left: Remainder, shares: TightShares, progress: Progress) -> Outcome:
    """No row goes: with the bound that declared ones give, or else a noisy one."""
    count = exchanged(look.curator, left, shares.count)
    return as_one_tight(look.curator, look.workload, replace(shares, count=count), progress)


JOIN_AS_ONE = Method(
    name="single_table",
    why=why_as_one,
    check=check_as_one,
    spendable=as_one_budget,
    split=as_one_shares,
    split_after_look=after_look_shares,
    stages=as_one_stages,
    noise_level=as_one_noise_level,
    run=as_one_tight,
    forecast=forecast,
    resume=release_as_one,
    one_model=True,
)
"""The paper's Algorithms 1 and 3 are this for two tables and for several: see `paper`."""
