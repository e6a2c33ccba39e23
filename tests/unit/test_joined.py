"""Joins of one model per table: equal to nested loops, bars cover, folders come back to the bit, answers are fast."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
import dpjoin.model.joined as joined_module
from dpjoin.model.ensemble import ensemble
from dpjoin.model.fit import Evidence, learn, start
from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.model.terms import Domain, Terms
from dpjoin.model.union import Union
from dpjoin.privacy.ledger import Ledger
from dpjoin.spec.workload import product_group
from support.joined import (
    LISTED,
    SHAPES,
    SIZES,
    answers_on,
    brute,
    groups_of,
    make_joined,
    make_table,
)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("chunk", [1, 2**21])
def test_a_join_is_what_nested_loops_say(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table, total, answers of every kind and every member's, however few listed values are taken together."""
    monkeypatch.setattr(joined_module, "TOGETHER_CELLS", chunk)
    shape = SHAPES[name]
    joined = make_joined(shape)
    truth = brute(joined, [t.table for t in joined.tables])
    assert np.allclose(joined.table, truth)
    assert joined.total == pytest.approx(truth.sum())
    members = [
        brute(joined, [t.terms.table(*t.members[m]) for t in joined.tables if t.terms is not None]) for m in range(3)
    ]
    for group in groups_of(shape):
        exact = answers_on(joined.domain, truth, group)
        assert np.allclose(joined.answer(group), exact)
        assert np.allclose(joined.answer(group), answers_on(joined.domain, joined.table, group))
        (spread,) = joined.spreads(group)
        assert spread is not None
        assert np.allclose(spread, [answers_on(joined.domain, m, group) - exact for m in members])
        assert np.isfinite(joined.error(group, 0.9)).all()


def test_a_small_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit."""
    shape = SHAPES["chain"]
    kept = make_joined(shape)
    found = [(kept.answer(g), kept.error(g, 0.9)) for g in groups_of(shape)]
    monkeypatch.setattr(joined_module, "CACHE_BYTES", 0)
    anew = make_joined(shape)
    for group, (answers, bars) in zip(groups_of(shape), found, strict=True):
        assert (anew.answer(group) == answers).all()
        assert (anew.error(group, 0.9) == bars).all()
    assert not anew._kept


def test_the_two_ways_of_laying_out_a_table_agree() -> None:
    """Neither the order of a table's attributes nor how its cells are split matters."""
    shape = SHAPES["two codes"]
    joined = make_joined(shape)
    tables = []
    for table in joined.tables:
        names = table.domain.attributes[::-1]
        domain = Domain(names[:1], names[1:], table.domain.sizes)
        plain = table.domain.marginal(table.table, names).reshape(domain.rows, domain.columns)
        tables.append(Model(domain, table.total, plain=plain, known=table.known))
    turned = dataclasses.replace(joined, tables=tuple(tables))
    assert np.allclose(turned.table, joined.table)
    for group in groups_of(shape):
        assert np.allclose(turned.answer(group), joined.answer(group))
        assert turned.spreads(group) == []
        assert (turned.error(group, 0.9) == 0.0).all()


# -- error bars -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two tables", "three tables", "chain"])
def test_another_size_changes_nothing_else(name: str) -> None:
    """Answers in proportion, and joins of members that have the size up to its deviation, whatever they had before."""
    joined = make_joined(SHAPES[name])
    sized = joined.resized(3.0 * joined.total, 0.0)
    assert sized.total == pytest.approx(3.0 * joined.total)
    assert np.allclose(sized.member_totals, sized.total)
    for group in groups_of(SHAPES[name]):
        assert np.allclose(sized.answer(group), 3.0 * joined.answer(group))
    off = joined.resized(joined.total, 0.1 * joined.total).member_totals / joined.total - 1
    assert 0.01 < float(np.abs(off).max()) < 0.4


