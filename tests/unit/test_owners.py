"""Owners in ring 1: counted, clipped and moved as their proofs say, and nothing beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from math import isqrt

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.interface import MOST_FULL, MOST_RESULTS, Clip
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.instance import ROOT_SIX, ROOT_TWO, Instance
from dpjoin.privacy.owners import MOST_EDGES, owners_by_results, rows_per_owner
from dpjoin.privacy.parts import OneTable
from support.brute import BruteEngine
from support.owners import SHAPES, marginals, schema_of
from support.persons_release import GENEROUS, bound_by, table

RHO, DELTA = Concentrated(Fraction(1, 1000)), Concentrated(Fraction(1, 100), Fraction(1, 10**4))
TWO = SHAPES["two tables"]
ROWS = replace(TWO, unit=())
MEETING = schema_of(table("r", "o", "w", "a"), table("s", "w", "b", owners=50))
ONE_EACH = replace(MEETING, tables=(MEETING.tables[0], replace(MEETING.tables[1], owners=1)))
CLIP = Clip(owner=("o",), limit=3, full=10)


def engine_of(schema: dj.Schema) -> BruteEngine:
    return BruteEngine(schema, {t.name: [] for t in schema.tables})


def curator_of(schema: dj.Schema) -> Curator:
    return Curator(engine_of(schema), Split(budget=GENEROUS))


# Counting -----------------------------------------------------------------------------------------------------------


def counted(results: Iterable[int], edges: list[int]) -> list[int]:
    """Owners by results in loops: above 0 up to the first edge, above it up to the second, …, above the last."""
    lows, highs = [0, *edges], [*edges, None]
    return [
        sum(low < n and (high is None or n <= high) for n in results) for low, high in zip(lows, highs, strict=True)
    ]


@pytest.mark.parametrize("kind", [np.int64, object])
def test_owners_are_counted_between_edges(kind: type) -> None:
    """Each in one bucket, those on an edge below it, and those without join results in none."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        results = rng.integers(0, 12, size=30)
        edges = sorted({int(e) for e in rng.integers(1, 12, size=4)})
        assert owners_by_results(results.astype(kind), edges).tolist() == counted(results.tolist(), edges)
    assert owners_by_results(np.array([0, 1, 2, 2**70], dtype=object), [1, 2**61]).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    "edges", [[], [0, 1], [-1], [2, 1], [1, 1], [2**62], list(range(1, MOST_EDGES + 2))], ids=lambda e: str(e[:2])
)
def test_edges_that_do_not_part_the_numbers_are_refused(edges: list[int]) -> None:
    """Overlapping buckets would count one owner twice."""
    asked = curator_of(TWO)
    with pytest.raises(dj.BudgetError, match="edges must be some increasing whole numbers from 1 on"):
        asked.noisy_owners(("o",), edges, RHO)
    assert asked.ledger.events == ()


def test_rows_of_an_owner_are_bounded_by_the_least_bound_by_the_owner() -> None:
    """Bounds by a part of the owner's attributes hold for the owner; those by others, and of public tables, do not."""
    both = dj.Schema(
        (
            table("r", "o", "w", "a", bounds=(*bound_by(5, "o"), *bound_by(2, "o", "w"), *bound_by(1, "o", "w", "a"))),
            table("s", "o", "w", "b", bounds=(*bound_by(2, "w"), *bound_by(7, "o", "w"))),
            table("t", "o", "w", private=False, bounds=bound_by(1, "o")),
            table("u", "o", "w", "a", bounds=bound_by(1, "a")),
        ),
        SHAPES["snowflake"].attributes[:4],
        ("o", "w"),
    )
    assert rows_per_owner(both) == {"r": 2, "s": 2}
    assert rows_per_owner(replace(both, unit=())) == {}


def test_rows_are_removed_by_the_owner_as_a_table_calls_it() -> None:
    """A table whose owner has another name keeps so many rows of each; a bound by the unit's name is across owners."""
    for by in ("v", "o"):
        other = table("s", "o", "v", "b", owner=("v",), bounds=bound_by(1, by), enforce=True)
        schema = schema_of(table("r", "o", "a", bounds=bound_by(2, "o"), enforce=True), other)
        if by == "v":
            assert rows_per_owner(curator_of(schema).schema) == {"r": 2, "s": 1}
        else:
            with pytest.raises(dj.BudgetError, match=r"must be by attributes that include the owner \(v\)"):
                curator_of(schema)


# Clipping ------------------------------------------------------------------------------------------------------------


def test_clipping_has_limits_below_which_no_number_wraps() -> None:
    for limit, full in ((MOST_RESULTS + 1, 1), (1, MOST_FULL + 1)):
        with pytest.raises(dj.SpecError, match="clipping: limit must be at most"):
            Clip(owner=("o",), limit=limit, full=full)
    for steep in (False, True):
        clip = Clip(owner=("o",), limit=MOST_RESULTS, full=MOST_FULL, steep=steep)
        last = MOST_RESULTS * (isqrt(2 * MOST_FULL) + 2) if steep else MOST_RESULTS * MOST_FULL
        results = [1, MOST_RESULTS, MOST_RESULTS + 1, last - 1, last, last + 1, last + 2, 2**62]
        assert clip.of(np.array(results)).tolist() == [clip.weight(n) for n in results]


