"""Known-bad inputs: numbers that wrap, labels that lie, a purse in the wrong hands. Each of these broke 0.1."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.cli.init import Wishes, draft, read_source
from dpjoin.engine import scan, spill
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Labels, RowWeights
from dpjoin.measure.shares import one_sided
from dpjoin.privacy import accounting as budgets
from dpjoin.privacy.accounting import Accountant, Composition, Concentrated, Pure, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.ledger import Ledger
from dpjoin.privacy.parts import Question
from dpjoin.privacy.sensitivity import weight_ranges
from dpjoin.spec.workload import CELLS, Factor, Kronecker, kronecker
from support.brute import BruteEngine

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


PAIR = dj.Schema(
    (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "b"))),
    (
        dj.Attribute(name="k", key=True),
        dj.Attribute(name="a", range=(0, 3)),
        dj.Attribute(name="b", range=(0, 1)),
    ),
)


ROWS = {
    "r": [{"k": k % 3, "a": k % 4} for k in range(12)],
    "s": [{"k": k % 3, "b": k % 2} for k in range(9)],
}


def curator(*, truncation_delta: Fraction = Fraction(1, 10**7)) -> Curator:
    return Curator(BruteEngine(PAIR, ROWS), Split(budget=BUDGET, truncation_delta=truncation_delta))


# Numbers that wrap ----------------------------------------------------------------------------------------------------


def path_of(limit: Any) -> dj.Schema:
    def bounds(*attributes: str) -> tuple[dj.DegreeBound, ...]:
        return tuple(dj.DegreeBound(attributes=(a,), limit=limit) for a in attributes)

    return dj.Schema(
        (
            dj.Table(name="r", attributes=("b", "a"), bounds=bounds("b")),
            dj.Table(name="s", attributes=("b", "c"), bounds=bounds("b", "c")),
            dj.Table(name="t", attributes=("c", "d"), bounds=bounds("c")),
        ),
        (
            dj.Attribute(name="a", range=(0, 1)),
            dj.Attribute(name="b", key=True),
            dj.Attribute(name="c", key=True),
            dj.Attribute(name="d", range=(0, 1)),
        ),
    )


@pytest.mark.parametrize("limit", [np.int32(50_000), np.int16(200), np.uint8(16), np.int64(2**32)])
def test_declared_bounds_do_not_wrap(limit: Any) -> None:
    """Their product is that of Python's whole numbers, whatever type they had."""
    schema = path_of(limit)
    assert all(type(b.limit) is int for t in schema.tables for b in t.bounds)
    asked = Curator(BruteEngine(schema, {"r": [], "s": [], "t": []}), Split(budget=BUDGET))
    bound = asked.public_bound()
    assert bound is not None
    assert bound.value == int(limit) ** 2


def test_a_release_with_narrow_bounds_hides_a_row() -> None:
    """A row of s that joins a million results moves a size whose noise is as large."""
    rows = {
        "r": pd.DataFrame({"b": [0] * 1000, "a": 0}),
        "s": pd.DataFrame({"b": [0], "c": [0]}),
        "t": pd.DataFrame({"c": [0] * 1000, "d": 0}),
    }
    schema = path_of(np.int32(50_000))
    workload = dj.Workload.marginals(schema, 1)
    release = dj.release(schema, workload, rows, BUDGET, method="multi_table")
    assert release.facts["sensitivity_bound"] == 50_000**2


def test_costs_of_numpy_fractions_are_exact() -> None:
    """`Fraction(np.int64(2**40))` keeps numpy's integer inside, and comparing it overflows."""
    cost = Concentrated(Fraction(np.int64(2**40)))
    assert type(cost.rho.numerator) is int
    allowance = Accountant(Concentrated(Fraction(1, 3 * 2**62)))
    with pytest.raises(dj.BudgetError, match="exceeds what is left"):
        allowance.spend(cost)
    asked = curator()
    with pytest.raises(dj.BudgetError, match="exceeds what is left"):
        asked.sensitivity_bound(Concentrated(Fraction(np.int64(2**40)), Fraction(1, 10**7)), half_width=100)


@pytest.mark.parametrize("limit", [float("nan"), 2.5, Decimal(3), "3", None, True, np.float64(3)])
def test_caps_must_be_whole_numbers(limit: Any) -> None:
    with pytest.raises(dj.SpecError, match=r"a degree bound \(.*\) must be a whole number"):
        dj.DegreeBound(attributes=("k",), limit=limit)