@pytest.mark.parametrize("name", ["triangle", "unlisted", "shared by three", "cross product"])
def test_rows_that_are_spread_evenly_meet_by_chance(name: str) -> None:
    """By definition: flatten each table over what tables meet by, and join. Flat models have nothing to tell apart."""
    joined = make_joined(SHAPES[name])
    flat = []
    for table in joined.tables:
        links = tuple(n for n, a in enumerate(table.domain.attributes) if a in joined.links)
        shaped = table.table.reshape(table.domain.shape)
        flat.append(np.broadcast_to(shaped.mean(axis=links, keepdims=True) if links else shaped, shaped.shape))
    assert joined.by_chance == pytest.approx(brute(joined, flat).sum())


def counting(table: Model, seed: int, deviation: float) -> Model:
    """The model as if it had been fitted to its own pairs of attributes with noise, and to nothing else."""
    assert table.terms is not None
    evidence, rng = Evidence.none(table.terms.size), np.random.default_rng(seed)
    for clique, where in zip(table.terms.cliques, table.terms.slices, strict=True):
        if len(clique) > 1:
            exact = table.domain.marginal(table.table, clique).ravel()
            evidence = evidence.add(where, exact + deviation * rng.standard_normal(len(exact)), deviation**2)
    return dataclasses.replace(table, evidence=evidence)


def test_what_was_counted_adds_up_by_precision() -> None:
    """Of three attributes, s in (s, a) with half the variance that it has in (s, t), by loops."""
    table = counting(make_table(("s", "t", "a"), 5), 1, 2.0)
    assert table.terms is not None
    assert table.evidence is not None
    where = dict(zip(table.terms.cliques, table.terms.slices, strict=True))
    evidence = table.evidence.add(where["s", "a"], table.evidence.noisy[where["s", "a"]], 4.0)  # precision 1/2
    table = dataclasses.replace(table, evidence=evidence)
    found = table.counted(("s",))
    assert found is not None
    precisions = {("s", "t"): 0.25 / SIZES["t"], ("s", "a"): 0.5 / SIZES["a"]}
    for value in range(SIZES["s"]):
        sums = {
            pair: sum(evidence.noisy[where[pair]][value * SIZES[pair[1]] + other] for other in range(SIZES[pair[1]]))
            for pair in precisions
        }
        mean = sum(precisions[p] * sums[p] for p in sums) / sum(precisions.values())
        assert found[0][value] == pytest.approx(mean)
    assert found[1] == pytest.approx(1 / sum(precisions.values()))
    assert table.counted(("s", "t", "a")) is None
    assert make_table(("s", "a"), 5).counted(("s",)) is None
    turned = [c[0] for c in (table.counted(("a", "s")), table.counted(("s", "a"))) if c is not None]
    assert np.array_equal(turned[0], turned[1].T)


@pytest.mark.parametrize("name", ["triangle", "unlisted", "shared by three"])
def test_the_size_by_counted_rows_is_unbiased_and_knows_its_noise(name: str) -> None:
    """As often too large as too small, off by about as much as it says; models that were not counted tell nothing."""
    joined = make_joined(SHAPES[name])
    assert joined.counted is None
    exact = brute(joined, [table.table for table in joined.tables]).sum()
    sizes, deviations = [], []
    for seed in range(400):
        tables = tuple(counting(table, 10 * seed + n, 0.2) for n, table in enumerate(joined.tables))
        found = dataclasses.replace(joined, tables=tables).counted
        assert found is not None
        sizes.append(found[0])
        deviations.append(found[1])
    off = np.array(sizes) - exact
    assert abs(off.mean()) < 4 * off.std() / 20
    assert 0.9 * off.std() < np.mean(deviations) < 1.5 * off.std()


