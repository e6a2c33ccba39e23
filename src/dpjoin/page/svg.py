"""Charts as SVG text, for notebooks and files: bars, lines and maps of cells, each number with its error bar.

Every text is escaped; what XML cannot hold is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

INK, SOFT, LINE, ACCENT, WARN = "#16191d", "#4d5661", "#d9dee4", "#0b5a8f", "#8a4b00"
LEVELS = ("#f1f5f8", "#d5e5f1", "#aacbe3", "#6da3cb", "#2b6fa3", "#0b4470")
FONT = "system-ui, 'DejaVu Sans', sans-serif"
WIDTH = 720


@dataclass(frozen=True)
class Item:
    """A number with its bar (None where none is known), and both as they are to be written."""

    label: str
    value: float
    bar: float | None
    text: str


def escaped(text: str, most: int | None = None) -> str:
    """Text for an element or an attribute; a long one is cut, and signs that turn what follows are left out.

    >>> escaped('<b> "x"', 5)
    '&lt;b&gt; …'
    """
    line = re.sub(r"[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]", "", " ".join(text.split()))
    line = line if most is None or len(line) <= most else line[: most - 1] + "…"
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def picture(width: float, height: float, title: str, content: str) -> str:
    """A drawing on white, so that it can be read wherever it is put."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="{FONT}" font-size="12" role="img">\n<title>{escaped(title)}</title>\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{content}</svg>\n'
    )


