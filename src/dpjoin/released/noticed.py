"""What a release notices about itself: signs that keys do not match, or that values are written otherwise.

A function of the release and of noisy numbers of rows, so it is as public as these, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from dpjoin.spec.workload import Workload, kronecker

if TYPE_CHECKING:
    from dpjoin.released.release import Release

HARDLY = 0.05
"""A join with fewer results than this share of the rows of its smallest table hardly matches."""
NEARLY_ALL = 0.9
NAMED = 6
"""So many attributes are named."""
_WRITTEN = "is it written alike everywhere (1.0 and 1, 3,5 and 3.5, leading zeros, spaces, capitals)?"


def with_noticed(release: Release, rows: Mapping[str, tuple[float, float]]) -> Release:
    """The release with these among its facts. `rows`: by table, how many lie within its domains, and the deviation."""
    quantile = NormalDist().inv_cdf(0.95)
    told = {t: {"noisy": max(0, round(n)), "bar": math.ceil(quantile * off)} for t, (n, off) in sorted(rows.items())}
    facts = dict(release.facts) | ({"rows": told} if told else {})
    found = noticed(release, told)
    return replace(release, facts=facts | ({"warnings": list(found)} if found else {}))


def noticed(release: Release, rows: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """One sentence for each sign. `rows`: by table, how many rows it has within its domains, and the bar of that."""
    bar = size_bar(release)
    return (*_of_size(release, bar, rows), *_of_rows(rows), *_of_others(release, bar))


def size_bar(release: Release) -> float:
    """The 90 % error bar of the join size; nan where none is known."""
    return float(release.model.error(kronecker(release.schema, {}), 0.9)[0])


def _of_size(release: Release, bar: float, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    size = release.join_size
    what = "rows" if len(release.schema.tables) == 1 else "join size"
    keys = " and ".join(release.schema.join_attributes)
    told = f"{size:,} ± {bar:,.0f}" if math.isfinite(bar) else f"{size:,}"
    within = math.isfinite(bar) and size <= bar
    visible = {t: r for t, r in rows.items() if r["noisy"] > r["bar"]}
    if len(visible) > 1 and keys:
        table, least = min(visible.items(), key=lambda item: item[1]["noisy"])
        if within or size + bar < HARDLY * (least["noisy"] - least["bar"]):
            yield (
                f"keys hardly match: the join has about {told} results, and {table} alone {least['noisy']:,} rows; "
                f"look at {keys}: {_WRITTEN}"
            )
            return
    if within:
        yield (
            f"the {what} ({told}) is within its noise, and so is every answer: there may be hardly any results, or too "
            "few for this epsilon"
        )


def _of_rows(rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for table, found in rows.items():
        if found["noisy"] <= found["bar"]:
            yield (
                f"hardly any row of {table} lies within its domains ({found['noisy']:,} ± {found['bar']:,}): it has "
                "few, or its rows were dropped; other = true keeps rows with other values, or correct the domains"
            )


def _of_others(release: Release, bar: float) -> Iterator[str]:
    size = release.join_size
    if math.isfinite(bar) and size <= bar:
        return
    found: dict[str, float] = {}
    for name in release.attributes:
        if not release.schema.attribute(name).other:
            continue
        cells = Workload.marginals(release.schema, [(name,)])
        share = max(0.0, min(1.0, float(release.answer(cells)[-1]) / size))
        off = float(release.error(cells)[-1]) / size
        if share > NEARLY_ALL and share - off > NEARLY_ALL / 2:
            found[name] = 100 * share
    if found:
        names = list(found)
        told = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
        low, high = f"{min(found.values()):.0f}", f"{max(found.values()):.0f}"
        yield (
            f"{told}: 'other' or missing in about {low if low == high else f'{low} to {high}'} % of the join; is every "
            "value written as in its domain (1.0 and 1, 3,5 and 3.5, leading zeros, spaces, capitals), or too rare to "
            "be learned? Leave out what tells nothing"
        )
