"""report.html: one file that holds what the folder holds, asks nobody, and cannot be left by any text in it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.auto.plan import plan
from dpjoin.model.terms import SINGLE_CELLS
from dpjoin.page.shell import json_data, script_of
from dpjoin.released.files import report_of
from dpjoin.released.report.cost import told
from dpjoin.released.report.explorer import SHOWN_CELLS, UNKNOWN, each, has_all_known, marginals_of, sample_of
from dpjoin.released.report.page import REPORT_SCRIPTS, report_data, report_page
from dpjoin.spec.sql import read_query
from support.paths import FIXTURES
from support.release import BUDGET, SCHEMA, make_tables
from support.reports import HOSTILE, every_kind_release, hostile_release, wide_release
from support.shop import make_shop, run


class Page(HTMLParser):
    """The elements of a page, and the text inside its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}", {}))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] in self.inside:
            self.inside[self.elements[-1][0]].append(data)

    @property
    def data(self) -> Any:
        return json.loads(self.inside["script"][0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    release = dj.release(SCHEMA, dj.Workload.marginals(SCHEMA, 2), make_tables(2_000, 200), BUDGET)
    return release.save(tmp_path_factory.mktemp("report") / "out")


@pytest.mark.parametrize("name", sorted(p.name for p in (FIXTURES / "releases-0.1").iterdir() if p.is_dir()))
def test_it_is_a_function_of_the_loaded_folder(name: str, tmp_path: Path) -> None:
    """Every kind of model: the same bytes from what was saved, from what was loaded, and once more."""
    saved = dj.load(FIXTURES / "releases-0.1" / name).save(tmp_path / "out")
    page = (saved / "report.html").read_text(encoding="utf-8")
    assert page == report_of(saved) == report_of(saved)


def test_a_release_that_was_just_made_says_what_its_folder_says(folder: Path) -> None:
    assert (folder / "report.html").read_text(encoding="utf-8") == report_of(folder)


def test_so_does_one_that_is_large_enough_for_single_precision(tmp_path: Path) -> None:
    """Its bars are those of the model as it is loaded, to the last bit."""
    tables = (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "b", "c")))
    domains = {"k": {"key": True}, "a": {"range": (0, 39)}, "b": {"range": (0, 39)}, "c": {"range": (0, 19)}}
    schema = dj.Schema(tables, tuple(dj.Attribute(name=a, **domain) for a, domain in domains.items()))
    rng = np.random.default_rng(1)
    rows = {t.name: pa.table({a: rng.integers(0, 20, 2_000) for a in t.attributes}) for t in tables}
    workload = dj.Workload.marginals(schema, [("a", "b"), ("b", "c")])
    release = dj.release(schema, workload, rows, BUDGET, method="clipped")
    assert release.model.domain.cells > SINGLE_CELLS
    folder = release.save(tmp_path / "out")
    bars = [r.error("SELECT a, b, COUNT(*) FROM joined GROUP BY a, b").tolist() for r in (release, dj.load(folder))]
    assert bars[0] == bars[1]
    assert (folder / "report.html").read_text(encoding="utf-8") == report_of(folder)


def test_it_holds_the_manifest_s_hashes_and_not_its_own(folder: Path) -> None:
    stated = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["sha256"]
    held = Page(report_of(folder)).data["files"]
    assert held == {name: digest for name, digest in stated.items() if name != "report.html"}
    assert hashlib.sha256((folder / "report.html").read_bytes()).hexdigest() == stated["report.html"]


