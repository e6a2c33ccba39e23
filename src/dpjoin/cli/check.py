"""All that is wrong with a spec at once, each with its line: keys, files, columns and types.

No value is read. What text files are encoded in, and which keys JSON lines have, is told to the owner of the rows only.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from dpjoin.engine.sources import (
    OpenedTable,
    column_problems,
    connected,
    files_of,
    first_names,
    is_place,
    is_remote,
    looks_like,
    open_source,
    same_source,
    split,
)
from dpjoin.engine.sources.lines import NO_ARRAY, is_array
from dpjoin.errors import DpjoinError, SpecError, suggest
from dpjoin.spec.plain import attribute_from_dict, table_from_dict, unit_of
from dpjoin.spec.schema import Attribute, Table
from dpjoin.spec.stored import is_stored
from dpjoin.spec.toml import Spec, attributes_by_column, read_toml, source_of

Place = tuple[str, ...]


def problems(path: Path) -> list[str]:
    """One line for each thing that is wrong, in the order of the file."""
    text, data = read_toml(path)
    checked = _Checked(lines_of(text))
    spec = None
    with checked.noting():
        spec = Spec.from_dict(data, folder=path.parent)
    tables = {t.name: t for t in spec.schema.tables} if spec else _tables(checked, data, path.parent)
    attributes = {a.name: a for a in spec.schema.attributes} if spec else _attributes(checked, data)
    sources = {name: source_of(t, path.parent) for name, t in tables.items() if t.source is not None}
    for name in tables.keys() - sources.keys():
        checked.note(f"tables.{name}.source is missing; name the file that holds the table", ("tables", name))
    for first, second in combinations([name for name, t in tables.items() if t.private and name in sources], 2):
        with checked.noting():
            if same_source(sources[first], sources[second]):
                said = "have the same source, so one row would change both; split the rows into two disjoint tables"
                checked.note(f"tables {first!r} and {second!r} {said}", ("tables", second, "source"))
    with connected() as connection:
        opened: dict[str, OpenedTable] = {}
        for name, source in sources.items():
            with checked.noting("tables", name, "source"):
                opened[name] = open_source(connection, name, source, columns=(), encoding=tables[name].encoding)
        found = [tables[name] for name in opened]
        compared = spec.schema.compared_attributes if spec else ()
        for table, attribute, error in column_problems(found, attributes, compared, opened):
            listed = "columns" if attribute in tables[table].columns else "attributes"
            checked.note(str(error), ("tables", table, listed, attribute))
        for known in found:
            _look(checked, connection, known, sources[known.name], opened[known.name])
    return checked.told(path)


def _look(checked: _Checked, connection: Any, table: Table, source: Any, opened: OpenedTable) -> None:
    """What only rows tell, and a release never says: encodings, and keys of JSON lines. For their owner's eyes."""
    place, _ = split(source, None)
    if not is_place(place) or is_stored(place) or (isinstance(place, str) and is_remote(place)):
        return
    seen: dict[str, None] = {}
    for file in files_of(table.name, place):
        if table.encoding is None and (looks := looks_like(file)) is not None:
            said = f"file {str(file)!r} holds rows that are not UTF-8, and a release leaves them out"
            what = f'it looks like {looks}: add encoding = "{looks}"'
            checked.note(f"table {table.name!r}: {said}; {what}", ("tables", table.name, "source"))
        if opened.endless and is_array(file):
            checked.note(f"table {table.name!r}: file {str(file)!r} {NO_ARRAY}", ("tables", table.name, "source"))
            return
        if opened.endless:
            seen |= dict.fromkeys(first_names(connection, file))
    for attribute in table.attributes if opened.endless else ():
        if (column := table.column(attribute)) not in seen:
            said = f"no key {column!r} in the first lines of {opened.origin}; {suggest(column, seen)}"
            checked.note(f"table {table.name!r}: {said}", ("tables", table.name, "attributes", attribute))


