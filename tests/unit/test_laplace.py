"""Few marginals are measured once, with Laplace noise: what it costs, what is promised, and how good it is."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.auto.plan import plan
from dpjoin.errors import BudgetError, SpecError
from dpjoin.measure.laplace import (
    ByValue,
    Spread,
    gaussian_error,
    laplace_pays,
    laplace_shares,
    total_of,
)
from dpjoin.measure.large_domains import holds_all
from dpjoin.measure.shares import round_down, without_choices
from dpjoin.measure.totals import NoisyTotal
from dpjoin.methods.as_one import as_one_budget
from dpjoin.model.fit import Evidence, Fit, at_independence, learn, start, with_sums
from dpjoin.model.model import Model
from dpjoin.model.terms import Domain, Terms
from dpjoin.privacy.accounting import (
    Concentrated,
    Split,
    laplace_cost,
)
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import Question
from dpjoin.released.ledger_json import ledger_from_json, ledger_to_json
from dpjoin.spec.toml import Spec
from dpjoin.spec.workload import kronecker, product_group
from support.audit import ledger_violations
from support.brute import BruteEngine
from support.laplace import BUDGET, marginals_of, pair
from support.naive import table_of
from support.one_table import rows_of, schema_of


def test_charges_are_refused_before_anything_is_drawn() -> None:
    schema = schema_of(2, 3)
    group = dj.Workload.marginals(schema, 2).groups[0]
    engine = BruteEngine(schema, {"t": [{"x0": 0, "x1": 0}]})
    curator = Curator(engine, Split(budget=replace(BUDGET, laplace=Fraction(1, 2))))
    bound = curator.public_bound()
    assert bound is not None
    for cost, why in [
        (laplace_cost(Fraction(51, 100)), "exceeds what is left"),
        (Concentrated(Fraction(1, 1000), epsilon=Fraction(1, 10)), "of one kind"),
    ]:
        with pytest.raises(BudgetError, match=why):
            curator.measure(group, bound, cost)
    with pytest.raises(BudgetError, match="negative"):
        laplace_cost(Fraction(-1, 10))
    with pytest.raises((BudgetError, ValueError)):
        curator.measure_query(
            product_group(schema, {"t": (("x0",), np.array([[0, 1, 1]]))}), 0, bound, laplace_cost(Fraction(1, 10))
        )
    with pytest.raises(BudgetError, match="must not be paid for"):
        curator.sensitivity_bound(laplace_cost(Fraction(1, 10)), half_width=50)
    question = Question(name="ranks", rules={"t": {}}, by=("x0",))
    with pytest.raises(BudgetError, match="some rho"):
        curator.noisy_ranks("ranks", [question], (1, 2), laplace_cost(Fraction(1, 10)))
    assert curator.ledger.events == ()
    assert curator.laplace_left == Fraction(1, 2)
    curator.measure(group, bound, laplace_cost(Fraction(1, 2)))
    assert curator.laplace_left == 0
    again = ledger_from_json(ledger_to_json(curator.ledger))
    assert (again.epsilon, again.rho, again.delta) == (Fraction(1, 2), 0, 0)
    assert ledger_to_json(again) == ledger_to_json(curator.ledger)


@pytest.mark.parametrize("laplace", [Fraction(-1, 10), Fraction(11, 10)])
def test_no_more_than_epsilon_is_for_laplace_noise(laplace: Fraction) -> None:
    with pytest.raises(SpecError, match="Laplace noise"):
        replace(BUDGET, laplace=laplace)


def test_domains_are_not_learned_with_laplace_noise() -> None:
    """Neither with a part of epsilon, nor where rho may be exchanged for one."""
    domains, half = Concentrated(Fraction(1, 1000)), Fraction(1, 2)
    assert replace(BUDGET, domains=domains).for_domains == domains
    for more in ({"laplace": half}, {"options": (half,)}, {"domains": Concentrated(Fraction(0), epsilon=half)}):
        with pytest.raises(dj.SpecError, match="domains must be learned with Gaussian noise"):
            replace(BUDGET, **{"domains": domains, **more})


def test_noise_of_both_kinds_is_within_the_request() -> None:
    """dp-accounting's privacy loss distributions of Laplace and Gaussian noise together."""
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    for laplace in (Fraction(1, 4), Fraction(3, 4)):
        budget = without_choices(replace(BUDGET, laplace=laplace))
        accountant = PLDAccountant(value_discretization_interval=1e-4)
        accountant.compose(dp_event.LaplaceDpEvent(float(1 / laplace)))
        accountant.compose(dp_event.GaussianDpEvent(float(budget.composition.variance(1, budget.rho())) ** 0.5))
        # Basic composition loses a little, and no more.
        assert 0.9 <= accountant.get_epsilon(1e-6) <= 1.0


