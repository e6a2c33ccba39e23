"""How far a release can be trusted: bars of each group, and join sizes under the limits that were tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpjoin.model.terms import FloatArray
from dpjoin.released.release import Release
from dpjoin.released.report.explorer import COVERAGE, Marginal, each

GROUPS, QUERIES = 200, 10_000
"""Of groups that are no marginals: bars of so many are worked out, if they have no more queries than this."""


def trust_of(release: Release, manifest: Mapping[str, Any], marginals: Sequence[Marginal]) -> dict[str, Any]:
    return {"coverage": COVERAGE, "groups": _groups(release, marginals), "limits": _limits(manifest)}


def _groups(release: Release, marginals: Sequence[Marginal]) -> list[dict[str, Any]]:
    """Median and largest bar of each group of the workload, and how often they are known."""
    places = {a: i for i, a in enumerate(release.attributes)}
    known = {m.scope: m.bars for m in marginals}
    groups = list(enumerate(release.workload.groups))
    others = [(i, g) for i, g in groups if not g.is_marginal and len(g) <= QUERIES][:GROUPS]
    found = each(release, [g for _, g in others], lambda some: release.error(some, coverage=COVERAGE))
    apart = dict(zip((i for i, _ in others), found, strict=True))
    rows = []
    for i, group in groups:
        bars = known.get(tuple(places[a] for a in group.scope)) if group.is_marginal else apart.get(i)
        rows.append({"name": group.name, "queries": len(group), **_bars(bars)})
    return rows


def _bars(bars: FloatArray | None) -> dict[str, Any]:
    if bars is None or not np.isfinite(bars).any():
        return {"median": None, "largest": None, "looked": bars is not None}
    finite = bars[np.isfinite(bars)]
    return {"median": float(np.median(finite)), "largest": float(finite.max()), "looked": True}


def _limits(manifest: Mapping[str, Any]) -> list[dict[str, float]]:
    """Noisy sizes of the join as the ledger has them: how far one unit moved each, and its noise."""
    from dpjoin.released.report.cost import told

    # Those of a part are sizes of something else.
    some = [e for e in manifest["ledger"]["events"] if e["purpose"] == "join size" and "part" not in e]
    events = [e for e in map(told, some) if e["noisy"] is not None and e["bar"] is not None]
    return [{key: e[key] for key in ("moves", "noisy", "bar")} for e in events]