@pytest.mark.parametrize("edge", [1.5, Decimal("1.5"), float("nan"), True])
def test_edges_of_ranks_must_be_whole_numbers(edge: Any) -> None:
    """With an edge at 1.5 one row moves two buckets by a half each."""
    question = Question(name="q", rules={"r": {}}, by=("k",))
    with pytest.raises(dj.BudgetError, match="must be a whole number"):
        curator().noisy_ranks("ranks", [question], [edge], Concentrated(Fraction(1, 1000)))


def test_a_fade_keeps_its_attributes_and_weights() -> None:
    attributes, weights = ["k"], np.array([4, 2, 1])
    weights.setflags(write=False)
    fade = RowWeights(attributes, weights, np.int8(4))  # type: ignore[arg-type]
    attributes[0] = "a"
    weights.setflags(write=True)
    weights[:] = 4
    assert (fade.attributes, fade.weights.tolist(), type(fade.full)) == (("k",), [4, 2, 1], int)


def test_a_budget_takes_numpy_numbers() -> None:
    """It crashed on a numpy integer."""
    assert dj.Budget(epsilon=np.int64(1), delta=np.float64(1e-6)) == BUDGET
    assert type(dj.Budget(epsilon=np.int64(1), delta=1e-6).epsilon) is float


# Labels that lie ------------------------------------------------------------------------------------------------------


def degrees_of(asked: Curator) -> Any:
    question = Question(name="degrees", rules={"r": {}}, by=("k",))
    cost, width = one_sided(BUDGET, Fraction(1, 100), Fraction(1, 10**7), moves=1)
    return asked.noisy_degrees("degrees", [question], cost, half_width=width)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((5, "x"), "must have 1 parts"),
        ((), "must have 1 parts"),
        ((Decimal(5),), "must be text"),
        ((Fraction(5),), "must be text"),
        ((datetime(2020, 1, 1, tzinfo=UTC),), "must be text"),
        ([5], "must be a tuple"),
        (5, "must be a tuple"),
    ],
)
def test_labels_take_values_that_the_engine_can_compare(value: Any, words: str) -> None:
    key = tuple(value) if isinstance(value, list) else value
    if isinstance(value, list):
        key = pd.Interval(0, 1)  # hashable, and no tuple
    asked = curator()
    with pytest.raises(dj.DpjoinError, match=words):
        asked.labels("size", degrees_of(asked), {key: 1})


def test_aliases_of_one_value_have_one_bucket() -> None:
    """1, 1.0 and true are one value to the engine, and 5 is 5 whatever its type."""
    made = Labels("l", ("k",), {(np.float64(1.0),): 1, (np.int8(5),): 2})
    assert dict(made.buckets) == {(1,): 1, (5,): 2}
    assert all(type(v) is int for value in made.buckets for v in value)

    with pytest.raises(dj.DpjoinError):
        Labels("l", ("k",), {(1,): 1, (_Unequal(1),): 2})


class _Unequal(int):
    """An int that equals nothing."""

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 12345


def test_degrees_that_say_they_are_others_are_refused() -> None:
    """An object equal to everything is not one of this Curator's answers."""

    class Liar:
        question = Question(name="q", rules={"r": {}}, by=("k",))
        threshold = 0

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    asked = curator()
    degrees_of(asked)
    with pytest.raises(dj.BudgetError, match="must rest on degrees that this Curator answered"):
        asked.labels("size", [Liar()], {(0,): 1})  # type: ignore[list-item]


# The purse ------------------------------------------------------------------------------------------------------------


def small_release(**options: Any) -> dj.Release:
    frames = {name: pd.DataFrame(rows) for name, rows in ROWS.items()}
    return dj.release(PAIR, dj.Workload.marginals(PAIR, 1), frames, BUDGET, **options)