# Which noise, and for what -------------------------------------------------------------------------------------------


def test_nothing_rounds_down_to_nothing() -> None:
    """A share of no budget must end, and be refused where it is to be spent."""
    assert round_down(Fraction(0)) == 0
    assert round_down(Fraction(1, 3)) <= Fraction(1, 3)


def test_few_marginals_get_laplace_noise() -> None:
    """Up to about eight at (1, 1e-6): a public decision."""
    for columns, few in ((1, True), (2, True), (4, True), (6, False), (12, False)):
        schema = schema_of(columns, 4)
        workload = dj.Workload.marginals(schema, [1, 2] if columns > 1 else 1)
        assert laplace_pays(without_choices(BUDGET), workload) == few
        assert bool(as_one_budget(BUDGET, workload).laplace) == few
    products = product_group(schema_of(2, 4), {"t": (("x0",), np.array([[0, 1, 1, 0]]))})
    assert not as_one_budget(BUDGET, dj.Workload(schema_of(2, 4), (products,))).laplace
    # A noisy bound is Gaussian.
    two = pair(None)
    assert not as_one_budget(BUDGET, dj.Workload.marginals(two, 2)).laplace
    # A larger delta buys more Gaussian noise.
    schema = schema_of(4, 4)
    assert not as_one_budget(dj.Budget(epsilon=1.0, delta=0.05), dj.Workload.marginals(schema, [1, 2])).laplace


def test_many_rows_in_few_cells_need_no_narrow_marginals() -> None:
    """Sums over few cells say it well; over many cells of a small table they drown."""
    cliques = [("a",), ("b",), ("a", "b")]
    for sizes, size, narrow in (((8, 8), 1e5, False), ((8, 1000), 1e9, False), ((8, 1000), 3e3, True)):
        cells = {("a",): sizes[0], ("b",): sizes[1], ("a", "b"): sizes[0] * sizes[1]}
        shares, error = laplace_shares(cliques, [1.0, 1.0, 1.0], cells, Spread(size))
        assert sum(shares) == 1
        assert error > 0
        assert (shares[0] + shares[1] > Fraction(1, 10)) == narrow
    # Where a few values hold most rows, their cells are what counts in a join.
    even, few = np.full(1000, 3.0), np.append(np.full(4, 700.0), np.full(50, 4.0))
    drowned, clear = (
        laplace_shares(cliques, [1.0] * 3, cells, Spread(3e3, ByValue(("b",), rows), 1000))[0] for rows in (even, few)
    )
    assert drowned[2] < clear[2]


def test_ranks_may_tell_of_more_values_than_there_are() -> None:
    """They are noisy. And what other tables have is not known: all alike, or as frequent here as there."""
    cliques = [("a",), ("b",), ("a", "b")]
    cells = {("a",): 5, ("b",): 4, ("a", "b"): 20}
    many = Spread(900.0, ByValue(("b",), np.full(30, 30.0)), 4)
    shares, error = laplace_shares(cliques, [1.0] * 3, cells, many)
    assert sum(shares) == 1
    assert 0 < error < np.inf
    # Skewed here: whether others share that decides how much single values count.
    skewed = Spread(900.0, ByValue(("b",), np.array([800.0, 50.0, 30.0, 20.0])), 4)
    at = dict.fromkeys(cliques, 1.0)
    apart = replace(skewed, correlation=0.0)
    assert skewed.left(("a", "b"), cells, at) > apart.left(("a", "b"), cells, at)
    assert skewed.left(("a",), cells, at) >= apart.left(("a",), cells, at)


