"""Which tests execute which functions of the package: found out by running each test file with marks in the code."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from mutants import Mutant, mutants
from proofs import PROVES, find

OPTIONS = ["-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "--doctest-modules", "-m", "not full"]


# The code ---------------------------------------------------------------------------------------------------------


@dataclass
class Module:
    name: str
    path: Path
    tree: ast.Module


@dataclass
class Project:
    root: Path
    proofs: Path
    modules: dict[str, Module] = field(default_factory=dict)

    def __post_init__(self) -> None:
        source = self.root / "src"
        for path in sorted(source.rglob("*.py")):
            name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
            self.modules[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")))

    def definitions(self) -> list[str]:
        """What PROOFS.md hashes, in its order."""
        text = self.proofs.read_text(encoding="utf-8")
        return list(dict.fromkeys(match["name"] for match in PROVES.finditer(text)))

    def locate(self, definition: str) -> tuple[Module, ast.stmt]:
        parts = definition.split(".")
        cut = max(n for n in range(1, len(parts)) if ".".join(parts[:n]) in self.modules)
        module = self.modules[".".join(parts[:cut])]
        body, node = module.tree.body, None
        for part in parts[cut:]:
            node = find(body, part)
            if node is None:
                raise SystemExit(f"{definition}: proved, but not in the code")
            body = node.body if isinstance(node, ast.ClassDef) else []
        assert node is not None
        return module, node

    def mutants(self, definition: str) -> list[Mutant]:
        module, node = self.locate(definition)
        return mutants(definition, node, canonical=_canonical_names(module.tree))

    def functions(self, definition: str) -> set[str]:
        """The definition, if it is a function, or its methods."""
        _, node = self.locate(definition)
        return set(_functions(node, definition.rpartition(".")[0]))

    def users(self, name: str) -> set[str]:
        """Functions that mention a name."""
        return {
            function
            for other in self.modules.values()
            for function, body in _functions(other.tree, other.name).items()
            if mentions(body, name)
        }


def _canonical_names(tree: ast.Module) -> frozenset[str]:
    """How this module calls functions of one called `canonical`: skipping such a call takes a value as it came."""
    imports = [n for n in tree.body if isinstance(n, ast.ImportFrom) and (n.module or "").endswith("canonical")]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    holders = {
        ast.unparse(node.targets[0])
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _calls(node.value) in imported
    }
    called = {_calls(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    classes = {name for name in imported if name[:1].isupper()}
    return frozenset(name for name in called if name in imported - classes or name.partition(".")[0] in holders)


def _calls(call: ast.Call) -> str:
    return ast.unparse(call.func)


def mentions(node: ast.AST, name: str) -> bool:
    return any(name in (getattr(n, "id", ""), getattr(n, "attr", "")) for n in ast.walk(node))


def _functions(node: ast.AST, prefix: str) -> dict[str, ast.FunctionDef]:
    """Functions and methods at or below a definition by dotted name, without those inside functions."""
    if isinstance(node, ast.FunctionDef):
        return {f"{prefix}.{node.name}": node}
    inside = f"{prefix}.{node.name}" if isinstance(node, ast.ClassDef) else prefix
    found = {}
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            found |= _functions(child, inside)
    return found


class Changed(importlib.machinery.SourceFileLoader):
    """Imports a module from a changed tree."""

    def __init__(self, module: Module, names: dict[str, object]) -> None:
        super().__init__(module.name, str(module.path))
        self.module, self.names = module, names

    def get_code(self, fullname: str) -> types.CodeType:
        return compile(self.module.tree, str(self.module.path), "exec", dont_inherit=True)

    def exec_module(self, module: types.ModuleType) -> None:
        vars(module).update(self.names)
        super().exec_module(module)


class Finder:
    """Finds modules whose tree was changed before the others do."""

    def __init__(self, modules: Iterable[Module], names: dict[str, object]) -> None:
        self.loaders = {module.name: Changed(module, names) for module in modules}

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self.loaders:
            return None
        return importlib.util.spec_from_file_location(name, self.loaders[name].path, loader=self.loaders[name])


def clear_caches(project: Project) -> None:
    """Forget results that were computed before, so that every test calls what it needs."""
    for module in [sys.modules[name] for name in project.modules if name in sys.modules]:
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear") and hasattr(value, "__wrapped__"):
                value.cache_clear()


# Which tests execute what -----------------------------------------------------------------------------------------


def _mark(project: Project, marks: set[str]) -> None:
    """Put a mark at the start of every function, and import the package with these marks from now on."""
    chosen = []
    for module in project.modules.values():
        if any("numba" in ast.unparse(n) for n in ast.walk(module.tree) if isinstance(n, ast.Import | ast.ImportFrom)):
            continue  # compiled code cannot leave marks
        chosen.append(module)
        for name, function in _functions(module.tree, module.name).items():
            mark = ast.parse(f"__mark__({name!r})").body[0]
            place = 1 if ast.get_docstring(function, clean=False) is not None else 0
            function.body.insert(place, ast.fix_missing_locations(ast.copy_location(mark, function)))
    sys.meta_path.insert(0, Finder(chosen, {"__mark__": marks.add}))


class Recorder:
    """A pytest plugin that notes for each test its seconds and the functions that it executes."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.marks: set[str] = set()
        self.tests: dict[str, dict[str, Any]] = {}
        self.shared: dict[Any, tuple[set[str], float]] = {}
        self.apart = 0.0
        self.failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        clear_caches(self.project)
        self.marks.clear()
        self.apart = 0.0
        start = time.perf_counter()
        result = yield
        seconds = time.perf_counter() - start - self.apart
        found = set(self.marks)
        info = getattr(item, "_fixtureinfo", None)
        for fixture in (f for found_fixtures in info.name2fixturedefs.values() for f in found_fixtures) if info else ():
            marks, needed = self.shared.get(fixture, (set(), 0.0))
            found |= marks
            seconds += needed
        if item.nodeid not in self.failed:
            self.tests[item.nodeid] = {"seconds": round(seconds, 4), "executes": sorted(found)}
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before = set(self.marks)
        self.marks.clear()
        start = time.perf_counter()
        try:
            return (yield)
        finally:
            seconds = time.perf_counter() - start
            self.apart += seconds
            self.shared[fixturedef] = (set(self.marks), seconds)
            self.marks |= before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)


