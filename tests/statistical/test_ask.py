"""Bars of sums and averages of numbers in bins cover the raw numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from support.asked import release_of_one_table, rows_of_one_table

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


def test_bars_cover_the_raw_numbers() -> None:
    """Over several releases and groups, for values that lie low in their bins."""
    held = []
    for seed in range(4):
        table, release = rows_of_one_table(5_000, seed).to_pandas(), release_of_one_table(seed)
        known = table[table["x"].between(0, 100)]
        for group in ("<b>a</b>", "b & c", "d"):
            name = "other" if group == "d" else group
            raw = known[known["g"] == group]["x"]
            for function, truth in (("AVG", raw.mean()), ("SUM", raw.sum())):
                row = release.ask(f"SELECT {function}(x) FROM joined WHERE g = '{name}'").rows[0]
                held.append(abs(row[1][0] - truth) <= row[2][0])  # type: ignore[operator]
    assert np.mean(held) >= 0.85


@pytest.mark.parametrize("place", [0.0, 0.3, 0.5, 0.999])
@pytest.mark.parametrize("edges", [(0, 25, 50, 75, 100), tuple(range(0, 101, 5))], ids=["few", "many"])
def test_bars_cover_wherever_numbers_lie_in_their_bins(place: float, edges: tuple[int, ...]) -> None:
    """At the lower edges, at the upper ones and between, in all bins alike: what no release can know."""
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("g", "x")),),
        (dj.Attribute(name="g", range=(0, 9)), dj.Attribute(name="x", bins=edges)),
    )
    rng, held = np.random.default_rng(len(edges)), []
    for _ in range(4):
        g = rng.integers(0, 10, 4_000)
        bins = np.minimum(rng.poisson(1 + g % 3, 4_000) * (len(edges) - 1) // 5, len(edges) - 2)
        x = np.array(edges, dtype=float)[bins] + place * edges[1]
        release = dj.release(schema, dj.Workload.marginals(schema, 2), {"r": pa.table({"g": g, "x": x})}, BUDGET)
        truth = [(x[g == i].mean(), x[g == i].sum()) for i in range(10)]
        for row, exact in zip(release.ask("SELECT g, AVG(x), SUM(x) FROM joined GROUP BY g").rows, truth, strict=True):
            held += [abs(v - t) <= bar for v, t, bar in zip(row[1], exact, row[2], strict=True)]  # type: ignore[operator]
    assert np.mean(held) >= 0.85


DATA = Path(dj.__file__).parent / "data"
BINS = {
    "coarse": {"delay": (-30, 0, 15, 60, 180, 1300), "distance": (0, 500, 1000, 2000, 5000), "wind": (0, 5, 15, 45)},
    "even": {
        "delay": tuple(range(-60, 1321, 60)),
        "distance": tuple(range(0, 5001, 500)),
        "wind": tuple(range(0, 46, 5)),
    },
}


@pytest.mark.parametrize("kind", BINS)
def test_bars_cover_the_raw_numbers_of_flights(kind: str) -> None:
    """New York's flights with their weather, averages and sums of all rows, by airport and by carrier."""
    spec = dj.Spec.from_toml(DATA / "demo.toml")
    bins = BINS[kind]
    attributes = tuple(replace(a, bins=bins.get(a.name, a.bins)) for a in spec.schema.attributes)
    schema = replace(spec.schema, attributes=attributes)
    release = dj.release(schema, dj.Workload.marginals(schema, 2), spec.sources(), spec.budget)
    carriers = tuple(c for c in schema.attribute("carrier").labels if c != "other")
    joined = duckdb.sql(
        f"SELECT origin, CASE WHEN carrier IN {carriers} THEN carrier ELSE 'other' END AS carrier, "
        "dep_delay AS delay, distance, wind_speed AS wind "
        f"FROM '{DATA}/flights.parquet' JOIN '{DATA}/weather.parquet' USING (origin, hour)"
    ).df()
    held = []
    for column, edges in bins.items():
        known = joined[joined[column].between(edges[0], edges[-1])]
        for by in ("origin", "carrier"):
            answers = release.ask(f"SELECT {by}, AVG({column}) AS a, SUM({column}) AS s FROM joined GROUP BY {by}")
            frame = answers.to_pandas().set_index(by)
            truth = known.groupby(by)[column].agg(["mean", "sum"]).loc[frame.index]
            for name, exact in (("a", "mean"), ("s", "sum")):
                held.extend(np.abs(frame[name] - truth[exact]) <= frame[f"{name} ±"])
    assert np.mean(held) >= 0.85
