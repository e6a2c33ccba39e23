"""Break every definition that PROOFS.md hashes, and see which test notices.

python tools/mutate.py                     the main mutant of every definition
python tools/mutate.py --only gauge --all  every mutant of the definitions whose name contains "gauge"
python tools/mutate.py --page FILE         the same as the first, and write the result as a page

No file is changed. Tests are collected in one process; each mutant runs in a fork of it, in which the function has the
code of the mutant. A mutant of a constant or of a class's fields runs in a fork that imports the package anew.
Only tests that execute the definition run, until one fails; quick ones that execute little else come first. Which
tests these are is found out by running each test file one time with a mark in every function, and kept in a cache
folder until that test file changes; remove the folder after large changes of the code.

`mutants.toml` lists mutants that were read and found equivalent, with the reason; the next one takes their place.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib.machinery
import importlib.util
import json
import os
import re
import resource
import signal
import sys
import tomllib
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from covering import OPTIONS, Finder, Project, clear_caches, coverage, in_a_fork, mentions, say, test_files
from mutants import Mutant

ROOT = Path(__file__).resolve().parent.parent
MEMORY = 6 << 30
"""Bytes of address space for the tests of one mutant, which may build something endless."""
FILES_AT_ONCE = 4
"""Test files that a mutant with an import of its own collects before it collects all others."""


def _patch(project: Project, mutant: Mutant, functions: Sequence[types.FunctionType]) -> bool:
    """Give the function that holds a mutant its code. False if that cannot be done without a new import."""
    module, _ = project.locate(mutant.definition)
    mutant.apply()
    try:
        code = compile(module.tree, str(module.path), "exec", dont_inherit=True)
    finally:
        mutant.undo()
    changed: dict[tuple[str, int], types.CodeType] = {}
    waiting: list[types.CodeType] = [code]
    while waiting:
        for inner in waiting.pop().co_consts:
            if isinstance(inner, types.CodeType):
                changed[inner.co_qualname, inner.co_firstlineno] = inner
                waiting.append(inner)
    patched = False
    for function in functions:
        if function.__code__.co_filename == str(module.path):
            new = changed.get((function.__code__.co_qualname, function.__code__.co_firstlineno))
            if new is not None and new != function.__code__:
                try:
                    function.__code__ = new
                except ValueError:  # it no longer uses what its class or its outer function gives it
                    return False
                patched = True
    return patched


# Running the mutants ----------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What became of a mutant. `by` is the test that failed; empty if none did."""

    definition: str
    kind: str
    mutant: str
    by: str = ""
    how: str = ""
    tried: int = 0
    covering: int = 0


@dataclass(frozen=True)
class Job:
    """A mutant, the tests to run in their order, and how many there are in all."""

    mutant: Mutant
    order: tuple[str, ...]
    covering: int

    def verdict(self, lines: Sequence[str]) -> Verdict:
        """What the lines of a fork say."""
        started = [line.removeprefix("start ") for line in lines if line.startswith("start ")]
        failed = [line.removeprefix("failed ") for line in lines if line.startswith("failed ")]
        by, how = "", ""
        if failed:
            by, how = failed[0], "fails"
        elif self.order and "survived" not in lines:
            by = started[-1] if started else "import"
            how = "does not end" if lines[-1] == "clock" else "breaks off"
        m = self.mutant
        return Verdict(m.definition, m.kind, m.text, by, how, len(started), self.covering)


class Runner:
    """A pytest plugin that runs tests, and says which of them starts and which one fails."""

    def __init__(self, limits: dict[str, float], send: Callable[[str], None]) -> None:
        self.limits, self.send = limits, send
        self.failed = ""

    def run(self, items: Sequence[pytest.Item], order: Sequence[str], send: Callable[[str], None]) -> None:
        """One test after the other until one fails."""
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        _do_not_shrink()
        named = {item.nodeid: item for item in items}
        chosen = [named[name] for name in order if name in named]
        for n, item in enumerate(chosen):
            send(f"start {item.nodeid}")
            signal.setitimer(signal.ITIMER_REAL, self.limits[item.nodeid])
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=chosen[n + 1] if n + 1 < len(chosen) else None)
            if self.failed:
                send(f"failed {self.failed}")
                return
        send("survived")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


