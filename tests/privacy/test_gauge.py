"""Gauges and residual sensitivity against their definitions in loops, and on every neighbour of small instances."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from dpjoin.engine.brute import BruteEngine
from dpjoin.privacy.gauge import gauge, gauge_bound, ls_gauge, t_gauge
from dpjoin.privacy.residual import (
    Boundaries,
    local_sensitivity,
    proper_subsets,
    residual_bound,
    residual_level,
    residual_sensitivity,
    star,
)
from dpjoin.spec.schema import Attribute, Schema, Table
from support.gauge import ls_at_by_loops, sums

Rows = list[dict[str, object]]
Tables = dict[str, Rows]

SHAPES = {
    "two": ("AB", "BC"),
    "path3": ("AB", "BC", "CD"),
    "path4": ("AB", "BC", "CD", "DE"),
    "star3": ("AX", "BX", "CX"),
    "triangle": ("AB", "BC", "CA"),
    "cycle4": ("AB", "BC", "CD", "DA"),
    "middle": ("AB", "B", "BC"),
    "apart": ("A", "B"),
}
BETAS = (Fraction(1, 20), Fraction(3, 10), Fraction(1))


# The definitions, in loops ---------------------------------------------------------------------------------------


def growth_by_loops(b: Boundaries, last: int) -> dict[frozenset[str], list[int]]:
    """P_F(0), …, P_F(last) by the recurrence."""
    found: dict[frozenset[str], list[int]] = {}
    for subset in proper_subsets(b.tables):
        private = subset & b.private
        if not private:
            found[subset] = [b.values[subset]] * (last + 1)
            continue
        found[subset] = [0]
        for z in range(1, last + 1):
            value = found[subset][-1] + max(found[subset - {j}][z - 1] for j in private)
            ceilings = [b.caps[subset]] if subset in b.caps else []
            ceilings += [c * found[subset - {j}][z] for f, j, c in b.factors if f == subset]
            found[subset].append(min([value, *ceilings]))
    return found


def bound_by_loops(b: Boundaries, last: int) -> list[int]:
    curves = growth_by_loops(b, last)
    return [max(curves[frozenset(b.tables) - {i}][z] for i in b.private) for z in range(last + 1)]


def t_gauge_by_loops(b: Boundaries, last: int) -> int:
    curves = growth_by_loops(b, last)
    needed = [f for f in curves if b.private - f]
    return next(z for z in range(last + 1) if all(b.values[f] <= curves[f][z] for f in needed))


def ls_gauge_by_loops(b: Boundaries, last: int) -> int:
    curve = bound_by_loops(b, 3 * last)
    reached = [ls_at_by_loops(b, k) for k in range(last + 1)]
    return next(z for z in range(2 * last) if all(v <= curve[z + k] for k, v in enumerate(reached)))


def ls_at_by_grid(b: Boundaries, last: int) -> list[int]:
    """LŜ^0, …, LŜ^last by evaluating all s with sum at most `last`; values must fit in 62 bits."""
    reached = np.zeros(last + 1, dtype=np.int64)
    for i in sorted(b.private):
        others = [j for j in b.tables if j != i and j in b.private]
        points = np.zeros((1, 0), dtype=np.int64)
        for _ in others:  # every point, once for each value that its sum leaves to the next coordinate
            room = last + 1 - points.sum(axis=1)
            ends = np.cumsum(room)
            values = np.arange(ends[-1]) - np.repeat(ends - room, room)
            points = np.column_stack([np.repeat(points, room, axis=0), values])
        total = np.zeros(len(points), dtype=np.int64)
        for size in range(len(others) + 1):
            for taken in itertools.combinations(range(len(others)), size):
                rest = frozenset(b.tables) - {i} - {others[n] for n in taken}
                total += b.values[rest] * points[:, list(taken)].prod(axis=1)
        if others:
            np.maximum.at(reached, points.sum(axis=1), total)
        else:
            reached = np.maximum(reached, total[0])
    return [int(x) for x in reached]


# Random boundary values and instances ----------------------------------------------------------------------------


def random_boundaries(rng: np.random.Generator, m: int, *, top: int, public: bool = False) -> Boundaries:
    names = tuple("RSTUVW"[:m])
    private = frozenset(names[: int(rng.integers(1, m + 1))] if public else names)
    values = {f: int(rng.integers(0, top ** max(1, len(f)) + 1)) for f in proper_subsets(names)}
    values[frozenset()] = 1
    for f in values:
        if not f & private:  # public tables that join to nothing have a test of their own
            values[f] = max(1, values[f])
    return Boundaries(tables=names, private=private, values=values)


def with_knowledge(rng: np.random.Generator, b: Boundaries) -> Boundaries:
    """The same with random caps and factors, and values cut down until all of them hold."""
    subsets = [f for f in proper_subsets(b.tables) if f & b.private]
    caps = {f: int(rng.integers(0, 30)) for f in subsets if rng.random() < 0.3}
    factors = tuple((f, j, int(rng.integers(1, 4))) for f in subsets for j in sorted(f) if rng.random() < 0.2)
    values = dict(b.values)
    for f in subsets:
        values[f] = min([values[f], *([caps[f]] if f in caps else [])])
        values[f] = min([values[f], *(c * values[g - {j}] for g, j, c in factors if g == f)])
    for f in subsets:  # what real tables satisfy: nothing joins with nothing
        if any(values[f - {j}] == 0 for j in f):
            values[f] = 0
    return Boundaries(tables=b.tables, private=b.private, values=values, caps=caps, factors=factors)


def schema_of(shape: str, *, private: str | None = None) -> Schema:
    parts = SHAPES[shape]
    letters = sorted(set("".join(parts)))
    return Schema(
        tuple(
            Table(name=f"R{n}", attributes=tuple(p), private=private is None or str(n) in private)
            for n, p in enumerate(parts, 1)
        ),
        tuple(Attribute(name=a, range=(0, 1)) for a in letters),
    )


def boundaries_of(schema: Schema, tables: Tables) -> Boundaries:
    engine = BruteEngine(schema, tables)
    names = tuple(t.name for t in schema.tables)
    return Boundaries(
        tables=names,
        private=frozenset(schema.private_tables),
        values={f: engine.exact_boundary(f) for f in proper_subsets(names)},
    )


def every_row(schema: Schema, name: str) -> Rows:
    attributes = schema.table(name).attributes
    return [dict(zip(attributes, v, strict=True)) for v in itertools.product((0, 1), repeat=len(attributes))]


def random_rows(rng: np.random.Generator, schema: Schema, *, most: int = 4) -> Tables:
    found: Tables = {}
    for table in schema.tables:
        rows = every_row(schema, table.name)
        found[table.name] = [rows[i] for i in rng.integers(0, len(rows), int(rng.integers(0, most + 1)))]
    return found


def all_neighbours(schema: Schema, tables: Tables) -> Iterator[Tables]:
    for name in schema.private_tables:
        rows = tables[name]
        for row in every_row(schema, name):
            yield {**tables, name: [*rows, row]}
            if row in rows:
                yield {**tables, name: [*rows[: rows.index(row)], *rows[rows.index(row) + 1 :]]}


@cache
def numbers(shape: str, private: str | None, key: tuple[int, ...]) -> tuple[int, int | None, int, int, int]:
    """T-gauge, LŜ-gauge, gauge, residual level at beta = 3/10 and LS for the boundary values in `key`."""
    schema = schema_of(shape, private=private)
    names = tuple(t.name for t in schema.tables)
    values = dict(zip(proper_subsets(names), key, strict=True))
    b = Boundaries(tables=names, private=frozenset(schema.private_tables), values=values)
    level = residual_level(b, beta=BETAS[1], steps=3)
    assert gauge_bound(b, gauge(b)) >= local_sensitivity(b)
    assert residual_bound(level, beta=BETAS[1], steps=3) >= local_sensitivity(b)
    return t_gauge(b), ls_gauge(b), gauge(b), level, local_sensitivity(b)


def largest_move(before: Boundaries, after: Boundaries, measure: Callable[[Boundaries], int | None]) -> int:
    one, two = measure(before), measure(after)
    return 0 if one is None or two is None else abs(one - two)


# Tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [2, 3, 4, 5])
@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("knowledge", [False, True])
def test_growth_is_its_recurrence(m: int, public: bool, knowledge: bool) -> None:
    """Piecewise polynomials equal the recurrence step by step, with caps, factors and public tables."""
    rng = np.random.default_rng(10 + m)
    for _ in range(15):
        b = random_boundaries(rng, m, top=3, public=public)
        b = with_knowledge(rng, b) if knowledge else b
        assert [gauge_bound(b, z) for z in range(41)] == bound_by_loops(b, 40)


@pytest.mark.parametrize("m", [2, 3, 4])
@pytest.mark.parametrize("public", [False, True])
def test_t_gauge_is_its_definition(m: int, public: bool) -> None:
    """Bisection finds the first level at which every curve is high enough."""
    rng = np.random.default_rng(20 + m)
    for _ in range(25):
        b = random_boundaries(rng, m, top=4, public=public)
        assert t_gauge(b) == t_gauge_by_loops(b, 300)


@pytest.mark.parametrize(("m", "top", "last"), [(2, 20, 40), (3, 4, 60), (4, 2, 24)])
@pytest.mark.parametrize("public", [False, True])
def test_ls_gauge_is_its_definition(m: int, top: int, last: int, public: bool) -> None:
    """The search over boxes finds the least level that covers every k."""
    rng = np.random.default_rng(30 + m)
    for _ in range(12):
        b = random_boundaries(rng, m, top=top, public=public)
        assert ls_gauge(b) == ls_gauge_by_loops(b, last)


@pytest.mark.parametrize(
    ("degrees", "last"), [((3, 1, 1), 30), ((4, 4, 4), 30), ((1, 5, 1), 30), ((4, 1, 1, 1), 24), ((2, 2, 2, 1), 24)]
)
def test_ls_gauge_of_exchangeable_tables(degrees: tuple[int, ...], last: int) -> None:
    """Tables that can be exchanged are searched in one order only, and nothing is lost."""
    assert ls_gauge(star(degrees)) == ls_gauge_by_loops(star(degrees), last)


def six_tables(rng: np.random.Generator, n: int) -> Boundaries:
    """Small values of six tables: stars, joins whose T_F is the largest product over keys, and no joins at all."""
    if n % 3 == 0:
        return star([int(x) for x in rng.integers(1, 4, 6)])
    if n % 3 == 1:
        return random_boundaries(rng, 6, top=1 if n % 2 else 2, public=n % 4 == 0)
    degrees = rng.integers(0, 4, (6, 3))
    products = {f: degrees[[int(t) - 1 for t in f]].prod(axis=0).max() for f in proper_subsets("123456")}
    values = {f: int(x) for f, x in products.items()}
    return Boundaries(tables=tuple("123456"), private=frozenset("123456"), values=values)


@pytest.mark.parametrize("n", range(9))
def test_six_tables_equal_the_grid(n: int) -> None:
    """Both searches for six tables equal the maximum over every s with sum up to 24."""
    b = six_tables(np.random.default_rng(110 + n), n)
    reached = ls_at_by_grid(b, 24)
    curve = bound_by_loops(b, 100)
    level = ls_gauge(b)
    assert level == next(z for z in range(70) if all(v <= curve[z + k] for k, v in enumerate(reached)))
    for beta in BETAS[1:]:
        expected = max(math.exp(-beta * k) * v for k, v in enumerate(reached))
        assert float(residual_sensitivity(b, beta)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("m", [3, 4, 5])
@pytest.mark.parametrize("instances", [10, pytest.param(100, marks=pytest.mark.full)])
def test_floats_lose_nothing(m: int, instances: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search that drops boxes by floats finds what the search in whole numbers alone finds."""
    rng = np.random.default_rng(120 + m)
    found = []
    for n in range(instances):
        b = random_boundaries(rng, m, top=int(rng.integers(1, 8)), public=n % 3 == 0)
        if n % 2:
            b = star([int(10**x) for x in rng.uniform(0, 5 - m / 2, m)])
        found.append((b, ls_gauge(b)))
    monkeypatch.setattr("dpjoin.privacy.gauge._LAST", 0)
    assert [ls_gauge(b) for b, _ in found] == [level for _, level in found]