def _tables(checked: _Checked, data: Mapping[str, Any], folder: Path) -> dict[str, Table]:
    """The tables that can be read by themselves, in a spec that cannot be read as a whole."""
    found, declared = {}, list(_section(data, "attributes"))
    for name, body in _section(data, "tables").items():
        with checked.noting("tables", name):
            unit = unit_of(_section(data, "privacy").get("unit", "row"), declared)
            found[name] = table_from_dict(name, body, declared, lambda t, d: attributes_by_column(t, d, folder), unit)
    return found


def _attributes(checked: _Checked, data: Mapping[str, Any]) -> dict[str, Attribute]:
    found = {}
    for name, body in _section(data, "attributes").items():
        with checked.noting("attributes", name):
            found[name] = attribute_from_dict(name, body)
    return found


def _section(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A section with those of its parts that are tables; what is wrong with the others was told."""
    found = data.get(key, {})
    if not isinstance(found, Mapping):
        return {}
    return {k: v for k, v in found.items() if key == "privacy" or isinstance(v, Mapping)}


@dataclass
class _Checked:
    """What was found to be wrong so far."""

    lines: Mapping[Place, int]
    found: dict[str, Place] = field(default_factory=dict)

    def note(self, message: str, place: Place = ()) -> None:
        self.found.setdefault(message, place)

    @contextmanager
    def noting(self, *place: str) -> Iterator[None]:
        try:
            yield
        except DpjoinError as error:
            self.note(str(error), place)

    def told(self, path: Path) -> list[str]:
        placed = sorted((self._line(message, place), message) for message, place in self.found.items())
        return [f"{path}, line {line}: {message}" if line else f"{path}: {message}" for line, message in placed]

    def _line(self, message: str, place: Place) -> int:
        """The line of the longest key that the message names, or else of the place."""
        named = [p for p in self.lines if re.search(rf"(?<![\w.]){re.escape('.'.join(p))}(?![\w-])", message)]
        kinds = {"table": "tables", "attribute": "attributes"}
        named += [(kinds[k], n) for k, n in re.findall(r"\b(table|attribute) '([^']*)'", message)] if not place else []
        for candidate in (max(named, key=len, default=()), place):
            for length in range(len(candidate), 1, -1):
                if candidate[:length] in self.lines:
                    return self.lines[candidate[:length]]
        return self.lines.get(max(named, key=len, default=place)[:1], 0)


_TOML_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_HEADER = re.compile(rf"\s*\[\[?\s*({_TOML_KEY}(?:\s*\.\s*{_TOML_KEY})*)\s*\]\]?")
_ASSIGNED = re.compile(rf"\s*({_TOML_KEY}(?:\s*\.\s*{_TOML_KEY})*)\s*=")


def lines_of(text: str) -> dict[Place, int]:
    """The line on which each section and each key of a TOML file begins.

    >>> lines_of("[tables.r]\\nsource = 'r.csv'\\n[attributes]\\na = { key = true }\\n")[("attributes", "a")]
    4
    """
    found: dict[Place, int] = {}
    header: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if (match := _HEADER.match(line)) is not None and "=" not in line.partition("#")[0]:
            header = _path(match[1])
            found.setdefault(header, number)
        elif (match := _ASSIGNED.match(line)) is not None:
            path = header + _path(match[1])
            found.setdefault(path, number)
            for key in re.findall(rf"[{{,]\s*({_TOML_KEY})\s*=", line[match.end() :]):
                found.setdefault((*path, *_path(key)), number)
    for place in list(found):
        found.setdefault(place[:1], found[place])
    return found


def _path(dotted: str) -> Place:
    body: Any = tomllib.loads(f"{dotted} = 0")
    path: list[str] = []
    while isinstance(body, dict):
        ((key, body),) = body.items()
        path.append(key)
    return tuple(path)


def check(path: Path) -> None:
    """Refuse a spec with all that is wrong with it, each in a line of its own."""
    from dpjoin.cli.specs import say

    found = problems(path)
    for line in found:
        say(f"error: {line}")
    if found:
        count = "1 thing is" if len(found) == 1 else f"{len(found)} things are"
        raise SpecError(f"{path}: {count} wrong; nothing was spent")
