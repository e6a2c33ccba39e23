"""SQL questions to a release: from the model with error bars where it can, else over the synthetic rows."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpjoin.errors import ReleaseError, suggest
from dpjoin.released.release import Release
from dpjoin.spec.schema import OTHER
from dpjoin.spec.sql import Measure, Query, columns_of, read_query, rows_shown
from dpjoin.spec.sql_tree import Unsupported
from dpjoin.spec.workload import Average, Workload


@dataclass(frozen=True)
class Answers:
    """A small result: labels, then numbers; `bars` has one half-width per number, or None where none is known."""

    labels: tuple[str, ...]
    titles: tuple[str, ...]
    rows: tuple[tuple[tuple[Any, ...], tuple[Any, ...], tuple[float | None, ...]], ...]
    coverage: float | None
    """None: the answers come from the synthetic rows and have no error bars."""
    why: str = ""
    """Why there are no error bars."""

    def to_json(self) -> dict[str, Any]:
        rows = []
        for labels, numbers, bars in self.rows:
            row = dict(zip(self.labels, labels, strict=True)) | dict(zip(self.titles, numbers, strict=True))
            if self.coverage is not None:
                row |= {f"{title} ±": bar for title, bar in zip(self.titles, bars, strict=True)}
            rows.append(row)
        source = "model" if self.coverage is not None else "synthetic rows"
        return {"source": source, "coverage": self.coverage, "rows": rows}


def ask(release: Release, statement: str, *, coverage: float = 0.9) -> Answers:
    """Answer a statement. What is no linear query or average goes to DuckDB, over the synthetic rows."""
    try:
        query = read_query(release.schema, statement)
    except Unsupported as reason:
        try:
            table = release.sql(statement)
        except ReleaseError as error:
            raise ReleaseError(_refused(release, statement, str(reason), str(error))) from None
        rows = tuple(((), tuple(row.values()), ()) for row in table.to_pylist())
        return Answers((), tuple(table.column_names), rows, None, str(reason).removeprefix("SQL: "))
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
    if "No function matches" in error and (binned := [a for a in named if schema.attribute(a).bins is not None]):
        return f"{reason} (the synthetic rows cannot tell either: they hold bins of {', '.join(binned)} as text)"
    said = re.sub(r"^SQL: (\w+ Error: )?", "", error)
    return f"{reason} (the synthetic rows cannot tell either: {said})"


def _from_model(release: Release, query: Query, coverage: float) -> Answers:
    columns = [_cells(release, query, m, coverage) for m in (*query.measures, *query.hidden)]
    labels = [release.schema.attribute(a).labels for a in query.by]
    shape = [len(names) for names in labels]
    cells = np.indices(shape).reshape(len(shape), math.prod(shape))
    kept = [all(c in query.kept.get(a, (c,)) for a, c in zip(query.by, code, strict=True)) for code in cells.T]
    cells = cells[:, kept]
    at = tuple(cells)
    numbers, bars = ([array[at].reshape(-1) for array in arrays] for arrays in zip(*columns, strict=True))
    shown = range(cells.shape[1]) if query.presented is None else rows_shown(query.presented, at, numbers)
    asked = len(query.measures)
    rows = tuple(
        (
            tuple(_label(names[c]) for names, c in zip(labels, cells[:, i], strict=True)),
            tuple(float(n[i]) for n in numbers[:asked]),
            tuple(float(b[i]) if math.isfinite(b[i]) else None for b in bars[:asked]),
        )
        for i in shown
    )
    return Answers(query.names, _titles(query), rows, coverage)


def _cells(release: Release, query: Query, measure: Measure, coverage: float) -> tuple[Any, Any]:
    """Answers and error bars of one aggregate, with one axis per grouped attribute in the statement's order."""
    group = measure.asked
    part = group if isinstance(group, Average) else Workload(release.schema, (group,))
    order = [group.scope.index(a) for a in query.by]
    order += [i for i in range(len(group.scope)) if i not in order]
    shape = tuple(release.schema.attribute(a).size for a in query.by)
    found = (release.answer(part), release.error(part, coverage=coverage))
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