def test_six_tables_of_very_unequal_degrees() -> None:
    """Figures that the search in whole numbers found too, in seconds each; large ones are searched without floats."""
    assert ls_gauge(star((1000, 1, 1, 1, 1, 1))) == 45
    assert ls_gauge(star((100_000, 1, 1, 1, 1, 1))) == 3847
    assert (
        ls_gauge(star((100_000, 10_000, 1000, 100, 10, 1))) == gauge(star((1, 10, 100, 1000, 10_000, 100_000))) == 13506
    )
    assert ls_gauge(star((10**17, 1, 1))) == 5 * 10**16 + 2


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("knowledge", [False, True])
def test_residual_sensitivity_is_its_definition(beta: Fraction, knowledge: bool) -> None:
    """RS equals the maximum over k in loops, to 50 binary digits, and its level is the first that covers it."""
    rng = np.random.default_rng(40)
    for m, top in ((2, 9), (3, 5), (4, 3)):
        for _ in range(3):
            b = random_boundaries(rng, m, top=top, public=bool(rng.random() < 0.3))
            b = with_knowledge(rng, b) if knowledge else b
            last = min((m - 1) * math.ceil(1 / math.expm1(beta)), 24 if m == 4 else 60)
            reached = [ls_at_by_loops(b, k) for k in range(last + 1)]
            expected = max(math.exp(-beta * k) * v for k, v in enumerate(reached))
            found = residual_sensitivity(b, beta)
            if last == (m - 1) * math.ceil(1 / math.expm1(beta)):
                assert float(found) == pytest.approx(expected, rel=1e-12)
            assert found >= Fraction(expected) * (1 - Fraction(1, 10**12))
            level = residual_level(b, beta=beta, steps=5)
            grid = [residual_bound(z, beta=beta, steps=5) for z in (level + 5 * k for k in range(last + 1))]
            assert all(v <= g for v, g in zip(reached, grid, strict=True))
            assert level == max(0, math.ceil(math.log(found) * 5 / beta - 1e-9) if found else 0)


