"""Tables that meet others in several places: what `per_table` asks of them, from public and noisy numbers only."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.measure.progress import silent
from dpjoin.methods.per_table import per_table_shares, per_table_tight
from dpjoin.methods.table_models import links_of
from dpjoin.model.joined import Joined
from dpjoin.model.terms import Terms
from dpjoin.privacy.curator import Curator
from dpjoin.spec.workload import Workload
from support.heavy_light import DECLARED, GENEROUS, schema_of


def test_attributes_are_measured_at_each_link() -> None:
    """A table that meets others in two places is asked about each; where it meets all in the same way, it is not."""
    path, pair = schema_of("path", DECLARED), schema_of("two", DECLARED)
    assert [links_of(path, t) for t in "rst"] == [[], [("B",), ("C",)], []]
    assert [links_of(pair, t) for t in "rs"] == [[], []]
    nested = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x)) for t, x in {"r": "Ap", "s": "ABq", "t": "ABu"}.items()),
        tuple(dj.Attribute(name=a, range=(0, 2)) for a in "ABpqu"),
    )
    assert [links_of(nested, t) for t in "rst"] == [[], [("A",)], [("A",)]]
    rng = np.random.default_rng(3)
    tables = {t.name: pa.table({a: rng.integers(0, 3, 300) for a in t.attributes}) for t in nested.tables}
    workload = Workload.marginals(nested, [("p", "q"), ("q", "u")])
    shares = per_table_shares(GENEROUS, nested)
    curator = Curator(DuckEngine(nested, tables, attributes=workload.attributes), shares.split)
    model = per_table_tight(curator, workload, shares, silent).model
    assert isinstance(model, Joined)
    cliques = [set(t.terms.cliques) for t in model.tables if isinstance(t.terms, Terms)]
    assert [("A", "q") in cliques[1], ("A", "u") in cliques[2], ("B", "q") in cliques[1]] == [True, True, False]


def test_marginals_with_more_cells_than_rows_are_asked_for_in_parts() -> None:
    """First without what an attribute has to do with another at one value, then by link; every answer has a bar."""
    rng = np.random.default_rng(3)
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x)) for t, x in {"r": "Ap", "s": "ABqv", "t": "Bu"}.items()),
        tuple(dj.Attribute(name=a, range=(0, 9 if a in "AB" else 3)) for a in "ABpqvu"),
    )
    workload = Workload.marginals(schema, [("q", "v"), ("p", "u"), ("p", "q")])

    def cliques(rows: int) -> set[tuple[str, ...]]:
        tables = {t.name: pa.table({a: rng.integers(0, 4, rows) for a in t.attributes}) for t in schema.tables}
        shares = per_table_shares(GENEROUS, schema)
        curator = Curator(DuckEngine(schema, tables, attributes=workload.attributes), shares.split)
        model = per_table_tight(curator, workload, shares, silent).model
        assert isinstance(model, Joined)
        assert all(np.isfinite(model.error(g, 0.9)).all() for g in workload.groups)
        terms = model.tables[1].terms
        assert terms is not None
        return {c for c in terms.cliques if len(c) > 1}

    parts = {("A", "q"), ("A", "v"), ("B", "q"), ("B", "v"), ("q", "v")}
    assert ("A", "B", "q", "v") in cliques(2_000)
    assert cliques(600) == {("A", "B", "q"), ("A", "B", "v"), *parts}
    assert cliques(200) == {("A", "B"), *parts}
