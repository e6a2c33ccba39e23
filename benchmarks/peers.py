"""Peers for one table and all 2-way marginals: MWEM+PGM, AIM and all pairs at once on mbi; OpenDP's and smartnoise's.

mbi fits models to noisy marginals and brings no mechanisms, so these follow the papers (McKenna, Miklau, Sheldon,
"Winning the NIST contest"; McKenna, Mullins, Sheldon, Miklau, "AIM"). Noise is numpy's: fine for a yardstick.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import resource
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

EPSILON, DELTA = 1.0, 1e-6
MEASURE_SHARE = 0.9
"""Of a round's rho, for the noisy marginal; choosing it gets the rest."""
MODEL_MB = 80.0
"""The largest junction tree, as in the AIM paper."""
ITERATIONS, LAST_ITERATIONS = 1000, 2500
"""Steps of mirror descent after a round, and after AIM's last."""

Pair = tuple[str, str]
Clique = tuple[str, ...]
Marginals = dict[Pair, np.ndarray]


class TooLarge(Exception):
    """The model does not fit."""


def make_rows(attributes: int, values: int, rows: int, seed: int) -> dict[str, np.ndarray]:
    """Six classes of unequal size, each with its own skewed columns, and a chain: a column often repeats the last."""
    rng = np.random.default_rng(seed)
    sizes = 0.6 ** np.arange(6)
    kind = rng.choice(6, size=rows, p=sizes / sizes.sum())
    data: dict[str, np.ndarray] = {}
    previous = rng.integers(0, values, rows)
    for n in range(attributes):
        favourite = rng.permuted(np.tile(0.55 ** np.arange(values), (6, 1)), axis=1)
        edges = np.cumsum(favourite / favourite.sum(axis=1, keepdims=True), axis=1)
        own = (rng.random(rows)[:, None] > edges[kind]).sum(axis=1).clip(0, values - 1)
        step = (previous + rng.integers(0, 2, rows)) % values
        previous = np.where(rng.random(rows) < 0.35, step, own)
        data[f"x{n}"] = previous.astype(np.int64)
    return data


def exact_pairs(data: Mapping[str, np.ndarray], values: int) -> Marginals:
    return {
        (x, y): np.bincount(data[x] * values + data[y], minlength=values**2) for x, y in itertools.combinations(data, 2)
    }


