"""The unit of privacy in a schema: whose a row is, and which schemas say too little about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest

import dpjoin as dj
from dpjoin.auto.registry import as_if_read, chosen_method
from dpjoin.engine.duck import DuckEngine
from dpjoin.spec.persons import describe_owners, link_of, one_owner_per_result, owner_of, reaches_owner
from support.brute import BruteEngine
from support.owners import SHAPES, Rows, schema_of
from support.persons import arrow_of
from support.persons_release import bound_by, table

PERSONS = table("r", "o", "v", "a", bounds=bound_by(1, "v"))


def test_a_table_of_nothing_but_owners_has_an_owner() -> None:
    schema = schema_of(table("r", "o"), table("s", "o", "b"))
    assert [owner_of(schema, t) for t in schema.tables] == [("o",), ("o",)]
    assert one_owner_per_result(schema)


def test_all_attributes_of_the_unit_make_an_owner() -> None:
    """A part of them says of a row that it belongs to one of several."""
    words = "must say whose its rows are: it has no attribute o, w"
    with pytest.raises(dj.SpecError, match=words):
        schema_of(table("r", "o", "w", "a"), table("s", "w", "b"), unit=("o", "w"))


def test_a_declared_owner_goes_before_the_unit() -> None:
    """A row of s is the person's in v, though it names another one in o; then results may be of two persons."""
    schema = schema_of(table("r", "o", "v", "a"), table("s", "o", "v", "b", owner=("v",)))
    assert [owner_of(schema, t) for t in schema.tables] == [("o",), ("v",)]
    assert not one_owner_per_result(schema)
    assert "A row of s belongs to the o in v." in describe_owners(schema)


def test_a_foreign_key_leads_to_the_table_where_it_is_unique() -> None:
    """One bound of several is enough, and a table without bounds is not meant."""
    visits = replace(PERSONS, bounds=(*bound_by(7, "a"), *bound_by(1, "v")))
    drugs = table("t", "v", "b", owner_via="v")
    schema = schema_of(table("s", "v", "c", private=False), visits, drugs)
    found = link_of(schema, drugs)
    assert found is not None
    assert found.name == "r"
    assert one_owner_per_result(schema)
    assert link_of(schema, visits) is None


@pytest.mark.parametrize(
    "bounds",
    [(), bound_by(2, "v"), bound_by(1, "o"), bound_by(1, "o", "v")],
    ids=["none", "two", "of another", "of more"],
)
def test_a_foreign_key_that_is_not_unique_leads_nowhere(bounds: tuple[dj.DegreeBound, ...]) -> None:
    """A visit of two patients would make join results of both."""
    with pytest.raises(dj.SpecError, match="must be unique in the table it points to"):
        schema_of(replace(PERSONS, bounds=bounds), table("s", "v", "b", owner_via="v"))


def test_foreign_keys_are_followed_over_several_tables() -> None:
    middle = table("s", "v", "w", "b", owner_via="v", bounds=bound_by(1, "w"))
    schema = schema_of(PERSONS, middle, table("t", "w", "c", owner_via="w"))
    assert all(reaches_owner(schema, t) for t in schema.tables)
    assert one_owner_per_result(schema)


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_the_order_of_tables_decides_nothing_about_owners(order: tuple[int, ...]) -> None:
    """Several tables have one row a visit, and only one of them knows whose it is; all others are led there."""
    once = bound_by(1, "v")
    tables = [
        table("r", "o", "v", bounds=once),
        table("s", "v", "a", owner_via="v", bounds=once),
        table("t", "v", "b", owner_via="v", bounds=once),
        table("u", "v", "c", private=False, bounds=once),
    ]
    schema = schema_of(*(tables[i] for i in order))
    assert one_owner_per_result(schema)
    assert [link_of(schema, t) for t in tables] == [None, tables[0], tables[0], None]
    learned = tuple(dj.Attribute(name="a", learn=True) if a.name == "a" else a for a in schema.attributes)
    schema = replace(schema, attributes=learned)
    rows: Rows = {
        "r": [{"o": o, "v": v} for o, v in ((1, 1), (1, 2), (2, 3))],
        "s": [{"v": v, "a": 0} for v in (1, 2, 3, 4)],
        "t": [],
        "u": [],
    }
    for engine in (BruteEngine(schema, rows), DuckEngine(schema, arrow_of(schema, rows), attributes=("a",))):
        assert engine.exact_values("a", 1).exact_counts.tolist() == [2]  # owners, with four rows


def test_owners_are_found_by_a_public_table_whose_bounds_are_read_off() -> None:
    """Where several tables are private; nothing of a public table is removed by what is read off it."""
    public = table("p", "o", "v", private=False, bounds=bound_by(1, "v"))
    schema = schema_of(public, table("s", "v", "a", owner_via="v"), table("t", "v", "b", owner_via="v"))
    workload = dj.Workload.marginals(schema, 1)
    assert {chosen_method(schema, name, workload=workload).name for name in ("auto", "clipped")} == {"clipped"}
    assert not any(t.enforce for t in as_if_read(schema).tables)
    assert [len(t.bounds) for t in as_if_read(schema).tables] == [2, 0, 0]