def test_shares_of_many_marginals_are_never_negative() -> None:
    """Rounding fifty shares up takes more than the first one has."""
    names = [f"x{i}" for i in range(11)]
    cliques = [*((a,) for a in names), *itertools.combinations(names, 2)]
    cells = {c: 2 ** len(c) for c in cliques}
    by_value = ByValue(("x0",), np.array([9.0, 1.0]))
    for single, spread in ((1.0, Spread(10.0, by_value, 2)), (1000.0, None), (1000.0, Spread(1e3)), (1.0, Spread(1e6))):
        importance = [single if len(c) == 1 else 1.0 for c in cliques]
        shares, error = laplace_shares(cliques, importance, cells, spread)
        assert sum(shares) == 1
        assert min(shares) >= 0
        assert 0 < error < np.inf


def test_importance_counts_for_laplace_noise() -> None:
    cliques = [("a", "b"), ("b", "c")]
    cells = dict.fromkeys(cliques, 64)
    (plain, same), (more, less) = (laplace_shares(cliques, w, cells)[0] for w in ([1.0, 1.0], [16.0, 1.0]))
    assert plain == same
    assert 3.5 * less < more < 4.5 * less


def test_gaussian_noise_grows_more_slowly() -> None:
    """k marginals: k times the noise of one, or √k times."""
    for k in (2, 8):
        cliques = [tuple(sorted((f"x{i}", f"y{i}"))) for i in range(k)]
        cells, ones = dict.fromkeys(cliques, 64), [1.0] * k
        one = {cliques[0]: 64}
        laplace = laplace_shares(cliques, ones, cells)[1] / laplace_shares(cliques[:1], [1.0], one)[1]
        gaussian = gaussian_error(cliques, ones, cells) / gaussian_error(cliques[:1], [1.0], one)
        assert laplace == pytest.approx(k**2, rel=0.05)
        assert gaussian == pytest.approx(k**1.5)


def test_the_size_is_better_known_after_marginals() -> None:
    evidence = Evidence.none(6).add(slice(0, 2), np.array([40.0, 62.0]), 2.0)
    found = total_of(evidence, [slice(0, 2), slice(2, 6)], NoisyTotal(110.0, 2.0))
    assert found.noisy == pytest.approx(106.0)
    assert found.deviation == pytest.approx(2**0.5)


