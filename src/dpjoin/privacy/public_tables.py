"""What may be read of public tables: everything, and of no other."""

from __future__ import annotations

from dpjoin.engine.interface import Engine
from dpjoin.errors import BudgetError
from dpjoin.privacy.numbers import Numbers
from dpjoin.spec.schema import DegreeBound, Schema
from dpjoin.spec.workload import CELLS, kronecker


def public_counts(engine: Engine, table: str, attributes: tuple[str, ...]) -> Numbers:
    """How many rows a public table has in each cell of some of its attributes: exact, at no cost. Proof: P-71."""
    if engine.schema.table(table).private:
        raise BudgetError(f"table {table!r} must be public to be counted exactly; measure it")
    counted = engine.one_table(table, (), (), attributes)
    (counts,) = counted.exact_answers([kronecker(counted.schema, dict.fromkeys(attributes, CELLS))])
    return counts


def public_links(schema: Schema) -> dict[str, list[tuple[str, ...]]]:
    """By which attributes each public table meets each other table, and all of them. Proof: P-72."""
    found = {}
    for table in schema.tables:
        others = [set(o.attributes) for o in schema.tables if o.name != table.name]
        shared = (schema.in_order(set(table.attributes) & other) for other in (*others, set().union(*others)))
        if not table.private:
            found[table.name] = [by for by in dict.fromkeys(shared) if by]
    return found


def with_public_bounds(engine: Engine) -> Engine:
    """The same rows, with bounds on the degrees of public tables: how many share a value at most. Proof: P-72."""
    caps = {}
    for table, links in public_links(engine.schema).items():
        degrees = {by: engine.exact_degrees({table: {}}, by).exact_counts for by in links}
        caps[table] = [
            DegreeBound(attributes=by, limit=max(1, int(counts.max(initial=0)))) for by, counts in degrees.items()
        ]
    return engine.capped(caps)
