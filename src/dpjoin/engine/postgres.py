"""Tables of a PostgreSQL server: the server codes, filters and groups their rows, and what comes home are counts.

All tables of one server are read from one snapshot, by one connection each. It begins when the tables are opened and
ends with the release; a connection that is lost takes it along, and then nothing goes on. Reading needs SELECT on the
tables and nothing else: no table is made, no function, no temporary one.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from dpjoin.engine.arrow import empty_batch
from dpjoin.engine.dialect import identifier
from dpjoin.engine.encode import Column
from dpjoin.engine.postgres_dialect import POSTGRES_SQL
from dpjoin.engine.sources.opened import OpenedTable
from dpjoin.errors import SourceError
from dpjoin.spec.stored import PostgresSource

OLDEST = 140000
INSTALL = "pip install 'dpjoin[postgres]'"
_LOST = ("08", "57P", "25P03", "53")
"""SQLSTATE of connections that end: lost, shut down, idle for too long, out of resources."""
_SAID = {"canceling": "57014", "]: FATAL:": "57P01", "closed the connection": "08006", "no connection": "08003"}
_WHY = re.compile(r"(?:failed: (?:FATAL: +|fe_sendauth: )?|connect: (?=definition|syntax|could))(?!invalid)(.+)")
"""Why there is no connection, which is nothing about rows yet; values of settings may be passwords that went astray."""
_REASONS = {
    "42501": "the role may not read it; GRANT SELECT on it",
    "42P01": "there is no such table; name it as SCHEMA.TABLE",
    "3F000": "there is no such schema; name it as SCHEMA.TABLE",
    "42601": "its SQL has a mistake; try it with psql",
    "42703": "it names a column that is not there; correct it",
    "57014": "the server stopped the query; see its statement_timeout",
}
_SESSION = {"jit": "off", "datestyle": "ISO", "timezone": "UTC", "standard_conforming_strings": "on"}
_PLAIN = {
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "time": "TIME",
    "timetz": "TIME WITH TIME ZONE",
    "bytea": "BLOB",
    "uuid": "UUID",
}
_TEXT_TYPES = {"text", "varchar", "bpchar", "name", "char"}


class PostgresStore:
    """Tables of one server, in one snapshot. `columns` are those that are read."""

    def __init__(self, sources: Mapping[str, PostgresSource], columns: Mapping[str, Sequence[str]]) -> None:
        self._connections: dict[str, Any] = {}
        self.close = weakref.finalize(self, _discard, self._connections)
        self.opened: dict[str, OpenedTable] = {}
        snapshot: str | None = None
        try:
            for name, source in sources.items():
                self._connections[name] = _connected(name, source)
                snapshot = _begin(name, source, self._connections[name], snapshot, last=len(sources) == 1)
                self.opened[name] = _described(name, source, self._connections[name], columns.get(name, ()))
        except BaseException:
            self.close()
            raise

    def is_remote(self, table: str) -> bool:
        return True

    def exact_batches(self, table: str, sql: str, rows: int) -> Generator[Any, None, None]:
        with _read(table, self.opened[table].origin), self._connections[table].cursor() as cursor:
            cursor.execute(sql)
            reader = cursor.fetch_record_batch()
            yield from reader
            yield empty_batch(reader.schema)

    def exact_query(self, table: str, sql: str) -> Any:
        with _read(table, self.opened[table].origin), self._connections[table].cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetch_arrow_table()


def server_version(source: PostgresSource) -> str:
    """What a server says that it is."""
    connection = _connected("server", source)
    try:
        return str(_one(connection, "SELECT current_setting('server_version')"))
    finally:
        _discard({"server": connection})


def _connected(name: str, source: PostgresSource) -> Any:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise SourceError(f"table {name!r}: PostgreSQL needs a driver that is not installed; {INSTALL}") from None
    try:
        # Whatever the environment or the role prefers: texts come and go in UTF-8.
        return dbapi.connect(f"{source.conninfo} client_encoding=UTF8")
    except dbapi.Error as error:
        said = _WHY.search(str(error))
        why = f" ({said[1]})" if said else ""
        raise SourceError(
            f"table {name!r}: PostgreSQL ({source.shown}) cannot be reached{why}; check the service, or PGHOST, "
            "PGPORT, PGUSER and PGDATABASE"
        ) from None


def _begin(name: str, source: PostgresSource, connection: Any, snapshot: str | None, *, last: bool) -> str | None:
    """Begin to read in a snapshot: in that one, or in a new one, which is returned for other connections."""
    origin = f"PostgreSQL ({source.shown})"
    with _read(name, origin):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if snapshot is not None:
                cursor.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
        settings = ", ".join(f"set_config('{key}', '{value}', true)" for key, value in _SESSION.items())
        _one(connection, f"SELECT {settings}")
        asked = "current_setting('server_version_num') || ' ' || current_setting('server_encoding')"
        version, encoding = _one(connection, f"SELECT {asked}").split()
    if int(version) < OLDEST:
        raise SourceError(
            f"table {name!r}: {origin} has version {int(version) // 10000} and must have {OLDEST // 10000} or later"
        )
    if encoding != "UTF8":
        raise SourceError(f"table {name!r}: the database of {origin} has the encoding {encoding} and must have UTF8")
    if snapshot is None and not last:
        with _read(name, origin):
            return str(_one(connection, "SELECT pg_export_snapshot()"))
    return snapshot


def _described(name: str, source: PostgresSource, connection: Any, columns: Sequence[str]) -> OpenedTable:
    """The columns and their types, from the catalog; what the rows are is not looked at."""
    if source.query is not None:
        # A comment at the end of the query ends with its line.
        rows, origin = f"({source.query}\n) AS asked", f"the query to PostgreSQL ({source.shown})"
    else:
        rows = ".".join(identifier(part) for part in _parts(str(source.table)))
        origin = f"table {source.table!r} of PostgreSQL ({source.shown})"
    with _read(name, origin, opening=True), connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {rows} LIMIT 0")
        fields = list(cursor.fetch_arrow_table().schema)
    names = [f.name for f in fields]
    twice = next((n for i, n in enumerate(names) if n in names[:i]), None)
    if twice is not None:
        raise SourceError(f"table {name!r}: {origin} has two columns named {twice!r}; rename one of them")
    with _read(name, origin):
        enums = set(_column(connection, "SELECT CAST(typname AS text) FROM pg_catalog.pg_type WHERE typtype = 'e'"))
    found, taken = [], []
    for field in fields:
        kind, value = _typed(identifier(field.name), field.metadata, enums)
        found.append(Column(field.name, kind, dialect=POSTGRES_SQL))
        if field.name in columns:
            taken.append(f"{value} AS {identifier(field.name)}")
    view = f"(SELECT {', '.join(taken)} FROM {rows}) AS source"
    return OpenedTable(name, view, tuple(found), origin, dialect=POSTGRES_SQL)


def _typed(name: str, about: Mapping[bytes, bytes], enums: set[str]) -> tuple[str, str]:
    """A column's type, by DuckDB's names, and the SQL of its values in it. Of a domain the server tells its base."""
    kind = about[b"POSTGRESQL:type"].decode()
    if kind in _PLAIN:
        return _PLAIN[kind], name
    if kind in _TEXT_TYPES or kind in enums:
        # A padded text is cut by the cast. The bytes decide what is equal, whatever the column's collation says.
        return "VARCHAR", f'CAST({name} AS text) COLLATE "C"'
    if kind == "numeric":
        return _decimal(int(about[b"POSTGRESQL:typmod"])), f"CASE WHEN {name} <> 'NaN' THEN {name} END"
    if kind == "date":
        return "DATE", f"CASE WHEN isfinite({name}) THEN {name} END"
    if kind in {"json", "jsonb"}:
        return "JSON", f'CAST({name} AS text) COLLATE "C"'
    if kind == "oid":
        return "BIGINT", f"CAST({name} AS bigint)"
    return f"VARIANT({kind.lstrip('_')}{'[]' * kind.startswith('_')})", name


def _decimal(modifier: int) -> str:
    """The type of numbers with so many digits; DECIMAL alone where DuckDB has none that wide."""
    if modifier < 4:
        return "DECIMAL"
    digits, scale = (modifier - 4) >> 16 & 0xFFFF, ((modifier - 4 & 0x7FF) ^ 1024) - 1024
    return f"DECIMAL({digits},{scale})" if digits <= 38 and 0 <= scale <= digits else "DECIMAL"


def _parts(table: str) -> list[str]:
    """SCHEMA.TABLE, where either may be quoted; what is not is in lower case, as PostgreSQL has it."""
    parts, quoted = [""], False
    for letter in table:
        if letter == '"':
            quoted = not quoted
        elif letter == "." and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts if '"' in table else [p.lower() if p.isascii() else p for p in parts]


def _one(connection: Any, sql: str) -> Any:
    return _column(connection, sql)[0]


def _column(connection: Any, sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetch_arrow_table().column(0).to_pylist())


@contextmanager
def _read(name: str, origin: str, *, opening: bool = False) -> Iterator[None]:
    """Turn what the driver raises, which may quote rows and queries, into one line that repeats nothing of it."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:  # batches that are read one by one raise Arrow's own errors
        code = _code(error)
        if code.startswith(_LOST):
            raise SourceError(
                f"table {name!r}: the connection to {origin} was lost, and with it the state of the data that the "
                "release had begun to read; nothing was released, and it cannot go on: begin again"
            ) from None
        why = "check that it did not change, that no rule or function of it fails on a row, and the server's log"
        why = _REASONS.get(code, "check its name, or the query" if opening else why)
        raise SourceError(f"table {name!r}: {origin} cannot be {'opened' if opening else 'read'}; {why}") from None


def _code(error: Any) -> str:
    """The server's code. Of what happens while rows arrive the driver knows the words only, and of a killed server."""
    code = (getattr(error, "sqlstate", None) or "").strip("\0")
    return code or next((meant for words, meant in _SAID.items() if words in str(error)), "")


def _discard(connections: dict[str, Any]) -> None:
    """End the connections; one that is lost has ended already."""
    while connections:
        _, connection = connections.popitem()
        with suppress(Exception):
            connection.close()