@pytest.mark.parametrize("shape", SHAPES)
def test_instances_equal_the_definitions(shape: str) -> None:
    """The fast functions equal the loops on boundary values of real joins."""
    rng = np.random.default_rng(50)
    schema = schema_of(shape)
    for _ in range(4):
        b = boundaries_of(schema, random_rows(rng, schema))
        assert t_gauge(b) == t_gauge_by_loops(b, 100)
        assert ls_gauge(b) == ls_gauge_by_loops(b, 20)


@pytest.mark.parametrize(
    ("shape", "private"),
    [*((shape, None) for shape in SHAPES), ("path3", "12"), ("path3", "13"), ("star3", "12"), ("cycle4", "134")],
)
@pytest.mark.parametrize("instances", [20, pytest.param(200, marks=pytest.mark.full)])
def test_no_neighbour_moves_a_gauge_by_more_than_one(shape: str, private: str | None, instances: int) -> None:
    """On every neighbour of the instances the gauges move by at most 1, the residual level by at most 3 steps."""
    rng = np.random.default_rng(60)
    schema = schema_of(shape, private=private)
    names = tuple(t.name for t in schema.tables)

    def measured(tables: Tables) -> tuple[int, int | None, int, int, int]:
        b = boundaries_of(schema, tables)
        return numbers(shape, private, tuple(b.values[f] for f in proper_subsets(names)))

    for _ in range(instances):
        tables = random_rows(rng, schema)
        t, ls, both, level, _ = measured(tables)
        for other in all_neighbours(schema, tables):
            t2, ls2, both2, level2, _ = measured(other)
            assert abs(t - t2) <= 1
            assert ls is not None
            assert ls2 is not None
            assert abs(ls - ls2) <= 1
            assert abs(both - both2) <= 1
            assert abs(level - level2) <= 3


