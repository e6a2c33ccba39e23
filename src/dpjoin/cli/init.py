"""A commented first spec from the tables' column names and types, and never from their values unless told so."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from dpjoin.cli.keys import Columns, Source, chosen_keys, is_identifier, named_attributes
from dpjoin.cli.metadata import declarations
from dpjoin.engine.dialect import identifier
from dpjoin.engine.sniff import ODD, TEXT, column_types
from dpjoin.engine.sources import (
    column_names,
    connected,
    files_of,
    has_tables,
    is_endless,
    is_remote,
    looks_like,
    missing_place,
    open_source,
)
from dpjoin.errors import SourceError, SpecError, suggest
from dpjoin.spec.learning import WHOLE_TEXT
from dpjoin.spec.plain import PLACEHOLDER
from dpjoin.spec.schema import Value
from dpjoin.spec.stored import is_stored, name_in_store

MAX_VALUES = 1000
"""A public domain with more values than this is refused: the release would hardly fit in memory."""
_LIMIT = 100
"""An example of a bound on degrees, whatever the tables hold."""
_WHOLE_TYPES = "U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)"


def read_source(argument: str) -> Source:
    """A table from the command line: a file, FILE:TABLE for a database file, or a source that names a store."""
    if is_stored(argument):
        called = name_in_store(argument)
        return Source(called, Path(called), None, tuple(column_names(argument)), stored=argument)
    path, table = Path(argument), None
    if not path.exists():
        before, _, after = argument.rpartition(":")
        if after and has_tables(Path(before)):
            path, table = Path(before), after
    if is_remote(argument):
        raise SourceError(f"{argument}: a first spec is made from files here; download it, or write its spec by hand")
    if missing_place(path) is not None:
        raise SourceError(f"{path}: the file does not exist; correct the path")
    try:
        paths = files_of("table", path)
        encoding = next(filter(None, map(looks_like, paths)), None)
        columns = tuple(column_types(path, table, encoding))
        sniffed = any(kind == TEXT for _, kind in column_names(path, table, encoding))
    except SourceError as error:
        if has_tables(path) and table is None:
            has = re.search(r"\(it has: .*\)$", str(error))
            raise SourceError(
                f"{path}: name the table inside the database, as in {path}:TABLE{f' {has[0]}' if has else ''}"
            ) from None
        said = str(error).removeprefix("table 'table': ").removeprefix(f"file {str(path)!r} ")
        raise SourceError(f"{path}: {said.removesuffix(' in tables.table.source')}") from None
    called = table or (path if path.exists() else path.parent.resolve()).name.partition(".")[0]
    return Source(called, path, table, columns, sniffed, encoding, is_endless(paths[0]))


@dataclass(frozen=True)
class Wishes:
    """What the user says about a first spec."""

    on: tuple[str, ...] = ()
    """Columns that join the tables; none for a guess from their names."""
    learn: bool = False
    """Whether domains that nobody declared are learned privately; otherwise they are left to be filled in."""
    public: tuple[str, ...] = ()
    """TABLE.COLUMN whose set of values is public."""
    epsilon: float = 1.0
    delta: float = 1e-6
    unit: str | None = None
    metadata: tuple[Path, ...] = ()
    """Files that declare domains and who is protected (CSVW-EO)."""
    ask: Callable[[str, str], str] | None = None
    """Puts a question with a default to the user."""


@dataclass(frozen=True)
class Draft:
    """A first spec, what was decided in it, and how many domains are to be filled in."""

    text: str
    decisions: tuple[str, ...]
    placeholders: int


def draft(sources: Sequence[Source], wishes: Wishes, *, folder: Path) -> Draft:
    """A first spec that lives in `folder`."""
    names = [s.name for s in sources]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise SpecError(f"two tables are called {name!r}; rename one of the files")
    declared, unit = declarations(sources, wishes.metadata)
    wishes = replace(wishes, unit=wishes.unit or unit)
    keys, how = chosen_keys(sources, wishes.on, wishes.unit, wishes.ask)
    attributes = named_attributes(sources, keys)
    domains = _public_domains(sources, wishes.public)
    described = {}
    for name, columns in attributes.items():
        known = [value for place in columns.items() for value in domains.get(place, ())]
        alike = len({type(value) for value in known}) == 1
        domain = sorted(set(known if alike else map(str, known)))
        told = next((declared[place] for place in columns.items() if place in declared), None)
        described[name] = _attribute(
            name, columns, sources, key=name in keys, domain=domain, declared=told, wishes=wishes
        )
    shared = bool(keys)
    kept = {name: columns for name, columns in attributes.items() if described[name][1] != "left out"}
    tables = [_table(s, folder, kept, keys, alone=shared and not _links(s, keys)) for s in sources]
    texts = [text for text, _ in described.values()]
    if not shared and len(sources) > 1:
        texts.insert(0, _NOTHING_SHARED)
    asked = sum(kind in ("declared", "learned", "open") for _, kind in described.values())
    written = {
        "tables": "\n".join(tables),
        "attributes": "\n".join(texts),
        "ways": str(min(2, max(1, asked))),
        "epsilon": repr(wishes.epsilon),
        "delta": repr(wishes.delta),
        "unit": f"unit = {_text(wishes.unit)}   # who is protected, with all rows in all tables\n"
        if wishes.unit
        else "",
    }
    template = (files("dpjoin") / "data" / "first_spec.toml").read_text(encoding="utf-8")
    text = re.sub(r"\{(\w+)\}", lambda place: written.get(place[1], place[0]), template)
    by_kind: dict[str, list[str]] = {}
    for name, (_, kind) in described.items():
        by_kind.setdefault(kind, []).append(name)
    decided = _decisions(sources, kept, keys, how, by_kind)
    return Draft(text, decided, len(by_kind.get("open", [])))


_NOTHING_SHARED = """\
# No column name occurs in two tables, so nothing joins them yet: give a shared attribute one name with `columns`.
"""
_LISTED = 6
"""So many names of a list are told; a screen has room for no more."""


def _decisions(
    sources: Sequence[Source],
    attributes: Mapping[str, Columns],
    keys: Mapping[str, Columns],
    how: str,
    by_kind: Mapping[str, Sequence[str]],
) -> tuple[str, ...]:
    """What was decided, a line each."""
    lines = []
    if len(sources) > 1:
        on = [a if set(c.values()) == {a} else f"{a} ({_places(c)})" for a, c in keys.items()]
        lines.append(f"joins on     {_few(on) or 'nothing yet: name the columns with --on'}{how if on else ''}")
    apart: dict[str, list[str]] = {}
    for name, columns in attributes.items():
        if name not in keys and name not in columns.values():
            apart.setdefault(next(iter(columns.values())), []).append(name)
    if apart:
        told = [f"{column} is {', '.join(names)}" for column, names in apart.items()]
        lines.append(f"kept apart   {_few(told)} (same name, not joined; --on joins on it)")
    words = {
        "declared": "declared     {} (booleans, parts of dates, --public-domain, --metadata)",
        "learned": "learned      {} (privately, from the budget; a domain you declare is better)",
        "open": 'fill in      {} (they hold "...")',
        "left out": "left out     {} (called like identifiers, or without a domain; the spec says how to keep one)",
    }
    lines += [words[kind].format(_few(by_kind[kind])) for kind in words if kind in by_kind]
    if odd := [c for s in sources for c, kind in s.columns if kind == ODD]:
        like = ODD.removeprefix("text, as ")
        lines.append(
            f"stays text   {_few(odd)} (numbers or dates like {like}; written 3.5 and 2020-12-31 they are read)"
        )
    if any(s.sniffed for s in sources):
        files_of = _few([s.path.name for s in sources if s.sniffed])
        lines.append(f"types        taken from the rows of {files_of}, and public with the spec; no value is")
    return tuple(lines)


def _few(names: Sequence[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def _places(columns: Columns) -> str:
    return ", ".join(f"{t}.{c}" for t, c in columns.items())


def _links(source: Source, keys: Mapping[str, Columns]) -> list[tuple[str, ...]]:
    """The keys that a table shares with each other one: single ones first, and first columns first."""
    own = [c for c, _ in source.columns]
    mine = sorted((a for a in keys if source.name in keys[a]), key=lambda a: own.index(keys[a][source.name]))
    others = {t for a in mine for t in keys[a]} - {source.name}
    shared = [tuple(a for a in mine if t in keys[a]) for t in sorted(others)]
    return sorted(dict.fromkeys(shared), key=lambda link: (len(link), mine.index(link[0])))


def _table(
    source: Source, folder: Path, attributes: Mapping[str, Columns], keys: Mapping[str, Columns], *, alone: bool
) -> str:
    relative = source.stored or Path(os.path.relpath(source.path.resolve(), folder.resolve())).as_posix()
    lines = [f"[tables.{_key(source.name)}]", f"source = {_text(relative)}"]
    lines += [f"table = {_text(source.table)}"] if source.table else []
    if source.encoding:
        lines.append(f"encoding = {_text(source.encoding)}   # what it looks like; UTF-8 needs no word")
    if source.endless:
        here = [a for a, c in attributes.items() if source.name in c]
        lines.append(f"attributes = [{', '.join(map(_text, here))}]")
    renamed = {a: c[source.name] for a, c in attributes.items() if c.get(source.name, a) != a}
    if renamed:
        lines.append(f"columns = {{ {', '.join(f'{_key(a)} = {_text(c)}' for a, c in renamed.items())} }}")
    lines.append("private = true")
    if alone:
        lines.append(
            '# no column is called as in another table, so nothing joins it yet: columns = { ATTRIBUTE = "column" }'
        )
    if links := _links(source, keys):
        unique = f"# unique = [{', '.join(map(_text, links[0]))}]"
        # A comma separates the attributes of a bound, so a name that holds one cannot be bounded.
        named = [", ".join(link) for link in links if not any("," in c for c in link)]
        limits = ", ".join(f"{_key(name)} = {_LIMIT}" for name in named)
        lines.append(f"{unique}   # if everybody knows that it is a key of this table")
        lines += [f"# max_degree = {{ {limits} }}   # or how many rows share it at most"] if named else []
    lines += [f"# columns: {', '.join(f'{c} ({t.lower()})' for c, t in source.columns)}", ""]
    return "\n".join(lines)


_CATEGORIES, _EDGES = "the public list of categories", "edges in increasing order, like"
_BINNED, _WHOLE_BINS = "learn = { bins = 8 }", "learn = { bins = 8, whole = true }"
_DOMAINS = (
    (f"{TEXT}|{ODD}", "values", f"{_CATEGORIES}; for numbers, bins or range instead", "learn = true"),
    ("VARCHAR|ENUM", "values", _CATEGORIES, "learn = true"),
    (_WHOLE_TYPES, "bins", f"{_EDGES} [-inf, 0, 10, inf]; or range = [low, high]", _BINNED),
    ("FLOAT|DOUBLE|DECIMAL.*", "bins", f"{_EDGES} [0, 0.5, 10, inf]", _BINNED),
    ("DATE|TIMESTAMP.*", "bins", f"{_EDGES} [2020-01-01, 2021-01-01]", f'part = "date"\n{_BINNED}'),
)
"""By a column's type: which key describes its domain, what to fill in there, and how it is learned."""


