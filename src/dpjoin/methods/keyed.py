"""Keyed: the hybrid for a key whose values are all declared.

Where every value of the key is public, there is nothing to hide about which values occur. So each table's degrees are
measured for all of them with plain noise, without a threshold that only large degrees exceed. Heavy values go table by
table, as in the hybrid. Light ones are one join, and capped: where noise misjudged a value, its rows fade a little or a
few are cut, and no bound has to allow for the largest noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpjoin.errors import SpecError
from dpjoin.measure.estimates import LEAST_KEPT, Left, likely_size
from dpjoin.measure.join import measure_join
from dpjoin.measure.progress import Progress
from dpjoin.measure.ranks import EDGES, degree_sequence
from dpjoin.measure.shares import COUNT_SHARE, results_of, round_down
from dpjoin.measure.totals import NoisyTotal, measure_total
from dpjoin.methods import fading
from dpjoin.methods.as_one import Outcome
from dpjoin.methods.capped import (
    LOST,
    RANKS_SHARE,
    SIZES_SHARE,
    Caps,
    best_candidate,
    fading_price,
    grown,
    look_shares,
    measure_candidates,
    measure_ranks,
    rows_left,
)
from dpjoin.methods.finish import Finish, finishes, rest_of
from dpjoin.methods.hybrid import HEAVY, MOST_CELLS, blurred, check_hybrid, heavy_errors, joined_heavy
from dpjoin.methods.parts import cells_of, fitted_noise, part_facts, settled, size_noise
from dpjoin.methods.table_models import check_joinable, kept_attributes, measure_alone
from dpjoin.model.terms import FloatArray
from dpjoin.model.threads import one_blas_thread
from dpjoin.model.union import Part, Union
from dpjoin.paper.alg4_uniformize import common_attributes, everywhere
from dpjoin.privacy.accounting import Budget, Concentrated, Split, laplace_cost
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import NoisyRanks, OneTable, Rules, Value
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import CELLS, Workload, kronecker

DEGREES_SHARE = Fraction(10, 100)
"""Of rho, for the degrees of all values: off by about thirteen at (1, 1e-6). Errors are flat from 0.04 to 0.15."""
DEGREES_EPSILON = Fraction(12, 100)
"""The same of epsilon, if what is left is Laplace noise."""
SUMS_APART = Fraction(1, 2)
"""What is left of that, about, for heavy values: sums over values and single values share it, and shares of epsilon
count squared."""
ONE_SIDED = 8.0
"""So many deviations of a noisy degree are certainly many rows."""
MUCH_LOST = 0.05
"""Of the join: where a trial loses more to a cap, a more generous one is looked for."""
MOST_VALUES = 2**20
"""Of the key."""
TRIED_VALUES = 2**17
"""How many values, the most frequent first, the choice looks at."""


def check_keyed(schema: Schema) -> None:
    check_hybrid(schema, "keyed")
    if any(t.enforce and t.bounds for t in schema.tables):
        raise SpecError(
            "method 'keyed' removes rows itself, so no bounds must be enforced; remove bounds = \"enforce\", or use "
            "method 'hybrid'"
        )
    common = common_attributes(schema)
    check_joinable(schema, common, "keyed")
    if schema.cells(common) > MOST_VALUES:
        raise SpecError(
            f"the key's domain ({schema.cells(common):,} values) must be at most {MOST_VALUES:,}; use method 'auto'"
        )


@dataclass(frozen=True)
class KeyedShares:
    """The split: ranks, degrees, then the rest for light values and for each table's heavy ones."""

    split: Split
    ranks: Concentrated
    degrees: Concentrated
    sizes: Concentrated
    """Of light values under a few caps, together."""
    count: Concentrated
    first: Concentrated | None = None
    """For a first look at ranks, after which an early exchange for Laplace noise is due."""


def keyed_shares(budget: Budget, _: Schema) -> KeyedShares:
    split = Split(budget=budget)
    return split_keyed(split, RANKS_SHARE)


def split_keyed(split: Split, before: Fraction) -> KeyedShares:
    """After this share of rho is spent on ranks, and on whatever else was looked at."""
    degrees = Concentrated(round_down(split.rho * DEGREES_SHARE))
    left = split.rho * (1 - before) - degrees.rho
    look = look_shares(split)
    return KeyedShares(
        split,
        Concentrated(round_down(look.ranks)),
        degrees,
        Concentrated(round_down(left * SIZES_SHARE)),
        Concentrated(round_down(left * COUNT_SHARE)),
        Concentrated(look.first_ranks) if look.first_ranks else None,
    )


