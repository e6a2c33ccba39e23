"""Gains that look free where a person is protected: each is built, and replay on one pair of neighbours sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Clip
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.instance import Instance
from dpjoin.privacy.mechanisms import Move
from dpjoin.privacy.parts import OneTable
from support.audit import Replayer, Run, Tape, attach, overpaid, replay_violations
from support.brute import BruteEngine
from support.owners import SHAPES, Rows, marginals, schema_of, without_person
from support.persons import arrow_of
from support.persons_release import GENEROUS, bound_by, table

RHO = Concentrated(Fraction(1, 1000))
CLIP = Clip(owner=("o",), limit=1)
Made = Callable[[Rows], BruteEngine]


def clipped_run(made: Made, clip: Clip = CLIP) -> Run:
    """The histogram of owners, and the size and the finest marginal of the clipped join."""

    def run(kind: type[Curator], rows: Rows, tape: Tape) -> None:
        curator = attach(kind(made(rows), Split(budget=GENEROUS)), tape)
        curator.noisy_owners(clip.owner, [1, 2, 4], RHO)
        inside = curator.clipped(clip)
        bound = inside.public_bound()
        assert bound is not None
        inside.join_size(bound, RHO)
        inside.measure(marginals(inside.schema)[-1], bound, RHO)

    return run


def engine(schema: dj.Schema) -> Made:
    return lambda rows: BruteEngine(schema, rows)


def test_clipping_where_a_table_reaches_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty patients of one doctor, and the doctor's row charged as if it met one of them."""
    schema = schema_of(table("r", "o", "w", "a"), table("s", "w", "b", owners=50))
    rows: Rows = {"r": [{"o": n, "w": 0, "a": 0} for n in range(50)], "s": []}
    more: Rows = {**rows, "s": [{"w": 0, "b": 0}]}
    assert replay_violations(clipped_run(engine(schema)), rows, more) == []
    monkeypatch.setattr("dpjoin.privacy.instance.owners_per_row", lambda schema, clip: 1)
    (found,) = replay_violations(clipped_run(engine(schema)), rows, more)
    assert "moves more than the declared" in found


def test_a_row_that_meets_one_owner_charged_as_a_whole_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """It brings its owner results: from one bar of the histogram to another, and weight from one cell to another."""
    schema = schema_of(table("r", "o", "w", "a"), table("s", "w", "b", owners=1))
    rows: Rows = {"r": [{"o": 0, "w": 0, "a": 0}, {"o": 0, "w": 1, "a": 1}], "s": [{"w": 0, "b": 0}]}
    more: Rows = {**rows, "s": [*rows["s"], {"w": 1, "b": 1}]}
    assert replay_violations(clipped_run(engine(schema)), rows, more) == []
    monkeypatch.setattr(Instance, "_by_person", property(lambda self: True))
    (found,) = replay_violations(clipped_run(engine(schema)), rows, more)
    assert found == "sensitivity: 'owners by join results' moves more than the declared 1"


def test_a_coded_owner() -> None:
    """Codes call all owners above 0 `other`: persons are clipped together, and one takes the weight of the others."""
    schema, clip = SHAPES["two tables"], Clip(owner=("o",), limit=10, steep=False)
    few, many = [{"o": 2, "b": 0} for _ in range(10)], [{"o": 1, "b": 1} for _ in range(200)]
    rows: Rows = {"r": [{"o": 1, "a": 1}, {"o": 2, "a": 0}], "s": [*few, *many]}
    without = without_person(schema, rows, (1,))

    def coded(rows: Rows) -> BruteEngine:
        return BruteEngine(schema, {t: [{**row, "o": min(row["o"], 1)} for row in some] for t, some in rows.items()})

    assert replay_violations(clipped_run(engine(schema), clip), rows, without) == []
    (found,) = replay_violations(clipped_run(coded, clip), rows, without)
    assert "moves more than the declared" in found


