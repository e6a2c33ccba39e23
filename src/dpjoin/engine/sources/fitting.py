"""Whether the columns of opened tables fit the schema: there, of the right kind, comparable."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from dpjoin.engine.encode import Column, taken
from dpjoin.engine.sources.opened import OpenedTable
from dpjoin.errors import SourceError
from dpjoin.spec.schema import Attribute, Schema, Table


def check_columns(schema: Schema, opened: Mapping[str, OpenedTable]) -> None:
    """Refuse columns that are missing, of another kind than their attribute, or not comparable."""
    attributes = {a.name: a for a in schema.attributes}
    for _, _, error in column_problems(schema.tables, attributes, schema.compared_attributes, opened):
        raise error


def column_problems(
    tables: Sequence[Table],
    attributes: Mapping[str, Attribute],
    compared: Collection[str],
    opened: Mapping[str, OpenedTable],
) -> Iterator[tuple[str, str, SourceError]]:
    """What is wrong with the columns of opened tables: the table, the attribute and what to say."""
    holders: dict[str, list[tuple[str, Column]]] = {}
    for table in tables:
        for attribute in (attributes[name] for name in table.attributes if name in attributes):
            try:
                column = opened[table.name].column(table.column(attribute.name))
                _check_column(table, opened[table.name], column, attribute, attribute.name in compared)
            except SourceError as error:
                yield table.name, attribute.name, error
            else:
                holders.setdefault(attribute.name, []).append((table.name, taken(attribute, column)))
    for name in compared:
        for (t1, c1), (t2, c2) in itertools.combinations(holders.get(name, ()), 2):
            if not _comparable(c1, c2):
                said = (
                    f"attribute {name!r} joins column {c1.name!r} of table {t1!r} (type {c1.type}) with "
                    f"column {c2.name!r} of table {t2!r} (type {c2.type}), which cannot be compared; "
                    "convert one of them"
                )
                yield t2, name, SourceError(said)


def _check_column(table: Table, opened: OpenedTable, column: Column, attribute: Attribute, joins: bool) -> None:
    if attribute.part is not None:
        _check_part(opened, column, attribute)
    elif not attribute.key:
        _check_type(opened, column, attribute)
    elif column.kind == "nested" and (joins or any(attribute.name in bound.attributes for bound in table.bounds)):
        use = "tables cannot join on" if joins else "degrees cannot be bounded by"
        raise SourceError(
            f"table {table.name!r}: column {column.name!r} has type {column.type}, which {use}; "
            "use a column of plain values"
        )


def _check_part(opened: OpenedTable, column: Column, attribute: Attribute) -> None:
    clock = column.type in {"TIME", "TIME_NS"} and attribute.part == "hour"
    if column.kind not in {"time", "text", "untyped"} and not clock:
        raise SourceError(
            f"table {opened.name!r}: column {column.name!r} has type {column.type}, but attribute {attribute.name!r} "
            f"takes the {attribute.part} of dates or times; convert the column or remove part"
        )


def _check_type(opened: OpenedTable, column: Column, attribute: Attribute) -> None:
    if column.kind == "untyped" or attribute.values == ():
        return
    learn = attribute.learned
    if learn is not None and learn.bins is None and column.kind in {"text", "integer", "float", "boolean"}:
        return
    wants_text = attribute.texts or (learn is not None and learn.bins is None)
    fits = {"text"} if wants_text else {"integer", "float", "boolean"}
    if column.kind not in fits:
        described = "declared with" if learn is None else "learned as"
        wanted = "text" if wants_text else "whole numbers" if attribute.bins is None else "numbers"
        if attribute.values and isinstance(attribute.values[0], bool):
            wanted = "booleans"
        change = "convert the column or change the attribute"
        if column.kind == "time":
            change = "add part (year, month, weekday, hour or date), or use bins of dates"
        raise SourceError(
            f"table {opened.name!r}: column {column.name!r} has type {column.type}, but attribute "
            f"{attribute.name!r} is {described} {wanted}; {change}"
        )


def _comparable(first: Column, second: Column) -> bool:
    if "untyped" in (first.kind, second.kind):
        return True
    numbers = {"integer", "float", "boolean"}
    if first.kind in numbers and second.kind in numbers:
        return True
    if first.kind == second.kind == "time":
        # A date compares with a local time; a time with a zone compares only with its like.
        return ("ZONE" in first.type) == ("ZONE" in second.type)
    return first.kind == second.kind and (first.kind == "text" or first.type == second.type)
