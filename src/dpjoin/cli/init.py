"""A commented first spec from the tables' column names and types, and never from their values unless told so."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from dpjoin.engine.encode import identifier
from dpjoin.engine.sources import DATABASE_FILES, column_names, connected, open_source
from dpjoin.errors import SourceError, SpecError, suggest
from dpjoin.spec.plain import PLACEHOLDER
from dpjoin.spec.schema import Value

MAX_VALUES = 1000
"""A public domain with more values than this is refused: the release would hardly fit in memory."""
_LIMIT = 100
"""An example of a bound on degrees, whatever the tables hold."""
_INTEGERS = "U?(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT)"


@dataclass(frozen=True)
class Source:
    """One table to draft for: its name in the spec, its file, and its column names and types."""

    name: str
    path: Path
    table: str | None
    columns: tuple[tuple[str, str], ...]


def read_source(argument: str) -> Source:
    """A table from the command line: a file, or FILE:TABLE for a database file."""
    path, table = Path(argument), None
    if not path.exists():
        before, _, after = argument.rpartition(":")
        if after and Path(before).suffix in DATABASE_FILES:
            path, table = Path(before), after
    if path.is_dir():
        raise SourceError(f"{path}: a table must be one file, and this is a folder; name the file in it")
    if not path.is_file():
        raise SourceError(f"{path}: the file does not exist; correct the path")
    try:
        columns = tuple(column_names(path, table))
    except SourceError as error:
        if path.suffix in DATABASE_FILES and table is None:
            has = re.search(r"\(it has: .*\)$", str(error))
            raise SourceError(
                f"{path}: name the table inside the database, as in {path}:TABLE{f' {has[0]}' if has else ''}"
            ) from None
        raise SourceError(f"{path}: {error}") from None
    return Source(table or path.name.partition(".")[0], path, table, columns)


def draft(sources: Sequence[Source], *, folder: Path, public: Sequence[str] = ()) -> str:
    """The text of a first spec that lives in `folder`. `public` lists TABLE.COLUMN whose set of values is public."""
    names = [s.name for s in sources]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise SpecError(f"two tables are called {name!r}; rename one of the files")
    domains = _public_domains(sources, public)
    kinds = {c: kind for s in reversed(sources) for c, kind in s.columns}
    holders = {c: [s.name for s in sources if c in dict(s.columns)] for s in sources for c, _ in s.columns}
    shared = any(len(found) > 1 for found in holders.values())
    tables = [_table(s, folder, _links(s, sources), shared=shared) for s in sources]
    described = [_attribute(c, kinds[c], found, domains.get(c)) for c, found in holders.items()]
    unjoined = "" if shared or len(sources) == 1 else _NOTHING_SHARED
    asked = sum(askable for _, askable in described)
    template = (files("dpjoin") / "data" / "first_spec.toml").read_text(encoding="utf-8")
    written = {
        "tables": "\n".join(tables),
        "attributes": "\n".join([unjoined] * bool(unjoined) + [text for text, _ in described]),
        "ways": str(min(2, max(1, asked))),
    }
    return re.sub(r"\{(tables|attributes|ways)\}", lambda place: written[place[1]], template)


_NOTHING_SHARED = """\
# No column name occurs in two tables, so nothing joins them yet: give a shared attribute one name with `columns`.
"""


def _links(source: Source, sources: Sequence[Source]) -> list[tuple[str, ...]]:
    """The columns that a table shares with each other one: likely keys, single columns first, and first ones first."""
    own = [c for c, _ in source.columns]
    shared = [tuple(c for c in own if c in dict(s.columns)) for s in sources if s is not source]
    return sorted((link for link in dict.fromkeys(shared) if link), key=lambda link: (len(link), own.index(link[0])))


def _table(source: Source, folder: Path, links: Sequence[tuple[str, ...]], *, shared: bool) -> str:
    relative = Path(os.path.relpath(source.path.resolve(), folder.resolve())).as_posix()
    lines = [f"[tables.{_key(source.name)}]", f"source = {_text(relative)}"]
    lines += [f"table = {_text(source.table)}"] if source.table else []
    lines.append("private = true")
    if shared and not links:
        lines.append(
            '# no column is called as in another table, so nothing joins it yet: columns = { ATTRIBUTE = "column" }'
        )
    if links:
        unique = f"# unique = [{', '.join(map(_text, links[0]))}]"
        # A comma separates the attributes of a bound, so a name that holds one cannot be bounded.
        named = [", ".join(link) for link in links if not any("," in c for c in link)]
        limits = ", ".join(f"{_key(name)} = {_LIMIT}" for name in named)
        lines.append(f"{unique}   # if everybody knows that it is a key of this table")
        lines += [f"# max_degree = {{ {limits} }}   # or how many rows share it at most"] if named else []
    lines += [f"# columns: {', '.join(f'{c} ({t.lower()})' for c, t in source.columns)}", ""]
    return "\n".join(lines)


_CATEGORIES, _EDGES = "the public list of categories", "edges in increasing order, like"
_DOMAINS = (
    ("text", "values", f"{_CATEGORIES}; for numbers, bins or range instead"),
    ("VARCHAR|ENUM.*", "values", _CATEGORIES),
    (_INTEGERS, "bins", f"{_EDGES} [-inf, 0, 10, inf]; or range = [low, high]"),
    ("FLOAT|DOUBLE|DECIMAL.*", "bins", f"{_EDGES} [0, 0.5, 10, inf]"),
)
"""By a column's type: which key describes its domain, and what to fill in there."""


