"""The spec file: schema, workload, budget and method in one TOML document.

A wrong key is named with its file and place. Sources are relative to the spec's folder.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpjoin.canonical import shown
from dpjoin.errors import DpjoinError, SourceError, SpecError, suggest
from dpjoin.privacy.accounting import Budget
from dpjoin.spec.plain import (
    KEYS,
    check_choice,
    check_keys,
    number,
    schema_from_dict,
    schema_to_dict,
    section,
    under,
    workload_from_dict,
    workload_to_dict,
)
from dpjoin.spec.schema import Schema, Table
from dpjoin.spec.stored import is_stored
from dpjoin.spec.workload import Workload

METHOD_NAMES = (
    "auto",
    "capped",
    "clipped",
    "heavy_light",
    "per_table",
    "uniformize",
    "single_table",
    "two_table",
    "multi_table",
    "hierarchical",
)
PROFILES = ("tight", "paper")
DEFAULT_WORKLOAD = {"marginals": 2}


@dataclass(frozen=True, eq=False)
class Spec:
    """Everything public that a release needs."""

    schema: Schema
    workload: Workload
    budget: Budget
    method: str = "auto"
    profile: str = "tight"
    folder: Path = Path()
    rows: int | None = None
    """About how many rows the largest private table has, if that is public: for a warning about delta."""

    def __post_init__(self) -> None:
        parts = (("schema", Schema), ("workload", Workload), ("budget", Budget))
        for name, kind in parts:
            if not isinstance(getattr(self, name), kind):
                raise SpecError(f"{name} must be a dj.{kind.__name__}, not {type(getattr(self, name)).__name__}")
        if not isinstance(self.folder, str | os.PathLike):
            raise SpecError(f"folder ({shown(self.folder)}) must be a path")
        object.__setattr__(self, "folder", Path(self.folder))
        check_choice("release.method", self.method, METHOD_NAMES)
        check_choice("release.profile", self.profile, PROFILES)

    @classmethod
    def from_toml(cls, path: str | Path) -> Spec:
        """Read and check a spec file. Opens no table, except for column names where `attributes` is left out."""
        if not isinstance(path, str | os.PathLike):
            raise SpecError(f"a spec ({shown(path)}) must be a path; name its file")
        path = Path(path)
        _, data = read_toml(path)
        try:
            return cls.from_dict(data, folder=path.parent)
        except DpjoinError as error:
            raise type(error)(f"{path}: {error}") from None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, folder: Path = Path()) -> Spec:
        """A spec from nested dictionaries shaped like the TOML file."""
        if not isinstance(data, Mapping):
            raise SpecError(f"a spec ({shown(data)}) must be a dictionary with sections, shaped like the TOML file")
        check_keys(data, tuple(KEYS), "")
        privacy, release = section(data, "privacy", required=True), section(data, "release")
        check_keys(privacy, KEYS["privacy"], "privacy.")
        check_keys(release, KEYS["release"], "release.")
        for key in ("epsilon", "delta"):
            if key not in privacy:
                raise SpecError(f"privacy.{key} is missing; add it, for example epsilon = 1.0 and delta = 1e-6")
        with under("privacy."):
            epsilon, delta = (float(number(privacy[key], key)) for key in ("epsilon", "delta"))
            budget = Budget(epsilon=epsilon, delta=delta)
        rows = privacy.get("rows")
        if rows is not None and (type(rows) is not int or rows < 1):
            raise SpecError(f"privacy.rows ({rows!r}) must be a whole number, at least 1")
        schema = schema_from_dict(data, lambda table, declared: attributes_by_column(table, declared, folder))
        for table in schema.tables:
            _check_inside(table)
        workload = workload_from_dict(schema, section(data, "workload") if "workload" in data else DEFAULT_WORKLOAD)
        return cls(schema, workload, budget, **release, folder=folder, rows=rows)

    def to_toml(self) -> str:
        """The spec as TOML text; reading it back gives an equal spec."""
        import tomli_w

        schema = schema_to_dict(self.schema)
        budget = {"epsilon": self.budget.epsilon, "delta": self.budget.delta}
        known = {"rows": self.rows} if self.rows is not None else {}
        document: dict[str, Any] = {
            "privacy": {**budget, **known, **schema.pop("privacy", {})},
            "release": {"method": self.method, "profile": self.profile},
            **schema,
            "workload": workload_to_dict(self.workload),
        }
        return tomli_w.dumps(document)

    def sources(self) -> dict[str, Any]:
        """Where each table's rows are: a path, or a path and the table inside a database file."""
        found: dict[str, Any] = {}
        for table in self.schema.tables:
            if table.source is None:
                raise SpecError(f"tables.{table.name}.source is missing; name the file that holds the table")
            found[table.name] = source_of(table, self.folder)
        return found


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """A spec's text, and what it holds."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"{path}: the spec does not exist; write one with: dpjoin init TABLES") from None
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise SpecError(f"{path}: the spec must be UTF-8 text; save it so, or name another file") from None
        cause = getattr(error, "strerror", None) or "no such name"
        raise SpecError(f"{path}: the spec cannot be read ({cause}); name another file") from None
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not valid TOML: {error}") from None


def source_of(table: Table, folder: Path) -> Any:
    """Where a table's rows are: a path, or a path and the table inside a database file."""
    from dpjoin.engine.sources import beneath

    places = beneath(folder, table.source or "")
    return (places, table.source_table) if table.source_table else places


def _check_inside(table: Table) -> None:
    """Only databases and Excel files have tables inside."""
    from dpjoin.engine.sources import WITH_TABLES, has_tables

    holds = isinstance(table.source, str) and (is_stored(table.source) or has_tables(Path(table.source)))
    if table.source and table.source_table and not holds:
        source = table.source if isinstance(table.source, str) else list(table.source)
        raise SpecError(
            f"tables.{table.name}.table ({table.source_table!r}) must be a table inside a database or an Excel file "
            f"({', '.join(WITH_TABLES)}), not of {source!r}; remove it"
        )


def attributes_by_column(table: Table, declared: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Where a table lists no attributes: those declared ones that are among its column names."""
    from dpjoin.engine.sources import connected, missing_place, open_source

    _check_inside(table)
    place, where = source_of(table, folder), f"tables.{table.name}"
    if (missing := missing_place(place)) is not None:
        raise SourceError(
            f"{where}.source: file {missing!r} does not exist; correct it, or list {where}.attributes to plan "
            "without the file"
        )
    with connected() as connection:
        opened = open_source(connection, table.name, place, columns=(), encoding=table.encoding)
    if opened.endless:
        raise SourceError(
            f"{where}: {opened.origin} names its columns in its rows only, which nobody reads for a spec; list "
            f"{where}.attributes"
        )
    present = {column.name for column in opened.columns}
    for attribute, column in table.columns.items():
        if attribute in declared and column not in present:
            raise SourceError(
                f"{where}.columns.{attribute}: {opened.origin} has no column {column!r}; {suggest(column, present)}"
            )
    return tuple(a for a in declared if table.column(a) in present)
