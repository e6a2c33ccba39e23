"""Opening a table's source as a DuckDB view: files, databases and Python objects.

A source is opened without looking at its values. Where a format carries no types (CSV, SQLite, Python
objects) every value arrives as text and numbers are read from it one by one, so that no row can
change how another row is read. Messages name tables, files and columns, and never repeat what the
underlying reader says, because that may quote private rows.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import duckdb
import pyarrow as pa

from dpjoin.engine.encode import Column, identifier, literal, taken
from dpjoin.engine.spill import remove_left_behind, spill_folder
from dpjoin.errors import SourceError, suggest
from dpjoin.spec.schema import Attribute, Schema, Table

TEXT_FILES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
ARROW_FILES = (".arrow", ".feather", ".ipc")
DATABASE_FILES = (".duckdb", ".ddb", ".db", ".sqlite", ".sqlite3")
_KNOWN = (*TEXT_FILES, ".parquet", *ARROW_FILES, *DATABASE_FILES)
_BATCH = 65_536
_LONGEST_LINE = 16 * 2**20
_PER_UNIT = {"s": 10**6, "ms": 10**3}
"""Microseconds in the units of Arrow that are coarser."""
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())


@dataclass(frozen=True)
class OpenedTable:
    """A source as a view of one DuckDB connection."""

    name: str
    view: str
    """The view, quoted for SQL."""
    columns: tuple[Column, ...]
    origin: str
    """How messages call the source."""
    countable: bool
    """Whether counting the rows costs next to nothing."""

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        names = [c.name for c in self.columns]
        raise SourceError(
            f"table {self.name!r}: {self.origin} has no column {name!r}; {suggest(name, names)} "
            f"(it has: {', '.join(names)})"
        )


@cache
def _database() -> Any:
    """The DuckDB of this process (starting one takes as long as reading a million rows).

    It fetches nothing from elsewhere. When memory is short it spills to a folder that only this user can read.
    """
    remove_left_behind()
    spill = spill_folder()
    config = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
        "temp_directory": spill,
    }
    return duckdb.connect(":memory:", config=config)


_lock = Lock()
_attached: dict[int, list[str]] = {}
"""Which database files each open connection has attached."""


def connect() -> Any:
    """A connection of its own: what it opens, no other sees. End it with `disconnect`."""
    try:
        return _connection()
    except duckdb.Error:
        # After an internal error DuckDB refuses all further work: one release must not end the next one.
        _database.cache_clear()
        return _connection()


def _connection() -> Any:
    connection = _database().cursor()
    connection.execute("SET enable_progress_bar = false")
    return connection


def disconnect(connection: Any) -> None:
    """Close a connection, and let go of database files that no other one uses."""
    connection.close()
    with _lock:
        mine = _attached.pop(id(connection), [])
        others = {alias for aliases in _attached.values() for alias in aliases}
        for alias in set(mine) - others:
            with suppress(duckdb.Error):  # one that is broken says so, and may quote the row that broke it
                _database().execute(f"DETACH DATABASE IF EXISTS {alias}")


@contextmanager
def connected() -> Iterator[Any]:
    """A connection for as long as the block lasts."""
    connection = connect()
    try:
        yield connection
    finally:
        disconnect(connection)


def open_source(
    connection: Any, name: str, source: object, *, table: str | None = None, columns: Sequence[str] | None = None
) -> OpenedTable:
    """Open a table's source; only `columns` are converted where the format needs converting."""
    source, table = _split(source, table)
    opening = _Opening(connection, name, columns)
    if not isinstance(source, str | os.PathLike):
        origin = f"the {type(source).__module__.partition('.')[0]} {type(source).__name__}"
        with unreadable(name, origin, "tabular"):
            return opening.registered(origin, *_to_arrow(source, columns))
    path = Path(source)
    origin, extension = f"file {str(path)!r}", _extension(path)
    if path.is_dir():
        raise SourceError(
            f"table {name!r}: {str(path)!r} is a folder and must be one file ({', '.join(_KNOWN)}); "
            f"name the file in tables.{name}.source"
        )
    if not path.is_file():
        raise SourceError(f"table {name!r}: {origin} does not exist; correct tables.{name}.source")
    if extension in TEXT_FILES:
        return _open_csv(opening, origin, path)
    if extension == ".parquet":
        with unreadable(name, origin, "Parquet"):
            return opening.viewed(origin, f"read_parquet({_glob(path)})")
    if extension in ARROW_FILES:
        with unreadable(name, origin, "Arrow"):
            return opening.registered(origin, _read_arrow(path))
    if extension in DATABASE_FILES:
        with open(path, "rb") as file:
            is_sqlite = file.read(16).startswith(b"SQLite format 3")
        return (_open_sqlite if is_sqlite else _open_duckdb)(opening, f"database {str(path)!r}", path, table)
    raise SourceError(
        f"table {name!r}: {origin} has an unknown extension {extension!r}; use one of {', '.join(_KNOWN)}"
    )