@pytest.mark.parametrize("shape", ["two", "path3", "triangle", "star3", "middle"])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("instances", [3, pytest.param(70, marks=pytest.mark.full)])
def test_residual_sensitivity_is_smooth(shape: str, beta: Fraction, instances: int) -> None:
    """RS is at least LS and grows by at most a factor exp(beta) between neighbours."""
    rng = np.random.default_rng(70)
    schema = schema_of(shape)
    factor = math.exp(beta) * (1 + 1e-12)
    for _ in range(instances):
        tables = random_rows(rng, schema)
        b = boundaries_of(schema, tables)
        here = residual_sensitivity(b, beta)
        assert here >= local_sensitivity(b)
        for other in itertools.islice(all_neighbours(schema, tables), 0, None, 3):
            there = residual_sensitivity(boundaries_of(schema, other), beta)
            assert here <= there * Fraction(factor)
            assert there <= here * Fraction(factor)


def unique_on_b(rows: Rows) -> bool:
    return len({row["B"] for row in rows}) == len(rows)


def test_public_bounds_keep_the_gauge_stable() -> None:
    """A path whose middle table has one row per B: neighbours that keep it so move the gauge by at most 1."""
    rng = np.random.default_rng(80)
    schema = schema_of("path3")
    known = {"caps": {frozenset({"R2"}): 1}, "factors": ((frozenset({"R2", "R3"}), "R2", 1),)}

    def bounded(tables: Tables) -> Boundaries:
        b = boundaries_of(schema, tables)
        return Boundaries(tables=b.tables, private=b.private, values=b.values, **known)  # type: ignore[arg-type]

    pairs = 0
    while pairs < 300:
        tables = random_rows(rng, schema)
        if not unique_on_b(tables["R2"]):
            continue
        b = bounded(tables)
        assert gauge_bound(b, gauge(b)) >= local_sensitivity(b)
        for other in all_neighbours(schema, tables):
            if unique_on_b(other["R2"]):
                assert largest_move(b, bounded(other), gauge) <= 1
                pairs += 1


