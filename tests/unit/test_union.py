"""Sums of models and cells known to be empty: answers add up, bars cover, no mass leaves the support."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.model.ensemble import ensemble
from dpjoin.model.fit import Evidence, Fit, learn, maximise, relearn_prior, start
from dpjoin.model.model import Model
from dpjoin.model.terms import Domain, Terms, support_of
from dpjoin.model.union import Union
from dpjoin.privacy.ledger import Ledger
from support.naive import table_of
from support.union import CLIQUES, CORNER, DOMAIN, PRODUCTS, SCHEMA, SIZES, make_truth

PAIRS = dj.Workload.marginals(SCHEMA, 2)


WORKLOAD = (
    dj.Workload.marginals(SCHEMA, 1)
    + PAIRS
    + dj.Workload.prefixes(SCHEMA, ["c"], by=["a"])
    + dj.Workload.ranges(SCHEMA, ["c"])
    + dj.Workload.sums(SCHEMA, ["c"], by=["d"])
    + dj.Workload(SCHEMA, (PRODUCTS,))
)


KNOWN = tuple(frozenset(g.scope) for g in WORKLOAD.groups)


PARTS = ((4000.0, False), (1500.0, True), (600.0, False))
"""Totals, and whether only the corner can hold something, of the parts in the simulation."""


def measured(terms: Terms, truth: np.ndarray, deviation: float, rng: np.random.Generator) -> Evidence:
    noisy = terms.answers(truth) + deviation * rng.standard_normal(terms.size)
    return Evidence.none(terms.size).add(slice(0, terms.size), noisy, deviation**2)


@functools.cache
def make_part(
    seed: int, total: float = 4000.0, *, corner: bool = False, products: bool = False
) -> tuple[Model, np.ndarray]:
    """A model fitted to noisy pairs of a random join, and that join."""
    rng = np.random.default_rng([seed, 1])
    deviation = 25.0
    support = CORNER if corner else None
    truth = make_truth(rng, total, support)
    terms = Terms(DOMAIN, CLIQUES, (PRODUCTS,) if products else (), support)
    evidence = measured(terms, truth, deviation, rng)
    noisy_total = total + deviation * float(rng.standard_normal())
    fit = learn(start(terms, noisy_total), evidence)
    model = Model(
        DOMAIN,
        noisy_total,
        terms=terms,
        potentials=fit.potentials,
        members=ensemble(fit, evidence, total_deviation=deviation, seed=seed),
        known=KNOWN,
        deviations=(deviation,) * len(CLIQUES),
    )
    return model, truth


def make_plain(total: float = 90.0, floor: float = 90.0) -> Model:
    """A part of which only the size is known."""
    return Model(DOMAIN, total, plain=np.full((DOMAIN.rows, DOMAIN.columns), total / 120), floor=floor, known=KNOWN)


def make_release(model: Model | Union) -> dj.Release:
    budget = dj.Budget(epsilon=1.0, delta=1e-6)
    facts = {"join_size": max(1, round(model.total))}
    ledger = Ledger("zero-concentrated")
    return dj.Release(SCHEMA, WORKLOAD, budget, "two_table", "tight", model, ledger, facts)


@pytest.fixture(scope="module")
def union() -> Union:
    """Fitted parts with and without a support, one with product queries, and one that is a guess."""
    parts = (make_part(1)[0], make_part(2, corner=True)[0], make_part(3, products=True)[0], make_plain())
    return Union(parts, ("low", "middle", "high", "rest"))


# -- sums of models ---------------------------------------------------------------------------------


def test_a_union_is_the_sum_of_its_parts(union: Union) -> None:
    """Tables, totals and the answers to every kind of group add up."""
    assert np.allclose(union.table, sum(p.table for p in union.parts))
    assert union.total == pytest.approx(union.table.sum())
    for group in WORKLOAD.groups:
        assert np.allclose(union.answer(group), sum(p.answer(group) for p in union.parts))


def test_a_union_of_one_is_that_model() -> None:
    """Answers are equal to the bit, bars but for rounding."""
    for part in (make_part(2, corner=True)[0], make_part(3, products=True)[0], make_plain()):
        alone = Union((part,), ("all",))
        for group in WORKLOAD.groups:
            assert (alone.answer(group) == part.answer(group)).all()
            assert np.allclose(alone.error(group, 0.9), part.error(group, 0.9))


def test_bars_of_independent_parts_add_up_in_squares() -> None:
    """The bar of a sum is the root of the sum of squares, about; equal bars are not doubled."""
    parts = [make_part(seed)[0] for seed in (1, 4, 5)]
    union = Union(tuple(parts), ("x", "y", "z"))
    ratios = []
    for group in PAIRS.groups:
        single = np.array([part.error(group, 0.9) for part in parts])
        ratios.append(union.error(group, 0.9) / np.sqrt((single**2).sum(axis=0)))
    assert 0.85 < np.median(np.concatenate(ratios)) < 1.2
    assert np.concatenate(ratios).max() < 1.75


def test_floors_add_up_as_they_are(union: Union) -> None:
    """A part without members lengthens every bar by its floor, times the largest weight."""
    fitted = Union(union.parts[:3], union.names[:3])
    for group in WORKLOAD.groups:
        if not group.is_marginal:  # the rule for small cells looks at the size, which the rest changes
            longer = union.error(group, 0.9) - fitted.error(group, 0.9)
            # Pooling goes by size, which the rest changes a little.
            assert np.median(longer) == pytest.approx(90.0 * group.max_abs * float(group.unit), rel=0.2)
    guesses = Union((make_plain(floor=5.0), make_plain(floor=7.0)), ("x", "y"))
    assert (guesses.error(PAIRS.groups[0], 0.9) == 12.0).all()


def test_the_bars_of_a_union_cover() -> None:
    """Over many seeded joins, 90 % bars hold about 90 % of the exact answers and are no longer than they need be."""
    inside, ratio = [], []
    for seed in range(20):
        made = [make_part(100 + 10 * seed + i, total, corner=c) for i, (total, c) in enumerate(PARTS)]
        union = Union(tuple(m for m, _ in made), ("x", "y", "z"))
        truth = sum(t for _, t in made)
        for group in WORKLOAD.groups:
            exact = group.apply(DOMAIN.marginal(truth, group.scope)) * float(group.unit)
            off, bars = np.abs(union.answer(group) - exact), union.error(group, 0.9)
            inside.append(off <= bars + 1e-9)
            if group.is_marginal:
                ratio.append(bars.mean() / off.mean())
    assert 0.87 < np.concatenate(inside).mean() < 0.99
    assert np.mean(ratio) < 3.5


def test_what_is_known_is_known_in_every_part() -> None:
    """A scope has bars where each part has them; elsewhere they are nan."""
    whole = make_plain()
    some = dataclasses.replace(whole, known=(frozenset("abc"), frozenset("cd")))
    other = dataclasses.replace(whole, known=(frozenset("bcd"), frozenset("a")))
    union = Union((some, other), ("x", "y"))
    assert union.knows(("b", "c"))
    assert union.knows(("c", "d"))
    assert not union.knows(("b", "c", "d"))
    bars = {g.scope: union.error(g, 0.9) for g in PAIRS.groups}
    assert np.isfinite(bars["b", "c"]).all()
    assert np.isnan(bars["a", "b"]).all()
    assert not Union((some, dataclasses.replace(whole, known=())), ("x", "y")).knows(("a",))


def test_parts_must_fit_together() -> None:
    """No part, a missing or repeated name, other sizes or another split are refused."""
    part = make_plain()
    other = Domain(DOMAIN.right, DOMAIN.left, SIZES)
    turned = Model(other, 1.0, plain=np.full((other.rows, other.columns), 1 / 120))
    for parts, names in (((), ()), ((part,), ()), ((part, part), ("x", "x")), ((part, turned), ("x", "y"))):
        with pytest.raises(ValueError, match=r"a union must|split alike"):
            Union(parts, names)


def test_wrong_supports_are_refused() -> None:
    """A wrong shape, an unknown or repeated attribute, something else than booleans, and no cell at all."""
    for attributes, allowed in (
        (("a",), np.ones(3, dtype=bool)),
        (("e",), np.ones(3, dtype=bool)),
        (("a", "a"), np.ones((4, 4), dtype=bool)),
        (("a",), np.ones(4)),
    ):
        with pytest.raises(ValueError, match=r"allowed cells|attributes of a support"):
            support_of(DOMAIN, attributes, allowed)  # type: ignore[arg-type]
    for support in (np.zeros_like(CORNER), CORNER.T, CORNER.astype(float)):
        with pytest.raises(ValueError, match="a support must"):
            Terms(DOMAIN, CLIQUES, (), support)


@pytest.mark.parametrize("products", [False, True])
def test_no_mass_leaves_the_support(products: bool) -> None:
    """Not at the start, not in a fit, not with prior widths learnt, not in a member; and nothing is nan."""
    rng = np.random.default_rng(0)
    terms = Terms(DOMAIN, CLIQUES, (PRODUCTS,) if products else (), CORNER)
    # The noise is large, and says that there is something where nothing can be.
    evidence = measured(terms, make_truth(rng, 500.0), 60.0, rng)
    first = start(terms, 500.0)
    assert np.allclose(table_of(first)[CORNER], 500.0 / CORNER.sum())
    fits: list[Fit[Terms]] = [first, maximise(first, evidence, steps=30)]
    fits += [relearn_prior(fits[-1], evidence), learn(first, evidence)]
    members = ensemble(fits[-1], evidence, total_deviation=10.0)
    fits += [dataclasses.replace(fits[-1], potentials=p, total=t) for p, t in members]
    # However large the potentials of empty cells are, they count for nothing.
    empty = np.array(terms.answers(CORNER.astype(float)) == 0)
    assert empty.any()
    fits.append(dataclasses.replace(first, potentials=np.where(empty, 2000.0, 0.0)))
    for fit in fits:
        assert (table_of(fit)[~CORNER] == 0).all()
        assert table_of(fit).sum() == pytest.approx(fit.total)
        assert np.isfinite(table_of(fit)).all()
        assert np.isfinite(fit.potentials).all()
        assert np.isfinite(fit.tau).all()
        assert np.isfinite(fit.curvature).all()
        assert np.isfinite(fit.curvature).all()
    assert (fits[3].curvature[empty] == 0).all()


def test_the_whole_domain_as_support_changes_nothing() -> None:
    """To the bit."""
    everything = support_of(DOMAIN, (), np.array(True))
    found = []
    for support in (None, everything):
        terms = Terms(DOMAIN, CLIQUES, (), support)
        evidence = measured(terms, make_truth(np.random.default_rng(0), 500.0), 10.0, np.random.default_rng(1))
        found.append(table_of(learn(start(terms, 500.0), evidence)))
    assert (found[0] == found[1]).all()


@pytest.mark.parametrize("products", [False, True])
def test_the_gradient_with_a_support_is_the_slope(products: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the optimiser is told agrees with finite differences."""
    rng = np.random.default_rng(2)
    terms = Terms(DOMAIN, CLIQUES, (PRODUCTS,) if products else (), CORNER)
    evidence = measured(terms, make_truth(rng, 500.0, CORNER), 20.0, rng)
    seen: list[Callable[[np.ndarray], tuple[float, np.ndarray]]] = []

    def spy(objective: Any, at: np.ndarray, **_: Any) -> np.ndarray:
        seen.append(objective)
        return at

    monkeypatch.setattr("dpjoin.model.fit.minimise", spy)
    maximise(start(terms, 500.0), evidence, steps=1, prior_mean=0.1 * rng.standard_normal(terms.size))
    at = 0.5 * rng.standard_normal(terms.size)
    _, gradient = seen[0](at)
    step = 1e-5
    slopes = [(seen[0](at + step * e)[0] - seen[0](at - step * e)[0]) / (2 * step) for e in np.eye(terms.size)]
    assert np.allclose(gradient, slopes, rtol=1e-4, atol=1e-4)


