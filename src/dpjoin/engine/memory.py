"""How much memory an engine may take, and what each part of its work gets of it."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpjoin.errors import SpecError

SHARE = 0.5
"""Of the machine's memory, when nothing is said."""
LEAST_MEMORY = 500 * 10**6
"""What the process takes for itself, libraries and models included, before the first row."""
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_BYTES_PER_ROW = 256
"""What one row of a partition takes while its marginals are computed; measured, with room to spare."""


@dataclass(frozen=True)
class Memory:
    """A limit in bytes, divided among what is held at the same time."""

    limit: int

    @property
    def duckdb(self) -> int:
        """For DuckDB: reading, and grouping and putting rows in order, for which it spills."""
        return max(self.limit * 2 // 5, LEAST_MEMORY // 4)

    @property
    def room(self) -> int:
        """For rows that wait for their partition, and again for rows in partitions; beyond, they go to a file."""
        return max(0, self.limit - LEAST_MEMORY) // 5

    def rows_at_once(self, workers: int) -> int:
        """How many rows of all tables one worker may have at hand."""
        return max(2**16, min(2**18, max(0, self.limit - LEAST_MEMORY) // 4 // workers // _BYTES_PER_ROW))


def memory_of(limit: str | int | None) -> Memory:
    """The limit as the user says it.

    >>> memory_of("4GB").limit, memory_of(2**30).limit
    (4000000000, 1073741824)
    """
    if limit is None:
        return Memory(int(machine_memory() * SHARE))
    said = f"memory ({limit!r})"
    if isinstance(limit, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]I?B)\s*", limit.upper())
        if found is None:
            raise SpecError(f"{said} must be a number with a unit; write it as 4GB or 500MB")
        limit = int(float(found[1]) * _UNITS[found[2]])
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise SpecError(f"{said} must be text such as 4GB, or a whole number of bytes")
    if limit < LEAST_MEMORY:
        raise SpecError(f"{said} must be at least {LEAST_MEMORY // 10**6}MB; give more, or leave it out")
    return Memory(limit)


def machine_memory() -> int:
    """What the machine has, or the container that this process runs in."""
    found = [2**33]
    with suppress(AttributeError, ValueError, OSError):
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            found.append(int(Path(limit).read_text()))
    return min(found)