@dataclass(frozen=True)
class _Opening:
    """A table that becomes a view of a connection, and which of its columns are read: None stands for all."""

    connection: Any
    name: str
    columns: Sequence[str] | None

    @property
    def view(self) -> str:
        return identifier(f"source {self.name}")

    def viewed(self, origin: str, rows: str, *, untyped: bool = False, countable: bool = True) -> OpenedTable:
        """What SQL calls the rows, as the view."""
        self.connection.execute(f"CREATE TEMP VIEW {self.view} AS SELECT * FROM {rows}")
        return self._described(origin, lambda _: untyped, countable)

    def registered(self, origin: str, table: Any, untyped: Collection[str] = ()) -> OpenedTable:
        """An Arrow table as the view; what DuckDB would fail on is made fit before."""
        names = list(table.column_names)
        folded = [n.lower() for n in names]
        if len(set(folded)) != len(folded):
            twice = next(n for i, n in enumerate(names) if n.lower() in folded[:i])
            raise SourceError(
                f"table {self.name!r}: {origin} has two columns named {twice!r} (case aside); rename one of them"
            )
        for i, column in enumerate(names):
            if self.columns is None or column in self.columns:
                kind = table.schema.field(i).type
                kind = kind.value_type if pa.types.is_dictionary(kind) else kind
                if _is_coarse(kind):
                    table = table.set_column(i, column, _in_microseconds(table.column(i).cast(kind)))
                elif kind in _TEXTS and not _is_unicode(table.column(i)):
                    texts = map(_text, table.column(i).cast(kind).cast(pa.large_binary()).to_pylist())
                    table = table.set_column(i, column, pa.array(texts, pa.large_string()))
        self.connection.register(f"source {self.name}", table)
        return self._described(origin, untyped.__contains__, countable=True)

    def _described(self, origin: str, is_untyped: Callable[[str], bool], countable: bool) -> OpenedTable:
        columns = []
        for column, kind, *_ in self.connection.execute(f"DESCRIBE {self.view}").fetchall():
            untyped = is_untyped(column) or kind.strip('"') == "NULL"
            columns.append(Column(column, kind.strip('"').upper() if "(" not in kind else kind, untyped=untyped))
        return OpenedTable(self.name, self.view, tuple(columns), origin, countable)


def column_names(source: object, table: str | None = None) -> list[tuple[str, str]]:
    """Names and types of a source's columns, and nothing of its rows; untyped columns are 'text'."""
    source, table = _split(source, table)
    name = _name_of(source, table)
    with connected() as connection:
        opened = open_source(connection, name, source, table=table, columns=())
        return [(c.name, "text" if c.untyped else c.type) for c in opened.columns]


def same_source(first: object, second: object) -> bool:
    """Whether two sources hold the same rows: the same object, or the same table of the same file."""
    (first, first_table), (second, second_table) = _split(first, None), _split(second, None)
    if isinstance(first, str | os.PathLike) and isinstance(second, str | os.PathLike):
        a, b = Path(first), Path(second)
        same_file = a.resolve() == b.resolve() or (a.exists() and b.exists() and a.samefile(b))
        return same_file and (first_table == second_table or not (has_tables(a) and has_tables(b)))
    return first is second


def has_tables(path: Path) -> bool:
    """Whether a file has tables inside, as databases have; of other files the name of one is not looked at."""
    return _extension(path) in DATABASE_FILES


def has_no_tables(path: Path) -> bool:
    """Whether a file is of a kind that has no tables inside; neither this nor the other if its kind is not known."""
    return _extension(path) in _KNOWN and not has_tables(path)


def check_columns(schema: Schema, opened: Mapping[str, OpenedTable]) -> None:
    """Refuse columns that are missing, of another kind than their attribute, or not comparable."""
    attributes = {a.name: a for a in schema.attributes}
    for _, _, error in column_problems(schema.tables, attributes, schema.compared_attributes, opened):
        raise error


