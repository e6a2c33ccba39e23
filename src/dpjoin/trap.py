"""The trap of joining first: a joined table released as one table protects joined rows, not the rows that were joined.

Whether a table is a join cannot be known from the schema, only suspected. So this warns and never refuses.
"""

from __future__ import annotations

from dpjoin.schema import Schema, Table

PAGE = "docs/join-then-release.md"


def joined_table_warning(schema: Schema) -> str | None:
    """One line if the only private table looks like a join made beforehand, else None. A rule on the schema alone.

    A table is suspected if it has several keys, one of them joins nothing here, and one of them is not declared
    unique. Keys that join public tables are what keys are for; and where every key is unique, no row is there twice.

    >>> from dpjoin.schema import Attribute
    >>> keys = tuple(Attribute(name=k, key=True) for k in ("patient", "visit"))
    >>> stays = Table(name="stays", attributes=("patient", "visit", "ward"))
    >>> said = joined_table_warning(Schema((stays,), (*keys, Attribute(name="ward", range=(1, 9)))))
    >>> said.partition(":")[0]
    "table 'stays' has several keys (patient, visit) and looks like a join"
    """
    private = [t for t in schema.tables if t.private]
    if len(private) != 1:
        return None
    (table,) = private
    keys = [a for a in table.attributes if schema.attribute(a).key]
    idle = any(len(schema.tables_with(k)) == 1 for k in keys)
    if len(keys) < 2 or not idle or all(_unique(table, k) for k in keys):
        return None
    return (
        f"table {table.name!r} has several keys ({', '.join(keys)}) and looks like a join: the guarantee would be for "
        "one joined row, and a row of the original tables can be in many; declare those tables apart, or, if it is no "
        f"join, leave out the keys that join nothing ({PAGE})"
    )


def _unique(table: Table, key: str) -> bool:
    return any(set(b.attributes) == {key} and b.limit == 1 for b in table.bounds)
