"""Schemas and workloads as plain data: the tables of a spec file, and what a release's manifest holds.

Every key is checked. A wrong one is named with its place, as in `tables.flights.unique ([]) must …; …`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dpjoin.canonical import shown
from dpjoin.errors import SpecError, suggest
from dpjoin.spec.dates import DATE
from dpjoin.spec.schema import ADD, REPLACE, Attribute, DegreeBound, Schema, Table
from dpjoin.spec.stored import check_source
from dpjoin.spec.workload import Group, Kronecker, Workload, group_from_json, group_to_json

PLACEHOLDER = "..."
"""What a first draft puts where only a person knows the public domain."""
Attributes = Callable[[Table, Sequence[str]], tuple[str, ...]]
"""Which of the declared attributes a table has whose section lists none."""

ROW = "row"
"""The unit of privacy where every row is protected by itself."""
OWNED = ("owner", "owner_via", "owners", "max_rows")
"""What a table says about whose its rows are."""
KEYS = {
    "privacy": ("epsilon", "delta", "rows", "unit", "max_results", "neighbours"),
    "release": ("method", "profile"),
    "tables": (
        "source",
        "table",
        "encoding",
        "attributes",
        "columns",
        "private",
        "unique",
        "max_degree",
        "bounds",
        *OWNED,
    ),
    "attributes": ("values", "range", "bins", "key", "learn", "other", "part"),
    "workload": ("marginals", "prefixes", "ranges", "sums", "products", "queries", "groups", "important"),
}
"""What a spec may hold: its sections, and the keys of each (of each table and each attribute)."""
_SHAPED = {"prefixes": Workload.prefixes, "ranges": Workload.ranges, "sums": Workload.sums}
"""What asks one attribute in another shape, for each cell of others."""


def schema_from_dict(data: Mapping[str, Any], attributes_of: Attributes | None = None) -> Schema:
    """The schema part of a spec; a table that lists no attributes needs `attributes_of`."""
    declared = section(data, "attributes", required=True)
    tables = section(data, "tables", required=True)
    _check_filled(declared)
    attributes = tuple(attribute_from_dict(name, section(declared, name, "attributes.")) for name in declared)
    privacy = section(data, "privacy")
    unit = unit_of(privacy.get("unit", ROW), list(declared))
    found = [
        table_from_dict(name, section(tables, name, "tables."), list(declared), attributes_of, unit) for name in tables
    ]
    neighbours = privacy.get("neighbours", ADD)
    check_choice("privacy.neighbours", neighbours, (ADD, REPLACE))
    return Schema(tuple(found), attributes, unit, _limit(privacy, "max_results", "privacy."), neighbours)


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """The schema as plain data, for TOML and for the manifest."""
    tables: dict[str, Any] = {}
    for t in schema.tables:
        source = list(t.source) if isinstance(t.source, tuple) else t.source
        optional = {"source": source, "table": t.source_table, "encoding": t.encoding, "columns": dict(t.columns)}
        tables[t.name] = {"attributes": list(t.attributes)} | {key: v for key, v in optional.items() if v}
        tables[t.name] |= {} if t.private else {"private": False}
        owned = {"owner": list(t.owner), "owner_via": t.owner_via, "owners": t.owners}
        tables[t.name] |= {key: v for key, v in owned.items() if v}
        if t.bounds:
            limits = {", ".join(b.attributes): b.limit for b in t.bounds}
            tables[t.name] |= {"max_degree": limits, "bounds": "enforce" if t.enforce else "assume"}
    attributes: dict[str, Any] = {}
    for a in schema.attributes:
        bins = None if a.bins is None else [e if math.isfinite(e) else str(e) for e in a.bins]
        lists = {"values": a.values, "range": a.range, "bins": bins}
        if a.part == DATE:
            lists = {
                key: [v if isinstance(v, str) else a.told(v) for v in vs] for key, vs in lists.items() if vs is not None
            }
        attributes[a.name] = {key: list(v) for key, v in lists.items() if v is not None}
        attributes[a.name] |= {"part": a.part} if a.part is not None else {}
        attributes[a.name] |= {"learn": a.learned.to_plain()} if a.learned is not None else {}
        attributes[a.name] |= {key: True for key in ("key", "other") if getattr(a, key)}
    asked: dict[str, Any] = {"unit": list(schema.unit), "max_results": schema.max_results}
    asked |= {"neighbours": schema.neighbours} if schema.neighbours != ADD else {}
    privacy = {key: value for key, value in asked.items() if value}
    return {"tables": tables, "attributes": attributes} | ({"privacy": privacy} if privacy else {})


def workload_from_dict(schema: Schema, data: Mapping[str, Any]) -> Workload:
    """The workload part of a spec."""
    check_keys(data, KEYS["workload"], "workload.")
    workload = Workload(schema, ())
    if "marginals" in data:
        with under("workload.marginals: ", "marginals", "workload.marginals"):
            workload += Workload.marginals(schema, data["marginals"])
    for key, build in _SHAPED.items():
        for item in _list(data, key):
            what = {"attribute": item} if isinstance(item, str) else item
            if not isinstance(what, Mapping) or "attribute" not in what:
                example = '{ attribute = "x", by = ["y"] }'
                raise SpecError(f"workload.{key} ({item!r}) must list attributes, or entries like {example}")
            check_keys(what, ("attribute", "by"), f"workload.{key}: ")
            attribute = _names([what["attribute"]], f"workload.{key}")
            with under(f"workload.{key}: "):
                workload += build(schema, attribute, by=_names(what.get("by", []), "by"))
    for i, item in enumerate(_list(data, "products")):
        workload += _products(schema, item, i)
    for i, item in enumerate(_list(data, "queries")):
        with under(f"workload.queries[{i}]: "):
            workload += Workload.sql(schema, item)
    workload += Workload(schema, tuple(_group(schema, item, i) for i, item in enumerate(_list(data, "groups"))))
    if not workload.groups:
        raise SpecError("workload must ask something; marginals = 2 is a good start")
    for i, item in enumerate(_list(data, "important")):
        workload += _important(workload, item, f"workload.important[{i}]")
    return workload


def workload_to_dict(workload: Workload) -> dict[str, Any]:
    """The workload as plain data."""
    counts: dict[tuple[str, ...], float] = {}
    for group in workload.groups:
        counts[group.scope] = max(counts.get(group.scope, 0.0), workload.importance_of(group))
    written = {
        "marginals": [list(g.scope) for g in workload.groups if g.is_marginal],
        "groups": [group_to_json(g) for g in workload.groups if not g.is_marginal],
        "important": [{"attributes": list(scope), "factor": f} for scope, f in counts.items() if f != 1.0],
    }
    return {key: found for key, found in written.items() if found}


def attribute_from_dict(name: str, body: Mapping[str, Any]) -> Attribute:
    """One attribute's section."""
    check_keys(body, KEYS["attributes"], f"attributes.{name}.")
    read = dict(body)
    if isinstance(read.get("bins"), list):  # JSON has no infinity, and TOML's is easily written as text
        read["bins"] = [float(e) if e in ("inf", "-inf") else e for e in read["bins"]]
    with under(f"[attributes.{name}] ", f"attribute {name!r}: ", f"attributes.{name}."):
        return Attribute(name=name, **read)


