"""heavy_light and per_table: heavy values table by table, joins of models are exact, a row pays in one part only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.interface import ExactDegrees, Rules, Value
from dpjoin.errors import BudgetError
from dpjoin.measure.progress import silent
from dpjoin.measure.shares import tight_shares
from dpjoin.measure.totals import NoisyTotal
from dpjoin.methods import per_table
from dpjoin.methods.as_one import as_one_tight
from dpjoin.methods.per_table import Size
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.ledger import Event
from dpjoin.privacy.numbers import Numbers
from dpjoin.privacy.parts import OneTable
from dpjoin.spec.workload import Workload
from support.audit import (
    Recorder,
    Replayer,
    Run,
    Tape,
    attach,
    published,
    replay_violations,
)
from support.brute import BruteEngine
from support.heavy_light import (
    DECLARED,
    KEY,
    forced,
    heavy_light_on,
    per_table_on,
    problems,
    schema_of,
    told,
)
from support.skewed import GENEROUS, Rows

TWO = schema_of("two", KEY)


def two_tables(r: Mapping[int, int], s: Mapping[int, int]) -> Rows:
    """Tables with the given numbers of rows per key."""
    return {
        name: [{"A": key, attribute: i % 3} for key, count in each.items() for i in range(count)]
        for name, attribute, each in (("r", "p", r), ("s", "q", s))
    }


HOT, ONE_LESS = two_tables({1: 2, 2: 20}, {1: 2, 2: 40}), two_tables({1: 2, 2: 19}, {1: 2, 2: 40})


LONE, ABSENT = two_tables({1: 2, 3: 1}, {1: 2}), two_tables({1: 2}, {1: 2})


Change = Callable[[type[Curator]], type[Curator]]


def heavy_light_run(change: Change) -> Callable[[type[Curator], Any, Tape], tuple[Any, Curator]]:
    def run(kind: type[Curator], tables: Any, tape: Tape) -> tuple[Any, Curator]:
        outcome, curator = heavy_light_on(BruteEngine(TWO, tables), change(kind), tape, choice=forced(4, 2))
        return told(outcome), curator

    return run


@pytest.mark.parametrize("pair", [(HOT, ONE_LESS), (LONE, ABSENT)])
def test_the_correct_algorithm_is_not_flagged(pair: tuple[Rows, Rows]) -> None:
    assert not any(problems(heavy_light_run(lambda kind: kind), *pair))


def alone_twice(change: Change) -> Callable[[type[Curator], Any, Tape], tuple[Any, Curator]]:
    """The rows of one table twice, each time with the whole budget."""

    def run(kind: type[Curator], tables: Any, tape: Tape) -> tuple[Any, Curator]:
        curator = attach(change(kind)(BruteEngine(TWO, tables), Split(budget=GENEROUS)), tape)
        parts = {"one": OneTable("r", ("p",)), "again": OneTable("r", ("p",)), "other": OneTable("s", ("q",))}
        cost = Concentrated(curator.rho_left)
        released = []
        for part in curator.restrict("tables", parts, [cost] * 3):
            bound = part.public_bound()
            assert bound is not None
            released.append(part.join_size(bound, cost))
        return released, curator

    return run


def pretends(kind: type[Curator]) -> type[Curator]:
    """A Curator whose sub-instances are apart, whatever rows they hold."""

    class Mutant(kind):  # type: ignore[misc,valid-type]
        def _places(self, rules: Mapping[str, Rules]) -> dict[str, dict[str, int]]:
            seen = self.__dict__.setdefault("seen", [])
            if not any(rules is known for known in seen):
                seen.append(rules)
            at = next(i for i, known in enumerate(seen) if known is rules)
            return {table: {"pretended": at} for table in rules}

    return Mutant


def test_a_table_that_spends_the_budget_twice_is_caught() -> None:
    """An honest Curator refuses it; where the places lie, the changed row pays more than the ledger says."""
    with pytest.raises(BudgetError, match="exceeds what is left"):
        alone_twice(lambda kind: kind)(Recorder, HOT, Tape())
    found = problems(alone_twice(pretends), HOT, ONE_LESS)
    assert any("participation" in f for f in found)


def listing(noise: Callable[[Numbers], Numbers], threshold: Callable[[int], int]) -> Change:
    """A Curator that lists with other noise or another threshold than it says."""

    def change(kind: type[Curator]) -> type[Curator]:
        class Mutant(kind):  # type: ignore[misc,valid-type]
            def listed(
                self, exact: ExactDegrees, draw: Callable[[int], Numbers], above: int, event: Event
            ) -> dict[Value, int]:
                # A Replayer hands out what is on the tape, and holds its own degrees against what was declared.
                if issubclass(kind, Replayer):
                    found: dict[Value, int] = super().listed(exact, draw, above, event)
                else:
                    found = super().listed(exact, lambda n: noise(draw(n)), threshold(above), event)
                return found

        return Mutant

    return change


def test_heavy_values_by_exact_degrees_are_caught() -> None:
    """Without noise, above the right threshold: one row more, and the listed degree is impossible."""
    found = problems(heavy_light_run(listing(np.zeros_like, lambda above: above)), HOT, ONE_LESS)
    assert any("support" in f for f in found)


def test_heavy_values_without_a_threshold_are_caught() -> None:
    """Every present value is heavy; where its only row is gone it never can be."""
    found = problems(heavy_light_run(listing(lambda drawn: drawn, lambda _: 0)), LONE, ABSENT)
    assert any("cannot list" in f for f in found)


def test_a_cut_that_looks_at_exact_degrees_is_caught() -> None:
    """The listed values are sound; which of them are heavy depends on one row."""

    def run(kind: type[Curator], tables: Any, tape: Tape) -> tuple[Any, Curator]:
        engine = BruteEngine(TWO, tables)
        degrees = engine.exact_degrees({"r": {}}, ("A",))
        values = degrees.exact_values(np.arange(len(degrees.exact_counts)))
        exact = dict(zip(values, degrees.exact_counts.tolist(), strict=True))

        heavy = sum(count >= 20 for count in exact.values())
        outcome, curator = heavy_light_on(engine, kind, tape, choice=forced(heavy, 2))
        return told(outcome), curator

    assert any("control flow" in f for f in problems(run, HOT, ONE_LESS))


def join_then_release(schema: dj.Schema) -> Run:
    """The folly that the paper starts from: join first, then release the result as a table of its own."""

    def run(kind: type[Curator], tables: Any, tape: Tape) -> Any:
        results = BruteEngine(schema, tables)._exact_join([t.name for t in schema.tables])
        kept = schema.queryable
        one = dj.Schema((dj.Table(name="join", attributes=kept),), tuple(schema.attribute(a) for a in kept))
        shares = tight_shares(GENEROUS, noisy_bound=False)
        curator = attach(kind(BruteEngine(one, {"join": results}), shares.split), tape)
        return published(as_one_tight(curator, Workload.marginals(one, 1), shares, silent))

    return run


@pytest.mark.parametrize("shape", ["two", "star", "triangle"])
def test_joining_first_and_releasing_one_table_is_caught(shape: str) -> None:
    """A row of the original tables is many rows of the join. Of the join itself, one row is one row."""
    schema = schema_of(shape, DECLARED)
    # Values near each other, so that the triangle closes often.
    rows = {t.name: [dict.fromkeys(t.attributes, i % 2) for i in range(9)] for t in schema.tables}
    fewer = {**rows, "r": rows["r"][:-1]}
    moved = BruteEngine(schema, rows).exact_join_size() - BruteEngine(schema, fewer).exact_join_size()
    assert moved > 1
    for pair in ((rows, fewer), (fewer, rows)):
        (found,) = replay_violations(join_then_release(schema), *pair)
        assert found.startswith("sensitivity")
    alone = schema_of("contained", DECLARED)
    single = {"r": [{"A": 1, "p": i % 3} for i in range(9)], "s": [{"A": 1}]}
    assert replay_violations(join_then_release(alone), single, {**single, "r": single["r"][:-1]}) == []


@pytest.mark.parametrize("exact", [False, True])
def test_a_join_of_models_that_has_the_exact_size_is_caught(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noisy models, a charged look at the size, and then the true one in its place; the honest one is not flagged."""
    measured = per_table.size_under_caps

    def true_size(look: Any, *more: Any, **named: Any) -> Size:
        found = measured(look, *more, **named)
        return replace(found, total=NoisyTotal(float(look.curator._engine.exact_join_size()), 1.0))

    if exact:
        monkeypatch.setattr(per_table, "size_under_caps", true_size)
    schema = schema_of("two", DECLARED)

    def run(kind: type[Curator], tables: Any, tape: Tape) -> tuple[Any, Curator]:
        outcome, curator = per_table_on(BruteEngine(schema, tables), kind, tape)
        return told(outcome), curator

    assert any(problems(run, HOT, ONE_LESS)) == exact
