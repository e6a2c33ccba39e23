"""Which columns join tables and what attributes are called: from column names alone, or as the user says."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpjoin.errors import SpecError, suggest

Columns = dict[str, str]
"""In which tables an attribute is, and what its column is called there."""
_KEY = re.compile(r"(?i:(.*[^a-z])?(id|uuid|guid|key|code|sku))|.*[a-z0-9](Id|ID|Uuid|UUID|Key|Code)")
_IDENTIFIER = re.compile(r"(?i:(.*[^a-z])?(id|uuid|guid))|.*[a-z0-9](Id|ID|Uuid|UUID)")


@dataclass(frozen=True)
class Source:
    """One table to draft for: its name in the spec, its file, and its column names and types."""

    name: str
    path: Path
    table: str | None
    columns: tuple[tuple[str, str], ...]
    sniffed: bool = False
    """Whether the file has no types, so that they were taken from its rows."""
    encoding: str | None = None
    """What its text is encoded in, if that has to be said."""
    endless: bool = False
    """Whether its columns are named in its rows only, as those of JSON lines, so that a spec has to list them."""
    stored: str | None = None
    """The text that names it, if it is in a store and no file."""


def is_key_like(column: str) -> bool:
    """Whether a column that two tables have is called like a key.

    >>> [is_key_like(name) for name in ("id", "order_id", "orderId", "Key", "zip code", "paid", "status")]
    [True, True, True, True, True, False, False]
    """
    return _KEY.fullmatch(column) is not None


def is_identifier(column: str) -> bool:
    """Whether a column is called like one that tells rows apart, of which no domain is worth having."""
    return _IDENTIFIER.fullmatch(column) is not None


def chosen_keys(
    sources: Sequence[Source], on: Sequence[str], unit: str | None, ask: Callable[[str, str], str] | None
) -> tuple[dict[str, Columns], str]:
    """The attributes that tables join on, and why these; a unit of privacy is one, too."""
    if on:
        keys, how = _told(sources, on), ""
    elif ask is None or len(sources) == 1:
        keys, how = guessed_keys(sources), " (guessed from names; --on says otherwise)"
    else:
        try:
            guess = guessed_keys(sources)
        except SpecError:
            guess = {}
        answer = ask("columns that join the tables, with commas between", ",".join(guess)).strip()
        keys, how = (guess if answer == ",".join(guess) else _told(sources, [answer])), ""
    if unit is not None and unit not in keys:
        found = _holders(sources, unit)
        if not found:
            raise SpecError(f"--unit {unit}: no table has such a column; {suggest(unit, _all_columns(sources))}")
        keys[unit] = found
    return keys, how


def _all_columns(sources: Sequence[Source]) -> list[str]:
    return list(dict.fromkeys(c for s in sources for c, _ in s.columns))


def _holders(sources: Sequence[Source], column: str) -> Columns:
    return {s.name: column for s in sources if column in dict(s.columns)}


def _told(sources: Sequence[Source], on: Sequence[str]) -> dict[str, Columns]:
    """Each is a column that several tables have, some of these with commas between, or COLUMN=COLUMN."""
    keys: dict[str, Columns] = {}
    for item in on:
        parts = [item] if _holders(sources, item) else [part.strip() for part in item.split(",")]
        for part in parts:
            name, _, other = (part, "", "") if _holders(sources, part) else part.partition("=")
            keys[name] = _holders(sources, other) | _holders(sources, name)
            for column in filter(None, (name, other)):
                if not _holders(sources, column):
                    hint = suggest(column, _all_columns(sources))
                    raise SpecError(f"--on {item}: no table has a column {column!r}; {hint}")
            if len(keys[name]) < 2 and len(sources) > 1:
                (only,) = keys[name]
                alike = [*_references(sources).get(name, {}).values(), *_all_columns(sources)]
                alike = [c for c in alike if c != name and (name in _references(sources) or c.lower() == name.lower())]
                raise SpecError(
                    f"--on {item}: only table {only!r} has a column {name!r}, and joining takes two; if another table "
                    f"calls it otherwise: --on {name}={(alike or ['OTHER'])[0]}"
                )
    return keys


def guessed_keys(sources: Sequence[Source]) -> dict[str, Columns]:
    """Names in several tables that are called like keys, and `customer_id` of one for `id` of `customers`.

    Where that leaves tables apart, the one name that they share; SpecError if there are several.
    """
    keys = _references(sources)
    referred = {(t, c) for columns in keys.values() for t, c in columns.items()}
    shared = [c for c in _all_columns(sources) if len(_holders(sources, c)) > 1]
    for column in filter(is_key_like, shared):
        found = _holders(sources, column)
        if column not in keys and not referred & set(found.items()):
            keys[column] = found
    while True:
        parts = _parts(sources, keys)
        links = [c for c in shared if c not in keys and len({parts[t] for t in _holders(sources, c)}) > 1]
        if not links:
            return keys
        if len(links) > 1:
            first, second, *more = links
            told = f"{', '.join([first, second, *more][:8])}{' …' if len(links) > 8 else ''}"
            raise SpecError(
                f"tables share the columns {told}, and none is called like a key; say which ones join them, "
                f"as in --on {first}, or --on {first},{second}"
            )
        keys[links[0]] = _holders(sources, links[0])


def _references(sources: Sequence[Source]) -> dict[str, Columns]:
    """Columns like `customer_id`, where a table `customers` or `customer` has an `id`."""
    keys: dict[str, Columns] = {}
    for column in _all_columns(sources):
        split = re.fullmatch(r"(?i:(.+?)[_ ]?(id|key|code))", column)
        for s in sources if split and is_key_like(column) else ():
            stem = split[1].lower() if split else ""
            owner = s.name.lower() in (stem, f"{stem}s", f"{stem}es", re.sub("y$", "ies", stem))
            target = next((c for c, _ in s.columns if split and c.lower() == split[2].lower()), None)
            if owner and target and column not in dict(s.columns):
                keys[column] = {s.name: target} | _holders(sources, column)
    return keys


def _parts(sources: Sequence[Source], keys: dict[str, Columns]) -> dict[str, str]:
    """For each table, one table of the part that keys connect it with."""
    parts = {s.name: s.name for s in sources}
    for columns in keys.values():
        old = {parts[t] for t in columns}
        parts = {t: min(old) if p in old else p for t, p in parts.items()}
    return parts


def named_attributes(sources: Sequence[Source], keys: dict[str, Columns]) -> dict[str, Columns]:
    """Each attribute with its columns: keys, columns of one table, and the others with their table's name before."""
    attributes: dict[str, Columns] = {}
    taken = set(_all_columns(sources)) | set(keys)
    for s in sources:
        for column, _ in s.columns:
            key = next((a for a, columns in keys.items() if columns.get(s.name) == column), None)
            if key is not None:
                attributes[key] = keys[key]
            elif len(_holders(sources, column)) == 1 and column not in keys:
                attributes[column] = {s.name: column}
            else:
                name = f"{s.name}_{column}"
                while name in taken:
                    name += "_"
                taken.add(name)
                attributes[name] = {s.name: column}
    return attributes
