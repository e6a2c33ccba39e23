"""Heavy values of the join key table by table, light ones as one capped join.

At one value of the key the join is a cross product. A heavy value's rows can be modelled in each table by itself, where
a row moves one cell by one, however many join results it is in. Light values together are one join, and capped. A row
is heavy or light and in one table, so every part spends all that is left.

Which values are heavy is decided from noisy degrees. Where every value of the key is declared, there is nothing to hide
about which of them occur: each one's degree is measured with plain noise. Elsewhere degrees are listed where they
exceed a threshold that noise hardly ever does; values that are not listed in all tables are light.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpjoin import constants
from dpjoin.errors import SpecError
from dpjoin.measure.estimates import Left, likely_size
from dpjoin.measure.join import domain_of, is_large, measure_join
from dpjoin.measure.progress import Progress
from dpjoin.measure.ranks import EDGES
from dpjoin.measure.shares import half_width, round_down
from dpjoin.measure.totals import measure_total
from dpjoin.methods import fading
from dpjoin.methods.capped import best_candidate, grown, look_stages
from dpjoin.methods.common_key import cells_of, check_common, common_attributes, everywhere, listed_degrees, part_facts
from dpjoin.methods.correlated_degrees import correlation_range, key_degrees, key_error
from dpjoin.methods.look import (
    Caps,
    Look,
    LookShares,
    closer_look,
    fading_price,
    first_look,
    look_shares,
    measure_candidates,
    price_for,
    ranked_by,
    rows_left,
)
from dpjoin.methods.method import GAUSSIAN_NOISE, TRUNCATED_GAUSSIAN, Method, Outcome, Stage
from dpjoin.methods.noise_forecast import MEAN_DEVIATION, clear_share, fitted_noise, fitted_variance, size_noise
from dpjoin.methods.refusals import refuse_enforced, refuse_replacement
from dpjoin.methods.remainder import Remainder, after_look_budget, remainders, rest_of
from dpjoin.methods.table_models import (
    check_joinable,
    kept_attributes,
    measure_tables,
    measured_scopes,
    own_scopes,
    shared_attributes,
)
from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.model.terms import FloatArray
from dpjoin.model.threads import one_blas_thread
from dpjoin.model.union import Part, Union
from dpjoin.privacy.accounting import Budget, Concentrated, Split, laplace_cost
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import Labels, OneTable, Rules, Value
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import CELLS, Workload, kronecker

HEAVY = 1
"""The bucket of heavy values; light ones have 0."""
HEAVY_CELLS = 2**17
"""Of a table's model of the heavy values: beyond, fewer values are heavy."""
DECLARED_VALUES = 2**20
"""A key with more values is treated as one whose values are not declared."""
TRIED_VALUES = 2**17
"""How many values, the most frequent first, the choice looks at."""


def check_heavy_light(schema: Schema, workload: Workload | None = None) -> None:
    refuse_replacement(schema, "heavy_light")
    check_common(schema, "heavy_light")
    if len(schema.private_tables) < len(schema.tables):
        raise SpecError("method 'heavy_light' must have private tables only; use method 'auto'")
    check_joinable(schema, shared_attributes(schema, common_attributes(schema)), "heavy_light")
    refuse_enforced(schema, "heavy_light", "uniformize")


def is_declared(schema: Schema) -> bool:
    """Whether every value of the key is public, and they are not too many."""
    common = common_attributes(schema)
    try:
        check_joinable(schema, common, "heavy_light")
    except SpecError:
        return False
    return schema.cells(common) <= DECLARED_VALUES


# The budget


@dataclass(frozen=True)
class HeavyLightShares:
    """The split: a look, degrees, then the rest for light values and for each table's heavy ones."""

    split: Split
    look: LookShares
    degrees: Concentrated
    width: int | None
    """The half-width of listed degrees; None where all degrees are measured."""
    sizes: Concentrated
    """Of light values under a few caps, together."""
    count: Concentrated


def heavy_light_shares(budget: Budget, schema: Schema) -> HeavyLightShares:
    aside = Fraction(0) if is_declared(schema) else budget.exact.delta * constants.TRUNCATION_SHARE
    return after_look_shares(Split(budget=budget, truncation_delta=aside), schema)


