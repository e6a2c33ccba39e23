"""How an algorithm says how far it is. It is told public facts only."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called at the start of each stage and as it goes on."""

    def __call__(self, stage: str, done: int, total: int) -> None: ...


def silent(stage: str, done: int, total: int) -> None:
    """Say nothing."""


def nested(progress: Progress, number: int, count: int) -> Progress:
    """The progress of one part among several."""
    if count == 1:
        return progress

    def say(stage: str, done: int, total: int) -> None:
        progress(f"part {number + 1} of {count}: {stage}", done, total)

    return say
