"""What the explorer asks: marginals with their error bars, as `release.ask` gives them, and some synthetic rows.

A page cannot hold every answer. It has all counts of one attribute, then those of the workload, then those of other
pairs, known ones first, until a public number of cells is reached. The rows answer, roughly, what is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from dpjoin.errors import ReleaseError
from dpjoin.model.terms import FloatArray
from dpjoin.page.shell import packed
from dpjoin.released.release import Release
from dpjoin.spec.dates import DATE
from dpjoin.spec.schema import OTHER, Attribute
from dpjoin.spec.sql_tree import bins_name
from dpjoin.spec.workload import Group, Workload

COVERAGE = 0.9
SHOWN_OF_ONE = 10_000
"""Of one marginal: more are not looked at one by one."""
SHOWN_CELLS = 100_000
"""Of all marginals: 2 MB of counts and bars."""
MOST_MARGINALS, UNKNOWN = 1_500, 100
"""How many marginals at most, and of how many no bar is known: the rows tell nearly as much of these."""
CANDIDATES = 6_000
"""How many pairs are looked at, besides those that the workload names."""
SHOWN_ROWS, ROW_BYTES = 20_000, 1_000_000
"""Of the synthetic rows: at most so many, and so many bytes of codes."""


@dataclass(frozen=True, eq=False)
class Marginal:
    """Counts of all values of some attributes together."""

    scope: tuple[int, ...]
    """Numbers of attributes, in the release's order."""
    group: Group
    counts: FloatArray
    bars: FloatArray
    """nan where none is known."""

    def packed(self) -> dict[str, Any]:
        return {"scope": list(self.scope), "counts": packed(self.counts), "bars": packed(self.bars)}


def marginals_of(release: Release) -> list[Marginal]:
    """The marginals that the page has, the most asked for first."""
    places = {a: i for i, a in enumerate(release.attributes)}
    asked = Workload.marginals(release.schema, _chosen(release)).groups
    counts = each(release, asked, release.answer)
    bars = each(release, asked, lambda some: release.error(some, coverage=COVERAGE))
    return [
        Marginal(tuple(places[a] for a in group.scope), group, own, bar)
        for group, own, bar in zip(asked, counts, bars, strict=True)
        if own is not None and bar is not None
    ]


def each(release: Release, groups: Sequence[Group], ask: Callable[[Workload], FloatArray]) -> list[FloatArray | None]:
    """What each group gets, asked all at once; None where the model cannot tell, as it would grow too large."""
    if not groups:
        return []
    try:
        found = ask(Workload(release.schema, tuple(groups)))
    except ReleaseError:
        middle = len(groups) // 2
        if not middle:
            return [None]
        return each(release, groups[:middle], ask) + each(release, groups[middle:], ask)
    return list(np.split(found, np.cumsum([len(g) for g in groups])[:-1]))


def _chosen(release: Release) -> list[tuple[str, ...]]:
    """The sets of attributes that are within the limits."""
    chosen: list[tuple[str, ...]] = []
    left, unknown = SHOWN_CELLS, UNKNOWN
    for scope in dict.fromkeys(_wanted(release)):
        cells, known = release.schema.cells(scope), release.model.knows(scope)
        if len(chosen) < MOST_MARGINALS and cells <= min(left, SHOWN_OF_ONE) and (known or unknown):
            chosen.append(scope)
            left, unknown = left - cells, unknown - (not known)
    return chosen


def has_all_known(release: Release, marginals: Sequence[Marginal]) -> bool:
    """Whether each pair of which bars are known is among these marginals."""
    held = {m.scope for m in marginals}
    pairs = list(combinations(range(len(release.attributes)), 2))
    if len(pairs) > CANDIDATES:
        return False
    return all(
        (a, b) in held or (b, a) in held or not release.model.knows((release.attributes[a], release.attributes[b]))
        for a, b in pairs
    )


def _wanted(release: Release) -> Iterator[tuple[str, ...]]:
    """Sets of attributes, in the schema's order, in the order in which they are wanted."""
    yield from ((a,) for a in release.attributes)
    yield from (g.scope for g in release.workload.groups if g.is_marginal and release.model.knows(g.scope) and g.scope)
    pairs = list(combinations(release.schema.in_order(release.attributes), 2))[:CANDIDATES]
    yield from (p for p in pairs if release.model.knows(p))
    yield from pairs


def attributes_of(release: Release) -> list[dict[str, Any]]:
    """Each attribute: its name, its values as people see them, and how SQL names them."""
    return [_attribute(release, release.schema.attribute(name)) for name in release.attributes]


def _attribute(release: Release, attribute: Attribute) -> dict[str, Any]:
    told: dict[str, Any] = {"name": attribute.name, "size": attribute.size, "other": attribute.other}
    told["tables"] = list(release.schema.tables_with(attribute.name))
    if attribute.range is not None and attribute.part != DATE:
        return told | {"kind": "whole numbers", "ordered": True, "range": list(attribute.range)}
    labels = [OTHER if label is None else str(label) for label in attribute.labels]
    told["labels"] = labels
    if attribute.bins is not None:
        dates = "dates" if attribute.part == DATE else "numbers"
        return told | {"kind": f"{dates} in bins", "ordered": True, "bins": bins_name(release.schema, attribute.name)}
    if attribute.part == DATE:
        return told | {"kind": "dates", "ordered": True}
    first = attribute.labels[0]
    if isinstance(first, bool):
        return told | {"kind": "true or false", "ordered": False, "plain": True}
    if isinstance(first, int):
        known = [int(v) for v in attribute.values or ()]
        return told | {"kind": "whole numbers", "ordered": known == sorted(known), "plain": True}
    return told | {"kind": "text", "ordered": False}


def sample_of(release: Release) -> dict[str, Any]:
    """The first of the synthetic rows, which are in random order, as codes."""
    sizes = [release.schema.attribute(a).size for a in release.attributes]
    kinds = ["u1" if n <= 2**8 else "<u2" if n <= 2**16 else "<u4" for n in sizes]
    each = sum(np.dtype(k).itemsize for k in kinds)
    rows = release.to_arrow(bins=True)
    few = rows.slice(0, min(SHOWN_ROWS, ROW_BYTES // max(1, each)))
    columns = [
        {"kind": kind[-1], "codes": packed(_codes(release, few, name), kind)}
        for name, kind in zip(release.attributes, kinds, strict=True)
    ]
    return {"rows": few.num_rows, "of": rows.num_rows, "columns": columns}


def _codes(release: Release, rows: Any, name: str) -> Any:
    """The codes of a column of synthetic rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    attribute = release.schema.attribute(name)
    column = rows[bins_name(release.schema, name) if attribute.bins is not None else name]
    if attribute.range is not None and attribute.part != DATE:
        # Labels of a range may be many, and need not be written down.
        return np.asarray(pc.subtract(column, attribute.range[0]).fill_null(attribute.size - 1))
    labels = pa.array(list(attribute.labels))
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    elif pa.types.is_date(column.type):
        column = column.cast(pa.string()).fill_null(OTHER)
    return np.asarray(pc.index_in(column, labels))
