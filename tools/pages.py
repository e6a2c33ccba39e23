"""Build the documentation as a site: `make docs`.

Pages keep the places that they have in the repository, so that a link works in the files, on a forge and on the site
alike. Two pages are made here: the command line from the program, the Python names from `dpjoin`. Every file that a
page links to comes along. MkDocs then builds the site, and a warning is an error.

python tools/pages.py           pages into build/pages, the site into build/site
python tools/pages.py --pages   the pages only
python tools/pages.py --write   the two pages that are made, where the repository keeps them
"""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import dpjoin as dj

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PAGES = ("*.md", "docs/*.md", "benchmarks/README.md", "benchmarks/results/*.md", "src/dpjoin/privacy/PROOFS.md")
FILES = ("docs/figures/*", "docs/site.css")
EXAMPLE = re.compile(r"(^>>> .*\n?(^(?!\s*$|>>> ).*\n?)*)+", flags=re.MULTILINE)
ANNOTATION = r"(: |-> )'([^']*)'"
"""Annotations that are kept as text."""
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
CLI, PYTHON = "docs/cli.md", "docs/python.md"
COMMANDS = """# The command line

What `dpjoin --help` and `dpjoin VERB --help` say. Results go to stdout, words for people to stderr.
Exit codes: 0 done, 2 you must change something, 1 our fault, 130 interrupted.
"""
NAMES = """# Python

What `import dpjoin as dj` offers. `release` does the main job; [asking a release](asking.md) shows what to do with the
result.
"""


def cli_page() -> str:
    """Every command with its help."""
    import typer
    from click import Context

    from dpjoin.cli.commands import app

    group = typer.main.get_command(app)
    wide = {"max_content_width": 96, "terminal_width": 96, "help_option_names": ["-h", "--help"]}
    context = Context(group, info_name="dpjoin", **wide)
    parts = [COMMANDS, f"```\n{group.get_help(context).strip()}\n```\n"]
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        inner = Context(command, info_name=name, parent=context, **wide)
        parts.append(f"## dpjoin {name}\n\n```\n{command.get_help(inner).strip()}\n```\n")
    return "\n".join(parts)


def python_page() -> str:
    """Every public name: its signature, what its docstring says, its fields and methods."""
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors and warnings": []}
    for name in dj.__all__:
        value = getattr(dj, name)
        error = isinstance(value, type) and issubclass(value, Exception)
        kind = "Errors and warnings" if error else "Classes" if isinstance(value, type) else "Functions"
        kinds[kind].append(_error(name) if error else _class(name) if isinstance(value, type) else _function(name))
    return "\n".join([NAMES, *(f"## {kind}\n\n" + "\n".join(texts) for kind, texts in kinds.items())])


def _error(name: str) -> str:
    bases = ", ".join(f"`{base.__name__}`" for base in getattr(dj, name).__bases__)
    return f"### dj.{name}\n\n{told(getattr(dj, name))} (Is a {bases}.)\n"


def _function(name: str) -> str:
    return f"### dj.{name}\n\n{_signature(f'dj.{name}', getattr(dj, name))}\n{told(getattr(dj, name))}\n"


def _class(name: str) -> str:
    kind = getattr(dj, name)
    parts = [f"### dj.{name}\n", _signature(f"dj.{name}", kind), told(kind) + "\n"]
    fields = [f"- `{field}: {annotation}`: {text}" for field, annotation, text in _fields(kind)]
    parts += ["\n".join(fields) + "\n"] if fields else []
    for member, value in vars(kind).items():
        if member.startswith("_") or not inspect.getdoc(value):
            continue
        if isinstance(value, property | cached_property):
            parts.append(f"**`{member}`**: {told(value)}\n")
        elif inspect.isfunction(value) or isinstance(value, classmethod | staticmethod):
            function = value if inspect.isfunction(value) else value.__func__
            owner = f"dj.{name}" if not inspect.isfunction(value) else name.lower()
            parts += [_signature(f"{owner}.{member}", function), told(function) + "\n"]
    return "\n".join(parts)


def _signature(name: str, value: Callable[..., Any]) -> str:
    """A call as a user writes it, a parameter a line where it is long."""
    found = inspect.signature(value)
    own = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    lines, star = [], False
    for parameter in own:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            lines, star = [*lines, "*"], True
        lines.append(re.sub(r" = <.*>$", " = ...", str(parameter)))
    returns = found.return_annotation if inspect.isfunction(value) else found.empty
    result = "" if returns in (found.empty, None, "None") else f" -> {inspect.formatannotation(returns)}"
    call = f"{name}({', '.join(lines)}){result}"
    if len(call) > 110:
        call = f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + f"){result}"
    call = re.sub(ANNOTATION, r"\1\2", call)
    return f"```python\n{call}\n```\n"


def told(value: object) -> str:
    """A docstring; its examples, as code."""
    return EXAMPLE.sub(lambda m: f"```pycon\n{m[0].strip()}\n```\n", inspect.getdoc(value) or "")


def _fields(kind: type) -> Iterator[tuple[str, str, str]]:
    """The fields of a dataclass that say what they are."""
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    for node, after in pairwise(tree.body):
        said = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if said and isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("_"):
            yield ast.unparse(node.target), ast.unparse(node.annotation), inspect.cleandoc(after.value.value)


def write_made() -> None:
    (ROOT / CLI).write_text(cli_page(), encoding="utf-8")
    (ROOT / PYTHON).write_text(python_page(), encoding="utf-8")


def copy_pages(target: Path) -> None:
    """All pages, and all files of the project that they link to."""
    shutil.rmtree(target, ignore_errors=True)
    wanted = {path for pattern in (*PAGES, *FILES) for path in ROOT.glob(pattern)}
    linked = set()
    for page in (path for path in wanted if path.suffix == ".md"):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            path = (page.parent / link).resolve()
            linked |= {path} if path.is_file() else set()
    for path in wanted | linked:
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for page in target.rglob("*.md"):
        page.write_text(links_led(page, target), encoding="utf-8")


def links_led(page: Path, target: Path) -> str:
    """A page whose links to folders lead to the tree's description: a folder has no page of its own."""
    tree = os.path.relpath(target / "docs" / "architecture.md", page.parent) + "#the-tree"

    def led(match: re.Match[str]) -> str:
        return f"]({tree})" if (ROOT / page.relative_to(target).parent / match[1]).is_dir() else match[0]

    return LINK.sub(led, page.read_text(encoding="utf-8"))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", action="store_true", help="the pages only")
    parser.add_argument("--write", action="store_true", help="write the pages that are made into docs/")
    options = parser.parse_args(arguments)
    if options.write:
        write_made()
        return 0
    copy_pages(BUILD / "pages")
    if options.pages:
        return 0
    code, warnings = build(ROOT / "mkdocs.yml")
    print(warnings, end="", file=sys.stderr)
    return code


def build(config: Path) -> tuple[int, str]:
    """The site from its pages; a warning is an error. What was said, if anything was wrong."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config)]
    # MkDocs would not count warnings that --quiet hides.
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stderr if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
