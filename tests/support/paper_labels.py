"""The numbered things of the paper, read off its source: kind, number, label. Its text is not part of the project.

`python tests/support/paper_labels.py ../shared/paper.tex` writes tests/fixtures/paper_labels.json anew.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

FIXTURE = Path(__file__).resolve().parents[1] / "fixtures" / "paper_labels.json"
PAPER = Path(__file__).resolve().parents[3] / "shared" / "paper.tex"
SHARED = ("definition", "theorem", "lemma", "example", "corollary", "proposition", "claim")
"""Numbered together within a section."""
TOKEN = re.compile(
    r"\\(?P<cut>appendix\b|ifbeforepasinchange|else|fi)|\\(?P<section>(?:sub)*section)\{"
    r"|\\begin\{(?P<begin>\w+\*?)\}|\\end\{(?P<end>\w+\*?)\}|\\label\{(?P<label>[^}]*)\}"
)


def whole(source: str) -> str:
    """The files of the source put together as \\input says, without comments."""
    files = dict(re.findall(r"^%% file: (\S+)\n(.*?)(?=^%% file: |\Z)", source, flags=re.DOTALL | re.MULTILINE))

    def put(name: str) -> str:
        text = re.sub(r"(?<!\\)%.*", "", files[name])
        return re.sub(r"\\input\{([\w-]+)\}", lambda found: put(f"{found[1]}.tex"), text)

    return put("main.tex").split(r"\begin{document}")[1]


def numbered(source: str) -> list[dict[str, str]]:
    """Every section, theorem-like thing, algorithm, figure and equation with its number and its label (or none)."""
    found: list[dict[str, str]] = []
    open_things: list[dict[str, str]] = []
    counts = {
        "section": 0,
        "subsection": 0,
        "subsubsection": 0,
        "shared": 0,
        "figure": 0,
        "algorithm": 0,
        "equation": 0,
    }
    letters, skipped, current = False, False, ""
    for token in TOKEN.finditer(whole(source)):
        kind = token["begin"] or ""
        if token["cut"] == "ifbeforepasinchange":
            skipped = True
        elif token["cut"] in ("else", "fi"):
            skipped = False
        elif skipped:
            continue
        elif token["cut"] == "appendix":
            if not letters:
                counts["section"] = 0
            letters = True
        elif token["section"]:
            depth = token["section"].count("sub")
            names = ("section", "subsection", "subsubsection")
            counts[names[depth]] += 1
            for deeper in names[depth + 1 :]:
                counts[deeper] = 0
            if depth == 0:
                counts["shared"] = 0
                current = chr(64 + counts["section"]) if letters else str(counts["section"])
            number = ".".join([current, *(str(counts[n]) for n in names[1 : depth + 1])])
            found.append({"kind": "section", "number": number, "label": ""})
        elif kind in SHARED:
            counts["shared"] += 1
            found.append({"kind": kind, "number": f"{current}.{counts['shared']}", "label": ""})
            open_things.append(found[-1])
        elif kind in ("figure", "algorithm", "equation", "equation*"):
            name = kind.rstrip("*")
            counts[name] += not kind.endswith("*")
            number = "" if kind.endswith("*") else str(counts[name])
            found.append({"kind": name, "number": number, "label": ""})
            open_things.append(found[-1])
        elif token["end"] and token["end"] in (*SHARED, "figure", "algorithm", "equation", "equation*"):
            open_things.pop()
        elif token["label"]:
            (open_things or found)[-1]["label"] = token["label"]
    return [thing for thing in found if thing["label"] or thing["kind"] != "section"]


if __name__ == "__main__":
    things = numbered(Path(sys.argv[1]).read_text(encoding="utf-8"))
    FIXTURE.write_text("[\n" + ",\n".join(json.dumps(t) for t in things) + "\n]\n", encoding="utf-8")
