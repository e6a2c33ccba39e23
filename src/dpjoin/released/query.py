"""SQL questions to a release: from the model with error bars where it can, else over the synthetic rows."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from dpjoin.errors import ReleaseError, SpecError, suggest
from dpjoin.released.release import Release, checked_coverage
from dpjoin.released.result import Answers
from dpjoin.released.shown import may_be_years
from dpjoin.spec.dates import DATE
from dpjoin.spec.schema import OTHER, Attribute
from dpjoin.spec.sql import Measure, Query, columns_of, read_query, rows_shown
from dpjoin.spec.sql_tree import ACCEPTED, Unsupported, bins_name
from dpjoin.spec.workload import Average, Workload


def ask(release: Release, statement: str, *, coverage: float = 0.9) -> Answers:
    """Answer a statement. What is no linear query or average goes to DuckDB, over the synthetic rows."""
    coverage = checked_coverage(coverage)
    try:
        query = read_query(release.schema, statement)
    except Unsupported as reason:
        try:
            table = release.sql(statement)
        except ReleaseError as error:
            raise ReleaseError(_refused(release, statement, str(reason), str(error))) from None
        rows = tuple(((), tuple(row.values()), ()) for row in table.to_pylist())
        titles = tuple(table.column_names)
        notes = _notes_on_rows(release, statement, str(reason).removeprefix("SQL: ").partition(f"; {ACCEPTED}")[0])
        return Answers((), titles, rows, None, notes, release.guarantee, table=table)
    return _from_model(release, query, coverage)


def _refused(release: Release, statement: str, reason: str, error: str) -> str:
    """Why neither the model nor the synthetic rows can answer; DuckDB's own words only where we have none."""
    schema, named = release.schema, columns_of(release.schema, statement)
    if missing := [a for a in named if a not in release.attributes]:
        if schema.attribute(missing[0]).key:
            return f"SQL: {missing[0]!r} is a key that no query can look at; give it values, a range or bins instead"
        return f"SQL: attribute {missing[0]!r} is not in this release; {suggest(missing[0], release.attributes)}"
    if (unknown := re.search(r'column "([^"]+)" not found', error)) is not None:
        return f"SQL: {unknown[1]!r} is not an attribute; {suggest(unknown[1], release.attributes)}"
    if "convert string" in error and (binned := [a for a in named if schema.attribute(a).bins is not None]):
        bins = bins_name(schema, binned[0])
        return f"{reason} (the synthetic rows hold numbers of {binned[0]}; compare their bins in {bins})"
    if "the only table is joined" in reason:
        return reason
    said = re.sub(r"^SQL: (\w+ Error: )?", "", error)
    return f"{reason} (the synthetic rows cannot tell either: {said})"


def _from_model(release: Release, query: Query, coverage: float) -> Answers:
    columns = [_cells(release, query, m, coverage) for m in (*query.measures, *query.hidden)]
    domains = tuple(map(release.schema.attribute, query.by))
    labels = [a.labels for a in domains]
    shape = [len(names) for names in labels]
    cells = np.indices(shape).reshape(len(shape), math.prod(shape))
    kept = [all(c in query.kept.get(a, (c,)) for a, c in zip(query.by, code, strict=True)) for code in cells.T]
    cells = cells[:, kept]
    at = tuple(cells)
    numbers, bars = ([array[at].reshape(-1) for array in arrays] for arrays in zip(*columns, strict=True))
    shown = range(cells.shape[1]) if query.presented is None else rows_shown(query.presented, domains, at, numbers)
    asked = len(query.measures)
    rows = tuple(
        (
            tuple(_label(names[c]) for names, c in zip(labels, cells[:, i], strict=True)),
            tuple(float(n[i]) for n in numbers[:asked]),
            tuple(float(b[i]) if math.isfinite(b[i]) else None for b in bars[:asked]),
        )
        for i in shown
    )
    titles = _titles(query)
    notes = []
    if any(bar is None for _, _, bars in rows for bar in bars):
        notes.append("? marks numbers without a known error bar: their attributes were never measured together")
    if binned := sorted({m.of for m in query.measures if m.of is not None and m.bins is not None}):
        notes.append(f"of {', '.join(binned)} only bins are known, and the ± of sums and averages makes room for that")
    asked_of = zip(titles, (m.asked for m in query.measures), strict=True)
    plain = frozenset(t for t, a in asked_of if isinstance(a, Average) and may_be_years([a.low, a.high]))
    return Answers(query.names, titles, rows, coverage, tuple(notes), release.guarantee, domains, plain)


