"""TwoTable against Uniformize on the paper's own instances, and the plots of docs/uniformize.md: `benchmarks/gap.py`.

Figure 3 has one key of each degree up to k. Example exp:gap has k^2 / 8^i keys of degree 2^i. Small instances are
released; for large ones the largest error that the analysis promises is computed from the profiles' noise scales.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import dpjoin as dj
from dpjoin.constants import ROUND_FACTOR, SELECT_SHARE
from dpjoin.measure.join import varying_products
from dpjoin.measure.product_queries import PRODUCT_ROUNDS, prospect
from dpjoin.measure.shares import partition_shares, tight_shares
from dpjoin.paper import alg4_uniformize as algorithm
from dpjoin.paper.alg5_partition_two_table import Level, best_runs
from uniformize import BUDGET, QUERIES, SIZE, Tables, errors, product_queries, schema_of, skewed, tables_of, update

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
CELLS = SIZE * SIZE
EPSILON, DELTA = BUDGET.epsilon, BUDGET.delta
LOG_CELLS, LOG_QUERIES = math.log(CELLS), math.log(QUERIES)
PROFILES, METHODS = ("paper", "tight"), ("two_table", "uniformize")
PRODUCTS = varying_products(product_queries(schema_of(), QUERIES, np.random.default_rng(0)))
UNIT = prospect(PRODUCTS, total=1, bound=1, rho=Fraction(1), cells=CELLS)
"""Errors of measuring directly, in join results, for a sensitivity of one and rho = 1: they are proportional."""
Part = Callable[[float, float, float, float], float]


@dataclass(frozen=True)
class Instance:
    """Keys that have the same degree in both tables: (degree, how many keys)."""

    k: int
    keys: tuple[tuple[int, int], ...]

    @property
    def n(self) -> int:
        """Rows of both tables."""
        return 2 * sum(d * m for d, m in self.keys)

    @property
    def join_size(self) -> int:
        return sum(d * d * m for d, m in self.keys)

    @property
    def degree(self) -> int:
        """The largest, which is the local sensitivity."""
        return max(d for d, _ in self.keys)

    def tables(self, rng: np.random.Generator) -> Tables:
        degrees = np.repeat([d for d, _ in self.keys], [m for _, m in self.keys])
        keys = np.repeat(np.arange(len(degrees)), degrees)
        return tables_of({"r": keys, "s": keys}, skewed(rng))


def figure_3(k: int) -> Instance:
    """One key of degree i in both tables, for every i up to k."""
    return Instance(k, tuple((i, 1) for i in range(1, k + 1)))


def figure_3_grouped(k: int) -> Instance:
    """The same for large k with degrees rounded up to 2 %, so that there are few of them."""
    keys, low = [], 0
    while low < k:
        high = min(k, max(low + 1, int(low * 1.02)))
        keys.append((high, high - low))
        low = high
    return Instance(k, tuple(keys))


def example_gap(k: int) -> Instance:
    """k^2 / 8^i keys of degree 2^i, for i up to (2/3) log2 k; k is a power of two."""
    exponent = k.bit_length() - 1
    assert k == 1 << exponent
    return Instance(k, tuple((2**i, k * k // 8**i) for i in range(2 * exponent // 3 + 1)))


# The bounds ------------------------------------------------------------------------------------------------------


def tight_part(size: float, cap: float, rho: float, deviation: float) -> float:
    """Join size off by its deviation; m adaptive rounds: size·sqrt(ln D / 2m) + choice + noise, the best m >= 1.

    A round has rho/m, half of it for the choice. Queries lie in [0, 1] and are centred, so they move by cap/2.
    Never more than the part itself.
    """
    select = float(SELECT_SHARE)
    misses = size * math.sqrt(LOG_CELLS / 2)
    noise = cap * (LOG_QUERIES / math.sqrt(8 * select) + 0.5 / math.sqrt(2 * (1 - select))) / math.sqrt(rho)
    rounds = max(1.0, misses / noise)
    return min(size, misses / math.sqrt(rounds) + noise * math.sqrt(rounds) + deviation)


def own_part(size: float, cap: float, rho: float, deviation: float) -> float:
    """What a release itself expects on this domain: the best of histogram, every query once, and rounds."""
    direct = cap / math.sqrt(rho) * min(UNIT.histogram, UNIT.measure_all)
    select = float(SELECT_SHARE)
    misses = ROUND_FACTOR * size * math.sqrt(LOG_CELLS / 2)
    noise = cap * (LOG_QUERIES / math.sqrt(8 * select) + 0.5 / math.sqrt(2 * (1 - select))) / math.sqrt(rho)
    rounds = min(float(PRODUCT_ROUNDS), max(1.0, misses / noise))
    return min(size, direct + deviation, misses / math.sqrt(rounds) + noise * math.sqrt(rounds) + deviation)


def tight_two_table(instance: Instance, part: Part = tight_part) -> float:
    shares = tight_shares(BUDGET, noisy_bound=True)
    assert shares.half_width is not None
    cap = instance.degree + shares.half_width
    deviation = cap / math.sqrt(2 * float(shares.count.rho))
    return part(instance.join_size, cap, float(shares.queries), deviation)


def levels_of(instance: Instance, shift: int, deviation: float) -> list[tuple[float, float]]:
    """(join size, cap) of the levels of doubling noisy degrees; the noise is `shift` on average, 2·shift at most.

    A level's cap is its largest noisy degree: of m keys the noise's largest is about sqrt(2 ln m) deviations off.
    """
    sizes: dict[int, float] = {0: 0.0}
    caps: dict[int, float] = {0: 2.0 * shift}
    for degree, keys in instance.keys:
        number = max(0, math.ceil(math.log2((degree + shift) / (2 * shift))))
        sizes[number] = sizes.get(number, 0.0) + float(degree) ** 2 * keys
        largest = degree + min(2.0 * shift, shift + deviation * math.sqrt(2 * math.log(max(1, keys))))
        caps[number] = min(2.0 ** (number + 1) * shift, max(caps.get(number, 0.0), largest))
    return [(sizes[i], caps[i]) for i in sorted(sizes)]


def tight_uniformize(instance: Instance, part: Part = tight_part) -> float:
    shares = partition_shares(BUDGET, gauge=False)
    levels = levels_of(instance, shares.degrees_width, 1 / math.sqrt(2 * float(shares.degrees.rho)))
    count = 1 / math.sqrt(2 * float(shares.count.rho))

    def cost(begin: int, end: int) -> float:
        inside = levels[begin:end]
        cap = max(c for _, c in inside)
        deviation = count * math.sqrt(sum(c * c for _, c in inside))
        return part(sum(s for s, _ in inside), cap, float(shares.queries), deviation)

    return sum(cost(run.start, run.stop) for run in best_runs(len(levels), cost))


def paper_width(epsilon: float, delta: float, sensitivity: float) -> float:
    """τ of the paper's truncated Laplace, its mean."""
    return sensitivity / epsilon * math.log1p(math.expm1(epsilon) / delta)


