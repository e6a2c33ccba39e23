"""A plan as a page, and two releases or plans side by side: functions of public files, numbers as the plan has them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.auto.plan import plan
from dpjoin.auto.plan_page import EPSILONS, plan_data, plan_page
from dpjoin.compare import compare, comparison_page
from dpjoin.spec.toml import Spec
from support.paths import FIXTURES, ROOT
from support.shop import make_shop, run

DEMO = Spec.from_toml(ROOT / "src" / "dpjoin" / "data" / "demo.toml")
OLD = FIXTURES / "releases-0.1"


def data_of(page: str) -> Any:
    (held,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(held)


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """Of the demo, for those who expect a degree of 40."""
    return plan_data(DEMO, plan(DEMO), degree=40)


def test_curves_are_the_plan_s_own_forecasts(told: dict[str, Any]) -> None:
    """Each point is what a plan at this degree and epsilon says; more epsilon and smaller degrees mean less noise."""
    for point in told["by_degree"]:
        (expected,) = plan(DEMO, degree=point["at"]).expected
        assert (point["cell"], point["count"], point["sensitivity"]) == (
            expected.cell,
            expected.count,
            expected.sensitivity,
        )
    assert 40 in [p["at"] for p in told["by_degree"]]
    (curve,) = told["by_epsilon"]
    assert [p["at"] for p in curve["points"]] == sorted(EPSILONS)
    for point in curve["points"]:
        other = replace(DEMO, budget=dj.Budget(epsilon=point["at"], delta=DEMO.budget.delta))
        assert point["cell"] == plan(other, degree=40).expected[0].cell
    cells = [p["cell"] for p in curve["points"]]
    assert cells == sorted(cells, reverse=True)
    degrees = [p["cell"] for p in told["by_degree"]]
    assert degrees == sorted(degrees)


def test_the_same_spec_gives_the_same_page() -> None:
    first, second = (plan_page(DEMO, plan(DEMO), degree=40) for _ in range(2))
    assert first == second
    assert data_of(first)["plan"]["method"] == "auto"


def test_tables_are_drawn_with_what_joins_them(told: dict[str, Any]) -> None:
    assert [(t["name"], t["depth"]) for t in told["tables"]] == [("flights", 0), ("weather", 1)]
    assert told["edges"] == [{"from": "flights", "to": "weather", "on": ["hour", "origin"]}]


def test_a_cyclic_join_has_an_edge_for_every_pair_that_shares() -> None:
    pairs = {"r": ("a", "b"), "s": ("b", "c"), "t": ("c", "a")}
    schema = dj.Schema(
        tuple(dj.Table(name=n, attributes=(*some, f"v{n}")) for n, some in pairs.items()),
        (
            *(dj.Attribute(name=a, range=(0, 2)) for a in "abc"),
            *(dj.Attribute(name=f"v{n}", range=(0, 1)) for n in pairs),
        ),
    )
    spec = Spec(schema, dj.Workload.marginals(schema, 1), dj.Budget(epsilon=1.0, delta=1e-6))
    told = plan_data(spec, plan(spec))
    assert {(e["from"], e["to"], *e["on"]) for e in told["edges"]} == {
        ("r", "s", "b"),
        ("r", "t", "a"),
        ("s", "t", "c"),
    }
    assert {t["depth"] for t in told["tables"]} == {None}


def test_one_table_has_no_degrees_and_a_curve_along_epsilon() -> None:
    schema = dj.Schema((dj.Table(name="t", attributes=("x",)),), (dj.Attribute(name="x", range=(0, 3)),))
    spec = Spec(schema, dj.Workload.marginals(schema, 1), dj.Budget(epsilon=1.0, delta=1e-6))
    told = plan_data(spec, plan(spec))
    assert told["by_degree"] == []
    assert len(told["by_epsilon"]) == 1


def test_plan_html_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It opens no table, writes a new file, and refuses what is none."""
    make_shop(tmp_path)
    for table in tmp_path.glob("*.parquet"):
        table.unlink()
    spec, page = str(tmp_path / "shop.toml"), tmp_path / "plan.html"
    assert run(capsys, "plan", spec, "--html", str(page))[0] == 0
    assert {t["name"] for t in data_of(page.read_text(encoding="utf-8"))["tables"]} == {"visits", "offers"}
    code, _, err = run(capsys, "plan", spec, "--html", str(page))
    assert (code, "exists already" in err) == (2, True)
    code, _, err = run(capsys, "plan", spec, "--html", str(tmp_path / "plan.pdf"))
    assert (code, "must end in .html" in err) == (2, True)


def test_releases_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    """The facts of both; medians of bars of the groups that both answer, as `release.error` has them."""
    found = compare(OLD / "capped", OLD / "heavy-and-light")
    release = dj.load(OLD / "capped")
    for name, a, b in found.groups:
        group = next(g for g in release.workload.groups if g.name == name)
        assert a == pytest.approx(float(np.nanmedian(release.error(dj.Workload(release.schema, (group,))))))
        assert b is not None
    assert found.groups
    assert ("method", "capped (tight)", "hybrid (tight)") in found.facts
    assert sum(found.a.shares.values()) == pytest.approx(1.0)
    code, out, _ = run(capsys, "compare", str(OLD / "capped"), str(OLD / "heavy-and-light"))
    assert code == 0
    assert "hybrid (tight)" in out
    assert "ratio" in out
    code, out, _ = run(capsys, "compare", str(OLD / "capped"), str(OLD / "paper"), "--json")
    assert json.loads(out)["a"]["name"] == "capped"


def test_a_plan_and_a_release_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan knows no bars, and says so; the page is a new file."""
    make_shop(tmp_path)
    spec, page = str(tmp_path / "shop.toml"), tmp_path / "compared.html"
    code, out, _ = run(capsys, "compare", spec, str(OLD / "one-model"))
    assert code == 0
    found = compare(spec, OLD / "one-model")
    assert (found.a.kind, found.b.kind) == ("plan", "release")
    assert {a for _, a, _ in found.groups} <= {None}
    assert run(capsys, "compare", spec, str(OLD / "one-model"), "--html", str(page))[0] == 0
    assert page.read_text(encoding="utf-8") == comparison_page(found)
    assert "shop.toml" in out


def test_what_is_neither_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, words in (
        (tmp_path / "missing", "must be a release folder or a spec"),
        (tmp_path, "not a release folder"),
    ):
        code, _, err = run(capsys, "compare", str(path), str(OLD / "one-model"))
        assert code == 2
        assert words in err
