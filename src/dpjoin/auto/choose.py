"""`auto`: one look, one forecast for each method, one minimum.

The look is what `capped` begins with: noisy ranks of each table, and noisy join sizes under a few caps. From these each
method forecasts its own error, in join results, and the one with the least runs with all that is left. Where rho may be
exchanged for Laplace noise, forecasts are made for both, and there is a smaller look first: if that is enough, more
Laplace noise is to be had. All forecasts are functions of noisy numbers, so the choice costs nothing beyond the look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from dpjoin import constants
from dpjoin.engine.interface import Engine
from dpjoin.measure.progress import Progress
from dpjoin.methods.as_one import as_one_name
from dpjoin.methods.capped import CAPPED, CappedShares, capped_noise_level, capped_stages, check_capped, split_capped
from dpjoin.methods.clipped import CLIPPED, measure_owners, split_clipped
from dpjoin.methods.heavy_light import HEAVY_LIGHT, is_declared
from dpjoin.methods.look import Look, closer_look, first_look
from dpjoin.methods.method import Method, Outcome, Stage
from dpjoin.methods.per_table import PER_TABLE
from dpjoin.methods.public_partners import public_partner_errors
from dpjoin.methods.remainder import Remainder, after_look_budget, joinable, laplace_remainder, remainders
from dpjoin.paper.alg1_two_table import SINGLE_TABLE, TWO_TABLE
from dpjoin.paper.alg3_multi_table import MULTI_TABLE
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public
from dpjoin.privacy.public_tables import public_counts
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload

AS_ONE = {m.name: m for m in (SINGLE_TABLE, TWO_TABLE, MULTI_TABLE)}


def method_without_look(schema: Schema, profile: str) -> Method:
    """What `auto` stands for on this join: the join as one table where there is nothing to cap, else a look."""
    if schema.unit:
        as_one = AS_ONE[as_one_name(schema)]
        return next((m for m in (CLIPPED, as_one, PER_TABLE) if m.serves(schema)), CLIPPED)
    looks = profile == "tight" and len(schema.tables) > 1 and AUTO.serves(schema)
    return AUTO if looks else AS_ONE[as_one_name(schema)]


def method_with_public_tables(
    engine: Engine, workload: Workload, budget: Budget, default: Method
) -> tuple[Method, Mapping[str, float]]:
    """One private table with public ones: as one join, or by itself. What the public ones hold decides, at no cost."""
    as_one, apart = (m.spendable(budget, workload) for m in (AS_ONE[as_one_name(workload.schema)], PER_TABLE))
    laplace = laplace_remainder(workload, budget.exact.epsilon)
    errors = public_partner_errors(
        workload,
        partial(public_counts, engine),
        as_one=laplace.as_one if as_one.laplace else as_one.rho(),
        one_table=laplace.one_table if apart.laplace else apart.rho(),
    )
    best = min(errors, key=errors.__getitem__, default=default.name)
    return PER_TABLE if best == PER_TABLE.name else default, errors


# The look and the choice


@dataclass(frozen=True)
class AutoShares:
    """The split: the look, then whatever is chosen takes the rest."""

    capped: CappedShares
    methods: Mapping[str, tuple[Method, object]]
    """The methods that serve, with their shares of what the look leaves."""

    owners: Concentrated
    """For the histogram of owners, where clipping serves and rho is not to be exchanged."""

    @property
    def split(self) -> Split:
        return self.capped.split


def auto_shares(budget: Budget, schema: Schema) -> AutoShares:
    """Split a budget; delta is set aside where a noisy bound or listed degrees may need it."""
    serving = [m for m in (AS_ONE[as_one_name(schema)], CAPPED, CLIPPED, HEAVY_LIGHT, PER_TABLE) if m.serves(schema)]
    lists = HEAVY_LIGHT in serving and not is_declared(schema)
    aside = budget.exact.delta * constants.AUTO_DELTA if lists or not bound_is_public(schema) else Fraction(0)
    split = Split(budget=budget, truncation_delta=aside)
    methods = {m.name: (m, m.split_after_look(split, schema)) for m in serving if m.split_after_look is not None}
    return AutoShares(split_capped(split, schema), methods, split_clipped(split, schema).owners)


@dataclass(frozen=True)
class Forecast:
    """What error to expect of a method, in join results, and with which noise."""

    method: str
    left: Remainder
    error: float


def forecasts(look: Look, left: Remainder, shares: AutoShares) -> list[Forecast]:
    """The error of each method that can go on from this look: a function of noisy numbers alone."""
    found = []
    for name, (method, own) in shares.methods.items():
        if method.forecast is not None and method.serves(look.curator.schema, look.workload):
            error = method.forecast(look, left, own)
            if error is not None:
                found.append(Forecast(name, left, error))
    return found


def least(some: Sequence[Forecast]) -> Forecast | None:
    return min(some, key=lambda f: f.error, default=None)


def early_forecasts(look: Look, shares: AutoShares) -> list[Forecast]:
    """Forecasts for Laplace noise at once, if one of them is the least; none where it takes a closer look."""
    curator, workload = look.curator, look.workload
    gaussian, *laplace = remainders(curator, workload)
    if not laplace:
        return []
    after = laplace_remainder(workload, min(option.epsilon for option in curator.options))
    now = forecasts(look, laplace[0], shares)
    later = [f for left in (gaussian, after) for f in forecasts(look, left, shares)]
    if not any(f.method == HEAVY_LIGHT.name for f in later):  # which also stands for `capped` here
        now = [f for f in now if f.method not in AS_ONE]
    best = least([*now, *later])
    return now if best in now else []


def auto_tight(curator: Curator, workload: Workload, shares: AutoShares, progress: Progress) -> Outcome:
    """Look, choose, release. Spends all of rho, whatever is chosen."""
    look, found = None, list[Forecast]()
    progress("look", 0, 1)
    if shares.capped.look.first_ranks is not None and joinable(curator.schema):
        look = first_look(curator, workload, shares.capped.look)
        found = early_forecasts(look, shares)
    if not found:
        look = closer_look(curator, workload, shares.capped.look, look)
        if CLIPPED.name in shares.methods and not curator.options:
            look = replace(look, owners=measure_owners(curator, shares.owners))
        found = [f for left in remainders(curator, workload) for f in forecasts(look, left, shares)]
    progress("look", 1, 1)
    best = least(found)
    assert best is not None, "the join as one table always serves"
    assert look is not None
    method, own = shares.methods[best.method]
    assert method.resume is not None
    outcome = method.resume(look, best.left, own, progress)
    errors = {f.method: min(g.error for g in found if g.method == f.method) for f in found}
    return replace(outcome, method=best.method, predicted=errors, rows=look.rows)


def stages(shares: AutoShares, workload: Workload) -> tuple[Stage, ...]:
    rest = "of what the caps leave, or another method measures"
    return capped_stages(shares.capped, workload, "which method has the least error, where to cap", rest)


AUTO = Method(
    name="auto",
    why=lambda _: "noisy degrees decide: cap rows, clip join results, split off heavy values, or model each table",
    check=check_capped,
    spendable=after_look_budget,
    split=auto_shares,
    stages=stages,
    noise_level=lambda shares, workload, degree: capped_noise_level(shares.capped, workload, degree),
    run=auto_tight,
    one_model=True,
    reads_public_bounds=True,
)
