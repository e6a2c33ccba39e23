"""Capped: rows go by public rules, one row more moves no more than declared, and noisy numbers alone decide."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpjoin as dj
from dpjoin import constants
from dpjoin.constants import LOST_DIFFERS, WIDE_ROOM
from dpjoin.engine.brute import BruteEngine
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Engine, RowWeights
from dpjoin.errors import BudgetError, SpecError
from dpjoin.measure.ranks import EDGES, degree_sequence, falling_fits, looked_beyond, rows_beyond
from dpjoin.measure.totals import NoisyTotal
from dpjoin.methods import capped, look
from dpjoin.methods.capped import best_caps, capped_shares, capped_tight, measure_sizes
from dpjoin.methods.look import (
    Caps,
    candidate_caps,
    cap_attributes,
    cap_bounds,
    left_under,
    measure_levels,
    measure_ranks,
    most_by_rows,
    public_bound_of,
)
from dpjoin.methods.method import Outcome
from dpjoin.model.model import Model
from dpjoin.model.terms import Domain, Terms
from dpjoin.model.threads import one_blas_thread
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.instance import Instance
from dpjoin.privacy.mechanisms import Move
from dpjoin.privacy.parts import NoisyRanks, Question, rows_by_rank
from dpjoin.spec.schema import Attribute, DegreeBound, Schema, Table
from support.audit import audited, tight_run
from support.capped import ANY, ranks_of, schema_of
from support.engines import arrow_tables
from support.skewed import Rows, changed, skewed_rows

SHARP = Budget(epsilon=50.0, delta=1e-6)
"""Noise of less than a row: caps follow the degrees."""
BLUNT = Budget(epsilon=1.0, delta=1e-6)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with one_blas_thread():
        yield


def run_on(make: Callable[[Any], Engine], workload: dj.Workload, budget: Budget) -> Any:
    return tight_run(make, capped_shares, capped_tight, workload, budget)


def audits(shape: str, count: int, levels: Sequence[float], budget: Budget) -> list[Outcome]:
    """Replay on `count` neighbours; what was published."""
    rng = np.random.default_rng([len(shape), count, len(levels)])
    found = []
    for _ in range(count):
        schema = schema_of(shape)
        workload = dj.Workload.marginals(schema, 1)
        rows = skewed_rows(schema, rng)
        run = run_on(lambda tables, schema=schema: BruteEngine(schema, tables), workload, budget)
        wrong, outcome = audited(run, rows, changed(schema, rows, rng), budget)
        assert wrong == []
        found.append(outcome)
    return found


@pytest.mark.replay
@pytest.mark.parametrize("fade", [True, False], ids=["fading", "hard"])
@pytest.mark.parametrize("levels", [(0.0, 0.1), (0.5,)], ids=["loose", "strict"])
@pytest.mark.parametrize("shape", ANY)
def test_replay_on_neighbours(
    shape: str, levels: tuple[float, ...], fade: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same questions, declared moves, the whole budget; also where the caps cut half of the rows."""
    monkeypatch.setattr(constants, "CAP_LEVELS", levels)
    if not fade:
        monkeypatch.setattr(look, "fading_price", lambda workload: None)
    audits(shape, 4, levels, SHARP)
    audits(shape, 2, levels, BLUNT)


