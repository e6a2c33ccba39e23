"""The model: matrix products equal plain sums, the fit recovers what it is told, bars and rows behave."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpjoin import constants
from dpjoin.model import ensemble, fit
from dpjoin.model import terms as term_module
from dpjoin.model.fit import (
    FEW_CELLS,
    Evidence,
    Fit,
    clear_misfit,
    learn,
    misfit,
    start,
    worst_misfit,
)
from dpjoin.model.lbfgs import Objective, minimise
from dpjoin.model.terms import Domain, FloatArray, Terms
from dpjoin.released.rows import drawn_counts
from dpjoin.spec.workload import product_group
from support.model import _domain, shapes_of_keys
from support.naive import cell_weights, table_of
from support.strategies import split_schema


def test_product_terms_equal_plain_sums() -> None:
    """Product queries through left and right weights equal the sum of weight times table."""
    rng = np.random.default_rng(3)
    schema = split_schema([3, 2, 4, 2])
    weights = {"r": (("x1", "x0"), rng.uniform(-1, 1, (7, 2, 3))), "s": (("x3",), rng.uniform(0, 1, (7, 2)))}
    group = product_group(schema, weights)
    for left in ((), ("x0", "x1"), ("x0", "x1", "x2", "x3")):
        sizes = {"x0": 3, "x1": 2, "x2": 4, "x3": 2}
        domain = Domain(left, tuple(a for a in sizes if a not in left), sizes)
        terms = Terms(domain, (), (group,))
        table = rng.random((domain.rows, domain.columns))
        largest = group.max_abs * float(group.unit)
        plain = [float((cell_weights(domain, group, i) * table).sum()) * largest for i in range(7)]
        assert np.allclose(terms.answers(table), plain)
        assert np.allclose(group.apply(domain.marginal(table, group.scope)) * float(group.unit), plain)
        potentials = rng.standard_normal(7)
        pairing = float((terms.logits(potentials, np.empty_like(table)) * table).sum())
        assert math.isclose(pairing, float(np.dot(plain, potentials)), abs_tol=1e-9)


def test_the_fit_recovers_exact_marginals() -> None:
    """With next to no noise the fitted model has the marginals it was told."""
    rng = np.random.default_rng(0)
    domain = _domain([3, 4, 2])
    terms = Terms(domain, (("x0",), ("x1",), ("x2",), ("x0", "x1"), ("x1", "x2")))
    truth = rng.dirichlet(np.ones(24)).reshape(domain.rows, domain.columns) * 1e6
    evidence = Evidence.none(terms.size)
    exact = terms.answers(truth)
    for where in terms.slices:
        evidence = evidence.add(where, exact[where], 1.0)
    fit = learn(start(terms, 1e6), evidence, steps=400)
    assert np.abs(terms.answers(table_of(fit)) - exact).max() < 20


def test_evidence_is_weighted_by_precision() -> None:
    """Two measurements of one number combine to the precision-weighted mean."""
    evidence = Evidence.none(1).add(slice(0, 1), np.array([10.0]), 4.0).add(slice(0, 1), np.array([20.0]), 1.0)
    assert evidence.noisy[0] == pytest.approx(18.0)
    assert evidence.precision[0] == pytest.approx(1.25)


def test_drawn_counts_add_up() -> None:
    """Independent draws give the number of rows asked for."""
    assert drawn_counts(np.array([1.0, 2.0, 0.0]), 1000, np.random.default_rng(0)).sum() == 1000


@pytest.mark.parametrize("seed", range(4))
def test_the_minimum_is_that_of_scipy(seed: int) -> None:
    """A logistic regression with badly scaled columns: the same value."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    design = rng.standard_normal((200, 60)) * np.exp(rng.standard_normal(60))
    shift = 3.0 * rng.standard_normal(200)

    def objective(x: np.ndarray) -> tuple[float, np.ndarray]:
        z = design @ x - shift
        return float(np.logaddexp(0.0, z).sum() + 0.5 * x @ x), design.T @ np.exp(-np.logaddexp(0.0, -z)) + x

    theirs = minimize(objective, np.zeros(60), jac=True, method="L-BFGS-B", options={"ftol": 1e-12, "gtol": 1e-6})
    ours = minimise(objective, np.zeros(60), steps=500, remembered=20, tolerance=1e-9)
    assert objective(ours)[0] == pytest.approx(theirs.fun, rel=1e-5)
    assert np.allclose(ours, theirs.x, atol=0.1)
    few = minimise(objective, np.zeros(60), steps=3, remembered=20)
    assert objective(ours)[0] < objective(few)[0] < objective(np.zeros(60))[0]