@pytest.mark.parametrize("scope", [("a",), ("a", "c"), ("k", "c"), ("k", "l"), ()])
def test_what_whole_rows_add_to_a_cell_is_what_nested_loops_say(scope: tuple[str, ...]) -> None:
    """A path; one table was measured in each cell, one in cells of two attributes, and one without the others."""
    measured = {("k", "a"): ("k", "a"), ("k", "l", "b"): ("k", "b"), ("l", "c"): ("c",)}
    tables = []
    for seed, (names, clique) in enumerate(measured.items()):
        made = make_table(names, seed)
        assert made.terms is not None
        noise_of = {clique: 2.0 + seed}
        tables.append(dataclasses.replace(made, deviations=tuple(noise_of.get(c, np.inf) for c in made.terms.cliques)))
    joined = Joined(Domain.split({a: SIZES[a] for a in "ackl"}), tuple(tables))
    links = {"k", "l"}
    counts, noise = [], []
    for seed, (table, clique) in enumerate(zip(tables, measured.values(), strict=True)):
        own = tuple(a for a in table.domain.attributes if a in links | set(scope))
        counts.append((own, table.domain.marginal(table.table, own).reshape([SIZES[a] for a in own])))
        summed = [SIZES[a] for a in clique if a not in own]
        noise.append((2.0 + seed) ** 2 * float(np.prod(summed)) if set(own) <= set(clique) else np.inf)
    names = sorted(links | set(scope))
    expected = np.zeros([SIZES[a] for a in scope])
    for cell in itertools.product(*(range(SIZES[a]) for a in names)):
        at = dict(zip(names, cell, strict=True))
        rows = [float(array[tuple(at[a] for a in own)]) for own, array in counts]
        for n, m in enumerate(rows):
            others = np.prod([r**2 for i, r in enumerate(rows) if i != n])
            expected[tuple(at[a] for a in scope)] += others * m / (1 + m / noise[n]) ** 2
    assert joined.grain(scope) == pytest.approx(expected)


def test_models_that_agree_with_their_members_tell_values_apart() -> None:
    """Members as they are: one. Members that differ: less, the more they do. No member: one, nothing is in doubt."""
    joined = make_joined(SHAPES["unlisted"])

    def told(spread: float) -> float:
        rng = np.random.default_rng(4)
        tables = []
        for table in joined.tables:
            assert table.potentials is not None
            moved = [table.potentials + spread * rng.standard_normal(len(table.potentials)) for _ in range(3)]
            tables.append(dataclasses.replace(table, members=tuple((p, table.total) for p in moved)))
        return dataclasses.replace(joined, tables=tuple(tables)).link_certainty

    assert told(0.0) == pytest.approx(1.0)
    assert 1.0 > told(0.1) > told(0.5) > told(2.0) > 0.0
    plain = tuple(dataclasses.replace(table, members=()) for table in joined.tables)
    assert dataclasses.replace(joined, tables=plain).link_certainty == 1.0