def paper_part(size: float, cap: float, epsilon: float, delta: float) -> float:
    """Algorithm 2 with its constants: the shifted join size, then m rounds of epsilon / (16 sqrt(m ln 1/delta)) each.

    The paper's m; no cap on it. Never more than the larger of the part and its shifted size.
    """
    shift = paper_width(epsilon / 2, delta / 2, cap)
    noisy = size + shift
    log_delta = math.log(1 / delta)
    rounds = max(1.0, noisy * epsilon * math.sqrt(LOG_CELLS) / (cap * LOG_QUERIES * math.sqrt(log_delta)))
    each = epsilon / (16 * math.sqrt(rounds * log_delta))
    error = shift + 2 * noisy * math.sqrt(LOG_CELLS / rounds) + cap / each * (2 * LOG_QUERIES + 1)
    return min(noisy, error)


def paper_two_table(instance: Instance) -> float:
    half = (EPSILON / 2, DELTA / 2)
    return paper_part(instance.join_size, instance.degree + paper_width(*half, 1), *half)


def paper_uniformize(instance: Instance) -> float:
    width = math.ceil(paper_width(EPSILON / 2, DELTA / 2, 1))
    quarter = (EPSILON / 4, DELTA / 4)
    total = 0.0
    for size, cap in levels_of(instance, width, 2 / EPSILON):
        # A part also has a noisy bound of its own; the cap is about as small.
        total += paper_part(size, cap, *quarter)
    return total


BOUNDS = {
    "paper": {"two_table": paper_two_table, "uniformize": paper_uniformize},
    "tight": {"two_table": tight_two_table, "uniformize": tight_uniformize},
    "tight_expected": {
        "two_table": lambda instance: tight_two_table(instance, own_part),
        "uniformize": lambda instance: tight_uniformize(instance, own_part),
    },
}