@pytest.mark.parametrize("method", ["auto", "two_table", "uniformize", "heavy_light"])
def test_an_accountant_of_another_budget_does_not_make_a_release(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever spends more than the budget says, nothing comes out that says otherwise."""
    honest = budgets.Budget.rho
    generous = dj.Budget(epsilon=50.0, delta=1e-6)
    monkeypatch.setattr(budgets.Budget, "rho", lambda self, **aside: honest(generous, **aside))
    with pytest.raises(dj.BudgetError, match="the ledger must add up to at most epsilon 1 and delta 1e-06"):
        small_release(method=method)


def test_a_curator_takes_no_accountant() -> None:
    """It makes its own."""
    accountant: Any = Accountant(Concentrated(Fraction(100)))
    with pytest.raises(dj.BudgetError, match="must be a Split"):
        Curator(BruteEngine(PAIR, ROWS), accountant)


class AnyGrain:
    """Equal to every grain; a variance that it is added to becomes next to nothing."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False

    def __radd__(self, other: object) -> Fraction:
        return Fraction(1, 10**9)


@pytest.mark.parametrize("grain", [AnyGrain(), 0.0, np.int64(0), False, -5])
def test_nobody_makes_a_composition(grain: Any) -> None:
    """A grain that only looked like a proved one left no noise at all, at any cost."""
    with pytest.raises((TypeError, ValueError, dj.DpjoinError)):
        dj.Budget(epsilon=1.0, delta=1e-6, composition=Composition("zero-concentrated", grain))  # type: ignore[call-arg]


def test_nobody_gives_a_curator_another_schema() -> None:
    """One in which a table is public would give its degrees away, exact and for nothing."""
    asked, opened = curator(), (replace(PAIR.tables[0], private=False), PAIR.tables[1])
    with pytest.raises(AttributeError):
        asked.schema = dj.Schema(opened, PAIR.attributes)  # type: ignore[misc]
    assert degrees_of(asked)[0].threshold > 0
    assert len(asked.ledger.events) == 1


class OpenSchema(dj.Schema):
    """A schema that equals every other, and says that one of its private tables is public."""

    private_tables = ("s",)  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = dj.Schema.__hash__


def test_a_schema_that_calls_private_tables_public_is_refused() -> None:
    """Rows of r were read for nothing, and their largest degree, exact, was the bound that the release stated."""
    opened, honest = OpenSchema(PAIR.tables, PAIR.attributes), dj.Workload.marginals(PAIR, 1)
    frames = {name: pd.DataFrame(rows) for name, rows in ROWS.items()}
    with pytest.raises(dj.SpecError, match=r"schema must be a dj\.Schema, not OpenSchema"):
        dj.release(opened, honest, frames, BUDGET, method="two_table")
    with pytest.raises(dj.BudgetError, match=r"an engine's schema .* must be a Schema"):
        Curator(BruteEngine(opened, ROWS), Split(budget=BUDGET))


class SmallLedger(Ledger):
    """A ledger that is within every budget."""

    def check_within(self, budget: dj.Budget) -> None:
        return


def test_a_ledger_that_says_it_is_within_any_budget_is_refused() -> None:
    made = small_release(method="two_table")
    ledger = SmallLedger(made.ledger.composition, made.ledger.events)
    with pytest.raises(dj.ReleaseError, match=r"a release's ledger .* must be a Ledger"):
        replace(made, ledger=ledger, budget=dj.Budget(epsilon=0.01, delta=1e-6))


@pytest.mark.parametrize("largest", [3, 2**62])
def test_nobody_shrinks_the_weights_that_moves_rest_on(largest: int) -> None:
    """The Curator's own numbers, kept for the next group that is equal: a caller could write into them."""
    group = Kronecker("q", ("a",), (Factor("weights", (0, 1, 2, largest)),), (4,))
    with pytest.raises(ValueError, match="read-only"):
        weight_ranges(group).high[:] = 0
    with pytest.raises(ValueError, match="read-only"):
        weight_ranges(group).low[:] = 0
    assert weight_ranges(replace(group)).of(0) == (0, largest)


@pytest.mark.parametrize("profile", ["tight", "paper"])
def test_a_folder_that_states_less_than_its_ledger_is_refused(profile: str, tmp_path: Path) -> None:
    folder = small_release(method="two_table", profile=profile).save(tmp_path / "out")
    assert dj.load(folder).budget == BUDGET
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["guarantee"]["epsilon"] = 0.1
    file.write_text(json.dumps(manifest))
    with pytest.raises(dj.ReleaseError, match=r"the ledger must add up to at most epsilon 0\.1"):
        dj.load(folder)


@pytest.mark.parametrize(
    "lie", ["a block that is too cheap", "rounds without a block", "rounds dearer than their block"]
)
def test_a_paper_ledger_whose_rounds_are_not_paid_is_refused(lie: str) -> None:
    """Rounds are free only inside a block that costs what they do together."""
    ledger = small_release(method="two_table", profile="paper").ledger
    ledger.check_within(BUDGET)
    events = list(ledger.events)
    at = next(i for i, e in enumerate(events) if e.mechanism == "advanced composition")
    if lie == "a block that is too cheap":
        count = int(events[at].parameters["count"])
        events[at] = replace(events[at], parameters={**events[at].parameters, "count": 100 * count})
    elif lie == "rounds without a block":
        del events[at]
    else:
        last = events[-1]
        events[-1] = replace(last, cost=Pure(2 * last.cost.epsilon))
    with pytest.raises(dj.BudgetError, match="the ledger must add up to at most"):
        replace(ledger, events=tuple(events)).check_within(BUDGET)


# What proofs rest on -------------------------------------------------------------------------------------------------


def test_a_table_with_two_enforced_bounds_moves_a_size_by_two_rows() -> None:
    """A new row pushes out two others, each with results of its own: noise for one row would be half of it."""
    once = dj.DegreeBound(attributes=("k",), limit=1), dj.DegreeBound(attributes=("l",), limit=1)
    schema = dj.Schema(
        (
            dj.Table(name="r", attributes=("k", "l", "a"), bounds=once, enforce=True),
            dj.Table(name="s", attributes=("k", "l"), private=False),
        ),
        (dj.Attribute(name="k", key=True), dj.Attribute(name="l", key=True), dj.Attribute(name="a", range=(0, 9))),
    )
    every = [{"k": k, "l": m} for k in range(2) for m in range(2)]
    sizes = set()
    for a in range(10):  # which rows are pushed out depends on their content
        before = [{"k": 0, "l": 1, "a": 5}, {"k": 1, "l": 0, "a": 5}]
        for rows in (before, [*before, {"k": 0, "l": 0, "a": a}]):
            sizes.add(BruteEngine(schema, {"r": rows, "s": every}).exact_join_size())
    asked = Curator(BruteEngine(schema, {"r": [], "s": every}), Split(budget=BUDGET))
    bound = asked.public_bound()
    assert bound is not None
    asked.join_size(bound, Concentrated(Fraction(1, 1000)))
    event = asked.ledger.events[-1]
    assert event.moves == 2 * bound.value
    assert event.parameters["variance"] == event.moves**2 / (2 * Fraction(1, 1000))
    assert max(sizes) - min(sizes) <= event.moves


def test_rows_without_a_value_are_not_alike() -> None:
    """A unique column may lack values, as in SQL. All but one of these rows went, and which one stayed depended on the
    others: a row more moved two cells, with noise for one."""
    unique = (dj.DegreeBound(attributes=("id",), limit=1),)
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("id", "k", "a"), bounds=unique), dj.Table(name="s", attributes=("k",))),
        (dj.Attribute(name="id", key=True), dj.Attribute(name="k", key=True), dj.Attribute(name="a", range=(0, 3))),
    )
    group = kronecker(schema, {"a": CELLS})
    for kind in (pa.int64(), pa.float64(), pa.string()):
        for number in range(5):
            rows = {"id": pa.nulls(number, kind), "k": pa.array([0] * number), "a": pa.array(range(number))}
            engine = DuckEngine(schema, {"r": pa.table(rows), "s": pa.table({"k": [0]})}, attributes=("a",))
            brute = BruteEngine(schema, {"r": pa.table(rows).to_pylist(), "s": [{"k": 0}]})
            expected = [1] * min(number, 4) + [0] * (4 - number)
            assert engine.exact_answers([group])[0].tolist() == brute.exact_answers([group])[0].tolist() == expected