def after_look_shares(split: Split, schema: Schema) -> HeavyLightShares:
    """Degrees, and the rest, of what a look leaves."""
    look, width = look_shares(split, schema), None
    degrees = Concentrated(round_down(split.rho * constants.DEGREES_SHARE))
    if not is_declared(schema):
        degrees = Concentrated(round_down(split.rho * constants.LIST_SHARE), split.truncation_delta)
        width = half_width(split.budget.composition, degrees.rho, degrees.delta, moves=1)
    left = split.rho - look.whole - degrees.rho
    sizes, count = (Concentrated(round_down(left * share)) for share in (constants.SIZES_SHARE, constants.COUNT_SHARE))
    return HeavyLightShares(split, look, degrees, width, sizes, count)


def stages(shares: HeavyLightShares, workload: Workload) -> tuple[Stage, ...]:
    whole, width = shares.split.rho, shares.width
    found = look_stages(shares.split, shares.look, workload.schema, "of the join")
    note = "of every value of the key in each table, unbiased"
    if width is not None:
        note = f"with a shift of {width} on average; values above {2 * width} may be heavy"
    mechanism = GAUSSIAN_NOISE if width is None else TRUNCATED_GAUSSIAN
    found.append(Stage("degrees", mechanism, float(shares.degrees.rho / whole), note))
    found.append(Stage("sizes", GAUSSIAN_NOISE, float(shares.sizes.rho / whole), "of light values under a few caps"))
    found.append(Stage("join size", GAUSSIAN_NOISE, float(shares.count.rho / whole), "of light values, unbiased"))
    note = "of light values as one join, of heavy ones table by table; each has all of it"
    return *found, Stage("queries", GAUSSIAN_NOISE, 1 - sum(s.share for s in found), note)


@dataclass(frozen=True)
class DegreeCost:
    """What degrees cost, how far off they are, and what they leave, as rho of Gaussian noise."""

    cost: Concentrated
    deviation: float
    least: float
    """A value must have more rows than this in every table to be heavy, lest noise be multiplied."""
    heavy: Fraction
    light: Fraction


def degrees_with(shares: HeavyLightShares, left: Remainder) -> DegreeCost:
    if left.laplace:
        cost = laplace_cost(round_down(left.epsilon * constants.DEGREES_EPSILON))
        rest = (1 - constants.DEGREES_EPSILON) ** 2
        deviation = math.sqrt(2) / float(cost.epsilon)
        return DegreeCost(cost, deviation, 2 * deviation, left.one_table * rest, left.capped * rest)
    cost, deviation = shares.degrees, 1 / math.sqrt(2 * float(shares.degrees.rho))
    least = 2 * deviation if shares.width is None else float(shares.width)
    return DegreeCost(cost, deviation, least, left.one_table - cost.rho, left.capped - cost.rho)


# The release


def heavy_light_tight(curator: Curator, workload: Workload, shares: HeavyLightShares, progress: Progress) -> Outcome:
    """The `tight` profile. Spends the whole budget."""
    look = None
    if shares.look.first_ranks is not None:
        look = first_look(curator, workload, shares.look)
        chosen, left = best_remainder(look, shares)
        if chosen.heavy and left.laplace:
            return release_heavy_light(look, left, shares, progress)
    look = closer_look(curator, workload, shares.look, look)
    return release_heavy_light(look, best_remainder(look, shares)[1], shares, progress)


def best_remainder(look: Look, shares: HeavyLightShares) -> tuple[Choice, Remainder]:
    """The better noise to go on with; a listed degree has Gaussian noise."""
    ways = remainders(look.curator, look.workload)[: 1 if shares.width is not None else None]
    return min(((choice_after(look, left, shares), left) for left in ways), key=lambda way: way[0].error)


def forecast(look: Look, left: Remainder, shares: HeavyLightShares) -> float | None:
    """Noise of heavy and light values, and what caps lose of light ones.

    What several models add up to must be written down. After a first look the tables' degrees must be correlated; with
    Laplace noise there must be both kinds of values then: all heavy is `per_table` with less to spend. After a closer
    look, none heavy is `capped` with less to spend.
    """
    schema, early = look.curator.schema, look.levels is None
    if is_large(look.workload) or (left.laplace and shares.width is not None):
        return None
    common, size = common_attributes(schema), max(1.0, look.size.noisy)
    if len(ranked_by(look.ranks, common)) < len(schema.tables):
        return None
    chosen = choice_after(look, left, shares)
    keys = key_degrees(schema, look.ranks, size) if shares.width is None else []
    if early and (
        correlation_range(schema, look.ranks, look.size)[1] < constants.LIKELY_CORRELATED
        or (left.laplace and not (0 < chosen.heavy < schema.cells(common)))
        or (left.laplace and not (look.visible and keys and keys[0].correlation >= constants.LIKELY_CORRELATED))
    ):
        return None
    if not early and not chosen.heavy:
        return None
    asked = size * key_error(look.workload, keys, left.one_table) if keys else 0.0
    return (chosen.error + asked) / (constants.HEAVY_GAIN if shares.width is None and not early else 1.0)