def bounds(instance: Instance) -> dict[str, dict[str, float]]:
    """The bounds as shares of the join size, by profile and method."""
    return {p: {m: of(instance) / instance.join_size for m, of in ways.items()} for p, ways in BOUNDS.items()}


def ratio(point: dict[str, Any], profile: str) -> float:
    return point[profile]["uniformize"] / point[profile]["two_table"]


def crossover(points: Sequence[dict[str, Any]], profile: str) -> dict[str, Any] | None:
    """The first k from which on Uniformize's bound is the smaller, and where it says anything at all."""
    beyond = None
    for point in reversed(points):
        if ratio(point, profile) >= 1 or min(point[profile].values()) >= 1:
            break
        beyond = point
    return None if beyond is None else {"k": beyond["k"], "n": beyond["n"], "bound": beyond[profile]["two_table"]}


def slope(points: Sequence[dict[str, Any]], profile: str, *, logarithm: bool) -> float:
    """Of log ratio over log n by least squares; with `logarithm`, after dividing by the number of degrees, log k."""
    x = [math.log(p["n"]) for p in points]
    y = [math.log(ratio(p, profile) / (math.log(p["k"]) if logarithm else 1)) for p in points]
    return float(np.polyfit(x, y, 1)[0])


# Releases --------------------------------------------------------------------------------------------------------


def simulated(instance: Instance, runs: int) -> dict[str, Any]:
    rng = np.random.default_rng([7, instance.k])
    tables, workload = instance.tables(rng), product_queries(schema_of(), QUERIES, rng)
    found = {}
    for profile in PROFILES:
        measured = errors(tables, workload, runs, profile=profile)
        found[f"{profile}_measured"] = {m: measured[m]["error"] for m in METHODS}
    return found


def study(name: str, small: Iterable[Instance], large: Iterable[Instance], runs: int) -> dict[str, Any]:
    points: list[dict[str, Any]] = []
    for instance in small:
        points.append(_described(instance) | simulated(instance, runs))
        print(name, points[-1], flush=True)
    points += [_described(instance) for instance in large]
    return {"points": sorted(points, key=lambda p: p["k"])}


def _described(instance: Instance) -> dict[str, Any]:
    facts = {"k": instance.k, "n": instance.n, "join_size": instance.join_size, "degree": instance.degree}
    return facts | bounds(instance)


def one_release() -> dict[str, Any]:
    """The levels of one release on keys with a long tail, and the parts they became."""
    rng = np.random.default_rng(11)
    rows, keys = 200_000, 100_000
    weights = 1 / np.arange(1, keys + 1) ** 1.1
    # The hot keys of the two tables are not the same ones.
    drawn = {t: rng.permutation(keys)[rng.choice(keys, rows, p=weights / weights.sum())] for t in ("r", "s")}
    # Half a million rows more whose keys are alike: these are light, and many.
    drawn = {t: np.concatenate([k, rng.integers(keys, 2 * keys, 5 * keys)]) for t, k in drawn.items()}
    tables = tables_of(drawn, skewed(rng))
    workload = product_queries(schema_of(), QUERIES, rng)
    seen: dict[str, Any] = {}

    def levels(*arguments: Any) -> list[Level]:
        seen["levels"] = original_levels(*arguments)
        return seen["levels"]

    def runs(*arguments: Any) -> list[range]:
        seen["runs"] = best_runs(*arguments)
        return seen["runs"]

    original_levels = algorithm.levels_of
    with patch.object(algorithm, "levels_of", levels), patch.object(algorithm, "best_runs", runs):
        release = dj.release(workload.schema, workload, tables, BUDGET, method="uniformize")
    part_of = {at: part for part, run in enumerate(seen["runs"]) for at in run}
    return {
        "levels": [
            {"cap": level.cap, "listed": len(level.values), "part": part_of[at]}
            for at, level in enumerate(seen["levels"])
        ],
        "parts": release.facts["parts"],
    }


# Plots -----------------------------------------------------------------------------------------------------------

COLOURS = {"two_table": "#c2410c", "uniformize": "#1d4ed8"}
NAMES = {"two_table": "TwoTable", "uniformize": "Uniformize"}
PARTS = ("#64748b", "#1d4ed8", "#0f766e", "#b45309", "#7c3aed", "#be123c", "#334155")


