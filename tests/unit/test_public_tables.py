"""Private tables beside public ones: public rows are read as they are, and knowing more never makes answers worse."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.auto.plan import plan
from dpjoin.auto.registry import chosen_method, reads_bounds
from dpjoin.engine.duck import DuckEngine
from dpjoin.errors import BudgetError, SpecError
from dpjoin.measure.progress import silent
from dpjoin.methods import public_partners as beside_module
from dpjoin.methods.per_table import per_table_shares, per_table_tight
from dpjoin.methods.public_partners import public_partner_errors
from dpjoin.model.joined import Joined
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import OneTable
from dpjoin.privacy.public_tables import public_counts
from dpjoin.spec.schema import DegreeBound
from dpjoin.spec.toml import Spec
from dpjoin.spec.workload import Workload
from support.brute import BruteEngine
from support.heavy_light import arrow_of, few_members, hot_rows
from support.public_tables import BUDGET, PAIRS, beside, chain, pair
from support.skewed import GENEROUS, Rows


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