def _notes_on_rows(release: Release, statement: str, reason: str) -> tuple[str, ...]:
    each = release.rows_stand_for
    scale = f"; each row stands for {each:,.1f} join results" if each > 1.0001 else ""
    notes = [f"computed over the synthetic rows, so no error bars are known{scale} ({reason})"]
    named = columns_of(release.schema, statement)
    if binned := [a for a in named if release.schema.attribute(a).bins is not None]:
        notes.append(
            f"numbers of {', '.join(binned)} are drawn within their bins; {bins_name(release.schema, binned[0])} "
            "has the bins themselves"
        )
    return tuple(notes)


def describe(release: Release, *, coverage: float = 0.9) -> Answers:
    """One row per column: its kind, its domain, its most frequent value; how many rows have a value, their average."""
    coverage = checked_coverage(coverage)
    rows = []
    for name in release.attributes:
        attribute = release.schema.attribute(name)
        quoted = '"' + name.replace('"', '""') + '"'
        known = f" WHERE {quoted} <> '{OTHER}'" if attribute.other else ""
        asked = [f"SELECT COUNT(*) FROM joined{known}"]
        if _summable(attribute):
            asked.append(f"SELECT AVG({quoted}) FROM joined")
        numbers, bars = (
            [float(ask(s)[0]) for s in asked] for ask in (release.answer, lambda s: release.error(s, coverage=coverage))
        )
        cells = release.answer(Workload.marginals(release.schema, [(name,)]))
        frequent = str(_label(attribute.labels[int(np.argmax(cells))]))
        missing = [None] * (2 - len(asked))
        told = (name, _kind(attribute), _domain(attribute), frequent)
        rows.append((told, (*numbers, *missing), (*(b if math.isfinite(b) else None for b in bars), *missing)))
    labels = ("column", "kind", "domain", "most frequent")
    years = frozenset({"average"})
    return Answers(labels, ("rows", "average"), tuple(rows), coverage, (), release.guarantee, (), years)


def _summable(attribute: Attribute) -> bool:
    try:
        return not isinstance(attribute.labels[0], bool) and bool(attribute.amounts)
    except SpecError:
        return False


def _kind(attribute: Attribute) -> str:
    if attribute.part == DATE:
        return "dates"
    if attribute.bins is not None:
        return "numbers"
    first = attribute.labels[0]
    return "true or false" if isinstance(first, bool) else "whole numbers" if isinstance(first, int) else "text"


def _domain(attribute: Attribute) -> str:
    if attribute.range is not None:
        return " to ".join(map(attribute.told, attribute.range))
    if attribute.bins is not None:
        first, last = attribute.told(attribute.bins[0]), attribute.told(attribute.bins[-1])
        return f"{first} to {last} in {len(attribute.bins) - 1} bin{'s' * (len(attribute.bins) > 2)}"
    known = [str(label) for label in attribute.labels[: attribute.size - attribute.other]]
    few = known if len(known) <= 6 else [*known[:3], "…", known[-1]]
    return ", ".join(few)


def _cells(release: Release, query: Query, measure: Measure, coverage: float) -> tuple[Any, Any]:
    """Answers and error bars of one aggregate, with one axis per grouped attribute in the statement's order."""
    group = measure.asked
    order = [group.scope.index(a) for a in query.by]
    order += [i for i in range(len(group.scope)) if i not in order]
    shape = tuple(release.schema.attribute(a).size for a in query.by)
    found = (release.answer(measure), release.error(measure, coverage=coverage))
    answers, bars = (array.reshape(group.answer_shape).transpose(order).reshape(shape) for array in found)
    return answers, bars


def _label(label: object) -> object:
    return OTHER if label is None else label


def _titles(query: Query) -> tuple[str, ...]:
    """One title per aggregate; a title that occurs again, or is that of a grouped column, is numbered."""
    titles = list(query.names)
    for measure in query.measures:
        again = sum(t == measure.title or t.startswith(f"{measure.title} (") for t in titles)
        titles.append(measure.title if not again else f"{measure.title} ({again + 1})")
    return tuple(titles[len(query.names) :])
