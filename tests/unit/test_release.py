"""A release from Python: every kind of input and workload, saved, loaded, asked and sampled."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import dpjoin as dj
from dpjoin.released.release import MAX_SYNTHETIC_ROWS, SCALED_ROWS
from support.release import BUDGET, SCHEMA, TABLES, make_schema, make_tables

WORKLOAD = (
    dj.Workload.marginals(SCHEMA, [1, 2])
    + dj.Workload.prefixes(SCHEMA, ["c"], by=["b"])
    + dj.Workload.ranges(SCHEMA, ["a"])
    + dj.Workload.sums(SCHEMA, ["c"], by=["d"])
)


@pytest.fixture(scope="module")
def released() -> dj.Release:
    return dj.release(SCHEMA, WORKLOAD, TABLES, BUDGET)


def test_answers_are_useful(released: dj.Release) -> None:
    """At (1, 1e-6) the answers are far from uniform, close to the truth, and within their bars."""
    found = dj.evaluate(released, TABLES)
    assert found.mean_total_variation is not None
    assert found.mean_total_variation < 0.04
    assert found.covered > 0.75
    uniform = [1 / len(g) for g in WORKLOAD.groups[:4]]
    shares = released.answer(dj.Workload(SCHEMA, WORKLOAD.groups[:4])) / released.join_size
    assert np.abs(shares - np.repeat(uniform, [len(g) for g in WORKLOAD.groups[:4]])).max() > 0.1


def test_a_release_is_opened_and_asked_without_what_made_it(released: dj.Release, tmp_path: Path) -> None:
    """Loading, answers, bars, SQL and rows import no engine, no measurement and no algorithm."""
    folder = released.save(tmp_path / "out")
    code = f"""import sys, dpjoin as dj
release = dj.load({str(folder)!r})
release.answer(), release.error(), release.sample(9, seed=1), release.manifest()
release.answer("SELECT AVG(c) FROM joined WHERE a > 1 GROUP BY d"), release.sql("SELECT COUNT(*) FROM joined")
print(*sorted({{name.split(".")[1] for name in sys.modules if name.startswith("dpjoin.")}}))"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == ["canonical", "constants", "errors", "model", "privacy", "released", "spec"]


def test_the_public_names_are_listed() -> None:
    """`dir` lists what there is, and everything listed can be had."""
    assert dir(dj) == sorted([*dj.__all__, "__version__"])
    assert all(getattr(dj, name) is not None for name in dj.__all__)


