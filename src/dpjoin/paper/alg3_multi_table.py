"""Algorithm 3, MultiTable: residual sensitivity instead of the largest degree, then the join as one table.

Only the bound differs from Algorithm 1, and that is the Curator's: from three tables on it takes the residual
sensitivity of all boundary queries T_E (`privacy.residual`) in the `paper` profile, and a gauge of the local
sensitivity (`privacy.gauge`) in `tight`.
"""

from __future__ import annotations

from dataclasses import replace

from dpjoin.errors import SpecError
from dpjoin.methods.as_one import check_as_one
from dpjoin.paper.alg1_two_table import SINGLE_TABLE
from dpjoin.spec.schema import Schema
from dpjoin.spec.workload import Workload


def check_several(schema: Schema, workload: Workload | None = None) -> None:
    check_as_one(schema)
    if len(schema.tables) < 2:
        raise SpecError("method 'multi_table' must have several tables; use auto for a single one")


MULTI_TABLE = replace(SINGLE_TABLE, name="multi_table", check=check_several)
