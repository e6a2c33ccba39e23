"""Caps: both engines keep the same rows, and one row more changes what is kept by at most one row and r others."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpjoin.engine import caps
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Engine
from dpjoin.errors import SpecError
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from dpjoin.spec.workload import CELLS, Workload, kronecker
from support.brute import BruteEngine, place
from support.engines import arrow_tables, small_partitions
from support.strategies import SHAPES, random_instance, random_many

Caps = dict[str, list[DegreeBound]]


def random_caps(rng: np.random.Generator, schema: Schema) -> Caps:
    """One or two caps for most tables, by some of their join attributes."""
    found: Caps = {}
    for table in schema.tables:
        joins = [a for a in schema.join_attributes if a in table.attributes]
        sets = {tuple(a for a in joins if rng.random() < 0.6) or tuple(joins) for _ in range(2)}
        if joins and rng.random() < 0.85:
            found[table.name] = [DegreeBound(attributes=s, limit=int(rng.integers(1, 4))) for s in sorted(sets)]
    return found


def check_alike(schema: Schema, brute: Engine, duck: Engine, workload: Workload) -> None:
    assert brute.schema == duck.schema
    assert brute.exact_join_size() == duck.exact_join_size()
    for expected, found in zip(brute.exact_answers(workload.groups), duck.exact_answers(workload.groups), strict=True):
        assert expected.tolist() == found.tolist()
    for table in schema.tables:
        names = frozenset([table.name])
        assert brute.exact_boundary(names) == duck.exact_boundary(names)


@pytest.mark.parametrize("seed", range(60))
def test_two_tables(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small_partitions(monkeypatch, seed)
    rng = np.random.default_rng(seed)
    schema, workload, tables = random_instance(rng)
    brute = BruteEngine(schema, tables)
    duck = DuckEngine(schema, arrow_tables(schema, tables), attributes=schema.queryable)
    for _ in range(3):
        caps = random_caps(rng, schema)
        check_alike(schema, brute.capped(caps), duck.capped(caps), workload)


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("seed", range(4))
def test_many_tables(shape: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small_partitions(monkeypatch, seed)
    rng = np.random.default_rng([seed, len(shape)])
    schema, workload, tables = random_many(rng, shape)
    brute = BruteEngine(schema, tables)
    duck = DuckEngine(schema, arrow_tables(schema, tables), attributes=schema.queryable)
    caps = random_caps(rng, schema)
    check_alike(schema, brute.capped(caps), duck.capped(caps), workload)


def kept(engine: DuckEngine, schema: Schema, name: str) -> Counter[Any]:
    """What an engine keeps of one table, by codes."""
    attributes = tuple(a for a in schema.table(name).attributes if a in schema.queryable)
    alone = engine.one_table(name, (), (), attributes)
    group = kronecker(alone.schema, dict.fromkeys(attributes, CELLS))
    (exact,) = alone.exact_answers([group])
    return Counter({i: int(n) for i, n in enumerate(exact) if n})


PAIR = Schema(
    (Table(name="r", attributes=("k", "l", "a")), Table(name="s", attributes=("k", "l", "b"))),
    (
        Attribute(name="k", key=True),
        Attribute(name="l", key=True),
        Attribute(name="a", range=(0, 9)),
        Attribute(name="b", range=(0, 0)),
    ),
)


@pytest.mark.parametrize("seed", range(60))
def test_a_row_more_moves_few(seed: int) -> None:
    """However the engine numbers keys and merges rows: at most one row more, and one less for each cap."""
    rng = np.random.default_rng([77, seed])
    keys = [f"key {n}" for n in range(4)] if seed % 2 else [int(v) for v in rng.integers(-(10**9), 10**9, 4)]
    rows = [
        {"k": keys[rng.integers(4)], "l": int(rng.integers(2)), "a": int(rng.integers(rng.integers(1, 10)))}
        for _ in range(rng.integers(2, 60))
    ]
    # Many copies: one neighbour may be read as merged rows and the other not.
    rows = rows * int(rng.integers(1, 30))
    by = [("k", "l"), ("k",), ("l",)][: rng.integers(1, 4)]
    bounds = [DegreeBound(attributes=b, limit=int(rng.integers(1, 40))) for b in by]
    out = int(rng.integers(len(rows)))
    found = []
    for some in (rows, rows[:out] + rows[out + 1 :]):
        arrow = arrow_tables(PAIR, {"r": some, "s": [{"k": keys[0], "l": 0, "b": 0}]})
        found.append(kept(DuckEngine(PAIR, arrow, attributes=PAIR.queryable).capped({"r": bounds}), PAIR, "r"))
    more, less = found
    assert sum((more - less).values()) <= 1
    assert sum((less - more).values()) <= len(bounds)


def test_order_is_the_same_for_one_row_and_for_many() -> None:
    rng = np.random.default_rng(5)
    numbers = [int(v) for v in rng.integers(-5, 5, 20)]
    texts = [("a", "b", "", "é")[i] for i in rng.integers(0, 4, 20)]
    codes = rng.integers(0, 9, 20)
    copies = np.arange(20)
    columns = [pa.array(numbers), pa.array(texts, pa.large_string())]
    high, low = caps.places(columns, [codes], copies)
    rows = zip(numbers, texts, codes, copies, strict=True)
    hashes = [place([n, t], [int(c)], int(i))[0] for n, t, c, i in rows]
    assert hashes == [f"{h:016x}{w:016x}" for h, w in zip(high.tolist(), low.tolist(), strict=True)]


def test_the_same_rows_whatever_their_numbers() -> None:
    """Other keys come and go, and so do their numbers; what is kept of a key does not change."""
    schema = Schema(
        (Table(name="r", attributes=("k", "a")), Table(name="s", attributes=("k", "b"))),
        (Attribute(name="k", key=True), Attribute(name="a", range=(0, 9)), Attribute(name="b", range=(0, 0))),
    )
    rng = np.random.default_rng(3)
    ours = [{"k": "x", "a": int(a)} for a in rng.integers(0, 10, 30)]
    found = []
    for others in (["a", "b", "c"], ["zz"], [], ["a"] * 500):
        r = [{"k": k, "a": 0} for k in others for _ in range(7)] + ours
        engine = DuckEngine(
            schema, arrow_tables(schema, {"r": r, "s": [{"k": "x", "b": 0}]}), attributes=schema.queryable
        )
        caps = {"r": [DegreeBound(attributes=("k",), limit=4)]}
        group = kronecker(schema, {"a": CELLS})
        found.append(engine.capped(caps).exact_answers([group])[0].tolist())
    assert sum(found[0]) == 4
    assert all(f == found[0] for f in found)


def test_keys_beyond_64_signed_bits_are_put_in_order_like_others() -> None:
    """Whether the engine keeps them as a run or as a list depends on the other values; what stays does not."""
    low = 2**63 + 5
    ours = [{"k": low, "l": 0, "a": a % 10} for a in range(30)]
    found = []
    for others in ([], [low + 1], [7]):
        rows = ours + [{"k": k, "l": 0, "a": 0} for k in others for _ in range(3)]
        columns = {c: [r[c] for r in rows] for c in ("k", "l", "a")}
        tables = {
            "r": pa.table({"k": pa.array(columns["k"], pa.uint64()), "l": columns["l"], "a": columns["a"]}),
            "s": pa.table({"k": pa.array([low], pa.uint64()), "l": [0], "b": [0]}),
        }
        engine = DuckEngine(PAIR, tables, attributes=PAIR.queryable)
        capped = engine.capped({"r": [DegreeBound(attributes=("k",), limit=4)]})
        found.append(capped.exact_answers([kronecker(PAIR, {"a": CELLS})])[0].tolist())
    assert sum(found[0]) == 4
    assert all(f == found[0] for f in found)


@pytest.mark.parametrize(("attributes", "limit"), [(None, 0), ((), 1), (("no such",), 1)])
def test_caps_must_be_by_join_attributes(attributes: tuple[str, ...] | None, limit: int) -> None:
    schema, _, tables = random_instance(np.random.default_rng(0))
    engine = BruteEngine(schema, tables)
    by = schema.join_attributes if attributes is None else attributes
    with pytest.raises(SpecError, match="must be at least 1"):
        engine.capped({schema.tables[0].name: [DegreeBound(attributes=by, limit=limit)]})