def test_a_bound_enforced_across_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person without a join result pushes out the rows of forty others. Ring 1 refuses; replay sees it, too."""
    across = table("r", "o", "v", "a", bounds=bound_by(1, "v"), enforce=True)
    schema = schema_of(across, table("s", "o", "b"))
    joined = [{"o": o, "b": 0} for o in range(1, 41)]
    others = [{"o": 1 + v, "v": v, "a": 0} for v in range(40)]
    rows: Rows = {"r": others, "s": joined}
    more: Rows = {"r": [*others, *({"o": 0, "v": v, "a": 0} for v in range(40))], "s": joined}
    with pytest.raises(dj.BudgetError, match="must be by attributes that include the owner"):
        clipped_run(engine(schema))(Curator, rows, Tape())
    for module in ("instance", "owners"):
        monkeypatch.setattr(f"dpjoin.privacy.{module}.check_removals", lambda schema, owner: None)
    (found,) = replay_violations(clipped_run(engine(schema)), rows, more)
    assert "moves more than the declared" in found


def test_a_foreign_key_made_unique_across_persons(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty patients share the numbers of their visits with one more: which of two keeps a visit depends on both."""
    visits = table("r", "o", "v", "a", bounds=bound_by(1, "v"), enforce=True)
    drugs = table("s", "v", "b", owner_via="v")
    others = [{"o": 1 + v, "v": v, "a": 0} for v in range(40)]
    rows: Rows = {"r": others, "s": [{"v": v, "b": 0} for v in range(40)]}
    more: Rows = {**rows, "r": [*others, *({"o": 0, "v": v, "a": 0} for v in range(40))]}
    with pytest.raises(dj.SpecError, match="must be unique in the table it points to"):
        schema_of(visits, drugs)
    monkeypatch.setattr("dpjoin.spec.persons._linked", lambda schema, t: list(schema.tables[: t.name == "s"]))
    for module in ("instance", "owners"):
        monkeypatch.setattr(f"dpjoin.privacy.{module}.check_removals", lambda schema, owner: None)
    (found,) = replay_violations(clipped_run(engine(schema_of(visits, drugs))), rows, more)
    assert "moves more than the declared" in found


def test_truncation_after_caps() -> None:
    """A person with a hundred rows of one value pushes all others out of a cap, before its own rows are cut to one."""
    first = schema_of(
        table("r", "o", "v", "a", bounds=bound_by(1, "o"), enforce=True), table("s", "v", "b", private=False)
    )
    raw = replace(first, tables=(replace(first.tables[0], bounds=(), enforce=False), first.tables[1]))
    caps = {"r": bound_by(5, "v")}
    others = [{"o": o, "v": 0, "a": 0} for o in range(1, 6)]
    without: Rows = {"r": others, "s": [{"v": 0, "b": 0}]}
    rows: Rows = {**without, "r": [*others, *({"o": 0, "v": 0, "a": n % 3} for n in range(100))]}
    asked = Curator(BruteEngine(first, rows), Split(budget=GENEROUS)).capped(caps)
    bound = asked.public_bound()
    assert bound is not None
    stated = asked._instance.move_of_size(bound)

    def late(rows: Rows) -> int:
        kept = BruteEngine(raw, rows).capped(caps)._exact_rows
        return BruteEngine(first, {name: [dict(row) for row in some] for name, some in kept.items()}).exact_join_size()

    assert abs(late(rows) - late(without)) > stated
    for made in (
        lambda rows: BruteEngine(first, rows),
        lambda rows: DuckEngine(first, arrow_of(first, rows), attributes=("a", "b")),
    ):
        sizes = [made(some).capped(caps).exact_join_size() for some in (rows, without)]
        assert sizes == [5, 5]


