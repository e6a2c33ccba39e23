"""auto: a small look chooses, from noisy numbers only; whichever way is taken, no more than the budget is spent."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.auto.choose import auto_shares
from dpjoin.auto.registry import chosen_method
from dpjoin.constants import DEGREES_KNOWN
from dpjoin.engine.duck import DuckEngine
from dpjoin.measure.ranks import aligned_size, degree_sequence
from dpjoin.measure.totals import NoisyTotal
from dpjoin.methods.correlated_degrees import (
    correlation_range,
    is_berge_cyclic,
    key_degrees,
    per_table_error,
    size_shrinkage,
)
from dpjoin.methods.heavy_light import best_choice, degrees_with
from dpjoin.methods.remainder import Remainder
from dpjoin.privacy.parts import Question
from dpjoin.spec.schema import DegreeBound
from support.audit import ledger_violations
from support.auto import CHAINS, bounded, declared, met
from support.capped import ranks_of
from support.skewed import schema_of


def zipf_tables(hot: bool) -> dict[str, pa.Table]:
    rng = np.random.default_rng(3)
    keys = [np.concatenate([rng.integers(0, 4000, 20_000), np.full(3000 if hot else 0, 7)]) for _ in "rs"]
    return {t: pa.table({"A": k, a: rng.integers(0, 3, len(k))}) for t, a, k in zip("rs", "pq", keys, strict=True)}


@pytest.mark.parametrize("hot", [False, True])
def test_it_chooses_by_whether_a_key_is_hot(hot: bool) -> None:
    """The manifest names the method that ran and what was expected of each."""
    schema = schema_of("two")
    budget = dj.Budget(epsilon=1.0, delta=1e-6)
    made = dj.release(schema, dj.Workload.marginals(schema, [1, 2]), zipf_tables(hot), budget)
    assert made.method == ("heavy_light" if hot else "capped")
    expected = made.manifest()["facts"]["predicted_error"]
    assert (expected.get("heavy_light", np.inf) < expected["capped"]) == hot


def test_few_heavy_values_of_a_declared_key_go_table_by_table() -> None:
    rng = np.random.default_rng(4)
    schema = declared("two")
    keys = [rng.choice(5, 30_000, p=[0.5, 0.2, 0.15, 0.1, 0.05]) for _ in "rs"]
    tables = {t: pa.table({"A": k, a: rng.integers(0, 3, len(k))}) for t, a, k in zip("rs", "pq", keys, strict=True)}
    workload = dj.Workload.marginals(schema, [("p", "q")])
    made = dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6))
    assert made.method in ("per_table", "heavy_light")


def test_forecasts_grow_with_what_they_are_made_of() -> None:
    """More noise or heavier values: a larger error. Sizes of aligned values are the largest there are."""
    rng = np.random.default_rng(0)
    workload = dj.Workload.marginals(declared("two"), [("p", "q")])
    light, heavy = ([20.0] * 5, [2000.0] * 5)
    shares = auto_shares(dj.Budget(epsilon=1.0, delta=1e-6), workload.schema)
    rho = shares.split.rho / 2

    def both(degrees: list[float]) -> dict[str, Any]:
        return dict.fromkeys("rs", np.array(degrees))

    def alone(degrees: list[float], rho: Fraction) -> float:
        size = float(np.square(degrees).sum())
        return per_table_error(workload, met(both(degrees), size), size=size, rho=rho)

    assert 0 < alone(light, rho) < alone(heavy, rho) < alone(heavy, rho / 4)
    _, own = shares.methods["heavy_light"]
    degrees = degrees_with(own, Remainder(rho, rho, rho))
    small, large = (best_choice(workload, both(d), degrees).error for d in (light, heavy))
    assert 0 < small < large
    sequence = degree_sequence(ranks_of([50, 40, 3, 2, 1], 0.0, rng))
    assert aligned_size([sequence, sequence]) == pytest.approx(50**2 + 40**2 + 14, rel=0.25)


def test_what_a_join_of_models_flattens_is_foreseen() -> None:
    """Nothing where rows meet by chance; else what frequent values have beyond that, less where degrees stand out."""
    workload = dj.Workload.marginals(declared("two"), [("p", "q")])
    values, rho = workload.schema.cells(("A",)), Fraction(1, 40)

    def flattened(scale: float) -> float:
        degrees = scale * np.arange(1.0, values + 1.0)
        size = float((degrees**2).sum())
        found = size_shrinkage(workload.schema, met(dict.fromkeys("rs", degrees), size), size=size, rho=rho)
        assert found is not None
        return found / size

    even = met(dict.fromkeys("rs", np.full(values, 7.0)), 49.0 * values)
    assert size_shrinkage(workload.schema, even, size=49.0 * values, rho=rho) == pytest.approx(0.0)
    assert flattened(1.0) > flattened(10.0) > flattened(1000.0) >= 0.0
    degrees = np.arange(1.0, values + 1.0)
    excess = 1 - float(degrees.sum()) ** 2 / (values * float((degrees**2).sum()))
    kept = degrees.var() / (degrees.var() + 1 / (2 * float(rho) * DEGREES_KNOWN))
    by_chance = np.sqrt(values) * degrees.var() / float((degrees**2).sum())
    assert flattened(1.0) == pytest.approx((1 - kept**2) * np.hypot(excess, by_chance))


def test_a_join_of_models_is_as_good_as_its_values_meet() -> None:
    """The same degrees: where rows meet by chance, frequent values have fewer results, and their noise counts less."""
    workload = dj.Workload.marginals(declared("two"), [("p", "q")])
    values, rho = workload.schema.cells(("A",)), Fraction(1, 40)
    degrees = dict.fromkeys("rs", 500.0 / np.arange(1.0, values + 1.0) ** 2)
    sizes = [values * (sum(degrees["r"]) / values) ** 2, float(np.square(degrees["r"]).sum())]
    assert [met(degrees, size)[0].correlation for size in sizes] == pytest.approx([0.0, 1.0])
    assert [met(degrees, size)[0].size for size in sizes] == pytest.approx(sizes)
    apart, aligned = (per_table_error(workload, met(degrees, size), size=size, rho=rho) for size in sizes)
    assert 0 < apart < aligned
    many = {t: 100 * d for t, d in degrees.items()}
    shares = [
        per_table_error(workload, met(d, s), size=s, rho=rho) / s
        for d, s in ((degrees, sizes[1]), (many, 1e4 * sizes[1]))
    ]
    assert shares[1] < shares[0] / 10, "noise is a smaller share of more rows"


def test_tables_meet_in_a_circle_or_not() -> None:
    """Two in two ways, or each with the next until the first comes again; a key of two attributes is one way."""
    shapes = {
        ("Ap", "Aq"): False,
        ("ABp", "ABq"): False,
        ("Ap", "ABq", "Bu"): False,
        ("Ap", "Aq", "Au"): False,
        ("Ap", "ABq", "BCu", "Cv"): False,
        ("Ap", "ABq", "ABu"): True,
        ("ABp", "BCq", "CAu"): True,
        ("ABp", "BCq", "CDu", "DAv"): True,
    }
    for tables, circle in shapes.items():
        names = sorted(set("".join(tables)))
        schema = dj.Schema(
            tuple(dj.Table(name=f"t{n}", attributes=tuple(t)) for n, t in enumerate(tables)),
            tuple(dj.Attribute(name=a, range=(0, 3)) for a in names),
        )
        assert is_berge_cyclic(schema) == circle, tables


def chain_tables(shape: str, rng: np.random.Generator) -> tuple[dj.Schema, dict[str, pa.Table]]:
    """Tables of thousands of rows, with keys of twenty values of which some are frequent in all tables."""
    tables = tuple(dj.Table(name=t, attributes=tuple(x)) for t, x in CHAINS[shape].items())
    names = sorted({a for t in tables for a in t.attributes})
    schema = dj.Schema(tables, tuple(dj.Attribute(name=a, range=(0, 19 if a in "ABC" else 3)) for a in names))
    popular = 1 / np.arange(1.0, 21.0) ** 0.5
    data = {}
    for n, table in enumerate(tables):
        rows = 4_000 * (n + 1)
        keys = {a: rng.choice(20, rows, p=popular / popular.sum()) for a in table.attributes if a in "ABC"}
        first = next(iter(keys.values()))
        own = {a: np.where(rng.random(rows) < 0.3, first % 4, rng.integers(0, 4, rows)) for a in table.attributes[-1:]}
        data[table.name] = pa.table({**keys, **own})
    return schema, data


def test_how_far_values_are_the_same_is_known_between_two_degrees() -> None:
    """Narrowly by a sure size, not at all by one that is all noise, or without ranks."""
    schema = declared("two")
    rng = np.random.default_rng(5)
    degrees = [600 // n for n in range(1, schema.cells(("A",)) + 1)]
    ranks = [
        replace(ranks_of(degrees, 0.0, rng), question=Question(name=t, rules={t: {}}, by=("A",))) for t in ("r", "s")
    ]
    most = float(np.square(degrees).sum())
    low, high = correlation_range(schema, ranks, NoisyTotal(0.8 * most, 0.01 * most))
    assert 0.0 < low < high < low + 0.2
    assert correlation_range(schema, ranks, NoisyTotal(most, most)) == (0.0, 1.0)
    assert correlation_range(schema, [], NoisyTotal(most, 1.0)) == (0.0, 1.0)


@pytest.mark.parametrize("shape", CHAINS)
def test_where_tables_meet_is_told_by_ranks_and_the_size(shape: str) -> None:
    """By chance at the least size, always at the largest. Nothing is told unless every table's rows are known."""
    schema, data = chain_tables(shape, np.random.default_rng(2))
    ranks = [
        replace(
            ranks_of(list(np.bincount(data[t.name][a].to_numpy(), minlength=20)), 0.0, np.random.default_rng(0)),
            question=Question(name=t.name, rules={t.name: {}}, by=(a,)),
        )
        for t in schema.tables
        for a in t.attributes
        if a in "ABC"
    ]
    size_now = float(DuckEngine(schema, data, attributes=()).exact_join_size())
    assert len(key_degrees(schema, ranks, size_now)) == len(schema.join_attributes)
    for size, low, high in ((1.0, 0.0, 0.0), (size_now, 0.6, 1.0), (1e18, 1.0, 1.0)):
        assert all(low <= m.correlation <= high for m in key_degrees(schema, ranks, size))
    assert key_degrees(schema, [r for r in ranks if "r" not in r.question.rules], size_now) == []