class Panel:
    """One plot with logarithmic axes, at (left, top) of a page."""

    def __init__(
        self, left: float, top: float, x: tuple[float, float], y: tuple[float, float], width: float, height: float
    ) -> None:
        self.left, self.top, self.width, self.height = left, top, width, height
        self.x, self.y = x, y
        self.out: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        def along(v: float, ends: tuple[float, float]) -> float:
            return (math.log10(v) - math.log10(ends[0])) / (math.log10(ends[1]) - math.log10(ends[0]))

        return self.left + along(x, self.x) * self.width, self.top + (1 - along(y, self.y)) * self.height

    def axes(self, title: str, across: str, up: str, *, every: int = 1, y_ticks: Sequence[float] = ()) -> None:
        right, bottom = self.left + self.width, self.top + self.height
        for power in range(math.ceil(math.log10(self.x[0])), math.floor(math.log10(self.x[1])) + 1, every):
            px, _ = self.at(10.0**power, self.y[0])
            self.out.append(f'<path d="M{px:.1f} {self.top}V{bottom}" stroke="#e2e8f0"/>')
            self.out.append(_text(px, bottom + 18, _power(power), anchor="middle"))
        powers = range(math.ceil(math.log10(self.y[0])), math.floor(math.log10(self.y[1])) + 1)
        for value in y_ticks or [10.0**p for p in powers]:
            _, py = self.at(self.x[0], value)
            self.out.append(f'<path d="M{self.left} {py:.1f}H{right}" stroke="#e2e8f0"/>')
            self.out.append(_text(self.left - 8, py + 4, f"{value:g}", anchor="end"))
        self.out.append(
            f'<rect x="{self.left}" y="{self.top}" width="{self.width}" height="{self.height}" fill="none" '
            'stroke="#475569"/>'
        )
        self.out.append(_text(self.left, self.top - 10, title, weight="bold"))
        self.out.append(_text(self.left + self.width / 2, bottom + 38, across, anchor="middle"))
        middle = self.top + self.height / 2
        turn = f'transform="rotate(-90 {self.left - 52} {middle})"'
        self.out.append(_text(self.left - 52, middle, up, anchor="middle", more=turn))

    def line(self, points: Sequence[tuple[float, float]], colour: str, *, dash: str = "") -> None:
        inside = [(x, y) for x, y in points if self.y[0] <= y <= self.y[1] and self.x[0] <= x <= self.x[1]]
        path = " ".join(f"{'L' if i else 'M'}{px:.1f} {py:.1f}" for i, (px, py) in enumerate(map(self._at, inside)))
        self.out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')

    def dots(self, points: Sequence[tuple[float, float]], colour: str, *, square: bool = False) -> None:
        for px, py in map(self._at, points):
            if square:
                self.out.append(f'<rect x="{px - 4:.1f}" y="{py - 4:.1f}" width="8" height="8" fill="{colour}"/>')
            else:
                self.out.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4.5" fill="{colour}"/>')

    def note(self, x: float, y: float, words: str, colour: str = "#0f172a", *, anchor: str = "start") -> None:
        px, py = self.at(x, y)
        self.out.append(_text(px, py, words, colour=colour, anchor=anchor))

    def _at(self, point: tuple[float, float]) -> tuple[float, float]:
        return self.at(*point)


def _power(power: int) -> str:
    return f'10<tspan dy="-5" font-size="9">{power}</tspan>'


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
    colour: str = "#0f172a",
    more: str = "",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" fill="{colour}" {more}>'
        f"{words}</text>"
    )


def save(name: str, width: int, height: int, parts: Iterable[str]) -> None:
    FIGURES.mkdir(exist_ok=True)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="12">'
    )
    body = "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"])
    (FIGURES / f"{name}.svg").write_text(body + "\n", encoding="utf-8")


def _legend(x: float, y: float, entries: Sequence[tuple[str, str]]) -> list[str]:
    """Entries (mark, words) side by side; a mark is SVG drawn around the origin, 24 wide."""
    out = []
    for mark, words in entries:
        out.append(f'<g transform="translate({x:.0f} {y:.0f})">{mark}</g>')
        out.append(_text(x + 30, y + 4, words))
        x += 48 + 7.0 * len(words)
    return out


