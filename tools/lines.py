"""Count lines of code: no blank lines, no comments, no docstrings.

python tools/lines.py            one row per folder of src/dpjoin
python tools/lines.py --files    one row per file, longest first
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "dpjoin"
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}


def docstring_lines(tree: ast.AST) -> set[int]:
    """Lines of strings that stand alone: docstrings of modules, classes, functions and attributes."""
    alone = (n for n in ast.walk(tree) if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
    return {
        line
        for node in alone
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def code_lines(source: str) -> int:
    """How many lines of a module hold code.

    >>> code_lines('"Doc."\\n\\nx = 1  # one\\n# two\\ny = (\\n    2\\n)\\n')
    4
    """
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT and token.type != tokenize.ENDMARKER:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held - docstring_lines(ast.parse(source)))


def count(folder: Path = PACKAGE) -> dict[str, int]:
    """Lines of code of every module below a folder, by its path from there."""
    return {
        str(path.relative_to(folder)): code_lines(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="one row per file, longest first")
    by_file = count()
    rows = Counter(by_file)
    if not parser.parse_args().files:
        rows = Counter()
        for name, lines in by_file.items():
            rows[name.rpartition("/")[0] or "."] += lines
    for name, lines in rows.most_common():
        print(f"{lines:6,}  {name}")
    print(f"{sum(by_file.values()):6,}  all")


if __name__ == "__main__":
    main()
