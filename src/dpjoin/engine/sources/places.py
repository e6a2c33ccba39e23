"""Where sources lie: the files that a path, a pattern, a folder or a list names, and whether two sources share rows.

Which files there are, and how they are called, counts as public, like the names of columns.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from glob import glob as matching
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from dpjoin.engine.dialect import literal
from dpjoin.errors import SourceError
from dpjoin.spec.stored import POSTGRES, SPARK, is_stored, postgres_source

TEXT_FILES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
LINES_FILES = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")
ARROW_FILES = (".arrow", ".feather", ".ipc")
DATABASE_FILES = (".duckdb", ".ddb", ".db", ".sqlite", ".sqlite3")
EXCEL_FILES = (".xlsx",)
WITH_TABLES = (*DATABASE_FILES, *EXCEL_FILES)
"""Files with tables inside."""
_ROWS = (*TEXT_FILES, ".parquet", *LINES_FILES, *ARROW_FILES)
"""Files that are one table, or a part of one."""
KNOWN = (*_ROWS, *WITH_TABLES)
REMOTE = ("http", "https", "s3")
_MARKS = "*?["


def same_source(first: object, second: object) -> bool:
    """Whether two sources share rows: the same object, the same table of one file, or one file in both of several.

    Seen through patterns, folders, links and `~`. Copies of a file are other files.
    """
    (first, first_table), (second, second_table) = split(first, None), split(second, None)
    if is_stored(first) or is_stored(second):
        named = _in_store(first, first_table), _in_store(second, second_table)
        (store, short), (other, long) = sorted(named, key=lambda found: len(found[1]))
        return store == other and f".{long}".endswith(f".{short}")
    if not (is_place(first) and is_place(second)):
        return first is second and first_table == second_table
    ours, theirs = _identities(first), _identities(second)
    shared = {path for key, path in ours.items() if key in theirs}
    one_table = first_table == second_table or None in (first_table, second_table)
    return any(one_table or not has_tables(path) for path in shared)


def is_place(source: object) -> bool:
    """Whether a source says where rows are, and is not the rows."""
    if isinstance(source, list):
        return bool(source) and all(isinstance(p, str | os.PathLike) for p in source)
    return isinstance(source, str | os.PathLike)


def is_spark(source: object) -> bool:
    """Whether a source is Spark's: `spark:TABLE`, `spark:parquet:PATH`, a frame, or a session with a table's name."""
    source, _ = split(source, None)
    named = isinstance(source, str) and source.startswith(SPARK)
    return named or type(source).__module__.startswith("pyspark.sql.")


def missing_place(source: Any) -> str | None:
    """A path or a pattern of a source that stands for nothing; None where there are none such."""
    source, _ = split(source, None)
    for place in source if isinstance(source, list) else [source]:
        path = home(place)
        if is_stored(place):
            continue
        if not is_remote(place) and not os.path.lexists(path) and not (_is_pattern(path) and _matching(path)):
            return str(path)
    return None


def is_remote(path: str | os.PathLike[str]) -> bool:
    return str(path).partition("://")[0].lower() in REMOTE and "://" in str(path)


def beneath(folder: Path, source: str | Sequence[str]) -> Any:
    """A spec's source, from the spec's folder: a path, an address, or a list of them."""
    if not isinstance(source, str):
        return [beneath(folder, s) for s in source]
    return source if is_stored(source) or is_remote(source) else folder / home(source)


def home(path: str | os.PathLike[str]) -> Path:
    """A path whose `~` is spelt out; one of a user whom nobody knows stays as it is."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def files_of(name: str, source: Any) -> list[Path]:
    """The local files that hold a table's rows, in an order that does not depend on the machine."""
    found: list[Path] = []
    for place in source if isinstance(source, list) else [source]:
        if is_remote(place):
            raise SourceError(f"table {name!r}: address {str(place)!r} must stand alone; download it, or name it alone")
        found += _files(name, home(place))
    seen: dict[object, Path] = {}
    for path in found:
        if (key := _identity(path)) in seen:
            raise SourceError(
                f"table {name!r}: file {str(path)!r} is named twice, so one row would count twice; name each file once"
            )
        seen[key] = path
    alone = [path for path in found if has_tables(path)]
    if alone and len(found) > 1:
        raise SourceError(
            f"table {name!r}: file {str(alone[0])!r} has tables inside and cannot be one of several; name it alone"
        )
    return found


def named_files(name: str, source: Any) -> list[Path]:
    """The same, for a record; what is wrong with them is not its concern."""
    try:
        return files_of(name, source)
    except SourceError:
        return [home(place) for place in (source if isinstance(source, list) else [source])]