def draw_errors(name: str, title: str, points: Sequence[dict[str, Any]]) -> None:
    """Both profiles side by side: bounds as lines, releases as marks."""
    parts = []
    ends = (min(p["k"] for p in points) / 1.5, 1e8)
    for number, profile in enumerate(PROFILES):
        panel = Panel(80 + number * 430, 62, ends, (1e-4, 3.0), 340, 280)
        panel.axes(f"{title}, profile {profile}", "k", "largest error / join size")
        for method in METHODS:
            panel.line([(p["k"], p[profile][method]) for p in points], COLOURS[method])
            if profile == "tight":
                expected = [(p["k"], p["tight_expected"][method]) for p in points]
                panel.line(expected, COLOURS[method], dash="2 3" if method == "two_table" else "7 4")
            done = [(p["k"], p[f"{profile}_measured"][method]) for p in points if f"{profile}_measured" in p]
            panel.dots(done, COLOURS[method], square=method == "uniformize")
        parts += panel.out
    marks = []
    for method in METHODS:
        colour = COLOURS[method]
        marks.append((f'<path d="M0 0H24" stroke="{colour}" stroke-width="2"/>', f"{NAMES[method]}, bound"))
        shape = (
            f'<rect x="8" y="-4" width="8" height="8" fill="{colour}"/>'
            if method == "uniformize"
            else f'<circle cx="12" cy="0" r="4.5" fill="{colour}"/>'
        )
        marks.append((shape, f"{NAMES[method]}, measured"))
    marks.append(('<path d="M0 0H24" stroke="#475569" stroke-width="2" stroke-dasharray="4 3"/>', "expected"))
    save(name, 880, 410, [*parts, *_legend(80, 22, marks)])


def draw_ratio(name: str, gap: Sequence[dict[str, Any]], figure: Sequence[dict[str, Any]]) -> None:
    """Uniformize's bound over TwoTable's, by n, with the slope that the paper claims."""
    panel = Panel(90, 62, (1e4, 1e24), (0.001, 5.0), 740, 330)
    panel.axes(
        "Uniformize's bound over TwoTable's: below 1 it promises less error",
        "n, rows of both tables",
        "ratio",
        every=2,
        y_ticks=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
    )
    _, one = panel.at(1e4, 1.0)
    panel.out.append(f'<path d="M{panel.left} {one:.1f}H{panel.left + panel.width}" stroke="#475569"/>')
    colours = {"paper": "#7c3aed", "tight": "#0f766e"}
    for profile in PROFILES:
        panel.line([(p["n"], ratio(p, profile)) for p in gap], colours[profile])
        panel.line([(p["n"], ratio(p, profile)) for p in figure], colours[profile], dash="6 4")
    last = gap[-1]
    start = 0.6 * ratio(last, "tight")
    panel.line([(n, start * (n / last["n"]) ** (-1 / 6)) for n in (last["n"] / 1e10, last["n"])], "#475569", dash="2 4")
    marks = [(f'<path d="M0 0H24" stroke="{colours[p]}" stroke-width="2"/>', f"exp:gap, {p}") for p in PROFILES]
    marks += [
        (f'<path d="M0 0H24" stroke="{colours[p]}" stroke-width="2" stroke-dasharray="6 4"/>', f"Figure 3, {p}")
        for p in PROFILES
    ]
    marks.append(('<path d="M0 0H24" stroke="#475569" stroke-width="2" stroke-dasharray="2 4"/>', "slope -1/6"))
    save(name, 880, 460, [*panel.out, *_legend(90, 22, marks)])


def draw_buckets(name: str, found: dict[str, Any]) -> None:
    """Bars: listed values per level; colours: the part each level became."""
    levels = found["levels"]
    left, top, width, height = 80, 62, 760, 250
    bottom = top + height
    most = max(max(level["listed"] for level in levels), 10)
    scale = math.log10(most) + 0.35
    out = [_text(left, top - 34, "Values of the key by noisy degree, in one release", weight="bold")]
    out.append(_text(left, top - 16, "Colour: the part that neighbouring levels were merged into", colour="#475569"))
    for power in range(math.floor(scale) + 1):
        y = bottom - (power + 0.25) / (scale + 0.25) * height
        out.append(f'<path d="M{left} {y:.1f}H{left + width}" stroke="#e2e8f0"/>')
        out.append(_text(left - 8, y + 4, f"{10**power:,}", anchor="end"))
    step = width / len(levels)
    for at, level in enumerate(levels):
        x = left + at * step + step * 0.12
        colour = PARTS[level["part"] % len(PARTS)]
        tall = height if at == 0 else (math.log10(max(1, level["listed"])) + 0.25) / (scale + 0.25) * height
        style = 'fill-opacity="0.35" stroke-dasharray="5 3"' if at == 0 else ""
        out.append(
            f'<rect x="{x:.1f}" y="{bottom - tall:.1f}" width="{step * 0.76:.1f}" height="{tall:.1f}" fill="{colour}" '
            f'stroke="{colour}" {style}/>'
        )
        middle = x + step * 0.38
        if at == 0:
            out.append(_text(middle, top + 22, "all not", anchor="middle"))
            out.append(_text(middle, top + 38, "listed", anchor="middle"))
        else:
            out.append(_text(middle, bottom - tall - 6, f"{level['listed']:,}", anchor="middle"))
        out.append(_text(middle, bottom + 18, f"≤ {level['cap']:,}", anchor="middle"))
        out.append(_text(middle, bottom + 36, f"part {level['part']}", anchor="middle", colour=colour))
    out.append(f'<path d="M{left} {bottom}H{left + width}" stroke="#475569"/>')
    out.append(_text(left + width / 2, bottom + 58, "cap: no degree in the level is larger", anchor="middle"))
    turn = f'transform="rotate(-90 {left - 56} {top + height / 2})"'
    out.append(_text(left - 56, top + height / 2, "listed values", anchor="middle", more=turn))
    save(name, 880, 392, out)