def table_from_dict(
    name: str, body: Mapping[str, Any], declared: Sequence[str], attributes_of: Attributes | None, unit: tuple[str, ...]
) -> Table:
    """One table's section."""
    where = f"tables.{name}."
    check_keys(body, KEYS["tables"], where)
    body = _owned(body, declared, unit, where)
    columns = body.get("columns", {})
    if not isinstance(columns, Mapping) or not all(isinstance(c, str) for c in columns.values()):
        raise SpecError(f'{where}columns ({columns!r}) must map attributes to column names, like {{ origin = "org" }}')
    bounds = body.get("bounds", "assume")
    check_choice(f"{where}bounds", bounds, ("assume", "enforce"))
    if "attributes" not in body and (attributes_of is None or "source" not in body):
        raise SpecError(f"tables.{name} must have source or attributes; list its attributes")
    with under(f"[tables.{name}] ", f"table {name!r}: ", where):
        described = Table(
            name=name,
            attributes=_names(body.get("attributes", []), "attributes"),
            columns=columns,
            private=body.get("private", True),
            source=_checked_source(body.get("source"), body.get("table")),
            source_table=body.get("table"),
            encoding=body.get("encoding"),
            bounds=_bounds(body, where),
            enforce=bounds == "enforce",
            owner=_names(body.get("owner", []), "owner"),
            owner_via=body.get("owner_via"),
            owners=_limit(body, "owners", where),
        )
    if "attributes" in body or attributes_of is None:
        return described
    return replace(described, attributes=attributes_of(described, declared))


