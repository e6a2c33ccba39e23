"""The pages of plans and comparisons in Chromium: drawn without a word, and fit for everybody."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import chromium
from dpjoin.auto.plan import plan
from dpjoin.auto.plan_page import plan_page
from dpjoin.compare import compare, comparison_page
from dpjoin.spec.toml import Spec
from support.paths import FIXTURES, ROOT

pytestmark = pytest.mark.skipif(bool(chromium.missing()), reason=chromium.missing() or "there is a browser")
DEMO = ROOT / "src" / "dpjoin" / "data" / "demo.toml"
OLD = FIXTURES / "releases-0.1"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.chromium() as driver:
        yield driver


def pages() -> dict[str, str]:
    spec = Spec.from_toml(DEMO)
    return {
        "plan": plan_page(spec, plan(spec), degree=40),
        "releases": comparison_page(compare(OLD / "heavy-and-light", OLD / "capped")),
        "plan and release": comparison_page(compare(DEMO, OLD / "paper")),
    }


def test_they_open_and_axe_finds_nothing(browser: Any, tmp_path: Path) -> None:
    """No console message; every drawing has a table; light and dark."""
    axe = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    for name, content in pages().items():
        page = tmp_path / f"{name}.html"
        page.write_text(content, encoding="utf-8")
        for scheme in ("light", "dark"):
            chromium.media(browser, scheme=scheme)
            browser.get(page.as_uri())
            assert browser.execute_script("return document.documentElement.dataset.ready") == "true", name
            browser.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true })")
            browser.execute_script(axe)
            found = browser.execute_async_script(
                "const done = arguments[0]; axe.run(document)"
                ".then((r) => done(r.violations.map((v) => [v.id, v.nodes[0].html])))"
            )
            assert found == [], (name, scheme)
        assert [line["message"] for line in browser.get_log("browser")] == []
        counts = browser.execute_script("return ['figure', 'table'].map((t) => document.querySelectorAll(t).length)")
        assert counts[1] >= counts[0]
    chromium.media(browser)


def test_a_plan_draws_its_numbers(browser: Any, tmp_path: Path) -> None:
    """The table behind the curve says what the plan forecasts, and points fall as it does."""
    spec = Spec.from_toml(DEMO)
    page = tmp_path / "plan.html"
    page.write_text(plan_page(spec, plan(spec), degree=40), encoding="utf-8")
    browser.get(page.as_uri())
    rows = browser.execute_script(
        "return [...document.querySelectorAll('#error table')].pop().querySelectorAll('tbody tr').values()"
        ".map((r) => [...r.children].map((c) => c.textContent)).toArray()"
    )
    one = next(cell for epsilon, cell in rows if epsilon == "1")
    assert one == f"{plan(spec, degree=40).expected[0].cell:,.0f}"
    heights = browser.execute_script(
        "return [...document.querySelectorAll('#error figure')].pop().querySelector('.line')"
        ".getAttribute('d').match(/[-\\d.]+/g).map(Number).filter((_, i) => i % 2)"
    )
    assert len(heights) == len(rows)
    assert heights == sorted(heights), "less noise further to the right"
