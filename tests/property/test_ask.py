"""Numbers in bins: drawn where they belong, and the same for SQL over a release and over its rows."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpjoin as dj
from dpjoin.released.bin_widths import with_reach
from dpjoin.released.rows import numbers_within
from dpjoin.spec.schema import OTHER
from support.asked import INF, SCHEMA, release_of_one_table


@pytest.fixture(scope="module")
def released() -> dj.Release:
    return release_of_one_table()


@given(
    edges=st.one_of(
        st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=6, unique=True),
        st.lists(st.floats(-1e308, 1e308), min_size=2, max_size=6, unique=True),
    ),
    low=st.booleans(),
    high=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_numbers_lie_in_their_bins(edges: list[float], low: bool, high: bool, seed: int) -> None:
    """Whatever the edges; the public rule takes each number back to the code it was drawn for."""
    bins = (*([-INF] if low else []), *sorted(edges), *([INF] if high else []))
    attribute = dj.Attribute(name="x", bins=bins, other=True)
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, attribute.size, 200)
    numbers = numbers_within(attribute, codes, rng).to_pylist()
    assert [attribute.code(n) for n in numbers] == codes.tolist()
    if all(float(e).is_integer() and abs(e) < 2**50 for e in edges):
        assert all(n is None or isinstance(n, int) for n in numbers)


@st.composite
def _questions(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(["x", "y"]))
    edges = [e for e in SCHEMA.attribute(column).bins or () if math.isfinite(e)]
    between = sorted(draw(st.lists(st.sampled_from([*edges, 7, 30, 1.5]), min_size=2, max_size=2)))
    conditions = ["", f" WHERE {column} >= {between[0]}", f" WHERE {column} BETWEEN {between[0]} AND {between[1]}"]
    conditions.append(" WHERE g = 'b & c'")
    return f"{column}|{draw(st.sampled_from(conditions))}"


@given(question=_questions())
@settings(max_examples=25, deadline=None)
def test_sql_on_bins_agrees_with_the_numbers_of_the_rows(released: dj.Release, question: str) -> None:
    """max, min, median and ORDER BY are those of the rows; counts, AVG and SUM agree with them within their bars."""
    column, where = question.split("|")
    frame = released.to_polars()
    kept = frame.sql(f"SELECT * FROM self{where}")
    asked = released.ask(f"SELECT MAX({column}), MIN({column}), MEDIAN({column}), COUNT(*) FROM joined{where}").rows
    numbers = kept[column].drop_nulls()
    assert asked[0][1] == (numbers.max(), numbers.min(), numbers.median(), len(kept))
    ordered = released.ask(f"SELECT {column} FROM joined{where} ORDER BY {column} DESC NULLS LAST LIMIT 20")
    assert [row[1][0] for row in ordered.rows] == kept[column].sort(descending=True, nulls_last=True).to_list()[:20]
    if column == "x":
        for function, truth in (("AVG", numbers.mean()), ("SUM", numbers.sum())):
            if len(numbers) < 50:
                continue
            answers = released.ask(f"SELECT {function}(x) FROM joined{where}")
            value, bar = answers.rows[0][1][0], (answers.rows[0][2] or (0.0,))[0]
            assert bar is not None
            assert abs(value - truth) <= bar + 1e-9 * abs(truth)  # type: ignore[operator, arg-type]


@pytest.mark.parametrize("order", ["", "DESC"])
def test_order_is_that_of_the_rows(order: str) -> None:
    """Text by its letters, in whatever order it was declared; the others by size, and what is missing last."""
    attributes = (
        dj.Attribute(name="g", values=("pear", "Fig", "apple", "über"), other=True),
        dj.Attribute(name="x", bins=(0, 10, 25), other=True),
        dj.Attribute(name="n", values=(3, 1, 2), other=True),
        dj.Attribute(name="b", values=(True, False), other=True),
    )
    schema = dj.Schema((dj.Table(name="r", attributes=("g", "x", "n", "b")),), attributes)
    rows = {"g": ["pear", "Fig", "apple", "über", "kiwi"], "x": [1, 12, 20, 99, None]}
    rows |= {"n": [3, 1, 2, 7, None], "b": [True, False, None, True, None]}
    source = pa.table({name: values * 500 for name, values in rows.items()})
    made = dj.release(schema, dj.Workload.marginals(schema, 1), {"r": source}, dj.Budget(epsilon=1.0, delta=1e-6))
    for name in ("g", "n", "b"):
        asked = f"FROM joined GROUP BY {name} ORDER BY {name} {order}"
        model = [row[0][0] for row in made.ask(f"SELECT {name}, COUNT(*) {asked}").rows]
        counted = [row[1][0] for row in made.ask(f"SELECT {name}, COUNT(*) + 0 {asked}").rows]
        assert model == [OTHER if value is None else value for value in counted]
    bins = [row[0][0] for row in made.ask(f"SELECT x, COUNT(*) FROM joined GROUP BY x ORDER BY x {order}").rows]
    assert bins == [*(["[10, 25]", "[0, 10)"] if order else ["[0, 10)", "[10, 25]"]), OTHER]


@given(bar=st.floats(1e-3, 1e3), reach=st.floats(0, 1e6), coverage=st.floats(0.05, 0.99), shift=st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_a_bar_with_reach_holds_every_shift(bar: float, reach: float, coverage: float, shift: float) -> None:
    """Wherever numbers lie in their bins it holds as often as it says, at an edge just so: nothing shorter would."""
    scale, normal = bar / NormalDist().inv_cdf(0.5 + coverage / 2), NormalDist()
    length = float(with_reach(np.array([bar]), np.array([reach]), coverage)[0])

    def held(length: float, shift: float) -> float:
        return normal.cdf((length - shift) / scale) - normal.cdf((-length - shift) / scale)

    assert held(length, shift * reach) >= coverage - 1e-6
    assert held(length, reach) == pytest.approx(coverage, abs=1e-6)
    assert held(length - 1e-3 * scale, reach) < coverage