@pytest.mark.parametrize("shape", CHAINS)
def test_chains_of_tables_go_table_by_table(shape: str) -> None:
    """Few values of keys that no two rows of a table need share: caps would lose most of the join to noise."""
    schema, data = chain_tables(shape, np.random.default_rng(2))
    workload = dj.Workload.marginals(schema, [("p", "q"), ("q", "u"), ("p", "u")])
    budget = dj.Budget(epsilon=1.0, delta=1e-6)
    made = dj.release(schema, workload, data, budget)
    assert made.method == "per_table"
    assert {"capped", "per_table"} <= set(made.manifest()["facts"]["predicted_error"])
    by_table, capped = (
        dj.evaluate(one, data) for one in (made, dj.release(schema, workload, data, budget, method="capped"))
    )
    assert by_table.mean_total_variation is not None
    assert capped.mean_total_variation is not None
    assert by_table.mean_total_variation < capped.mean_total_variation / 2
    assert by_table.join_size_error < 0.25 * made.join_size


@pytest.mark.parametrize(("limit", "taken"), [(300, "capped"), (2, "multi_table")])
def test_declared_bounds_of_three_tables_may_be_far_above_what_caps_find(limit: int, taken: str) -> None:
    """A value has two rows in each table: as at most 300, caps are worth their look; as 2, nothing is better."""
    rng = np.random.default_rng(5)
    schema = bounded("star", limit)
    tables = {
        t.name: pa.table({a: np.arange(4000) // 2 if a == "A" else rng.integers(0, 3, 4000) for a in t.attributes})
        for t in schema.tables
    }
    assert chosen_method(schema, "auto").name == "auto"
    made = dj.release(schema, dj.Workload.marginals(schema, 2), tables, dj.Budget(epsilon=1.0, delta=1e-6))
    assert made.method == taken
    assert set(made.manifest()["facts"]["predicted_error"]) >= {"capped", "multi_table"}
    assert ledger_violations(made.ledger, made.budget) == []


def test_there_is_nothing_to_choose_where_the_bound_is_public_or_rows_are_cut_already() -> None:
    assert chosen_method(schema_of("two"), "auto").name == "auto"
    assert chosen_method(schema_of("two"), "auto", "paper").name == "two_table"
    assert chosen_method(schema_of("two", public="s"), "auto").name == "two_table"
    assert chosen_method(schema_of("star", public="s"), "auto").name == "auto"
    assert chosen_method(bounded("two", 1), "auto").name == "two_table"
    tables = schema_of("two").tables
    enforced = dj.Table(
        name="r", attributes=("A", "p"), bounds=(DegreeBound(attributes=("A",), limit=3),), enforce=True
    )
    assert chosen_method(dj.Schema((enforced, tables[1]), schema_of("two").attributes), "auto").name == "two_table"


def test_hot_keys_that_are_asked_about_are_not_capped() -> None:
    """Caps lose most of exactly those values, so where the workload looks at the key a lost result counts in full."""
    rng = np.random.default_rng(9)
    popular = 1 / np.arange(1, 401) ** 0.8
    keys = [rng.choice(400, 8_000, p=popular / popular.sum()) for _ in "rs"]
    tables = {t: pa.table({"K": k, a: rng.integers(0, 4, 8_000)}) for t, a, k in zip("rs", "ab", keys, strict=True)}
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("K", "a")), dj.Table(name="s", attributes=("K", "b"))),
        (
            dj.Attribute(name="K", range=(0, 299), other=True),
            *(dj.Attribute(name=a, range=(0, 3)) for a in "ab"),
        ),
    )
    made = dj.release(schema, dj.Workload.marginals(schema, 2), tables, dj.Budget(epsilon=1.0, delta=1e-6))
    assert made.method == "heavy_light"
    found = dj.evaluate(made, tables)
    assert found.mean_total_variation is not None
    assert found.mean_total_variation < 0.08
    assert found.covered > 0.8
