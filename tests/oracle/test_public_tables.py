"""Private tables beside public ones: public rows are read as they are, and knowing more never makes answers worse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Engine
from dpjoin.privacy.degree_bounds import churn
from dpjoin.privacy.public_tables import public_counts, with_public_bounds
from support.brute import BruteEngine
from support.engines import small_partitions
from support.heavy_light import arrow_of, hot_rows
from support.public_tables import beside
from support.skewed import Rows

ENGINES: dict[str, Callable[[dj.Schema, Rows], Engine]] = {
    "brute": BruteEngine,
    "duck": lambda schema, rows: DuckEngine(schema, arrow_of(schema, rows), attributes=schema.queryable),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", ["two", "path", "nested"])
def test_a_public_table_is_counted_as_it_is(shape: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the attributes asked for, whatever the private tables hold."""
    schema, rng = beside(shape, {1}), np.random.default_rng(4)
    rows = hot_rows(schema, rng)
    table = schema.tables[1]
    for attributes in (table.attributes, table.attributes[::-1], table.attributes[:1]):
        count = Counter(tuple(row[a] for a in attributes) for row in rows[table.name])
        expected = [count[cell] for cell in np.ndindex(schema.shape(attributes))]
        for seed, private in enumerate((rows, {**rows, schema.tables[0].name: []}, rows)):
            small_partitions(monkeypatch, seed)
            found = public_counts(ENGINES[engine](schema, private), table.name, attributes)
            assert list(found) == expected


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