def test_simple_weights_where_a_row_is_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A public table brings ten results of one kind and then two thousand of another: gained and lost add up."""
    schema = schema_of(
        table("r", "o", "v", "a"), table("s", "v", "b", private=False), table("t", "o", private=False), unit=()
    )
    public = [*({"v": 0, "b": 0} for _ in range(10)), *({"v": 1, "b": 1} for _ in range(2000))]
    rows: Rows = {"r": [{"o": 0, "v": 0, "a": 0}], "s": public, "t": [{"o": 0}]}
    more: Rows = {**rows, "r": [*rows["r"], {"o": 0, "v": 1, "a": 1}]}
    steep = Clip(owner=("o",), limit=10)
    assert replay_violations(clipped_run(engine(schema), steep), rows, more) == []
    with pytest.raises(dj.BudgetError, match="steep weights"):
        clipped_run(engine(schema), replace(steep, steep=False))(Curator, rows, Tape())
    monkeypatch.setattr("dpjoin.privacy.instance.owners_per_row", lambda schema, clip: 1)
    (found,) = replay_violations(clipped_run(engine(schema), replace(steep, steep=False)), rows, more)
    assert "moves more than the declared" in found


def test_a_row_that_goes_to_another_owner_charged_as_within_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Item 12: one row comes and one goes, so a size moves by one of them. Clipped, both may take results away."""
    two = schema_of(table("r", "o", "a"), table("s", "o", private=False), unit=())
    schema, public = replace(two, neighbours="replace"), [{"o": 0}, {"o": 1}]
    some = [{"o": 1, "a": 0} for _ in range(3)]
    rows: Rows = {"r": [{"o": 0, "a": 1}, *some], "s": public}
    other: Rows = {"r": [{"o": 1, "a": 1}, *some], "s": public}
    assert replay_violations(clipped_run(engine(schema)), rows, other) == []
    monkeypatch.setattr(Instance, "_one_sided", property(lambda self: True))
    (found,) = replay_violations(clipped_run(engine(schema)), rows, other)
    assert "moves more than the declared" in found


def test_the_histogram_of_owners_charged_as_one_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = replace(SHAPES["two tables"], unit=())
    rows: Rows = {"r": [{"o": 0, "a": 0}], "s": [{"o": 0, "b": 0}]}
    more: Rows = {**rows, "s": [*rows["s"], {"o": 0, "b": 1}]}
    assert replay_violations(clipped_run(engine(schema)), rows, more) == []
    monkeypatch.setattr(Instance, "move_of_owners", lambda self, owner: Move(1, 1))
    (found,) = replay_violations(clipped_run(engine(schema)), rows, more)
    assert found == "sensitivity: 'owners by join results' moves more than the declared 1"


@pytest.mark.parametrize("unit", [("o",), ()], ids=["person", "row"])
def test_tables_composed_in_parallel(unit: tuple[str, ...]) -> None:
    """A person with a row in each of two tables pays in both; where rows are charged, the ledger says half of that."""
    schema = schema_of(
        table("r", "o", "a", bounds=bound_by(1, "o")), table("s", "o", "b", bounds=bound_by(1, "o")), unit=unit
    )
    rows: Rows = {"r": [{"o": n, "a": 0} for n in (0, 1)], "s": [{"o": n, "b": 0} for n in (0, 1)]}
    curators: list[Curator] = []

    def run(kind: type[Curator], rows: Rows, tape: Tape) -> None:
        curators.append(attach(kind(BruteEngine(schema, rows), Split(budget=GENEROUS)), tape))
        parts = {"r": OneTable("r", ("a",)), "s": OneTable("s", ("b",))}
        for part in curators[-1].restrict("tables", parts, [RHO, RHO]):
            bound = part.public_bound()
            assert bound is not None
            part.join_size(bound, RHO)

    without = {t: [row for row in some if row["o"]] for t, some in rows.items()}
    assert replay_violations(run, rows, without) == []
    replayed = curators[-1]
    assert isinstance(replayed, Replayer)
    assert bool(overpaid(replayed)) == (not unit)


def test_orphans_in_measurements_of_their_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prescriptions of a visit that is not there belong to nobody; counted by themselves, they have no bound."""
    schema = SHAPES["deep"]

    def run(kind: type[Curator], rows: Rows, tape: Tape) -> None:
        curator = attach(kind(BruteEngine(schema, rows), Split(budget=GENEROUS)), tape)
        (part,) = curator.restrict("tables", {"s": OneTable("s", ("b",))}, [RHO])
        bound = part.public_bound()
        assert bound is not None
        part.join_size(bound, RHO)

    none: Rows = {"r": [], "s": []}
    rows: Rows = {"r": [], "s": [{"v": 0, "b": 0} for _ in range(80)]}
    with pytest.raises(dj.BudgetError, match="table 's' by itself must have the owner"):
        run(Curator, none, Tape())
    monkeypatch.setattr("dpjoin.privacy.instance.owner_of", lambda schema, table: schema.unit)
    monkeypatch.setattr("dpjoin.privacy.instance.rows_per_owner", lambda schema: {"r": 1, "s": 1})
    (found,) = replay_violations(run, none, rows)
    assert found == "sensitivity: 'join size' moves more than the declared 1"
