"""Keep PROOFS.md and the code it proves together.

A line `<!-- proves dpjoin.privacy.noise.discrete_laplace sha256:… -->` holds the hash of the definition it
proves, without docstrings. `--check` prints every definition that has changed since its proof was read, and
every function or class of dpjoin.privacy, private ones included, that no line names. `--update` writes the hashes
after a second reading.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROVES = re.compile(r"<!-- proves (?P<name>[\w.]+) sha256:(?P<hash>\w*) -->")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def without_docstrings(tree: ast.AST) -> ast.AST:
    """The same tree, changed in place: no docstring in it or below it."""
    for node in ast.walk(tree):
        if isinstance(node, Definition) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def find(body: list[ast.stmt], name: str) -> ast.stmt | None:
    """The function, class or constant called `name` in a module or class body."""
    for node in body:
        if isinstance(node, Definition) and node.name == name:
            return node
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return node
    return None


def definition(name: str, *, source: Path) -> ast.stmt | None:
    """What a dotted name such as package.module.Class.method stands for; None if it is not there."""
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        path = source.joinpath(*parts[:cut]).with_suffix(".py")
        if path.is_file():
            break
    else:
        return None
    body = ast.parse(path.read_text(encoding="utf-8")).body
    node: ast.stmt | None = None
    for part in parts[cut:]:
        node = find(body, part)
        if node is None:
            return None
        body = node.body if isinstance(node, ast.ClassDef) else []
    return node


def hash_of(node: ast.stmt) -> str:
    """First 16 hex digits of a definition's code."""
    return sha256(ast.unparse(without_docstrings(node)).encode()).hexdigest()[:16]


def current_hash(name: str, *, source: Path) -> str | None:
    """The hash of a dotted name; None if it is not there."""
    node = definition(name, source=source)
    return None if node is None else hash_of(node)


def definitions(package: Path, *, source: Path) -> Iterator[str]:
    """Dotted names of all functions and methods of a package's modules, and of classes without methods."""
    for path in sorted(package.glob("*.py")):
        module = ".".join(path.relative_to(source).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                yield f"{module}.{node.name}"
            elif isinstance(node, ast.ClassDef):
                methods = [m.name for m in node.body if isinstance(m, ast.FunctionDef)]
                yield from (f"{module}.{node.name}.{m}" for m in methods)
                if not methods:
                    yield f"{module}.{node.name}"


def problems(proofs: Path, *, source: Path) -> list[str]:
    """One line for each definition whose proof is missing, stale or about nothing."""
    found = []
    recorded = {match["name"]: match["hash"] for match in PROVES.finditer(proofs.read_text(encoding="utf-8"))}
    for name, old in recorded.items():
        new = current_hash(name, source=source)
        if new is None:
            found.append(f"{name}: proved, but not in the code")
        elif new != old:
            found.append(f"{name}: changed since its proof was read ({old or 'no hash'} -> {new})")
    for name in definitions(proofs.parent, source=source):
        # Whatever a proof rests on is hashed: all of ring 1, by itself or with its class.
        if name not in recorded and name.rpartition(".")[0] not in recorded:
            found.append(f"{name}: no section in {proofs.name}")
    return found


def update(proofs: Path, *, source: Path) -> None:
    """Write the current hashes into the `proves` lines."""

    def line(match: re.Match[str]) -> str:
        new = current_hash(match["name"], source=source) or match["hash"]
        return f"<!-- proves {match['name']} sha256:{new} -->"

    proofs.write_text(PROVES.sub(line, proofs.read_text(encoding="utf-8")), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare PROOFS.md with the code it proves.")
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="exit 1 if a proof and its code part ways")
    action.add_argument("--update", action="store_true", help="record that the proofs were read again")
    parser.add_argument("--root", type=Path, default=ROOT, help="project folder")
    options = parser.parse_args(arguments)
    source = options.root / "src"
    proofs = source / "dpjoin" / "privacy" / "PROOFS.md"
    if options.update:
        update(proofs, source=source)
    found = problems(proofs, source=source)
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
