"""heavy_light and per_table: heavy values table by table, joins of models are exact, a row pays in one part only."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.auto.registry import chosen_method
from dpjoin.engine.duck import DuckEngine
from dpjoin.errors import SpecError
from dpjoin.measure.progress import silent
from dpjoin.measure.totals import NoisyTotal
from dpjoin.methods import heavy_light
from dpjoin.methods.look import Look
from dpjoin.methods.per_table import Size, likely_total, per_table_shares, per_table_tight, release_tables
from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.model.union import Union
from dpjoin.privacy.accounting import Budget, Split
from dpjoin.privacy.curator import Curator
from dpjoin.spec.schema import DegreeBound
from dpjoin.spec.workload import CELLS, Workload, kronecker
from support.audit import (
    Recorder,
    Tape,
)
from support.brute import BruteEngine
from support.heavy_light import (
    ANY,
    DECLARED,
    KEY,
    SHARP,
    arrow_of,
    forced,
    heavy_light_on,
    schema_of,
)
from support.skewed import GENEROUS, Rows
from support.skewed import SHAPES as COMMON

# Queries on the key ----------------------------------------------------------------------------------------------


def with_degrees(schema: dj.Schema, each: Mapping[int, int], rng: np.random.Generator) -> Rows:
    """As many rows of each value of A in every table."""
    return {
        t.name: [
            {a: key if a == "A" else int(rng.integers(0, 3)) for a in t.attributes}
            for key, count in each.items()
            for _ in range(count)
        ]
        for t in schema.tables
    }


@pytest.mark.parametrize("shape", ["two", "star", "nested"])
def test_queries_on_the_key(shape: str) -> None:
    """Heavy values lie in their own cells and light ones in the others; with little noise both are about right."""
    rng = np.random.default_rng(len(shape))
    schema = schema_of(shape, DECLARED)
    workload = Workload.marginals(schema, (1, 2))
    engine = BruteEngine(schema, with_degrees(schema, {0: 2, 1: 12, 3: 15}, rng))
    choice = forced(2, 3)
    outcome, curator = heavy_light_on(engine, Recorder, Tape(), choice=choice, budget=SHARP, workload=workload)
    labels = next(x for x in curator._labels if x.name == "heavy")
    assert set(labels.buckets) == {(1,), (3,)}
    assert isinstance(outcome.model, Union)
    light, heavy = outcome.model.parts
    assert isinstance(heavy, Joined)
    by_key = [g for g in workload.groups if "A" in g.scope]
    assert len(by_key) == len(schema.queryable)
    for group in by_key:
        assert group.scope[0] == "A"
        cells = [part.answer(group).reshape(4, -1) for part in (light, heavy)]
        assert (cells[0][[1, 3]] == 0).all()
        assert (cells[1][[0, 2]] == 0).all()
        assert (cells[1][[1, 3]].sum(axis=1) > 0).all()
        exact = np.asarray(engine.exact_answers([group])[0], dtype=np.float64)
        # Less than a row off in a table of a dozen at a heavy value.
        assert np.abs(outcome.model.answer(group) - exact).sum() < 0.25 * exact.sum()
        assert not np.isnan(outcome.model.error(group, 0.95)).any()
    only = kronecker(schema, {"A": CELLS})
    exact = np.asarray(engine.exact_answers([only])[0], dtype=np.float64)
    assert np.abs(outcome.model.answer(only) - exact).max() < 0.15 * exact.sum()


# Refusals --------------------------------------------------------------------------------------------------------


def refused(schema: dj.Schema, method: str, profile: str = "tight") -> str:
    with pytest.raises(SpecError) as caught:
        chosen_method(schema, method, profile)
    message = str(caught.value)
    assert "\n" not in message
    assert f"method {method!r}" in message
    return message


def test_joins_that_cannot_be_served_are_refused() -> None:
    """One line each: a public table, a key without a domain where its cells are needed, no common attribute."""
    for method, key in (("heavy_light", KEY), ("per_table", DECLARED)):
        for shape in COMMON:
            schema = schema_of(shape, key)
            assert chosen_method(schema, method).name == method
            public = dj.Schema((replace(schema.tables[0], private=False), *schema.tables[1:]), schema.attributes)
            if method == "heavy_light":
                assert "private" in refused(public, method)
            else:
                assert chosen_method(public, method).name == method
            assert "profile tight" in refused(schema, method, "paper")
        single = dj.Schema((dj.Table(name="r", attributes=("B",)),), (dj.Attribute(name="B", range=(0, 2)),))
        refused(single, method)
    for shape in ANY:
        if shape == "path":
            # A joins nothing there: as a key it plays no part.
            assert chosen_method(schema_of(shape, KEY), "per_table").name == "per_table"
        else:
            assert "every value of join attribute 'A'" in refused(schema_of(shape, KEY), "per_table")
    for shape in ("path", "triangle"):
        assert "all tables share" in refused(schema_of(shape, DECLARED), "heavy_light")
    nested = schema_of("nested", KEY)
    keys = dj.Schema(
        nested.tables, tuple(dj.Attribute(name="B", key=True) if a.name == "B" else a for a in nested.attributes)
    )
    assert "join attribute 'B'" in refused(keys, "heavy_light")


def test_a_table_with_too_many_cells_is_refused() -> None:
    """Before anything is spent, and in one line."""
    wide = (
        dj.Attribute(name="A", range=(0, 2**20)),
        dj.Attribute(name="p", range=(0, 4)),
        dj.Attribute(name="q", range=(0, 4)),
    )
    schema = dj.Schema((dj.Table(name="r", attributes=("A", "p")), dj.Table(name="s", attributes=("A", "q"))), wide)
    workload = Workload.marginals(schema, [("p", "q")])
    shares = per_table_shares(GENEROUS, schema)
    curator = Curator(BruteEngine(schema, {"r": [], "s": []}), shares.split)
    with pytest.raises(SpecError, match=r"^the model of table 'r' would have 5,242,885 cells .*$"):
        per_table_tight(curator, workload, shares, silent)
    assert curator.ledger.events == ()


COARSE = {
    "bins": dj.Attribute(name="B", bins=(0, 2, 3)),
    "other": dj.Attribute(name="B", values=(0,), other=True),
}


@pytest.mark.parametrize("coarse", COARSE)
@pytest.mark.parametrize("method", ["heavy_light", "per_table"])
def test_a_code_of_several_values_is_no_place_to_join(method: str, coarse: str) -> None:
    """Tables join on values, their models on codes. Where the models meet, a code must stand for one value."""
    nested = schema_of("nested", KEY if method == "heavy_light" else DECLARED)
    schema = dj.Schema(nested.tables, tuple(COARSE[coarse] if a.name == "B" else a for a in nested.attributes))
    assert "'B'" in refused(schema, method)


# The size of a join of models ------------------------------------------------------------------------------------


def unseen(curator: Curator, workload: Workload) -> Look:
    """Nothing was looked at."""
    return Look(curator, workload, (), NoisyTotal(1.0, math.inf))


def test_a_join_of_models_gets_the_size_of_the_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise hides which of 4,000 values are frequent in both tables, so a join of models alone is far too small."""
    rng = np.random.default_rng(8)
    popular = 1 / np.arange(1.0, 4_001.0) ** 0.4
    keys = [rng.choice(4_000, 15_000, p=popular / popular.sum()) for _ in "rs"]
    tables = {t: pa.table({"A": k, a: rng.integers(0, 3, len(k))}) for t, a, k in zip("rs", "pq", keys, strict=True)}
    attributes = (
        dj.Attribute(name="A", range=(0, 3_999)),
        dj.Attribute(name="p", range=(0, 2)),
        dj.Attribute(name="q", range=(0, 2)),
    )
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("A", "p")), dj.Table(name="s", attributes=("A", "q"))), attributes
    )
    workload = Workload.marginals(schema, [("p", "q")])
    exact = int(np.dot(*(np.bincount(k, minlength=4_000) for k in keys)))
    engine = DuckEngine(schema, tables, attributes=workload.attributes)
    first, again, shares = (per_table_shares(Budget(epsilon=1.0, delta=1e-6), schema) for _ in range(3))
    counted = release_tables(unseen(Curator(engine, first.split), workload), None, silent).model.total
    assert counted == pytest.approx(exact, rel=0.15)
    with monkeypatch.context() as patched:
        patched.setattr(Joined, "counted", None)
        plain = release_tables(unseen(Curator(engine, again.split), workload), None, silent).model.total
    assert plain < 0.93 * exact
    curator = Curator(engine, shares.split)
    outcome = per_table_tight(curator, workload, shares, silent)
    assert outcome.model.total == pytest.approx(exact, rel=0.04)
    assert "scaled" in outcome.strategy
    group = workload.groups[0]
    true = np.array(
        [
            np.dot(
                *(
                    np.bincount(k[tables[t][a].to_numpy() == v], minlength=4_000)
                    for t, a, k, v in zip("rs", "pq", keys, cell, strict=True)
                )
            )
            for cell in itertools.product(range(3), range(3))
        ]
    )
    assert (np.abs(outcome.model.answer(group) - true) <= outcome.model.error(group, 0.9)).mean() > 0.6


