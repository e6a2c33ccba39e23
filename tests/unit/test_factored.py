"""The factored model is the dense one without its table: same answers, same fit, same bars, and rows besides."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.model import ensemble, fit, model
from dpjoin.model.averages import average_half_widths, averages
from dpjoin.model.fit import Evidence
from dpjoin.model.model import Model
from dpjoin.model.terms import Domain, Terms
from dpjoin.model.triangulate import tree_of
from dpjoin.spec.sql import parse_measures
from dpjoin.spec.workload import CELLS, PREFIXES, RANGES, Average, Factor, Group, Kronecker, product_group

Cliques = tuple[tuple[str, ...], ...]


SIZES = {"a": 3, "b": 4, "c": 2, "d": 5, "e": 3}


CHAIN: Cliques = (("a",), ("b",), ("c",), ("d",), ("e",), ("a", "b"), ("c", "b"), ("c", "d"), ("d", "e"))


CYCLE: Cliques = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "a"), ("e",))


PARTS: Cliques = (("a", "b", "c"), ("d", "e"), ("d",))


LOOSE: Cliques = (("a", "b"), ("c",))


SHAPES = {"chain": CHAIN, "cycle": CYCLE, "parts": PARTS, "loose": LOOSE}


def _measured(cliques: Cliques, sigma: float, seed: int = 0, rows: int = 5000) -> tuple[Terms, Evidence]:
    """A table with real interactions, and noisy marginals of it."""
    terms = Terms(Domain.split(SIZES), cliques)
    rng = np.random.default_rng(seed)
    table = terms.table(rng.standard_normal(terms.size), rows)
    evidence = Evidence.none(terms.size)
    truth = terms.answers(table)
    for where in terms.slices:
        noisy = truth[where] + sigma * rng.standard_normal(where.stop - where.start)
        evidence = evidence.add(where, noisy, sigma**2)
    return terms, evidence


def _schema() -> dj.Schema:
    names = list(SIZES)
    return dj.Schema(
        (dj.Table(name="r", attributes=("k", *names[:2])), dj.Table(name="s", attributes=("k", *names[2:]))),
        (
            dj.Attribute(name="k", key=True),
            *(dj.Attribute(name=a, range=(0, n - 1)) for a, n in SIZES.items()),
        ),
    )


def _groups() -> list[Group]:
    """Marginals in and across cliques, prefixes, ranges, a filter, the count, and product queries."""
    rng = np.random.default_rng(1)

    def group(factors: dict[str, Factor]) -> Kronecker:
        shape = tuple(SIZES[a] for a in factors)
        return Kronecker(" ".join(factors) or "count", tuple(factors), tuple(factors.values()), shape)

    pairs = [group({a: CELLS, b: CELLS}) for a, b in itertools.combinations(SIZES, 2)]
    return [
        *pairs,
        group({}),
        group({"e": CELLS}),
        group({"d": PREFIXES, "a": CELLS}),
        group({"e": CELLS, "b": RANGES, "a": Factor("weights", (1, 0, 3))}),
        product_group(
            _schema(), {"r": (("b", "a"), rng.uniform(-1, 1, (6, 4, 3))), "s": (("d",), rng.uniform(0, 1, (6, 5)))}
        ),
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_start_is_the_same(shape: str) -> None:
    """Prior widths of one-way and wider cliques start where the dense fit starts them."""
    terms, tree = Terms(Domain.split(SIZES), SHAPES[shape]), tree_of(SIZES, SHAPES[shape])
    assert np.array_equal(fit.start(tree, 10.0).tau, fit.start(terms, 10.0).tau)
    assert np.array_equal(fit.start(tree, 10.0).tau_each, fit.start(terms, 10.0).tau_each)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sigma", [3.0, 40.0])
def test_one_round_of_the_fit_is_the_same(shape: str, sigma: float) -> None:
    """Same objective, gradient and units: the optimiser takes the same steps, and the prior widths follow."""
    terms, evidence = _measured(SHAPES[shape], sigma)
    centre = np.random.default_rng(4).standard_normal(terms.size)
    dense = fit.maximise(fit.start(terms, 5000.0), evidence, steps=20, prior_mean=centre)
    loose = fit.start(tree_of(SIZES, SHAPES[shape]), 5000.0)
    loose = fit.maximise(loose, evidence, steps=20, prior_mean=centre)
    assert np.allclose(loose.potentials, dense.potentials, rtol=1e-5, atol=1e-6)
    assert np.allclose(fit.relearn_prior(loose, evidence).tau, fit.relearn_prior(dense, evidence).tau, rtol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("sigma", [3.0, 40.0])
def test_the_learnt_fit_is_the_same(shape: str, sigma: float) -> None:
    """All answers within a thousandth and a twentieth of the noise.

    Not closer: hundreds of steps amplify rounding, and where many potentials do the same the optimiser may stop a
    few steps earlier or later.
    """
    terms, evidence = _measured(SHAPES[shape], sigma)
    dense = fit.learn(fit.start(terms, 5000.0), evidence)
    loose = fit.learn(fit.start(tree_of(SIZES, SHAPES[shape]), 5000.0), evidence)
    for pair in itertools.combinations(SIZES, 2):
        want = dense.marginal(pair)
        assert np.allclose(loose.marginal(pair), want, rtol=1e-3, atol=0.05 * sigma), pair


def test_a_fit_recovers_what_it_is_told() -> None:
    """Nearly exact measurements of a model's marginals give back its marginals, measured or not."""
    terms, evidence = _measured(CYCLE, sigma=0.1)
    loose = fit.learn(fit.start(tree_of(SIZES, CYCLE), 5000.0), evidence)
    rng = np.random.default_rng(0)
    truth = terms.table(rng.standard_normal(terms.size), 5000.0)
    for pair in (("a", "b"), ("a", "c"), ("e", "b")):
        assert np.abs(loose.marginal(pair) - terms.domain.marginal(truth, pair)).max() < 3.0


