"""docs/report.md as a PDF: `python tools/report.py [--to report.pdf]`, or `make report`.

Uses Chromium (or Chrome) without a window. Markdown is read by markdown-it-py, which rich brings along.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
STYLE = """
@page { size: A4; margin: 20mm 18mm; }
body { font: 10.5pt/1.45 "DejaVu Serif", Georgia, serif; color: #0f172a; }
h1 { font-size: 18pt; line-height: 1.25; } h2 { font-size: 13pt; margin-top: 1.6em; break-after: avoid; }
code { font: 0.85em "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
blockquote { margin: 0.8em 1.5em; font-style: italic; }
table { border-collapse: collapse; font-size: 0.85em; } td, th { border: 1px solid #cbd5e1; padding: 3px 6px; }
img { max-width: 100%; } a { color: inherit; text-decoration: none; }
"""


def page(source: Path) -> str:
    """The report as one HTML page; links to figures start at its folder."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark").enable("table").render(source.read_text(encoding="utf-8"))
    head = f'<meta charset="utf-8"><base href="{source.parent.as_uri()}/"><style>{STYLE}</style>'
    title = "<title>dpjoin: technical report</title>"
    return f"<!doctype html><html lang=en><head>{title}{head}</head><body>{body}</body></html>"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "report.pdf")
    options = parser.parse_args(arguments)
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        print("no Chromium or Chrome was found; install one (Debian: apt-get install chromium) and run this again")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "report.html"
        html.write_text(page(ROOT / "docs" / "report.md"), encoding="utf-8")
        flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile",
        ]
        target = options.to.resolve()
        command = [browser, *flags, f"--print-to-pdf={target}", html.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode or not target.exists():
        print(f"{browser} did not write {target}:\n{done.stderr[-1000:]}")
        return 1
    print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
