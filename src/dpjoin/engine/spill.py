"""Where private rows may lie on disk while a release runs, and how they leave it.

DuckDB spills to a folder that only this user can read. Whoever made it holds a lock on it, which the operating system
takes back however a process ends. A folder whose lock is free belongs to nobody any more: the next start removes it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on Windows, where folders are removed at the end of a process only
    fcntl = None  # type: ignore[assignment]

PREFIX = "dpjoin-spill-"
LOCK = "lock"
_held: list[int] = []
"""Open locks: closing one would give the folder up."""


@cache
def private_folder(within: str | None = None) -> str:
    """The folder of this process, for all that does not fit into memory: among temporary files, or `within` another."""
    remove_left_behind(within)
    return spill_folder(within)


def spill_folder(within: str | None = None) -> str:
    """A new folder of this process, removed when it ends."""
    # Locked before it has the name that others look for: they cannot take it for one that was left behind.
    made = Path(tempfile.mkdtemp(prefix="dpjoin-new-", dir=within))
    if fcntl is not None:
        lock = os.open(made / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        _held.append(lock)
        with suppress(OSError):  # some file systems have no locks: there nobody else gets one either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder = made.with_name(PREFIX + made.name.removeprefix("dpjoin-new-"))
    os.rename(made, folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


def remove_left_behind(within: str | None = None) -> None:
    """Remove the folders of processes that were killed; those of living ones, and of other users, stay."""
    if fcntl is None:
        return
    for folder in Path(within or tempfile.gettempdir()).glob(PREFIX + "*"):
        try:
            about = folder.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass  # its process lives
        finally:
            os.close(lock)