def test_only_all_rows_are_clipped() -> None:
    """In a part an owner has fewer results than are counted elsewhere, and caps push others' rows out."""
    asked = curator_of(schema_of(table("r", "o", "a", bounds=bound_by(1, "o")), table("s", "o", "b")))
    (part,) = asked.restrict("a table", {"r": OneTable("r", ("a",))}, [RHO])
    with pytest.raises(dj.BudgetError, match="join results are clipped once, of all rows"):
        part.clipped(CLIP)
    with pytest.raises(dj.BudgetError, match="that is done once"):
        asked.clipped(CLIP).clipped(CLIP)
    with pytest.raises(dj.BudgetError, match="that is done once"):
        curator_of(ROWS).capped({"r": bound_by(1, "o")}).clipped(CLIP)
    with pytest.raises(dj.BudgetError, match="that is done once"):
        asked.clipped(CLIP).capped({"r": bound_by(1, "o")})


def test_owners_are_counted_of_all_rows() -> None:
    asked = curator_of(TWO)
    with pytest.raises(dj.BudgetError, match="owners are counted of the whole instance"):
        asked.clipped(CLIP).noisy_owners(("o",), [1], RHO)
    assert asked.ledger.events == ()


def test_what_a_public_table_says_of_owners_it_meets_does_not_count() -> None:
    """None of its rows comes or goes: a person moves everything, once."""
    public = replace(MEETING, tables=(MEETING.tables[0], replace(MEETING.tables[1], private=False)))
    moves = Instance.of(engine_of(public)).move_of_owners(("o",))
    assert (moves.euclidean, moves.absolute) == (1, 1)


def test_what_is_stated_for_rows_is_refused_where_results_are_clipped() -> None:
    """Also where a row is the unit: a gauge says nothing about results that count less, the more there are."""
    asked = curator_of(ROWS)
    with pytest.raises(dj.BudgetError, match="a noisy bound must be of single rows"):
        asked.clipped(CLIP).sensitivity_bound(DELTA, half_width=500)
    with pytest.raises(dj.BudgetError, match="a bound of caps must be of single rows"):
        asked.clipped(CLIP).part_bound()
    assert asked.ledger.events == ()


# Moves ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "neighbours", "euclidean", "absolute"),
    [
        (TWO, "add", 1, 1),
        (ROWS, "add", ROOT_TWO, 2),
        (MEETING, "add", 50 * ROOT_TWO, 100),
        (TWO, "replace", ROOT_TWO, 2),
        (ROWS, "replace", ROOT_SIX, 4),
        (MEETING, "replace", 50 * ROOT_SIX, 200),
        # A row that meets one owner may bring it results, and move it from one bucket to another.
        (ONE_EACH, "add", ROOT_TWO, 2),
        (ONE_EACH, "replace", ROOT_SIX, 4),
    ],
    ids=lambda given: given if isinstance(given, str) else None,
)
def test_a_histogram_of_owners_moves_by_every_owner_that_a_unit_meets(
    schema: dj.Schema, neighbours: str, euclidean: Fraction, absolute: int
) -> None:
    """The ledger states it, and noise is as large as that."""
    asked = curator_of(replace(schema, neighbours=neighbours))
    move = Instance.of(engine_of(replace(schema, neighbours=neighbours))).move_of_owners(("o",))
    assert (move.euclidean, move.absolute) == (euclidean, absolute)
    found = asked.noisy_owners(("o",), [1, 2], RHO)
    event = asked.ledger.events[-1]
    assert event.moves == euclidean
    assert Fraction(event.parameters["variance"]) >= Fraction(euclidean) ** 2 / (2 * RHO.rho)
    assert found.deviation**2 == pytest.approx(float(event.parameters["variance"]))


def test_what_stands_for_roots_is_above_them() -> None:
    for root, square in ((ROOT_TWO, 2), (ROOT_SIX, 6)):
        assert square < root**2 < square * (1 + Fraction(1, 10**6))


@pytest.mark.parametrize(
    ("schema", "clip", "size", "squares"),
    [
        # One row for another, or one person: one adds results, one takes some away, so a size moves by one of them.
        (ROWS, None, 1, 2),
        (TWO, CLIP, 1, 2),
        # Clipped by rows, one owner may lose results and another one too.
        (ROWS, CLIP, 2, 4),
        # A row that meets fifty owners: no sign is sure.
        (MEETING, CLIP, 2, 8),
        # And one that meets one owner: it goes to another one.
        (ONE_EACH, CLIP, 2, 8),
    ],
    ids=["row", "person clipped", "row clipped", "row that meets many, clipped", "row that meets one, clipped"],
)
def test_a_replacement_moves_by_more_than_one_where_both_sides_can_take_away(
    schema: dj.Schema, clip: Clip | None, size: int, squares: int
) -> None:
    """The size in bounds, and a marginal in bounds squared."""
    bounded = tuple(
        replace(t, bounds=bound_by(4, *(n for n in ("o", "w") if n in t.attributes))) for t in schema.tables
    )
    inside = Instance.of(
        engine_of(replace(schema, tables=bounded if clip is None else schema.tables, neighbours="replace"))
    )
    inside = inside if clip is None else inside.clipped(clip)
    bound = inside.public_bound()
    assert bound is not None
    assert bound.value == (4 if clip is None else 30 * (50 if schema is MEETING else 1))
    assert inside.move_of_size(bound) == size * bound.value
    euclidean = inside.move_of_group(marginals(schema)[0], bound).euclidean
    assert euclidean**2 >= squares * bound.value**2 > (euclidean - 1) ** 2
