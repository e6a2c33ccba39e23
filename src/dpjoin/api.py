"""The main job: tables in, Release out. The one place where engine, Curator and algorithms meet."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import combinations, product
from typing import Any

from dpjoin.auto import registry
from dpjoin.auto.plan import check_feasible
from dpjoin.canonical import instance
from dpjoin.errors import JoinedTableWarning, PublicSourceWarning, SpecError, SpecWarning, UnjoinedTableWarning, suggest
from dpjoin.measure.progress import Progress, silent
from dpjoin.privacy.accounting import Budget
from dpjoin.released.release import Release
from dpjoin.spec.plain import check_choice
from dpjoin.spec.schema import Schema
from dpjoin.spec.toml import METHODS, PROFILES
from dpjoin.spec.warnings import joined_table_warning, unjoined_table_warning
from dpjoin.spec.workload import Kronecker, Products, Workload


def release(
    schema: Schema,
    workload: Workload,
    tables: Mapping[str, Any],
    budget: Budget,
    *,
    method: str = "auto",
    profile: str = "tight",
    progress: bool | Progress = False,
) -> Release:
    """Release the join of the tables once, under the budget, for the workload.

    `tables` maps each table to a DataFrame (pandas, Polars, Arrow) or a path (CSV, Parquet, Arrow, or
    (database file, table)). Nothing of it but the Curator's noisy answers reaches the result.

    Warns, before any row is read, if the schema looks like that of a join made beforehand (JoinedTableWarning), if a
    table shares no attribute with any other (UnjoinedTableWarning), or if a public table has the rows of a private one
    (PublicSourceWarning).
    """
    from dpjoin.engine.duck import DuckEngine

    check_choice("method", method, METHODS)
    check_choice("profile", profile, PROFILES)
    for what, given, kind in (("schema", schema, Schema), ("workload", workload, Workload), ("budget", budget, Budget)):
        if not isinstance(given, kind):
            raise SpecError(f"{what} must be a dj.{kind.__name__}, not a {type(given).__name__}")
    if not isinstance(tables, Mapping):
        raise SpecError(f"tables must map each table's name to its rows, not be a {type(tables).__name__}")
    for group in workload.groups:
        instance(group, (Kronecker, Products), "a group of the workload")
    if workload.schema != schema:
        raise SpecError("the workload must be built from the schema it is released with")
    for name in tables:
        if name not in {t.name for t in schema.tables}:
            raise SpecError(f"table {name!r} is not in the schema; {suggest(name, [t.name for t in schema.tables])}")
    for table in schema.tables:
        if table.name not in tables:
            raise SpecError(f"table {table.name!r} is missing; hand it over in tables")
    check_feasible(schema, workload)
    registry.chosen_method(schema, method, profile, workload)
    inside = {t.name: t.source_table for t in schema.tables}
    sources = {name: (s, inside[name]) if isinstance(s, str | os.PathLike) else s for name, s in tables.items()}
    for warning in spec_warnings(schema, sources):
        warnings.warn(warning, stacklevel=2)
    with _progress(progress) as say:
        say("read", 0, 1)
        engine = DuckEngine(schema, tables, attributes=workload.attributes)
        outcome, curator = registry.run(method, profile, engine, workload, budget, say)
    facts: dict[str, Any] = {
        "sensitivity_bound": outcome.sensitivity,
        "join_size": outcome.noisy_total,
        "strategy": outcome.strategy,
    }
    if method == "auto":
        facts["chosen_by"] = "auto"
    if outcome.also_protects:
        facts["also_protects"] = outcome.also_protects
    if outcome.parts:
        facts["parts"] = list(outcome.parts)
    if outcome.predicted:
        facts["predicted_error"] = dict(outcome.predicted)
    assert outcome.method is not None
    return Release(schema, workload, budget, outcome.method, profile, outcome.model, curator.ledger, facts)


def spec_warnings(schema: Schema, sources: Mapping[str, Any]) -> list[SpecWarning]:
    """What is probably not meant so, in the schema and in the sources that are known. No source is opened."""
    from dpjoin.engine.sources import same_source

    found: list[SpecWarning] = []
    if said := joined_table_warning(schema):
        found.append(JoinedTableWarning(said))
    if said := unjoined_table_warning(schema):
        found.append(UnjoinedTableWarning(said))
    public = [t.name for t in schema.tables if not t.private]
    for hidden, shown in product(schema.private_tables, public):
        if hidden in sources and shown in sources and same_source(sources[hidden], sources[shown]):
            said = (
                f"tables {hidden!r} (private) and {shown!r} (public) have the same source: rows of public tables go "
                "into the release as they are, so nothing protects them; use two sources, unless everybody may see "
                "these rows"
            )
            return [*found, PublicSourceWarning(said)]
    return found


def check_sources(schema: Schema, tables: Mapping[str, Any]) -> None:
    """Refuse sources that cannot be opened or do not fit the schema. Looks at column names and types, at no row."""
    from dpjoin.engine.sources import check_columns, connected, open_source, same_source

    for first, second in combinations(schema.private_tables, 2):
        if same_source(tables[first], tables[second]):
            raise SpecError(
                f"tables {first!r} and {second!r} have the same source, so one row would change both; "
                "split the rows into two disjoint tables"
            )
    with connected() as connection:
        opened = {
            t.name: open_source(connection, t.name, tables[t.name], table=t.source_table, columns=())
            for t in schema.tables
        }
        check_columns(schema, opened)


def _progress(progress: bool | Progress) -> AbstractContextManager[Progress]:
    if callable(progress):
        return nullcontext(progress)
    if progress:
        from dpjoin.terminal import terminal_progress

        return terminal_progress()
    return nullcontext(silent)
