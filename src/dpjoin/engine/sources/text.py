"""CSV and its like: every value is text, and every line is read by itself.

How bytes stand for text is decided by a mark at the beginning of the file, by what the spec says, or by nobody (then
it is UTF-8): never by the bytes of rows. What cannot be decoded in a file whose encoding is named becomes U+FFFD; where
none is named, a row that is not UTF-8 is left out. Neither raises, and neither touches other rows.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from dpjoin.engine.dialect import literal
from dpjoin.engine.sources.connections import remove_later
from dpjoin.engine.sources.opened import OpenedTable, Opening, check_names, unreadable
from dpjoin.engine.sources.places import TEXT_FILES, extension, glob
from dpjoin.engine.spill import private_folder
from dpjoin.errors import SourceError

LONGEST_LINE = 16 * 2**20
_BYTES_AT_ONCE = 2**20
_LOOKED_AT = 2**26
_BYTE_ORDER_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def open_csv(opening: Opening, origin: str, path: Path, encoding: str | None) -> OpenedTable:
    """Everything about the layout is fixed by the header line; no row can change how the file is read."""
    name = opening.name
    with unreadable(name, origin, "CSV"), _bytes_of(path) as file:
        encoding = _marked(file) or encoding
        header = _header(file, encoding)
    if header is None:
        raise SourceError(
            f"table {name!r}: {origin} begins with what is not UTF-8; it looks like {_looks(path)}: "
            f'add encoding = "{_looks(path)}" to [tables.{name}], or save it as UTF-8'
        )
    names, delimiter = _layout(name, origin, header, tabs=".tsv" in extension(path))
    if opening.columns is not None and not opening.columns and encoding:
        rows = f"(SELECT {', '.join(f'CAST(NULL AS VARCHAR) AS {_quoted(n)}' for n in names)} LIMIT 0)"
        return opening.viewed(origin, rows, untyped=True)
    with unreadable(name, origin, "CSV"):
        place = glob(path if encoding in (None, "utf-8-sig") else _as_utf8(opening.connection, path, encoding))
        return opening.viewed(origin, csv_rows(place, names, delimiter), untyped=True)


def csv_rows(place: str, names: list[str], delimiter: str) -> str:
    """SQL that reads a CSV file whose layout is known."""
    columns = ", ".join(f"{literal(n)}: 'VARCHAR'" for n in names)
    # The parallel reader raises on quoted line breaks when rows may be short, so it is off.
    return (
        f"read_csv({place}, columns = {{{columns}}}, "
        f"auto_detect = false, header = true, delim = {literal(delimiter)}, quote = '\"', escape = '\"', "
        f"nullstr = '', all_varchar = true, ignore_errors = true, null_padding = true, "
        f"strict_mode = false, parallel = false, max_line_size = {LONGEST_LINE})"
    )


def line_rows(place: str) -> str:
    """SQL that reads each line of a text file as one value, called line."""
    return (
        f"read_csv({place}, columns = {{'line': 'VARCHAR'}}, auto_detect = false, header = false, delim = '\x1f', "
        f"quote = '', escape = '', ignore_errors = true, null_padding = true, strict_mode = false, "
        f"parallel = false, max_line_size = {LONGEST_LINE})"
    )


def _layout(name: str, origin: str, header: str, *, tabs: bool) -> tuple[list[str], str]:
    """The names of the columns, and what stands between them."""
    unquoted = re.sub(r'"[^"]*"', "", header)
    delimiter = "\t" if tabs else max(",;\t|", key=unquoted.count)
    try:
        names = next(csv.reader([header], delimiter=delimiter), [])
    except csv.Error:
        names = []
    if not names:
        raise SourceError(f"table {name!r}: {origin} has no header; write the column names in its first line")
    check_names(name, origin, names, named=True)
    return names, delimiter


def remote_csv(opening: Opening, origin: str, address: str, *, tabs: bool) -> OpenedTable:
    """A CSV file elsewhere, which DuckDB reads; its first line is fetched for the names."""
    with unreadable(opening.name, origin, "CSV"):
        found = opening.connection.execute(f"SELECT line FROM {line_rows(literal(address))} LIMIT 1").fetchone()
    names, delimiter = _layout(opening.name, origin, (found or ("",))[0] or "", tabs=tabs)
    with unreadable(opening.name, origin, "CSV"):
        return opening.viewed(origin, csv_rows(literal(address), names, delimiter), untyped=True)


def looks_like(path: Path) -> str | None:
    """The encoding that a text file seems to have, if a spec has to name it. Looks at rows: for their owner's eyes."""
    if extension(path) not in TEXT_FILES:
        return None
    with suppress(OSError, EOFError), _bytes_of(path) as file:
        if _marked(file):
            return None
        decoder, read = codecs.getincrementaldecoder("utf-8")(), 0
        while read < _LOOKED_AT and (chunk := file.read(_BYTES_AT_ONCE)):
            read += len(chunk)
            if b"\0" in chunk:
                return _looks(path)
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError:
                return _looks(path)
    return None


def _looks(path: Path) -> str:
    """Which encoding the beginning of a file that is not UTF-8 looks like."""
    with suppress(OSError, EOFError), _bytes_of(path) as file:
        begin = file.read(4096)
        if begin.count(b"\0") > len(begin) // 4:
            return "utf-16-le" if begin[1::2].count(b"\0") > begin[::2].count(b"\0") else "utf-16-be"
    return "windows-1252"


def _bytes_of(path: Path) -> IO[bytes]:
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    file: IO[bytes] = opener(path, "rb")
    return file


def _marked(file: IO[bytes]) -> str | None:
    """The encoding that a mark at the beginning of a file tells; the file is read from its beginning again."""
    begin = file.read(3)
    file.seek(0)
    return next((encoding for mark, encoding in _BYTE_ORDER_MARKS if begin.startswith(mark)), None)


def _header(file: IO[bytes], encoding: str | None) -> str | None:
    """The first line; None where it is no text in UTF-8 and nobody named another encoding.

    Only it is decoded: a reader of text would decode rows as well, and could fail on one. It ends where lines end for
    DuckDB, at a carriage return, too: in a file of old, rows would be part of it otherwise.
    """
    if encoding is None:
        line = file.readline(LONGEST_LINE).partition(b"\r")[0]
        try:
            return None if b"\0" in line else line.decode("utf-8")
        except UnicodeDecodeError:
            return None
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    text = ""
    while len(text) < LONGEST_LINE and not ("\n" in text or "\r" in text) and (chunk := file.read(4096)):
        text += decoder.decode(chunk)
    return text.partition("\n")[0].partition("\r")[0]


def _as_utf8(connection: Any, path: Path, encoding: str) -> Path:
    """A copy in UTF-8, where DuckDB may spill and for as long as the connection lasts."""
    handle, made = tempfile.mkstemp(suffix=".csv", dir=private_folder())
    remove_later(connection, Path(made))
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    with os.fdopen(handle, "wb") as out, _bytes_of(path) as file:
        while chunk := file.read(_BYTES_AT_ONCE):
            out.write(decoder.decode(chunk).encode("utf-8", "replace"))
        out.write(decoder.decode(b"", True).encode("utf-8", "replace"))
    return Path(made)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
