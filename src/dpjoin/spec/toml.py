"""The spec file: schema, workload, budget and method in one TOML document.

A wrong key is named with its file and place. Sources are relative to the spec's folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from dpjoin.spec.workload import Workload

METHODS = (
    "auto",
    "capped",
    "clipped",
    "heavy_light",
    "per_table",
    "uniformize",
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

    def __post_init__(self) -> None:
        check_choice("release.method", self.method, METHODS)
        check_choice("release.profile", self.profile, PROFILES)

    @classmethod
    def from_toml(cls, path: str | Path) -> Spec:
        """Read and check a spec file. Opens no table, except for column names where `attributes` is left out."""
        path = Path(path)
        _, data = read_toml(path)
        try:
            return cls.from_dict(data, folder=path.parent)
        except DpjoinError as error:
            raise type(error)(f"{path}: {error}") from None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, folder: Path = Path()) -> Spec:
        """A spec from nested dictionaries shaped like the TOML file."""
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
        schema = schema_from_dict(data, lambda table, declared: attributes_by_column(table, declared, folder))
        for table in schema.tables:
            _check_inside(table)
        workload = workload_from_dict(schema, section(data, "workload") if "workload" in data else DEFAULT_WORKLOAD)
        return cls(schema, workload, budget, **release, folder=folder)

    def to_toml(self) -> str:
        """The spec as TOML text; reading it back gives an equal spec."""
        import tomli_w

        schema = schema_to_dict(self.schema)
        document: dict[str, Any] = {
            "privacy": {"epsilon": self.budget.epsilon, "delta": self.budget.delta, **schema.pop("privacy", {})},
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
    except OSError:
        raise SpecError(f"{path}: the spec cannot be read; write one with: dpjoin init TABLES") from None
    except UnicodeDecodeError:
        raise SpecError(f"{path}: the spec must be UTF-8 text") from None
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not valid TOML: {error}") from None


def source_of(table: Table, folder: Path) -> Any:
    """Where a table's rows are: a path, or a path and the table inside a database file."""
    path = folder / str(table.source)
    return (path, table.source_table) if table.source_table else path


def _check_inside(table: Table) -> None:
    """Only a database has tables inside."""
    from dpjoin.engine.sources import DATABASE_FILES

    if table.source and table.source_table and Path(table.source).suffix.lower() not in DATABASE_FILES:
        raise SpecError(
            f"tables.{table.name}.table ({table.source_table!r}) must be a table inside a database "
            f"({', '.join(DATABASE_FILES)}), not of {table.source!r}; remove it"
        )


def attributes_by_column(table: Table, declared: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Where a table lists no attributes: those declared ones that are among its column names."""
    from dpjoin.engine.sources import connected, open_source

    _check_inside(table)
    path, where = folder / str(table.source), f"tables.{table.name}"
    if not path.exists():
        raise SourceError(
            f"{where}.source: file {str(path)!r} does not exist; correct it, or list {where}.attributes to plan "
            "without the file"
        )
    with connected() as connection:
        opened = open_source(connection, table.name, path, table=table.source_table, columns=())
    present = {column.name for column in opened.columns}
    for attribute, column in table.columns.items():
        if attribute in declared and column not in present:
            raise SourceError(
                f"{where}.columns.{attribute}: {opened.origin} has no column {column!r}; {suggest(column, present)}"
            )
    return tuple(a for a in declared if table.column(a) in present)