def test_a_search_survives_cliffs_and_flats() -> None:
    """Values that are not finite shorten the step; at a minimum nothing moves."""

    def cliff(x: np.ndarray) -> tuple[float, np.ndarray]:
        return (
            (float(x @ x - np.log(x).sum()), 2.0 * x - 1.0 / x) if (x > 0).all() else (np.inf, np.full_like(x, np.nan))
        )

    found = minimise(cliff, np.array([40.0, 1e-3]), steps=200, remembered=5, tolerance=1e-14)
    assert np.allclose(found, np.sqrt(0.5), atol=1e-2)
    assert np.array_equal(minimise(cliff, found, steps=10, remembered=5), found)


def test_single_precision_is_enough_for_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The means of a table of cells, and how they move, to about 1e-6."""
    names = {f"x{i}": 8 for i in range(5)}
    terms = Terms(Domain.split(names), tuple(itertools.combinations(names, 2)))
    rng = np.random.default_rng(0)
    potentials, direction = rng.standard_normal(terms.size), rng.standard_normal(terms.size)
    assert terms.domain.cells > term_module.SINGLE_CELLS
    single = term_module.DenseOracle(terms)
    monkeypatch.setattr(term_module, "SINGLE_CELLS", terms.domain.cells)
    double = term_module.DenseOracle(terms)
    assert np.allclose(single.means(potentials), double.means(potentials), rtol=1e-4, atol=1e-6)
    assert np.allclose(single.covariances(direction), double.covariances(direction), rtol=1e-4, atol=1e-5)
    table = terms.table(potentials, 1.0)
    assert np.allclose(double.means(potentials), terms.answers(table), rtol=1e-12)
    tiny = 1e-6 * direction
    change = (terms.answers(terms.table(potentials + tiny, 1.0)) - terms.answers(table)) / 1e-6
    assert np.allclose(double.covariances(direction), change, atol=1e-5)


def test_a_small_marginal_beside_large_ones_is_fitted_as_well() -> None:
    """Of 270,000 cells, nearly all are about single values of a skewed key: a loose search was content with those."""
    rng = np.random.default_rng(2)
    sizes = {"k": 3_000, "a": 9, "c": 10}
    terms = Terms(Domain.split(sizes), (("k", "a"), ("k", "c"), ("a", "c")))
    assert terms.domain.cells > FEW_CELLS
    popular = 1 / np.arange(1.0, 3_001.0)
    key = rng.choice(3_000, 30_000, p=popular / popular.sum())
    a = np.where(rng.random(30_000) < 0.3, key % 9, rng.integers(0, 9, 30_000))
    rows = {"k": key, "a": a, "c": np.where(rng.random(30_000) < 0.5, a, rng.integers(0, 10, 30_000))}
    evidence = Evidence.none(terms.size)
    for clique, where in zip(terms.cliques, terms.slices, strict=True):
        shape = [sizes[x] for x in clique]
        exact = np.bincount(np.ravel_multi_index([rows[x] for x in clique], shape), minlength=math.prod(shape))
        evidence = evidence.add(where, exact + 8.0 * rng.standard_normal(len(exact)), 64.0)
    found = learn(start(terms, 30_000.0), evidence)
    assert worst_misfit(found, evidence) < constants.FAR


def test_a_loose_search_does_not_leave_what_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten values in a sea of noise: all terms together gain little from them, and they are nearly all rows."""
    rng, keys, values = np.random.default_rng(3), 20_000, 8
    table = np.full((keys, values), 0.05)
    table[:10] = 1000 * rng.dirichlet(np.ones(values), 10)
    terms = Terms(Domain(("k",), ("v",), {"k": keys, "v": values}), (("k",), ("v",), ("k", "v")))
    evidence = Evidence.none(terms.size)
    evidence = evidence.add(terms.slices[2], table.reshape(-1) + 1.5 * rng.standard_normal(table.size), 2.25)
    begun = start(terms, float(table.sum()))
    assert terms.domain.cells > fit.FEW_CELLS
    monkeypatch.setattr(fit, "near_cells", lambda begun, _: begun)
    close = learn(begun, evidence)
    assert clear_misfit(close, evidence) < constants.FAR
    monkeypatch.setattr(fit, "clear_misfit", lambda *_: 0.0)
    loose = learn(begun, evidence)
    assert clear_misfit(loose, evidence) > 3 * constants.FAR
    off = [np.abs(table_of(found).reshape(keys, values)[:10] - table[:10]).sum() for found in (close, loose)]
    assert off[0] < 0.5 * off[1]


