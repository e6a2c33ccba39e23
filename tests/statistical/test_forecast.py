"""What methods promise before they run, against what they do: noisy bounds, keys that are drowned or asked about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import dpjoin as dj


def referring_tables(depends: float) -> dict[str, pa.Table]:
    """Every r has one row, many rows of s refer to it, and what these are like depends on what it is like."""
    rng, values = np.random.default_rng(8), 2_000
    own = rng.integers(0, 5, values)
    popular = 1 / (1 + depends * own)  # rows of some kinds are referred to more often
    key = rng.choice(values, 60_000, p=popular / popular.sum())
    other = np.where(rng.random(len(key)) < depends, own[key], rng.integers(0, 5, len(key)))
    return {"r": pa.table({"K": np.arange(values), "a": own}), "s": pa.table({"K": key, "b": other})}


def referring(**key: Any) -> tuple[dj.Schema, dj.Workload]:
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("K", "a")), dj.Table(name="s", attributes=("K", "b"))),
        (dj.Attribute(name="K", **key), *(dj.Attribute(name=a, range=(0, 4)) for a in "ab")),
    )
    return schema, dj.Workload.marginals(schema, [("a",), ("b",), ("a", "b")])


def test_declaring_the_values_of_a_key_does_no_harm_where_noise_drowns_each_of_them() -> None:
    """What tables have in common lies at single values, and `per_table` lost it all: nine times the error."""
    tables, off = referring_tables(0.7), {}
    for name, key in (("declared", {"range": (0, 1_999)}), ("not", {"key": True})):
        schema, workload = referring(**key)
        made = [dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6)) for _ in range(3)]
        off[name] = np.median([dj.evaluate(m, tables).mean_total_variation or 0.0 for m in made])
    assert off["declared"] < 1.5 * off["not"] + 0.01


def test_bars_of_per_table_know_what_noise_drowns() -> None:
    """Members differ by noise alone, and all of them lack what single values tell: bars held a third of the cells."""
    tables = referring_tables(0.15)
    schema, workload = referring(range=(0, 1_999))
    made = dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6), method="per_table")
    found = dj.evaluate(made, tables)
    assert found.covered > 0.6


def test_marginals_of_a_key_that_nobody_can_measure_do_not_decide_for_all_others() -> None:
    """Cells of a key counted without limit against caps, and not at all against `per_table`."""
    tables = referring_tables(0.15)
    schema, _ = referring(range=(0, 1_999))
    workload = dj.Workload.marginals(schema, 2)
    budget = dj.Budget(epsilon=1.0, delta=1e-6)
    promised = dj.release(schema, workload, tables, budget).facts["predicted_error"]
    for method in ("capped", "per_table"):
        found = dj.evaluate(dj.release(schema, workload, tables, budget, method=method), tables)
        assert found.mean_total_variation is not None
        assert 0.5 < promised[method] / 60_000 / found.mean_total_variation < 2


def test_where_a_key_is_asked_about_its_clear_values_are_told_by_the_tables() -> None:
    """Errors of single values do not even out: `heavy_light`, which does not count that, errs three times as much."""
    rng, values = np.random.default_rng(3), 5_000
    popular = np.arange(1, values + 1) ** -0.8
    keys = [rng.choice(values, rows, p=popular / popular.sum()) for rows in (200_000, 40_000)]
    tables = {
        "r": pa.table({"K": keys[0], "a": (keys[0] + (rng.random(len(keys[0])) < 0.05)) % 5}),
        "s": pa.table({"K": keys[1], "b": rng.integers(0, 5, len(keys[1]))}),
    }
    schema, _ = referring(range=(0, values - 1))
    workload, budget = dj.Workload.marginals(schema, 2), dj.Budget(epsilon=1.0, delta=1e-6)
    made = dj.release(schema, workload, tables, budget)
    off = {
        name: dj.evaluate(some, tables).mean_total_variation or 0.0
        for name, some in (
            ("auto", made),
            ("heavy_light", dj.release(schema, workload, tables, budget, method="heavy_light")),
        )
    }
    assert off["auto"] < 0.7 * off["heavy_light"]