# ------------------------------------------------------------------------------------------------------------------


def said(name: str, points: Sequence[dict[str, Any]], fit: Sequence[dict[str, Any]]) -> list[str]:
    """What the bounds say, in words."""
    words = []
    far = [_described(example_gap(8**e)) for e in range(20, 41)]
    for profile in PROFILES:
        found = crossover(points, profile)
        if found is None:
            last = points[-1]
            words.append(
                f"`{profile}`: Uniformize's bound never stays below TwoTable's; at k = {last['k']:.2g} the ratio is "
                f"{ratio(last, profile):.2f}."
            )
            continue
        near = {k: min(points, key=lambda p: abs(math.log(p["k"] / k))) for k in (1e4, 1e5, 1e6)}
        at = ", ".join(f"{ratio(p, profile):.2f} at k = {p['k']:,}" for p in near.values())
        words.append(
            f"`{profile}`: Uniformize's bound is the smaller from k = {found['k']:,} on (n = {found['n']:.2g}); "
            f"there TwoTable's is {found['bound']:.2f} of the join. Ratio {at}. "
            f"Slope of the ratio in n from k = {fit[0]['k']:.1e} to {fit[-1]['k']:.1e}: "
            f"{slope(fit, profile, logarithm=False):.4f}; after dividing by log k, "
            f"{slope(fit, profile, logarithm=True):.4f}. From 8^20 to 8^40: {slope(far, profile, logarithm=False):.4f} "
            f"and {slope(far, profile, logarithm=True):.4f}. The paper's claim: -1/6 = -0.1667, times log k."
        )
    ends = [p for p in points if p["k"] in (2**10, 2**17, 2**24)]
    words.append(
        f"What a `tight` release itself expects on {CELLS:,} cells, where it may also measure the histogram or every "
        "query once: Uniformize over TwoTable "
        + ", ".join(f"{ratio(p, 'tight_expected'):.2f} at k = {p['k']:,}" for p in ends)
        + "."
    )
    for line in words:
        print(name, line, flush=True)
    return words


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one small release each, nothing written")
    parser.add_argument("--no-write", action="store_true")
    options = parser.parse_args(arguments)
    if options.quick:
        for instance in (figure_3(32), example_gap(32)):
            print(instance.k, simulated(instance, 1), bounds(instance))
        return 0
    gap_small = [example_gap(k) for k in (64, 256, 1024)]
    figure_small = [figure_3(k) for k in (64, 256, 1024)]
    powers = [e for e in range(6, 40) if e not in (6, 8, 10)]
    gap = study("exp:gap", gap_small, [example_gap(2**e) for e in powers], options.runs)
    figure = study("Figure 3", figure_small, [figure_3_grouped(2**e) for e in powers], options.runs)
    # Powers of eight, where k^(2/3) is a degree; the first ones are where constants still matter.
    fit = [p for p in gap["points"] if p["k"] >= 2**24 and (p["k"].bit_length() - 1) % 3 == 0]
    gap["said"] = said("exp:gap", gap["points"], fit)
    figure["said"] = said("Figure 3", figure["points"], fit)
    buckets = one_release()
    draw_errors("gap-error", "Example exp:gap", gap["points"])
    draw_errors("figure3-error", "Figure 3", figure["points"])
    draw_ratio("gap-ratio", gap["points"], figure["points"])
    draw_buckets("degree-buckets", buckets)
    if not options.no_write:
        update({"gap": {"instances": {"Example exp:gap": gap, "Figure 3": figure}, "buckets": buckets}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
