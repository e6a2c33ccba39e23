"""The documentation as a site: the reference is the program itself, no page warns, and a search finds all there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import pages
from dpjoin.spec.plain import KEYS
from support.paths import ROOT


@pytest.mark.parametrize(("name", "made"), [(pages.CLI, pages.cli_page), (pages.PYTHON, pages.python_page)])
def test_the_reference_is_the_programs_own(name: str, made: object) -> None:
    """If not: python tools/pages.py --write."""
    assert callable(made)
    assert (ROOT / name).read_text(encoding="utf-8") == made()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built apart from the repository's build folder; a warning stops it."""
    folder = tmp_path_factory.mktemp("site")
    pages.copy_pages(folder / "pages")
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("build/", f"{folder}/")
    (folder / "mkdocs.yml").write_text(config, encoding="utf-8")
    code, warnings = pages.build(folder / "mkdocs.yml")
    assert code == 0, warnings
    return folder / "site"


def test_a_warning_is_an_error(tmp_path: Path) -> None:
    """A page that no menu names, and a link that leads nowhere."""
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text("# One\n")
    config = tmp_path / "mkdocs.yml"
    strict = "validation: {nav: {omitted_files: warn}}"
    folders = f"docs_dir: {tmp_path}/pages\nsite_dir: {tmp_path}/site"
    config.write_text(f"site_name: x\n{strict}\n{folders}\nnav: [{{One: index.md}}]\n")
    assert pages.build(config) == (0, "")
    (tmp_path / "pages" / "index.md").write_text("# One\n[no](nowhere.md)\n")
    assert pages.build(config)[0] != 0
    (tmp_path / "pages" / "index.md").write_text("# One\n")
    (tmp_path / "pages" / "two.md").write_text("# Two\n")
    assert "two.md" in pages.build(config)[1]


def test_a_search_finds_every_key_and_every_option(site: Path) -> None:
    """Of the spec and of the command line."""
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = " ".join(entry["text"] for entry in index["docs"])
    words = set(re.findall(r"[\w-]+", found))
    assert {key for keys in KEYS.values() for key in keys} <= words
    options = set(re.findall(r"--[a-z][a-z-]+", pages.cli_page()))
    assert len(options) > 10
    assert options <= words


def test_pages_read_the_same_on_a_forge_and_on_the_site(site: Path) -> None:
    """As many items, tables, blocks and words in italics: the two kinds of Markdown nest lists differently."""
    forge = MarkdownIt("commonmark").enable("table")
    for page in (page for pattern in pages.PAGES for page in ROOT.glob(pattern)):
        name = page.relative_to(ROOT).with_name("index.html" if page.name == "README.md" else f"{page.stem}.html")
        _, _, article = (site / name).read_text(encoding="utf-8").partition("<article")
        for tag in ("li", "table", "tr", "pre", "em", "strong"):
            there, here = (
                len(re.findall(f"<{tag}[ >]", text))
                for text in (forge.render(page.read_text(encoding="utf-8")), article.partition("</article>")[0])
            )
            assert here == there, f"{page.name}: {here} <{tag}> on the site, {there} on a forge"


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    """Pages open from a folder, without a network: no style, script, font or picture of another place."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r'<(?:script|img|iframe)[^>]* src="([^"]*)"|<link[^>]* href="([^"]*)"', text)
        assert [url for pair in fetched for url in pair if url.startswith(("http:", "https:", "//"))] == []
