"""What clipping loses of owners that noise hides: bars that hold, and are short where nothing is hidden."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.measure.owner_counts import owners_told
from dpjoin.measure.owner_tail import Tail
from dpjoin.measure.ranks import EDGES
from dpjoin.measure.totals import NoisyTotal
from dpjoin.methods.clipped import best_for_size
from dpjoin.methods.noise_forecast import size_noise
from dpjoin.privacy.owners import Clip, NoisyOwners

Draw = Callable[[np.random.Generator], np.ndarray]
DEVIATION, RHO = 22, Fraction(1, 2000)
"""Of the histogram at (1, 1e-6); and what a size costs."""
ALIKE: dict[str, Draw] = {
    "four each": lambda rng: np.full(8000, 4),
    "about ten": lambda rng: rng.poisson(10, 5000),
    "products": lambda rng: rng.poisson(5, 5000) * rng.poisson(8, 5000),
}
SKEWED: dict[str, Draw] = {
    "Zipf 0.6": lambda rng: zipf(rng, 0.6),
    "Zipf 1": lambda rng: zipf(rng, 1.0),
    "Zipf 1.3": lambda rng: zipf(rng, 1.3),
    "log-normal": lambda rng: np.rint(rng.lognormal(1.5, 1.5, 6000)),
    "products of Zipf": lambda rng: zipf(rng, 0.6) * zipf(rng, 0.6),
}


def zipf(rng: np.random.Generator, power: float) -> np.ndarray:
    weights = np.arange(1, 6001) ** -power
    return rng.multinomial(40_000, weights / weights.sum())


def told_of(results: np.ndarray, rng: np.random.Generator) -> tuple[float, NoisyTotal]:
    """What a limit loses that most owners keep, and what is told of it."""
    counts = np.histogram(results[results > 0], bins=[0.5, *(e + 0.5 for e in EDGES), np.inf])[0]
    noisy = counts + np.rint(DEVIATION * rng.standard_normal(len(counts)))
    tail = Tail(owners_told(NoisyOwners(("o",), EDGES, tuple(int(n) for n in noisy), DEVIATION)))
    strict = Clip(owner=("o",), limit=int(np.quantile(results, 0.9)), steep=False)
    wide = best_for_size(tail, strict, RHO)
    if wide != strict:
        deviation = math.hypot(size_noise(wide.limit, RHO), size_noise(strict.limit, RHO))
        more = np.minimum(results, wide.limit).sum() - np.minimum(results, strict.limit).sum()
        tail = tail.with_sizes(strict, wide, NoisyTotal(more + deviation * rng.standard_normal(), deviation))
    return float(np.maximum(results - strict.limit, 0).sum()), tail.lost(strict)


def test_bars_hold_where_a_few_owners_have_very_many_results() -> None:
    """Nine of ten on the whole, and mostly in each case, though the largest are far beyond what stands out."""
    rng, held = np.random.default_rng(7), []
    for draw in SKEWED.values():
        pairs = [told_of(draw(rng), rng) for _ in range(30)]
        held.append(np.mean([abs(told.noisy - lost) <= 1.645 * told.deviation for lost, told in pairs]))
    assert np.mean(held) >= 0.85
    assert min(held) >= 0.7


@pytest.mark.parametrize("name", ALIKE)
def test_where_owners_are_alike_nothing_is_said_to_be_hidden(name: str) -> None:
    rng = np.random.default_rng(8)
    for _ in range(10):
        results = ALIKE[name](rng)
        lost, told = told_of(results, rng)
        assert abs(told.noisy - lost) <= 0.05 * results.sum()
        assert told.deviation <= 0.05 * results.sum()


def test_bars_hold_where_few_owners_are_alike() -> None:
    """Five hundred with about eighty results each: they fall from there on, and not from the first bucket."""
    rng, held, off = np.random.default_rng(9), [], []
    for _ in range(30):
        results = rng.poisson(80, 500)
        lost, told = told_of(results, rng)
        held.append(abs(told.noisy - lost) <= 1.645 * told.deviation)
        off.append((told.noisy - lost) / results.sum())
    assert np.mean(held) >= 0.85
    assert abs(np.median(off)) <= 0.05


def test_a_release_reckons_with_the_size_that_its_look_saw() -> None:
    """Sixty owners with more than half of the join results: noise hides them in the histogram, and not from caps."""
    rng = np.random.default_rng(10)
    degrees = np.concatenate([rng.poisson(5, 2000), rng.poisson(200, 60)])
    ids = np.repeat(np.arange(len(degrees)), degrees)
    attributes = [dj.Attribute(name="id", key=True), *(dj.Attribute(name=a, values=["x", "y"]) for a in "ab")]
    tables = [dj.Table(name=name, attributes=["id", a]) for name, a in (("r", "a"), ("s", "b"))]
    schema = dj.Schema(tables=tables, attributes=attributes)
    rows = (np.arange(len(degrees)), "a"), (ids, "b")
    sources = {
        t.name: pa.table({"id": pa.array(of), a: pa.array(rng.choice(["x", "y"], len(of)))})
        for t, (of, a) in zip(tables, rows, strict=True)
    }
    off, bars = [], []
    for _ in range(8):
        made = dj.release(schema, dj.Workload.marginals(schema, 1), sources, dj.Budget(epsilon=1.0, delta=1e-6))
        off.append(abs(made.join_size - len(ids)))
        bars.append(float(made.error("SELECT COUNT(*) FROM joined")[0]))
    assert np.mean(np.array(off) <= bars) >= 0.75
    assert max(bars) < len(ids)
