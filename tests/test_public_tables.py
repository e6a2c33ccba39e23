"""Private tables beside public ones: public rows are read as they are, and knowing more never makes answers worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.auto.choose import auto_shares, auto_tight
from dpjoin.auto.plan import plan
from dpjoin.auto.registry import chosen_method, reads_bounds
from dpjoin.engine.brute import BruteEngine
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Engine
from dpjoin.errors import BudgetError, SpecError
from dpjoin.measure.progress import silent
from dpjoin.methods import public_partners as beside_module
from dpjoin.methods.per_table import per_table_shares, per_table_tight
from dpjoin.methods.public_partners import public_partner_errors
from dpjoin.model.joined import Joined
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import churn
from dpjoin.privacy.parts import OneTable
from dpjoin.privacy.public_tables import public_counts, with_public_bounds
from dpjoin.spec.schema import DegreeBound
from dpjoin.spec.toml import Spec
from dpjoin.spec.workload import Workload
from support.audit import Tape, attach, ledger_violations, overpaid, replay_violations
from support.auto import UNSEEN, force
from support.heavy_light import ANY, DECLARED, SHARP, arrow_of, audit, few_members, hot_rows, schema_of, told
from support.skewed import GENEROUS, Rows, changed

BUDGET = Budget(epsilon=1.0, delta=1e-6)
ENGINES: dict[str, Callable[[dj.Schema, Rows], Engine]] = {
    "brute": BruteEngine,
    "duck": lambda schema, rows: DuckEngine(schema, arrow_of(schema, rows), attributes=schema.queryable),
}


def beside(shape: str, public: set[int]) -> dj.Schema:
    """The same shape with some tables public."""
    schema = schema_of(shape, DECLARED)
    tables = tuple(replace(t, private=i not in public) for i, t in enumerate(schema.tables))
    return dj.Schema(tables, schema.attributes)


# Counting --------------------------------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", ["two", "path", "nested"])
def test_a_public_table_is_counted_as_it_is(shape: str, engine: str) -> None:
    """In the order of the attributes asked for, whatever the private tables hold."""
    schema, rng = beside(shape, {1}), np.random.default_rng(4)
    rows = hot_rows(schema, rng)
    table = schema.tables[1]
    for attributes in (table.attributes, table.attributes[::-1], table.attributes[:1]):
        count = Counter(tuple(row[a] for a in attributes) for row in rows[table.name])
        expected = [count[cell] for cell in np.ndindex(schema.shape(attributes))]
        for private in (rows, {**rows, schema.tables[0].name: []}):
            found = public_counts(ENGINES[engine](schema, private), table.name, attributes)
            assert list(found) == expected


def test_a_private_table_is_never_counted() -> None:
    """Neither by the engine's door nor by a Curator, and a sub-instance is not asked at all."""
    schema = beside("two", {1})
    engine = BruteEngine(schema, hot_rows(schema, np.random.default_rng(1)))
    curator = Curator(engine, Split(budget=GENEROUS))
    for count in (partial(public_counts, engine), curator.public_counts):
        with pytest.raises(BudgetError, match="table 'r' must be public to be counted exactly"):
            count("r", ("A",))
    (part,) = curator.restrict("tables", {"one": OneTable("r", ("A",))}, [Concentrated(curator.rho_left)])
    with pytest.raises(BudgetError, match="whole instance"):
        part.public_counts("s", ("A",))


# A join of models ------------------------------------------------------------------------------------------------


@pytest.mark.replay
@pytest.mark.parametrize("shape", ANY)
def test_per_table_beside_public_tables_replays_on_neighbours(shape: str) -> None:
    """One public table or all but one: same questions, declared moves hold, and the ledger has the whole budget."""
    rng = np.random.default_rng(len(shape))
    several = len(ANY[shape])
    for turn in range(6):
        public = {turn % several} if turn % 2 else set(range(several)) - {turn % several}
        schema = beside(shape, public)
        rows = hot_rows(schema, rng)
        found, parts = audit("per_table", schema, rows, changed(schema, rows, rng), turn)
        assert found == [], f"turn {turn}"
        assert parts == several - len(public)


