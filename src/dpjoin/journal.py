"""A durable record, beside the spec, of every release that was begun from it.

A line is on disk before any private row is read, so a crash cannot buy a second try for free: whatever
was begun counts as spent, finished or not. The record holds public facts only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpjoin.errors import ReleaseError
from dpjoin.privacy.budget import Budget


@dataclass(frozen=True)
class Spent:
    """What the releases begun so far add up to, by basic composition."""

    times: int
    epsilon: float
    delta: float


def journal_of(spec: Path) -> Path:
    """Where the journal of a spec is: `flights.toml` has `flights.ledger.jsonl` beside it."""
    return spec.with_name(f"{spec.stem}.ledger.jsonl")


def spent(journal: Path) -> Spent:
    """Add up what was begun. A torn line was never complete, so its release never began."""
    try:
        lines = journal.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        lines = []
    except (OSError, UnicodeDecodeError):
        raise ReleaseError(f"{journal}: the journal cannot be read; make it readable, or move it away") from None
    begun = [entry for entry in map(_parsed, lines) if entry.get("what") == "begun"]
    return Spent(len(begun), sum(float(e["epsilon"]) for e in begun), sum(float(e["delta"]) for e in begun))


@contextmanager
def recorded(spec: Path, budget: Budget, out: Path) -> Iterator[None]:
    """Write "begun" before the block runs and "finished" or "failed" after it."""
    journal = journal_of(spec)
    about = {"spec": spec.name, "out": str(out)}
    digest = hashlib.sha256(spec.read_bytes()).hexdigest()
    charge = {"epsilon": budget.epsilon, "delta": budget.delta, "spec_sha256": digest}
    _append(journal, {"what": "begun", **charge, **about})
    try:
        yield
    except BaseException:
        _append(journal, {"what": "failed", **about})
        raise
    _append(journal, {"what": "finished", **about})


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
        file = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(file).st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            os.write(file, b"\n" * torn + json.dumps(stamped).encode() + b"\n")
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
            f"{journal}: the journal cannot be written ({error.strerror}), so nothing may be released; "
            "make the spec's folder writable"
        ) from None