def _checked_source(source: Any, table: Any) -> Any:
    """A source as it is written; one that holds a password goes no further."""
    if isinstance(source, str):
        check_source(source, table if isinstance(table, str) else None)
    return source


def unit_of(unit: object, declared: Sequence[str]) -> tuple[str, ...]:
    """The attributes that name who is protected; none for single rows."""
    if unit == ROW:
        return ()
    if not unit:
        raise SpecError(f"privacy.unit ({unit!r}) must be an attribute, or {ROW!r}; name who is protected")
    found = _names([unit] if isinstance(unit, str) else unit, "privacy.unit")
    for name in found:
        if name not in declared:
            raise SpecError(f"privacy.unit ({name!r}) must be an attribute, or {ROW!r}; {suggest(name, declared)}")
    return found


def _owned(body: Mapping[str, Any], declared: Sequence[str], unit: tuple[str, ...], where: str) -> Mapping[str, Any]:
    """A table's section with `owner` and `max_rows` in plain terms.

    An owner that is no attribute is a column: the table has the unit's attribute from there. So many rows of an owner
    are a bound by its attributes.
    """
    found = dict(body)
    for key in OWNED:
        if key in body and not unit:
            raise SpecError(f"{where}{key} is about persons; set privacy.unit to an attribute, or remove it")
    owner = _names([found["owner"]] if isinstance(found.get("owner"), str) else found.get("owner", []), f"{where}owner")
    if owner and not set(owner) <= set(declared):
        if len(owner) != len(unit):
            raise SpecError(f"{where}owner ({', '.join(owner)}) must name a column for each of {', '.join(unit)}")
        found["columns"] = {**found.get("columns", {}), **dict(zip(unit, owner, strict=True))}
        if isinstance(found.get("attributes"), list):
            found["attributes"] = [*found["attributes"], *(a for a in unit if a not in found["attributes"])]
        owner = ()
    found["owner"] = [] if owner == unit else list(owner)
    if (most := _limit(found, "max_rows", where)) is not None:
        if found.get("owner_via"):
            raise SpecError(f"{where}max_rows ({most}) must be of a table that has {', '.join(unit)}; leave it out")
        named = ", ".join(found["owner"] or unit)
        found["max_degree"] = {**found.get("max_degree", {}), named: most}
    return found


def _limit(body: Mapping[str, Any], key: str, where: str) -> int | None:
    found = body.get(key)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int) or found < 1):
        raise SpecError(f"{where}{key} ({found!r}) must be a whole number, at least 1")
    return found


def _bounds(body: Mapping[str, Any], where: str) -> tuple[DegreeBound, ...]:
    """`unique = ["a", "b"]` and `max_degree = { a = 25, "a, b" = 2 }`: public bounds on degrees."""
    bounds = []
    if "unique" in body:
        key = _names(body["unique"], f"{where}unique")
        if not key:
            raise SpecError(f"{where}unique ([]) must name at least one attribute; name the key, or leave it out")
        bounds.append(DegreeBound(attributes=key, limit=1))
    limits = body.get("max_degree", {})
    if not isinstance(limits, Mapping):
        raise SpecError(f'{where}max_degree ({limits!r}) must map attributes to limits, like {{ a = 25, "a, b" = 2 }}')
    for names, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise SpecError(f"{where}max_degree.{names} ({limit!r}) must be a whole number, at least 1")
        bounds.append(DegreeBound(attributes=tuple(n.strip() for n in names.split(",")), limit=limit))
    return tuple(bounds)


def _important(workload: Workload, item: object, where: str) -> Workload:
    """The groups that look at just the named attributes, counting more."""
    if not isinstance(item, Mapping) or not {"attributes", "factor"} <= set(item):
        raise SpecError(f'{where} must be like {{ attributes = ["x", "y"], factor = 5 }}')
    check_keys(item, ("attributes", "factor"), f"{where}: ")
    wanted = set(_names(item["attributes"], where))
    found = [g for g in workload.groups if set(g.scope) == wanted]
    groups = tuple([g for g in found if isinstance(g, Kronecker)] or found)
    if not groups:
        raise SpecError(f"{where}: no group of the workload looks at just {sorted(wanted)}; ask for it as well")
    with under(f"{where}: "):
        return Workload(workload.schema, groups).important(number(item["factor"], "factor"))