def _attribute(
    name: str,
    columns: Columns,
    sources: Sequence[Source],
    *,
    key: bool,
    domain: Sequence[Value],
    declared: str | None,
    wishes: Wishes,
) -> tuple[str, str]:
    """The section of one attribute, and what became of it: key, declared, learned, open or left out."""
    table, column = next(iter(columns.items()))
    kind = next(dict(s.columns)[column] for s in sources if s.name == table)
    head = f"[attributes.{_key(name)}]   # {', '.join(columns)}: {kind.lower()}"
    if domain:
        return f"{head}; declared public and read from it\nvalues = [{', '.join(map(_text, domain))}]\n", "declared"
    if declared is not None and not (key and declared.startswith("bins")):
        return f"{head}; declared in its metadata\n{declared}\n", "declared"
    if key:
        what = "in several tables, so it joins them" if len(columns) > 1 else "names who is protected"
        return f"{head}\nkey = true   # {what}; give it a domain to ask about it\n", "key"
    if kind == "BOOLEAN":
        return f"{head}\nvalues = [false, true]\n", "declared"
    if is_identifier(column):
        return _identifier(name, column, kind, table), "left out"
    if kind.startswith("TIME") and not kind.startswith("TIMESTAMP"):
        return f'{head}\npart = "hour"   # 0 to 23\n', "declared"
    for types, described, hint, learned in _DOMAINS:
        if re.fullmatch(types, kind, re.DOTALL):
            guessed = any(s.sniffed for s in sources if s.name == table)
            if learned == _BINNED and guessed and re.fullmatch(_WHOLE_TYPES, kind):
                learned = _WHOLE_BINS
            if wishes.ask is not None:
                return _asked(head, name, kind, described, learned, wishes)
            if wishes.learn:
                return f"{head}\n{learned}   # or declare it: {described} = [...], {hint}\n", "learned"
            if kind.startswith(("DATE", "TIME")):
                return f'{head}\npart = "month"   # 1 to 12; or bins: {hint}\n', "declared"
            return f'{head}\n{described} = ["{PLACEHOLDER}"]   # fill in: {hint}\n', "open"
    why = "is left out: a domain needs text, numbers, dates or booleans"
    return f"# {name} ({kind.lower()}, in {table}) {why}.\n", "left out"


