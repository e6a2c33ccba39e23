"""Joins of three to eight tables: the engine equals the definitions, and sums of products never wrap."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dpjoin.engine.duck import DuckEngine
from dpjoin.spec.schema import Attribute, Schema, Table
from support.paths import FIXTURES

PUBLISHED: dict[str, dict[str, dict[str, str]]] = {
    "Q1": {
        "nation": {"nk": "n_nationkey"},
        "customer": {"ck": "c_custkey", "nk": "c_nationkey"},
        "orders": {"ok": "o_orderkey", "ck": "o_custkey"},
        "lineitem": {"ok": "l_orderkey", "sk": "l_suppkey"},
        "supplier": {"sk": "s_suppkey"},
    },
    "Q2": {
        "part": {"pk": "p_partkey"},
        "partsupp": {"pk": "ps_partkey", "sk": "ps_suppkey"},
        "supplier": {"sk": "s_suppkey"},
        "lineitem": {"pk": "l_partkey", "sk": "l_suppkey", "ok": "l_orderkey"},
        "orders": {"ok": "o_orderkey"},
    },
    "Q3": {
        "region": {"rk": "r_regionkey"},
        "nation": {"nk": "n_nationkey", "rk": "n_regionkey"},
        "customer": {"ck": "c_custkey", "nk": "c_nationkey"},
        "orders": {"ok": "o_orderkey", "ck": "o_custkey"},
        "lineitem": {"ok": "l_orderkey", "sk": "l_suppkey"},
        "supplier": {"sk": "s_suppkey", "nk": "s_nationkey"},
    },
}
"""The joins of Dong and Yi (SIGMOD 2021) over TPC-H tables: attribute -> column per table. Q3 is cyclic."""


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TPC-H tables at scale 0.01, generated."""
    folder = tmp_path_factory.mktemp("tpch")
    program = Path(sys.executable).parent / "tpchgen-cli"
    subprocess.run([program, "parquet", "-s", "0.01", "--output-dir", folder], check=True, capture_output=True)
    return folder


@pytest.mark.oracle
@pytest.mark.parametrize("query", PUBLISHED)
def test_published_boundaries(query: str, tpch: Path) -> None:
    """T_E equals the published value for every subset that holds the public tables, and so does the join size."""
    published = json.loads((FIXTURES / "tpch_boundaries.json").read_text())[query]
    tables = PUBLISHED[query]
    schema = Schema(
        tuple(Table(name=n, attributes=tuple(c), columns=c) for n, c in tables.items()),
        tuple(Attribute(name=a, key=True) for a in dict.fromkeys(a for c in tables.values() for a in c)),
    )
    engine = DuckEngine(schema, {n: tpch / f"{n}.parquet" for n in tables}, attributes=())
    assert engine.exact_join_size() == published["count"]
    assert {e: engine.exact_boundary(frozenset(e.split("+"))) for e in published["T"]} == published["T"]
