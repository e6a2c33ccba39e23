"""Per table, then join: each table is modelled with the whole budget, keys included, and the models are joined.

Good where few values are heavy; ruined where many are light, since the noise of every value of the domain adds up.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpjoin.algorithms.alone import check_joinable, kept_attributes, measure_alone
from dpjoin.algorithms.as_one import domain_of
from dpjoin.algorithms.progress import Progress
from dpjoin.algorithms.two_table import Outcome
from dpjoin.errors import SpecError
from dpjoin.model.joined import Joined
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.budget import Budget, Concentrated, ConcentratedAccountant
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.partition import Alone
from dpjoin.schema import Schema
from dpjoin.workload import Workload

MOST_CELLS = 2**22
"""Of one table's model."""


def check_per_table(schema: Schema, workload: Workload | None = None) -> None:
    """Refuse what cannot be modelled table by table, given the workload also what is too large."""
    if len(schema.tables) < 2 or len(schema.private_tables) < len(schema.tables):
        raise SpecError("method 'per_table' must have two or more tables, all private; use auto")
    check_joinable(schema, schema.join_attributes, "per_table")
    if workload is None:
        return
    for table in schema.tables:
        kept = kept_attributes(workload, table.name, ())
        if not kept:
            raise SpecError(
                f"method 'per_table' must have something to model in table {table.name!r}, which shares nothing and is "
                "not asked about; use method 'multi_table'"
            )
        cells = schema.cells(kept)
        if cells > MOST_CELLS:
            raise SpecError(
                f"the model of table {table.name!r} would have {cells:,} cells ({', '.join(kept)}), which must be at "
                f"most {MOST_CELLS:,}; use coarser domains, or method 'hybrid'"
            )


@dataclass(frozen=True)
class PerTableShares:
    """There is nothing to split: each table spends the whole budget."""

    accountant: ConcentratedAccountant


def per_table_shares(budget: Budget, _: Schema) -> PerTableShares:
    return PerTableShares(ConcentratedAccountant(budget))


def per_table_tight(curator: Curator, workload: Workload, _: PerTableShares, progress: Progress) -> Outcome:
    """The `tight` profile. A row pays in its own table only, so each table spends the whole budget."""
    schema = curator.schema
    check_per_table(schema, workload)
    parts = {f"table {t.name}": Alone(t.name, kept_attributes(workload, t.name, ())) for t in schema.tables}
    costs = [Concentrated(curator.rho_left)] * len(parts)
    alone = dict(zip((t.name for t in schema.tables), curator.restrict("tables", parts, costs), strict=True))
    with one_blas_thread():
        models = measure_alone(workload, alone, (), listed=False, progress=progress)
    joined = Joined(domain_of(workload), models)
    return Outcome(joined, 1, max(1, round(joined.total)), f"{len(models)} tables, each with the whole budget")
