"""The two plots of `methods.py`: every method on every row, and what auto predicted against what it got."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from gap import Panel, _legend, _text, save

Rows = Mapping[str, Mapping[str, Any]]
"""By name of the row: its facts, and the figures of each column."""
GROUPS = ("synthetic", "hot keys", "two tables", "three tables")

COLUMNS = {
    "uniform": "uniform",
    "paper": "paper",
    "as_one": "as one",
    "uniformize": "uniformize",
    "per_table": "per_table",
    "per_table_numpy": "per-table, then join",
    "per_table_raw": "per-table, not clipped",
    "per_table_laplace": "per-table, Laplace",
    "flatten": "flatten and truncate",
    "heavy_light": "heavy_light",
    "capped": "capped",
    "clipped": "clipped",
    "auto": "auto",
}
OUTSIDE = ("uniform", "per_table_numpy", "per_table_raw", "per_table_laplace", "flatten")
"""The columns that are not dpjoin's."""
COLOURS = {
    "uniform": "#94a3b8",
    "paper": "#a16207",
    "as_one": "#2563eb",
    "uniformize": "#7c3aed",
    "per_table": "#16a34a",
    "per_table_numpy": "#16a34a",
    "per_table_raw": "#84cc16",
    "per_table_laplace": "#0d9488",
    "flatten": "#db2777",
    "heavy_light": "#0891b2",
    "capped": "#ea580c",
    "clipped": "#1e3a8a",
    "auto": "#dc2626",
}
IN_A_LINE = 4
"""Entries of the legend."""
LINE = 22
"""Height of a row of the plot."""


def _mark(name: str, x: float = 12.0, y: float = 0.0) -> str:
    """dpjoin's methods are discs, others are hollow squares, auto is a large diamond."""
    colour = COLOURS[name]
    if name == "auto":
        return f'<path d="M{x:.1f} {y - 8:.1f}l8 8l-8 8l-8 -8z" fill="{colour}" fill-opacity="0.85" stroke="white"/>'
    if name in OUTSIDE:
        return (
            f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="white" fill-opacity="0.6" '
            f'stroke="{colour}" stroke-width="2"/>'
        )
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{colour}" fill-opacity="0.9"/>'


def draw_methods(rows: Rows) -> None:
    """One line per row, one mark per column: mean total variation on a logarithmic axis, auto on top of the others."""
    shown = [g for g in GROUPS if any(r["group"] == g for r in rows.values())]
    left, top, width = 190, 116, 640
    height = LINE * (len(rows) + len(shown)) + 10
    values = [c["tv"] for r in rows.values() for c in r["columns"].values() if "tv" in c]
    # Half a step of room, so that no mark lies on the frame.
    ends = (min(max(v, 1e-6) for v in values) / 1.3, min(1.0, max(values)) * 1.3)
    out = [
        _text(left, 20, "Mean total variation over all 1- and 2-way marginals: further left is better", weight="bold")
    ]
    for line, first in enumerate(range(0, len(COLUMNS), IN_A_LINE)):
        some = list(COLUMNS)[first : first + IN_A_LINE]
        out += _legend(left - 100, 44 + 20 * line, [(_mark(c), COLUMNS[c]) for c in some])
    panel = Panel(left, top, ends, (0.1, 1.0), width, height)
    for power in range(math.floor(math.log10(ends[0])), 1):
        for digit in (1, 2, 5):
            value = digit * 10.0**power
            if ends[0] <= value <= ends[1]:
                x, _ = panel.at(value, 1.0)
                out.append(
                    f'<path d="M{x:.1f} {top}V{top + height}" stroke="{"#cbd5e1" if digit == 1 else "#eef2f7"}"/>'
                )
                out.append(_text(x, top + height + 18, f"{value:g}", anchor="middle"))
    y = top + 5.0
    for group in shown:
        out.append(_text(12, y + LINE * 0.7, group, weight="bold", colour="#475569"))
        y += LINE
        for name, row in rows.items():
            if row["group"] == group:
                middle = y + LINE / 2
                out.append(_text(left - 10, middle + 4, name, anchor="end"))
                out.append(f'<path d="M{left} {middle:.1f}h{width}" stroke="#eef2f7"/>')
                for c in COLUMNS:
                    if "tv" in row["columns"].get(c, {}):
                        x, _ = panel.at(min(max(row["columns"][c]["tv"], 1e-6), ends[1]), 1.0)
                        out.append(_mark(c, x, middle))
                y += LINE
    out.append(f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#475569"/>')
    save("methods", left + width + 30, top + height + 34, out)


CALIBRATED = "moved"
"""The measured error that has the unit of the predictions in `methods/parts.py`."""


def calibration(rows: Rows) -> list[tuple[str, float, float]]:
    """For each run in which auto had a choice: what ran, the error it predicted, the error it had."""
    found = []
    for row in rows.values():
        for run in row["columns"].get("auto", {}).get("runs", ()):
            guess = _prediction(run["predicted"], run["ran"])
            if guess is not None and run[CALIBRATED] > 0:
                found.append((run["ran"], guess, run[CALIBRATED]))
    return found


def _prediction(predicted: Mapping[str, float], ran: str) -> float | None:
    """auto may name a way by its method or, for the join as one table, in words."""
    names = (ran, ran.replace("_", " "), *(("as one", "as_one") if ran in ("two_table", "multi_table") else ()))
    return next((predicted[n] for n in names if predicted.get(n)), None)


def draw_calibration(rows: Rows) -> None:
    """Predicted against measured, one dot per run: on the diagonal auto knew what it did."""
    points = calibration(rows)
    if not points:
        return
    values = [v for p in points for v in p[1:]]
    ends = (10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(math.log10(max(values) * 1.01)))
    panel = Panel(90, 84, ends, ends, 420, 420)
    unit = {"cell": "mean absolute error of a cell", "moved": "half the absolute errors of a marginal"}[CALIBRATED]
    panel.axes(f"{unit[0].upper()}{unit[1:]}, in join results", "predicted by auto", "measured")
    panel.line([(e, e) for e in ends], "#475569", dash="4 3")
    ways = list(dict.fromkeys(way for way, _, _ in points))
    colours = {w: COLOURS["as_one" if w in ("two_table", "multi_table") else w] for w in ways if w in COLOURS}
    colours |= {"two_table": COLOURS["as_one"], "multi_table": "#7dd3fc"}
    marks = []
    for way in ways:
        colour = colours.get(way, "#475569")
        for x, y in (panel.at(p, m) for w, p, m in points if w == way):
            panel.out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity="0.5"/>')
        marks.append((f'<circle cx="12" cy="0" r="4.5" fill="{colour}"/>', way))
    title = _text(90, 20, "What auto predicted of the method it ran, one dot per run", weight="bold")
    save("calibration", 560, 560, [title, *panel.out, *_legend(80, 44, marks)])