@pytest.mark.parametrize(
    ("degrees", "by_t", "by_ls", "hidden"),
    [
        ((1000, 1, 1), 561_270, 157_641, 61_000),
        ((38, 2, 2), 4_753, 3_321, 2_500),
        ((500, 20, 5), 156_520, 54_615, 40_000),
        ((100, 100, 100), 20_301, 20_301, 16_900),
    ],
)
def test_worked_numbers(degrees: tuple[int, ...], by_t: int, by_ls: int, hidden: int) -> None:
    """Bounds at noise 60 for three tables whose pairs have the products of the degrees."""
    b = star(degrees)
    level = ls_gauge(b)
    assert level is not None
    assert gauge_bound(b, t_gauge(b) + 60) == by_t
    assert gauge_bound(b, level + 60) == by_ls
    assert ls_at_by_loops(b, 60) == hidden


def test_worked_number_with_a_public_table() -> None:
    """With T_3 = 1 public and T_1 = T_2 = 100, both gauges give 160 at noise 60."""
    b = star((100, 100, 1), private=(1, 2))
    assert t_gauge(b) == ls_gauge(b) == gauge(b) == 100
    assert gauge_bound(b, gauge(b) + 60) == 160


def test_worked_number_with_declared_bounds() -> None:
    """Degrees (38, 2, 2), the last two declared to be at most 2 wherever they are reached: 196 instead of 3,321."""
    one, two, three = "123"
    b = Boundaries(
        tables=("1", "2", "3"),
        private=frozenset("123"),
        values=star((38, 2, 2)).values,
        caps={frozenset(two): 2, frozenset(three): 2, frozenset({two, three}): 4},
        factors=((frozenset({one, two}), two, 2), (frozenset({one, three}), three, 2)),
    )
    assert gauge_bound(b, gauge(b) + 60) == 196


def test_two_tables_are_the_larger_degree() -> None:
    """For two private tables the gauge is max(T_1, T_2) and the bound is the level itself."""
    b = star((7, 10**9))
    assert gauge(b) == t_gauge(b) == ls_gauge(b) == 10**9
    assert gauge_bound(b, 10**9 + 60) == 10**9 + 60


def test_one_private_table_has_a_public_bound() -> None:
    """With one private table the level is 0 and the bound is T of the public tables."""
    b = star((5, 7, 11), private=(2,))
    assert gauge(b) == 0
    assert gauge_bound(b, 0) == gauge_bound(b, 99) == local_sensitivity(b) == 55
    assert residual_sensitivity(b, Fraction(1)) == 55


