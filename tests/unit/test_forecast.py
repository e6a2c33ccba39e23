"""What methods promise before they run, against what they do: noisy bounds, keys that are drowned or asked about."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.measure.ranks import degree_sequence
from dpjoin.methods.capped import cap_attributes
from dpjoin.methods.likely_bound import expected_bound, ranked_degrees
from dpjoin.privacy.degree_bounds import degree_caps, degree_factors, subsets
from dpjoin.privacy.gauge import gauge, gauge_bound
from dpjoin.privacy.parts import Question
from dpjoin.privacy.residual import Boundaries, star
from dpjoin.spec.schema import DegreeBound
from support.auto import declared, even_tables
from support.capped import ranks_of

SHAPES = {
    "star": {"r": "Ka", "s": "Kb", "t": "Kc"},
    "path": {"r": "Ka", "s": "KLb", "t": "Lc"},
    "nested": {"r": "KLa", "s": "KLb", "t": "Kc"},
    "triangle": {"r": "KLa", "s": "LMb", "t": "MKc"},
}


def test_a_noisy_bound_is_about_what_ranks_promise() -> None:
    """Without noise: the largest degree and the shift for two tables, the gauge of products of degrees for three."""
    rng, width = np.random.default_rng(0), 40
    for shape, tables in (("two", "rs"), ("star", "rst")):
        schema = declared(shape)
        degrees = {t: [20 - n] * 50 for n, t in enumerate(tables)}
        ranks = []
        for table, rows in degrees.items():
            question = Question(name=table, rules={table: {}}, by=("A",))
            ranks.append(replace(ranks_of(rows, 0.0, rng), question=question, deviation=1.0))
        found = expected_bound(schema, ranked_degrees(schema, ranks), width)
        largest = [int(degree_sequence(r).max()) for r in ranks]  # an edge of their buckets
        expected = max(largest) + width if shape == "two" else gauge_bound(b := star(largest), gauge(b) + width)
        assert found == expected


@pytest.mark.parametrize("values", [30, 300])
@pytest.mark.parametrize(
    ("shape", "public"),
    # Nobody looks at what two tables of a triangle share if the third is public.
    [(shape, public) for shape in SHAPES for public in (False, True) if not (public and shape == "triangle")],
)
def test_a_noisy_bound_of_three_tables_is_foreseen(shape: str, public: bool, values: int) -> None:
    """Products of degrees alone were twenty times too large on circles, and caps ran where one bound is far better.

    Of a public table there are no ranks, and its bounds are known: taken for one row, it made bounds far too small.
    """
    rng, width = np.random.default_rng(3), 60
    tables = even_tables(SHAPES[shape], 3_000, values, rng)
    names = sorted({a for attributes in SHAPES[shape].values() for a in attributes})
    attributes = (dj.Attribute(name=a, **({"key": True} if a.isupper() else {"range": (0, 2)})) for a in names)
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x)) for t, x in SHAPES[shape].items()), tuple(attributes)
    )
    if public:
        bounds = []
        for by in ("K",), ("L",), ("K", "L"):
            if set(by) <= set(tables["r"].column_names):
                rows = tables["r"].group_by(list(by)).aggregate([([], "count_all")])["count_all"].to_pylist()
                bounds.append(DegreeBound(attributes=by, limit=max(rows)))
        first = replace(schema.tables[0], private=False, bounds=tuple(bounds))
        schema = dj.Schema((first, *schema.tables[1:]), schema.attributes)
    ranks = []
    for table, sets in cap_attributes(schema).items():
        for by in sets:
            rows = tables[table].group_by(list(by)).aggregate([([], "count_all")])["count_all"].to_pylist()
            question = Question(name=table, rules={table: {}}, by=by)
            ranks.append(replace(ranks_of(rows, 0.0, rng), question=question, deviation=1.0))
    engine = DuckEngine(schema, tables, attributes=("a", "b", "c"))
    exact = Boundaries(
        tables=tuple(SHAPES[shape]),
        private=frozenset(schema.private_tables),
        values={some: engine.exact_boundary(some) for some in subsets(schema)},
        caps=degree_caps(schema),
        factors=degree_factors(schema),
    )
    wanted = gauge_bound(exact, gauge(exact) + width)
    assert wanted / 3 < expected_bound(schema, ranked_degrees(schema, ranks), width) < 3 * wanted