def test_the_policy_allows_its_own_script_and_nothing_else(folder: Path) -> None:
    """No source, no address, no handler and no style in an attribute; both hashes are of what stands there."""
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    (policy,) = [a["content"] for t, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    (style,), script = page.inside["style"], page.inside["script"][1]
    for kind, content in (("style", style), ("script", script)):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    for tag, attributes in page.elements:
        assert not {"src", "style"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("href") in (None, "data:,"), tag
    addresses = set(re.findall(r"\w+://[^\s\"'`)]+", script + style))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a namespace, not an address


def test_it_is_small(folder: Path) -> None:
    """Under 1 MB besides the data: in fact a tenth of that."""
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert len(page) - len(json_data(Page(page).data)) < 100_000


@pytest.mark.parametrize("name", ["one-model", "join-of-models", "junction-tree", "capped"])
def test_its_numbers_are_those_of_ask(name: str) -> None:
    """Every marginal on the page, bit for bit."""
    release = dj.load(FIXTURES / "releases-0.1" / name)
    for marginal in marginals_of(release):
        names = [release.attributes[i] for i in marginal.scope]
        answers = release.ask(f"SELECT {', '.join(names)}, COUNT(*) FROM joined GROUP BY ALL")
        assert marginal.counts.tolist() == [numbers[0] for _, numbers, _ in answers.rows]
        bars = [b if np.isfinite(b) else None for b in marginal.bars.tolist()]
        assert bars == [bars[0] for _, _, bars in answers.rows]


def test_names_that_duckdb_reads_otherwise_are_quoted() -> None:
    """Statements on the page can be asked, whatever attributes are called; DuckDB says which words it has taken."""
    import duckdb

    source = script_of(["select.js"])
    words = re.search(r"RESERVED = new Set\(\((.*?)\)", source, flags=re.DOTALL)
    assert words is not None
    quoted = set(" ".join(re.findall(r'"([^"]*)"', words[1])).split())
    taken = duckdb.sql("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'").fetchall()
    for (word,) in taken:
        schema = dj.Schema((dj.Table(name="t", attributes=(word,)),), (dj.Attribute(name=word, range=(0, 1)),))
        name = f'"{word}"' if word in quoted else word
        assert read_query(schema, f"SELECT {name}, COUNT(*) FROM joined WHERE {name} = 1 GROUP BY {name}"), word


def test_its_rows_are_the_first_synthetic_rows() -> None:
    """Codes, of each kind of attribute."""
    release = every_kind_release()
    sample, rows = sample_of(release), release.to_arrow(bins=True)
    assert sample["rows"] == sample["of"] == rows.num_rows
    for name, column in zip(release.attributes, sample["columns"], strict=True):
        codes = np.frombuffer(base64.b64decode(column["codes"]), dtype=f"u{column['kind']}")
        attribute = release.schema.attribute(name)
        shown = rows[f"{name}_bin" if attribute.bins is not None else name].to_pylist()
        labels = ["other" if label is None else str(label) for label in attribute.labels]
        assert [labels[c] for c in codes] == ["other" if value is None else str(value) for value in shown]


def test_many_attributes_stay_within_the_page_s_limits() -> None:
    """Of 60 attributes: every one by itself, then pairs that were measured, up to the limit."""
    release = wide_release(60)
    marginals = marginals_of(release)
    cells = sum(len(m.counts) for m in marginals)
    assert cells <= SHOWN_CELLS
    assert {m.scope for m in marginals} > {(i,) for i in range(60)}
    assert sum(np.isfinite(m.bars).all() for m in marginals) == 60 + 59, "all that were measured"
    assert len(marginals) == 60 + 59 + UNKNOWN
    assert has_all_known(release, marginals)
    assert not has_all_known(release, [m for m in marginals if m.scope != (3, 4)])
    assert len(report_page(release, release.manifest(), {})) < 5_000_000


def test_what_the_model_cannot_tell_is_left_out() -> None:
    """A marginal that would grow too large does not take the others with it."""
    release = wide_release(12)
    asked = dj.Workload.marginals(release.schema, 1).groups

    def ask(some: dj.Workload) -> Any:
        if asked[7] in some.groups:
            raise dj.ReleaseError("too large")
        return release.answer(some)

    found = each(release, asked, ask)
    assert [i for i, own in enumerate(found) if own is None] == [7]
    for i, own in enumerate(found):
        if own is not None:
            assert own.tolist() == release.answer(dj.Workload(release.schema, (asked[i],))).tolist()


def test_no_text_can_end_the_data() -> None:
    """Hostile names and labels appear once, as data, and come out as they went in."""
    release = hostile_release()
    page = Page(report_page(release, release.manifest(), {}))
    assert [t for t, _ in page.elements].count("script") == 2
    assert {a["name"] for a in page.data["attributes"]} == {HOSTILE[0], "n"}
    assert page.data["attributes"][0]["labels"] == list(HOSTILE)
    assert not {"img", "b", "iframe"} & {t for t, _ in page.elements}


def test_infinity_is_nothing() -> None:
    assert json.loads(json_data({"a": [float("inf"), float("nan"), 1.5]})) == {"a": [None, None, 1.5]}


def test_no_name_is_declared_twice_in_its_script() -> None:
    """The modules become one script."""
    names = re.findall(
        r"^(?:async )?(?:const|let|function|class) (\w+)", script_of(("dom.js", *REPORT_SCRIPTS)), flags=re.M
    )
    assert len(names) == len(set(names))
    assert not re.search(r"^(import|export) ", script_of(REPORT_SCRIPTS), flags=re.M)


def test_scripts_put_text_on_the_page_as_text() -> None:
    script = script_of((*REPORT_SCRIPTS, "dom.js", "charts.js", "numbers.js"))
    forbidden = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Date",
        "fetch(",
        'setTimeout("',
    )
    assert [word for word in forbidden if word in script] == []


def test_charges_are_told_in_the_units_of_what_was_asked() -> None:
    """A size in 1024ths: noise, move and result are join results."""
    event = {
        "mechanism": "discrete Gaussian", "purpose": "join size", "cost": {"rho": "1/100", "delta": "0"},
        "moves": "38912", "parameters": {"variance": "1048576", "unit": "1/1024"}, "noisy": 343663700,
    }  # fmt: skip
    shown = told(event)
    assert (shown["moves"], shown["deviation"], shown["currency"], shown["cost"]) == (38.0, 1.0, "rho", 0.01)
    assert shown["noisy"] == pytest.approx(335_609.08, abs=0.01)
    laplace = told(event | {"parameters": {"scale": "2"}, "cost": {"rho": "0", "delta": "0", "laplace_epsilon": "1/2"}})
    assert laplace["deviation"] == pytest.approx(2 * 2**0.5)
    assert laplace["currency"] == "laplace_epsilon"


def test_shares_of_the_budget_add_up(folder: Path) -> None:
    """What the charges cost is what the manifest says was spent, where no rows are looked at in parts."""
    release = dj.load(FIXTURES / "releases-0.1" / "one-model")
    cost = report_data(release, release.manifest(), {})["cost"]
    rho = sum(e["cost"] for e in cost["events"] if e["currency"] == "rho")
    assert rho == pytest.approx(cost["totals"]["rho"])
    assert sum(cost["stages"]["rho"].values()) == pytest.approx(cost["totals"]["rho"])
    # Rows of one table pay nothing for a look at another: ranks of two tables cost what those of one do.
    parts = dj.load(FIXTURES / "releases-0.1" / "capped")
    cost = report_data(parts, parts.manifest(), {})["cost"]
    ranks = [e["cost"] for e in cost["events"] if e["stage"] == "ranks"]
    assert len(ranks) == 2
    assert cost["stages"]["rho"]["ranks"] == pytest.approx(max(ranks))
    assert sum(cost["stages"]["rho"].values()) == pytest.approx(cost["totals"]["rho"])


def test_what_was_planned_stands_beside_what_was_spent(folder: Path) -> None:
    """The plan's own stages, which add up to the whole budget."""
    told = Page(report_of(folder)).data["cost"]["planned"]
    stages = plan(SCHEMA, dj.Workload.marginals(SCHEMA, 2), BUDGET).stages
    assert [(s["name"], s["mechanism"]) for s in told] == [(s.name, s.mechanism) for s in stages]
    assert [s["share"] for s in told] == pytest.approx([s.share for s in stages], rel=1e-3)
    assert sum(s["share"] for s in told) == pytest.approx(1.0, abs=1e-3)


def test_bars_of_the_ledger_hold_nine_times_in_ten() -> None:
    """Of Gaussian and of Laplace noise; none is told of truncated noise."""
    event = {"mechanism": "m", "purpose": "join size", "cost": {"rho": "1"}, "moves": "1", "noisy": 5}
    assert told(event | {"parameters": {"variance": "4"}})["bar"] == pytest.approx(2 * 1.6449, rel=1e-4)
    assert told(event | {"parameters": {"scale": "3"}})["bar"] == pytest.approx(3 * 2.3026, rel=1e-4)
    assert told(event | {"parameters": {"variance": "4", "half_width": 9}})["bar"] is None


def test_report_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """It says where the page is, writes it where it is missing, and overwrites nothing."""
    old = shutil.copytree(folder, tmp_path / "old")
    assert run(capsys, "report", str(old)) == (0, "", f"the page is {old / 'report.html'}\n")
    page = (old / "report.html").read_bytes()
    (old / "report.html").unlink()
    assert run(capsys, "report", str(old)) == (0, "", f"wrote {old / 'report.html'}\n")
    assert (old / "report.html").read_bytes() == page
    code, _, err = run(capsys, "report", str(old), "-o", str(old / "report.html"))
    assert (code, "exists already" in err) == (2, True)
    code, _, err = run(capsys, "report", str(tmp_path))
    assert (code, "not a release folder" in err) == (2, True)


def test_open_hands_the_page_to_a_browser(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a file's address; where there is no browser it says so."""
    asked: list[str] = []
    monkeypatch.setattr("webbrowser.open", asked.append)
    code, _, err = run(capsys, "report", str(folder), "--open")
    assert (code, asked) == (0, [(folder / "report.html").as_uri()])
    assert "no browser could be started" in err


def test_a_release_from_a_spec_has_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_shop(tmp_path)
    assert run(capsys, "release", str(tmp_path / "shop.toml"), "-o", str(tmp_path / "out"))[0] == 0
    assert (tmp_path / "out" / "report.html").read_text(encoding="utf-8") == report_of(tmp_path / "out")