def test_a_fit_that_has_gone_astray_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a search had ended where one cell has all of the probability, and no slope leads out."""
    terms = Terms(Domain.split({"a": 4, "c": 3}), (("a",), ("c",), ("a", "c")))
    counts = np.arange(1.0, 13.0) * 50
    evidence = Evidence.none(terms.size).add(terms.slices[2], counts, 25.0)
    first = start(terms, float(counts.sum()))
    astray = start(terms, float(counts.sum()))
    astray.potentials[-1] = 800.0
    assert misfit(astray, evidence) > constants.STUCK
    search, ends = fit._alternate, iter([astray])
    monkeypatch.setattr(fit, "_alternate", lambda *a, **more: next(ends, None) or search(*a, **more))
    found = learn(first, evidence)
    assert misfit(found, evidence) < 1.0
    assert table_of(found).reshape(-1) == pytest.approx(counts, abs=10.0)
    assert found.tau.tolist() != first.tau.tolist(), "priors are learnt in the second search as in the first"


def test_interactions_with_rare_values_are_seen_to_be_wider() -> None:
    """Where the fit pulls too hard, it misses more than noise explains; other term groups keep their widths."""
    table, found, evidence = shapes_of_keys(0)
    wider = fit.widths_by_value(found, evidence) / found.tau_each
    by_value = wider[found.slices[2]].reshape(table.shape)
    assert (by_value == by_value[0]).all(), "a key has too few values to tell"
    assert by_value[0, -1] > 2 > 1.5 > by_value[0, 1] >= 1
    assert (wider[: found.slices[2].start] == 1).all()
    narrow = replace(found, tau=0.02 * found.tau)
    assert (fit.widths_by_value(narrow, evidence) / narrow.tau_each).max() == pytest.approx(constants.WIDEST_PRIOR)
    free = replace(found, free=(2,))
    assert np.array_equal(fit.widths_by_value(free, evidence), free.tau_each)


def _noise_alone(keys: int, sigma: float) -> tuple[Fit, Evidence]:
    """Few rows by key and two attributes, measured with noise that drowns every cell; its parts were not measured."""
    rng = np.random.default_rng(4)
    sizes = {"k": keys, "a": 5, "b": 4}
    table = rng.multinomial(3 * keys, np.full(20 * keys, 1 / (20 * keys))).reshape(keys, 5, 4).astype(float)
    cliques = (("k",), ("a",), ("b",), ("k", "a", "b"), ("b", "k"))
    terms = Terms(Domain(("k",), ("a", "b"), sizes), cliques)
    evidence = Evidence.none(terms.size)
    for clique, where in zip(cliques[:4], terms.slices[:4], strict=True):
        exact = table.sum(axis=tuple(i for i, a in enumerate("kab") if a not in clique)).reshape(-1)
        evidence = evidence.add(where, exact + sigma * rng.standard_normal(exact.size), sigma**2)
    return start(terms, float(table.sum())), evidence


def test_noise_alone_is_not_seen_as_wide_interactions() -> None:
    """Every key misses more or less of its noisy cells; that tells nothing where noise drowns them."""
    begun, evidence = _noise_alone(400, 12.0)
    found = learn(begun, evidence)
    wider = fit.widths_by_value(found, evidence) / found.tau_each
    assert (wider**2).mean() < 1.2
    assert wider.max() <= constants.WIDEST_PRIOR


def test_what_two_attributes_explain_counts_once() -> None:
    """All interactions are far wider than the prior: values of either attribute show it, and widths do not multiply."""
    rng, sigma = np.random.default_rng(5), 2.0
    table = 100 * np.exp(rng.standard_normal((30, 40)))
    terms = Terms(Domain(("k",), ("v",), {"k": 30, "v": 40}), (("k",), ("v",), ("k", "v")))
    noisy = table.reshape(-1) + sigma * rng.standard_normal(table.size)
    evidence = Evidence.none(terms.size).add(terms.slices[2], noisy, sigma**2)
    tight = replace(start(terms, float(table.sum())), tau=np.array([1.0, 1.0, 0.01]))
    found = fit.maximise(tight, evidence, steps=60)
    assert (fit.widths_by_value(found, evidence) / found.tau_each).max() == pytest.approx(constants.WIDEST_PRIOR)


def test_marginals_that_were_not_measured_have_priors_of_what_wider_ones_tell() -> None:
    """Else no potential of theirs seems determined, and their prior would grow without end."""
    begun, evidence = _noise_alone(400, 12.0)
    where, wide = begun.terms.slices[4], begun.terms.slices[3]
    told = fit.with_sums(begun, evidence)
    assert told.noisy[where] == pytest.approx(evidence.noisy[wide].reshape(400, 5, 4).sum(axis=1).T.reshape(-1))
    assert 1 / told.precision[where] == pytest.approx(5 * 12.0**2)
    assert learn(begun, evidence).tau[4] < 1.0


def test_no_member_goes_where_measurements_exclude_it() -> None:
    """A prior far wider than the data allow draws members out where one cell has all rows, and no slope leads back."""
    begun, evidence = _noise_alone(400, 12.0)
    found = learn(begun, evidence)
    wide = replace(found, tau=np.where(found.tau > 0, 4.0, found.tau), tails=None)
    members = ensemble.ensemble(wide, evidence, total_deviation=1.0)
    assert len(members) == ensemble.MEMBERS
    for potentials, _ in members:
        assert fit.moves_apart(wide, replace(wide, potentials=potentials), evidence) <= constants.ASTRAY


# Priors with tails ---------------------------------------------------------------------------------------------------


def corner(noise: float, seed: int = 0) -> tuple[fit.Fit[Terms], fit.Evidence, np.ndarray]:
    """A pair that is independent but for one cell, which is empty; all marginals measured with this noise."""
    exact = np.outer([200.0, 300.0, 500.0], [0.3, 0.3, 0.4])
    exact[0, 0] = 0.0
    terms = Terms(Domain((), ("a", "b"), {"a": 3, "b": 3}), (("a",), ("b",), ("a", "b")))
    rng, evidence = np.random.default_rng(seed), fit.Evidence.none(9 + 6)
    for where, values in zip(terms.slices, (exact.sum(axis=1), exact.sum(axis=0), exact.ravel()), strict=True):
        evidence = evidence.add(where, values + rng.normal(0, noise, len(values)), noise**2)
    return fit.start(terms, float(exact.sum())), evidence, exact


def test_a_cell_that_is_surely_empty_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prior that suits the other cells would put a tenth of what independence expects into it, and more."""
    filled: dict[float, float] = {}
    for tails in (constants.TAILS, 0.0):
        monkeypatch.setattr(constants, "TAILS", tails)
        found = [table_of(fit.learn(*corner(5.0, seed)[:2])).ravel()[0] for seed in range(8)]
        filled[tails] = float(np.mean(found))
    assert filled[2.0] < 0.6 * filled[0.0]


