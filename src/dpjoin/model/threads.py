"""One BLAS thread while a model is fitted.

Most products are small; two BLAS threads spend more time waiting for each other than computing (measured: an
optimiser step of 0.04 ms takes 1.2 ms when the other core is busy).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit every BLAS that is loaded until the block ends."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        yield