@pytest.mark.parametrize(
    ("noisy", "deviation", "flattened", "between"),
    [
        (1_000.0, 1.0, 300.0, (990.0, 1_001.0)),  # the join's size is known well
        (1_000.0, 1e6, 300.0, (490.0, 530.0)),  # hardly at all: the models' join tells more
        (1_000.0, 300.0, 0.0, (490.0, 700.0)),  # nothing is flattened, so the models' join is right
        (5_000.0, 50.0, 0.0, (5_000.0, 5_000.0)),  # unless it contradicts what was measured
        (1_000.0, 50.0, None, (500.0, 560.0)),  # ranks do not tell, and the models are rather sure
        (5_000.0, 50.0, None, (5_000.0, 5_000.0)),  # though not against what is far off
    ],
)
def test_the_size_leans_on_what_is_known(
    noisy: float, deviation: float, flattened: float | None, between: tuple[float, float]
) -> None:
    class Models:
        total = 500.0
        member_totals = np.array([480.0, 520.0])
        link_certainty, by_chance, counted = 0.5, 200.0, None

    found = likely_total(Models(), Size(NoisyTotal(noisy, deviation), flattened))  # type: ignore[arg-type]
    assert between[0] <= found.noisy <= between[1]
    assert found.deviation <= (deviation if flattened is not None else 0.3 * noisy + deviation)