def column_problems(
    tables: Sequence[Table],
    attributes: Mapping[str, Attribute],
    compared: Collection[str],
    opened: Mapping[str, OpenedTable],
) -> Iterator[tuple[str, str, SourceError]]:
    """What is wrong with the columns of opened tables: the table, the attribute and what to say."""
    holders: dict[str, list[tuple[str, Column]]] = {}
    for table in tables:
        for attribute in (attributes[name] for name in table.attributes if name in attributes):
            try:
                column = opened[table.name].column(table.column(attribute.name))
                _check_column(table, opened[table.name], column, attribute, attribute.name in compared)
            except SourceError as error:
                yield table.name, attribute.name, error
            else:
                holders.setdefault(attribute.name, []).append((table.name, taken(attribute, column)))
    for name in compared:
        for (t1, c1), (t2, c2) in itertools.combinations(holders.get(name, ()), 2):
            if not _comparable(c1, c2):
                said = (
                    f"attribute {name!r} joins column {c1.name!r} of table {t1!r} (type {c1.type}) with "
                    f"column {c2.name!r} of table {t2!r} (type {c2.type}), which cannot be compared; "
                    "convert one of them"
                )
                yield t2, name, SourceError(said)


def _check_column(table: Table, opened: OpenedTable, column: Column, attribute: Attribute, joins: bool) -> None:
    if attribute.part is not None:
        _check_part(opened, column, attribute)
    elif not attribute.key:
        _check_type(opened, column, attribute)
    elif column.kind == "nested" and (joins or any(attribute.name in bound.attributes for bound in table.bounds)):
        use = "tables cannot join on" if joins else "degrees cannot be bounded by"
        raise SourceError(
            f"table {table.name!r}: column {column.name!r} has type {column.type}, which {use}; "
            "use a column of plain values"
        )


def _check_part(opened: OpenedTable, column: Column, attribute: Attribute) -> None:
    clock = column.type in {"TIME", "TIME_NS"} and attribute.part == "hour"
    if column.kind not in {"time", "text", "untyped"} and not clock:
        raise SourceError(
            f"table {opened.name!r}: column {column.name!r} has type {column.type}, but attribute {attribute.name!r} "
            f"takes the {attribute.part} of dates or times; convert the column or remove part"
        )


def _check_type(opened: OpenedTable, column: Column, attribute: Attribute) -> None:
    if column.kind == "untyped":
        return
    wants_text = attribute.values is not None and isinstance(attribute.values[0], str)
    fits = {"text"} if wants_text else {"integer", "float", "boolean"}
    if column.kind not in fits:
        wanted = "text" if wants_text else "whole numbers" if attribute.bins is None else "numbers"
        if attribute.values is not None and isinstance(attribute.values[0], bool):
            wanted = "booleans"
        change = "convert the column or change the attribute"
        if column.kind == "time":
            change = "add part (year, month, weekday, hour or date), or use bins of dates"
        raise SourceError(
            f"table {opened.name!r}: column {column.name!r} has type {column.type}, but attribute "
            f"{attribute.name!r} is declared with {wanted}; {change}"
        )


def _comparable(first: Column, second: Column) -> bool:
    if "untyped" in (first.kind, second.kind):
        return True
    numbers = {"integer", "float", "boolean"}
    if first.kind in numbers and second.kind in numbers:
        return True
    if first.kind == second.kind == "time":
        # A date compares with a local time; a time with a zone compares only with its like.
        return ("ZONE" in first.type) == ("ZONE" in second.type)
    return first.kind == second.kind and (first.kind == "text" or first.type == second.type)


@contextmanager
def unreadable(name: str, origin: str, what: str) -> Iterator[None]:
    """Turn whatever a reader raises into one line that repeats nothing of it."""
    try:
        yield
    except SourceError:
        raise
    except Exception:
        raise SourceError(
            f"table {name!r}: {origin} cannot be read as {what} data; check that it is complete and not in use"
        ) from None


def _split(source: object, table: str | None) -> tuple[Any, str | None]:
    if isinstance(source, tuple) and len(source) == 2:
        return source[0], source[1]
    return source, table


def _name_of(source: object, table: str | None) -> str:
    if table is not None:
        return table
    return Path(source).name.partition(".")[0] if isinstance(source, str | os.PathLike) else "table"


def _extension(path: Path) -> str:
    suffixes = [s.lower() for s in path.suffixes]
    return "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])