def test_a_row_does_not_decide_how_others_are_spelt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB took A and a for one value where a column's collation says so, and wrote all of them as it found the
    first: with a row of A more, no row of a was listed, and none was joined."""
    monkeypatch.setattr(scan, "BATCH_ROWS", 1)  # the store groups the rows
    monkeypatch.setattr(scan, "ALIKE", 0)
    for number, spelt in enumerate((["a"] * 9, ["A", *["a"] * 9])):
        path = tmp_path / f"{number}.duckdb"
        with duckdb.connect(path) as connection:
            connection.execute("CREATE TABLE r (k VARCHAR COLLATE NOCASE)")
            connection.executemany("INSERT INTO r VALUES (?)", [[text] for text in spelt])
        alone = dj.Schema((dj.Table(name="r", attributes=("k",)),), (dj.Attribute(name="k", learn=True),))
        exact = DuckEngine(alone, {"r": (path, "r")}, attributes=("k",)).exact_values("k", 1)
        listed = dict(zip(exact.exact_values(np.arange(len(exact.exact_counts))), exact.exact_counts, strict=True))
        assert listed == {("a",): 9} | ({("A",): 1} if number else {})
        tables = (dj.Table(name="r", attributes=("k",)), dj.Table(name="s", attributes=("k",)))
        joined = dj.Schema(tables, (dj.Attribute(name="k", key=True),))
        engine = DuckEngine(joined, {"r": (path, "r"), "s": pa.table({"k": ["a"]})}, attributes=())
        assert engine.exact_join_size() == 9


def test_types_that_list_values_are_told_without_them(tmp_path: Path) -> None:
    """DuckDB's ENUM is often made from a column's values: they stood in first specs, which are public, and in errors"""
    with duckdb.connect(tmp_path / "r.duckdb") as connection:
        connection.execute("CREATE TYPE name AS ENUM ('it''s ) SECRET', 'b\"SECRET', ', ')")
        connection.execute("CREATE TABLE r (k INTEGER, a name, s STRUCT(a name), l name[])")
        connection.execute("INSERT INTO r SELECT 1, x, {a: x}, [x] FROM (SELECT CAST(', ' AS name) AS x)")
    source = read_source(f"{tmp_path / 'r.duckdb'}:r")
    text = draft([source], Wishes(learn=True), folder=tmp_path).text
    assert "secret" not in text.lower()
    assert set(tomllib.loads(text)["attributes"]) == {"k", "a"}
    for column in "asl":
        asked = dj.Attribute(name=column, range=(0, 1))
        schema = dj.Schema((dj.Table(name="r", attributes=(column,)),), (asked,))
        with pytest.raises(dj.SourceError, match=r"has type .*ENUM") as error:
            DuckEngine(schema, {"r": (tmp_path / "r.duckdb", "r")}, attributes=(column,))
        assert "SECRET" not in str(error.value)
    listed = dj.Schema((dj.Table(name="r", attributes=("a",)),), (dj.Attribute(name="a", values=(", ", "x")),))
    engine = DuckEngine(listed, {"r": (tmp_path / "r.duckdb", "r")}, attributes=("a",))
    assert engine.exact_answers([kronecker(listed, {"a": CELLS})])[0].tolist() == [1, 0]


def test_values_that_are_not_listed_may_have_degrees_up_to_the_threshold() -> None:
    (answer,) = degrees_of(curator())
    assert answer.listed == {}
    assert answer.most((7,)) == answer.threshold > 0


# Rows that stop a release --------------------------------------------------------------------------------------------


def test_no_value_stops_a_release() -> None:
    """A signalling nan among a frame's objects did: that there was no release told of one row."""
    frames = {name: pd.DataFrame(rows) for name, rows in ROWS.items()}
    odd = pd.Series([*frames["r"]["k"][1:], Decimal("sNaN")], dtype=object)
    for keys in (frames["r"]["k"].astype(object), odd):
        rows = {"r": frames["r"].assign(k=keys), "s": frames["s"].astype(object)}
        assert dj.release(PAIR, dj.Workload.marginals(PAIR, 1), rows, BUDGET, method="two_table").ledger.events


# Leftovers ------------------------------------------------------------------------------------------------------------


def test_rows_that_a_killed_process_spilled_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the next start, and only those: a living process keeps its own."""
    script = "from dpjoin.engine.spill import spill_folder; print(spill_folder(), flush=True); input()"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "TMPDIR": str(tmp_path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    folders = []
    for process in processes:
        assert process.stdout is not None
        folders.append(Path(process.stdout.readline().strip()))
        (folders[-1] / "rows.tmp").write_text("private")
    killed, alive = processes
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spill.remove_left_behind()
    assert [folder.exists() for folder in folders] == [False, True]
    alive.communicate("\n")
    assert not folders[1].exists()