def _models(shape: str, sigma: float) -> tuple[model.Model, Model]:
    """The same release both ways, members included."""
    cliques = SHAPES[shape]
    terms, evidence = _measured(cliques, sigma)
    tree = tree_of(SIZES, cliques)
    start = fit.learn(fit.start(terms, 5000.0), evidence)
    same = replace(
        fit.start(tree, start.total),
        potentials=start.potentials,
        tau=start.tau,
        tails=start.tails,
    )
    known = (frozenset(SIZES),)
    deviations = (sigma,) * len(cliques)
    return (
        model.Model(
            terms.domain,
            5000.0,
            terms,
            start.potentials,
            members=ensemble.ensemble(start, evidence, total_deviation=20.0),
            floor=2.0,
            known=known,
            deviations=deviations,
        ),
        Model(
            terms.domain,
            5000.0,
            tree,
            start.potentials,
            members=ensemble.ensemble(same, evidence, total_deviation=20.0),
            floor=2.0,
            known=known,
            deviations=deviations,
        ),
    )


@pytest.mark.parametrize("shape", ["cycle", "parts"])
def test_answers_and_bars_are_the_same(shape: str) -> None:
    """Every kind of group: answers to 1e-9, bars to a hundredth (members come out of an optimiser)."""
    dense, loose = _models(shape, sigma=20.0)
    assert np.allclose(loose.table, dense.table, rtol=1e-9)
    assert loose.single_terms == dense.single_terms
    for group in _groups():
        assert np.allclose(loose.answer(group), dense.answer(group), rtol=1e-9, atol=1e-9), group.name
        assert np.allclose(loose.slack(group), dense.slack(group))
        assert np.allclose(loose.error(group, 0.9), dense.error(group, 0.9), rtol=0.01, atol=0.05), group.name
        if isinstance(group, Kronecker):
            assert np.allclose(loose.noise(group), dense.noise(group)), group.name
    # The same members on both sides leave nothing to the optimiser.
    shared = replace(loose, members=dense.members)
    for group in _groups():
        assert np.allclose(shared.error(group, 0.9), dense.error(group, 0.9), rtol=1e-7), group.name
    for statement in ("SELECT AVG(d) FROM joined", "SELECT a, AVG(d) FROM joined WHERE d > 0 GROUP BY a"):
        (asked,) = (m.asked for m in parse_measures(_schema(), statement))
        assert isinstance(asked, Average)
        assert np.allclose(averages(shared, asked), averages(dense, asked), rtol=1e-9)
        bars = average_half_widths(shared, asked, 0.9)
        assert np.allclose(bars, average_half_widths(dense, asked, 0.9), rtol=1e-7, equal_nan=True)


