"""A real PostgreSQL of our own: a unix socket in a temporary folder, run by a user that is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa

READER = "reader"
"""A role that may read and nothing else."""
NOTHING: Mapping[str, str] = MappingProxyType({})
_FAST = "-c listen_addresses= -c fsync=off -c full_page_writes=off -c shared_buffers=64MB -c max_connections=40"
_FAST += " -c lock_timeout=20s"  # an engine that a failed test left open ends no other test


def missing() -> str | None:
    """Why there is no PostgreSQL here; None where there is one."""
    if _binaries() is None:
        return "PostgreSQL is not installed (Debian's package is called postgresql)"
    if os.getuid() == 0 and not (shutil.which("runuser") and _user_exists("postgres")):
        return "PostgreSQL does not run as root, and there is no user postgres to run it"
    try:
        import adbc_driver_postgresql  # noqa: F401
    except ImportError:
        return "the driver is not installed (pip install 'dpjoin[postgres]')"
    return None


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[4]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


def _user_exists(name: str) -> bool:
    return subprocess.run(["id", name], capture_output=True, check=False).returncode == 0


@dataclass
class Server:
    """A running server; its one database is called postgres."""

    folder: Path

    @property
    def source(self) -> str:
        """How a spec names it, as a role that may only read."""
        return f"postgresql:host={self.folder} dbname=postgres user={READER}"

    def run(self, *command: str) -> None:
        as_user = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        binaries = _binaries()
        assert binaries is not None
        name, *rest = command
        done = subprocess.run([*as_user, str(binaries / name), *rest], capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        options = f"{_FAST} -c unix_socket_directories={self.folder}"
        log = str(self.folder / "log")
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-o", options, "-l", log, "-w", "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """A cursor of the superuser; what it did is kept."""
        from adbc_driver_postgresql import dbapi

        with dbapi.connect(f"host={self.folder} dbname=postgres user=postgres") as connection:
            with connection.cursor() as cursor:
                yield cursor
            connection.commit()

    def execute(self, *statements: str) -> None:
        with self.connected() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def load(self, tables: Mapping[str, pa.Table], declared: Mapping[str, str] = NOTHING) -> dict[str, str]:
        """Arrow tables as tables of the server, and the sources that name them; some columns of a type of their own."""
        with self.connected() as cursor:
            for name, table in tables.items():
                cursor.execute(f'DROP TABLE IF EXISTS "{name}"')
                cursor.adbc_ingest(name, table, mode="create")
                changes = [f'ALTER "{c}" TYPE {declared[c]}' for c in table.column_names if c in declared]
                if changes:
                    cursor.execute(f'ALTER TABLE "{name}" {", ".join(changes)}')
        return {name: f'{self.source} table="{name}"' for name in tables}


@contextmanager
def server() -> Iterator[Server]:
    """A new server, gone afterwards with all it held."""
    folder = Path(tempfile.mkdtemp(prefix="dpjoin-test-pg-", dir="/tmp"))
    found = Server(folder)
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    folder.chmod(0o755)
    try:
        found.run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8")
        found.start()
        found.execute(
            f"CREATE ROLE {READER} LOGIN",
            "REVOKE ALL ON DATABASE postgres FROM PUBLIC",
            "REVOKE ALL ON SCHEMA public FROM PUBLIC",
            f"GRANT CONNECT ON DATABASE postgres TO {READER}",
            f"GRANT USAGE ON SCHEMA public TO {READER}",
            f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO {READER}",
            "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        )
        yield found
    finally:
        with suppress(AssertionError):
            found.stop()
        shutil.rmtree(folder, ignore_errors=True)
