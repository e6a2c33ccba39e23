"""What Python offers: names that are listed, a plan from parts, and our own errors for wrong types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpjoin as dj
from support.asked import SCHEMA, release_of_one_table

WORKLOAD = dj.Workload.marginals(SCHEMA, 2)
BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


@pytest.fixture(scope="module")
def released() -> dj.Release:
    return release_of_one_table()


def test_dir_lists_what_there_is() -> None:
    """Every name that is listed is there, also before it was used first; nothing that is offered is left out."""
    assert set(dj.__all__) <= set(dir(dj))
    assert all(getattr(dj, name) is not None for name in dir(dj))
    assert {"plan", "release", "load", "evaluate", "Release", "Schema", "Workload", "Budget"} <= set(dir(dj))
    with pytest.raises(AttributeError, match="has no attribute 'plam'"):
        dj.plam  # noqa: B018


def test_a_plan_needs_no_spec_file() -> None:
    """Schema, workload and budget say as much as a spec made of them."""
    spec = dj.Spec(SCHEMA, WORKLOAD, BUDGET)
    assert dj.plan(SCHEMA, WORKLOAD, BUDGET) == dj.plan(spec)
    assert dj.plan(SCHEMA, WORKLOAD, BUDGET, profile="paper", degree=3) == dj.plan(spec, profile="paper", degree=3)
    assert dj.plan(spec, profile="paper").profile == "paper"


OTHER = dj.Schema((dj.Table(name="r", attributes=("a",)),), (dj.Attribute(name="a", range=(0, 1)),))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: dj.plan(3), "what is planned (3) must be a dj.Spec"),
        (lambda: dj.plan(SCHEMA), "workload (None) must be a dj.Workload; a plan needs all three"),
        (lambda: dj.plan(SCHEMA, WORKLOAD, (1, 1e-6)), "budget ((1, 1e-06)) must be a dj.Budget"),
        (lambda: dj.plan(OTHER, WORKLOAD, BUDGET), "workload must be built from the schema"),
        (lambda: dj.plan(dj.Spec(SCHEMA, WORKLOAD, BUDGET), WORKLOAD), "a spec has its own workload and budget"),
        (lambda: dj.plan(SCHEMA, WORKLOAD, BUDGET, method="best"), "best"),
        (lambda: dj.plan(SCHEMA, WORKLOAD, BUDGET, degree=0), "degree (0) must be at least 1"),
        (lambda: dj.plan(SCHEMA, WORKLOAD, BUDGET, join_size="many"), "join_size ('many') must be a whole number"),
        (lambda: dj.load(3), "a release folder (3) must be a path"),
        (lambda: dj.evaluate("out", {}), "what is evaluated ('out') must be a release"),
        (lambda: dj.Release(1, 2, 3, 4, 5, 6, 7, 8), "a release's schema (1) must be a Schema"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_get_our_errors(wrong: Callable[[], Any], words: str) -> None:
    """One line that names what is wrong, not Python's own."""
    with pytest.raises(dj.DpjoinError) as raised:
        wrong()
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda r: r.ask(3),
        lambda r: r.ask(None),
        lambda r: r.ask("SELECT COUNT(*) FROM joined", coverage="90 %"),
        lambda r: r.answer(3),
        lambda r: r.error(["SELECT COUNT(*) FROM joined"]),
        lambda r: r.error(coverage=None),
        lambda r: r.sample("many"),
        lambda r: r.sample(-1),
        lambda r: r.sample(5, seed=0.5),
        lambda r: r.to_arrow(bins="yes"),
        lambda r: r.to_pandas(bins=1),
        lambda r: r.to_polars(bins=1),
        lambda r: r.sql(3),
        lambda r: r.save(3),
        lambda r: r.describe(coverage=90),
    ],
)
def test_wrong_questions_get_our_errors(released: dj.Release, wrong: Callable[[dj.Release], Any]) -> None:
    """Of every method of a release."""
    with pytest.raises(dj.DpjoinError) as raised:
        wrong(released)
    assert "\n" not in str(raised.value)


def test_a_notebook_shows_columns_with_bars_and_the_guarantee(released: dj.Release, tmp_path: Path) -> None:
    """Labels are text, not markup; a release that was loaded looks the same."""
    html = released._repr_html_()
    assert html.count("<table>") == 1
    assert "± 90 %" in html
    assert released.guarantee in html
    assert all(name in html for name in released.attributes)
    assert "<b>a</b>" not in html
    assert dj.load(released.save(tmp_path / "out"))._repr_html_() == html
