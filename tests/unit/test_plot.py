"""Pictures in notebooks: bars as long as `release.error` says, numbers as `release.ask` says, texts as text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import dpjoin as dj
from dpjoin.page.svg import Item, bars, heat, lines, short, ticks
from dpjoin.released.release import Release
from dpjoin.released.shown import number
from support.release import BUDGET, SCHEMA, make_tables
from support.reports import HOSTILE, hostile_release

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def release() -> Release:
    workload = dj.Workload.marginals(SCHEMA, [("a", "b"), ("c",), ("d",)])
    return dj.release(SCHEMA, workload, make_tables(3_000, 300), BUDGET)


def drawn(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(picture)


def texts(picture: str) -> list[str]:
    return [t.text or "" for t in drawn(picture).iter(f"{SVG}text")]


def spans(picture: str) -> list[tuple[float, float]]:
    """Where each error bar begins and ends, along x and then along y."""
    found = []
    for bar in drawn(picture).iter(f"{SVG}g"):
        x1, y1, x2, y2 = map(float, re.findall(r"[-\d.]+", bar[0].attrib["d"]))
        found.append((x2 - x1, y1 - y2))
    return found


def rectangles(picture: ElementTree.Element) -> list[float]:
    """The widths of all but the ground."""
    return [float(r.attrib["width"]) for r in list(picture.iter(f"{SVG}rect"))[1:]]


def test_bars_have_the_lengths_of_release_error(release: Release) -> None:
    """Against the lengths of the counts, to a fifth of a pixel; the numbers are those of ask."""
    workload = dj.Workload.marginals(SCHEMA, [("c",)])
    counts, errors = release.answer(workload), release.error(workload)
    picture = release.plot("c", kind="bars").svg
    widths = rectangles(drawn(picture))
    scale = widths[int(counts.argmax())] / counts.max()
    for width, (long, _), count, error in zip(widths, spans(picture), counts, errors, strict=True):
        assert width == pytest.approx(count * scale, abs=0.2)
        assert long == pytest.approx(2 * error * scale, abs=0.2)
    shown = release.ask("SELECT c, COUNT(*) FROM joined GROUP BY c").shown()[1]
    assert [t for t in texts(picture) if "±" in t and "bars" not in t] == [f"{n} ± {e}" for _, n, e in shown]


def test_a_line_has_them_too(release: Release) -> None:
    errors = release.error(dj.Workload.marginals(SCHEMA, [("c",)]))
    highs = [high for _, high in spans(release.plot("c", kind="lines").svg)]
    assert highs == pytest.approx(list(errors * highs[0] / errors[0]), abs=0.3)


def test_a_map_is_in_the_order_of_its_names(release: Release) -> None:
    """Rows are the first attribute's values, whatever the order in the schema."""
    for first, second in (("a", "b"), ("b", "a")):
        rows = release.ask(f"SELECT {first}, {second}, COUNT(*) FROM joined GROUP BY {first}, {second}").rows
        found = texts(release.plot(first, second).svg)
        numbers = [number(n, bar) for _, (n,), (bar,) in rows]
        assert [t for t in found if t in numbers and t not in ("0", "1", "2", "3")] == numbers


def test_what_is_not_known_is_a_question_mark(release: Release) -> None:
    picture = release.plot("a", "c", kind="bars").svg
    assert not spans(picture)
    assert texts(picture).count("?") == 20
    assert "± ?" in release.plot("a", "c").svg


def test_a_map_has_its_bars_where_they_fit() -> None:
    """Where one has no room, a pointer finds them, and what is not known is marked."""

    def map_of(columns: int, bar: str) -> str:
        def cell(row: int, column: int) -> Item:
            return Item(f"{row} · {column}", 567.0, None if row else 1.0, f"567 ± {'?' if row else bar}")

        return heat(["a", "b"], [str(c) for c in range(columns)], cell, "t")

    assert [texts(map_of(12, "34")).count(t) for t in ("567", "± 34", "± ?")] == [24, 12, 12]
    narrow = map_of(16, "12,345")
    assert [texts(narrow).count(t) for t in ("567", "567 ?")] == [16, 16]
    assert not any("±" in t for t in texts(narrow))
    assert "0 · 7: 567 ± 12,345" in [e.text for e in drawn(narrow).iter(f"{SVG}title")]


def test_it_is_chosen_by_what_is_shown(release: Release) -> None:
    """One attribute: bars, or a line where it is ordered and has many values; two: a map."""
    assert release.plot("b")._repr_svg_() == release.plot("b", kind="bars").svg
    assert release.plot("a", "b").svg == release.plot("a", "b", kind="heat").svg


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"first": "z"}, "attribute 'z' is not in this release"),
        ({"first": "a", "second": "a"}, "must be another attribute"),
        ({"first": "a", "kind": "pie"}, "kind"),
        ({"first": "a", "kind": "heat"}, "must have two attributes"),
        ({"first": "a", "second": "b", "kind": "lines"}, "must have one attribute"),
        ({"first": "a", "coverage": 2}, "coverage"),
    ],
)
def test_what_cannot_be_drawn_is_refused(release: Release, asked: dict[str, str], words: str) -> None:
    with pytest.raises(dj.DpjoinError, match=words):
        release.plot(**asked)  # type: ignore[arg-type]


def test_it_is_saved_as_svg(release: Release, tmp_path: Path) -> None:
    plot = release.plot("a", "b")
    assert plot.save(tmp_path / "a.svg").read_text(encoding="utf-8") == plot.svg
    with pytest.raises(dj.ReleaseError, match=r"must end in \.svg"):
        plot.save(tmp_path / "a.png")
    with pytest.raises(dj.ReleaseError, match="cannot be written"):
        plot.save(tmp_path / "missing" / "a.svg")


def test_hostile_texts_are_text() -> None:
    """The picture is XML with texts and shapes only; a notebook's HTML has no element of theirs."""
    made = hostile_release()
    for picture in (made.plot(HOSTILE[0]).svg, made.plot(HOSTILE[0], "n").svg):
        tags = {e.tag.removeprefix(SVG) for e in drawn(picture).iter()}
        assert tags <= {"svg", "title", "rect", "text", "path", "g", "circle"}
        assert not re.search(r"[\u202a-\u202e\u2066-\u2069]", picture), "nothing turns what follows"
    shown = made._repr_html_()
    assert "<script" not in shown
    assert "<img" not in shown


def test_a_notebook_shows_the_release_at_a_glance(release: Release) -> None:
    """A picture of each attribute, above the table of columns."""
    shown = release._repr_html_()
    assert shown.count("<svg") == 4
    assert shown.index("<svg") < shown.index("<table")


def test_edges_of_what_can_be_drawn() -> None:
    """Nothing, zeros, negative numbers and no bars."""
    nothing = [Item("x", 0.0, None, "0 ± ?")]
    for picture in (
        bars([], "t"),
        lines([], "t"),
        bars(nothing, "t"),
        lines(nothing, "t"),
        heat([], [], _no_cell, "t"),
    ):
        drawn(picture)
    below = drawn(bars([Item("x", -5.0, 1.0, ""), Item("y", 5.0, 1.0, "")], "t"))
    assert [width > 0 for width in rectangles(below)] == [True, True]
    assert (ticks(-1, 1, 2), short(-20_000)) == ([-1.0, 0.0, 1.0], "-20K")


def _no_cell(row: int, column: int) -> Item:
    raise AssertionError((row, column))
