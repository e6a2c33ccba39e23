"""What a person sees on the terminal while something runs: always on stderr, never a private value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpjoin.measure.progress import Progress

STAGES = {
    "read": "reading and pre-aggregating the tables",
    "learn": "learning domains",
    "look": "looking at degrees and sizes",
    "sensitivity": "bounding the sensitivity",
    "caps": "measuring degrees and sizes under caps",
    "degrees": "sorting key values by noisy degree",
    "sizes": "measuring the size of each level",
    "measure": "measuring marginals and fitting",
    "rounds": "choosing, measuring and fitting queries",
    "error bars": "computing error bars",
    "exact": "reading the tables, exact answers",
    "bars": "error bars of each group",
    "compare": "answers and error bars of each group",
}


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """A progress line per stage on stderr; the terminal is put right again whatever happens."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns: tuple[Any, ...] = (
        TextColumn("{task.description:<42}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    tasks: dict[str, Any] = {}
    with Bars(*columns, console=Console(stderr=True), transient=False) as bars:

        def say(stage: str, done: int, total: int) -> None:
            for other in tasks:
                if other != stage:
                    bars.update(tasks[other], completed=bars.tasks[tasks[other]].total)
            if stage not in tasks:
                part, _, inner = stage.rpartition(": ")
                told = STAGES.get(inner, inner)
                tasks[stage] = bars.add_task(f"{part}: {told}" if part else told, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield say
