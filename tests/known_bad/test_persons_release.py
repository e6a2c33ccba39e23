"""Releases that protect a person: replay on neighbours, ledgers, refusals, an attack, and the way from a spec file."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.engine.interface import Clip
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.instance import ROOT_TWO
from dpjoin.privacy.parts import OneTable, Question
from support.brute import BruteEngine
from support.owners import (
    SHAPES,
    Rows,
    schema_of,
)
from support.persons_release import GENEROUS, OTHER_SHAPE, bound_by, table

RHO = Concentrated(Fraction(1, 1000))


def test_labels_are_refused_where_a_row_may_change_its_part() -> None:
    asked = curator_of(replace(SHAPES["two tables"], unit=(), neighbours="replace"))
    with pytest.raises(dj.BudgetError, match="may change its bucket"):
        asked.labels("l", [], {(1,): 1}, attributes=("o",))


def curator_of(schema: dj.Schema, rows: Rows | None = None) -> Curator:
    empty: Rows = {t.name: [] for t in schema.tables}
    return Curator(BruteEngine(schema, rows or empty), Split(budget=GENEROUS))


def test_the_histogram_of_owners_is_charged_for_two_bars_where_a_row_is_the_unit() -> None:
    for schema, moves in ((SHAPES["two tables"], 1), (replace(SHAPES["two tables"], unit=()), ROOT_TWO)):
        asked = curator_of(schema)
        asked.noisy_owners(("o",), [1, 2, 4], RHO)
        event = asked.ledger.events[-1]
        assert event.moves == moves
        assert Fraction(event.parameters["variance"]) >= Fraction(moves) ** 2 / (2 * RHO.rho)


def test_a_person_pays_for_every_table() -> None:
    """Tables are not composed in parallel: the same two parts cost a row the dearer one, and a person both."""
    spent = {}
    for unit in ((), ("o",)):
        schema = schema_of(
            table("r", "o", "a", bounds=bound_by(1, "o")), table("s", "o", "b", bounds=bound_by(1, "o")), unit=unit
        )
        asked = curator_of(schema)
        before = asked.rho_left
        asked.restrict("tables", {"r": OneTable("r", ("a",)), "s": OneTable("s", ("b",))}, [RHO, RHO])
        spent[unit] = before - asked.rho_left
    assert spent[("o",)] == 2 * spent[()] == 2 * RHO.rho


def test_rows_without_an_owner_are_in_no_measurement_of_their_table() -> None:
    schema = schema_of(table("r", "o", "a", bounds=bound_by(1, "o")), table("s", "o", "b", bounds=bound_by(1, "o")))
    rows: Rows = {"r": [{"o": None, "a": 0}, {"o": 1, "a": 0}], "s": []}
    one = BruteEngine(schema, rows).one_table("r", (), (), ("a",))
    assert one.exact_join_size() == 1


def test_what_is_stated_for_rows_is_refused_for_persons() -> None:
    schema = SHAPES["two tables"]
    asked = curator_of(schema)
    question = Question(name="q", rules={"r": {}}, by=("o",))
    with pytest.raises(dj.BudgetError, match="must be of single rows"):
        asked.noisy_ranks("ranks", [question], [1, 2], RHO)
    with pytest.raises(dj.BudgetError, match="must be of single rows"):
        asked.noisy_degrees("degrees", [question], Concentrated(Fraction(1, 100), Fraction(1, 10**4)), half_width=500)
    with pytest.raises(dj.BudgetError, match="must be of single rows"):
        asked.sensitivity_bound(Concentrated(Fraction(1, 100), Fraction(1, 10**4)), half_width=500)
    assert asked.public_bound() is None  # an owner may have any number of rows
    assert asked.ledger.events == ()


@pytest.mark.parametrize(
    ("schema", "clip", "words"),
    [
        (SHAPES["deep"], Clip(owner=("v",), limit=1), "must be by the unit of privacy"),
        (OTHER_SHAPE, Clip(owner=("o",), limit=1), "from one owner"),
        (replace(SHAPES["two tables"], unit=()), Clip(owner=("o",), limit=1, steep=False), "steep weights"),
        (
            schema_of(table("r", "o", "a"), table("s", "v", "b"), unit=()),
            Clip(owner=("o",), limit=1),
            "all private tables",
        ),
    ],
)
def test_a_clip_that_bounds_nothing_is_refused(schema: dj.Schema, clip: Clip, words: str) -> None:
    with pytest.raises((dj.BudgetError, dj.SpecError), match=words):
        curator_of(schema).clipped(clip)


def test_a_bound_enforced_across_owners_is_refused() -> None:
    across = table("r", "o", "v", "a", bounds=bound_by(1, "v"), enforce=True)
    with pytest.raises(dj.BudgetError, match="must be by attributes that include the owner"):
        curator_of(schema_of(across, table("s", "o", "b")))


def test_a_table_that_meets_several_owners_multiplies_the_bound() -> None:
    schema = schema_of(table("r", "o", "w", "a"), table("s", "w", "b", owners=50))
    clipped = curator_of(schema).clipped(Clip(owner=("o",), limit=1, full=10))
    bound = clipped.public_bound()
    assert bound is not None
    assert bound.value == 500


def test_a_ledger_of_rows_does_not_make_a_release_of_persons() -> None:
    schema, rows = SHAPES["two tables"], {"r": [{"o": 1, "a": 0}], "s": [{"o": 1, "b": 0}]}
    tables = {name: pa.Table.from_pylist(some) for name, some in rows.items()}
    release = dj.release(schema, dj.Workload.marginals(schema, 1), tables, GENEROUS)
    assert release.ledger.owner == ("o",)
    with pytest.raises(dj.BudgetError, match="of the unit that its schema protects"):
        replace(release, ledger=replace(release.ledger, owner=()))
