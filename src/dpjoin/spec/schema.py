"""The public description of the tables: attributes with finite domains, tables, and how they join.

Nothing here is learned from data. A row whose value lies outside an attribute's domain follows a
public rule: it becomes `other` where the attribute has one, otherwise it is dropped from its table.
Either way one row of a table becomes at most one row, so neighbours stay neighbours.
"""

from __future__ import annotations

import math
import os
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType

from dpjoin.canonical import flag, instance, items, mapping, names, plain, text, whole
from dpjoin.errors import SpecError, suggest
from dpjoin.spec.dates import DATE, DATE_PARTS, FIRST_DAY, IMPLIED, LAST_DAY, date_text, days, part_of
from dpjoin.spec.encodings import encoding_of
from dpjoin.spec.learning import Learn, assumed, check_learned, learn_of
from dpjoin.spec.persons import check_unit

Value = str | int | bool
OTHER = "other"
ADD, REPLACE = "add", "replace"
"""How neighbours differ: one row, or one owner's rows, are added or removed, or they are replaced by others."""


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One column of the join, with its public domain.

    Exactly one of `values`, `range`, `bins`, `key` and `learn` describes the domain:

    * `values`: the listed categories (all text, all whole numbers, or all booleans);
    * `range`: the whole numbers from low to high, both included;
    * `bins`: edges e0 < e1 < … of numeric bins [e0, e1), [e1, e2), …; the last bin includes its right edge;
    * `key`: no domain. Tables join on it and no query looks at it;
    * `learn`: the release learns it privately: True for a list of values, {"bins": 8} for bins of numbers or dates.

    `part` makes the attribute a part of dates or times: year, month, weekday, hour or date. The domain is that of the
    part; month, weekday and hour have one of their own. Bins, ranges and values of dates make the part `date`.

    >>> delay = Attribute(name="delay", bins=(-math.inf, 0, 15, math.inf))
    >>> delay.size, [delay.code(v) for v in (-3, 0, 14.9, 400)]
    (3, [0, 1, 1, 2])
    >>> Attribute(name="carrier", values=("UA", "AA"), other=True).code("ZZ")
    2
    """

    name: str
    values: tuple[Value, ...] | None = None
    range: tuple[int, int] | None = None
    bins: tuple[float, ...] | None = None
    key: bool = False
    other: bool = False
    part: str | None = None
    learn: Learn | Mapping[str, int] | bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", text(self.name, "an attribute's name"))
        object.__setattr__(self, "learn", learn_of(self.learn, f"attribute {self.name!r}: learn"))
        _set_part(self)
        for key in ("values", "range", "bins"):
            given: object = getattr(self, key)
            if given is not None:
                what = f"attribute {self.name!r}: {key}"
                given = days(items(given, what), what) if self.part == DATE else given
                object.__setattr__(self, key, tuple(plain(v, what) for v in items(given, what)))
        for key in ("key", "other"):
            object.__setattr__(self, key, flag(getattr(self, key), f"attribute {self.name!r}: {key}"))
        _check_attribute(self)

    @property
    def learned(self) -> Learn | None:
        """How its domain is to be learned; None where it is known."""
        return self.learn if isinstance(self.learn, Learn) else None

    @property
    def texts(self) -> bool:
        """Whether its values are listed, and text."""
        return self.values is not None and all(isinstance(v, str) for v in self.values)

    @property
    def size(self) -> int:
        """How many values the attribute takes, `other` included; assumed, where they are still to be learned."""
        if self.learned is not None:
            return assumed(self).size
        if self.range is not None:
            return self.range[1] - self.range[0] + 1 + self.other
        return len(self.bins) - 1 + self.other if self.bins is not None else len(self.labels)

    @property
    def labels(self) -> tuple[Value | None, ...]:
        """What a reader sees for each code; `other` is None (missing) among whole numbers and booleans."""
        known: tuple[Value | None, ...]
        rest: Value | None = OTHER
        if self.values is not None:
            known = self.values
            rest = OTHER if self.texts else None
        elif self.range is not None:
            known, rest = tuple(range(self.range[0], self.range[1] + 1)), None
        elif self.bins is not None:
            last = len(self.bins) - 2
            known = tuple(
                f"[{self.told(a)}, {self.told(b)}{']' if i == last and math.isfinite(b) else ')'}"
                for i, (a, b) in enumerate(pairwise(self.bins))
            )
        elif self.learned is not None:
            raise SpecError(
                f"attribute {self.name!r} is learned, and its values are not known before the release; ask about them "
                "afterwards, or declare the domain"
            )
        else:
            raise SpecError(
                f"attribute {self.name!r} is a key and has no domain; give it values, a range or bins to ask about it"
            )
        if self.part == DATE and self.bins is None:
            known, rest = tuple(date_text(int(v or 0)) for v in known), OTHER
        return (*known, rest) if self.other else known

    def told(self, number: float) -> str:
        """A number of its domain as people write it: of dates, the date."""
        return date_text(number) if self.part == DATE else edge_text(number)

    @property
    def amounts(self) -> tuple[Fraction, ...]:
        """The number each code stands for in a sum: itself, or the middle of its bin; `other` counts as zero."""
        if self.part == DATE:
            raise SpecError(f"attribute {self.name!r} has dates, which cannot be summed; count them")
        if self.learned is not None and self.learned.bins is not None:
            return assumed(self).amounts
        if self.values is not None and all(isinstance(v, int) for v in self.values):
            known = [Fraction(int(v)) for v in self.values]
        elif self.range is not None:
            known = [Fraction(v) for v in range(self.range[0], self.range[1] + 1)]
        elif self.bins is not None:
            if not all(math.isfinite(e) for e in self.bins):
                raise SpecError(
                    f"attribute {self.name!r} has an infinite bin and cannot be summed; give every bin finite edges"
                )
            known = [(Fraction(a) + Fraction(b)) / 2 for a, b in pairwise(self.bins)]
        else:
            raise SpecError(f"attribute {self.name!r} is not numeric and cannot be summed")
        return tuple(known) + (Fraction(0),) * self.other

    def taken(self, value: object) -> object:
        """What the attribute takes of a value in a column: the value, or its part."""
        return value if self.part is None else part_of(self.part, value)

    def code(self, value: object) -> int | None:
        """The public rule for one value: its code, or None when the row is dropped. Never raises."""
        known = self._known_code(value)
        if known is None and self.other:
            return self.size - 1
        return known

    def _known_code(self, value: object) -> int | None:
        value = self.taken(value)
        if self.values is not None:
            fits = isinstance(value, str) if self.texts else isinstance(value, int | float)
            return self._positions.get(value) if fits else None
        if not isinstance(value, int | float) or value != value:
            return None
        if self.range is not None:
            low, high = self.range
            return int(value) - low if low <= value <= high and value == math.floor(value) else None
        edges = self.bins or ()
        if not edges or not edges[0] <= value <= edges[-1]:
            return None
        return min(bisect_right(edges, value), len(edges) - 1) - 1

    @cached_property
    def _positions(self) -> dict[object, int]:
        return {v: i for i, v in enumerate(self.values or ())}


def _set_part(a: Attribute) -> None:
    """Bins, ranges and values of dates make the part a date, and some parts have a domain of their own."""
    listed = [v for given in (a.values, a.range, a.bins) if isinstance(given, list | tuple) for v in given]
    if a.part is None and any(isinstance(v, date) for v in listed):
        object.__setattr__(a, "part", DATE)
    if a.part is None:
        return
    object.__setattr__(a, "part", text(a.part, f"attribute {a.name!r}: part"))
    if a.part not in DATE_PARTS:
        rule = f"must be one of {', '.join(DATE_PARTS)}"
        raise SpecError(f"attribute {a.name!r}: part ({a.part!r}) {rule}")
    if a.part in IMPLIED and a.values is None and a.range is None and a.bins is None and not a.key and not a.learn:
        object.__setattr__(a, "range", IMPLIED[a.part])


def edge_text(edge: float) -> str:
    """A number as people write it: 5000000 and not 5e+06."""
    if math.isinf(edge):
        return "-inf" if edge < 0 else "inf"
    return str(int(edge)) if edge == int(edge) else repr(edge)


def _check_attribute(a: Attribute) -> None:
    def check(holds: bool, rule: str) -> None:
        if not holds:
            raise SpecError(f"attribute {a.name!r}{rule}")

    domains = {"values": a.values, "range": a.range, "bins": a.bins, "key": a.key or None, "learn": a.learn or None}
    described = [name for name, given in domains.items() if given is not None]
    has = " and ".join(described) if described else "none"
    if a.part is not None and not described:
        example = "bins = [2020-01-01, 2021-01-01]" if a.part == DATE else "range = [2015, 2025]"
        check(False, f" is the {a.part} of a date and must have values, a range or bins; write {example}")
    check(len(described) == 1, f" must have one of values, range, bins, key = true, learn; it has {has}")
    check(not (a.key and a.other), " is a key and takes every value; remove other")
    implied = a.learned is not None and a.part in IMPLIED
    check(not implied, f" is the {a.part} of a date, which has a domain of its own; remove learn")
    if a.part == DATE:
        known = [v for given in (a.values, a.range, a.bins) if given is not None for v in given]
        finite = [v for v in known if not (type(v) is float and math.isinf(v))]
        fits = all(type(v) is int and FIRST_DAY <= v <= LAST_DAY for v in finite)
        check(fits, f": {has} must be dates; write them like 2020-12-31")
    if a.values is not None:
        kinds = {type(v) for v in a.values}
        alike = (len(kinds) == 1 and kinds <= {str, int, bool}) or (not kinds and a.other)
        rule = "must be all text, all whole numbers or all booleans, at least one; use bins for other numbers"
        check(alike, f": values {rule}")
        twice = [v for v, count in Counter(a.values).items() if count > 1]
        check(a.part is None or kinds <= {int}, f": values must be {'dates' if a.part == DATE else 'whole numbers'}")
        check(not twice, f": value {', '.join(map(repr, twice))} must occur once; remove the repetition")
        clash = a.other and OTHER in a.values
        check(not clash, f": values hold {OTHER!r} and other = true adds it; remove one")
    if a.range is not None:
        told = f": range ({list(a.range)}) must"
        if a.part == DATE and all(type(v) is int for v in a.range):
            told = f": range ({', '.join(map(a.told, a.range))}) must"
        check([type(v) for v in a.range] == [int, int], f"{told} be two whole numbers [low, high]")
        check(a.range[0] <= a.range[1], f"{told} run from low to high; swap them")
        check(max(map(abs, a.range)) <= 2**31 - 2, f"{told} lie within 32-bit whole numbers")
    if a.bins is not None:
        check(len(a.bins) >= 2, ": bins must have at least two edges")
        for edge in a.bins:
            number = type(edge) in (int, float) and edge == edge
            check(number, f": bins ({edge!r}) must be a number; use values for categories")
            held = isinstance(edge, float) or abs(edge) <= sys.float_info.max
            check(held, ": bins must lie between -1e308 and 1e308; write inf for no limit")
        for low, high in pairwise(a.bins):
            follows = f"edge {a.told(high)} follows {a.told(low)}"
            check(low < high, f": bins must not overlap: {follows}; list the edges in increasing order")


@dataclass(frozen=True, kw_only=True)
class DegreeBound:
    """A public promise about a table: at most `limit` of its rows share one value of `attributes`."""

    attributes: tuple[str, ...]
    limit: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", names(self.attributes, "a degree bound: attributes"))
        object.__setattr__(self, "limit", whole(self.limit, "a degree bound"))


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table: which attributes it has, under which column names, and whether its rows are secret."""

    name: str
    attributes: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)
    """Attribute -> column, where the two names differ."""
    private: bool = True
    source: str | tuple[str, ...] | None = None
    """Where the rows are (a file, a folder, a pattern, several files); None when tables are handed over in Python."""
    source_table: str | None = None
    """The table inside a database file, or the sheet of an Excel file."""
    encoding: str | None = None
    """How the bytes of a CSV file stand for text; None for UTF-8, and for what a mark at the file's beginning says."""
    bounds: tuple[DegreeBound, ...] = ()
    """Public bounds on degrees; a unique key is the bound 1."""
    enforce: bool = False
    """Whether rows beyond the bounds are removed at a price (True), or promised not to exist (False)."""
    owner: tuple[str, ...] = ()
    """The attributes that say whose a row is, where they are not those of the schema's unit."""
    owner_via: str | None = None
    """The foreign key by which a row's owner is found: an attribute that is unique in a table that has the owner."""
    owners: int | None = None
    """At most so many owners can meet one row of this table, which has none itself; None if it has one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", text(self.name, "a table's name"))
        what = f"table {self.name!r}"
        object.__setattr__(self, "owner", names(self.owner, f"{what}: owner"))
        via = self.owner_via
        object.__setattr__(self, "owner_via", via if via is None else text(via, f"{what}: owner_via"))
        met = self.owners
        object.__setattr__(self, "owners", met if met is None else whole(met, f"{what}: owners", least=1))
        object.__setattr__(self, "attributes", names(self.attributes, f"{what}: attributes"))
        columns = mapping(self.columns, f"{what}: columns")
        named = {text(a, f"{what}: columns"): text(c, f"{what}: columns") for a, c in columns.items()}
        object.__setattr__(self, "columns", MappingProxyType(named))
        for key in ("private", "enforce"):
            object.__setattr__(self, key, flag(getattr(self, key), f"{what}: {key}"))
        object.__setattr__(self, "source", _source(self.source, f"{what}: source"))
        inside = self.source_table
        object.__setattr__(self, "source_table", inside if inside is None else text(inside, f"{what}: table"))
        if self.encoding is not None:
            spelt = text(self.encoding, f"{what}: encoding")
            object.__setattr__(self, "encoding", encoding_of(spelt, f"{what}: encoding"))
        bounds = items(self.bounds, f"{what}: bounds")
        object.__setattr__(self, "bounds", tuple(instance(b, DegreeBound, f"{what}: a bound") for b in bounds))

    def column(self, attribute: str) -> str:
        return self.columns.get(attribute, attribute)


def _source(given: object, what: str) -> str | tuple[str, ...] | None:
    """A path, or several, as text; one in a list is one."""
    if given is None:
        return None
    several = items(given, what) if isinstance(given, list | tuple) else (given,)
    paths = tuple(text(os.fspath(p) if isinstance(p, os.PathLike) else p, what) for p in several)
    if not paths:
        raise SpecError(f"{what} ([]) must name at least one file")
    return paths[0] if len(paths) == 1 else paths


@dataclass(frozen=True)
class Schema:
    """Tables and attributes: the hypergraph of a natural join, H = (x, {x_1 … x_m}), with public domains.

    >>> schema = Schema(
    ...     tables=(Table(name="r", attributes=("a", "b")), Table(name="s", attributes=("b", "c"))),
    ...     attributes=(Attribute(name="a", range=(0, 3)), Attribute(name="b", key=True),
    ...                 Attribute(name="c", values=("x", "y"))))
    >>> schema.join_attributes, schema.queryable, schema.shape(("a", "c"))
    (('b',), ('a', 'c'), (4, 2))
    """

    tables: tuple[Table, ...]
    attributes: tuple[Attribute, ...]
    unit: tuple[str, ...] = ()
    """Whose rows are protected together: the attributes that name an owner; none where every row is by itself."""
    max_results: int | None = None
    """At most about so many join results of an owner count; None: a noisy histogram of owners decides."""
    neighbours: str = ADD

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", names(self.unit, "the unit of privacy"))
        most = self.max_results
        object.__setattr__(self, "max_results", most if most is None else whole(most, "max_results", least=1))
        if (self.max_results or 0) > 2**24:
            raise SpecError(f"max_results ({self.max_results}) must be at most {2**24:,}; leave it out")
        object.__setattr__(self, "neighbours", text(self.neighbours, "neighbours"))
        if self.neighbours not in (ADD, REPLACE):
            raise SpecError(f"neighbours ({self.neighbours!r}) must be {ADD!r} or {REPLACE!r}")
        tables, attributes = items(self.tables, "tables"), items(self.attributes, "attributes")
        object.__setattr__(self, "tables", tuple(instance(t, Table, "a table of the schema") for t in tables))
        declared = tuple(instance(a, Attribute, "an attribute of the schema") for a in attributes)
        object.__setattr__(self, "attributes", declared)
        _check_schema(self)

    def attribute(self, name: str) -> Attribute:
        try:
            return self._by_name[name]
        except KeyError:
            raise SpecError(f"attribute {name!r} is not declared; {suggest(name, self._by_name)}") from None

    def table(self, name: str) -> Table:
        for table in self.tables:
            if table.name == name:
                return table
        raise SpecError(f"table {name!r} is not declared; {suggest(name, [t.name for t in self.tables])}")

    @cached_property
    def _by_name(self) -> dict[str, Attribute]:
        return {a.name: a for a in self.attributes}

    @property
    def join_attributes(self) -> tuple[str, ...]:
        """The attributes that several tables share."""
        return tuple(a.name for a in self.attributes if len(self.tables_with(a.name)) > 1)

    @property
    def compared_attributes(self) -> tuple[str, ...]:
        """The attributes whose values are compared as they are: those that tables join on, and those of owners."""
        owners = {*self.join_attributes, *self.unit, *(a for t in self.tables for a in t.owner)}
        return self.in_order(owners)

    @property
    def queryable(self) -> tuple[str, ...]:
        """The attributes with a domain, in the order they are declared."""
        return tuple(a.name for a in self.attributes if not a.key)

    @property
    def learned(self) -> tuple[str, ...]:
        """The attributes whose domain a release learns."""
        return tuple(a.name for a in self.attributes if a.learned is not None)

    @property
    def private_tables(self) -> tuple[str, ...]:
        return tuple(t.name for t in self.tables if t.private)

    def tables_with(self, attribute: str) -> tuple[str, ...]:
        return tuple(t.name for t in self.tables if attribute in t.attributes)

    def owner(self, attribute: str) -> str:
        """The first table that has the attribute; at a join attribute all its tables agree."""
        return self.tables_with(attribute)[0]

    def shape(self, attributes: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.attribute(a).size for a in attributes)

    def cells(self, attributes: Sequence[str]) -> int:
        return math.prod(self.shape(attributes))

    def in_order(self, attributes: Iterable[str]) -> tuple[str, ...]:
        """The attributes in the order of declaration, each once."""
        wanted = set(attributes)
        return tuple(a.name for a in self.attributes if a.name in wanted)

    @classmethod
    def from_toml(cls, path: str) -> Schema:
        """The schema part of a spec file."""
        from dpjoin.spec.toml import Spec

        return Spec.from_toml(path).schema


def with_caps(schema: Schema, caps: Mapping[str, Sequence[DegreeBound]]) -> Schema:
    """The schema of tables with only the rows within the caps: bounds on top of those declared, enforced.

    Of public tables caps are bounds that hold, so no row goes, and these tables serve as before.
    """
    tables = [replace(t, bounds=(*t.bounds, *caps.get(t.name, ()))) for t in schema.tables]
    tables = [replace(t, enforce=True) if t.private and caps.get(t.name) else t for t in tables]
    return replace(schema, tables=tuple(tables))


def describe_bounds(schema: Schema) -> list[str]:
    """Each declared degree bound in words, and whether it is assumed or enforced."""
    told = []
    for table in schema.tables:
        for bound in table.bounds:
            rows = "one row" if bound.limit == 1 else f"{bound.limit} rows"
            how = "enforced: further rows are removed" if table.enforce else "assumed: the source makes sure of it"
            told.append(f"At most {rows} of {table.name} for each value of ({', '.join(bound.attributes)}); {how}.")
    return told


def _check_schema(schema: Schema) -> None:
    tables, attributes = [t.name for t in schema.tables], [a.name for a in schema.attributes]
    if not tables:
        raise SpecError("the schema must have at least one table; add [tables.NAME]")
    for what, declared in (("table", tables), ("attribute", attributes)):
        for i, name in enumerate(declared):
            if name in declared[:i]:
                raise SpecError(f"{what} {name!r} must be declared once; remove the second")
    lower = {name.lower(): name for name in attributes}
    for name in attributes:
        if lower[name.lower()] != name:
            raise SpecError(
                f"attributes {name!r} and {lower[name.lower()]!r} must differ in more than case (SQL is blind to it); "
                "rename one, and name its column in columns"
            )
    for table in schema.tables:
        if not table.attributes:
            raise SpecError(f"table {table.name!r} must have at least one attribute")
        if len(set(table.attributes)) != len(table.attributes):
            raise SpecError(f"table {table.name!r} must list each attribute once")
        for name in table.attributes:
            if name not in attributes:
                raise SpecError(
                    f"table {table.name!r} has attribute {name!r}, which is not declared; {suggest(name, attributes)}"
                )
        for name in table.columns:
            if name not in table.attributes:
                raise SpecError(
                    f"table {table.name!r} names a column for {name!r}, which is not one of its attributes; "
                    f"{suggest(name, table.attributes)}"
                )
        for bound in table.bounds:
            if bound.limit < 1:
                raise SpecError(f"table {table.name!r}: a degree bound ({bound.limit}) must be at least 1")
            if not bound.attributes:
                raise SpecError(
                    f"table {table.name!r}: a degree bound ({bound.limit}) must name at least one attribute; "
                    "name the key, or leave the bound out"
                )
            for name in bound.attributes:
                if name not in table.attributes:
                    raise SpecError(
                        f"table {table.name!r} bounds the degree of {name!r}, which is not one of its attributes; "
                        f"{suggest(name, table.attributes)}"
                    )
    for name in attributes:
        if not schema.tables_with(name):
            raise SpecError(
                f"attribute {name!r} is in no table; add it to a table's attributes or remove it "
                f"(tables: {', '.join(tables)})"
            )
    if not schema.private_tables:
        raise SpecError("no table is private, so there is nothing to protect; ask DuckDB directly")
    check_unit(schema)
    check_learned(schema)