@pytest.mark.full
@pytest.mark.replay
@pytest.mark.parametrize("levels", [(0.0, 0.1), (0.5,)], ids=["loose", "strict"])
@pytest.mark.parametrize("shape", ANY)
def test_replay_on_many_neighbours(shape: str, levels: tuple[float, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "CAP_LEVELS", levels)
    audits(shape, 300, levels, SHARP)


def two_columns(rng: np.random.Generator, values: int, count: int, name: str) -> list[dict[str, int]]:
    return [{"A": int(rng.integers(values)), name: int(rng.integers(4))} for _ in range(count)]


@pytest.mark.replay
def test_replay_on_the_engine_that_numbers_and_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """On DuckDB's engine a row more changes numbers of keys and whether rows are merged; what is kept must not."""
    monkeypatch.setattr(constants, "CAP_LEVELS", (0.5,))
    schema = schema_of("two")
    workload = dj.Workload.marginals(schema, [1, 2])
    rng = np.random.default_rng(8)
    for n in range(6):
        count = int(rng.integers(3, 400))
        rows: Rows = {"r": two_columns(rng, 3, count, "B"), "s": two_columns(rng, 3, count, "C")}

        def made(tables: Any) -> Engine:
            return DuckEngine(schema, arrow_tables(schema, tables), attributes=schema.queryable)

        wrong, _ = audited(run_on(made, workload, SHARP), rows, changed(schema, rows, rng), SHARP)
        assert wrong == [], n


# Known bad -----------------------------------------------------------------------------------------------------------


class DropsValues(BruteEngine):
    """Removes every row of a value that has too many, instead of those beyond the cap."""

    def _exact_within(self, name: str, bounds: Sequence[DegreeBound]) -> list[dict[str, object]]:
        rows = self._exact_rows[name]
        for bound in bounds:
            count = Counter(tuple(r[a] for a in bound.attributes) for r in rows)
            rows = [r for r in rows if count[tuple(r[a] for a in bound.attributes)] <= bound.limit]
        return rows


def edge_rows(rng: np.random.Generator) -> Rows:
    """Three values with four to six rows each, about as many as the caps of `five`."""
    return {
        t: [{"A": v, a: int(rng.integers(4))} for v in range(3) for _ in range(rng.integers(4, 7))]
        for t, a in (("r", "B"), ("s", "C"))
    }


def five(schema: Schema, ranks: Sequence[NoisyRanks]) -> list[Caps]:
    """Public caps that some values reach."""
    return [{("r", ("A",)): 5, ("s", ("A",)): 5}]


def found_wrong(make: Callable[[Any], Engine], count: int) -> list[str]:
    rng = np.random.default_rng(4)
    schema = schema_of("two")
    workload = dj.Workload.marginals(schema, 1)
    found = []
    for _ in range(count):
        rows = edge_rows(rng)
        wrong, _ = audited(run_on(make, workload, SHARP), rows, changed(schema, rows, rng), SHARP)
        found += wrong
    return found


@pytest.mark.known_bad
def test_a_value_that_is_dropped_whole_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "candidate_caps", five)
    monkeypatch.setattr(look, "fading_price", lambda workload: None)
    schema = schema_of("two")
    assert any("sensitivity" in w for w in found_wrong(lambda t: DropsValues(schema, t), 40))
    assert found_wrong(lambda t: BruteEngine(schema, t), 40) == []


@pytest.mark.known_bad
def test_a_pushed_out_row_that_is_not_paid_for_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "candidate_caps", five)
    monkeypatch.setattr(look, "fading_price", lambda workload: None)
    monkeypatch.setattr(Instance, "move_of_group", lambda self, group, bound: Move(bound.value, bound.value))
    schema = schema_of("two")
    assert any("sensitivity" in w for w in found_wrong(lambda t: BruteEngine(schema, t), 60))


@pytest.mark.known_bad
def test_a_fading_value_that_is_dropped_whole_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are said to fall slowly, and an engine that drops a value as soon as it exceeds the cap."""

    class Drops(BruteEngine):
        def weighted(self, fades: Any) -> BruteEngine:
            steep = {
                t: RowWeights(f.attributes, np.where(f.weights < f.full, 0, f.weights), f.full)
                for t, f in fades.items()
            }
            return super().weighted(steep)

    monkeypatch.setattr(look, "candidate_caps", five)
    schema = schema_of("two")
    assert any("sensitivity" in w for w in found_wrong(lambda t: Drops(schema, t), 40))
    assert found_wrong(lambda t: BruteEngine(schema, t), 40) == []


@pytest.mark.known_bad
def test_caps_from_exact_degrees_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest degree as it is: the neighbour has another one."""

    def exact_caps(schema: Schema, ranks: Sequence[NoisyRanks]) -> list[Caps]:
        return [{place: int(current[0]) for place in (("r", ("A",)), ("s", ("A",)))}]

    current = [1]

    class Peeking(BruteEngine):
        def __init__(self, schema: Schema, tables: Any) -> None:
            super().__init__(schema, tables)
            current[0] = max(1, self.exact_boundary(frozenset(["r"])))

    monkeypatch.setattr(look, "candidate_caps", exact_caps)
    schema = schema_of("two")
    assert found_wrong(lambda t: Peeking(schema, t), 60) != []


