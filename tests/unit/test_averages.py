"""Averages of every kind of model: a sum over a count, and bars that cover."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.model.averages import average_half_widths, averages
from dpjoin.model.model import Model
from dpjoin.model.union import Union
from dpjoin.released.query import ask
from dpjoin.spec.sql import read_query
from dpjoin.spec.workload import Average, Kronecker, Masked
from support.averages import BUDGET, ONE_TABLE, STATEMENTS, VALUES, _rows


def _asked(schema: dj.Schema, statement: str) -> Average:
    (measure,) = read_query(schema, statement).measures
    assert isinstance(measure.asked, Average)
    return measure.asked


@pytest.fixture(scope="module")
def released() -> dj.Release:
    a, g, x = _rows(3_000, 0)
    return dj.release(ONE_TABLE, dj.Workload.marginals(ONE_TABLE, 2), {"r": pa.table({"a": a, "g": g, "x": x})}, BUDGET)


def test_the_average_of_two_equal_parts_is_that_of_one(released: dj.Release) -> None:
    """Parts of a union are independent: the average stays, and its bar is not longer than that of one part."""
    asked, one = _asked(ONE_TABLE, STATEMENTS[2]), released.model
    both = Union((one, one), ("first", "second"))
    assert averages(both, asked) == pytest.approx(averages(one, asked))
    bars, single = average_half_widths(both, asked, 0.9), average_half_widths(one, asked, 0.9)
    assert (bars <= single + 1e-9).all()
    assert (bars > 0.5 * single).all()


def test_bars_of_averages_end_where_values_do(released: dj.Release) -> None:
    """No average is outside its values, so no bar need be longer; rows that may not be there may have any average."""
    asked = _asked(ONE_TABLE, STATEMENTS[2])
    unsure = replace(released.model, floor=1e6)
    found = averages(unsure, asked)
    assert average_half_widths(unsure, asked, 0.9) == pytest.approx(np.maximum(found, VALUES - 1 - found))


def test_averages_over_what_was_never_measured_have_no_bars(released: dj.Release) -> None:
    """As counts have none."""
    (row,) = ask(released, "SELECT AVG(x) FROM joined WHERE g = 1 AND a = 1").rows
    assert 0 <= row[1][0] <= VALUES - 1
    assert row[2] == (None,)


def test_averages_of_nothing_are_missing_and_come_last(released: dj.Release) -> None:
    """Where the model has no rows at all there is no average, and it sorts as DuckDB sorts what is missing."""
    table = released.model.table.copy()
    cells = table.reshape(released.model.domain.shape)
    axis = released.model.domain.attributes.index("g")
    np.moveaxis(cells, axis, 0)[3] = 0.0
    empty = replace(released, model=replace(released.model, terms=None, potentials=None, members=(), plain=table))
    for order in ("ASC", "DESC"):
        rows = ask(empty, f"SELECT g, AVG(x) FROM joined GROUP BY g ORDER BY 2 {order}").rows
        numbers = [row[1][0] for row in rows]
        assert rows[-1][0] == (3,)
        assert np.isnan(numbers[-1])
        assert rows[-1][2] == (None,)
        assert numbers[:-1] == sorted(numbers[:-1], reverse=order == "DESC")


def test_bars_of_whole_numbers_in_unit_bins_hold_them() -> None:
    """Ages in bins of one year: each lies at the left edge, half a unit below the middle, in every bin alike."""
    ages = np.random.default_rng(0).integers(0, 12, 40_000)
    schema = dj.Schema([dj.Table(name="r", attributes=["age"])], [dj.Attribute(name="age", bins=tuple(range(13)))])
    release = dj.release(schema, dj.Workload.marginals(schema, 1), {"r": pa.table({"age": ages})}, BUDGET)
    for function, truth in (("AVG", ages.mean()), ("SUM", ages.sum())):
        ((_, (value,), (bar,)),) = release.ask(f"SELECT {function}(age) FROM joined").rows
        assert bar is not None
        assert abs(value - truth) <= bar < 2 * 0.6 * truth / ages.mean()


def test_sums_over_many_cells_have_something_in_common() -> None:
    """A bar is longer than members tell, and no longer than measured noise adds; counts of single cells stay."""
    rng = np.random.default_rng(1)
    x = np.clip(rng.lognormal(1.2, 0.8, 20_000), 0, 100)
    schema = dj.Schema([dj.Table(name="r", attributes=["x"])], [dj.Attribute(name="x", bins=tuple(range(0, 101, 2)))])
    release = dj.release(schema, dj.Workload.marginals(schema, 1), {"r": pa.table({"x": x})}, BUDGET)
    (sums,) = dj.Workload.sums(schema, ["x"]).groups
    (cells,) = dj.Workload.marginals(schema, 1).groups
    assert isinstance(sums, Kronecker)
    assert isinstance(release.model, Model)
    common = np.sqrt(release.model.common(sums))
    noise = np.sqrt(sums.variances(release.model.measured(cells)) * float(sums.unit) ** 2)
    assert 0 < common <= noise
    assert release.model.common(cells) == 0
    middles = 2 * np.floor(x / 2) + 1
    assert np.abs(release.answer(dj.Workload.sums(schema, ["x"])) - middles.sum()) <= 2 * release.error(
        dj.Workload.sums(schema, ["x"])
    )


def test_lengths_add_up_whatever_the_sign() -> None:
    """Of weights, what the largest errors of one direction or the other add up to; a mask leaves cells out."""
    schema = dj.Schema([dj.Table(name="r", attributes=["x"])], [dj.Attribute(name="x", bins=(-4, 0, 4, 8))])
    (sums,) = dj.Workload.sums(schema, ["x"]).groups
    assert isinstance(sums, Kronecker)
    assert sums.lengths(np.array([1.0, 1.0, 0.5])) * float(sums.unit) == pytest.approx([2 + 2 + 3])
    masked = Masked(sums.name, sums.scope, sums.factors, sums.shape, np.array([True, False, True]))
    assert masked.lengths(np.array([1.0, 1.0, 0.5])) * float(sums.unit) == pytest.approx([2 + 3])