def test_save_and_load_give_the_same_release(released: dj.Release, tmp_path: Path) -> None:
    """Answers, bars, samples and the ledger survive; the folder is complete and refuses to be overwritten."""
    folder = released.save(tmp_path / "out")
    again = dj.load(folder)
    assert np.allclose(again.answer(), released.answer())
    assert np.allclose(again.error(), released.error())
    assert again.sample(50, seed=3).equals(released.sample(50, seed=3))
    assert again.manifest() == released.manifest()
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md",
        "croissant.json",
        "datapackage.json",
        "manifest.json",
        "model.npz",
        "report.html",
        "synthetic.parquet",
    ]
    with pytest.raises(dj.ReleaseError, match="exists already"):
        released.save(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_answers_and_bars_are_worked_out_on_one_thread(released: dj.Release, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of large models they are thousands of small products, for which two threads mostly wait for each other."""
    seen: list[int] = []
    kind, answer = type(released.model), type(released.model).answer

    def watched(model: Any, group: Any) -> Any:
        seen.extend(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return answer(model, group)

    monkeypatch.setattr(kind, "answer", watched)
    with threadpool_limits(2, user_api="blas"):
        released.answer("SELECT COUNT(*) FROM joined")
        released.error("SELECT COUNT(*) FROM joined")
    assert set(seen) == {1}


def test_the_manifest_states_guarantee_and_assumptions(released: dj.Release) -> None:
    """What is promised, to whom, under which assumptions, and what was spent on what."""
    manifest = json.loads(json.dumps(released.manifest()))
    assert manifest["guarantee"]["epsilon"] == 1.0
    assert "one row" in manifest["guarantee"]["neighbours"]
    assert manifest["assumptions"]
    purposes = [e["purpose"] for e in manifest["ledger"]["events"]]
    assert purposes[:3] == ["ranks of r by k", "ranks of s by k", "join size"]
    assert manifest["schema"]["tables"].keys() == {"r", "s"}


def test_a_release_cannot_be_changed(released: dj.Release) -> None:
    """It is frozen."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        released.budget = BUDGET  # type: ignore[misc]


def test_synthetic_rows_open_everywhere_and_add_up(released: dj.Release, tmp_path: Path) -> None:
    """pandas, Polars and DuckDB read the Parquet file; its marginals are the model's, rounded."""
    file = released.save(tmp_path / "out") / "synthetic.parquet"
    frame = pd.read_parquet(file)
    assert len(frame) == len(pl.read_parquet(file)) == released.join_size
    counts = duckdb.sql(f"SELECT d, count(*) FROM '{file}' GROUP BY d ORDER BY d").fetchall()
    model = released.answer(dj.Workload.marginals(SCHEMA, [("d",)]))
    assert np.allclose([n for _, n in counts], model, atol=100)
    assert set(frame["b"].unique()) <= {"x", "y", "other"}
    assert frame["a"].between(0, 3).all()


def test_sql_and_samples(released: dj.Release) -> None:
    """SQL sees the table `joined`; a seed fixes a sample; nothing else can be reached."""
    total = released.sql("SELECT count(*) AS n FROM joined").to_pylist()
    assert total == [{"n": released.join_size}]
    assert released.sample(100, seed=1).equals(released.sample(100, seed=1))
    assert not released.sample(100, seed=1).equals(released.sample(100, seed=2))
    assert released.sample(0, seed=1).num_rows == 0
    with pytest.raises(dj.ReleaseError, match="SQL"):
        released.sql("SELECT nonsense FROM joined")
    with pytest.raises(dj.ReleaseError, match="SQL"):
        released.sql("SELECT * FROM read_csv('/etc/hostname')")


def test_bars_are_unknown_where_nothing_was_measured() -> None:
    """A pair that the workload never asked about together has no bar, and an attribute outside has no answer."""
    release = dj.release(SCHEMA, dj.Workload.marginals(SCHEMA, [("a", "b"), ("c",)]), TABLES, BUDGET)
    assert np.isnan(release.error(dj.Workload.marginals(SCHEMA, [("a", "c")]))).all()
    assert np.isfinite(release.error(dj.Workload.marginals(SCHEMA, [("a",)]))).all()
    with pytest.raises(dj.ReleaseError, match="'d' is not in this release"):
        release.answer(dj.Workload.marginals(SCHEMA, [("d",)]))


def test_a_public_table_costs_no_sensitivity_stage() -> None:
    """One private table beside a public one: the bound is the public table's largest degree, exactly."""
    schema = make_schema(private=False)
    release = dj.release(schema, dj.Workload.marginals(schema, 2), TABLES, BUDGET)
    degree = int(np.bincount(TABLES["s"]["k"].to_numpy()).max())
    assert release.facts["sensitivity_bound"] <= degree  # rows out of domain do not count
    assert release.ledger.events[0].purpose == "join size"


def test_one_table() -> None:
    """A single table has sensitivity one, and pandas and Polars frames are as good as Arrow."""
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("a", "b")),),
        (dj.Attribute(name="a", range=(0, 3)), dj.Attribute(name="b", values=("x", "y", "z"))),
    )
    workload = dj.Workload.marginals(schema, 2)
    for frame in (TABLES["r"], TABLES["r"].to_pandas(), pl.from_arrow(TABLES["r"])):
        release = dj.release(schema, workload, {"r": frame}, BUDGET)
        assert release.facts["sensitivity_bound"] == 1
        assert dj.evaluate(release, {"r": frame}).max_error < 200