def release_heavy_light(look: Look, left: Remainder, shares: HeavyLightShares, progress: Progress) -> Outcome:
    """Degrees, a choice from noisy numbers, then both kinds of values with all that is left."""
    curator, workload, schema = look.curator, look.workload, look.curator.schema
    common, degrees = common_attributes(schema), degrees_with(shares, left)
    chosen = choice_after(look, left, shares)
    if left.laplace:
        curator.exchange()
    progress("degrees", 0, 1)
    known = list_values(curator, degrees, shares.width) if shares.width is not None else all_values(curator, degrees)
    progress("degrees", 1, 1)
    labels = known.labelled(chosen.heavy)
    values = list(labels.buckets)
    parts: dict[str, Mapping[str, Rules] | OneTable] = {"light values": everywhere(schema, labels, 0)}
    if values:
        for table in schema.tables:
            kept = kept_attributes(workload, table.name, common)
            parts[f"heavy values of {table.name}"] = OneTable(table.name, kept, labels, HEAVY)
    whole, *others = curator.restrict("parts", parts, [rest_of(curator)] * len(parts))
    candidates: list[Caps] = [{(t.name, common): cap for t in schema.tables} for cap in caps_around(chosen.cap)]
    sizes = whole.rho_left / 2 if left.laplace else shares.sizes.rho
    each = Concentrated(round_down(sizes / len(candidates)))
    promised = [float(chosen.lost[EDGES.index(max(caps.values()))]) for caps in candidates]
    models: dict[str, Part] = {}
    facts = []
    with one_blas_thread():
        measured = measure_candidates(whole, candidates, each, fading_price(workload))
        lost = [loss / (max(1.0, m.total.noisy) + loss) for loss, m in zip(promised, measured, strict=True)]
        # A promise may be off by a factor of three.
        kept_shares = [Left(1 - share / 3, max(constants.LEAST_KEPT, 1 - 3 * share)) for share in lost]
        size = likely_size([m.total for m in measured], kept_shares)
        rho = degrees.light if left.laplace else whole.rho_left
        best = best_candidate(workload, measured, rho, promised=promised, unseen=promised[0], whole=size)
        light, cap = best.candidate, max(best.candidate.caps.values())
        count = Concentrated(whole.rho_left) if left.laplace else shares.count
        total = light.total.combined(measure_total(light.curator, light.bound, count))
        support = cells_of(workload, everywhere(schema, labels, 0))
        model, strategy = measure_join(light.curator, workload, light.bound, total, progress, support=support)
        models["light values"] = model = grown(model, best.lost)
        within = f"at most {cap}" if light.price is None else f"fading beyond {cap}"
        told, changed = f"all but the heavy ones, {within} rows of each in a table", math.ceil(light.results)
        facts.append(part_facts(0, told, changed, round(model.total), strategy, predicted_error=best.error))
        if values:
            named = dict(zip((t.name for t in schema.tables), others, strict=True))
            tables = measure_tables(workload, named, common, listed=True, progress=progress)
            models["heavy values"] = joined = joined_heavy(workload, tables, common, values)
            told, strategy = f"{len(values)} heavy", "each table by itself, joined afterwards"
            facts.append(part_facts(1, told, 1, round(joined.total), strategy, predicted_error=chosen.heavy_error))
    union = Union(tuple(models.values()), tuple(models))
    strategy = f"{len(values)} heavy values table by table, the rest as one join, {within} rows of each"
    return Outcome(union, changed, max(1, round(union.total)), strategy, tuple(facts))


def joined_heavy(
    workload: Workload, tables: tuple[Model, ...], common: Sequence[str], heavy: Sequence[Value]
) -> Joined:
    """The heavy values' models, and the code of each value for the key attributes that queries look at."""
    codes = {}
    for at, a in enumerate(common):
        if a in workload.attributes:
            found = [workload.schema.attribute(a).code(value[at]) for value in heavy]
            codes[a] = np.array([-1 if code is None else code for code in found], dtype=np.int64)
    listed = tables[0].domain.attributes[0]
    return Joined(domain_of(workload), tables, listed, codes)


# Which values