class Patching(Runner):
    """Runs the tests of each mutant in a fork of the process that has collected them all; sends verdicts."""

    def __init__(
        self, project: Project, jobs: Sequence[Job], limits: dict[str, float], send: Callable[[str], None]
    ) -> None:
        super().__init__(limits, send)
        self.project, self.jobs = project, jobs

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for module in {self.project.locate(job.mutant.definition)[0].name for job in self.jobs}:
            importlib.import_module(module)
        functions = [found for found in gc.get_objects() if type(found) is types.FunctionType]
        for n, job in enumerate(self.jobs):

            def patched(send: Callable[[str], None], job: Job = job) -> None:
                if not _patch(self.project, job.mutant, functions):
                    send("import")
                    return
                clear_caches(self.project)
                self.run(session.items, job.order, send)

            lines = list(in_a_fork(patched))
            self.send(json.dumps([n, None if "import" in lines else vars(job.verdict(lines))]))
        return True


class Importing(Runner):
    """Runs the tests of one mutant, which this process has imported."""

    def __init__(self, job: Job, limits: dict[str, float], send: Callable[[str], None]) -> None:
        super().__init__(limits, send)
        self.job = job

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.run(session.items, self.job.order, self.send)
        return True


def _do_not_shrink() -> None:
    """A first failing example is enough."""
    with contextlib.suppress(ImportError):
        from hypothesis.internal.conjecture import engine

        engine.MAX_SHRINKING_SECONDS = 0


def _files(project: Project, order: Iterable[str]) -> list[str]:
    """Where tests are, in their order."""
    return list(dict.fromkeys(str(project.root / test.partition("::")[0]) for test in order))


def _with_import(project: Project, job: Job, limits: dict[str, float]) -> Verdict:
    """The verdict on a mutant that a fork imports: first with the quickest tests' files, then with all others."""
    files = _files(project, job.order)
    lines: list[str] = []
    module, _ = project.locate(job.mutant.definition)
    for some in (files[:FILES_AT_ONCE], files[FILES_AT_ONCE:]):
        if not some:
            continue

        def imported(send: Callable[[str], None], some: list[str] = some) -> None:
            job.mutant.apply()
            sys.meta_path.insert(0, Finder([module], {}))
            pytest.main([*OPTIONS, f"--rootdir={project.root}", *some], plugins=[Importing(job, limits, send)])

        found = list(in_a_fork(imported))
        lines = [line for line in lines if line != "survived"] + found
        if "survived" not in found:
            break
    return job.verdict(lines)


