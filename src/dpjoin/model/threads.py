"""One BLAS thread while a model is fitted, and long work on two cores.

Most products are small; two BLAS threads spend more time waiting for each other than computing (measured: an
optimiser step of 0.04 ms takes 1.2 ms when the other core is busy). Work that takes milliseconds is cut in two here,
in the same way on every machine, so that results do not depend on the number of cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

Piece = TypeVar("Piece")
Found = TypeVar("Found")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit every BLAS that is loaded until the block ends."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield


def side_by_side(work: Callable[[Piece], Found], pieces: Sequence[Piece]) -> list[Found]:
    """What `work` finds for each piece, in order; the first on another core, if there is one. Pays from 1 ms on."""
    if len(pieces) < 2 or _cores() < 2:
        return [work(piece) for piece in pieces]
    # A thread of its own each time (0.1 ms): a pool that is kept would be lost in a process that is forked off.
    with ThreadPoolExecutor(1) as other:
        first = other.submit(work, pieces[0])
        rest = [work(piece) for piece in pieces[1:]]
        return [first.result(), *rest]


@cache
def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