@pytest.mark.parametrize("shape", ["two", "path", "triangle"])
def test_the_model_of_a_public_table_is_the_table(shape: str) -> None:
    """With all others noisy, and its part of the join exact in every member."""
    schema = beside(shape, {1})
    rows = hot_rows(schema, np.random.default_rng(3))
    shares = per_table_shares(BUDGET, schema)
    curator = Curator(BruteEngine(schema, rows), shares.split)
    with few_members():
        outcome = per_table_tight(curator, Workload.marginals(schema, 1), shares, silent)
    assert isinstance(outcome.model, Joined)
    model = outcome.model.tables[1]
    expected = public_counts(BruteEngine(schema, rows), schema.tables[1].name, model.domain.attributes)
    assert model.table.reshape(-1).tolist() == list(expected)
    assert model.variants == []
    assert curator.rho_left == 0


def test_a_release_beside_a_public_table_is_saved_and_loaded(tmp_path: object) -> None:
    schema = beside("two", {1})
    rows = arrow_of(schema, hot_rows(schema, np.random.default_rng(8)))
    release = dj.release(schema, Workload.marginals(schema, (1, 2)), rows, GENEROUS, method="per_table")
    again = dj.load(release.save(f"{tmp_path}/out"))
    assert (again.answer() == release.answer()).all()
    assert (again.error() == release.error()).all()
    assert np.isfinite(again.error()).all()


# Several private tables ----------------------------------------------------------------------------------------


@pytest.mark.oracle
@pytest.mark.parametrize("shape", ["star", "nested", "path", "triangle"])
def test_bounds_of_public_tables_are_their_largest_degrees(shape: str) -> None:
    """Read off the public table alone; no row goes, and no bound of a private table comes in."""
    schema, rng = beside(shape, {1}), np.random.default_rng(2)
    for _ in range(3):
        rows = hot_rows(schema, rng)
        name = schema.tables[1].name
        for private in (rows, {**rows, schema.tables[0].name: []}):
            for make in ENGINES.values():
                engine = make(schema, private)
                bounded = with_public_bounds(engine)
                table = bounded.schema.table(name)
                assert table.bounds
                for bound in table.bounds:
                    count = Counter(tuple(row[a] for a in bound.attributes) for row in rows[name])
                    assert bound.limit == max(count.values(), default=1)
                others = zip(schema.tables, bounded.schema.tables, strict=True)
                assert all(before == after for before, after in others if after.name != name)
                assert bounded.exact_join_size() == engine.exact_join_size()
                assert churn(bounded.schema) == 0