@pytest.mark.parametrize("strategy", ["measure all", "rounds"])
def test_product_strategies(strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring all queries and adaptive rounds both work, alone and beside marginals, and spend everything."""
    from dpjoin.measure.product_queries import Prospect

    monkeypatch.setattr(Prospect, "best", strategy)
    rng = np.random.default_rng(6)
    weights = {"r": (("a",), rng.integers(0, 2, (12, 4))), "s": (("d",), rng.integers(0, 2, (12, 2)))}
    for extra in (dj.Workload(SCHEMA, ()), dj.Workload.marginals(SCHEMA, [("b", "c")])):
        workload = dj.Workload.products(SCHEMA, weights) + extra
        release = dj.release(SCHEMA, workload, TABLES, BUDGET)
        assert strategy.split()[-1] in release.facts["strategy"] or "once" in release.facts["strategy"]
        assert dj.evaluate(release, TABLES).max_error < 0.15 * release.join_size


@pytest.mark.parametrize("profile", ["tight", "paper"])
def test_only_the_join_size(profile: str) -> None:
    """A workload of the count alone spends everything on it."""
    from dpjoin.spec.workload import kronecker

    workload = dj.Workload(SCHEMA, (kronecker(SCHEMA, {}),))
    release = dj.release(SCHEMA, workload, TABLES, BUDGET, profile=profile)
    # Methods that add parts up have a total that is no whole number; the join size is that total, rounded.
    assert release.answer() == pytest.approx([release.join_size], abs=0.5)
    assert release.synthetic.num_rows == release.join_size


@pytest.mark.parametrize("profile", ["tight", "paper"])
def test_empty_tables_are_released_like_any_other(profile: str, tmp_path: Path) -> None:
    """Nothing raises and nothing is skipped; the release says about zero."""
    empty = {name: table.slice(0, 0) for name, table in TABLES.items()}
    release = dj.release(SCHEMA, WORKLOAD, empty, BUDGET, profile=profile)
    assert release.join_size >= 1
    assert dj.load(release.save(tmp_path / "out")).join_size == release.join_size


def test_a_huge_join_is_scaled_down_and_says_so(released: dj.Release) -> None:
    """Above the limit the synthetic rows are a sample, and each stands for several join results."""
    facts = dict(released.facts) | {"join_size": 10 * MAX_SYNTHETIC_ROWS}
    huge = dataclasses.replace(released, facts=facts)
    assert huge.synthetic.num_rows == SCALED_ROWS
    assert huge.rows_stand_for == 10 * MAX_SYNTHETIC_ROWS / SCALED_ROWS
    assert huge.manifest()["rows"]["each_stands_for"] == huge.rows_stand_for


def test_wrong_calls_are_refused() -> None:
    """One line each: unknown or missing table, unknown method or profile, a foreign workload, nine tables."""
    workload = dj.Workload.marginals(SCHEMA, 2)
    with pytest.raises(dj.SpecError, match="'q' is not in the schema"):
        dj.release(SCHEMA, workload, {**TABLES, "q": TABLES["r"]}, BUDGET)
    with pytest.raises(dj.SpecError, match="'s' is missing"):
        dj.release(SCHEMA, workload, {"r": TABLES["r"]}, BUDGET)
    with pytest.raises(dj.SpecError, match="profile"):
        dj.release(SCHEMA, workload, TABLES, BUDGET, profile="tigth")
    with pytest.raises(dj.SpecError, match="method"):
        dj.release(SCHEMA, workload, TABLES, BUDGET, method="magic")
    other = make_schema(private=False)
    with pytest.raises(dj.SpecError, match="the schema it is released with"):
        dj.release(SCHEMA, dj.Workload.marginals(other, 2), TABLES, BUDGET)
    with pytest.raises(dj.SpecError, match="disjoint"):
        dj.release(SCHEMA, workload, {"r": TABLES["r"], "s": TABLES["r"]}, BUDGET)
    names = [f"t{i}" for i in range(7)]
    nine = dj.Schema((*SCHEMA.tables, *(dj.Table(name=n, attributes=("k",)) for n in names)), SCHEMA.attributes)
    with pytest.raises(dj.SpecError, match="at most 8 tables"):
        dj.release(nine, dj.Workload.marginals(nine, 2), {**TABLES, **dict.fromkeys(names, TABLES["r"])}, BUDGET)


def test_calls_of_the_wrong_kind_are_refused_before_a_row_is_read(released: dj.Release) -> None:
    """What is easily mistaken is named: a tuple for a budget, a list of tables, a number of marginals."""
    schema, budget, tables = make_schema(), dj.Budget(epsilon=1.0, delta=1e-6), make_tables(10)
    workload = dj.Workload.marginals(schema, 1)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        (("spec.toml", workload, tables, budget), "schema must be a dj.Schema, not str"),
        ((schema, 2, tables, budget), "workload must be a dj.Workload, not int"),
        ((schema, workload, list(tables.values()), budget), "tables must map each table's name"),
        ((schema, workload, tables, (1.0, 1e-6)), "budget must be a dj.Budget, not tuple"),
    ]
    for arguments, words in wrong:
        with pytest.raises(dj.SpecError, match=words):
            dj.release(*arguments)
    with pytest.raises(dj.SpecError, match=r"marginals .* must list lists of attributes; write"):
        dj.Workload.marginals(schema, ["a", "b"])
    with pytest.raises(dj.ReleaseError, match=r"rows \(1000\.0\) must be a whole number"):
        released.sample(1e3, seed=1)  # type: ignore[arg-type]
    with pytest.raises(dj.ReleaseError, match=r"seed \(-1\) must be at least 0"):
        released.sample(1, seed=-1)


def test_a_release_is_asked_in_sql(released: dj.Release) -> None:
    """A statement stands for the workload that it makes."""
    statement = "SELECT a, COUNT(*) FROM joined GROUP BY a"
    workload = dj.Workload.sql(released.schema, statement)
    assert np.array_equal(released.answer(statement), released.answer(workload))
    assert np.array_equal(released.error(statement), released.error(workload))


def test_a_release_shows_itself_in_one_line(released: dj.Release) -> None:
    """What it is of, its guarantee and its columns; no page of arrays."""
    shown = repr(released)
    assert "\n" not in shown
    assert len(shown) < 300
    for words in ("⋈", "epsilon=1, delta=1e-06", f"{released.join_size:,}", ", ".join(released.attributes)):
        assert words in shown


def test_loading_what_is_no_release_is_refused(tmp_path: Path) -> None:
    """A missing or damaged folder gives one line."""
    with pytest.raises(dj.ReleaseError, match="not a release folder"):
        dj.load(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    (tmp_path / "model.npz").write_text("")
    with pytest.raises(dj.ReleaseError, match="cannot be read"):
        dj.load(tmp_path)
