"""What may be read of public tables: everything, and of no other."""

from __future__ import annotations

from dpjoin.engine.interface import Engine
from dpjoin.errors import BudgetError
from dpjoin.privacy.whole import Numbers
from dpjoin.workload import CELLS, kronecker


def public_counts(engine: Engine, table: str, attributes: tuple[str, ...]) -> Numbers:
    """How many rows a public table has in each cell of some of its attributes: exact, at no cost. Proof: P-71."""
    if engine.schema.table(table).private:
        raise BudgetError(f"table {table!r} must be public to be counted exactly; measure it")
    alone = engine.alone(table, (), (), attributes)
    (counts,) = alone.exact_answers([kronecker(alone.schema, dict.fromkeys(attributes, CELLS))])
    return counts
