"""Capped: rows go by public rules, one row more moves no more than declared, and noisy numbers alone decide."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.constants import LOST_DIFFERS, WIDE_ROOM
from dpjoin.engine.duck import DuckEngine
from dpjoin.errors import BudgetError, SpecError
from dpjoin.measure.ranks import EDGES, degree_sequence, looked_beyond, rows_beyond
from dpjoin.measure.totals import NoisyTotal
from dpjoin.methods import capped, look
from dpjoin.methods.capped import CAPPED, best_caps, measure_sizes
from dpjoin.methods.look import (
    candidate_caps,
    cap_attributes,
    left_under,
    measure_levels,
    measure_ranks,
    most_by_rows,
    public_bound_of,
)
from dpjoin.model.model import Model
from dpjoin.model.terms import Domain, Terms
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.parts import NoisyRanks, Question, rows_by_rank
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from support.brute import BruteEngine
from support.capped import BLUNT, ranks_of, schema_of
from support.skewed import skewed_rows


def test_without_noise_rows_beyond_an_edge_are_counted() -> None:
    rng = np.random.default_rng(1)
    degrees = sorted(rng.integers(1, 400, 300).tolist(), reverse=True)
    beyond = rows_beyond(ranks_of(degrees, 0.0, rng))
    for n, edge in enumerate((0, *EDGES)):
        assert beyond[n] == pytest.approx(sum(max(0, d - edge) for d in degrees), abs=1e-6)
    sequence = degree_sequence(ranks_of(degrees, 0.0, rng))
    assert len(sequence) == 300
    assert np.abs(sequence - degrees).max() <= 0.2 * max(degrees)


def test_no_rank_is_seen_that_a_table_has_too_few_rows_for() -> None:
    """A little noise in every bucket adds up, and would make values of millions of rows of a table of ten thousand."""
    exact = replace(ranks_of([20] * 500, 0.0, np.random.default_rng(0)), deviation=23.0)
    lifted = replace(exact, noisy=tuple(n + 10 * (low >= 22) for low, n in zip((0, *EDGES), exact.noisy, strict=True)))
    beyond = rows_beyond(lifted)
    assert 22 <= EDGES[int(np.argmax(beyond[1:] == 0.0))] < 10_000
    assert looked_beyond(lifted).hidden[EDGES.index(10_921) + 1] == 0


# Caps ----------------------------------------------------------------------------------------------------------------


def test_tables_are_capped_by_as_few_attributes_as_can_be() -> None:
    for shape, most in {"two": 1, "star": 1, "triangle": 1, "path": 2, "chain": 2}.items():
        schema = schema_of(shape)
        sets = cap_attributes(schema)
        assert max(map(len, sets.values())) == most, shape
        caps = {(t, by): 3 for t, some in sets.items() for by in some}
        assert public_bound_of(schema, caps) >= 3
    declared = schema_of("two", r=(DegreeBound(attributes=("A",), limit=4),))
    assert cap_attributes(declared) == {"s": [("A",)]}


def test_candidates_go_from_generous_to_strict_and_raise_no_bound() -> None:
    schema = schema_of("two")
    rng = np.random.default_rng(3)
    ranks = []
    for table, degrees in (("r", rng.zipf(2.2, 4000)), ("s", np.full(3000, 2))):
        exact = rows_by_rank(np.minimum(degrees, 10**6), EDGES)
        question = Question(name=table, rules={table: {}}, by=("A",))
        ranks.append(NoisyRanks(question, EDGES, tuple(exact.tolist()), 1.0))
    found = candidate_caps(schema, ranks)
    bounds = [public_bound_of(schema, caps) for caps in found]
    assert bounds == sorted(bounds, reverse=True)
    assert len(set(bounds)) == len(bounds) > 2
    # The second table has two rows a value everywhere: no candidate cuts it, since that would be for nothing.
    assert all(caps["s", ("A",)] >= 2 for caps in found)


def many_light(rng: np.random.Generator) -> dict[str, pa.Table]:
    keys = [rng.integers(0, 4000, 20_000) for _ in "rs"]
    values = [(rng.integers(0, 4, 20_000) * (k % 3 + 1) // 2) % 4 for k in keys]
    return {t: pa.table({"A": k, a: v}) for t, a, k, v in zip("rs", "BC", keys, values, strict=True)}


def test_it_is_far_better_than_a_noisy_bound_where_degrees_are_small() -> None:
    """Degrees up to 15: a noisy bound is 50 and more."""
    schema = Schema(
        schema_of("two").tables,
        (Attribute(name="A", key=True), Attribute(name="B", range=(0, 3)), Attribute(name="C", range=(0, 3))),
    )
    workload = dj.Workload.marginals(schema, [1, 2])
    tables = many_light(np.random.default_rng(0))
    errors = {}
    for method in ("capped", "two_table"):
        made = [dj.release(schema, workload, tables, BLUNT, method=method) for _ in range(5)]
        errors[method] = np.median([dj.evaluate(m, tables).mean_total_variation or 0.0 for m in made])
    assert errors["capped"] < 0.6 * errors["two_table"]


def test_what_the_caps_lose_is_made_up_for_in_size() -> None:
    """A value of 1,000 rows that ranks do not always show: caps far beyond what is seen tell of its join results."""
    rng = np.random.default_rng(5)
    keys = [np.append(rng.integers(0, 3000, 9_000), np.full(1_000, 7)) for _ in "rs"]
    tables = {t: pa.table({"A": k, a: rng.integers(0, 4, 10_000)}) for t, a, k in zip("rs", "BC", keys, strict=True)}
    schema = Schema(
        schema_of("two").tables,
        (Attribute(name="A", key=True), Attribute(name="B", range=(0, 3)), Attribute(name="C", range=(0, 3))),
    )
    workload = dj.Workload.marginals(schema, [1, 2])
    engine = DuckEngine(schema, tables, attributes=schema.queryable)
    shares = CAPPED.split(BLUNT, schema)
    curator = Curator(engine, shares.split)
    ranks = measure_ranks(curator, shares.look.ranks)
    levels = measure_levels(curator, workload, ranks, shares.look.size)
    best = best_caps(workload, levels, curator.rho_left).candidate
    whole, kept = measure_sizes(levels, best, shares.count)
    exact = engine.exact_join_size()
    assert whole.noisy == pytest.approx(exact, rel=0.25)
    assert best.curator._engine.exact_join_size() * float(best.curator.unit) == pytest.approx(kept, rel=0.2)


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_join_of_references_is_no_larger_than_its_rows() -> None:
    """Rows refer to a key of another table: each is in one result at most, and how many there are is known well."""
    rng = np.random.default_rng(6)
    keyed = dj.Table(name="r", attributes=("A", "p"), bounds=(DegreeBound(attributes=("A",), limit=1),))
    schema = dj.Schema(
        (keyed, dj.Table(name="s", attributes=("A", "q"))),
        (dj.Attribute(name="A", key=True), dj.Attribute(name="p", range=(0, 2)), dj.Attribute(name="q", range=(0, 2))),
    )
    tables = {
        "r": pa.table({"A": np.arange(50), "p": rng.integers(0, 3, 50)}),
        "s": pa.table({"A": rng.integers(0, 50, 4_000), "q": rng.integers(0, 3, 4_000)}),
    }
    workload = dj.Workload.marginals(schema, [("p", "q")])
    sizes = [dj.release(schema, workload, tables, BLUNT, method="capped").join_size for _ in range(12)]
    assert max(sizes) < 4_700
    ranks = [ranks_of([80] * 50, 0.0, rng)]
    ranks = [replace(r, question=Question(name="s", rules={"s": {}}, by=("A",)), deviation=10.0) for r in ranks]
    assert most_by_rows(schema, ranks) == pytest.approx(4_000 + 30, rel=0.02)
    loose = dj.Schema((replace(keyed, bounds=()), schema.tables[1]), schema.attributes)
    assert most_by_rows(loose, ranks) == math.inf


def test_the_curator_refuses_what_it_cannot_account_for() -> None:
    schema = schema_of("two")
    rows = skewed_rows(schema, np.random.default_rng(0))
    curator = Curator(BruteEngine(schema, rows), Split(budget=BLUNT))
    cost = Concentrated(Fraction(1, 1000))
    about = Question(name="q", rules={"r": {}}, by=("A",))
    with pytest.raises(BudgetError, match="increasing"):
        curator.noisy_ranks("ranks", [about], [3, 2], cost)
    distinct = Question(name="q", rules={"r": {}}, by=("A",), distinct=("A", "B"))
    with pytest.raises(BudgetError, match="rows of a private table"):
        curator.noisy_ranks("ranks", [distinct], [1, 2], cost)
    assert curator.ledger.events == ()
    child = curator.capped({"r": [DegreeBound(attributes=("A",), limit=2)]})
    with pytest.raises(BudgetError, match="whole instance"):
        child.noisy_ranks("ranks", [about], [1, 2], cost)
    with pytest.raises(BudgetError, match="whole instance"):
        child.noisy_degrees("degrees", [about], cost, half_width=5)
    with pytest.raises(BudgetError, match="done once"):
        child.capped({"s": [DegreeBound(attributes=("A",), limit=2)]})
    # A bound of one Curator is not a bound of another: the capped instance has its own.
    with pytest.raises(BudgetError, match="minted"):
        curator.join_size(child._mint(Bound(5)), cost)
    public = Schema((schema.tables[0], Table(name="s", attributes=("A", "C"), private=False)), schema.attributes)
    curator = Curator(BruteEngine(public, rows), Split(budget=BLUNT))
    with pytest.raises(BudgetError, match="private tables"):
        curator.capped({"s": [DegreeBound(attributes=("A",), limit=2)]})


def test_a_capped_curator_spends_from_the_same_budget() -> None:
    schema = schema_of("two")
    rows = skewed_rows(schema, np.random.default_rng(0))
    curator = Curator(BruteEngine(schema, rows), Split(budget=BLUNT))
    caps = {t: [DegreeBound(attributes=("A",), limit=2)] for t in "rs"}
    child = curator.capped(caps)
    before = curator.rho_left
    bound = child.public_bound()
    assert bound is not None
    assert bound.value == 2
    child.join_size(bound, Concentrated(Fraction(1, 1000)))
    assert curator.rho_left == child.rho_left == before - Fraction(1, 1000)
    assert curator.ledger is child.ledger
    assert len(curator.ledger.events) == 1


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (Schema((Table(name="r", attributes=("A",)),), (Attribute(name="A", range=(0, 1)),)), "two or more private"),
        (
            Schema(
                (Table(name="r", attributes=("A",)), Table(name="s", attributes=("B",))),
                (Attribute(name="A", range=(0, 1)), Attribute(name="B", range=(0, 1))),
            ),
            "tables that meet",
        ),
    ],
)
def test_a_join_that_cannot_be_capped_is_refused(schema: Schema, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        capped.check_capped(schema)


@pytest.mark.parametrize(("deviation", "most"), [(23.0, 600), (1e9, 10_000)])
def test_room_is_left_only_where_noise_hides_rows(deviation: float, most: int) -> None:
    """Above 600 rows a bucket is wider than noise: a value with rows all through it would have been seen."""
    for cap in (1, 5, 95, 492, 709, 2_116):
        wide = look._with_room(cap, WIDE_ROOM, deviation)
        at = EDGES.index(cap)
        assert wide in EDGES
        assert cap <= wide <= EDGES[at + WIDE_ROOM]
        assert wide <= max(cap, most * 1.2)
        if EDGES[at + WIDE_ROOM] <= most:
            assert wide == EDGES[at + WIDE_ROOM]


def test_members_know_that_what_is_lost_may_have_another_shape() -> None:
    """With a tenth of a join, each value's share moves by about a tenth of DIFFERS; with nothing, only sizes do."""
    terms = Terms(Domain(("a",), ("b",), {"a": 40, "b": 50}), (("a",), ("b",)))
    potentials = np.random.default_rng(0).normal(0, 0.3, terms.size)
    model = Model(terms.domain, 900.0, terms, potentials, members=((potentials, 900.0),) * 12, known=(frozenset("ab"),))
    for lost, moves in ((100.0, 0.1 * LOST_DIFFERS), (0.0, 0.0)):
        grew = capped.grown(model, NoisyTotal(lost, 30.0))
        assert grew.total == pytest.approx(900 + lost)
        assert grew.potentials is model.potentials
        sizes = np.array([total for _, total in grew.members])
        assert 10 < sizes.std() < 60
        tables = [terms.table(p, 1.0) for p, _ in grew.members]
        shares = np.array([[*t.sum(axis=0), *t.sum(axis=1)] for t in tables])
        exact = terms.table(potentials, 1.0)
        off = np.log(shares / [*exact.sum(axis=0), *exact.sum(axis=1)])
        assert off.std() == pytest.approx(moves, rel=0.15, abs=1e-9)


