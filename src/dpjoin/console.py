"""What a person sees on the terminal while something runs: always on stderr, never a private value."""

from __future__ import annotations

from typing import Any

from dpjoin.algorithms.progress import Progress

STAGES = {
    "read": "reading and pre-aggregating the tables",
    "sensitivity": "bounding the sensitivity",
    "measure": "measuring marginals and fitting",
    "rounds": "choosing, measuring and fitting queries",
    "error bars": "computing error bars",
}


def terminal_progress() -> Progress:
    """A progress line per stage on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns: tuple[Any, ...] = (
        TextColumn("{task.description:<42}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    bars = Bars(*columns, console=Console(stderr=True), transient=False)
    tasks: dict[str, Any] = {}

    def say(stage: str, done: int, total: int) -> None:
        if not tasks:
            bars.start()
        for other in tasks:
            if other != stage:
                bars.update(tasks[other], completed=bars.tasks[tasks[other]].total)
        if stage not in tasks:
            tasks[stage] = bars.add_task(STAGES.get(stage, stage), total=total)
        bars.update(tasks[stage], completed=done, total=total)
        if stage == "error bars" and done == total:
            bars.stop()

    return say