def test_averages_know_what_no_clique_could_fit() -> None:
    """A marginal that was looked at and left out makes bars of averages longer, by how far its values are apart."""
    _, loose = _models("chain", sigma=1.0)
    known = replace(loose, known=(frozenset("ad"),), floor=0.0, deviations=())
    (asked,) = (m.asked for m in parse_measures(_schema(), "SELECT a, AVG(d) FROM joined GROUP BY a"))
    assert isinstance(asked, Average)
    before = average_half_widths(known, asked, 0.9)
    left_out = replace(known, misfits=(model.Misfit(("a", "d"), ratio=1e3, deviation=0.0),))
    cells = 1e3 * model.cell_errors(loose.answer(asked.count)[:, None] * np.ones(SIZES["d"]) / SIZES["d"])
    rough = np.sqrt((cells * (np.arange(SIZES["d"]) - averages(loose, asked)[:, None]) ** 2).sum(axis=1))
    added = average_half_widths(left_out, asked, 0.9)
    reach = np.maximum(averages(loose, asked), 4 - averages(loose, asked))
    expected = np.minimum(before + 2 * rough / loose.answer(asked.count), reach)
    assert (added > 1.5 * before).all()
    assert np.allclose(added, expected, rtol=0.5)


def test_bars_where_nothing_is_known() -> None:
    """Outside the known scopes bars are nan; without members the floor is all there is."""
    tree = tree_of(SIZES, CHAIN)
    loose = Model(Domain.split(SIZES), 100.0, tree, np.zeros(tree.size), floor=3.0, known=(frozenset("ab"),))
    inside, outside = _groups()[0], _groups()[2]
    assert loose.spreads(inside) == []
    assert np.array_equal(loose.error(inside, 0.9), np.full(12, 3.0))
    assert np.isnan(loose.error(outside, 0.9)).all()
    assert loose.knows(("b",))
    assert not loose.knows(("b", "c"))


def test_a_large_domain_has_no_table() -> None:
    """10^12 cells: answers and rows, but no table."""
    names = {f"x{i}": 10 for i in range(12)}
    tree = tree_of(names, itertools.pairwise(names))
    loose = Model(Domain.split(names), 1000.0, tree, np.random.default_rng(0).standard_normal(tree.size))
    with pytest.raises(ValueError, match=rf"cells of the domain \({10**12}\) must be at most .*; ask for answers"):
        _ = loose.table
    drawn = loose.rows(500, np.random.default_rng(0))
    assert list(drawn) == list(names)
    assert all(codes.shape == (500,) and codes.min() >= 0 and codes.max() < 10 for codes in drawn.values())


def test_members_are_fewer_where_a_step_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of the dense fit, on the cells of the tree."""
    _, evidence = _measured(LOOSE, 5.0)
    start = fit.start(tree_of(SIZES, LOOSE), 5000.0)
    assert len(ensemble.ensemble(start, evidence, total_deviation=1.0, steps=2)) == ensemble.MEMBERS
    monkeypatch.setattr(ensemble, "LARGE_CELLS", 1)
    assert len(ensemble.ensemble(start, evidence, total_deviation=1.0, steps=2)) == ensemble.MEMBERS // 2
    quick = fit.learn(start, evidence)
    assert np.allclose(quick.means * 5000.0, evidence.noisy, atol=30.0)


def test_learns_on_a_domain_of_a_million_million_cells() -> None:
    """12 attributes of 10 values, a chain, noise 30 in 10,000 rows: better than to shrink cell by cell."""
    names = {f"x{i}": 10 for i in range(12)}
    pairs = list(itertools.pairwise(names))
    tree = tree_of(names, pairs)
    rng = np.random.default_rng(2)
    rows = tree.calibrate(0.4 * rng.standard_normal(tree.size)).sample(10_000, rng)
    truth = [np.histogram2d(rows[a], rows[b], bins=10, range=[[0, 10], [0, 10]])[0] for a, b in pairs]
    exact = np.concatenate([t.reshape(-1) for t in truth])
    evidence = Evidence(exact + 30.0 * rng.standard_normal(tree.size), np.full(tree.size, 1 / 900.0))
    begin = time.perf_counter()
    learnt = fit.learn(fit.start(tree, 10_000.0), evidence)
    assert time.perf_counter() - begin < 5.0
    found = 10_000.0 * learnt.means
    # Even with the best factor, chosen by looking at the truth: the fit also knows that marginals agree.
    shrunk = 100.0 + (evidence.noisy - 100.0) * exact.var() / (exact.var() + 900.0)
    assert np.abs(found - exact).mean() < np.abs(shrunk - exact).mean()
