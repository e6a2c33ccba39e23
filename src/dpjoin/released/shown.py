"""Numbers and tables for people, in a terminal and in a notebook. Every label is text, never markup."""

from __future__ import annotations

import html
import io
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCREEN_WIDTH = 100
NUMBERS = (int, float, Decimal)  # DuckDB's sums of whole numbers are decimals


def console(**how: Any) -> Console:
    """A console that prints text as it is: bins like [0, 15) are not markup."""
    from rich.console import Console

    plain = Console(markup=False, highlight=False, emoji=False, soft_wrap=False, **how)
    if not plain.is_terminal or plain.width > SCREEN_WIDTH:
        plain.width = SCREEN_WIDTH
    return plain


def number(value: float | None, bar: float | None = None) -> str:
    """A number for people: no digits that the noise has eaten, and all that a short bar leaves.

    >>> number(5e6), number(42.51342, 0.04812), number(0.0123), number(None)
    ('5,000,000', '42.513', '0.012', '?')
    """
    if value is None or not math.isfinite(value):
        return "?"
    if bar is not None and 0 < bar < 1:
        return f"{value:,.{min(1 - math.floor(math.log10(bar)), 6)}f}"
    if abs(value) >= 10 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.2g}"


def exact(value: Any) -> str:
    """A value that has no bar, with its digits.

    >>> exact(5000000.0), exact(5000000.25), exact(0.125), exact(None), exact(True)
    ('5,000,000', '5,000,000.2', '0.125', '', 'True')
    """
    if value is None or isinstance(value, bool) or not isinstance(value, NUMBERS):
        return "" if value is None else str(value)
    if not math.isfinite(value):
        return "?"
    if value % 1 == 0:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(float(value)) >= 10_000 else f"{value:.6g}"


def may_be_years(values: Sequence[Any]) -> bool:
    """Whether a column's numbers look like years, which have no commas."""
    known: list[Any] = [v for v in values if isinstance(v, NUMBERS) and not isinstance(v, bool)]
    return bool(known) and all(1000 <= v < 3000 for v in known)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table with headings; one that begins with > has numbers below it, to the right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for head in heads:
        right = head.startswith(">")
        made.add_column(head.removeprefix(">"), justify="right" if right else "left", no_wrap=right)
    for row in rows:
        made.add_row(*row)
    return made


def text_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The same as text."""
    out = console(file=io.StringIO(), color_system=None, force_terminal=False)
    with out.capture() as captured:
        out.print(table(heads, rows))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The same for a notebook."""
    sides = ["right" if head.startswith(">") else "left" for head in heads]

    def line(cells: Sequence[str], tag: str) -> str:
        pairs = zip(cells, sides, strict=True)
        told = "".join(f'<{tag} style="text-align: {side}">{html.escape(cell)}</{tag}>' for cell, side in pairs)
        return f"<tr>{told}</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    head = line([head.removeprefix(">") for head in heads], "th")
    return f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def html_lines(lines: Iterable[str]) -> str:
    """Sentences below or above a table."""
    return "\n".join(f"<div>{html.escape(line)}</div>" for line in lines)