def _files(name: str, place: Path) -> list[Path]:
    if place.is_dir():
        return _files_in(name, place)
    if _is_pattern(place):
        found = sorted(path for path in _matching(place) if path.is_file())
        if not found:
            raise SourceError(f"table {name!r}: no file matches {str(place)!r}; correct tables.{name}.source")
        return found
    try:
        place.stat()
    except PermissionError:
        raise SourceError(f"table {name!r}: file {str(place)!r}: permission denied; make it readable for you") from None
    except (OSError, ValueError):
        raise SourceError(f"table {name!r}: file {str(place)!r} does not exist; correct tables.{name}.source") from None
    if not place.is_file():
        raise SourceError(f"table {name!r}: {str(place)!r} must be a file or a folder; correct tables.{name}.source")
    return [place]


def _files_in(name: str, folder: Path) -> list[Path]:
    """The files of a folder, all of one kind; hidden ones, and those that begin with `_`, are notes of programs."""
    try:
        inside = sorted(path for path in folder.iterdir() if path.name[0] not in "._")
    except PermissionError:
        raise SourceError(f"table {name!r}: folder {str(folder)!r}: permission denied; make it readable") from None
    found = [path for path in inside if path.is_file() and extension(path) in _ROWS]
    kinds = {extension(path).removesuffix(".gz") for path in found}
    rule = None
    if deeper := next((path.name for path in inside if path.is_dir()), None):
        rule = f"has folders inside ({deeper!r}); name the files by a pattern, like '{folder}/**/*.csv'"
    elif not found:
        rule = f"has no file of a known kind ({', '.join(_ROWS)}); name a file"
    elif len(kinds) > 1:
        rule = f"has files of several kinds ({', '.join(sorted(kinds))}); name those of one by a pattern, like *.csv"
    if rule:
        raise SourceError(f"table {name!r}: folder {str(folder)!r} {rule} in tables.{name}.source")
    return found


def _is_pattern(place: Path) -> bool:
    """Whether a path stands for others; one that is a file itself stands for that."""
    return any(mark in str(place) for mark in _MARKS) and not os.path.exists(place)


def _matching(pattern: Path) -> list[Path]:
    return [Path(found) for found in matching(str(pattern), recursive=True)]


def _identities(source: Any) -> dict[object, Path]:
    """What tells the files of a source from others, without a word about what is wrong with them."""
    found: dict[object, Path] = {}
    for place in source if isinstance(source, list) else [source]:
        if is_remote(place):
            found[public_address(str(place)).casefold()] = Path(str(place))
            continue
        path = home(place)
        if path.is_dir():
            paths = [p for p in path.iterdir() if p.is_file()] if os.access(path, os.R_OK | os.X_OK) else []
        else:
            paths = _matching(path) if _is_pattern(path) else [path]
        found |= {_identity(p): p for p in paths}
    return found


def _identity(path: Path) -> object:
    """The same for all names of a file. Of one that is not there yet, upper and lower case may be one."""
    try:
        about = path.stat()
    except (OSError, ValueError):
        return os.path.abspath(path).casefold()
    return about.st_dev, about.st_ino


def public_address(address: str) -> str:
    """An address without what may be a password or a signature in it."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _in_store(source: Any, table: str | None) -> tuple[object, str]:
    """A store, and what a table is called there, with or without its schema; a file is in none of them."""
    if not is_stored(source):
        return object(), ""
    if not source.startswith(POSTGRES):
        return (SPARK, table), source.removeprefix(SPARK).rstrip("/").lower()
    found = postgres_source(source, table)
    name = found.table or ""
    return (found.server, found.query), name.replace('"', "") if '"' in name else name.lower()


def has_tables(path: Path) -> bool:
    """Whether a file has tables inside, as databases have; of other files the name of one is not looked at."""
    return extension(path) in WITH_TABLES


def has_no_tables(path: Path) -> bool:
    """Whether a file is of a kind that has no tables inside; neither this nor the other if its kind is not known."""
    return extension(path) in KNOWN and not has_tables(path)


def is_endless(path: Path) -> bool:
    """Whether a file names its columns in its rows only."""
    return extension(path) in LINES_FILES


def split(source: object, table: str | None) -> tuple[Any, str | None]:
    if isinstance(source, tuple) and len(source) == 2:
        return source[0], source[1]
    return source, table


def extension(path: Path) -> str:
    suffixes = [s.lower() for s in path.suffixes]
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def glob(path: Path) -> str:
    """The path as a literal that stands for this one file, whatever characters its name has."""
    return literal("".join(f"[{c}]" if c in _MARKS else c for c in str(path)))