def test_cells_known_to_be_empty_have_no_bar() -> None:
    """Where no part can hold anything the answer is zero for certain, and the cells beside keep their bars."""
    guess = Model(DOMAIN, 50.0, terms=Terms(DOMAIN, (), (), CORNER), potentials=np.zeros(0), floor=50.0, known=KNOWN)
    assert np.allclose(guess.table[CORNER], 50.0 / CORNER.sum())
    fitted = make_part(2, corner=True)[0]
    group = next(g for g in PAIRS.groups if g.scope == ("a", "c"))
    empty = DOMAIN.marginal(CORNER.astype(float), group.scope).reshape(-1) == 0
    assert empty.any()
    for model in (guess, fitted, Union((guess, fitted), ("x", "y"))):
        assert (model.answer(group)[empty] == 0).all()
        assert (model.error(group, 0.9)[empty] == 0).all()
        assert (model.error(group, 0.9)[~empty] > 5).all()
    # One cell of a pair is measured as it is; one of its attributes is a sum of those that may hold something.
    assert (fitted.noise(group)[~empty] == 25.0).all()
    assert (fitted.noise(group)[empty] == 0.0).all()
    wide = dataclasses.replace(fitted, terms=Terms(DOMAIN, (("a", "c"),), (), CORNER), deviations=(25.0,))
    single = dj.Workload.marginals(SCHEMA, [("c",)]).groups[0]
    assert np.allclose(wide.noise(single) ** 2, 25.0**2 * np.array([4, 3, 2, 1, 0]))
    # So it is where the pair was not measured at all, of which nothing is known.
    assert dataclasses.replace(wide, deviations=(np.inf,)).noise(single).tolist() == [np.inf] * 4 + [0.0]