def test_only_what_is_sure_has_tails() -> None:
    """Under much noise no potential has, and of one-way terms none ever has."""
    for noise, some in ((5.0, True), (200.0, False)):
        begun, evidence, _ = corner(noise)
        found = fit.learn(begun, evidence)
        assert found.tails is not None
        assert bool((found.tails > 1).any()) == some
        assert (found.tails[: 3 + 3] == 1).all()


def _by_key(seed: int) -> tuple[Fit, Evidence]:
    """A key of many values with two attributes: noise drowns most of what they say of single values."""
    rng = np.random.default_rng(seed)
    domain = Domain(("k",), ("a", "b"), {"k": 300, "a": 6, "b": 4})
    terms = Terms(domain, (("k",), ("a",), ("b",), ("k", "a"), ("k", "b"), ("a", "b")))
    truth = np.concatenate([rng.normal(0, 1.0 if len(c) == 1 else 0.3, w.stop - w.start) for c, w in _groups(terms)])
    exact = terms.answers(terms.table(truth, 2e4))
    evidence = Evidence(exact + 8.0 * rng.standard_normal(terms.size), np.full(terms.size, 8.0**-2))
    return learn(start(terms, 2e4), evidence), evidence


def _groups(terms: Terms) -> list[tuple[tuple[str, ...], slice]]:
    return list(zip(terms.cliques, terms.slices, strict=True))


def test_members_of_many_potentials_are_as_far_off_as_those_that_are_searched_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a few steps, and in every marginal."""
    found, evidence = _by_key(0)
    long = ensemble.ensemble(found, evidence, total_deviation=1.0, members=12, steps=300)
    evaluations = []

    def counted(objective: Objective, begun: FloatArray, **how: Any) -> FloatArray:
        asked = []

        def watched(x: FloatArray) -> tuple[float, FloatArray]:
            asked.append(x)
            return objective(x)

        ended = minimise(watched, begun, **how)
        evaluations.append(len(asked))
        return ended

    monkeypatch.setattr(fit, "minimise", counted)
    monkeypatch.setattr(ensemble, "MANY_TERMS", 0)
    short = ensemble.ensemble(found, evidence, total_deviation=1.0, members=24, steps=24)
    assert len(short) == len(long) == 12
    assert np.mean(evaluations) < 16
    for _, where in _groups(found.terms):
        spreads = []
        for members in (long, short):
            tables = [found.terms.table(potentials, found.total) for potentials, _ in members]
            off = np.array([found.terms.answers(t)[where] for t in tables]) - found.total * found.means[where]
            spreads.append(float(np.sqrt((off**2).mean())))
        assert spreads[1] == pytest.approx(spreads[0], rel=0.1)