@dataclass(frozen=True, eq=False)
class Known:
    """Noisy degrees of values in every table, unbiased, and how to label some of them as heavy."""

    rows: Mapping[str, FloatArray]
    least: float
    labels: Callable[[NDArray[np.int64]], Labels]

    def labelled(self, most: int) -> Labels:
        """The values with most join results, at most so many, of which no table has too few rows."""
        order = np.argsort(-mean_rows(self.rows), kind="stable")
        clear = np.min(list(self.rows.values()), axis=0) > self.least
        return self.labels(np.sort(order[clear[order]][:most]))


def all_values(curator: Curator, degrees: DegreeCost) -> Known:
    """How many rows each declared value of the key has in each table. A row is in one table."""
    schema, common = curator.schema, common_attributes(curator.schema)
    parts = {f"degrees of {t.name}": OneTable(t.name, common) for t in schema.tables}
    single = curator.restrict("degrees", parts, [degrees.cost] * len(parts))
    rows = {}
    for table, one_table in zip(schema.tables, single, strict=True):
        bound = one_table.public_bound()
        assert bound is not None, "a table by itself has sensitivity one"
        group = kronecker(one_table.schema, dict.fromkeys(common, CELLS))
        rows[table.name] = one_table.measure(group, bound, degrees.cost).values

    def labels(cells: NDArray[np.int64]) -> Labels:
        declared = [schema.attribute(a).labels for a in common]
        codes = np.unravel_index(cells, schema.shape(common))
        columns = [[of[i] for i in code.tolist()] for of, code in zip(declared, codes, strict=True)]
        return curator.labels("heavy", [], dict.fromkeys(zip(*columns, strict=True), HEAVY), attributes=common)

    return Known(rows, degrees.least, labels)


def list_values(curator: Curator, degrees: DegreeCost, width: int) -> Known:
    """The values that some table has so many rows of that they are listed; of one that a table does not list, none."""
    found = listed_degrees(curator, degrees.cost, width)
    values = sorted({v for d in found.values() for v in d.listed}, key=repr)
    rows = {t: np.array([float(d.listed.get(v, width) - width) for v in values]) for t, d in found.items()}

    def labels(which: NDArray[np.int64]) -> Labels:
        return curator.labels("heavy", list(found.values()), {values[i]: HEAVY for i in which.tolist()})

    return Known(rows, degrees.least, labels)


def mean_rows(rows: Mapping[str, FloatArray]) -> FloatArray:
    """By value, the geometric mean of the tables' rows: to the power of the tables, its join results."""
    return np.asarray(np.exp(np.mean([np.log(np.maximum(r, 1.0)) for r in rows.values()], axis=0)))


# How many, and where to cap the others


@dataclass(frozen=True, eq=False)
class Choice:
    """How many values are heavy, about where light ones are capped, and the error of that, in join results."""

    heavy: int
    cap: int
    lost: FloatArray
    """By edge, about how many join results of light values a cap there cuts."""
    error: float
    heavy_error: float


def choice_after(look: Look, left: Remainder, shares: HeavyLightShares) -> Choice:
    """The best choice, by ranks, if the budget is spent so."""
    schema = look.curator.schema
    ranked = ranked_by(look.ranks, common_attributes(schema)) or {schema.tables[0].name: np.ones(1)}
    return best_choice(look.workload, ranked, degrees_with(shares, left))