def test_models_know_better_than_caps_that_lost_rows() -> None:
    """Where next to nothing is pulled together: a join of models cannot be too large by far more than its bars."""

    class Models:
        total = 500.0
        member_totals = np.array([480.0, 520.0])
        link_certainty, by_chance, counted = 1.0, 200.0, None

    for noisy, flattened, taken in ((300.0, 0.0, 500.0), (300.0, 50.0, 300.0), (900.0, 0.0, 900.0)):
        found = likely_total(Models(), Size(NoisyTotal(noisy, 10.0), flattened))  # type: ignore[arg-type]
        assert found.noisy == taken
    # A join that does not show under caps at all may be lost there, however sure they are.
    for noisy, flattened in ((15.0, None), (-40.0, 50.0)):
        found = likely_total(Models(), Size(NoisyTotal(noisy, 10.0), flattened))  # type: ignore[arg-type]
        assert found.noisy == 500.0


@pytest.mark.parametrize(
    ("total", "counted", "between"),
    [
        (None, (600.0, 5.0), (600.0, 600.0)),  # the models lack something
        (None, (600.0, 200.0), (500.0, 500.0)),  # or it is noise
        (NoisyTotal(612.0, 5.0), (600.0, 5.0), (605.0, 607.0)),  # the join itself says as much
        (NoisyTotal(620.0, 300.0), (600.0, 5.0), (600.0, 601.0)),
        (NoisyTotal(300.0, 5.0), (600.0, 5.0), (600.0, 600.0)),  # it contradicts: caps may lose rows, noise does not
    ],
)
def test_counted_rows_lack_nothing(
    total: NoisyTotal | None, counted: tuple[float, float], between: tuple[float, float]
) -> None:
    """Where their noise is small, they say more than models, which pull values together."""

    class Models:
        total = 500.0
        member_totals = np.array([480.0, 520.0])
        link_certainty, by_chance = 0.5, 200.0

    Models.counted = counted  # type: ignore[attr-defined]
    found = likely_total(Models(), None if total is None else Size(total, 30.0))  # type: ignore[arg-type]
    assert between[0] <= found.noisy <= between[1]


def test_the_size_needs_no_caps_where_bounds_are_declared() -> None:
    """Keys make it public; where neither serves, the size is that of the models' join."""
    schema = schema_of("two", DECLARED)
    keyed = dj.Schema(
        tuple(replace(t, bounds=(DegreeBound(attributes=("A",), limit=1),)) for t in schema.tables), schema.attributes
    )
    assert per_table_shares(GENEROUS, schema).look is not None
    shares = per_table_shares(GENEROUS, keyed)
    assert shares.look is None
    assert shares.count is not None
    enforced = tuple(replace(t, bounds=(DegreeBound(attributes=("A",), limit=3),), enforce=True) for t in schema.tables)
    assert per_table_shares(GENEROUS, dj.Schema(enforced, schema.attributes)).look is None


