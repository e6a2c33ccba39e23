"""The main job: tables in, Release out. The one place where engine, Curator and algorithms meet."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import product
from typing import Any

from dpjoin.auto import registry
from dpjoin.auto.learned import run_learned
from dpjoin.auto.plan import check_feasible, planned_stages
from dpjoin.canonical import instance, shown
from dpjoin.errors import (
    DeltaWarning,
    JoinedTableWarning,
    PublicSourceWarning,
    SpecError,
    SpecWarning,
    UnjoinedTableWarning,
    suggest,
)
from dpjoin.measure.progress import Progress, silent
from dpjoin.privacy.accounting import Budget
from dpjoin.released.noticed import with_noticed
from dpjoin.released.release import Release
from dpjoin.spec.learning import with_domains
from dpjoin.spec.plain import check_choice
from dpjoin.spec.schema import Schema
from dpjoin.spec.toml import METHOD_NAMES, PROFILES
from dpjoin.spec.warnings import delta_warning, joined_table_warning, unjoined_table_warning
from dpjoin.spec.workload import Kronecker, Products, Workload


def release(
    schema: Schema,
    workload: Workload,
    tables: Mapping[str, Any],
    budget: Budget,
    *,
    method: str = "auto",
    profile: str = "tight",
    memory: str | int | None = None,
    progress: bool | Progress = False,
) -> Release:
    """Release the join of the tables once, under the budget, for the workload.

    `tables` maps each table to a DataFrame (pandas, Polars, Arrow) or a path (CSV, Parquet, Arrow, or
    (database file, table)). Nothing of it but the Curator's noisy answers reaches the result. `memory` (as "4GB") is
    what it may take, by default half of the machine's; more rows wait on disk, where only this process can read them.

    Warns, before any row is read, if the schema looks like that of a join made beforehand (JoinedTableWarning), if a
    table shares no attribute with any other (UnjoinedTableWarning), or if a public table has the rows of a private one
    (PublicSourceWarning).
    """
    from dpjoin.engine.duck import DuckEngine
    from dpjoin.engine.memory import memory_of
    from dpjoin.engine.sources import is_place

    limit = memory_of(memory)
    check_choice("method", method, METHOD_NAMES)
    check_choice("profile", profile, PROFILES)
    for what, given, kind in (("schema", schema, Schema), ("workload", workload, Workload), ("budget", budget, Budget)):
        if type(given) is not kind:  # what a subclass says of itself need not be so
            raise SpecError(f"{what} must be a dj.{kind.__name__}, not {type(given).__name__}")
    if not isinstance(tables, Mapping):
        raise SpecError(f"tables must map each table's name to its rows, not be {type(tables).__name__}")
    if not (isinstance(progress, bool) or callable(progress)):
        raise SpecError(f"progress ({shown(progress)}) must be True, False or a function of (what, done, of)")
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
    sources = {name: (s, inside[name]) if is_place(s) else s for name, s in tables.items()}
    for warning in spec_warnings(schema, sources, budget):
        warnings.warn(warning, stacklevel=2)
    planned = planned_stages(schema, workload, budget, method, profile)
    with _progress(progress) as say:
        say("read", 0, 1)
        engine = DuckEngine(schema, tables, attributes=workload.attributes, memory=limit)
        learned: dict[str, Any] = {}
        if schema.learned:
            outcome, curator, learned = run_learned(
                method, profile, engine, workload, budget, say, check=check_feasible
            )
            # Public tables' bounds were read off for the run; the release has the domains, and what was declared.
            domains = {a.name: a for a in curator.schema.attributes}
            schema = with_domains(schema, domains)
            workload = workload.over(schema)
        else:
            outcome, curator = registry.run(method, profile, engine, workload, budget, say)
    facts: dict[str, Any] = {
        "sensitivity_bound": outcome.sensitivity,
        "join_size": outcome.noisy_total,
        "strategy": outcome.strategy,
        "planned": planned,
    }
    if method == "auto":
        facts["chosen_by"] = "auto"
    if learned:
        facts["learned"] = learned
    if outcome.also_protects:
        facts["also_protects"] = outcome.also_protects
    if outcome.parts:
        facts["parts"] = list(outcome.parts)
    if outcome.predicted:
        facts["predicted_error"] = dict(outcome.predicted)
    assert outcome.method is not None
    finished = Release(schema, workload, budget, outcome.method, profile, outcome.model, curator.ledger, facts)
    return with_noticed(finished, {name: (rows.noisy, rows.deviation) for name, rows in outcome.rows.items()})


def spec_warnings(
    schema: Schema, sources: Mapping[str, Any], budget: Budget, rows: int | None = None
) -> list[SpecWarning]:
    """What is probably not meant so, in the schema, the budget and the sources that are known. No source is opened."""
    from dpjoin.engine.sources import same_source

    found: list[SpecWarning] = []
    if said := delta_warning(budget.delta, rows):
        found.append(DeltaWarning(said))
    if said := joined_table_warning(schema):
        found.append(JoinedTableWarning(said))
    if said := unjoined_table_warning(schema):
        found.append(UnjoinedTableWarning(said))
    public = [t.name for t in schema.tables if not t.private]
    for hidden, seen in product(schema.private_tables, public):
        if hidden in sources and seen in sources and same_source(sources[hidden], sources[seen]):
            said = (
                f"tables {hidden!r} (private) and {seen!r} (public) have the same source: rows of public tables go "
                "into the release as they are, so nothing protects them; use two sources, unless everybody may see "
                "these rows"
            )
            return [*found, PublicSourceWarning(said)]
    return found


def check_sources(schema: Schema, tables: Mapping[str, Any]) -> None:
    """Refuse sources that cannot be opened or do not fit the schema. Looks at column names and types, at no row."""
    from dpjoin.engine.sources import check_columns, connected, open_source
    from dpjoin.engine.stores import refuse_one_source_twice

    refuse_one_source_twice(schema, tables)
    with connected() as connection:
        opened = {
            t.name: open_source(
                connection, t.name, tables[t.name], table=t.source_table, columns=(), encoding=t.encoding
            )
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
