"""Pictures of a release for notebooks: counts of one or two attributes with their error bars, as SVG."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpjoin.errors import ReleaseError, suggest
from dpjoin.page import svg
from dpjoin.page.svg import Item
from dpjoin.released.release import Release, checked_coverage
from dpjoin.released.shown import number
from dpjoin.spec.plain import check_choice
from dpjoin.spec.schema import OTHER, Attribute
from dpjoin.spec.workload import Workload

PLOT_KINDS = ("bars", "lines", "heat")
MOST, SIDE, SMALL_PLOT = 40, 40, 16
"""Bars at most, values on each side of a map, and values of an ordered attribute above which it is a line."""
GLANCE = 6
"""How many attributes a notebook shows at a glance."""


@dataclass(frozen=True, repr=False)
class Plot:
    """A picture: a notebook shows it, `save` writes it."""

    svg: str
    title: str

    def __repr__(self) -> str:
        return f"<Plot of {self.title}: save it as a .svg file>"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, file: str | Path) -> Path:
        """Write the picture as a .svg file."""
        path = Path(file)
        if path.suffix != ".svg":
            raise ReleaseError(f"{path}: the file must end in .svg; rename it")
        try:
            path.write_text(self.svg, encoding="utf-8")
        except OSError as error:
            raise ReleaseError(f"{path}: the file cannot be written: {error.strerror}") from None
        return path


def plot(
    release: Release, first: str, second: str | None = None, *, kind: str | None = None, coverage: float = 0.9
) -> Plot:
    """Counts of the values of one attribute, or of the pairs of two."""
    coverage = checked_coverage(coverage)
    names = [first] if second is None else [first, second]
    for name in names:
        if name not in release.attributes:
            raise ReleaseError(f"attribute {name!r} is not in this release; {suggest(str(name), release.attributes)}")
    if kind is not None:
        check_choice("kind", kind, PLOT_KINDS)
    if len(set(names)) < len(names):
        raise ReleaseError(f"second ({second!r}) must be another attribute than the first; leave it out for one")
    items = _items(release, names, coverage)
    attributes = [release.schema.attribute(a) for a in names]
    title = f"Join results by {' and '.join(names)}, with {100 * coverage:g} % bars"
    chosen = kind or ("heat" if second is not None else "lines" if _is_long(attributes[0]) else "bars")
    if chosen == "heat":
        if second is None:
            raise ReleaseError("kind ('heat') must have two attributes; name a second one")
        return Plot(_map(items, attributes, title), title)
    if chosen == "lines":
        if second is not None:
            raise ReleaseError("kind ('lines') must have one attribute; use 'heat' or 'bars' for two")
        return Plot(svg.lines(items, title, apart=attributes[0].other), title)
    less = f"; the {MOST} largest of {len(items):,}" if len(items) > MOST else ""
    few = items if not less else sorted(items, key=lambda i: -i.value)[:MOST]
    return Plot(svg.bars(few, title + less), title)


def _items(release: Release, names: Sequence[str], coverage: float) -> list[Item]:
    """Each cell of the marginal, in the order of the names."""
    asked = Workload.marginals(release.schema, [names])
    (scope,) = [g.scope for g in asked.groups]
    order = [scope.index(a) for a in names]
    shape = [release.schema.attribute(a).size for a in scope]
    found = (release.answer(asked), release.error(asked, coverage=coverage))
    counts, bars = (np.transpose(a.reshape(shape), order).reshape(-1) for a in found)
    labels = [[OTHER if v is None else str(v) for v in release.schema.attribute(a).labels] for a in names]
    cells = [" · ".join(own[c] for own, c in zip(labels, at, strict=True)) for at in np.ndindex(*map(len, labels))]
    known = [float(b) if np.isfinite(b) else None for b in bars]
    return [
        Item(label, float(n), b, f"{number(float(n), b)} ± {number(b)}")
        for label, n, b in zip(cells, counts, known, strict=True)
    ]


def _map(items: Sequence[Item], attributes: Sequence[Attribute], title: str) -> str:
    """Of values that are many, the most frequent ones."""
    sizes = [a.size for a in attributes]
    values = np.array([i.value for i in items]).reshape(sizes)
    kept = [np.sort(np.argsort(-values.sum(axis=1 - side), kind="stable")[:SIDE]) for side in (0, 1)]
    rows, columns = (
        [OTHER if (v := a.labels[int(c)]) is None else str(v) for c in codes]
        for a, codes in zip(attributes, kept, strict=True)
    )
    less = f"; the {SIDE} most frequent values of each" if max(sizes) > SIDE else ""
    return svg.heat(rows, columns, lambda i, j: items[int(kept[0][i]) * sizes[1] + int(kept[1][j])], title + less)


def _is_long(attribute: Attribute) -> bool:
    return (attribute.bins is not None or attribute.range is not None) and attribute.size > SMALL_PLOT


def glance(release: Release) -> str:
    """Small pictures of the first attributes, side by side, as HTML."""
    small = [a for a in release.attributes if release.schema.attribute(a).size <= SMALL_PLOT][:GLANCE]
    told = []
    for name in small:
        drawn = svg.bars(_items(release, [name], 0.9), name, width=340)
        told.append(f'<div style="flex: 0 0 auto" title="{html.escape(name)}">{drawn}</div>')
    return f'<div style="display: flex; flex-wrap: wrap; gap: 8px">{"".join(told)}</div>' if told else ""