@dataclass(frozen=True, eq=False)
class Choice:
    """How many values are heavy, about where light ones are capped, and what that promises, in join results."""

    heavy: int
    cap: int
    lost: FloatArray
    """By edge, about how many join results of light values a cap there cuts."""
    error: float
    heavy_error: float
    size: float
    """Of the join, about."""


def keyed_tight(curator: Curator, workload: Workload, shares: KeyedShares, progress: Progress) -> Outcome:
    """The `tight` profile. Spends the whole budget."""
    progress("ranks", 0, 1)
    ranks: list[NoisyRanks] = []
    if shares.first is not None:
        ranks = measure_ranks(curator, shares.first)
        chosen, finish = best_finish(curator, workload, shares, ranks)
        if chosen.heavy and finish.laplace:
            return release_keyed(curator, workload, shares, ranks, finish, progress)
    ranks = measure_ranks(curator, shares.ranks, before=ranks)
    progress("ranks", 1, 1)
    _, finish = best_finish(curator, workload, shares, ranks)
    return release_keyed(curator, workload, shares, ranks, finish, progress)


def best_finish(
    curator: Curator, workload: Workload, shares: KeyedShares, ranks: Sequence[NoisyRanks]
) -> tuple[Choice, Finish]:
    """The noise to go on with, and what it promises."""
    degrees = _by_rank(curator.schema, ranks)
    ways = [(keyed_choice(workload, degrees, shares, finish), finish) for finish in finishes(curator, workload)]
    return min(ways, key=lambda way: way[0].error)


def _by_rank(schema: Schema, ranks: Sequence[NoisyRanks]) -> dict[str, FloatArray]:
    """About each table's degrees by the key, the largest first."""
    common = common_attributes(schema)
    return {next(iter(r.question.rules)): degree_sequence(r) for r in ranks if r.question.by == common}


def keyed_choice(
    workload: Workload, sequences: Mapping[str, FloatArray], shares: KeyedShares, finish: Finish
) -> Choice:
    """What to expect, if the budget is finished so."""
    heavy, light = _worth(shares, finish)
    cost = _for_degrees(shares, finish)
    return best_choice(workload, sequences, degrees_cost=cost, rho=heavy, light_rho=light)


def _worth(shares: KeyedShares, finish: Finish) -> tuple[Fraction, Fraction]:
    """What is left after the degrees, as rho of Gaussian noise: for heavy values, and for light ones."""
    if not finish.laplace:
        return finish.alone - shares.degrees.rho, finish.pushed - shares.degrees.rho
    left = (1 - DEGREES_EPSILON) ** 2
    return finish.alone * left * SUMS_APART, finish.pushed * left


def _for_degrees(shares: KeyedShares, finish: Finish) -> Concentrated:
    """What the degrees of all values cost."""
    if not finish.laplace:
        return shares.degrees
    return laplace_cost(round_down(finish.epsilon * DEGREES_EPSILON))


