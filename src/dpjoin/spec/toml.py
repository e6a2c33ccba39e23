"""The spec file: schema, workload, budget and method in one TOML document.

Every key is checked, and a wrong one is named with its file and place. Sources are relative to the spec's folder.
"""

from __future__ import annotations

import math
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpjoin.errors import DpjoinError, SourceError, SpecError, suggest
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from dpjoin.spec.workload import Group, Kronecker, Workload, group_from_json, group_to_json

METHODS = (
    "auto",
    "capped",
    "hybrid",
    "keyed",
    "per_table",
    "uniformize",
    "two_table",
    "multi_table",
    "hierarchical",
)
PROFILES = ("tight", "paper")
DEFAULT_WORKLOAD = {"marginals": 2}
PLACEHOLDER = "..."
"""What a first draft puts where only a person knows the public domain."""

_TOP = ("privacy", "release", "tables", "attributes", "workload")
_PRIVACY = ("epsilon", "delta")
_RELEASE = ("method", "profile")
_TABLE = ("source", "table", "attributes", "columns", "private", "unique", "max_degree", "bounds")
_ATTRIBUTE = ("values", "range", "bins", "key", "other")
_WORKLOAD = ("marginals", "prefixes", "ranges", "sums", "products", "queries", "groups", "important")


@dataclass(frozen=True, eq=False)
class Spec:
    """Everything public that a release needs."""

    schema: Schema
    workload: Workload
    budget: Budget
    method: str = "auto"
    profile: str = "tight"
    folder: Path = Path()

    @classmethod
    def from_toml(cls, path: str | Path) -> Spec:
        """Read and check a spec file. Opens no table, except for column names where `attributes` is left out."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError:
            raise SpecError(f"{path}: the spec cannot be read; write one with: dpjoin init TABLES") from None
        except UnicodeDecodeError:
            raise SpecError(f"{path}: the spec must be UTF-8 text") from None
        try:
            return cls.from_dict(tomllib.loads(text), folder=path.parent)
        except tomllib.TOMLDecodeError as error:
            raise SpecError(f"{path}: not valid TOML: {error}") from None
        except DpjoinError as error:
            raise type(error)(f"{path}: {error}") from None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, folder: Path = Path()) -> Spec:
        """A spec from nested dictionaries shaped like the TOML file."""
        _check_keys(data, _TOP, "")
        privacy = _section(data, "privacy", required=True)
        _check_keys(privacy, _PRIVACY, "privacy.")
        for key in _PRIVACY:
            if key not in privacy:
                raise SpecError(f"privacy.{key} is missing; add it, for example epsilon = 1.0 and delta = 1e-6")
            _number(privacy[key], f"privacy.{key}")
        release = _section(data, "release")
        _check_keys(release, _RELEASE, "release.")
        method, profile = release.get("method", "auto"), release.get("profile", "tight")
        check_choice("release.method", method, METHODS)
        check_choice("release.profile", profile, PROFILES)
        schema = schema_from_dict(data, folder=folder)
        workload = workload_from_dict(schema, _section(data, "workload") if "workload" in data else DEFAULT_WORKLOAD)
        with _under("privacy."):
            budget = Budget(epsilon=float(privacy["epsilon"]), delta=float(privacy["delta"]))
        return cls(schema, workload, budget, method, profile, folder)

    def to_toml(self) -> str:
        """The spec as TOML text; reading it back gives an equal spec."""
        import tomli_w

        document: dict[str, Any] = {
            "privacy": {"epsilon": self.budget.epsilon, "delta": self.budget.delta},
            "release": {"method": self.method, "profile": self.profile},
            **schema_to_dict(self.schema),
            "workload": workload_to_dict(self.workload),
        }
        return tomli_w.dumps(document)

    def sources(self) -> dict[str, Any]:
        """Where each table's rows are: a path, or a path and the table inside a database file."""
        found: dict[str, Any] = {}
        for table in self.schema.tables:
            if table.source is None:
                raise SpecError(f"tables.{table.name}.source is missing; name the file that holds the table")
            path = self.folder / table.source
            found[table.name] = (path, table.source_table) if table.source_table else path
        return found


