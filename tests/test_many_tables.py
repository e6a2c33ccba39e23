"""Joins of three and more tables: declared bounds are sound, replay passes, and a release comes out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpjoin as dj
from dpjoin.engine.brute import BruteEngine, _within_bounds
from dpjoin.engine.duck import DuckEngine
from dpjoin.measure.progress import silent
from dpjoin.measure.shares import tight_shares
from dpjoin.methods.as_one import as_one_tight
from dpjoin.paper.alg1_two_table import two_table_paper
from dpjoin.privacy.accounting import Budget, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.degree_bounds import bound_is_public, churn, degree_caps, degree_factors
from dpjoin.spec.schema import DegreeBound
from support.audit import Tape, attach, ledger_violations, replay_violations
from support.strategies import neighbour

BUDGET = Budget(epsilon=1.0, delta=1e-6)
SHAPES = {
    "two": ("AB", "BC"),
    "path": ("AB", "BC", "CD"),
    "star": ("AB", "AC", "AD"),
    "triangle": ("AB", "BC", "CA"),
    "contained": ("AB", "B", "BC"),
    "disconnected": ("A", "B", "BC"),
    "cycle": ("AB", "BC", "CD", "DA"),
}


def make_schema(shape: str, rng: np.random.Generator | None = None) -> dj.Schema:
    """Whole-number attributes of three values; with a generator, random public tables and degree bounds."""
    tables = []
    for i, attributes in enumerate(SHAPES[shape]):
        bounds: tuple[DegreeBound, ...] = ()
        private = True
        if rng is not None:
            sets = [tuple(attributes[:1]), tuple(attributes[-1:]), tuple(attributes)]
            chosen = [sets[j] for j in range(3) if rng.random() < 0.3]
            bounds = tuple(DegreeBound(attributes=s, limit=int(rng.integers(1, 4))) for s in dict.fromkeys(chosen))
            private = bool(i == 0 or rng.random() < 0.8)
        tables.append(
            dj.Table(name=f"R{i}", attributes=tuple(attributes), bounds=bounds, enforce=bool(bounds), private=private)
        )
    names = sorted(set("".join(SHAPES[shape])))
    return dj.Schema(tuple(tables), tuple(dj.Attribute(name=a, range=(0, 2)) for a in names))


def make_rows(schema: dj.Schema, rng: np.random.Generator, largest: int = 10) -> dict[str, list[dict[str, Any]]]:
    return {
        t.name: [{a: int(rng.integers(0, 3)) for a in t.attributes} for _ in range(rng.integers(0, largest))]
        for t in schema.tables
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_declared_bounds_imply_their_caps_and_factors(shape: str) -> None:
    """On instances that the bounds were enforced on, T_F <= cap_F and T_F <= c T_(F minus j), always."""
    rng = np.random.default_rng(1)
    for _ in range(40):
        schema = make_schema(shape, rng)
        engine = BruteEngine(schema, make_rows(schema, rng, 16))
        for tables, cap in degree_caps(schema).items():
            assert engine.exact_boundary(tables) <= cap
        for tables, name, factor in degree_factors(schema):
            assert engine.exact_boundary(tables) <= factor * engine.exact_boundary(tables - {name})


@pytest.mark.oracle
@pytest.mark.parametrize("shape", SHAPES)
def test_enforced_bounds_keep_the_same_rows_in_both_engines(shape: str) -> None:
    """The rank rule of DuckDB and of the definition leave joins with the same sizes and boundary values."""
    rng = np.random.default_rng(2)
    for _ in range(10):
        schema = make_schema(shape, rng)
        rows = make_rows(schema, rng, 16)
        arrow = {
            t.name: pa.table({a: pa.array([r[a] for r in rows[t.name]], pa.int64()) for a in t.attributes})
            for t in schema.tables
        }
        duck, brute = DuckEngine(schema, arrow, attributes=schema.queryable), BruteEngine(schema, rows)
        assert duck.exact_join_size() == brute.exact_join_size()
        names = [t.name for t in schema.tables]
        for size in range(1, len(names)):
            for chosen in combinations(names, size):
                assert duck.exact_boundary(frozenset(chosen)) == brute.exact_boundary(frozenset(chosen))


ORDERED = ("k", "Place", "x", "y")
ODD_TEXTS = ("", "a", "a|b", "b|c", "c", "1:a", "-", "ß", None)


def odd_schema(limit: int) -> dj.Schema:
    """Texts that run into each other when they are put side by side; NULL is out of the domain, "" is in it."""
    texts = tuple(t for t in ODD_TEXTS if t is not None)
    bounds = (DegreeBound(attributes=("k",), limit=limit), DegreeBound(attributes=("Place", "x"), limit=limit))
    return dj.Schema(
        (
            dj.Table(name="r", attributes=ORDERED, bounds=bounds, enforce=True),
            dj.Table(name="s", attributes=("k",), private=False),
        ),
        (
            *(dj.Attribute(name=a, key=True) for a in ("k", "Place")),
            *(dj.Attribute(name=a, values=texts, other=True) for a in ("x", "y")),
        ),
    )


def odd_answers(engine: Any, schema: dj.Schema) -> list[int]:
    (answers,) = engine.exact_answers(dj.Workload.marginals(schema, [("x", "y")]).groups)
    return [int(n) for n in answers]


@pytest.mark.oracle
def test_enforced_bounds_tell_rows_apart_that_look_alike_as_text() -> None:
    """Separators inside values, empty texts beside NULL, and keys that join nothing: both engines keep the same."""
    rng = np.random.default_rng(4)
    for turn in range(40):
        schema, many = odd_schema(1 + turn % 3), int(rng.integers(1, 40))
        some = {
            a: ODD_TEXTS[:2] if a == "k" else ODD_TEXTS[-2:] if a == "Place" else (*ODD_TEXTS[:5], None)
            for a in ORDERED
        }
        columns = {a: [some[a][i] for i in rng.integers(0, len(some[a]), many)] for a in ORDERED}
        keys = pa.table({"k": list(ODD_TEXTS[:2])})
        found = []
        for step in (1, -1):
            table = pa.table({a: pa.array(v[::step], pa.string()) for a, v in columns.items()})
            duck = DuckEngine(schema, {"r": table, "s": keys}, attributes=schema.queryable)
            brute = BruteEngine(schema, {"r": table.to_pylist(), "s": keys.to_pylist()})
            found += [odd_answers(duck, schema), odd_answers(brute, schema)]
        assert found == found[:1] * 4


@pytest.mark.parametrize("pair", [(("a|b", "c"), ("a", "b|c")), (("", "c"), (None, "c"))])
def test_which_rows_stay_does_not_depend_on_their_order(tmp_path: Path, pair: Any) -> None:
    """A file in any order, read again and again: of two rows that look alike, and of copies, the same ones stay.

    Copies must have one order for both bounds, else a row may be first in one group and last in the other.
    """
    schema, rng = odd_schema(1000), np.random.default_rng(5)
    rows = [*[pair[0]] * 100_000, *[pair[1]] * 100_000]
    found = set()
    for turn in range(4):
        order = np.arange(len(rows)) if turn < 2 else rng.permutation(len(rows))
        table = pa.table(
            {
                "k": ["k"] * len(rows),
                "Place": ["a"] * len(rows),
                "x": pa.array([rows[i][0] for i in order], pa.string()),
                "y": pa.array([rows[i][1] for i in order], pa.string()),
            }
        )
        pq.write_table(table, tmp_path / "r.parquet", row_group_size=50_000)
        tables = {"r": tmp_path / "r.parquet", "s": pa.table({"k": ["k"]})}
        found.add(tuple(odd_answers(DuckEngine(schema, tables, attributes=schema.queryable), schema)))
    assert len(found) == 1
    assert sum(*found) == 1000


def _runner(schema: dj.Schema, workload: dj.Workload, profile: str, ledgers: list[Any]) -> Any:
    def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
        engine = BruteEngine(schema, tables)
        if profile == "tight":
            shares = tight_shares(BUDGET, noisy_bound=not bound_is_public(schema), sensitivity=max(1, churn(schema)))
            curator = attach(kind(engine, shares.split), tape)
            outcome = as_one_tight(curator, workload, shares, silent)
        else:
            curator = attach(kind(engine, Split(budget=BUDGET, paper=True)), tape)
            outcome = two_table_paper(curator, workload, BUDGET.exact, silent)
        ledgers.append(curator.ledger)
        return np.append(outcome.model.table.reshape(-1), [outcome.noisy_total, outcome.sensitivity])

    return run


@pytest.mark.replay
@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_replay_on_random_neighbours(shape: str, profile: str) -> None:
    """Any join, with public tables and enforced bounds: same questions, declared moves hold, same publication."""
    rng = np.random.default_rng([3, len(shape), profile == "tight"])
    for turn in range(12):
        schema = make_schema(shape, rng if turn % 2 else None)
        workload = dj.Workload.marginals(schema, 1)
        tables, ledgers = make_rows(schema, rng), []
        run = _runner(schema, workload, profile, ledgers)
        assert replay_violations(run, tables, neighbour(rng, schema, tables)) == []
        assert ledger_violations(ledgers[0], BUDGET) == []


def test_enough_bounds_make_the_sensitivity_free() -> None:
    """A star with bounds on two tables of three still needs a noisy bound; on all three it needs none."""
    schema = make_schema("star")
    bounded = [replace(t, bounds=(DegreeBound(attributes=("A",), limit=i + 2),)) for i, t in enumerate(schema.tables)]
    some = dj.Schema((*bounded[:2], schema.tables[2]), schema.attributes)
    every = dj.Schema(tuple(bounded), schema.attributes)
    assert not bound_is_public(some)
    assert bound_is_public(every)
    curator = Curator(BruteEngine(every, make_rows(every, np.random.default_rng(0))), Split(budget=BUDGET, paper=True))
    bound = curator.public_bound()
    assert bound is not None
    assert bound.value == 3 * 4


def test_a_three_table_release_end_to_end(tmp_path: Path) -> None:
    """Path of three tables with a unique key and a bound: released, saved, loaded, evaluated."""
    rng = np.random.default_rng(4)
    orders = pa.table({"order": np.arange(4000), "customer": rng.integers(0, 500, 4000), "month": np.arange(4000) % 12})
    items = pa.table({"order": rng.integers(0, 4000, 9000), "kind": rng.integers(0, 4, 9000)})
    people = pa.table({"customer": np.arange(500), "region": np.arange(500) % 3})
    spec = dj.Spec.from_dict(
        {
            "privacy": {"epsilon": 4.0, "delta": 1e-6},
            "tables": {
                "people": {"attributes": ["customer", "region"], "unique": ["customer"]},
                "orders": {
                    "attributes": ["order", "customer", "month"],
                    "unique": ["order"],
                    "max_degree": {"customer": 30},
                },
                "items": {"attributes": ["order", "kind"], "max_degree": {"order": 12}},
            },
            "attributes": {
                "customer": {"key": True},
                "order": {"key": True},
                "region": {"range": [0, 2]},
                "month": {"range": [0, 11]},
                "kind": {"range": [0, 3]},
            },
            "workload": {"marginals": 2},
        }
    )
    tables = {"people": people, "orders": orders, "items": items}
    release = dj.release(spec.schema, spec.workload, tables, spec.budget, method="multi_table")
    assert release.method == "multi_table"
    assert release.facts["sensitivity_bound"] == 360
    assert release.ledger.events[0].purpose == "join size"
    again = dj.load(release.save(tmp_path / "out"))
    assert np.allclose(again.answer(), release.answer())
    assert any("At most one row of people" in line for line in again.manifest()["assumptions"])
    assert dj.Spec.from_dict(_as_dict(spec)).schema == spec.schema
    assert dj.evaluate(release, tables).join_size_error < 9000
    # The bounds are far above the degrees, and `auto` finds that out.
    assert dj.release(spec.schema, spec.workload, tables, spec.budget).facts["sensitivity_bound"] < 360


def _as_dict(spec: dj.Spec) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(spec.to_toml())


def _changes(keep: Any, rows: list[dict[str, Any]], more: dict[str, Any]) -> tuple[int, int]:
    """How many rows enter and leave what is kept when one row is added."""
    before = Counter(tuple(r.values()) for r in keep(rows))
    after = Counter(tuple(r.values()) for r in keep([*rows, more]))
    return (after - before).total(), (before - after).total()


@pytest.mark.known_bad
def test_bounds_enforced_one_after_the_other_are_caught() -> None:
    """Ranks of the second bound taken after the first one's removals: one new row changes more than 1 + r rows.

    With all ranks on the same rows, at most one row enters and at most r leave, always.
    """
    bounds = (DegreeBound(attributes=("A",), limit=1), DegreeBound(attributes=("B",), limit=1))
    table = dj.Table(name="R", attributes=("A", "B"), bounds=bounds, enforce=True)
    schema = dj.Schema((table,), tuple(dj.Attribute(name=a, range=(0, 4)) for a in "AB"))

    def together(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
        return _within_bounds(schema, table, list(rows))

    def one_by_one(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
        first, second = (replace(table, bounds=(b,)) for b in bounds)
        return _within_bounds(schema, second, _within_bounds(schema, first, list(rows)))

    rng = np.random.default_rng(9)
    worst = 0
    for _ in range(4000):
        rows = [{"A": int(rng.integers(5)), "B": int(rng.integers(5))} for _ in range(rng.integers(1, 12))]
        more = {"A": int(rng.integers(5)), "B": int(rng.integers(5))}
        entered, left = _changes(together, rows, more)
        assert entered <= 1
        assert left <= len(bounds)
        entered, left = _changes(one_by_one, rows, more)
        worst = max(worst, entered + left)
        if entered > 1:
            break
    assert entered > 1, f"never more than one entered; most changes {worst}"


@pytest.mark.parametrize("shape", ["two", "path", "star", "triangle"])
@pytest.mark.parametrize("profile", ["tight", "paper"])
def test_a_broken_promise_raises_nothing(shape: str, profile: str) -> None:
    """Rows beyond an assumed bound are left out silently: an error would tell that they exist."""
    schema = make_schema(shape)
    first = replace(schema.tables[0], bounds=(DegreeBound(attributes=schema.tables[0].attributes[-1:], limit=1),))
    promised = dj.Schema((first, *schema.tables[1:]), schema.attributes)
    rows = {t.name: [dict.fromkeys(t.attributes, 1)] * 30 for t in promised.tables}
    arrow = {
        t.name: pa.table({a: pa.array([r[a] for r in rows[t.name]], pa.int64()) for a in t.attributes})
        for t in promised.tables
    }
    released = dj.release(promised, dj.Workload.marginals(promised, 1), arrow, BUDGET, profile=profile)
    assert released.join_size >= 1
    assert DuckEngine(promised, arrow, attributes=()).exact_boundary(frozenset({first.name})) == 1