def release_keyed(
    curator: Curator,
    workload: Workload,
    shares: KeyedShares,
    ranks: Sequence[NoisyRanks],
    finish: Finish,
    progress: Progress,
) -> Outcome:
    """Degrees of all values, a choice from noisy numbers, then both kinds of values with all that is left."""
    schema, common = curator.schema, common_attributes(curator.schema)
    if finish.laplace:
        curator.exchange()
    progress("degrees", 0, 1)
    degrees_cost = _for_degrees(shares, finish)
    degrees = _noisy_degrees(curator, degrees_cost)
    progress("degrees", 1, 1)
    chosen = keyed_choice(workload, _by_rank(schema, ranks), shares, finish)
    _, rho = _worth(shares, finish)
    weight, clear = _weight(degrees), _clear(degrees, degrees_cost)
    first = [cell for cell in np.argsort(-weight, kind="stable").tolist() if clear[cell]][: chosen.heavy]
    heavy = np.sort(np.array(first, dtype=np.int64))
    values = _values(schema, common, heavy)
    labels = curator.labels("heavy", [], dict.fromkeys(values, HEAVY), attributes=common)
    parts: dict[str, Mapping[str, Rules] | OneTable] = {"light values": everywhere(schema, labels, 0)}
    if values:
        for table in schema.tables:
            kept = kept_attributes(workload, table.name, common)
            parts[f"heavy values of {table.name}"] = OneTable(table.name, kept, labels, HEAVY)
    whole, *others = curator.restrict("parts", parts, [rest_of(curator)] * len(parts))
    chosen = with_one_sided(workload, chosen, degrees, clear, deviation=_deviation(degrees_cost), rho=rho)
    candidates: list[Caps] = [{(t.name, common): cap for t in schema.tables} for cap in _around(chosen.cap)]
    sizes = whole.rho_left / 2 if finish.laplace else shares.sizes.rho
    each = Concentrated(round_down(sizes / len(candidates)))

    promised = [float(chosen.lost[EDGES.index(caps[schema.tables[0].name, common])]) for caps in candidates]
    models: dict[str, Part] = {}
    facts = []
    with one_blas_thread():
        measured = measure_candidates(whole, candidates, each, fading_price(workload))
        lost = [loss / (max(1.0, m.total.noisy) + loss) for loss, m in zip(promised, measured, strict=True)]
        # A promise may be off by a factor of three.
        left = [Left(1 - share / 3, max(LEAST_KEPT, 1 - 3 * share)) for share in lost]
        size = likely_size([m.total for m in measured], left)
        left_rho = rho if finish.laplace else whole.rho_left
        light = best_candidate(workload, measured, left_rho, promised=promised, unseen=promised[0], whole=size)
        cap, bound = light.caps[schema.tables[0].name, common], light.bound
        count = Concentrated(whole.rho_left) if finish.laplace else shares.count
        total = light.total.combined(measure_total(light.curator, bound, count))
        support = cells_of(workload, everywhere(schema, labels, 0))
        model, strategy = measure_join(light.curator, workload, bound, total, progress, support=support)
        models["light values"] = model = grown(model, light.lost)
        within = f"at most {cap}" if light.price is None else f"fading beyond {cap}"
        told = f"all but the heavy ones, {within} rows of each in a table"
        changed = math.ceil(results_of(light.curator, bound))
        facts.append(part_facts(0, told, changed, round(model.total), strategy, predicted_error=light.error))
        if values:
            named = dict(zip((t.name for t in schema.tables), others, strict=True))
            rows = {table: found[heavy] for table, found in degrees.items()}
            tables = measure_alone(workload, named, common, listed=True, progress=progress, noisy_degrees=rows)
            models["heavy values"] = joined = joined_heavy(workload, tables, common, values)
            told, strategy = f"{len(values)} heavy", "each table alone, joined afterwards"
            facts.append(part_facts(1, told, 1, round(joined.total), strategy, predicted_error=chosen.heavy_error))
    union = Union(tuple(models.values()), tuple(models))
    strategy = f"{len(values)} heavy values table by table, the rest as one join, {within} rows of each"
    return Outcome(union, changed, max(1, round(union.total)), strategy, tuple(facts))


def _noisy_degrees(curator: Curator, cost: Concentrated) -> dict[str, FloatArray]:
    """How many rows each value of the key has in each table, unbiased. A row is in one table."""
    common = common_attributes(curator.schema)
    parts = {f"degrees of {t.name}": OneTable(t.name, common) for t in curator.schema.tables}
    found = {}
    for table, alone in zip(
        curator.schema.tables, curator.restrict("degrees", parts, [cost] * len(parts)), strict=True
    ):
        bound = alone.public_bound()
        assert bound is not None, "a table alone has sensitivity one"
        group = kronecker(alone.schema, dict.fromkeys(common, CELLS))
        found[table.name] = alone.measure(group, bound, cost).values
    return found


def _values(schema: Schema, common: tuple[str, ...], cells: NDArray[np.int64]) -> list[Value]:
    """The values of the key in some cells of its domain."""
    labels = [schema.attribute(a).labels for a in common]
    codes = np.unravel_index(cells, schema.shape(common))
    return list(zip(*([of[i] for i in code.tolist()] for of, code in zip(labels, codes, strict=True)), strict=True))