def check_choice(key: str, value: object, known: Sequence[str]) -> None:
    if value not in known:
        raise SpecError(f"{key} ({value!r}) must be one of {', '.join(known)}; {suggest(str(value), known)}")


def schema_from_dict(data: Mapping[str, Any], *, folder: Path = Path()) -> Schema:
    """The schema part of a spec."""
    declared = _section(data, "attributes", required=True)
    _check_filled(declared)
    attributes = tuple(_attribute(name, body) for name, body in declared.items())
    tables = _section(data, "tables", required=True)
    return Schema(tuple(_table(name, body, list(declared), folder) for name, body in tables.items()), attributes)


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """The schema as plain data, for TOML and for the manifest."""
    tables: dict[str, Any] = {}
    for t in schema.tables:
        body: dict[str, Any] = {"attributes": list(t.attributes)}
        body |= {"source": t.source} if t.source else {}
        body |= {"table": t.source_table} if t.source_table else {}
        body |= {"columns": dict(t.columns)} if t.columns else {}
        body |= {} if t.private else {"private": False}
        if t.bounds:
            body["max_degree"] = {", ".join(b.attributes): b.limit for b in t.bounds}
            body["bounds"] = "enforce" if t.enforce else "assume"
        tables[t.name] = body
    attributes: dict[str, Any] = {}
    for a in schema.attributes:
        body = {}
        body |= {"values": list(a.values)} if a.values is not None else {}
        body |= {"range": list(a.range)} if a.range is not None else {}
        body |= {"bins": [e if math.isfinite(e) else str(e) for e in a.bins]} if a.bins is not None else {}
        body |= {"key": True} if a.key else {}
        body |= {"other": True} if a.other else {}
        attributes[a.name] = body
    return {"tables": tables, "attributes": attributes}


def workload_from_dict(schema: Schema, data: Mapping[str, Any]) -> Workload:
    """The workload part of a spec."""
    _check_keys(data, _WORKLOAD, "workload.")
    workload = Workload(schema, ())
    if "marginals" in data:
        which = data["marginals"]
        if isinstance(which, bool) or not isinstance(which, int | list):
            raise SpecError(
                f"workload.marginals ({which!r}) must be a number, or a list of numbers or of attribute lists"
            )
        if isinstance(which, list):
            if any(isinstance(k, str) for k in which):
                raise SpecError(f"workload.marginals ({which!r}) must list lists of attributes; write [{which!r}]")
            which = [k if type(k) is int else _names(k, "workload.marginals") for k in which]
        with _under("workload.marginals: "):
            workload += Workload.marginals(schema, which)
    for key, build in (("prefixes", Workload.prefixes), ("ranges", Workload.ranges), ("sums", Workload.sums)):
        for item in _list(data, key):
            what = {"attribute": item} if isinstance(item, str) else item
            if not isinstance(what, Mapping) or "attribute" not in what:
                raise SpecError(
                    f'workload.{key} must list attributes, or entries like {{ attribute = "x", by = ["y"] }}'
                )
            _check_keys(what, ("attribute", "by"), f"workload.{key}: ")
            (attribute,) = _names([what["attribute"]], f"workload.{key}")
            by = _names(what.get("by", []), f"workload.{key}: by")
            with _under(f"workload.{key}: "):
                workload += build(schema, [attribute], by=by)
    for i, item in enumerate(_list(data, "products")):
        workload += _products(schema, item, i)
    if "queries" in data:
        for i, statement in enumerate(_list(data, "queries")):
            with _under(f"workload.queries[{i}]: "):
                workload += Workload.sql(schema, statement)
    workload += Workload(schema, tuple(_group(schema, item, i) for i, item in enumerate(_list(data, "groups"))))
    if not workload.groups:
        raise SpecError("workload must ask something; marginals = 2 is a good start")
    for i, item in enumerate(_list(data, "important")):
        workload += _important(workload, item, f"workload.important[{i}]")
    return workload