def test_bars_stay_where_next_to_nothing_is_left() -> None:
    """One result is left of a thousand, or it is four: the whole has a thousand, not four."""
    terms = Terms(Domain(("a",), (), {"a": 3}), (("a",),))
    potentials = np.zeros(terms.size)
    members = tuple((potentials, total) for total in (1.0, 4.0, 2.0))
    model = Model(terms.domain, 1.0, terms, potentials, members=members, known=(frozenset("a"),))
    grew = capped.grown(model, NoisyTotal(999.0, 10.0))
    assert grew.total == 1000.0
    assert all(abs(total - 1000.0) < 60 for _, total in grew.members)


@pytest.mark.parametrize("unique", [False, True])
def test_a_table_stands_for_a_partner_of_which_nothing_is_known(unique: bool) -> None:
    """Frequent values may be frequent there as well, so that caps lose far more; not where the partner has a key."""
    bounds = (DegreeBound(attributes=("A",), limit=1),) if unique else ()
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("A", "p")), dj.Table(name="s", attributes=("A", "q"), bounds=bounds)),
        (dj.Attribute(name="A", key=True), dj.Attribute(name="p", range=(0, 2)), dj.Attribute(name="q", range=(0, 2))),
    )
    degrees = [1000 // n for n in range(1, 500)]
    ranks = ranks_of(degrees, 0.0, np.random.default_rng(0))
    left = left_under(schema, [ranks], {("r", ("A",)): 10}, None)
    by_chance = sum(min(10, d) for d in degrees) / sum(degrees)
    aligned = sum(min(10, d) * d for d in degrees) / sum(d * d for d in degrees)
    assert left.by_chance == pytest.approx(by_chance, rel=0.1)
    assert left.aligned == pytest.approx(by_chance if unique else aligned, rel=0.1)
    assert (left.larger > 5) is not unique
