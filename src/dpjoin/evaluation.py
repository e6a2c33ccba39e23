"""How far a release is from the truth. It opens the private tables, and what it says is private."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpjoin.canonical import shown
from dpjoin.engine.interface import Engine
from dpjoin.errors import ReleaseError, SpecError
from dpjoin.measure.progress import Progress, silent
from dpjoin.model.terms import FloatArray
from dpjoin.released.release import Release
from dpjoin.spec.workload import Group, Kronecker, Workload


@dataclass(frozen=True)
class GroupError:
    """The true error of one group of queries. PRIVATE."""

    name: str
    queries: int
    max_error: float
    mean_error: float
    total_variation: float | None
    """Half the l1 distance of the two distributions; marginals only."""
    covered: float
    """The share of the queries whose error bar holds the truth."""
    mean_bar: float | None
    """How long bars are: ones far longer than errors hold the truth, and say little. None where none is known."""


@dataclass(frozen=True)
class Evaluation:
    """The true error of a release, for the custodian's eyes. PRIVATE: computed from the exact answers."""

    groups: tuple[GroupError, ...]
    max_error: float
    mean_error: float
    mean_total_variation: float | None
    covered: float
    coverage: float
    join_size_error: float
    mean_bar: float | None

    def to_json(self) -> dict[str, Any]:
        return {"PRIVATE": "computed from exact answers; do not publish", **asdict(self)}


def evaluate(
    release: Release,
    tables: Mapping[str, Any],
    workload: Workload | None = None,
    *,
    coverage: float = 0.9,
    memory: str | int | None = None,
    progress: Progress = silent,
) -> Evaluation:
    """Compare a release with the exact answers of the private tables."""
    from dpjoin.engine.duck import DuckEngine
    from dpjoin.engine.memory import memory_of

    if not isinstance(release, Release):
        raise ReleaseError(f"what is evaluated ({shown(release)}) must be a release: dj.load(folder)")

    if not isinstance(tables, Mapping):
        raise SpecError(f"tables must map each table's name to its rows, not be {type(tables).__name__}")
    workload = release.workload if workload is None else workload
    if not isinstance(workload, Workload):
        raise SpecError(f"workload must be a dj.Workload, not {type(workload).__name__}")
    progress("exact", 0, 1)
    engine = DuckEngine(release.schema, tables, attributes=workload.attributes, memory=memory_of(memory))
    exact_count = engine.exact_join_size()
    rows, errors, inside, lengths = [], [], [], []
    for done, (group, exact) in enumerate(exact_answers(engine, workload)):
        progress("compare", done, len(workload.groups))
        part = Workload(release.schema, (group,))
        answers, bars = release.answer(part), release.error(part, coverage=coverage)
        off = np.abs(answers - exact)
        covered = off <= bars + 1e-9
        marginal = isinstance(group, Kronecker) and group.is_marginal
        rows.append(
            GroupError(
                group.name,
                len(group),
                float(off.max(initial=0.0)),
                float(off.mean()) if len(off) else 0.0,
                _total_variation(answers, exact) if marginal else None,
                float(covered.mean()) if len(off) else 1.0,
                _mean_of_known(bars),
            )
        )
        errors.append(off)
        inside.append(covered)
        lengths.append(bars)
    progress("compare", len(workload.groups), len(workload.groups))
    off, covered = np.concatenate(errors), np.concatenate(inside)
    variations = [r.total_variation for r in rows if r.total_variation is not None]
    return Evaluation(
        tuple(rows),
        float(off.max(initial=0.0)),
        float(off.mean()),
        float(np.mean(variations)) if variations else None,
        float(covered.mean()),
        coverage,
        abs(release.join_size - exact_count),
        _mean_of_known(np.concatenate(lengths)),
    )


def exact_answers(engine: Engine, workload: Workload) -> Iterator[tuple[Group, FloatArray]]:
    """Each group of queries with its exact answers. PRIVATE."""
    truth = engine.exact_answers(workload.groups)
    for group, exact in zip(workload.groups, truth, strict=True):
        yield group, np.asarray(exact, dtype=np.float64) * float(group.unit)


def _mean_of_known(bars: FloatArray) -> float | None:
    known = bars[np.isfinite(bars)]
    return float(known.mean()) if len(known) else None


def _total_variation(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Half the l1 distance after scaling both to one; one when only one of the two is empty."""
    if not a.sum() or not b.sum():
        return float(bool(a.sum()) != bool(b.sum()))
    return float(0.5 * np.abs(a / a.sum() - b / b.sum()).sum())
