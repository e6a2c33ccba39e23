"""Sources that are no files: tables of a server or a cluster, named by a text that begins with the store's name.

`postgresql:service=clinic table=public.visits` is libpq's own way to name a server, and the table. Such a text is
public and is written into journals, so a password is refused, in words that do not repeat it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dpjoin.errors import SpecError, suggest

POSTGRES = "postgresql:"
SPARK = "spark:"
STORE_PREFIXES = (POSTGRES, SPARK)
_SETTING = re.compile(r"\s*(\w+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:\"[^\"]*\"|[^\s'\"])+)(?=\s|$)")
_QUERY = re.compile(r"(?:^|\s)query\s*=\s*(.*)$", re.DOTALL)
_SETTINGS = ("service", "host", "hostaddr", "port", "dbname", "user", "sslmode", "sslrootcert", "connect_timeout")
_SECRET = re.compile(r"^//|\b(ssl)?(password|passwd|pwd)\s*=", re.IGNORECASE)


@dataclass(frozen=True)
class PostgresSource:
    """Where a table of PostgreSQL is: how libpq finds the server, and a table there, or a query."""

    server: tuple[tuple[str, str], ...]
    table: str | None = None
    query: str | None = None

    @property
    def conninfo(self) -> str:
        """As libpq takes it; what is not named comes from the environment, ~/.pgpass and service files."""
        return " ".join(f"{k}='{_escaped(v)}'" for k, v in self.server)

    @property
    def shown(self) -> str:
        """How messages call the server."""
        return " ".join(f"{k}={v}" for k, v in self.server) or "as the environment says"


def is_stored(source: object) -> bool:
    """Whether a source is a text that names a store instead of a file."""
    return isinstance(source, str) and source.startswith(STORE_PREFIXES)


def postgres_source(source: str, table: str | None = None) -> PostgresSource:
    """What a text that begins with `postgresql:` says."""
    said = source.removeprefix(POSTGRES)
    found_query = _QUERY.search(said)
    before = said[: found_query.start()] if found_query else said
    if _SECRET.search(before):
        raise SpecError(
            "a source of PostgreSQL must not hold a password, nor be a URL; leave it to libpq: the environment "
            "(PGPASSWORD, PGSERVICE), ~/.pgpass or a service file"
        )
    settings: dict[str, str] = {}
    at = 0
    while before[at:].strip():
        found = _SETTING.match(before, at)
        if found is None:
            raise SpecError(
                "a source of PostgreSQL must read postgresql:service=NAME table=SCHEMA.TABLE, settings apart by "
                "spaces; quote values with spaces in them"
            )
        settings[found[1]] = _unquoted(found[2])
        at = found.end()
    inside = settings.pop("table", None)
    for name in settings:
        if name not in _SETTINGS:
            raise SpecError(
                f"a source of PostgreSQL has no setting {name!r}; {suggest(name, [*_SETTINGS, 'table', 'query'])}"
            )
    query = found_query[1].strip().rstrip("; \n\t") if found_query else None
    if query is not None and query[:1] in {"'", '"'} and query[:1] == query[-1:]:
        query = query[1:-1]
    if sum(x is not None for x in (inside, query, table)) != 1:
        raise SpecError("a source of PostgreSQL must name one table or one query; write table=SCHEMA.TABLE in it")
    return PostgresSource(tuple(sorted(settings.items())), inside or table, query)


def name_in_store(source: str) -> str:
    """What to call a table that a source names."""
    found = postgres_source(source) if source.startswith(POSTGRES) else None
    inside = source.partition(":")[2] if found is None else found.table or "asked"
    return inside.rpartition(".")[2].strip('"')


def check_source(source: str, table: str | None = None) -> None:
    """Refuse a text that names a store in a way that cannot be meant, before it is kept anywhere."""
    if source.startswith(POSTGRES):
        postgres_source(source, table)


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] == "'":
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")