def _glob(path: Path) -> str:
    """The path as a literal that stands for this one file, whatever characters its name has."""
    return literal("".join(f"[{c}]" if c in "*?[" else c for c in str(path)))


def _is_coarse(kind: Any) -> bool:
    """Whether DuckDB turns values of an Arrow type into microseconds as it scans, and stops where one is too large."""
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return (zoned or pa.types.is_duration(kind)) and kind.unit in _PER_UNIT


def _in_microseconds(column: Any) -> Any:
    """Times with a zone, or durations, in microseconds; what these cannot hold is missing."""
    import pyarrow.compute as pc  # takes as long to import as the rest of pyarrow

    kind, number = column.type, column.cast(pa.int64())
    most = (2**63 - 1) // _PER_UNIT[kind.unit]
    fits = pc.and_(pc.less_equal(number, most), pc.greater_equal(number, -most))
    fine = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else pa.duration("us")
    return pc.if_else(fits, column, None).cast(fine)


def _is_unicode(column: Any) -> bool:
    """Whether all of a column's texts are UTF-8: Arrow does not see to it, and Python cannot read others."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _open_csv(opening: _Opening, origin: str, path: Path) -> OpenedTable:
    """Everything about the layout is fixed by the header line; no row can change how the file is read."""
    name = opening.name
    opener: Callable[..., Any] = gzip.open if path.suffix.lower() == ".gz" else open
    with unreadable(name, origin, "CSV"), opener(path, "rb") as lines:
        # Bytes, and one line of them: a text reader would decode rows as well, and could fail on one.
        header = lines.readline(_LONGEST_LINE).decode("utf-8-sig", "replace")
        delimiter = "\t" if ".tsv" in _extension(path) else next((d for d in ",;\t|" if d in header), ",")
        names = next(csv.reader([header], delimiter=delimiter), [])
    if not names:
        raise SourceError(f"table {name!r}: {origin} has no header; write the column names in its first line")
    folded = [n.lower() for n in names]
    if len(set(folded)) != len(folded) or "" in names:
        raise SourceError(f"table {name!r}: {origin} must name every column once in its first line (case aside)")
    columns = ", ".join(f"{literal(n)}: 'VARCHAR'" for n in names)
    # The parallel reader raises on quoted line breaks when rows may be short, so it is off.
    with unreadable(name, origin, "CSV"):
        rows = (
            f"read_csv({_glob(path)}, columns = {{{columns}}}, "
            f"auto_detect = false, header = true, delim = {literal(delimiter)}, quote = '\"', escape = '\"', "
            f"nullstr = '', all_varchar = true, ignore_errors = true, null_padding = true, "
            f"strict_mode = false, parallel = false, max_line_size = {_LONGEST_LINE})"
        )
        return opening.viewed(origin, rows, untyped=True, countable=False)


def _read_arrow(path: Path) -> Any:
    import pyarrow.feather
    import pyarrow.ipc

    try:
        return pyarrow.feather.read_table(str(path), memory_map=True)
    except (pa.ArrowInvalid, OSError):
        with pa.memory_map(str(path)) as file:
            return pyarrow.ipc.open_stream(file).read_all()


def _open_duckdb(opening: _Opening, origin: str, path: Path, table: str | None) -> OpenedTable:
    connection, catalog = opening.connection, f"file {path.resolve()}"
    alias = identifier(catalog)
    with unreadable(opening.name, origin, "DuckDB or SQLite"):
        # Several tables may lie in one file, which can be attached once only.
        with _lock:
            connection.execute(f"ATTACH IF NOT EXISTS {literal(str(path))} AS {alias} (READ_ONLY)")
            _attached.setdefault(id(connection), []).append(alias)
        found = connection.execute(
            "SELECT table_schema, table_name, table_type FROM information_schema.tables WHERE table_catalog = ?",
            [catalog],
        ).fetchall()
    known = {t if s == "main" else f"{s}.{t}": (s, t, kind) for s, t, kind in found}
    schema_name, table_name, kind = known[_table_of(opening.name, origin, table, list(known))]
    with unreadable(opening.name, origin, "DuckDB"):
        rows = f"{alias}.{identifier(schema_name)}.{identifier(table_name)}"
        return opening.viewed(origin, rows, countable=kind == "BASE TABLE")


def _open_sqlite(opening: _Opening, origin: str, path: Path, table: str | None) -> OpenedTable:
    """SQLite gives every cell its own type, so all of them are read as text."""
    with (
        unreadable(opening.name, origin, "SQLite"),
        closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database,
    ):
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        found = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        inner = identifier(_table_of(opening.name, origin, table, [n for (n,) in found]))
        names = [d[0] for d in database.execute(f"SELECT * FROM {inner} LIMIT 0").description]
        empty = pa.table({n: pa.array([], pa.string()) for n in names})
        read = _wanted(names, opening.columns)
        rows = database.execute(f"SELECT {', '.join(map(identifier, read)) or '1'} FROM {inner}")
        parts = [empty.select(read)]
        while read and (batch := rows.fetchmany(_BATCH)):
            texts = [pa.array(map(_text, values), pa.string()) for values in zip(*batch, strict=True)]
            parts.append(pa.table(texts, names=read))
        return opening.registered(origin, _with_all(pa.concat_tables(parts), empty), names)


def _table_of(name: str, origin: str, table: str | None, known: Sequence[str]) -> str:
    if table is None:
        raise SourceError(
            f"table {name!r}: {origin} holds several tables; name one in tables.{name}.table "
            f"(it has: {', '.join(sorted(known)) or 'none'})"
        )
    if table not in known:
        raise SourceError(f"table {name!r}: {origin} has no table {table!r}; {suggest(table, known)}")
    return table


def _text(value: object) -> str | None:
    """A value of any Python type as text; None when it has no text. Never raises."""
    if value is None:
        return None
    try:
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    except Exception:
        return None
    return text.encode("utf-8", "replace").decode("utf-8")


def _to_arrow(source: Any, columns: Sequence[str] | None) -> tuple[Any, Collection[str]]:
    """An Arrow table of the source and its untyped columns; columns that nobody reads may be left empty."""
    module, kind = type(source).__module__.partition(".")[0], type(source).__name__
    if isinstance(source, pa.Table):
        return source, ()
    if module == "pandas" and kind == "DataFrame":
        return _from_pandas(source, columns)
    if module == "polars" and kind == "LazyFrame":
        empty = source.head(0).collect().to_arrow()
        return _with_all(source.select(_wanted(empty.column_names, columns)).collect().to_arrow(), empty), ()
    if module in {"duckdb", "_duckdb"} and hasattr(source, "to_arrow_table"):
        empty = source.limit(0).to_arrow_table()
        wanted = [duckdb.ColumnExpression(n) for n in _wanted(empty.column_names, columns)]
        return _with_all(source.select(*wanted).to_arrow_table(), empty) if wanted else empty, ()
    if hasattr(source, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(source).read_all(), ()
    raise SourceError(
        f"a table cannot be read from a {kind}; pass a path, a (path, table) pair, "
        "or a pandas, Polars, Arrow or DuckDB table"
    )


def _wanted(names: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    return [n for n in names if columns is None or n in columns]


def _with_all(read: Any, empty: Any) -> Any:
    """Put back the columns that were not read, without values, so that names and types stay complete."""
    if read.num_columns == 0:
        return empty
    present = set(read.column_names)
    columns = [read[f.name] if f.name in present else pa.nulls(read.num_rows, f.type) for f in empty.schema]
    return pa.table(columns, names=empty.column_names)


def _from_pandas(frame: Any, columns: Sequence[str] | None) -> tuple[Any, Collection[str]]:
    names, arrays, untyped = [], [], set()
    for i, label in enumerate(frame.columns):
        name = str(label)
        series = frame.iloc[:, i]
        names.append(name)
        skipped = columns is not None and name not in columns
        array = None
        if not _holds_objects(series.dtype):
            try:
                array = pa.array(series.iloc[:0] if skipped else series, from_pandas=True)
            except UnicodeEncodeError:
                array = _texts_of(series)  # half a surrogate in one text: the column is one of text all the same
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError):
                array = None  # a pandas type that Arrow does not know: read it as text
        if array is None:
            untyped.add(name)
            array = _texts_of(series.iloc[:0] if skipped else series)
        arrays.append(pa.nulls(len(frame), array.type) if skipped else array)
    return pa.table(arrays, names=names), untyped


def _holds_objects(dtype: Any) -> bool:
    """Whether values are Python objects, categories among them: Arrow would find one type for all, by the values."""
    return "object" in (dtype, getattr(getattr(dtype, "categories", None), "dtype", None))


def _texts_of(series: Any) -> Any:
    """The text of each value."""
    return pa.array([None if m else _text(v) for v, m in zip(series.array, series.isna(), strict=True)], pa.string())
