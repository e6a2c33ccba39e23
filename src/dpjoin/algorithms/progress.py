"""How an algorithm says how far it is. It is told public facts only."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called at the start of each stage and as it goes on."""

    def __call__(self, stage: str, done: int, total: int) -> None: ...


def silent(stage: str, done: int, total: int) -> None:
    """Say nothing."""