def best_choice(
    workload: Workload,
    sequences: Mapping[str, FloatArray],
    *,
    degrees_cost: Concentrated,
    rho: Fraction,
    light_rho: Fraction | None = None,
) -> Choice:
    """How many values to take as heavy and about where to cap the others, from what degrees are like in each table.

    The noise of heavy values is worth `rho`, that of light ones `light_rho`, or the same.

    A function of noisy ranks alone. The most frequent values are taken to be the same in all tables. Which values are
    heavy goes by noisy degrees, so some are missed: as many as in a trial with noise of the same size.
    """
    schema, common = workload.schema, common_attributes(workload.schema)
    values = min(schema.cells(common), TRIED_VALUES)
    tables = len(schema.tables)
    rows = {t: np.append(s, np.zeros(max(0, values - len(s))))[:values] for t, s in sequences.items()}
    weight = _weight(rows)
    light_rho = rho if light_rho is None else light_rho
    deviation = _deviation(degrees_cost) / math.sqrt(tables)
    # Public randomness: this is a forecast, and the same for the same noisy ranks.
    noisy = weight + deviation * np.random.default_rng(0).standard_normal(values)
    clear = _clear(rows, degrees_cost)
    order = np.lexsort((-noisy, ~clear))
    cells = max(schema.cells(kept_attributes(workload, t.name, common)) for t in schema.tables)
    most = min(int(clear.sum()), MOST_CELLS // max(1, cells))
    heavy = {t: r[order[:most]] for t, r in rows.items()}
    errors, blur = heavy_errors(workload, heavy, rho, weighed=True), blurred(workload, heavy, rho)
    counts = sorted({0, most, *(int(c) for c in np.geomspace(1, max(1, most), 40) if c <= most)})
    # One cap serves all tables, so it may have to leave the largest degree of any.
    caps = [e for e in EDGES if e <= max(1.0, 2 * max(float(r.max()) for r in rows.values()))]
    price = fading_price(workload)
    prices = [price if cap <= fading.LARGEST else None for cap in caps]
    results = np.prod(list(rows.values()), axis=0)
    size = float(results.sum())
    noise = np.array(
        [_noise(workload, cap, tables, size, light_rho, own) for cap, own in zip(caps, prices, strict=True)]
    )
    lost = np.zeros((len(counts), len(EDGES)))
    for at, (cap, own) in enumerate(zip(caps, prices, strict=True)):
        kept = np.prod([rows_left(r, cap, own) for r in rows.values()], axis=0)
        beyond = np.maximum(results - kept, 0.0)[order]
        lost[:, at] = np.append(np.cumsum(beyond[::-1])[::-1], 0.0)[counts]
    best: Choice | None = None
    for count, cut in zip(counts, lost, strict=True):
        heavy_error, blurs = (float(errors[count - 1]), float(blur[count - 1])) if count else (0.0, 0.0)
        total = np.hypot(noise, heavy_error) + blurs + LOST * cut[: len(caps)]
        at = int(np.argmin(total))
        if best is None or total[at] < best.error:
            best = Choice(count, caps[at], cut, float(total[at]), heavy_error, size)
    assert best is not None
    likely = _likely_losses(rows, best.heavy, list(zip(caps, prices, strict=True)), degrees_cost)
    at = caps.index(best.cap)
    if likely[at] > MUCH_LOST * size:
        # Values that were meant to be heavy and turn out light are cut as well.
        at = max(at, int(np.argmin(noise + LOST * likely)))
    return replace(best, cap=caps[at], lost=np.append(likely, np.zeros(len(EDGES) - len(caps))))


def with_one_sided(
    workload: Workload,
    chosen: Choice,
    degrees: Mapping[str, FloatArray],
    clear: NDArray[np.bool_],
    *,
    deviation: float,
    rho: Fraction,
) -> Choice:
    """The choice with what caps cut of values that one table has many rows of, and another hardly any.

    These are never heavy, and ranks do not tell of them: there the most frequent values are the same in all tables. By
    noisy degrees they are known, about. Where they make a difference the cap is chosen anew.
    """
    rows = {t: np.maximum(d, 0.0) for t, d in degrees.items()}
    one_sided = _one_sided(rows, clear, deviation)
    if not one_sided.any():
        return chosen
    tables, price = len(rows), fading_price(workload)
    few = {t: r[one_sided] for t, r in rows.items()}
    together = np.prod(list(few.values()), axis=0)
    # As it is, noise on either side of none: without what is below none, it would add up.
    results = settled(_results_of({t: d[one_sided] for t, d in degrees.items()}, deviation), None).noisy
    factor = results / max(1.0, float(together.sum()))
    caps = [e for e in EDGES if e <= 2 * max(float(r.max()) for r in few.values())]
    prices = [price if cap <= fading.LARGEST else None for cap in caps]
    lost = chosen.lost.copy()
    for at, (cap, own) in enumerate(zip(caps, prices, strict=True)):
        kept = np.prod([rows_left(r, cap, own) for r in few.values()], axis=0)
        lost[at] += factor * float(np.maximum(together - kept, 0.0).sum())
    least = EDGES.index(chosen.cap)
    errors = {
        cap: _noise(workload, cap, tables, chosen.size, rho, own) + LOST * float(lost[EDGES.index(cap)])
        for cap, own in zip(caps, prices, strict=True)
        if EDGES.index(cap) >= least
    }
    return replace(chosen, cap=min(errors, key=errors.__getitem__, default=chosen.cap), lost=lost)


def _results_of(degrees: Mapping[str, FloatArray], deviation: float) -> NoisyTotal:
    """How many join results some values have together, by noisy degrees; unbiased."""
    rows = np.array(list(degrees.values()))
    others = np.array([np.prod(np.delete(rows, n, axis=0), axis=0) for n in range(len(rows))])
    return NoisyTotal(float(rows.prod(axis=0).sum()), max(1.0, deviation * math.sqrt(float((others**2).sum()))))


def _likely_losses(
    rows: Mapping[str, FloatArray], heavy: int, caps: Sequence[tuple[int, float | None]], cost: Concentrated
) -> FloatArray:
    """About how many join results of light values each cap (with its price) cuts, in a trial of the whole procedure.

    Tables do not have exactly as many rows of a value as each other: they scatter as samples do. A cap cuts where one
    of them has more, and a value that noise makes too small in one of them stays light. What one table hardly has is
    left to `with_one_sided`.
    """
    public = np.random.default_rng(1)  # a forecast again
    deviation = _deviation(cost)
    trial = {t: np.maximum(r + np.sqrt(r) * public.standard_normal(len(r)), 0.0) for t, r in rows.items()}
    noisy = {t: r + deviation * public.standard_normal(len(r)) for t, r in trial.items()}
    clear = _clear(noisy, cost)
    light = np.lexsort((-_weight(noisy), ~clear))[min(heavy, int(clear.sum())) :]
    light = light[~_one_sided(noisy, clear, deviation)[light]]
    together = np.prod([r[light] for r in trial.values()], axis=0)
    kept = [np.prod([rows_left(r[light], cap, price) for r in trial.values()], axis=0) for cap, price in caps]
    return np.array([float(np.maximum(together - some, 0.0).sum()) for some in kept])


def _weight(rows: Mapping[str, FloatArray]) -> FloatArray:
    """By value, the geometric mean of the tables' rows: to the power of the tables, its join results."""
    return np.asarray(np.exp(np.mean([np.log(np.maximum(r, 1.0)) for r in rows.values()], axis=0)))


def _clear(rows: Mapping[str, FloatArray], cost: Concentrated) -> NDArray[np.bool_]:
    """Values that every table has more rows of than noise. What one table hardly has is multiplied noise if heavy."""
    return np.asarray(np.min(list(rows.values()), axis=0) > 2 * _deviation(cost))


def _one_sided(rows: Mapping[str, FloatArray], clear: NDArray[np.bool_], deviation: float) -> NDArray[np.bool_]:
    """Values that one table has many rows of, and another hardly any."""
    return np.asarray(~clear & (np.max(list(rows.values()), axis=0) > ONE_SIDED * deviation))


def _deviation(cost: Concentrated) -> float:
    """Of a noisy degree."""
    return math.sqrt(2) / float(cost.epsilon) if cost.epsilon else 1 / math.sqrt(2 * float(cost.rho))


def _noise(workload: Workload, cap: int, tables: int, size: float, rho: Fraction, price: float | None) -> float:
    """Of light values under a cap, as in `capped`."""
    if price is None:
        results = float(cap) ** (tables - 1)
        bound = results * math.sqrt(2)
    else:
        together = float(rows_left(np.array([fading.REACH * cap / 2]), cap, price)[0])
        bound = results = price * together ** (tables - 1)
    return fitted_noise(workload, bound=bound, size=size, rho=rho) + size_noise(results, rho)


def _around(cap: int) -> list[int]:
    """This cap, and two more generous ones, which tell what it loses; the largest first."""
    at = EDGES.index(cap)
    return sorted({EDGES[min(at + step, len(EDGES) - 1)] for step in (5, 2, 0)}, reverse=True)