def test_a_large_domain_with_few_marginals(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in a factored model, where it holds all marginals."""
    schema = schema_of(12, 10)
    tables = rows_of(schema, 20_000, 3)
    scopes = [("x0", "x1"), ("x2", "x3"), ("x4", "x5"), ("x6", "x7")]
    workload = dj.Workload.marginals(schema, scopes)
    release = dj.release(schema, workload, tables, BUDGET)
    assert isinstance(release.model, Model)
    assert release.model.tree is not None
    assert release.ledger.epsilon == 1
    exact = np.concatenate(marginals_of(tables, scopes, 10))
    assert np.abs(release.answer() - exact).mean() < 6  # Laplace noise of scale four has four
    sizes = {a.name: a.size for a in schema.attributes}
    assert holds_all(sizes, scopes)
    monkeypatch.setattr("dpjoin.measure.large_domains.ALL_CELLS", 10)
    assert not holds_all(sizes, scopes)
    assert not as_one_budget(BUDGET, workload).laplace


def test_the_join_size_alone() -> None:
    schema = pair(3)
    workload = dj.Workload(schema, (kronecker(schema, {}, name="all"),))
    rows = {"r": pa.table({"A": [1, 2], "p": [0, 1]}), "s": pa.table({"A": [1, 1], "q": [0, 1]})}
    release = dj.release(schema, workload, rows, BUDGET, method="two_table")
    assert release.ledger.epsilon == 1
    assert ledger_violations(release.ledger, BUDGET) == []


def test_the_plan_says_so() -> None:
    schema = schema_of(2, 4)
    workload = dj.Workload.marginals(schema, 2)
    few = plan(Spec(schema, workload, BUDGET, "auto", "tight"))
    assert [s.mechanism for s in few.stages] == ["discrete Laplace"] * 2
    assert sum(s.share for s in few.stages) == pytest.approx(1.0)
    many = plan(Spec(schema_of(12, 4), dj.Workload.marginals(schema_of(12, 4), 2), BUDGET, "auto", "tight"))
    assert few.expected[0].cell < many.expected[0].cell / 4


# Fits without one-way marginals --------------------------------------------------------------------------------------


def narrow_fit(noisy: Any) -> tuple[Fit, Evidence]:
    """A model of two one-way marginals and their pair, of which only the pair was measured."""
    domain = Domain((), ("a", "b"), {"a": 3, "b": 4})
    terms = Terms(domain, (("a",), ("b",), ("a", "b")))
    return start(terms, float(noisy.sum())), Evidence.none(terms.size).add(terms.slices[2], noisy.ravel(), 4.0)


def test_a_pair_tells_of_its_attributes() -> None:
    table = np.outer([500.0, 40.0, 10.0], [0.1, 0.2, 0.3, 0.4])
    fit, evidence = narrow_fit(table)
    told = with_sums(fit, evidence)
    first, second, both = fit.terms.slices
    assert told.noisy[first] == pytest.approx(table.sum(axis=1))
    assert told.noisy[second] == pytest.approx(table.sum(axis=0))
    assert 1 / told.precision[first] == pytest.approx(16.0)
    assert 1 / told.precision[second] == pytest.approx(12.0)
    assert np.array_equal(told.precision[both], evidence.precision[both])
    assert with_sums(fit, told) is told, "what was measured stays as it is"
    begun = at_independence(fit, told)
    assert begun.terms is fit.terms
    found = learn(fit, evidence)
    assert np.abs(table_of(found).ravel() - table.ravel()).max() < 4.0


def test_sums_count_where_noise_drowns_cells() -> None:
    """A thousand keys, most next to empty: no cell of a fit is negative, so alone they take noise for rows."""
    rng, keys, deviation = np.random.default_rng(6), 1000, 1.6
    shape = np.array([0.4, 0.3, 0.2, 0.1])
    table = np.outer(np.where(np.arange(keys) < 20, 60.0, 1.0), shape)
    domain = Domain(("k",), ("a",), {"k": keys, "a": 4})
    terms = Terms(domain, (("k",), ("a",), ("k", "a")))
    begun = start(terms, float(table.sum()))
    noisy = table.ravel() + rng.laplace(0, deviation / 2**0.5, table.size)
    evidence = Evidence.none(terms.size).add(terms.slices[2], noisy, deviation**2)
    told = with_sums(begun, evidence, every=True)
    off = [np.abs(table_of(learn(begun, e)).sum(axis=0) - table.sum(axis=0)).sum() for e in (evidence, told)]
    assert off[1] < 0.7 * off[0]
    # What was measured by itself is weighed with the sum.
    both = with_sums(begun, evidence.add(terms.slices[1], np.full(4, 555.0), 4 * deviation**2), every=True)
    one, sums = 1 / (4 * deviation**2), 1 / (keys * deviation**2)
    mean = (one * 555.0 + sums * noisy.reshape(keys, 4).sum(axis=0)) / (one + sums)
    assert both.noisy[terms.slices[1]] == pytest.approx(mean)
    assert both.precision[terms.slices[1]] == pytest.approx(one + sums)


def test_drowned_values_begin_where_they_are_together() -> None:
    """Noise tells nothing of a thousand empty keys one by one: two deviations each would be most of the rows."""
    domain = Domain((), ("k",), {"k": 1002})
    terms = Terms(domain, (("k",),))
    noisy = np.append([4_000.0, 900.0], 0.1 + 1.5 * np.random.default_rng(0).standard_normal(1000))
    evidence = Evidence.none(1002).add(slice(0, 1002), noisy, 2.25)
    found = table_of(at_independence(start(terms, 5_000.0), evidence)).ravel()
    assert found[:2] == pytest.approx([4_000.0, 900.0], rel=0.05)
    empty = Evidence.none(1002).add(slice(0, 1002), np.append(noisy[:2], np.full(1000, -1.0)), 2.25)
    assert table_of(at_independence(start(terms, 5_000.0), empty)).min() > 0


def test_steps_are_shorter_for_what_sums_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them the search would begin at the uniform table, with steps as long as the prior allows."""
    table = np.outer([5000.0, 400.0, 100.0], [0.01, 0.04, 0.05, 0.9])
    fit, evidence = narrow_fit(table)
    assert np.abs(table_of(learn(fit, evidence)).ravel() - table.ravel()).max() < 4.0
    monkeypatch.setattr("dpjoin.model.fit.with_sums", lambda _, evidence: evidence)
    assert not np.abs(at_independence(fit, evidence).potentials).any()
