"""auto: a small look chooses, from noisy numbers only; whichever way is taken, no more than the budget is spent."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.methods.correlated_degrees import (
    counted_deviation,
)
from support.auto import declared, met


def test_the_noise_of_counted_rows_is_foreseen() -> None:
    """As simulated: what each table counts of a value adds up noise over its cells there."""
    workload = dj.Workload.marginals(declared("two"), [("p", "q")])
    schema, rho = workload.schema, Fraction(1, 10)
    values = schema.cells(("A",))
    degrees = {"r": np.linspace(90.0, 5.0, values), "s": np.linspace(40.0, 1.0, values)}
    (only,) = met(degrees, float(np.prod(list(degrees.values()), axis=0).sum()))
    rng, sizes = np.random.default_rng(1), []
    cells = {"r": schema.cells(("p",)), "s": schema.cells(("q",))}
    for _ in range(4000):
        counted = [d + rng.normal(0, np.sqrt(cells[t] / (2 * float(rho))), values) for t, d in degrees.items()]
        sizes.append(float(np.prod(counted, axis=0).sum()))
    assert counted_deviation(workload, only, rho=rho) == pytest.approx(np.std(sizes), rel=0.06)
