"""New files, written as a whole or not at all; nothing is overwritten."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpjoin.errors import ReleaseError

try:
    import fcntl
except ImportError:  # no such locks on Windows, where the slower of two releases fails at its end
    fcntl = None  # type: ignore[assignment]


def check_new(out: Path, what: str = "file") -> None:
    """Find out that a result cannot be written before it is computed."""
    import tempfile

    if out.exists():
        raise ReleaseError(f"{out}: the {what} exists already; choose another with -o, or remove it")
    parent = out.absolute().parent
    while not parent.exists():
        parent = parent.parent
    try:
        # Permissions do not tell everything (a read-only or special file system), so try.
        with tempfile.TemporaryDirectory(prefix=".dpjoin-", dir=parent):
            pass
    except OSError:
        raise ReleaseError(f"{out}: nothing can be written in {parent}; choose another place with -o") from None


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """A new folder for this process alone, from before anything is spent until it is written.

    The lock is taken back by the operating system however a process ends, so none is left that stops the next one.
    """
    if fcntl is None:
        yield
        return
    parent = out.absolute().parent
    while not parent.exists():
        parent = parent.parent
    digest = hashlib.sha256(str(out.resolve()).encode("utf-8", "replace")).hexdigest()[:16]
    path = parent / f".dpjoin-{digest}.lock"
    try:
        lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise ReleaseError(f"{out}: nothing can be written in {parent} ({error.strerror}); nothing was spent") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = path.exists() and os.path.samestat(path.stat(), os.fstat(lock))
        except BlockingIOError:
            mine = False
        except OSError:
            mine = True  # a file system without locks: there nobody else gets one either
        if not mine or out.exists():
            raise ReleaseError(
                f"{out}: another release is on its way there, so this one spent nothing; choose another with -o"
            )
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def write_new(path: Path, content: bytes, *, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except OSError as error:
        raise ReleaseError(f"{path}: the file cannot be written: {error.strerror}") from None


def check_file(out: Path, suffixes: tuple[str, ...]) -> None:
    if out.suffix not in suffixes:
        raise ReleaseError(f"{out}: the file must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}; rename it")
    check_new(out)


def write_table(table: Any, out: Path) -> None:
    """A table as a new CSV or Parquet file: all of it or nothing."""
    partial = out.with_name(f".{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix == ".csv":
            _write_csv(table, partial)
        else:
            from pyarrow import parquet

            parquet.write_table(table, partial, compression="zstd")
        partial.rename(out)
    except OSError as error:
        raise ReleaseError(f"{out}: the rows cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)  # gone already, unless something stopped it


def _write_csv(table: Any, where: Any) -> None:
    import pyarrow as pa
    from pyarrow.csv import write_csv

    # The CSV writer knows no dictionaries.
    plain = [f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in table.schema]
    schema = pa.schema([f.with_type(t) for f, t in zip(table.schema, plain, strict=True)])
    write_csv(table.cast(schema), where)


def csv_text(table: Any) -> bytes:
    import io

    held = io.BytesIO()
    _write_csv(table, held)
    return held.getvalue()


def free_folder(folder: Path) -> Path:
    """The folder, or the first of folder-2, folder-3, … that does not exist."""
    candidate, count = folder, 1
    while candidate.exists():
        count += 1
        candidate = folder.with_name(f"{folder.name}-{count}")
    return candidate
