"""Likely mistakes in a spec, which may be meant so: they give a warning, never an error.

Joining first: a joined table released as one table protects joined rows, not the rows that were joined. Joining
nothing: a table that shares no attribute is joined with every row of the others.
"""

from __future__ import annotations

from dpjoin.spec.hypergraph import components
from dpjoin.spec.schema import Schema, Table

PAGE = "docs/join-then-release.md"
LARGE_DELTA = 0.01


def joined_table_warning(schema: Schema) -> str | None:
    """One line if the only private table looks like a join made beforehand, else None. A rule on the schema alone.

    A table is suspected if it has several keys, one of them joins nothing here, and one of them is not declared
    unique. Keys that join public tables are what keys are for; and where every key is unique, no row is there twice.

    >>> from dpjoin.spec.schema import Attribute
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


def unjoined_table_warning(schema: Schema) -> str | None:
    """One line if the join is a cross product of tables that share no attribute, else None.

    >>> from dpjoin.spec.schema import Attribute
    >>> tables = Table(name="stays", attributes=("ward",)), Table(name="wards", attributes=("unit",))
    >>> said = unjoined_table_warning(Schema(tables, tuple(Attribute(name=a, key=True) for a in ("ward", "unit"))))
    >>> said.partition(",")[0]
    "tables 'stays' and 'wards' share no attribute with any other"
    """
    parts = components(schema)
    if len(parts) == 1:
        return None
    single = [t.name for t in schema.tables if {t.name} in parts]
    apart = single or [t.name for t in schema.tables if t.name not in parts[0]]
    *first, last = map(repr, apart)
    names = f"tables {', '.join(first)} and {last} share" if first else f"table {last} shares"
    return (
        f"{names} no attribute with {'any other' if single else 'the others'}, so every row is joined with every row "
        "of the others; give the column that joins them one name in both tables, or name it in the spec, like "
        'columns = { ATTRIBUTE = "column" }'
    )


def delta_warning(delta: float, rows: int | None = None) -> str | None:
    """One line if delta hardly protects, else None: by itself, or for a number of rows that is public.

    Rows are private, so nobody counts them for this.

    >>> [delta_warning(delta, rows) is None for delta, rows in ((1e-6, 100_000), (1e-6, 2_000_000), (0.05, None))]
    [True, False, False]
    """
    allows = "so it would allow to publish"
    if rows is not None and delta * rows > 1:
        return (
            f"delta ({delta:g}) is above one over the number of rows ({rows:,}), {allows} single rows as they are; "
            f"choose {1 / (10 * rows):.0e} or less"
        )
    if delta > LARGE_DELTA:
        return (
            f"delta ({delta:g}) is above {LARGE_DELTA:g}, {allows} one row in {1 / delta:.0f} as it is; "
            "choose it well below one over the number of rows"
        )
    return None


def _unique(table: Table, key: str) -> bool:
    return any(set(b.attributes) == {key} and b.limit == 1 for b in table.bounds)