def best_choice(workload: Workload, sequences: Mapping[str, FloatArray], degrees: DegreeCost) -> Choice:
    """How many values to take as heavy and about where to cap the others, from the tables' degrees by rank.

    A function of noisy ranks alone. The most frequent values are taken to be the same in all tables. Which values are
    heavy goes by noisy degrees, so some are missed: as many as in a trial with noise of the same size.
    """
    schema, common = workload.schema, common_attributes(workload.schema)
    tables, declared = len(schema.tables), is_declared(schema)
    values = min(schema.cells(common) if declared else max(map(len, sequences.values())), TRIED_VALUES)
    rows = {t: np.append(s, np.zeros(max(0, values - len(s))))[:values] for t, s in sequences.items()}
    # Public randomness: this is a forecast, and the same for the same noisy ranks.
    noise = degrees.deviation / math.sqrt(tables) * np.random.default_rng(0).standard_normal(values)
    clear = np.min(list(rows.values()), axis=0) > degrees.least
    order = np.lexsort((-(mean_rows(rows) + noise), ~clear))
    cells = max(schema.cells(kept_attributes(workload, t.name, common)) for t in schema.tables)
    most = min(int(clear.sum()), HEAVY_CELLS // max(1, cells))
    heavy = {t: r[order[:most]] for t, r in rows.items()}
    errors, blur = heavy_errors(workload, heavy, degrees.heavy), blurred(workload, heavy, degrees.heavy)
    counts = sorted({0, most, *(int(c) for c in np.geomspace(1, max(1, most), 40) if c <= most)})
    # One cap serves all tables, so it may have to leave the largest degree of any.
    caps = [e for e in EDGES if e <= max(1.0, 2 * max(float(r.max(initial=0.0)) for r in rows.values()))]
    price = fading_price(workload)
    results = np.prod(list(rows.values()), axis=0)
    light = np.array([light_noise(workload, cap, float(results.sum()), degrees.light, price) for cap in caps])
    lost = np.zeros((len(counts), len(EDGES)))
    for at, cap in enumerate(caps):
        kept = np.prod([rows_left(r, cap, price_for(cap, price)) for r in rows.values()], axis=0)
        beyond = np.maximum(results - kept, 0.0)[order]
        lost[:, at] = np.append(np.cumsum(beyond[::-1])[::-1], 0.0)[counts]
    best: Choice | None = None
    for count, cut in zip(counts, lost, strict=True):
        heavy_error, blurs = (float(errors[count - 1]), float(blur[count - 1])) if count else (0.0, 0.0)
        total = np.hypot(light, heavy_error) + blurs + constants.LOST * cut[: len(caps)]
        at = int(np.argmin(total))
        if best is None or total[at] < best.error:
            best = Choice(count, caps[at], cut, float(total[at]), heavy_error)
    assert best is not None
    return best


def light_noise(workload: Workload, cap: int, size: float, rho: Fraction, price: float | None) -> float:
    """Of light values under a cap, as in `capped`."""
    others, price = len(workload.schema.tables) - 1, price_for(cap, price)
    if price is None:
        results = float(cap) ** others
        bound = results * math.sqrt(2)
    else:
        together = float(rows_left(np.array([fading.REACH * cap / 2]), cap, price)[0])
        bound = results = price * together**others
    return fitted_noise(workload, bound=bound, size=size, rho=rho) + size_noise(results, rho)


def heavy_errors(workload: Workload, sizes: Mapping[str, FloatArray], rho: Fraction) -> FloatArray:
    """By how many of the first values are heavy, the error of their models' join, averaged over the workload's scopes.

    A cell at one value is a product of one count for each table, each about size/cells with noise of its own.
    """
    schema, common = workload.schema, common_attributes(workload.schema)
    noise = {t: len(own_scopes(workload, t, common)) / (2 * float(rho)) for t in sizes}
    errors = []
    for scope in measured_scopes(workload):
        both = clean = np.ones(len(next(iter(sizes.values()))))
        for t, size in sizes.items():
            own = [a for a in scope if a in schema.table(t).attributes and a not in common]
            squared = (size / schema.cells(tuple(own))) ** 2
            both, clean = both * (squared + fitted_variance(noise[t], squared)), clean * squared
        cells = schema.cells(tuple(a for a in scope if a not in common))
        errors.append(MEAN_DEVIATION * constants.SHRINKAGE * cells * np.sqrt(np.cumsum(both - clean)))
    return np.asarray(np.mean(errors, axis=0))


def blurred(workload: Workload, sizes: Mapping[str, FloatArray], rho: Fraction) -> FloatArray:
    """By how many of the first values are heavy, what their models blur, in join results.

    Where a value has a low signal-to-noise ratio, the fit gives it the shape of all others. That is about one attribute
    at a time: how several go together is measured for all values at once.
    """
    common = common_attributes(workload.schema)
    results = np.prod(list(sizes.values()), axis=0)
    clear = np.prod([clear_share(workload, t, common, size, rho) for t, size in sizes.items()], axis=0)
    return np.asarray(constants.BLUR * np.cumsum(results * (1 - clear)))


def caps_around(cap: int) -> list[int]:
    """This cap, and two more generous ones, which tell what it loses; the largest first."""
    at = EDGES.index(cap)
    return sorted({EDGES[min(at + step, len(EDGES) - 1)] for step in (5, 2, 0)}, reverse=True)


HEAVY_LIGHT = Method(
    name="heavy_light",
    why=lambda _: "heavy values of the common key table by table, light ones as one join, at most so many rows of each",
    check=check_heavy_light,
    spendable=after_look_budget,
    split=heavy_light_shares,
    split_after_look=after_look_shares,
    stages=stages,
    run=heavy_light_tight,
    forecast=forecast,
    resume=release_heavy_light,
)