# The front door --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "shape", "key"),
    [
        ("heavy_light", "two", KEY),
        ("heavy_light", "nested", DECLARED),
        ("per_table", "two", DECLARED),
        ("per_table", "triangle", DECLARED),
    ],
)
def test_a_release_is_saved_and_loaded(
    method: str, shape: str, key: dj.Attribute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers, bars and the ledger come back to the bit; answers are never negative, and add up."""
    schema = schema_of(shape, key)
    workload = Workload.marginals(schema, (1, 2))
    tables = arrow_of(schema, with_degrees(schema, {0: 3, 1: 14, 3: 18}, np.random.default_rng(6)))
    monkeypatch.setattr(heavy_light, "best_choice", forced(2, 3))
    release = dj.release(schema, workload, tables, GENEROUS, method=method)
    assert isinstance(release.model, Union if method == "heavy_light" else Joined)
    if method == "heavy_light":
        assert [type(part) for part in release.model.parts] == [Model, Joined]
    answers, bars = release.answer(), release.error()
    assert (answers >= 0).all()
    assert np.isfinite(answers).all()
    assert not np.isnan(bars).any()
    assert release.ledger.rho <= Split(budget=GENEROUS).rho
    for group in workload.groups:
        assert release.model.answer(group).sum() == pytest.approx(release.model.total)
    again = dj.load(release.save(tmp_path / "out"))
    assert (again.answer() == answers).all()
    assert (again.error() == bars).all()
    assert again.manifest() == release.manifest()
    assert again.ledger == release.ledger
    assert (again.ledger.rho, again.ledger.delta) == (release.ledger.rho, release.ledger.delta)
    assert again.sample(20, seed=1).equals(release.sample(20, seed=1))


def test_the_size_is_right_where_frequent_values_are_others_in_each_table() -> None:
    """A value with a hundred rows here and three there: a model without negative counts would make twenty of three."""
    rng = np.random.default_rng(5)
    often, seldom = 150, 3
    keys = {t: np.arange(400) for t in ("r", "s")}
    counts = {"r": np.repeat([often, seldom], 200), "s": np.repeat([seldom, often], 200)}
    tables = {
        t: pa.table({"k": np.repeat(keys[t], counts[t]), a: rng.integers(0, 8, int(counts[t].sum()))})
        for t, a in (("r", "a"), ("s", "c"))
    }
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "c"))),
        (dj.Attribute(name="k", key=True), *(dj.Attribute(name=a, range=(0, 7)) for a in ("a", "c"))),
    )
    workload = dj.Workload.marginals(schema, [("a",), ("a", "c")])
    released = dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6), method="heavy_light")
    assert released.answer()[:8].sum() == pytest.approx(float((counts["r"] * counts["s"]).sum()), rel=0.15)


def _paired(rng: np.random.Generator, key: np.ndarray, names: str) -> pa.Table:
    """Two attributes that are mostly the same, whatever the key is."""
    first = rng.choice(4, len(key), p=[0.5, 0.25, 0.15, 0.1])
    second = np.where(rng.random(len(key)) < 0.8, first, rng.integers(0, 4, len(key)))
    return pa.table({"k": key, names[0]: first, names[1]: second})


@pytest.mark.parametrize("method", ["per_table", "heavy_light"])
def test_how_attributes_of_one_table_go_together_is_kept(method: str) -> None:
    """At no value of the key are there enough rows to see it; and odd values are most of the hybrid's join."""
    rng = np.random.default_rng(11)
    weights = 1 / np.arange(1, 121) ** 0.6
    tables = {
        "r": _paired(rng, rng.choice(120, 3_000, p=weights / weights.sum()), "ab"),
        "s": _paired(rng, rng.integers(0, 120, 30_000), "cd"),
    }
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("k", "a", "b")), dj.Table(name="s", attributes=("k", "c", "d"))),
        (dj.Attribute(name="k", range=(0, 119)), *(dj.Attribute(name=a, range=(0, 3)) for a in "abcd")),
    )
    workload = dj.Workload.marginals(schema, [("a", "b"), ("c", "d"), ("a", "c")])
    made = dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6), method=method)
    found = dj.evaluate(made, tables)
    # Independent attributes would be off by 0.4 in the first two of three marginals.
    assert found.mean_total_variation is not None
    assert found.mean_total_variation < 0.08