def _important(workload: Workload, item: object, where: str) -> Workload:
    """The groups that look at just the named attributes, counting more."""
    if not isinstance(item, Mapping) or not {"attributes", "factor"} <= set(item):
        raise SpecError(f'{where} must be like {{ attributes = ["x", "y"], factor = 5 }}')
    _check_keys(item, ("attributes", "factor"), f"{where}: ")
    factor, wanted = item["factor"], set(_names(item["attributes"], where))
    if isinstance(factor, bool) or not isinstance(factor, int | float):
        raise SpecError(f"{where}: factor ({factor!r}) must be a number; 1 is that of other groups")
    found = [g for g in workload.groups if set(g.scope) == wanted]
    groups = tuple([g for g in found if isinstance(g, Kronecker)] or found)
    if not groups:
        raise SpecError(f"{where}: no group of the workload looks at just {sorted(wanted)}; ask for it as well")
    with _under(f"{where}: "):
        return Workload(workload.schema, groups).important(factor)


def _group(schema: Schema, item: Any, number: int) -> Group:
    try:
        return group_from_json(schema, item)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise SpecError(f"workload.groups[{number}] must be a group as a release's manifest writes it") from None


def workload_to_dict(workload: Workload) -> dict[str, Any]:
    """The workload as plain data."""
    plain = [list(g.scope) for g in workload.groups if isinstance(g, Kronecker) and g.is_marginal]
    rest = [group_to_json(g) for g in workload.groups if not (isinstance(g, Kronecker) and g.is_marginal)]
    counts: dict[tuple[str, ...], float] = {}
    for group in workload.groups:
        counts[group.scope] = max(counts.get(group.scope, 0.0), workload.importance_of(group))
    important = [{"attributes": list(scope), "factor": f} for scope, f in counts.items() if f != 1.0]
    return (
        ({"marginals": plain} if plain else {})
        | ({"groups": rest} if rest else {})
        | ({"important": important} if important else {})
    )


def _products(schema: Schema, item: object, number: int) -> Workload:
    """One product query: weights per table and attribute, multiplied."""
    if not isinstance(item, Mapping):
        raise SpecError(f"workload.products[{number}] ({item!r}) must be a table with weights")
    _check_keys(item, ("name", "weights"), "workload.products: ")
    name = str(item.get("name", f"product {number + 1}"))
    per_table = item.get("weights", {})
    weights: dict[str, tuple[list[str], Any]] = {}
    shaped = isinstance(per_table, Mapping) and all(isinstance(w, Mapping) for w in per_table.values())
    if not shaped:
        raise SpecError(
            f"workload.products {name!r}: weights ({per_table!r}) must be like "
            "{ TABLE = { ATTRIBUTE = [numbers] } }"
        )
    for table, per_attribute in per_table.items():
        array: Any = np.ones(())
        for attribute, numbers in per_attribute.items():
            size = schema.attribute(attribute).size
            if not isinstance(numbers, list) or len(numbers) != size:
                raise SpecError(
                    f"workload.products {name!r}: weights of {attribute!r} must be a list of {size} numbers, "
                    "one per value"
                )
            row = [_number(n, f"workload.products {name!r}: weight of {attribute!r}") for n in numbers]
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


def _attribute(name: str, body: object) -> Attribute:
    where = f"attributes.{name}."
    if not isinstance(body, Mapping):
        raise SpecError(f"attributes.{name} must be a table; write [attributes.{name}]")
    _check_keys(body, _ATTRIBUTE, where)
    for key in ("values", "range", "bins"):
        if key in body and not isinstance(body[key], list):
            raise SpecError(f"{where}{key} ({body[key]!r}) must be a list")
    for key in ("key", "other"):
        if not isinstance(body.get(key, False), bool):
            raise SpecError(f"{where}{key} ({body[key]!r}) must be true or false")
    bins = tuple(_number(e, where + "bins") for e in body["bins"]) if "bins" in body else None
    with _under(f"[attributes.{name}] "):
        return Attribute(
            name=name,
            values=tuple(body["values"]) if "values" in body else None,
            range=tuple(body["range"]) if "range" in body else None,
            bins=bins,
            key=body.get("key", False),
            other=body.get("other", False),
        )