# Ranks ---------------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 60), max_size=20), st.sets(st.integers(1, 50), min_size=1, max_size=6))
def test_rows_by_rank_is_what_it_says(degrees: list[int], edges: set[int]) -> None:
    """Every row has a rank from 1 to the degree of its value; a row more adds one row of one rank."""
    lows = [0, *sorted(edges)]
    expected = [0] * len(lows)
    for degree in degrees:
        for rank in range(1, degree + 1):
            expected[max(k for k, low in enumerate(lows) if rank > low)] += 1
    found = rows_by_rank(np.array(degrees, dtype=np.int64), sorted(edges))
    assert found.tolist() == expected
    more = rows_by_rank(np.array([*degrees[:-1], degrees[-1] + 1] if degrees else [1]), sorted(edges))
    assert np.abs(more - found).sum() == 1


def test_without_noise_rows_beyond_an_edge_are_counted() -> None:
    rng = np.random.default_rng(1)
    degrees = sorted(rng.integers(1, 400, 300).tolist(), reverse=True)
    beyond = rows_beyond(ranks_of(degrees, 0.0, rng))
    for n, edge in enumerate((0, *EDGES)):
        assert beyond[n] == pytest.approx(sum(max(0, d - edge) for d in degrees), abs=1e-6)
    sequence = degree_sequence(ranks_of(degrees, 0.0, rng))
    assert len(sequence) == 300
    assert np.abs(sequence - degrees).max() <= 0.2 * max(degrees)


@pytest.mark.statistical
def test_noise_alone_shows_no_rows_beyond_the_largest_degree() -> None:
    """Of 200 histograms with degrees up to 20, at most a few seem to have more; a value of 2,000 rows is seen."""
    rng = np.random.default_rng(2)
    tops = []
    for _ in range(200):
        beyond = rows_beyond(ranks_of([20] * 500, 23.0, rng))
        tops.append(EDGES[int(np.argmax(beyond[1:] == 0.0))])
    assert sum(t > 32 for t in tops) <= 6
    assert sum(t < 18 for t in tops) == 0
    hot = [rows_beyond(ranks_of([2000, *[20] * 500], 23.0, rng)) for _ in range(50)]
    assert all(b[0] - b[EDGES.index(32) + 1] > 0 and b[EDGES.index(198) + 1] > 1000 for b in hot)


@pytest.mark.statistical
def test_a_thin_tail_is_seen_by_its_sum() -> None:
    """1,000 rows, 90 values, a quarter of the rows above rank 13: few in each bucket of ranks, which noise hides."""
    weights = 1 / np.arange(1, 90) ** 0.6
    degrees = np.random.default_rng(0).multinomial(1000, weights / weights.sum()).tolist()
    exact = sum(max(0, d - 13) for d in degrees)
    rng = np.random.default_rng(3)
    beyond = [rows_beyond(ranks_of(degrees, 23.0, rng))[EDGES.index(13) + 1] for _ in range(100)]
    assert np.median(beyond) == pytest.approx(exact, rel=0.2)
    assert sum(b < 0.5 * exact for b in beyond) <= 15


def test_no_rank_is_seen_that_a_table_has_too_few_rows_for() -> None:
    """A little noise in every bucket adds up, and would make values of millions of rows of a table of ten thousand."""
    exact = replace(ranks_of([20] * 500, 0.0, np.random.default_rng(0)), deviation=23.0)
    lifted = replace(exact, noisy=tuple(n + 10 * (low >= 22) for low, n in zip((0, *EDGES), exact.noisy, strict=True)))
    beyond = rows_beyond(lifted)
    assert 22 <= EDGES[int(np.argmax(beyond[1:] == 0.0))] < 10_000
    assert looked_beyond(lifted).hidden[EDGES.index(10_921) + 1] == 0


@pytest.mark.statistical
@pytest.mark.parametrize("twice", [0, 60, 150])
def test_what_noise_hides_beyond_a_rank_is_about_known(twice: int) -> None:
    """Some values have a second row, and noise of 40 rows does not show how many: the doubt says how far off."""
    rng = np.random.default_rng(twice)
    off, seen = [], []
    for _ in range(300):
        found = looked_beyond(ranks_of([*[2] * twice, *[1] * (1500 - twice)], 40.0, rng))
        off.append((found.seen[1] + found.hidden[1] - twice) / found.doubt[1])
        seen.append(found.seen[1])
    assert np.mean(np.abs(off) < 1.645) >= 0.8
    assert abs(np.mean(off)) < 0.8
    assert np.median(seen) == (0 if twice < 100 else pytest.approx(twice, abs=40))


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