@pytest.mark.replay
@pytest.mark.parametrize("way", ["capped", "per_table", UNSEEN, None])
@pytest.mark.parametrize("shape", ["star", "nested", "path", "triangle"])
def test_auto_beside_public_tables_replays_on_neighbours(
    shape: str, way: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the bounds that are read off them: same questions, declared moves hold, all of rho is spent."""
    force(way, monkeypatch)
    rng = np.random.default_rng([len(shape), len(way or "")])
    for turn in range(4):
        schema = beside(shape, {turn % 3})
        rows = hot_rows(schema, rng)
        curators: list[Any] = []

        def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
            engine = with_public_bounds(BruteEngine(schema, tables))  # noqa: B023
            shares = auto_shares(SHARP, engine.schema)
            curator = attach(kind(engine, shares.split), tape)
            curators.append(curator)  # noqa: B023
            with few_members():
                outcome = auto_tight(curator, Workload.marginals(engine.schema, 1), shares, silent)
            assert outcome.method == way or (way in (None, UNSEEN) and (outcome.method, way) != ("capped", UNSEEN))
            return told(outcome)

        assert replay_violations(run, rows, changed(schema, rows, rng)) == []
        assert overpaid(curators[1]) == []
        assert ledger_violations(curators[0].ledger, SHARP) == []
        assert curators[0].rho_left == 0


def chain(rng: np.random.Generator) -> tuple[dj.Schema, dict[str, pa.Table]]:
    """R(k, a), S(k, l, b), and T(l, c), which is public and has three rows of a value on average."""
    rows, popular = 20_000, 1 / np.arange(1, 61) ** 0.7
    key = {t: rng.choice(60, rows, p=popular / popular.sum()) for t in "rs"}
    tables = {
        "r": pa.table({"k": key["r"], "a": rng.integers(0, 6, rows)}),
        "s": pa.table({"k": key["s"], "l": rng.integers(0, 200, rows), "b": rng.integers(0, 5, rows)}),
        "t": pa.table({"l": rng.integers(0, 200, 600), "c": rng.integers(0, 7, 600)}),
    }
    sizes = {"k": 60, "l": 200, "a": 6, "b": 5, "c": 7}
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x.column_names), private=t != "t") for t, x in tables.items()),
        tuple(dj.Attribute(name=a, range=(0, n - 1)) for a, n in sizes.items()),
    )
    return schema, tables


@pytest.mark.statistical
def test_several_private_tables_beside_a_public_one_are_released_well() -> None:
    """By one noisy bound errors are several times as large. What is released has the schema that was asked."""
    schema, tables = chain(np.random.default_rng(6))
    workload = Workload.marginals(schema, [("a", "b"), ("b", "c"), ("a", "c")])
    found = {}
    for method in ("auto", "multi_table"):
        made = [dj.release(schema, workload, tables, BUDGET, method=method) for _ in range(3)]
        found[method] = median(dj.evaluate(m, tables).mean_total_variation or 0.0 for m in made)
        assert all(m.schema == schema for m in made)
    assert found["auto"] < found["multi_table"] / 2
    assert made[0].method == "multi_table"
    spec = Spec(schema, workload, BUDGET)
    assert plan(spec).method == "auto"
    assert any("as if each value were there once" in note for note in plan(spec).notes)


# Choosing --------------------------------------------------------------------------------------------------------


def pair(
    keys: int, *, public: bool = True, unique: bool = False, rows: int = 20_000
) -> tuple[dj.Schema, dict[str, pa.Table]]:
    """R(k, a), and S(k, c) with popular keys, or with each of them once."""
    rng = np.random.default_rng(keys)
    popular = 1 / np.arange(1, keys + 1) ** 0.8
    drawn = [rng.choice(keys, rows, p=popular / popular.sum()) for _ in "rs"]
    drawn[1] = np.arange(keys) if unique else drawn[1]
    weights = 0.8 ** np.arange(8)
    tables = {
        t: pa.table({"k": k, a: rng.choice(8, len(k), p=weights / weights.sum())})
        for t, a, k in zip("rs", "ac", drawn, strict=True)
    }
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "c"), private=not public)),
        (dj.Attribute(name="k", range=(0, keys - 1)), *(dj.Attribute(name=a, range=(0, 7)) for a in "ac")),
    )
    return schema, tables


PAIRS = [("a",), ("c",), ("a", "c")]


@pytest.mark.statistical
def test_a_table_that_is_public_does_no_harm() -> None:
    """The join with its rows known is released with less error than with its rows private, and far less than as one."""
    off = {}
    for public, method in ((True, "auto"), (True, "two_table"), (False, "auto")):
        schema, tables = pair(200, public=public)
        workload = Workload.marginals(schema, PAIRS)
        made = [dj.release(schema, workload, tables, BUDGET, method=method) for _ in range(7)]
        found = [dj.evaluate(m, tables) for m in made]
        assert np.mean([f.covered for f in found]) > 0.8
        off[public, method] = median(f.mean_total_variation or 0.0 for f in found)
        if public and method == "auto":
            assert {m.method for m in made} == {"per_table"}
            assert set(made[0].facts["predicted_error"]) == {"two_table", "per_table"}
            assert all((m.ledger.epsilon, m.ledger.rho, m.ledger.delta) == (1, 0, 0) for m in made)
    assert off[True, "auto"] < 1.1 * off[False, "auto"]
    assert off[True, "auto"] < 0.6 * off[True, "two_table"]


def test_a_table_with_many_keys_that_refer_is_one_join() -> None:
    """Each key has one public row, so a row moves one result; ten thousand noisy keys would add up."""
    schema, tables = pair(10_000, unique=True)
    made = dj.release(schema, Workload.marginals(schema, PAIRS), tables, BUDGET)
    assert made.method == "two_table"
    assert made.facts["predicted_error"]["two_table"] < made.facts["predicted_error"]["per_table"]


def test_errors_are_foreseen_from_public_rows_alone() -> None:
    """They grow with noise and with what rows meet, and say nothing of workloads that they are not made for."""
    schema, tables = pair(50)
    workload = Workload.marginals(schema, PAIRS)
    one = public_errors(schema, workload, tables)
    other = public_errors(schema, workload, {**tables, "r": tables["r"].slice(0, 10)})
    assert one == other
    twice = {**tables, "s": pa.concat_tables([tables["s"], tables["s"]])}
    assert public_errors(schema, workload, twice) == pytest.approx({name: 2 * error for name, error in one.items()})
    assert public_errors(schema, workload, tables, rho=0.01) == pytest.approx(
        {name: error * 10**0.5 for name, error in one.items()}
    )
    products = workload + Workload.products(schema, {"r": (["a"], np.eye(8)[:2]), "s": (["c"], np.eye(8)[:2])})
    assert public_errors(schema, products, tables) == {}


def test_nothing_is_foreseen_of_tables_that_share_nothing_or_are_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the join is one table."""
    schema, tables = pair(50)
    workload = Workload.marginals(schema, PAIRS)
    assert public_errors(schema, workload, tables)
    with monkeypatch.context() as patched:
        patched.setattr(beside_module, "PARTNER_CELLS", 50 * 8 - 1)
        assert public_errors(schema, workload, tables) == {}
    apart = dj.Schema(
        (schema.tables[0], dj.Table(name="s", attributes=("c",), private=False)),
        schema.attributes,
    )
    alone = {**tables, "s": tables["s"].select(["c"])}
    assert public_errors(apart, Workload.marginals(apart, PAIRS), alone) == {}


def test_bounds_are_not_read_where_they_would_not_serve() -> None:
    """A private table that shares nothing cannot be capped, whatever public tables hold."""
    schema, _ = chain(np.random.default_rng(1))
    assert reads_bounds(chosen_method(schema, "auto"), schema)
    assert not reads_bounds(chosen_method(schema, "multi_table"), schema)
    assert not reads_bounds(chosen_method(schema, "auto", "paper"), schema)
    loose = dj.Schema(
        (*schema.tables, dj.Table(name="u", attributes=("d",))),
        (*schema.attributes, dj.Attribute(name="d", range=(0, 1))),
    )
    found = chosen_method(loose, "auto")
    assert found.name == "multi_table"
    assert not reads_bounds(found, loose)


def public_errors(
    schema: dj.Schema, workload: Workload, tables: dict[str, pa.Table], rho: float = 0.1
) -> dict[str, float]:
    engine = DuckEngine(schema, tables, attributes=workload.attributes)
    share = Budget(epsilon=1.0, delta=1e-6).exact.epsilon * int(rho * 1000) / 1000
    return public_partner_errors(workload, partial(public_counts, engine), as_one=share, one_table=share)


@pytest.mark.parametrize("method", ["auto", "capped"])
def test_bounds_of_both_kinds_of_tables_serve_together(method: str) -> None:
    """Caps may be below the declared bounds of private tables; what bounds public ones stays, and nothing raises."""
    schema = beside("path", {2})
    joins = {t.name: [a for a in t.attributes if a in schema.join_attributes] for t in schema.tables}
    bounds = {name: tuple(DegreeBound(attributes=(a,), limit=3) for a in own) for name, own in joins.items()}
    tables = tuple(replace(t, bounds=bounds[t.name]) if t.private else t for t in schema.tables)
    bounded = dj.Schema(tables, schema.attributes)
    rows: Rows = {t.name: [dict.fromkeys(t.attributes, 0)] * 2 for t in bounded.tables}
    dj.release(bounded, Workload.marginals(bounded, 1), arrow_of(bounded, rows), BUDGET, method=method)


def test_auto_keeps_to_one_join_where_keys_have_no_domain() -> None:
    schema, _ = pair(50)
    keys = dj.Schema(schema.tables, (dj.Attribute(name="k", key=True), *schema.attributes[1:]))
    assert chosen_method(keys, "auto").name == chosen_method(schema, "auto").name == "two_table"
    with pytest.raises(SpecError, match="every value of join attribute 'k'"):
        chosen_method(keys, "per_table")


@pytest.mark.parametrize("method", ["auto", "per_table"])
def test_the_plan_says_how_it_is_released(method: str) -> None:
    """Also where all noise is Laplace noise and there is no rho."""
    schema, _ = pair(50)
    spec = Spec(schema, Workload.marginals(schema, PAIRS), BUDGET, method=method, profile="tight")
    found = plan(spec)
    assert sum(stage.share for stage in found.stages) == pytest.approx(1)
    assert {stage.mechanism for stage in found.stages} == {"discrete Laplace"}
    assert ("by itself" in found.why) == (method == "auto")