@pytest.mark.parametrize("name", ["triangle", "unlisted", "shared by three", "cross product"])
@pytest.mark.parametrize("even", [False, True])
def test_rows_are_drawn_from_the_join(name: str, even: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without writing its cells down: as often as the table says; evenly drawn ones are closer to it."""
    monkeypatch.setattr(joined_module, "TOGETHER_CELLS", 7)
    joined, count = make_joined(SHAPES[name]), 200_000
    codes = joined.rows(count, np.random.default_rng(2), even=even)
    assert list(codes) == list(joined.domain.attributes)
    flat = np.ravel_multi_index(tuple(codes.values()), joined.domain.shape)
    seen = np.bincount(flat, minlength=joined.domain.cells)
    expected = joined.table.reshape(-1) / joined.total * count
    assert (np.abs(seen - expected) < 5 * np.sqrt(expected) + 5).all()
    off = ((seen - expected) ** 2 / np.maximum(expected, 1e-9))[expected > 1].mean()
    # Rows are spread evenly within tables, not across them.
    assert 0.5 < off < 1.6 if not even or name == "cross product" else off < 0.95


def test_rows_need_no_listed_values() -> None:
    with pytest.raises(ValueError, match="only if no values are listed"):
        make_joined(SHAPES["two tables"]).rows(3, np.random.default_rng(0))
    assert {len(c) for c in make_joined(SHAPES["triangle"]).rows(0, np.random.default_rng(0)).values()} == {0}


def test_members_that_are_fewer_are_used_again() -> None:
    """A table with two members, or of which only the total is unsure, beside one with three."""
    shape = SHAPES["two tables"]
    joined = make_joined(shape)
    one, two = joined.tables
    few = dataclasses.replace(joined, tables=(one, dataclasses.replace(two, members=two.members[:2])))
    unsure = dataclasses.replace(joined, tables=(one, dataclasses.replace(two, members=(), unsure=10.0)))
    exact = dataclasses.replace(joined, tables=(one, dataclasses.replace(two, members=())))
    group = next(g for g in groups_of(shape) if g.scope == ("a", "c"))
    scales = 1.0 + 10.0 / two.total * np.array([1, -1, 1])
    firsts = [one.terms.table(*m) for m in one.members if one.terms is not None]
    for estimate, seconds in (
        (few, [two.variants[m % 2](two.domain.attributes) for m in range(3)]),
        (unsure, [two.table * s for s in scales]),
        (exact, [two.table] * 3),
    ):
        (spread,) = estimate.spreads(group)
        assert spread is not None
        for m in range(3):
            member = answers_on(joined.domain, brute(joined, [firsts[m], seconds[m]]), group)
            assert np.allclose(spread[m] + estimate.answer(group), member)


def test_what_is_known_is_known_in_every_table() -> None:
    """A scope has bars where each table knows its part together with what it shares; elsewhere they are nan."""
    shape = SHAPES["chain"]
    joined = make_joined(shape)
    known = (
        (frozenset({LISTED, "s", "a"}),),
        (frozenset({LISTED, "s", "t", "b"}), frozenset({LISTED, "s"})),
        (frozenset({LISTED, "t"}), frozenset({"t", "c"})),
    )
    tables = tuple(dataclasses.replace(t, known=k) for t, k in zip(joined.tables, known, strict=True))
    joined = dataclasses.replace(joined, tables=tables)
    for group in groups_of(shape):
        expected = set(group.scope) <= {"s", "a", "b"}
        assert joined.knows(group.scope) == expected
        assert np.isfinite(joined.error(group, 0.9)).all() == expected
    parts = (frozenset({LISTED, "a"}), frozenset({LISTED, "b"}))
    codes = SHAPES["codes"]
    one, two = make_joined(codes).tables
    joined = dataclasses.replace(make_joined(codes), tables=(dataclasses.replace(one, known=parts), two))
    for group in groups_of(codes):
        assert joined.knows(group.scope) == (set(group.scope) <= set("kac") or set(group.scope) <= set("kbc"))
    assert not dataclasses.replace(joined, tables=(dataclasses.replace(one, known=()), two)).knows(())


HEAVY, WIDE = 40, 4


def simulated(seed: int, totals: Sequence[float], deviation: float) -> tuple[Joined, list[np.ndarray]]:
    """Two tables at heavy values, each with two attributes, measured with noise on its own; and the exact tables."""
    rng = np.random.default_rng([seed, 3])
    tables, exact = [], []
    for i, (names, total) in enumerate(zip((("w", "x"), ("y", "z")), totals, strict=True)):
        sizes = {LISTED: HEAVY} | dict.fromkeys(names, WIDE)
        domain = Domain((LISTED,), names, sizes)
        cliques = ((LISTED,), *((a,) for a in names), *((LISTED, a) for a in names), names)
        terms = Terms(domain, cliques)
        widths = np.repeat([0.8 if len(c) == 1 else 0.4 for c in cliques], [s.stop - s.start for s in terms.slices])
        truth = terms.table(widths * rng.standard_normal(terms.size), total)
        noisy = terms.answers(truth) + deviation * rng.standard_normal(terms.size)
        evidence = Evidence.none(terms.size).add(slice(0, terms.size), noisy, deviation**2)
        noisy_total = total + deviation * float(rng.standard_normal())
        fit = learn(start(terms, noisy_total), evidence)
        members = ensemble(fit, evidence, total_deviation=deviation, seed=100 + i)
        known = (frozenset({LISTED, *names}),)
        tables.append(Model(domain, noisy_total, terms, fit.potentials, members=members, known=known))
        exact.append(truth)
    return Joined(FOUR, tuple(tables), LISTED), exact


FOUR = Domain(("w", "x"), ("y", "z"), dict.fromkeys("wxyz", WIDE))


FOUR_SCHEMA = dj.Schema(
    (dj.Table(name="r", attributes=("key", "w", "x")), dj.Table(name="s", attributes=("key", "y", "z"))),
    (dj.Attribute(name="key", key=True), *(dj.Attribute(name=a, range=(0, WIDE - 1)) for a in "wxyz")),
)


FOUR_WORKLOAD = (
    dj.Workload.marginals(FOUR_SCHEMA, [1, 2])
    + dj.Workload.prefixes(FOUR_SCHEMA, ["y"], by=["w"])
    + dj.Workload.products(
        FOUR_SCHEMA,
        {
            "r": (("w", "x"), np.random.default_rng(1).uniform(-1, 1, (20, WIDE, WIDE))),
            "s": (("z",), np.random.default_rng(2).uniform(0, 1, (20, WIDE))),
        },
    )
)


def test_the_bars_of_a_join_cover() -> None:
    """Over many seeded pairs of noisy tables, 90 % bars hold about 90 % of the exact answers, and are not too long."""
    inside: dict[str, list[np.ndarray]] = {"marginals": [], "others": []}
    ratio = []
    for seed in range(16):
        joined, exact = simulated(seed, (3000.0, 1200.0), 12.0)
        truth = sum(np.outer(one, two).reshape(16, 16) for one, two in zip(*exact, strict=True))
        assert isinstance(truth, np.ndarray)
        for group in FOUR_WORKLOAD.groups:
            off = np.abs(joined.answer(group) - answers_on(FOUR, truth, group))
            bars = joined.error(group, 0.9)
            inside["marginals" if group.is_marginal else "others"].append(off <= bars)
            ratio.append(bars.mean() / off.mean())
    for kind, found in inside.items():
        assert 0.8 < np.concatenate(found).mean() < 0.98, kind
    assert np.mean(ratio) < 4.0


# -- unions and releases ----------------------------------------------------------------------------


def make_light(seed: int = 3) -> Model:
    """A model of all cells, for the values that are not listed."""
    rng = np.random.default_rng(seed)
    terms = Terms(FOUR, tuple(itertools.combinations("wxyz", 2)))
    members = tuple((rng.standard_normal(terms.size), 500.0 + m) for m in range(4))
    known = (frozenset("wxyz"),)
    return Model(FOUR, 500.0, terms, rng.standard_normal(terms.size), members=members, known=known)


def make_release(model: Model | Union | Joined, schema: dj.Schema, workload: dj.Workload) -> dj.Release:
    facts = {"join_size": max(1, round(model.total))}
    budget = dj.Budget(epsilon=1.0, delta=1e-6)
    return dj.Release(schema, workload, budget, "two_table", "tight", model, Ledger("zero-concentrated"), facts)


def test_a_union_adds_joins_and_models() -> None:
    """Tables, totals, answers and bars; a union of one join is that join."""
    heavy, light = simulated(0, (300.0, 120.0), 3.0)[0], make_light()
    union = Union((light, heavy), ("light", "heavy"))
    assert np.allclose(union.table, light.table + heavy.table)
    assert union.total == pytest.approx(union.table.sum())
    assert union.knows(tuple("wxyz"))
    alone = Union((heavy,), ("heavy",))
    assert np.allclose(alone.table, heavy.table)
    for group in FOUR_WORKLOAD.groups:
        assert np.allclose(union.answer(group), light.answer(group) + heavy.answer(group))
        assert np.allclose(union.answer(group), answers_on(FOUR, union.table, group))
        assert (alone.answer(group) == heavy.answer(group)).all()
        assert np.allclose(alone.error(group, 0.9), heavy.error(group, 0.9))
        (ours,), (theirs,) = light.spreads(group), heavy.spreads(group)
        assert ours is not None
        assert theirs is not None
        squares = ours.var(axis=0) + theirs.var(axis=0) + (ours.mean(axis=0) + theirs.mean(axis=0)) ** 2
        assert np.allclose(union.width(group), np.sqrt(squares))
        assert np.isfinite(union.error(group, 0.9)).all()
    other = Domain(("w",), ("x", "y", "z"), FOUR.sizes)
    with pytest.raises(ValueError, match="split alike"):
        Union((light, dataclasses.replace(heavy, domain=other)), ("light", "heavy"))


@pytest.mark.parametrize("name", ["two tables", "two codes", "chain", "unlisted", "no code"])
def test_a_join_is_saved_and_loaded(name: str, tmp_path: Path) -> None:
    """Answers, bars and rows come back to the bit, with the key's codes and models of every kind."""
    shape = SHAPES[name]
    joined = make_joined(shape)
    first, *rest = joined.tables
    first = dataclasses.replace(first, floor=0.25, deviations=(2.0,))
    *rest, last = rest
    last = dataclasses.replace(last, plain=last.table, terms=None, potentials=None, members=(), unsure=3.0)
    joined = dataclasses.replace(joined, tables=(first, *rest, last))
    workload = dj.Workload(shape.schema, tuple(groups_of(shape)))
    release = make_release(joined, shape.schema, workload)
    again = dj.load(release.save(tmp_path / "out"))
    assert isinstance(again.model, Joined)
    assert again.model.listed == joined.listed
    assert {a: c.tolist() for a, c in again.model.codes.items()} == {a: c.tolist() for a, c in joined.codes.items()}
    assert [t.known for t in again.model.tables] == [t.known for t in joined.tables]
    assert (again.answer() == release.answer()).all()
    assert (again.error() == release.error()).all()
    assert again.manifest() == release.manifest()
    assert again.manifest()["format"] == 2
    assert again.synthetic.num_rows == release.join_size
    assert again.sample(50, seed=3).equals(release.sample(50, seed=3))


def test_a_join_in_a_union_is_saved_and_loaded(tmp_path: Path) -> None:
    """To the bit; a table's model may have product queries, one of them of the listed value."""
    heavy = simulated(1, (300.0, 120.0), 3.0)[0]
    one, two = heavy.tables
    lone = dj.Schema(
        (dj.Table(name="r", attributes=(LISTED, "w")),),
        (dj.Attribute(name=LISTED, range=(0, HEAVY - 1)), dj.Attribute(name="w", range=(0, WIDE - 1))),
    )
    weights = np.random.default_rng(0).uniform(-1, 1, (3, HEAVY))
    terms = Terms(one.domain, ((LISTED, "w"), ("w", "x")), (product_group(lone, {"r": ((LISTED,), weights)}),))
    potentials = np.random.default_rng(1).standard_normal(terms.size)
    asked = dataclasses.replace(one, terms=terms, potentials=potentials, members=((0.9 * potentials, 310.0),))
    union = Union((make_light(), heavy, dataclasses.replace(heavy, tables=(asked, two))), ("light", "heavy", "heavier"))
    release = make_release(union, FOUR_SCHEMA, FOUR_WORKLOAD)
    folder = release.save(tmp_path / "out")
    again = dj.load(folder)
    assert isinstance(again.model, Union)
    assert [type(p) for p in again.model.parts] == [Model, Joined, Joined]
    assert (again.answer() == release.answer()).all()
    assert (again.error() == release.error()).all()
    assert (again.model.table == union.table).all()
    assert again.manifest() == release.manifest()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == 2
    table = manifest["model"]["parts"][1]["tables"][0]
    assert dict(zip(table["left"] + table["right"], table["sizes"], strict=True)) == dict(one.domain.sizes)
    table["sizes"][0] += 1
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(dj.ReleaseError, match="damaged"):
        dj.load(folder)


def test_tables_must_fit_together() -> None:
    """No table, sizes that differ, a listed attribute nobody has, and codes that are wrong are refused."""
    good = make_joined(SHAPES["codes"])
    one = good.tables[0]
    other = Domain((LISTED,), ("c",), {LISTED: 3, "c": SIZES["c"]})
    short = Model(other, 1.0, plain=np.full((3, 4), 1 / 12))
    codes = good.codes["k"]
    wrong: list[Mapping[str, Any]] = [
        {"tables": ()},
        {"tables": (one, short)},
        {"tables": (one,)},
        {"listed": "elsewhere"},
        {"listed": "a"},
        {"listed": None},
        {"codes": {}},
        {"codes": {"k": codes, "z": codes}},
        {"codes": {"k": codes, "a": codes}},
        {"codes": {"k": codes[:3]}},
        {"codes": {"k": codes + 1}},
        {"codes": {"k": codes - 2}},
        {"codes": {"k": codes.astype(float)}},
        {"domain": Domain(good.domain.left, good.domain.right, {**good.domain.sizes, "a": 7})},
    ]
    for change in wrong:
        with pytest.raises(ValueError, match=r"must"):
            dataclasses.replace(good, **change)
