"""A spec on the command line: read, checked against its sources, warned about."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpjoin.errors import DpjoinError

if TYPE_CHECKING:
    from dpjoin.spec.toml import Spec


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)


def read_spec(path: Path, **changed: str | None) -> Spec:
    """The spec of a file, with another profile or method where one was given."""
    from dpjoin.spec.toml import Spec

    return changed_spec(Spec.from_toml(path), **changed)


def changed_spec(spec: Spec, **changed: str | None) -> Spec:
    """A spec with another profile or method where one was given."""
    from dataclasses import replace

    from dpjoin.spec.plain import check_choice
    from dpjoin.spec.toml import METHOD_NAMES, PROFILES

    given = {key: value for key, value in changed.items() if value is not None}
    for key, value in given.items():
        check_choice(f"--{key}", value, {"profile": PROFILES, "method": METHOD_NAMES}[key])
    return replace(spec, **given)  # type: ignore[arg-type]


def opened_sources(spec: Spec) -> dict[str, Any]:
    """Where the tables are, once it is known that they can be opened and fit the schema."""
    from dpjoin.api import check_sources

    sources = spec.sources()
    check_sources(spec.schema, sources)
    return sources


def show_warnings(path: Path | None, spec: Spec, rows: int | None = None) -> None:
    """What is probably not meant so; a spec without a file has no name."""
    from dpjoin.api import spec_warnings
    from dpjoin.spec.toml import source_of

    # A plan may be made before all sources are named.
    sources = {t.name: source_of(t, spec.folder) for t in spec.schema.tables if t.source is not None}
    for warning in spec_warnings(spec.schema, sources, spec.budget, rows or spec.rows):
        say(f"warning: {f'{path}: ' if path else ''}{warning}")


@contextmanager
def about(spec: Path) -> Iterator[None]:
    """Errors that come from a spec name its file."""
    try:
        yield
    except DpjoinError as error:
        raise type(error)(f"{spec}: {error}") from None
