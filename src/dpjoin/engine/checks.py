"""What may be asked of an engine, by the schema alone: all engines refuse the same questions in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpjoin.engine.interface import LISTED, RowWeights, Rules, Scope, Value
from dpjoin.errors import SpecError, suggest
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table


def joins_of(schema: Schema, table: str) -> Scope:
    """The attributes that a table shares with others, in the order of the schema."""
    attributes = schema.table(table).attributes
    return tuple(a for a in schema.compared_attributes if a in attributes)


def check_rules(schema: Schema, rules: Mapping[str, Rules]) -> None:
    """Rules look at join attributes of their table."""
    for name, table_rules in rules.items():
        joins = joins_of(schema, name)
        for labels in table_rules:
            for a in labels.attributes:
                if a not in joins:
                    raise SpecError(
                        f"labels {labels.name!r} look at {a!r}, which table {name!r} does not join on; "
                        f"{suggest(a, joins)}"
                    )


def check_degrees(schema: Schema, rules: Mapping[str, Rules], by: Scope, distinct: Scope) -> None:
    """Degrees are of one table, or of values that all the tables have."""
    check_rules(schema, rules)
    if not rules or (len(rules) > 1 and not distinct):
        raise SpecError(
            f"degrees of {len(rules)} tables must count distinct values of some; name one table or distinct"
        )
    for name in rules:
        joins = joins_of(schema, name)
        for a in (*by, *distinct):
            if a not in joins:
                raise SpecError(
                    f"degrees by {a!r} must be of tables that join on it, not {name!r}; {suggest(a, joins)}"
                )
    for a in by:
        if distinct and a not in distinct:
            raise SpecError(f"degrees by {a!r} must count distinct values that include it; add {a!r} to distinct")


def check_weightings(schema: Schema, weightings: Mapping[str, RowWeights]) -> None:
    """Weights go by join attributes of their table."""
    for name, weighting in weightings.items():
        _check_by(
            schema,
            name,
            weighting.attributes,
            f"weights of table {name!r} (by {', '.join(weighting.attributes)}) must be",
        )


def owner_table(schema: Schema, owner: Scope) -> str:
    """The first table that says whose its rows are."""
    for table in schema.tables:
        if owner and set(owner) <= set(joins_of(schema, table.name)):
            return table.name
    raise SpecError(f"owner ({', '.join(owner)}) must be attributes of one table that are compared in the join")


def check_caps(schema: Schema, caps: Mapping[str, Sequence[DegreeBound]]) -> None:
    """Caps go by join attributes of their table, and keep something."""
    for name, bounds in caps.items():
        for bound in bounds:
            what = f"caps of table {name!r} ({bound.limit} by {', '.join(bound.attributes)}) must be at least 1, and"
            _check_by(schema, name, bound.attributes if bound.limit >= 1 else (), what)


def _check_by(schema: Schema, table: str, attributes: Scope, what: str) -> None:
    joins = joins_of(schema, table)
    if not attributes or not set(attributes) <= set(joins):
        raise SpecError(f"{what} by attributes that it joins on: {', '.join(joins)}")


def one_table_schema(schema: Schema, name: str, by: Scope, values: Sequence[Value], keep: Scope) -> Schema:
    """The schema of one table by itself, with codes for values.

    It counts as private, whether it is or not: a schema needs a table that is.
    """
    table, joins = schema.table(name), joins_of(schema, name)
    for a in by:
        if a not in joins:
            raise SpecError(
                f"values of {a!r} must be of tables that join on it, not {name!r} alone; {suggest(a, joins)}"
            )
    for a in keep:
        if a not in table.attributes:
            raise SpecError(f"table {name!r} alone has no attribute {a!r} to keep; {suggest(a, table.attributes)}")
    if by and (any(len(v) != len(by) for v in values) or len(set(values)) != len(values)):
        raise SpecError(f"listed values of table {name!r} must be distinct, each with {len(by)} attributes")
    if not by and not keep:
        raise SpecError(f"table {name!r} alone must have at least one attribute; name some to keep")
    attributes = [Attribute(name=LISTED, range=(0, max(0, len(values) - 1)))] if by else []
    attributes += [Attribute(name=a, range=(0, schema.attribute(a).size - 1)) for a in keep]
    alone = Table(name=name, attributes=tuple(a.name for a in attributes))
    return Schema((alone,), tuple(attributes))