def test_large_degrees_do_not_loop() -> None:
    """Degrees of a thousand million beside public tables and caps are found by bisection."""
    b = star((10**9, 10**9, 3), private=(1, 2))
    assert gauge(b) == 10**9
    known = Boundaries(
        tables=b.tables, private=frozenset("123"), values=star((10**9, 2, 2)).values, caps={frozenset("23"): 4}
    )
    assert t_gauge(known) == 10**9
    assert ls_gauge(known) is None


def test_level_zero_covers_empty_tables() -> None:
    """Empty tables have residual level 0 when RS is below 1, and the bound is 1."""
    b = star((0, 0))
    assert float(residual_sensitivity(b, Fraction(1))) == pytest.approx(math.exp(-1))
    assert residual_level(b, beta=Fraction(1), steps=4) == 0
    assert residual_bound(0, beta=Fraction(1), steps=4) == 1


def test_public_tables_that_join_to_nothing() -> None:
    """If the public tables are empty the gauge is 0; values that no instance has give infinity."""
    b = star((5, 5, 0), private=(1, 2))
    assert ls_gauge(b) == gauge_bound(b, 9) == 0
    odd = {**b.values, frozenset("13"): 2}
    assert ls_gauge(Boundaries(tables=b.tables, private=b.private, values=odd)) is None


def test_refusals() -> None:
    """Every guard says what must hold."""
    good = star((2, 2))
    with pytest.raises(ValueError, match="at least one of the tables"):
        Boundaries(tables=good.tables, private=frozenset(), values=good.values)
    with pytest.raises(ValueError, match="every proper subset"):
        Boundaries(tables=good.tables, private=good.private, values={frozenset(): 1})
    with pytest.raises(ValueError, match="1 for the empty set"):
        Boundaries(tables=good.tables, private=good.private, values={**good.values, frozenset(): 2})
    with pytest.raises(ValueError, match="caps and factors must not be negative"):
        Boundaries(tables=good.tables, private=good.private, values=good.values, caps={frozenset("1"): -1})
    with pytest.raises(ValueError, match="a declared bound is too small"):
        t_gauge(Boundaries(tables=good.tables, private=good.private, values=good.values, caps={frozenset("1"): 1}))
    with pytest.raises(ValueError, match=r"beta .* must be positive"):
        residual_sensitivity(good, Fraction(0))
    with pytest.raises(ValueError, match=r"beta .* at most 16"):
        residual_sensitivity(good, Fraction(17))
    with pytest.raises(ValueError, match=r"beta .* must be positive"):
        residual_bound(1, beta=Fraction(0), steps=1)
    with pytest.raises(ValueError, match=r"steps .* must be at least 1"):
        residual_level(good, beta=Fraction(1), steps=0)


@pytest.mark.known_bad
def test_local_sensitivity_is_no_gauge() -> None:
    """Local sensitivity taken for a number that one row moves by at most one: the neighbour check refuses it."""
    rng = np.random.default_rng(90)
    schema = schema_of("path3")
    moves = [0]
    for _ in range(10):
        tables = random_rows(rng, schema)
        b = boundaries_of(schema, tables)
        for other in all_neighbours(schema, tables):
            moves.append(largest_move(b, boundaries_of(schema, other), local_sensitivity))
    assert max(moves) > 1


@pytest.mark.known_bad
def test_growth_that_merely_stops_at_a_cap_is_no_gauge() -> None:
    """Stopping s_2 and s_3 at the declared 1 instead of bounding T_F: one row moves the level by 18."""

    def stopped(b: Boundaries) -> int:
        level = 0
        for s1, s2, s3 in itertools.product(range(60), range(2), range(2)):
            for i in b.tables:
                s = {"R1": s1, "R2": s2, "R3": s3}
                total = sum(s.values()) - s[i]
                value = sums(b, frozenset(b.tables) - {i}, {**s, i: 0})
                while math.comb(level + total, 2) < value:
                    level += 1
        return level

    schema = schema_of("path3")
    many: Rows = [{"A": 0, "B": 0}] * 1000
    before = boundaries_of(schema, {"R1": many, "R2": [], "R3": []})
    after = boundaries_of(schema, {"R1": many, "R2": [{"B": 0, "C": 0}], "R3": []})
    assert largest_move(before, after, stopped) == 18
    assert largest_move(before, after, gauge) <= 1