def in_a_fork(job: Callable[[Callable[[str], None]], object]) -> Iterator[str]:
    """Run a job in a fork, without its output. Yields the lines that it sends; the last says how it ended."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reader)
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            job(lambda line: os.write(writer, f"{line}\n".encode()))
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    with open(reader, encoding="utf-8") as pipe:
        yield from (line.rstrip("\n") for line in pipe)
    _, ended = os.waitpid(child, 0)
    yield "clock" if os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGALRM else "end"


def test_files(project: Project, tests: Sequence[str]) -> list[list[Path]]:
    """Test files, each by itself, and all modules with doctests together."""
    given = [project.root / name for name in tests]
    found = [path for name in given for path in ([name] if name.is_file() else sorted(name.rglob("test_*.py")))]
    doctests = [m.path for m in project.modules.values() if ">>>" in m.path.read_text(encoding="utf-8")]
    return [[path] for path in found] + ([doctests] if doctests else [])


def coverage(project: Project, files: Sequence[list[Path]], cache: Path, named: str) -> dict[str, dict[str, Any]]:
    """For each test that passes: its seconds and the functions that it executes."""
    cache.mkdir(parents=True, exist_ok=True)
    tests: dict[str, dict[str, Any]] = {}
    for paths in files:
        content = b"".join(path.read_bytes() for path in paths) + named.encode()
        name = str(paths[0].relative_to(project.root))
        kept = cache / f"{name.replace('/', '-')}-{sha256(content).hexdigest()[:16]}.json"
        if not kept.exists():
            start = time.perf_counter()

            def record(send: Callable[[str], None], paths: list[Path] = paths, kept: Path = kept) -> None:
                recorder = Recorder(project)
                _mark(project, recorder.marks)
                told = [*OPTIONS, f"--rootdir={project.root}", *(["-k", named] if named else []), *map(str, paths)]
                if pytest.main(told, plugins=[recorder]) in (0, 1, 5):
                    kept.write_text(json.dumps(recorder.tests))

            list(in_a_fork(record))
            count = len(json.loads(kept.read_text())) if kept.exists() else 0
            say(f"{name}: {count} tests, {time.perf_counter() - start:.0f} s")
        if kept.exists():
            tests |= json.loads(kept.read_text())
    return tests


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
