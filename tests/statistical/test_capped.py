"""Capped: rows go by public rules, one row more moves no more than declared, and noisy numbers alone decide."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.measure.ranks import EDGES, looked_beyond, rows_beyond
from support.capped import ranks_of


def test_noise_alone_shows_no_rows_beyond_the_largest_degree() -> None:
    """Of 200 histograms with degrees up to 20, at most a few seem to have more; a value of 2,000 rows is seen."""
    rng = np.random.default_rng(2)
    tops = []
    for _ in range(200):
        beyond = rows_beyond(ranks_of([20] * 500, 23.0, rng))
        tops.append(EDGES[int(np.argmax(beyond[1:] == 0.0))])
    assert sum(t > 32 for t in tops) <= 6
    assert sum(t < 18 for t in tops) == 0
    hot = [rows_beyond(ranks_of([2000, *[20] * 500], 23.0, rng)) for _ in range(50)]
    assert all(b[0] - b[EDGES.index(32) + 1] > 0 and b[EDGES.index(198) + 1] > 1000 for b in hot)


def test_a_thin_tail_is_seen_by_its_sum() -> None:
    """1,000 rows, 90 values, a quarter of the rows above rank 13: few in each bucket of ranks, which noise hides."""
    weights = 1 / np.arange(1, 90) ** 0.6
    degrees = np.random.default_rng(0).multinomial(1000, weights / weights.sum()).tolist()
    exact = sum(max(0, d - 13) for d in degrees)
    rng = np.random.default_rng(3)
    beyond = [rows_beyond(ranks_of(degrees, 23.0, rng))[EDGES.index(13) + 1] for _ in range(100)]
    assert np.median(beyond) == pytest.approx(exact, rel=0.2)
    assert sum(b < 0.5 * exact for b in beyond) <= 15


@pytest.mark.parametrize("twice", [0, 60, 150])
def test_what_noise_hides_beyond_a_rank_is_about_known(twice: int) -> None:
    """Some values have a second row, and noise of 40 rows does not show how many: the doubt says how far off."""
    rng = np.random.default_rng(twice)
    off, seen = [], []
    for _ in range(300):
        found = looked_beyond(ranks_of([*[2] * twice, *[1] * (1500 - twice)], 40.0, rng))
        off.append((found.seen[1] + found.hidden[1] - twice) / found.doubt[1])
        seen.append(found.seen[1])
    assert np.mean(np.abs(off) < 1.645) >= 0.8
    assert abs(np.mean(off)) < 0.8
    assert np.median(seen) == (0 if twice < 100 else pytest.approx(twice, abs=40))


def test_sizes_of_nested_joins_are_not_too_small_under_caps() -> None:
    """A table whose ranks by a key are not known may share frequent values: sizes were two thirds, always."""
    rng, values, rows = np.random.default_rng(5), 300, 10_000
    popular = np.arange(1, values + 1) ** -0.7
    tables = {}
    for table, names in (("r", "KLa"), ("s", "KLb"), ("t", "Kc")):
        keys = {"K": rng.choice(values, rows, p=popular / popular.sum()), "L": rng.integers(0, 6, rows)}
        tables[table] = pa.table({n: keys[n] if n in keys else rng.integers(0, 3, rows) for n in names})
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(some.column_names)) for t, some in tables.items()),
        (*(dj.Attribute(name=k, key=True) for k in "KL"), *(dj.Attribute(name=a, range=(0, 2)) for a in "abc")),
    )
    workload = dj.Workload.marginals(schema, 2)
    exact = DuckEngine(schema, tables, attributes=workload.attributes).exact_join_size()
    made = [dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6), method="capped") for _ in range(9)]
    assert np.median([m.join_size for m in made]) > 0.85 * exact
