"""A durable record, in the folder of the spec, of every release begun from it, and from which private tables.

A line is on disk before any private row is read, so a crash cannot buy a second try for free: whatever
was begun counts as spent, finished or not. The record holds public facts only.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpjoin.cli.specs import say
from dpjoin.engine.sources import has_no_tables, is_remote, named_files, public_address
from dpjoin.errors import ReleaseError
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.schema import Schema
from dpjoin.spec.stored import is_stored


@dataclass(frozen=True)
class Spent:
    """What the releases begun so far add up to, by basic composition."""

    times: int
    epsilon: float
    delta: float
    journals: tuple[str, ...] = ()
    """The names of the journals that say so."""


def journal_of(spec: Path) -> Path:
    """Where the journal of a spec is: `flights.toml` has `flights.ledger.jsonl` in its folder."""
    return spec.with_name(f"{spec.stem}.ledger.jsonl")


def sources_of(spec: Path, schema: Schema, sources: Mapping[str, Any]) -> tuple[str, ...]:
    """Where the rows of each private table are, as the journal writes it: relative to the spec's folder."""
    found = []
    for table in schema.private_tables:
        place, *inside = sources[table] if isinstance(sources[table], tuple) else (sources[table],)
        if is_stored(place):
            found.append(" ".join([place, *(f"table={t}" for t in inside if t)]))
            continue
        if isinstance(place, str) and is_remote(place):
            found.append(public_address(place))
            continue
        for path in named_files(table, place):
            relative = os.path.relpath(path.resolve(), spec.parent.resolve())
            found.append(_source(":".join([Path(relative).as_posix(), *inside])))
    return tuple(found)


def _source(written: str) -> str:
    """FILE:TABLE as it is for a database, and FILE for a file that has no tables inside, whatever table was named."""
    if is_stored(written):
        return written
    file, _, _ = written.rpartition(":")
    return file if file and has_no_tables(Path(file)) else written


def spent(journal: Path) -> Spent:
    """Add up what was begun in one journal."""
    return _added({journal.name: _begun(journal)})


def spent_before(spec: Path, sources: Sequence[str]) -> Spent:
    """Add up what was begun from this spec, and from these private tables by other specs of its folder."""
    own, tables = journal_of(spec), set(sources)
    begun = {own.name: _begun(own)}
    for journal in sorted(spec.parent.glob("*.ledger.jsonl")):
        if journal.name != own.name:
            begun[journal.name] = [e for e in _begun(journal) if tables & set(map(_source, e.get("sources", ())))]
    return _added(begun)


def _added(begun: Mapping[str, list[dict[str, Any]]]) -> Spent:
    entries = [entry for found in begun.values() for entry in found]
    epsilon, delta = (sum(float(e[key]) for e in entries) for key in ("epsilon", "delta"))
    return Spent(len(entries), epsilon, delta, tuple(name for name, found in begun.items() if found))


def _begun(journal: Path) -> list[dict[str, Any]]:
    """The releases begun. A torn line was never complete, so its release never began."""
    try:
        lines = journal.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError):
        raise ReleaseError(
            f"{journal}: the journal cannot be read; nothing was spent; make it readable, or move it away"
        ) from None
    return [entry for entry in map(_parsed, lines) if entry.get("what") == "begun"]


@contextmanager
def recorded(
    spec: Path, budget: Budget, out: Path, sources: Sequence[str] = (), *, text: bytes | None = None
) -> Iterator[None]:
    """Write "begun" before the block runs and "finished" or "failed" after it; `text` if the spec has no file."""
    journal = journal_of(spec)
    about = {"spec": spec.name, "out": str(out)}
    digest = hashlib.sha256(spec.read_bytes() if text is None else text).hexdigest()
    charge = {"epsilon": budget.epsilon, "delta": budget.delta, "spec_sha256": digest}
    try:
        _append(journal, {"what": "begun", **charge, **about, "sources": list(sources)})
    except KeyboardInterrupt:
        say(f"interrupted: no row was read, and the budget counts as spent where {journal} says that this was begun")
        raise
    try:
        yield
    except BaseException:
        _append_if_possible(journal, {"what": "failed", **about})
        raise
    _append_if_possible(journal, {"what": "finished", **about})


def _append_if_possible(journal: Path, entry: Mapping[str, Any]) -> None:
    """How a release ended is for people to read; what counts is on disk already."""
    with suppress(ReleaseError):
        _append(journal, entry)


def _parsed(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        return {}
    return entry if isinstance(entry, dict) else {}


def _append(journal: Path, entry: Mapping[str, Any]) -> None:
    """Add one line and return when it is on disk."""
    stamped = {"what": entry["what"], "time": datetime.now(UTC).isoformat(timespec="seconds"), **entry}
    try:
        journal.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(file).st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            line = b"\n" * torn + json.dumps(stamped).encode() + b"\n"
            if os.write(file, line) < len(line):  # a full disk takes a part, and says so only when asked for more
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)
        # A new file is safe only when its folder knows about it.
        folder = os.open(journal.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ReleaseError(
            f"{journal}: the journal cannot be written ({error.strerror}), so nothing may be released, and "
            "nothing was spent; make the journal's folder writable"
        ) from None
