"""The page of a release: a function of its manifest, its model and its synthetic rows, and of nothing else.

The same folder gives the same bytes, on any day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpjoin.page.shell import html_page
from dpjoin.released.package import ROWS_FILE, title
from dpjoin.released.release import Release
from dpjoin.released.report.cost import cost_of
from dpjoin.released.report.explorer import attributes_of, has_all_known, marginals_of, sample_of
from dpjoin.released.report.trust import trust_of
from dpjoin.spec.hypergraph import describe_join
from dpjoin.spec.persons import protects
from dpjoin.spec.plain import ROW

REPORT = "report.html"
REPORT_SCRIPTS = ("select.js", "explorer.js", "trust.js", "cost.js", "use.js", "release.js")


def report_page(release: Release, manifest: Mapping[str, Any], hashes: Mapping[str, str]) -> str:
    """The page; `hashes` are those of the folder's other files, the manifest apart, which has the page's own."""
    return html_page(title(release.schema), report_data(release, manifest, hashes), REPORT_SCRIPTS)


def report_data(release: Release, manifest: Mapping[str, Any], hashes: Mapping[str, str]) -> dict[str, Any]:
    """What the page holds."""
    marginals = marginals_of(release)
    return {
        "kind": "release",
        "about": _about(release, manifest),
        "attributes": attributes_of(release),
        "explorer": {
            "marginals": [m.packed() for m in marginals],
            "complete": has_all_known(release, marginals),
            "sample": sample_of(release),
        },
        "trust": trust_of(release, manifest, marginals),
        "cost": cost_of(manifest),
        "files": {name: digest for name, digest in sorted(hashes.items()) if name != REPORT},
    }


def _about(release: Release, manifest: Mapping[str, Any]) -> dict[str, Any]:
    promised, size = manifest["guarantee"], "SELECT COUNT(*) FROM joined"
    return {
        "title": title(release.schema),
        "join": describe_join(release.schema),
        "tables": [t.name for t in release.schema.tables],
        "public": [t.name for t in release.schema.tables if not t.private],
        "rows": manifest["rows"]["count"],
        "each_stands_for": manifest["rows"]["each_stands_for"],
        "size": [float(release.answer(size)[0]), float(release.error(size)[0])],
        "epsilon": promised["epsilon"],
        "delta": promised["delta"],
        "unit": ", ".join(release.schema.unit) or ROW,
        "neighbours": protects(release.schema),
        "also_protects": manifest["facts"].get("also_protects", ""),
        "assumptions": manifest["assumptions"],
        "method": manifest["method"],
        "profile": manifest["profile"],
        "facts": {key: value for key, value in manifest["facts"].items() if key != "also_protects"},
        "version": manifest["dpjoin"],
        "format": manifest["format"],
        "file": ROWS_FILE,
    }