def text(x: float, y: float, content: str, *, anchor: str = "start", fill: str = INK, size: int = 12) -> str:
    """A line of text; `content` is escaped already."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}" '
        f'unicode-bidi="isolate">{content}</text>\n'
    )


def line(x1: float, y1: float, x2: float, y2: float, stroke: str = INK) -> str:
    return f'<path d="M{x1:.1f},{y1:.1f}L{x2:.1f},{y2:.1f}" stroke="{stroke}" fill="none"/>\n'


def whisker(x1: float, y1: float, x2: float, y2: float) -> str:
    """An error bar from end to end, with a stroke across each end."""
    dx, dy = (4, 0) if x1 == x2 else (0, 4)
    ends = "".join(line(x - dx, y - dy, x + dx, y + dy) for x, y in ((x1, y1), (x2, y2)))
    return f'<g class="bar">{line(x1, y1, x2, y2)}{ends}</g>\n'


def reach(items: Sequence[Item]) -> tuple[float, float]:
    """From the least to the most that is drawn; zero is always there."""
    ends = [0.0, *(i.value + sign * (i.bar or 0.0) for i in items for sign in (-1, 1))]
    ends = [e for e in ends if math.isfinite(e)]
    return (min(ends), max(ends)) if max(ends) > min(ends) else (0.0, 1.0)


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers between two others, about so many.

    >>> ticks(0, 420, 4)
    [0.0, 200.0, 400.0]
    """
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(k * power for k in (1, 2, 5, 10) if k * power >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A tick's label.

    >>> short(200_000), short(1_500_000), short(0.5), short(150.0)
    ('200K', '1.5M', '0.5', '150')
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if abs(value) >= (10 if unit == 1e3 else 1) * unit:
            return f"{value / unit:g}{name}"
    return f"{value:,g}" if value % 1 else f"{value:,.0f}"


def bars(items: Sequence[Item], title: str, *, width: float = WIDTH) -> str:
    """Horizontal bars, one below the other."""
    left = 14 + 7 * max((min(len(i.label), 28) for i in items), default=1)
    right = 16 + 7 * max((len(i.text) for i in items), default=1)
    low, high = reach(items)
    row, top = 24, 34
    bottom = top + row * len(items)

    def at(value: float) -> float:
        return left + (value - low) / (high - low) * (width - left - right)

    drawn = text(8, 20, escaped(title, int(width / 8)), size=13)
    for mark in ticks(low, high, max(2, int((width - left - right) / 90))):
        drawn += line(at(mark), top, at(mark), bottom, LINE if mark else SOFT)
        drawn += text(at(mark), bottom + 16, short(mark), anchor="middle", fill=SOFT, size=11)
    for i, item in enumerate(items):
        y = top + row * (i + 0.5)
        begin, end = sorted((at(0.0), at(item.value)))
        drawn += text(left - 8, y + 4, escaped(item.label, 28), anchor="end")
        drawn += f'<rect x="{begin:.1f}" y="{y - 7:.1f}" width="{end - begin:.1f}" height="14" fill="{ACCENT}" '
        drawn += 'fill-opacity="0.55"/>\n'
        if item.bar is None:
            drawn += text(at(item.value) + 6, y + 5, "?", fill=WARN, size=14)
        else:
            drawn += whisker(at(item.value - item.bar), y, at(item.value + item.bar), y)
        drawn += text(width - 8, y + 4, escaped(item.text), anchor="end")
    return picture(width, bottom + 26, title, drawn)


def lines(items: Sequence[Item], title: str, *, apart: bool = False, width: float = WIDTH) -> str:
    """A line along ordered values; `apart`: the last one is not in their order, and stands by itself."""
    left, right, top, bottom = 56, 16, 40, 300
    low, high = reach(items)
    step = (width - left - right) / max(1, len(items))

    def at(i: int, value: float) -> tuple[float, float]:
        return left + step * (i + 0.5), bottom - (value - low) / (high - low) * (bottom - top)

    drawn = text(8, 20, escaped(title, 90), size=13)
    for mark in ticks(low, high):
        y = at(0, mark)[1]
        drawn += line(left, y, width - right, y, LINE if mark else SOFT)
        drawn += text(left - 8, y + 4, short(mark), anchor="end", fill=SOFT, size=11)
    joined = [at(i, item.value) for i, item in enumerate(items[: len(items) - apart])]
    path = "L".join(f"{x:.1f},{y:.1f}" for x, y in joined)
    drawn += f'<path d="M{path}" stroke="{ACCENT}" stroke-width="2" fill="none"/>\n' if joined else ""
    every = max(1, math.ceil(70 / step)) if step else 1
    for i, item in enumerate(items):
        x, y = at(i, item.value)
        if item.bar is not None:
            drawn += whisker(x, at(i, item.value - item.bar)[1], x, at(i, item.value + item.bar)[1])
        drawn += f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{ACCENT}"/>\n'
        drawn += "" if item.bar is not None else text(x, y - 8, "?", anchor="middle", fill=WARN, size=14)
        if i % every == 0:
            label = escaped(item.label, max(4, int(step * every / 7)))
            drawn += text(x, bottom + 20, label, anchor="middle", fill=SOFT, size=11)
    return picture(width, bottom + 34, title, drawn)


def heat(
    rows: Sequence[str], columns: Sequence[str], cell: Callable[[int, int], Item], title: str, *, width: float = WIDTH
) -> str:
    """A map of cells: darker is more, and each has its number and its bar where they fit."""
    left, top = 16 + 7 * max((min(len(r), 24) for r in rows), default=1), 52
    wide = (width - left - 8) / max(1, len(columns))
    cells = [cell(i, j) for i in range(len(rows)) for j in range(len(columns))]
    # Each number above its bar, where all have room, at about 7 and 6 pixels a character.
    texts = [c.text.partition(" ± ") for c in cells]
    tall = 40 if all(7 * len(n) <= wide and 6 * len(b) + 12 <= wide for n, _, b in texts) else 24
    most = max((c.value for c in cells), default=0.0) or 1.0
    drawn = text(8, 20, escaped(title, 90), size=13)
    every = max(1, math.ceil(44 / wide))
    for j in range(0, len(columns), every):
        label = escaped(columns[j], max(3, int(wide * every / 7)))
        drawn += text(left + wide * (j + 0.5), top - 8, label, anchor="middle", fill=SOFT, size=11)
    for i, name in enumerate(rows):
        y = top + tall * i
        drawn += text(left - 8, y + tall / 2 + 4, escaped(name, 24), anchor="end")
        for j in range(len(columns)):
            drawn += _cell(cell(i, j), left + wide * j, y, wide, tall, most)
    return picture(width, top + tall * len(rows) + 12, title, drawn)


def _cell(item: Item, x: float, y: float, wide: float, tall: float, most: float) -> str:
    level = min(len(LEVELS) - 1, int(math.sqrt(max(0.0, item.value) / most) * len(LEVELS)))
    fill = "#ffffff" if level >= 4 else "#000000"
    number, _, bar = item.text.partition(" ± ")
    drawn = f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{max(0.5, wide - 2):.1f}" height="{tall - 2:.1f}" '
    drawn += f'fill="{LEVELS[level]}"><title>{escaped(item.label)}: {item.text}</title></rect>\n'
    if 7 * len(number) > wide:
        return drawn
    middle = x + wide / 2
    if tall < 40:
        number += " ?" * (bar == "?" and 7 * len(number) + 14 <= wide)
        return drawn + text(middle, y + tall / 2 + 4, number, anchor="middle", fill=fill, size=11)
    drawn += text(middle, y + 17, number, anchor="middle", fill=fill)
    return drawn + text(middle, y + 31, f"± {bar}", anchor="middle", fill=fill, size=10)
