"""Few marginals, each measured with Laplace noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import dpjoin as dj
from dpjoin.methods.as_one import as_one_budget, as_one_shares, as_one_tight
from dpjoin.privacy.accounting import (
    Budget,
)
from dpjoin.spec.schema import DegreeBound
from support.audit import tight_run
from support.brute import BruteEngine

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


def pair(limit: int | None, *, enforce: bool = False) -> dj.Schema:
    """r(A, p) and s(A, q), with a bound on the rows of one value."""
    bounds = () if limit is None else (DegreeBound(attributes=("A",), limit=limit),)
    return dj.Schema(
        tuple(
            dj.Table(name=t, attributes=("A", a), bounds=bounds, enforce=enforce) for t, a in (("r", "p"), ("s", "q"))
        ),
        (dj.Attribute(name="A", key=True), *(dj.Attribute(name=a, range=(0, 2)) for a in "pq")),
    )


def single_runs(budget: Budget, workload: dj.Workload) -> Any:
    return tight_run(
        lambda tables: BruteEngine(workload.schema, tables),
        as_one_shares,
        as_one_tight,
        workload,
        budget,
        as_one_budget,
    )


def marginals_of(tables: dict[str, pa.Table], scopes: list[tuple[str, ...]], size: int) -> list[Any]:
    columns = {a: tables["t"][a].to_numpy() for a in tables["t"].column_names}
    return [
        np.bincount(np.ravel_multi_index([columns[a] for a in s], (size,) * len(s)), minlength=size ** len(s))
        for s in scopes
    ]
