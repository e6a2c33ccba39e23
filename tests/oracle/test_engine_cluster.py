"""Sums of products in SQL, where the rows stay, equal the brute-force definitions: DuckDB plays the cluster."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dpjoin.engine import cluster_tables, local
from dpjoin.engine.duck import DuckEngine
from dpjoin.spec.workload import Workload
from support import alike
from support.brute import BruteEngine
from support.clusters import DuckCluster, assert_sums_of_products, cluster_engine, random_factor
from support.engines import arrow_tables
from support.strategies import SHAPES, random_instance, random_many, split_schema


def check(rng: np.random.Generator, kind: str, *, shape: str | None = None) -> list[int]:
    schema, workload, tables = random_instance(rng) if shape is None else random_many(rng, shape)
    engine = cluster_engine(schema, arrow_tables(schema, tables), DuckCluster(), schema.queryable)
    return alike.assert_alike(rng, engine, BruteEngine(schema, tables), tables, workload.groups, [kind])


@pytest.mark.parametrize("kind", alike.KINDS)
def test_one_and_two_tables(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes, boundaries, answers, and one further kind of question, on random instances."""
    sizes = []
    for seed in range(10):
        monkeypatch.setattr(cluster_tables, "SPREAD_CELLS", 32 if seed % 2 else 0)
        monkeypatch.setattr(local, "MARGINAL_CELLS", 0 if seed % 3 == 0 else 2**24)
        monkeypatch.setattr(cluster_tables, "STACKED_CELLS", 4 if seed % 5 == 0 else 2**12)
        sizes.append(check(np.random.default_rng([31, seed]), kind))
    assert sum(found[0] > 0 for found in sizes) > 2
    assert sum(sum(found[1:]) > 0 for found in sizes) > 2


def test_marginals_count_the_join_along_the_way() -> None:
    """Whoever asks for its size after them costs no query, and the size is right."""
    rng = np.random.default_rng(37)
    schema, cluster = split_schema((4, 3)), DuckCluster()
    tables = {t.name: pa.table({a: rng.integers(0, 3, 60) for a in t.attributes}) for t in schema.tables}
    engine = cluster_engine(schema, tables, cluster, schema.queryable)
    answers = engine.exact_answers(Workload.marginals(schema, 2).groups)
    before = len(cluster.asked)
    assert next(cluster._numbers) == 4, "both tables were sent and counted, and neither by its key"
    assert engine.exact_join_size() == DuckEngine(schema, tables, attributes=()).exact_join_size() > 60
    assert len(cluster.asked) == before
    assert {int(found.sum()) for found in answers} == {engine.exact_join_size()}


@pytest.mark.parametrize("shape", [s for s in SHAPES if len(SHAPES[s]) < 5])
def test_many_tables(shape: str) -> None:
    """The same, on joins of three and four tables of every shape."""
    sizes = [
        check(np.random.default_rng([32, seed, list(SHAPES).index(shape)]), alike.KINDS[seed], shape=shape)
        for seed in range(len(alike.KINDS))
    ]
    assert sum(sum(found) > 0 for found in sizes) > 1


SUMS = (("ab", "bc"), ("ab", "b", "bc"), ("ab", "bc", "ca"), ("ab", "bc", "cd"), ("abc", "bcd", "a"), ("ab", "cd", "b"))


@pytest.mark.parametrize("bits", [3, 20, 29, 40, 58])
def test_sums_of_products_never_wrap(bits: int) -> None:
    """Counts from 2^3 to 2^58, on joins with and without a cycle: BIGINT, halves of 32 bits or wide numbers."""
    rng, cluster = np.random.default_rng([33, bits]), DuckCluster()
    for shape in SUMS:
        if (bits + 4) * len(shape) < 127:
            factors = [(columns, random_factor(rng, columns, 2**bits)) for columns in shape]
            held = "".join(sorted(set("".join(shape))))
            for keep in ("", "a", held[-1], held[0] + held[-1], held):
                assert_sums_of_products(cluster, factors, keep)
    assert ("HUGEINT" in "".join(cluster.asked)) == (bits > 15)
    assert (">> 32" in "".join(cluster.asked)) == (bits in (20, 29))