# -- releases ---------------------------------------------------------------------------------------


def test_a_union_is_saved_and_loaded(union: Union, tmp_path: Path) -> None:
    """Answers and bars come back to the bit, with names, supports and plain parts; rows and SQL work."""
    release = make_release(union)
    again = dj.load(release.save(tmp_path / "out"))
    assert isinstance(again.model, Union)
    assert again.model.names == union.names
    assert [p.known for p in again.model.parts] == [p.known for p in union.parts]
    assert (again.answer() == release.answer()).all()
    assert (again.error() == release.error()).all()
    assert np.isfinite(again.error()).all()
    assert [p.support is None for p in again.model.parts] == [True, False, True, True]
    assert again.manifest() == release.manifest()
    assert again.synthetic.num_rows == release.join_size
    assert again.sample(50, seed=3).equals(release.sample(50, seed=3))
    assert again.sql("SELECT count(*) AS n FROM joined").to_pylist() == [{"n": release.join_size}]
    assert np.load(tmp_path / "out" / "model.npz")["part1.support"].nbytes == DOMAIN.cells // 8


def test_a_model_with_a_support_is_saved_and_loaded(tmp_path: Path) -> None:
    """Answers and bars come back to the bit; no synthetic row lies in a cell known to be empty."""
    release = make_release(make_part(2, corner=True)[0])
    again = dj.load(release.save(tmp_path / "out"))
    assert (again.answer() == release.answer()).all()
    assert (again.error() == release.error()).all()
    assert again.sql("SELECT count(*) AS n FROM joined WHERE a + c >= 4").to_pylist() == [{"n": 0}]


def test_a_reader_is_told_what_it_cannot_read(union: Union, tmp_path: Path) -> None:
    """A single model keeps format 1; unions and supports have format 2, and other formats are refused."""
    formats = [make_part(1)[0], make_plain(), union, make_part(2, corner=True)[0]]
    assert [make_release(model).manifest()["format"] for model in formats] == [1, 1, 2, 2]
    folder = make_release(union).save(tmp_path / "out")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format": 4}))
    with pytest.raises(dj.ReleaseError, match=r"format \(4\) must be 1, 2 or 3"):
        dj.load(folder)
    manifest["model"]["parts"].append(manifest["model"]["parts"][0])
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(dj.ReleaseError, match="damaged"):
        dj.load(folder)