def test_a_public_table_has_one_way_to_an_owner() -> None:
    """With two, columns would be counted by other owners than those that are protected."""
    public = table("t", "o", "v", "w", owner=("v",), owner_via="w", private=False)
    with pytest.raises(dj.SpecError, match="table 't' has an owner, so owner_via"):
        schema_of(table("r", "o", "w", "a", bounds=bound_by(1, "w")), public)


def test_foreign_keys_in_a_circle_end() -> None:
    """Each of two tables says that the other one knows the owner."""
    first = table("s", "v", "w", "b", owner_via="v", bounds=bound_by(1, "w"))
    second = table("t", "v", "w", "c", owner_via="w", bounds=bound_by(1, "v"))
    with pytest.raises(dj.SpecError, match="must lead to a table that has o"):
        schema_of(table("r", "o", "v", "a"), first, second)


def test_only_tables_that_declare_how_many_owners_they_meet_are_left_out() -> None:
    """Of private ones; a public table needs no owner."""
    doctors = table("s", "w", "b", owners=3)
    public = table("t", "v", "c", private=False)
    schema = schema_of(table("r", "o", "v", "w", "a"), doctors, public)
    assert not reaches_owner(schema, schema.table("s"))
    assert not reaches_owner(schema, schema.table("t"))
    assert one_owner_per_result(schema)
    assert not one_owner_per_result(schema_of(table("r", "o", "a"), table("s", "o", "b"), unit=()))


@pytest.mark.parametrize("more", [{"owner": ("o",)}, {"owner_via": "o"}, {"owners": 2}], ids=lambda m: next(iter(m)))
def test_owners_without_a_unit_are_refused(more: dict[str, object]) -> None:
    (key,) = more
    with pytest.raises(dj.SpecError, match=f"table 'r' has {key}, which is about persons"):
        schema_of(table("r", "o", "a", **more), table("s", "o", "b"), unit=())


def test_a_public_table_may_lead_to_owners_when_its_bounds_are_read_off() -> None:
    """These hold, so they remove no row; taken for enforced, they made every release of such tables impossible."""
    visits = replace(PERSONS, private=False)
    schema = schema_of(visits, table("s", "v", "b", owner_via="v"), table("t", "v", "c", owner_via="v"))
    read = as_if_read(schema)
    assert [len(t.bounds) for t in read.tables] == [2, 0, 0]
    assert one_owner_per_result(read)


WRONG: list[tuple[str, Callable[[], object]]] = [
    (
        r"unit \('x'\) must be an attribute",
        lambda: replace(SHAPES["two tables"], unit=("x",)),
    ),
    (
        r"table 'r': owner \('v'\) must be one of its attributes",
        lambda: schema_of(table("r", "o", "a", owner=("v",)), table("s", "o", "v", "b")),
    ),
    (
        r"table 's': owner_via \('w'\) must be one of its attributes",
        lambda: schema_of(PERSONS, table("s", "v", "b", owner_via="w"), table("t", "w", "c", private=False)),
    ),
    (
        r"table 't': owner \('w'\) must be one of its attributes",  # a public table has no owner, but may not lie
        lambda: schema_of(table("r", "o", "w", "a"), table("t", "o", "c", owner=("w",), private=False)),
    ),
    (
        r"table 'r' has an owner, so owners \(2\) must be left out",
        lambda: schema_of(table("r", "o", "a", owners=2), table("s", "o", "b")),
    ),
    (
        r"table 's' has an owner, so owners \(2\) must be left out",
        lambda: schema_of(PERSONS, table("s", "v", "b", owner_via="v", owners=2)),
    ),
    (
        r"table 's': owner \(v, w\) must be as many attributes as the unit \(o\) has",  # else they name no such person
        lambda: schema_of(table("r", "o", "a"), table("s", "o", "v", "w", "b", owner=("v", "w"))),
    ),
    (r"neighbours \('remove'\) must be", lambda: replace(SHAPES["two tables"], neighbours="remove")),
    (
        r"max_results \(16777217\) must be at most 16,777,216",
        lambda: replace(SHAPES["two tables"], max_results=2**24 + 1),
    ),
    (r"max_results \(0\) must be at least 1", lambda: replace(SHAPES["two tables"], max_results=0)),
]


@pytest.mark.parametrize(("words", "make"), WRONG, ids=[words for words, _ in WRONG])
def test_a_unit_that_rows_cannot_be_told_by_is_refused(words: str, make: Callable[[], object]) -> None:
    with pytest.raises(dj.SpecError, match=words):
        make()
