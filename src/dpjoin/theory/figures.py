"""Charts with logarithmic axes as SVG, without a library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpjoin.page.svg import escaped, picture, text

centred = partial(text, anchor="middle")
Points = Sequence[tuple[float, float]]
BLUE, RED, ORANGE, GREY = "#2563eb", "#dc2626", "#d97706", "#64748b"
COLOURS = {"paper": RED, "tight": BLUE, "first idea": RED, "second idea": ORANGE, "uniform guess": ORANGE}
"""By the name of a series up to a colon. All others are what these are compared with: grey and dashed."""
RULE = 'stroke="#e2e8f0"'
SPAN, RISE, LEFT, TOP = 310, 240, 88, 40
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Panel:
    """One pair of axes, with series by name in the order of the legend."""

    title: str
    across: str
    up: str
    series: Mapping[str, Points]
    dots: bool = False

    def draw(self) -> list[str]:
        """SVG elements, in a box that begins at the origin."""
        values = [p for points in self.series.values() for p in points if p[0] > 0 and p[1] > 0]
        (x0, x1), (y0, y1) = (_ends([p[i] for p in values]) for i in (0, 1))

        def at(x: float, y: float) -> tuple[float, float]:
            return LEFT + (math.log10(x) - x0) / (x1 - x0) * SPAN, TOP + (y1 - math.log10(y)) / (y1 - y0) * RISE

        out = [text(LEFT, TOP - 12, escaped(self.title), size=14)]
        for value in _ticks(x0, x1):
            x, _ = at(value, 1)
            out += [f'<path d="M{x:.1f} {TOP}v{RISE}" {RULE}/>', centred(x, TOP + RISE + 17, label(value))]
        for value in _ticks(y0, y1):
            _, y = at(1, value)
            out += [f'<path d="M{LEFT} {y:.1f}h{SPAN}" {RULE}/>', text(LEFT - 6, y + 4, label(value), anchor="end")]
        out.append(f'<rect x="{LEFT}" y="{TOP}" width="{SPAN}" height="{RISE}" fill="none" stroke="#475569"/>')
        out.append(centred(LEFT + SPAN / 2, TOP + RISE + 36, self.across))
        out.append(f'<g transform="translate(20 {TOP + RISE / 2}) rotate(-90)">{centred(0, 0, self.up)}</g>')
        for number, (name, points) in enumerate(self.series.items()):
            colour = COLOURS.get(name.partition(":")[0], GREY)
            dots = self.dots and colour != GREY
            places = [at(x, y) for x, y in points if x > 0 and y > 0]
            row = TOP + RISE + 58 + 17 * number
            out += _drawn(places, colour, dots)
            out += _drawn([(LEFT, row - 4), (LEFT + 24, row - 4)], colour, dots)
            out.append(text(LEFT + 34, row, escaped(name)))
        return out


def save(path: Path, panels: Sequence[Panel]) -> None:
    """Two panels side by side, then the next row, in one file: as wide as a page shows without shrinking it."""
    wide, tall = LEFT + SPAN + 24, TOP + RISE + 66 + 17 * max(len(p.series) for p in panels)
    places = (f'<g transform="translate({i % 2 * wide} {i // 2 * tall})">' for i in range(len(panels)))
    lines = [line for place, panel in zip(places, panels, strict=True) for line in (place, *panel.draw(), "</g>")]
    width, height = min(2, len(panels)) * wide, math.ceil(len(panels) / 2) * tall
    path.write_text(picture(width, height, "; ".join(p.title for p in panels), "\n".join([*lines, ""])), "utf-8")


def label(value: float) -> str:
    """A tick's label.

    >>> label(0.25), label(20_000), label(5e7), label(1e-4)
    ('0.25', '20,000', '5·10⁷', '10⁻⁴')
    """
    lead, _, power = f"{value:.0e}".partition("e")
    raised = "" if lead == "1" else f"{lead}·", "10", str(int(power)).translate(RAISED)
    return f"{value:,g}" if 1e-3 < value < 1e6 else "".join(raised)


def _drawn(places: Points, colour: str, dots: bool) -> list[str]:
    if dots:
        return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}" fill-opacity="0.75"/>' for x, y in places]
    line = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(places))
    dash = ' stroke-dasharray="6 4"' if colour == GREY else ""
    return [f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>']


def _ends(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    margin = max(0.06 * (high - low), 0.04)
    return low - margin, high + margin


def _ticks(low: float, high: float) -> list[float]:
    steps = (1, 2, 3, 5, 7) if high - low < 0.8 else (1, 2, 5) if high - low < 2 else (1,)
    every = max(1, math.ceil((high - low) / 8))
    powers = range(math.floor(low), math.ceil(high) + 1)
    return [s * 10.0**p for p in powers for s in steps if low <= math.log10(s) + p <= high and p % every == 0]
