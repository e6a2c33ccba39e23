"""Where rows wait between reading and computing: in memory while there is room, in a private file beyond."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc

from dpjoin.engine.arrow import array_of, column_of
from dpjoin.engine.join_keys import KEY
from dpjoin.engine.spill import private_folder
from dpjoin.engine.sumproduct import Counts
from dpjoin.errors import SourceError

ALIGNED = 64
"""Bytes: where Arrow wants a batch to begin."""
SEEN_BYTES = 2**28
"""So many bytes are looked at before their pages are given back."""


class Shelf:
    """Arrow batches of private rows, the first `room` bytes in memory and the others in a file.

    The file has no name in its folder, so it is gone when the process ends, however it ends.
    """

    def __init__(self, room: int) -> None:
        self._room, self._end, self._lock = room, 0, Lock()
        self._file: Any = None
        self._pages: Any = None
        self._looked_at = 0

    def put(self, batch: Any) -> Callable[[], Any]:
        """How to get the batch back."""
        with self._lock:
            fits = batch.nbytes <= self._room
            self._room -= batch.nbytes if fits else 0
        return (lambda: batch) if fits else self._written(batch)

    def _written(self, batch: Any) -> Callable[[], Any]:
        data, schema = memoryview(batch.serialize()), batch.schema
        size = len(data)
        try:
            with self._lock:
                if self._file is None:
                    self._file = tempfile.TemporaryFile(buffering=0, dir=private_folder())  # noqa: SIM115
                    weakref.finalize(self, self._file.close)
                start = self._end
                self._file.seek(start)
                while data:
                    data = data[self._file.write(data) :]
                self._end += -(-size // ALIGNED) * ALIGNED
                self._file.truncate(self._end)
        except OSError as error:
            raise SourceError(
                f"rows that do not fit into memory cannot be kept on disk ({os.strerror(error.errno or 0)}); "
                "free space in the folder for temporary files (TMPDIR), or allow more memory"
            ) from None

        return lambda: pa.ipc.read_record_batch(self._mapped(start, size), schema)

    def _mapped(self, start: int, size: int) -> Any:
        """A piece of the file, as memory. One mapping serves all: a process may have few files open."""
        with self._lock:
            if self._pages is None or len(self._pages) < self._end:
                self._pages = mmap.mmap(self._file.fileno(), self._end, access=mmap.ACCESS_READ)
            # Pages that were looked at count as memory of this process until it says that it needs them no more.
            self._looked_at += size
            if self._looked_at > SEEN_BYTES and hasattr(self._pages, "madvise"):
                self._pages.madvise(mmap.MADV_DONTNEED)
                self._looked_at = 0
            return pa.py_buffer(self._pages).slice(start, size)

    def put_counts(self, counts: Counts) -> Callable[[], Counts]:
        """The same for counts, every column in the narrowest type that holds its numbers."""
        sizes = zip(counts.exact_ids, counts.sizes, strict=True)
        columns = [column.astype(np.min_scalar_type(max(0, size - 1))) for column, size in sizes]
        if counts.exact_count is not None:
            columns.append(counts.exact_count.astype(np.min_scalar_type(int(counts.exact_count.max(initial=0)))))
        if not columns:
            return lambda: counts
        get = self.put(pa.RecordBatch.from_arrays(list(map(column_of, columns)), list(map(str, range(len(columns))))))
        bare, counted = replace(counts, exact_ids=(), exact_count=None), counts.exact_count is not None

        def read() -> Counts:
            found = list(map(array_of, get().columns))
            count = found.pop().astype(np.int64) if counted else None
            # Numbers of keys are computed with, those of codes are not.
            pairs = zip(found, bare.variables, strict=True)
            ids = tuple(c.astype(np.int64) if v[0] == KEY else c for c, v in pairs)
            return replace(bare, exact_ids=ids, exact_count=count)

        return read