def run(
    project: Project, chosen: Sequence[Mutant], tests: dict[str, dict[str, Any]], *, seconds: float, grace: float
) -> Iterator[Verdict]:
    """Verdicts on mutants, by the tests that execute their definitions: `seconds` of them at most."""
    by_function: dict[str, list[str]] = {}
    for test, entry in tests.items():
        for function in entry["executes"]:
            by_function.setdefault(function, []).append(test)
    limits = {test: grace + 10 * entry["seconds"] for test, entry in tests.items()}
    # Quick tests first, and of these the ones that execute little else: they look closest.
    price = {test: (0.02 + entry["seconds"]) * (1 + len(entry["executes"])) for test, entry in tests.items()}
    bodies = {
        f"{path}::{node.name}": node
        for path in dict.fromkeys(test.partition("::")[0] for test in tests)
        for node in ast.parse((project.root / path).read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }

    def job_of(mutant: Mutant) -> Job:
        name = mutant.definition.rpartition(".")[2]
        functions = project.functions(mutant.definition)
        found = {test for function in functions or project.users(name) for test in by_function.get(function, ())}
        if not mutant.in_function:  # tests that mention the name, and tests that call nothing but look at the code
            found |= {test for test in tests if (body := bodies.get(test.partition("[")[0])) and mentions(body, name)}
            found |= {test for test, entry in tests.items() if not entry["executes"] and entry["seconds"] < 1}
        ordered = sorted(found, key=lambda test: (price[test], test))
        spent = accumulate(tests[test]["seconds"] for test in ordered)
        return Job(
            mutant, tuple(test for test, sum_ in zip(ordered, spent, strict=True) if sum_ <= seconds), len(found)
        )

    jobs = [job_of(mutant) for mutant in chosen]
    inside = [job for job in jobs if job.mutant.in_function]
    outside = [job for job in jobs if not job.mutant.in_function]
    files = _files(project, (test for job in inside for test in job.order))

    def collected(send: Callable[[str], None]) -> None:
        plugin = Patching(project, inside, limits, send)
        pytest.main([*OPTIONS, f"--rootdir={project.root}", *files], plugins=[plugin])

    for line in in_a_fork(collected) if inside else ():
        if line not in ("end", "clock"):
            n, verdict = json.loads(line)
            if verdict is None:
                outside.append(inside[n])
            else:
                yield Verdict(**verdict)
    for job in outside:
        yield _with_import(project, job, limits)


# What is asked and what is said ------------------------------------------------------------------------------------


@dataclass
class Memory:
    """Verdicts on mutants that a test caught: they hold as long as neither the module nor the test file changes."""

    project: Project
    path: Path
    known: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path.exists():
            self.known = json.loads(self.path.read_text(encoding="utf-8"))

    def _state(self, definition: str, by: str) -> str:
        files = [self.project.locate(definition)[0].path, self.project.root / by.partition("::")[0]]
        return sha256(b"".join(path.read_bytes() for path in files if path.is_file())).hexdigest()

    def recall(self, mutant: Mutant) -> Verdict | None:
        entry = self.known.get(f"{mutant.definition} {mutant.text}")
        if entry is None or entry["state"] != self._state(mutant.definition, entry["verdict"]["by"]):
            return None
        return Verdict(**entry["verdict"])

    def keep(self, verdict: Verdict) -> None:
        if verdict.by:
            state = self._state(verdict.definition, verdict.by)
            self.known[f"{verdict.definition} {verdict.mutant}"] = {"state": state, "verdict": vars(verdict)}
            self.path.write_text(json.dumps(self.known), encoding="utf-8")


@dataclass(frozen=True)
class Reviewed:
    """Mutants that were read and do not count, with the reason, by (definition, mutant)."""

    reasons: dict[tuple[str, str], str]

    @classmethod
    def read(cls, path: Path) -> Reviewed:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", []) if path.exists() else []
        return cls({(entry["definition"], entry["mutant"]): entry["reason"] for entry in entries})

    def stale(self, project: Project) -> list[str]:
        """Entries about code that is no longer there."""
        known = set(project.definitions())
        texts = {name: {m.text for m in project.mutants(name)} for name, _ in self.reasons if name in known}
        return [f"{name}: {text}" for name, text in self.reasons if text not in texts.get(name, ())]


def _one_line(verdict: Verdict) -> str:
    found = f"{verdict.how}: {verdict.by}" if verdict.by else f"SURVIVED {verdict.tried} of {verdict.covering} tests"
    return f"{verdict.definition} | {verdict.kind} | {verdict.mutant} | {found}"


def page(verdicts: Sequence[Verdict], without: Sequence[str], reviewed: Reviewed) -> str:
    """The result as a page: how many, which survived, which were left out and why, and all of them."""
    caught = [v for v in verdicts if v.by]
    share = 100 * len(caught) / max(1, len(verdicts))
    lines = [
        "# Mutation",
        "",
        "Written by `make mutate`, which breaks every definition that `src/dpjoin/privacy/PROOFS.md` hashes, one at a",
        "time, and runs the tests that execute it until one fails. See `tools/mutate.py` and `tools/mutants.py`.",
        "",
        f"Caught by a test: {len(caught)} of {len(verdicts)} definitions ({share:.1f} %).",
        "",
        "## Survivors",
        "",
        *([f"- `{v.definition}`: `{v.mutant}`" for v in verdicts if not v.by] or ["None."]),
        "",
        "## Definitions without a mutant",
        "",
        *([f"- `{name}`" for name in without] or ["None."]),
        "",
        "## Mutants that do not count",
        "",
        "Read and found to change nothing that a caller can rely on; the next mutant took their place.",
        "",
        *(f"- `{name}`: `{text}`. {reason}" for (name, text), reason in reviewed.reasons.items()),
        "",
        "## All",
        "",
        "| definition | mutant | caught by |",
        "|---|---|---|",
        *(
            f"| {v.definition.removeprefix('dpjoin.')} | `{v.mutant.replace('|', '¦')}` | "
            f"{v.by.removeprefix('tests/') or '**none**'}{'' if v.how in ('', 'fails') else f' ({v.how})'} |"
            for v in verdicts
        ),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Break what PROOFS.md hashes, and see which test notices.")
    parser.add_argument("--only", default="", help="a regular expression that names must contain")
    parser.add_argument("--all", action="store_true", help="every mutant, not the main one of each definition")
    parser.add_argument("--again", action="store_true", help="also those that the same tests caught before")
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    parser.add_argument("--seconds", type=float, default=60, help="of tests for one mutant")
    parser.add_argument(
        "--grace", type=float, default=20, help="seconds that a test may take on top of ten times its own"
    )
    parser.add_argument("--page", type=Path, help="where to write the result")
    parser.add_argument("--root", type=Path, default=ROOT, help="project folder")
    parser.add_argument("--proofs", default="src/dpjoin/privacy/PROOFS.md", help="inside the project folder")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="folders or files with tests, inside it")
    parser.add_argument("-k", default="", help="which of these tests, as pytest has it")
    parser.add_argument("--reviewed", default="tools/mutants.toml", help="mutants that do not count, inside it")
    parser.add_argument("--cache", type=Path, help="folder for what tests execute; .mutate in the project folder")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    project = Project(root, root / options.proofs)
    reviewed = Reviewed.read(root / options.reviewed)
    chosen: list[Mutant] = []
    without = []
    for name in project.definitions():
        if re.search(options.only, name):
            found = [m for m in project.mutants(name) if (name, m.text) not in reviewed.reasons]
            chosen += found if options.all else found[:1]
            without += [] if found else [name]
    for entry in reviewed.stale(project):
        say(f"reviewed, but no longer there: {entry}")
    if options.list:
        for mutant in chosen:
            print(f"{mutant.definition} | {mutant.kind} | {mutant.text}")
        return 0
    sys.path.insert(0, str(root / "src"))
    os.chdir(root)
    cache = options.cache or root / ".mutate"
    tests = coverage(project, test_files(project, options.tests), cache, options.k)
    memory = Memory(project, cache / "verdicts.json")
    verdicts = [known for mutant in chosen if not options.again and (known := memory.recall(mutant)) is not None]
    settled = {(verdict.definition, verdict.mutant) for verdict in verdicts}
    left = [mutant for mutant in chosen if (mutant.definition, mutant.text) not in settled]
    say(f"{len(verdicts)} mutants were caught before, by tests that are the same; {len(left)} are left")
    for verdict in run(project, left, tests, seconds=options.seconds, grace=options.grace):
        print(_one_line(verdict), flush=True)
        verdicts.append(verdict)
        memory.keep(verdict)
    order = {(m.definition, m.text): n for n, m in enumerate(chosen)}
    verdicts.sort(key=lambda v: order[v.definition, v.mutant])
    caught = sum(bool(v.by) for v in verdicts)
    print(f"{caught} of {len(verdicts)} caught; without a mutant: {', '.join(without) or 'none'}")
    if options.page:
        options.page.write_text(page(verdicts, without, reviewed), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