def cpu_seconds() -> float:
    """Of this process since it began and of its children, user and system, all threads."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def total_rho() -> float:
    """(1, 1e-6) in zero-concentrated currency, by the conversion of Canonne, Kamath and Steinke."""
    low, high = 0.0, 1.0
    orders = 1 + np.geomspace(0.01, 1000, 20_000)
    for _ in range(60):
        rho = (low + high) / 2
        logs = (orders - 1) * (orders * rho - EPSILON) - np.log(orders - 1) + orders * np.log1p(-1 / orders)
        low, high = (rho, high) if float(logs.min()) <= math.log(DELTA) else (low, rho)
    return low


class Loop:
    """What a select-measure-fit loop holds: the table, what was measured of it, and the model that fits best."""

    def __init__(self, data: Mapping[str, np.ndarray], values: int, rng: np.random.Generator) -> None:
        from mbi import Dataset, Domain

        self.rng = rng
        self.domain = Domain(list(data), [values] * len(data))
        table = Dataset(dict(data), self.domain)
        self.pairs: list[Pair] = list(itertools.combinations(data, 2))
        cliques: list[Clique] = [*((a,) for a in data), *self.pairs]
        self.exact = {c: np.asarray(table.project(c).datavector(), dtype=np.float64) for c in cliques}
        self.measured: list[Any] = []
        self.model: Any = None

    def measure(self, clique: Clique, sigma: float) -> None:
        from mbi import LinearMeasurement

        noisy = self.exact[clique] + self.rng.normal(0, sigma, self.exact[clique].size)
        self.measured.append(LinearMeasurement(noisy, clique, stddev=sigma))

    def choose(self, scores: Mapping[Clique, float], epsilon: float, sensitivity: float) -> Clique:
        """The exponential mechanism, by Gumbel noise: rho is epsilon^2 / 8."""
        noisy = epsilon / (2 * sensitivity) * np.array(list(scores.values())) + self.rng.gumbel(size=len(scores))
        return list(scores)[int(np.argmax(noisy))]

    def fit(self, iterations: int = ITERATIONS) -> None:
        from mbi import estimation

        descent = estimation.MirrorDescent()
        self.model = descent.estimate(self.domain, self.measured, iters=iterations, warm_start=self.model)

    def fitted(self, clique: Clique) -> np.ndarray:
        # Of mbi's three ways to such a marginal this one compiles least; it is still most of the time on 10^12 cells.
        return np.asarray(self.model.project(clique).datavector(), dtype=np.float64)

    def off(self, clique: Clique) -> float:
        return float(np.abs(self.exact[clique] - self.fitted(clique)).sum())

    def size_mb(self, more: Sequence[Clique] = ()) -> float:
        """Of the junction tree if these were measured too."""
        from mbi import junction_tree

        return junction_tree.hypothetical_model_size(self.domain, [*(m.clique for m in self.measured), *more])

    def answers(self) -> Marginals:
        return {pair: self.fitted(pair) for pair in self.pairs}


def mwem_pgm(data: Mapping[str, np.ndarray], values: int, rng: np.random.Generator, rounds: int) -> Marginals:
    """MWEM with Private-PGM: in each round choose the worst pair, measure it, fit a graphical model to everything.

    The score is the l1 error, sensitivity 1. The first model is uniform over the true number of rows, a favour.
    """
    loop = Loop(data, values, rng)
    sigma, epsilon = _scales(total_rho() / rounds)
    fitted = {p: np.full(values**2, len(data["x0"]) / values**2) for p in loop.pairs}
    for _ in range(rounds):
        room = [p for p in loop.pairs if loop.size_mb([p]) <= MODEL_MB]
        scores = {p: float(np.abs(loop.exact[p] - fitted[p]).sum()) for p in room}
        loop.measure(loop.choose(scores, epsilon, 1.0), sigma)
        loop.fit()
        fitted = loop.answers()
    return fitted


def all_pairs(data: Mapping[str, np.ndarray], values: int, rng: np.random.Generator) -> Marginals:
    """No choice: every pair measured once, one fit. Its model is a table of the whole domain."""
    loop = Loop(data, values, rng)
    size = loop.size_mb(loop.pairs)
    if size > MODEL_MB:
        raise TooLarge(f"a model of all pairs would take {size:,.0f} MB, more than {MODEL_MB:g}")
    for pair in loop.pairs:
        loop.measure(pair, math.sqrt(len(loop.pairs) / (2 * total_rho())))
    loop.fit()
    return loop.answers()


def aim(data: Mapping[str, np.ndarray], values: int, rng: np.random.Generator) -> Marginals:
    """AIM: single columns first, then rounds that choose what gains most over its noise and grow when little is gained.

    Candidates are all pairs and single columns that keep the model within its size, which grows with what was spent.
    A candidate's score is its l1 error less what noise alone would leave, times its overlap with the workload.
    """
    loop = Loop(data, values, rng)
    rho, rounds = total_rho(), 16 * len(data)
    sigma, epsilon = _scales(rho / rounds)
    for name in data:
        loop.measure((name,), sigma)
    loop.fit()
    used = len(data) / (2 * sigma**2)
    weights = {c: float(sum(len({*c} & {*p}) for p in loop.pairs)) for c in loop.exact}
    last = False
    while not last:
        if rho - used < 2 * (1 / (2 * sigma**2) + epsilon**2 / 8):  # what is left does not pay for two: spend it
            last = True
            sigma, epsilon = _scales(rho - used)
        used += 1 / (2 * sigma**2) + epsilon**2 / 8
        within = MODEL_MB * used / rho
        noise = math.sqrt(2 / math.pi) * sigma
        covered = [set(m.clique) for m in loop.measured]
        scores = {
            c: weights[c] * (loop.off(c) - noise * values ** len(c))
            for c in loop.exact
            if any({*c} <= m for m in covered) or loop.size_mb([c]) <= within
        }
        chosen = loop.choose(scores, epsilon, max(weights.values()))
        before = loop.fitted(chosen)
        loop.measure(chosen, sigma)
        loop.fit(LAST_ITERATIONS if last else ITERATIONS)
        if np.abs(loop.fitted(chosen) - before).sum() <= noise * values ** len(chosen):
            sigma, epsilon = sigma / 2, epsilon * 2
    return loop.answers()


def _scales(rho: float) -> tuple[float, float]:
    """Noise of the marginal and epsilon of the choice, for a round that spends rho."""
    return math.sqrt(1 / (2 * MEASURE_SHARE * rho)), math.sqrt(8 * (1 - MEASURE_SHARE) * rho)


def opendp_table(data: Mapping[str, np.ndarray], values: int, way: str) -> Marginals:
    """OpenDP's contingency table by `Fixed` (all pairs once) or `AIM`. It adds a level for nulls, which is cut off."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    pairs = list(itertools.combinations(data, 2))
    cells = (values + 1) ** len(data)
    if way == "Fixed" and cells * 8 / 2**20 > MODEL_MB:
        raise TooLarge(f"a model of all pairs would take {cells * 8 / 2**20:,.0f} MB, more than {MODEL_MB:g}")
    algorithm = getattr(dp.mbi, way)(queries=[dp.mbi.Count(p) for p in pairs])
    rho = total_rho()
    context = dp.Context.compositor(
        data=pl.LazyFrame(dict(data)), privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
    )
    query = context.query(rho=rho).select(*data)
    table = query.contingency_table(keys={a: list(range(values)) for a in data}, algorithm=algorithm).release()
    return {p: np.asarray(table.project(p))[:values, :values].ravel() for p in pairs}


def smartnoise(data: Mapping[str, np.ndarray], values: int, way: str) -> Marginals:
    """smartnoise's `mwem`, `mst` or `aim`: what its model says, without the noise of drawing rows from it.

    It reads the domain off the rows, and knows how many there are. Its MWEM is pure: delta is not used.
    """
    import pandas as pd
    from snsynth import Synthesizer

    names = list(data)
    synthesizer = Synthesizer.create(way, epsilon=EPSILON, **({} if way == "mwem" else {"delta": DELTA}))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            synthesizer.fit(pd.DataFrame(dict(data)), categorical_columns=names, preprocessor_eps=0.0)
    except MemoryError as reason:
        raise TooLarge(str(reason)) from None
    pairs = list(itertools.combinations(names, 2))
    if way == "mwem":
        (histogram, *_), *more = synthesizer.synthetic_histograms
        assert not more, "it splits the columns into groups only where it is told to"
        at = {name: n for n, name in enumerate(names)}
        others = {p: tuple(n for name, n in at.items() if name not in p) for p in pairs}
        return {p: np.asarray(histogram).sum(axis=others[p]).ravel() for p in pairs}
    column = {name: f"col{n}" for n, name in enumerate(names)}
    model = synthesizer.synthesizer
    return {(x, y): np.asarray(model.project((column[x], column[y])).datavector()) for x, y in pairs}