def _attribute(column: str, kind: str, holders: list[str], domain: list[Value] | None) -> tuple[str, bool]:
    """The section of one attribute, and whether queries can look at it."""
    head = f"[attributes.{_key(column)}]   # {', '.join(holders)}: {kind.lower()}"
    if domain is not None:
        return f"{head}; declared public and read from it\nvalues = [{', '.join(map(_text, domain))}]\n", True
    if len(holders) > 1:
        return f"{head}\nkey = true   # in several tables, so it joins them; give it a domain to ask about it\n", False
    if kind == "BOOLEAN":
        return f"{head}\nvalues = [false, true]\n", True
    for types, key, hint in _DOMAINS:
        if re.fullmatch(types, kind, re.DOTALL):
            return f'{head}\n{key} = ["{PLACEHOLDER}"]   # fill in: {hint}\n', True
    dated = kind.startswith(("DATE", "TIME"))
    instead = "; a view in a DuckDB file can have year(…) or hour(…) of it" if dated else ""
    why = f"is left out: a domain needs text, numbers or booleans{instead}"
    return f"# {column} ({kind.lower()}, in {holders[0]}) {why}.\n", False


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _text(name)


def _text(value: Value) -> str:
    # TOML and JSON write text, numbers and booleans alike; DEL is the one control character JSON leaves bare.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _public_domains(sources: Sequence[Source], public: Sequence[str]) -> dict[str, list[Value]]:
    """The values of the columns that the user declares public; the only rows a draft ever reads."""
    domains: dict[str, list[Value]] = {}
    for item in public:
        table, _, column = item.partition(".")
        source = next((s for s in sources if s.name == table), None)
        if source is None or not column:
            hint = suggest(table, [s.name for s in sources])
            raise SpecError(f"--public-domain {item}: must be TABLE.COLUMN with a table given here; {hint}")
        if column not in dict(source.columns):
            hint = suggest(column, [c for c, _ in source.columns])
            raise SpecError(f"--public-domain {item}: table {table!r} has no column {column!r}; {hint}")
        values = _distinct(item, source, column)
        domains[column] = sorted({*domains.get(column, []), *values})
    return domains


def _distinct(item: str, source: Source, column: str) -> list[Value]:
    kind = dict(source.columns)[column]
    if not re.fullmatch(f"text|VARCHAR|BOOLEAN|ENUM.*|{_INTEGERS}", kind, re.DOTALL):
        raise SpecError(f"--public-domain {item}: type {kind} is not text or whole numbers; write bins in the spec")
    with connected() as connection:
        opened = open_source(connection, source.name, source.path, table=source.table, columns=[column])
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
    if kind == "text" and all(re.fullmatch(r"-?(0|[1-9]\d{0,8})", str(v)) for v in found):
        found = [int(v) for v in found]
    return found
