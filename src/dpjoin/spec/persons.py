"""Whose rows are protected together: the unit of privacy, and which owner each row of each table has.

Property (P): every join result takes all its private rows from one owner. It holds where every private table has the
owner among its attributes, or reaches it through a foreign key that is unique in the table it points to: a join result
holds that very row. Then an owner's join results depend on the owner's rows and on public tables only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpjoin.errors import SpecError, suggest

if TYPE_CHECKING:
    from dpjoin.spec.schema import Schema, Table


def owner_of(schema: Schema, table: Table) -> tuple[str, ...]:
    """The attributes of a table that name the owner of its rows; none if it has no such attributes."""
    if table.owner:
        return table.owner
    return schema.unit if set(schema.unit) <= set(table.attributes) else ()


def link_of(schema: Schema, table: Table) -> Table | None:
    """The table that a row's foreign key points to, on the shortest way to its owner."""
    return min(_linked(schema, table), key=lambda other: _keys_to_owner(schema, other, table.name), default=None)


def _linked(schema: Schema, table: Table) -> list[Table]:
    """The tables in which its foreign key is unique."""
    by = (table.owner_via,)
    found = [t for t in schema.tables if t.name != table.name and not t.enforce]
    return [t for t in found if any(b.attributes == by and b.limit == 1 for b in t.bounds)]


def _keys_to_owner(schema: Schema, table: Table, *seen: str) -> float:
    """Over how many foreign keys the attribute of the join that names owners is reached; infinite if it is not."""
    if owner_of(schema, table) == schema.unit:
        return 0
    seen = (*seen, table.name)
    ways = (_keys_to_owner(schema, t, *seen) for t in _linked(schema, table) if t.name not in seen)
    return 1 + min(ways, default=math.inf)


def owners_counted(schema: Schema, table: Table) -> bool:
    """Whether a table's rows are protected with their owner, so that owners are counted in its columns, not rows."""
    return bool(schema.unit) and table.private and table.owners is None


def reaches_owner(schema: Schema, table: Table) -> bool:
    """Whether a row's owner is the one attribute of the join that names owners."""
    return _keys_to_owner(schema, table) < math.inf


def one_owner_per_result(schema: Schema) -> bool:
    """Property (P), for private tables that name an owner; those that declare how many they meet are left out."""
    return bool(schema.unit) and all(reaches_owner(schema, t) for t in schema.tables if t.private and t.owners is None)


def check_unit(schema: Schema) -> None:
    """Refuse a unit that rows cannot be told by, with the table concerned and what to declare."""
    if not schema.unit:
        for table in schema.tables:
            for key in ("owner", "owner_via", "owners"):
                if getattr(table, key):
                    raise SpecError(
                        f"table {table.name!r} has {key}, which is about persons; set [privacy] unit, or remove it"
                    )
        return
    names = [a.name for a in schema.attributes]
    unit = ", ".join(schema.unit)
    for name in schema.unit:
        if name not in names:
            raise SpecError(f"unit ({name!r}) must be an attribute, or 'row'; {suggest(name, names)}")
    for table in schema.tables:
        _check_table(schema, table, unit)


def _check_table(schema: Schema, table: Table, unit: str) -> None:
    what = f"table {table.name!r}"
    via = () if table.owner_via is None else (table.owner_via,)
    for key, name in (*(("owner", a) for a in table.owner), *(("owner_via", a) for a in via)):
        if name not in table.attributes:
            raise SpecError(
                f"{what}: {key} ({name!r}) must be one of its attributes; {suggest(name, table.attributes)}"
            )
    if via and owner_of(schema, table):
        raise SpecError(f"{what} has an owner, so owner_via ({table.owner_via!r}) must be left out")
    if not table.private:
        return
    if len(table.owner) not in (0, len(schema.unit)):
        raise SpecError(f"{what}: owner ({', '.join(table.owner)}) must be as many attributes as the unit ({unit}) has")
    if table.owners is not None and (owner_of(schema, table) or via):
        raise SpecError(f"{what} has an owner, so owners ({table.owners}) must be left out")
    if table.owners is not None or owner_of(schema, table):
        return
    if table.owner_via is None:
        raise SpecError(
            f"{what} must say whose its rows are: it has no attribute {unit}; name it in attributes, or set owner_via "
            "to a foreign key, or owners to how many of them one row can meet, or private = false"
        )
    if link_of(schema, table) is None:
        raise SpecError(
            f"{what}: owner_via ({table.owner_via!r}) must be unique in the table it points to; declare "
            f"unique = [{table.owner_via!r}] there, with bounds assumed and not enforced"
        )
    if not reaches_owner(schema, table):
        raise SpecError(f"{what}: owner_via ({table.owner_via!r}) must lead to a table that has {unit}")


def protects(schema: Schema) -> str:
    """Who is protected, in words."""
    replaced = schema.neighbours == "replace"
    if not schema.unit:
        row = "one row of one private table replaced by another"
        return row if replaced else "one row added to or removed from one private table"
    tables = [t.name for t in schema.tables if t.private and t.owners is None]
    met = [f", or one row of {t.name}" for t in schema.tables if t.private and t.owners is not None]
    person = f"one {' and '.join(schema.unit)} with all rows in {', '.join(tables)}{''.join(met)}"
    return f"{person}, replaced by another" if replaced else person


def describe_owners(schema: Schema) -> list[str]:
    """What the guarantee for persons rests on, and does not say, in words."""
    if not schema.unit:
        return []
    unit = " and ".join(schema.unit)
    told = [f"Rows without {unit} are left out. Persons in columns that do not name a row's {unit} are not protected."]
    for table in schema.tables:
        if table.private and (by := table.owner_via or " and ".join(table.owner)):
            told.append(f"A row of {table.name} belongs to the {unit} {'of its' if table.owner_via else 'in'} {by}.")
        if table.private and table.owners is not None:
            told.append(f"One row of {table.name} meets at most {table.owners} different {unit}.")
    return told