def _group(schema: Schema, item: Any, place: int) -> Group:
    try:
        return group_from_json(schema, item)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SpecError(f"workload.groups[{place}] must be a group as a release's manifest writes it") from None


def _products(schema: Schema, item: object, place: int) -> Workload:
    """One product query: weights per table and attribute, multiplied."""
    where = f"workload.products[{place}]"
    if not isinstance(item, Mapping):
        raise SpecError(f"{where} ({item!r}) must be a table with weights")
    check_keys(item, ("name", "weights"), f"{where}: ")
    name, per_table = str(item.get("name", f"product {place + 1}")), item.get("weights", {})
    with under(f"{where} ({name!r}): "):
        if not isinstance(per_table, Mapping) or not all(isinstance(w, Mapping) for w in per_table.values()):
            raise SpecError(f"weights ({per_table!r}) must be like {{ TABLE = {{ ATTRIBUTE = [numbers] }} }}")
        weights: dict[str, tuple[list[str], Any]] = {}
        for table, per_attribute in per_table.items():
            array: Any = np.ones(())
            for attribute, numbers in per_attribute.items():
                size = schema.attribute(attribute).size
                if not isinstance(numbers, list) or len(numbers) != size:
                    raise SpecError(f"weights of {attribute!r} must be a list of {size} numbers, one per value")
                row = [number(n, f"weight of {attribute!r}") for n in numbers]
                array = np.multiply.outer(array, np.array(row, dtype=np.float64))
            weights[table] = (list(per_attribute), array[None])
        return Workload.products(schema, weights, name=name)


def _check_filled(declared: Mapping[str, Any]) -> None:
    """Refuse the placeholders of a first draft, all of them in one line."""
    open_keys = [
        f"attributes.{name}.{key}"
        for name, body in declared.items()
        if isinstance(body, Mapping)
        for key in ("values", "bins", "range")
        if isinstance(body.get(key), list) and PLACEHOLDER in body[key]
    ]
    if open_keys:
        raise SpecError(
            f"{', '.join(open_keys)} still {'holds' if len(open_keys) == 1 else 'hold'} the placeholder "
            f'"{PLACEHOLDER}"; fill in the public domain, or delete the attribute\'s section to leave the column out'
        )


@contextmanager
def under(place: str, subject: str = "", key: str = "") -> Iterator[None]:
    """Name what is wrong with its place in the spec; a message about `subject` is about `key` there."""
    try:
        yield
    except SpecError as error:
        told = str(error)
        if key and told.startswith(key):
            raise
        raise SpecError(key + told[len(subject) :] if subject and told.startswith(subject) else place + told) from None


def section(data: Mapping[str, Any], key: str, within: str = "", *, required: bool = False) -> Mapping[str, Any]:
    """A table of the spec."""
    found = data.get(key, None if required else {})
    if found is None:
        raise SpecError(f"[{within}{key}] is missing; add it")
    if not isinstance(found, Mapping):
        raise SpecError(f"{within}{key} must be a table; write [{within}{key}]")
    return found


def check_keys(data: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise SpecError(f"{where}{key} is not a key of the spec; {suggest(key, known)}")


def check_choice(key: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        near = suggest(str(value), known)
        raise SpecError(f"{key} ({shown(value)}) must be one of {', '.join(known)}{f'; {near}' if '?' in near else ''}")


def number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise SpecError(f"{where} ({value!r}) must be a number; correct it")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise SpecError(f"{where} must lie between -1e308 and 1e308; write inf for no limit")
    return value


def _list(data: Mapping[str, Any], key: str) -> list[Any]:
    found = data.get(key, [])
    if not isinstance(found, list):
        raise SpecError(f"workload.{key} ({found!r}) must be a list")
    return found


def _names(found: object, where: str) -> tuple[str, ...]:
    if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
        raise SpecError(f"{where} ({found!r}) must be a list of attribute names")
    return tuple(found)
