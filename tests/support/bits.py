"""Bits that a run can repeat, in place of the operating system's."""

from __future__ import annotations

import random


class Bits:
    """Stands in for `os` and `secrets` behind the one door for randomness."""

    def __init__(self) -> None:
        self._stream = random.Random(0)

    def begin(self, name: str) -> None:
        self._stream.seed(name)

    def urandom(self, size: int) -> bytes:
        return self._stream.randbytes(size)

    def randbits(self, k: int) -> int:
        return self._stream.getrandbits(k)

    def randbelow(self, exclusive_upper_bound: int) -> int:
        return self._stream.randrange(exclusive_upper_bound)


BITS = Bits()