def _identifier(name: str, column: str, kind: str, table: str) -> str:
    """What is said of a column that is called like an identifier, with a section for those whose is none."""
    said = f"# {name} ({kind.lower()}, in {table}) is left out: it is called like an identifier, and joins nothing."
    learned = next((how for types, _, _, how in _DOMAINS if re.fullmatch(types, kind, re.DOTALL)), None)
    if learned is None or name != column:
        return f"{said}\n"
    section = "\n".join(f"# {line}" for line in (f"[attributes.{_key(name)}]", *learned.splitlines()))
    return f"{said} If it has few values:\n{section}\n"


def _asked(head: str, name: str, kind: str, key: str, learned: str, wishes: Wishes) -> tuple[str, str]:
    """The section of an attribute as the user wants it."""
    assert wishes.ask is not None
    what = "categories" if key == "values" else "edges of bins"
    while True:
        question = f"{name} ({kind.lower()}): public {what} with commas between, {'or learn, ' * wishes.learn}or skip"
        answer = wishes.ask(question, "learn" if wishes.learn else "skip").strip()
        if answer == "learn" and wishes.learn:
            return f"{head}\n{learned}\n", "learned"
        if answer == "skip":
            return f"# {name} ({kind.lower()}) is left out, as you said.\n", "left out"
        parts = [part.strip() for part in answer.split(",")]
        written = ", ".join(map(_text, parts) if key == "values" else parts)
        try:
            tomllib.loads(f"x = [{written}]")
        except tomllib.TOMLDecodeError:
            continue
        return f"{head}\n{key} = [{written}]\n" + ("other = true\n" if key == "values" else ""), "declared"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: Value) -> str:
    # TOML and JSON write text, numbers and booleans alike; DEL is the one control character JSON leaves bare.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _public_domains(sources: Sequence[Source], public: Sequence[str]) -> dict[tuple[str, str], list[Value]]:
    """The values of the columns that the user declares public; the only rows a draft ever reads."""
    domains: dict[tuple[str, str], list[Value]] = {}
    for item in public:
        table, _, column = item.partition(".")
        source = next((s for s in sources if s.name == table), None)
        if source is None or not column:
            hint = suggest(table, [s.name for s in sources])
            raise SpecError(f"--public-domain {item}: must be TABLE.COLUMN with a table given here; {hint}")
        if column not in dict(source.columns):
            hint = suggest(column, [c for c, _ in source.columns])
            raise SpecError(f"--public-domain {item}: table {table!r} has no column {column!r}; {hint}")
        domains[table, column] = _distinct(item, source, column)
    return domains


