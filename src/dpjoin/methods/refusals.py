"""What methods refuse: units of privacy, neighbours and bounds that they cannot serve."""

from __future__ import annotations

from dpjoin.errors import SpecError
from dpjoin.privacy.degree_bounds import bound_is_public
from dpjoin.privacy.owners import rows_per_owner
from dpjoin.spec.persons import owner_of
from dpjoin.spec.schema import ADD, REPLACE, Schema


def check_rows_known(schema: Schema, method: str) -> None:
    """Refuse tables of which a person may have any number of rows, or rows without an owner."""
    if not schema.unit:
        return
    unit, known = " and ".join(schema.unit), rows_per_owner(schema)
    for table in schema.tables:
        if table.private and table.owners is None:
            if not owner_of(schema, table):
                raise SpecError(
                    f"method {method!r} must find the {unit} in table {table.name!r} itself; use method 'clipped'"
                )
            if table.name not in known:
                raise SpecError(
                    f"method {method!r} must know how many rows of table {table.name!r} one {unit} has; set max_rows, "
                    "or use method 'clipped'"
                )


def check_results_known(schema: Schema, method: str) -> None:
    """Refuse a join in which one person may have any number of results."""
    check_rows_known(schema, method)
    if schema.unit and not bound_is_public(schema):
        raise SpecError(
            f"method {method!r} must know how many join results one row is in to protect one "
            f"{' and '.join(schema.unit)}; declare unique or max_degree, or use method 'clipped'"
        )


def refuse_persons(schema: Schema, what: str) -> None:
    """Refuse a unit that is not one row."""
    if schema.unit:
        unit = " and ".join(schema.unit)
        raise SpecError(f"{what} protects one row and not one {unit}; use method 'auto' or 'clipped'")


def refuse_replacement(schema: Schema, method: str) -> None:
    """Refuse neighbours with a replaced row: one that changes its part would pay in both."""
    if schema.neighbours == REPLACE:
        raise SpecError(f"method {method!r} must have neighbours = {ADD!r}; use 'clipped', 'capped' or 'two_table'")


def refuse_enforced(schema: Schema, method: str, instead: str) -> None:
    """Refuse bounds that are enforced: the method removes rows itself, or lets them count less."""
    if any(t.private and t.enforce and t.bounds for t in schema.tables):
        raise SpecError(
            f'method {method!r} must have no enforced bounds; remove bounds = "enforce", or use method {instead!r}'
        )
