"""One self-contained HTML file: styles and scripts by hash, the content as data that no text in it can leave.

The file asks nobody for anything: its policy forbids every request, and every script and style that it does not hold.
Content is JSON; the scripts put it on the page as text, never as markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import numpy as np

COMMON_SCRIPTS = ("dom.js", "numbers.js", "charts.js")
"""What every page has, in this order."""
STYLES = ("look.css", "charts.css")


def html_page(title: str, data: Mapping[str, Any], parts: Sequence[str]) -> str:
    """A page that shows this data by these scripts; its language is English."""
    style, script = _joined(STYLES), script_of((*COMMON_SCRIPTS, *parts))
    policy = (
        f"default-src 'none'; script-src {_hash_of(script)}; style-src {_hash_of(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{_text(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main id="page"><noscript><p>This page draws itself with the script inside it, which needs JavaScript and no network.
The same numbers are in manifest.json and README.md.</p></noscript></main>
<script type="application/json" id="data">{json_data(data)}</script>
<script>{script}</script>
</body>
</html>
"""


def json_data(data: Mapping[str, Any]) -> str:
    """JSON that cannot end a script element: all of it is ASCII, without <, > and &.

    >>> json_data({"</script>": "é"})
    '{"\\\\u003c/script\\\\u003e":"\\\\u00e9"}'
    """
    text = json.dumps(_finite(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """JSON has no infinity and no nan: null."""
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def packed(array: Any, kind: str = "<f8") -> str:
    """The bytes of an array in base64: every bit of a number, in eleven characters."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode("ascii")


def script_of(parts: Sequence[str]) -> str:
    """Modules as one script: they import from one another only, so their names are names of the whole.

    No line break comes at the end, since the hash is of every character.
    """
    source = _joined(parts)
    source = re.sub(r"^import .*$\n?", "", source, flags=re.MULTILINE)
    source = re.sub(r"^export (?=(?:const|function|class|async) )", "", source, flags=re.MULTILINE)
    return f'(function () {{\n"use strict";\n{source}}})();'


def _joined(names: Sequence[str]) -> str:
    folder = files("dpjoin") / "page" / "web"
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def _hash_of(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


def _text(title: str) -> str:
    """A title as text; a long one is cut."""
    # A lone surrogate cannot be written at all.
    cut = (title if len(title) <= 200 else title[:199] + "…").encode("utf-8", "replace").decode("utf-8")
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