def _table(name: str, body: object, declared: Sequence[str], folder: Path) -> Table:
    where = f"tables.{name}."
    if not isinstance(body, Mapping):
        raise SpecError(f"tables.{name} must be a table; write [tables.{name}]")
    _check_keys(body, _TABLE, where)
    columns = body.get("columns", {})
    if not isinstance(columns, Mapping) or not all(isinstance(c, str) for c in columns.values()):
        raise SpecError(f'{where}columns must map attributes to column names, like {{ origin = "org" }}')
    for key in ("source", "table"):
        if key in body and not isinstance(body[key], str):
            raise SpecError(f"{where}{key} ({body[key]!r}) must be text")
    if {"source", "table"} <= set(body):
        _check_database(body["source"], f"{where}table ({body['table']!r})")
    if not isinstance(body.get("private", True), bool):
        raise SpecError(f"{where}private ({body['private']!r}) must be true or false")
    if "attributes" in body:
        attributes = _names(body["attributes"], f"{where}attributes")
    else:
        attributes = _attributes_by_column(name, body, declared, dict(columns), folder)
    return Table(
        name=name,
        attributes=attributes,
        columns=dict(columns),
        private=body.get("private", True),
        source=body.get("source"),
        source_table=body.get("table"),
        bounds=_bounds(body, where),
        enforce=_enforced(body, where),
    )


def _check_database(source: str, what: str) -> None:
    from dpjoin.engine.sources import DATABASE_FILES

    if Path(source).suffix.lower() not in DATABASE_FILES:
        raise SpecError(
            f"{what} must be a table inside a database ({', '.join(DATABASE_FILES)}), not of {source!r}; remove it"
        )


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


def _enforced(body: Mapping[str, Any], where: str) -> bool:
    reading = body.get("bounds", "assume")
    check_choice(f"{where}bounds", reading, ("assume", "enforce"))
    return bool(reading == "enforce")


def _attributes_by_column(
    name: str, body: Mapping[str, Any], declared: Sequence[str], columns: dict[str, str], folder: Path
) -> tuple[str, ...]:
    """Where a table lists no attributes: those declared ones that are among its column names."""

    from dpjoin.engine.sources import connected, open_source

    if "source" not in body:
        raise SpecError(f"tables.{name} must have source or attributes; list its attributes")
    path = folder / body["source"]
    if not path.exists():
        raise SourceError(
            f"tables.{name}.source: file {str(path)!r} does not exist; correct it, "
            f"or list tables.{name}.attributes to plan without the file"
        )
    with connected() as connection:
        opened = open_source(connection, name, path, table=body.get("table"), columns=())
    present = {column.name for column in opened.columns}
    for attribute, column in columns.items():
        if attribute in declared and column not in present:
            where = f"tables.{name}.columns.{attribute}"
            raise SourceError(f"{where}: {opened.origin} has no column {column!r}; {suggest(column, present)}")
    return tuple(a for a in declared if columns.get(a, a) in present)


@contextmanager
def _under(where: str) -> Iterator[None]:
    """What is wrong is named with its place in the spec."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{where}{error}") from None


def _section(data: Mapping[str, Any], key: str, *, required: bool = False) -> Mapping[str, Any]:
    section = data.get(key)
    if section is None:
        if required:
            raise SpecError(f"[{key}] is missing; add it")
        return {}
    if not isinstance(section, Mapping):
        raise SpecError(f"{key} must be a table; write [{key}]")
    return section


def _list(data: Mapping[str, Any], key: str) -> list[Any]:
    found = data.get(key, [])
    if not isinstance(found, list):
        raise SpecError(f"workload.{key} ({found!r}) must be a list")
    return found


def _names(found: object, where: str) -> tuple[str, ...]:
    if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
        raise SpecError(f"{where} ({found!r}) must be a list of attribute names")
    return tuple(found)


def _check_keys(data: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise SpecError(f"{where}{key} is not a key of the spec; {suggest(key, known)}")


def _number(value: object, where: str) -> float:
    if isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise SpecError(f"{where} ({value!r}) must be a number; correct it")
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise SpecError(f"{where} must lie between -1e308 and 1e308; write inf for no limit")
    return value