def _distinct(item: str, source: Source, column: str) -> list[Value]:
    if source.stored is not None:
        raise SpecError(f"--public-domain {item}: values are read from files only; list them in the spec")
    kind = dict(source.columns)[column]
    if not re.fullmatch(f"{TEXT}|{ODD}|VARCHAR|BOOLEAN|ENUM|{_WHOLE_TYPES}", kind, re.DOTALL):
        raise SpecError(f"--public-domain {item}: type {kind} is not text or whole numbers; write bins in the spec")
    with connected() as connection:
        opened = open_source(
            connection, source.name, source.path, table=source.table, columns=[column], encoding=source.encoding
        )
        name = identifier(column)
        rows = connection.execute(
            f"SELECT DISTINCT {name} FROM {opened.view} WHERE {name} IS NOT NULL LIMIT {MAX_VALUES + 1}"
        ).fetchall()
    found: list[Value] = [value for (value,) in rows]
    if not found:
        raise SpecError(f"--public-domain {item}: the column has no values; write the domain in the spec")
    if len(found) > MAX_VALUES:
        raise SpecError(
            f"--public-domain {item}: more than {MAX_VALUES} values; write bins or fewer values in the spec"
        )
    if kind == "BOOLEAN":
        return [False, True]
    if source.sniffed and kind not in (TEXT, ODD):  # what does not look like the others is missing, or other
        found = [v for v in found if WHOLE_TEXT.fullmatch(str(v).strip())]
    if all(WHOLE_TEXT.fullmatch(str(v).strip()) for v in found):
        found = [int(v) for v in found]
    return found