def test_the_bound_of_caps_is_that_of_the_join_they_leave() -> None:
    """No row of a capped instance is in more join results than the bound says, and some caps attain it."""
    rng = np.random.default_rng(6)
    for shape in ANY:
        schema = schema_of(shape)
        names = frozenset(t.name for t in schema.tables)
        for _ in range(5):
            rows = skewed_rows(schema, rng)
            caps = {(t, by): int(rng.integers(1, 4)) for t, s in cap_attributes(schema).items() for by in s}
            engine = BruteEngine(schema, rows).capped(cap_bounds(caps))
            largest = max(engine.exact_boundary(names - {t}) for t in names)
            assert largest <= public_bound_of(schema, caps)


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
    shares = capped_shares(BLUNT, schema)
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


@pytest.mark.parametrize("seed", range(20))
def test_falling_fits_are_those_of_scipy(seed: int) -> None:
    """For every prefix; ties and negative numbers included."""
    from scipy.optimize import isotonic_regression

    rng = np.random.default_rng(seed)
    values = rng.integers(-3, 8, 30).astype(float) if seed % 2 else rng.normal(0, 5, 30)
    weights = rng.integers(1, 50, 30).astype(float)
    fits = falling_fits(values, weights)
    assert len(fits) == 31
    assert not fits[0].any()
    for n in range(1, 31):
        exact = isotonic_regression(values[:n], weights=weights[:n], increasing=False).x
        assert np.allclose(fits[n][:n], exact, atol=1e-9)
        assert not fits[n][n:].any()


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


def test_joins_of_three_skewed_tables_are_not_far_too_small() -> None:
    """Frequent values are the same in all tables, so strict caps lose far more of the join than of any table."""
    rng = np.random.default_rng(0)
    popular = 1 / np.arange(1, 201) ** 0.9

    def keys(rows: int) -> Any:
        return rng.choice(200, rows, p=popular / popular.sum())

    tables = {
        "r": pa.table({"k": keys(20_000), "a": rng.integers(0, 3, 20_000)}),
        "s": pa.table({"k": keys(10_000), "l": keys(10_000)}),
        "t": pa.table({"l": keys(10_000), "b": rng.integers(0, 3, 10_000)}),
    }
    schema = Schema(
        tuple(Table(name=t, attributes=tuple(x.column_names)) for t, x in tables.items()),
        (*(Attribute(name=k, key=True) for k in "kl"), *(Attribute(name=a, range=(0, 2)) for a in "ab")),
    )
    workload = dj.Workload.marginals(schema, [("a", "b")])
    engine = DuckEngine(schema, tables, attributes=workload.attributes)
    found = []
    for _ in range(11):
        shares = capped_shares(Budget(epsilon=1.0, delta=1e-6), schema)
        curator = Curator(engine, shares.split)
        ranks = measure_ranks(curator, shares.look.ranks)
        levels = measure_levels(curator, workload, ranks, shares.look.size)
        best = best_caps(workload, levels, curator.rho_left).candidate
        found.append(measure_sizes(levels, best, shares.count)[0])
    exact = engine.exact_join_size()
    assert np.median([f.noisy for f in found]) == pytest.approx(exact, rel=0.12)
    assert np.mean([abs(f.noisy - exact) < 1.645 * f.deviation for f in found]) >= 0.5


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


@pytest.mark.statistical
def test_sizes_of_nested_joins_are_not_too_small_under_caps() -> None:
    """A table whose ranks by a key are not known may share frequent values: sizes were two thirds, always."""
    rng, values, rows = np.random.default_rng(5), 300, 10_000
    popular = np.arange(1, values + 1) ** -0.7
    tables = {}
    for table, names in (("r", "KLa"), ("s", "KLb"), ("t", "Kc")):
        keys = {"K": rng.choice(values, rows, p=popular / popular.sum()), "L": rng.integers(0, 6, rows)}
        tables[table] = pa.table({n: keys[n] if n in keys else rng.integers(0, 3, rows) for n in names})
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(some.column_names)) for t, some in tables.items()),
        (*(dj.Attribute(name=k, key=True) for k in "KL"), *(dj.Attribute(name=a, range=(0, 2)) for a in "abc")),
    )
    workload = dj.Workload.marginals(schema, 2)
    exact = DuckEngine(schema, tables, attributes=workload.attributes).exact_join_size()
    made = [dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6), method="capped") for _ in range(9)]
    assert np.median([m.join_size for m in made]) > 0.85 * exact
