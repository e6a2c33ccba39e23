"""Each correction of the paper: its version fails on a small example, ours holds on the same one."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.measure.join import domain_of
from dpjoin.measure.shares import half_width
from dpjoin.model.multiplicative_weights import Iterate
from dpjoin.paper import alg2_pmw
from dpjoin.paper.alg2_pmw import Rounds, paper_rounds
from dpjoin.privacy import noise
from dpjoin.privacy.accounting import ZERO_CONCENTRATED, Approximate, Pure, Split
from dpjoin.privacy.conversion import advanced_composition_epsilon, largest_rho
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.gauge import gauge, gauge_bound
from dpjoin.privacy.residual import local_sensitivity, residual_sensitivity, star
from dpjoin.privacy.truncated import laplace_delta, paper_laplace_half_width
from dpjoin.spec.hypergraph import attribute_tree
from dpjoin.spec.schema import Attribute, Schema, Table
from dpjoin.theory import Task, facts, hard
from dpjoin.theory.facts import configurations, copies_of, level_of
from dpjoin.theory.upper import largest_shift
from support.audit import distinguishing_violations
from support.brute import BruteEngine
from support.figures import abc_schema

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


HALF = Fraction(1, 2)


CELLS, QUERIES = 64, 40


def learning(*, sign: int, total: float = 1.0, constant: bool = False, rounds: int = 60) -> tuple[float, list[int]]:
    """Multiplicative weights without measurement noise, choices by the exact exponential mechanism on scores.

    The data are one distribution of size 1; the model's size is `total`. Returns the largest error at the end (of the
    queries that are not constant) and the chosen queries; the constant query is the last one.
    """
    rng = np.random.default_rng(5)
    data = rng.dirichlet(np.full(CELLS, 0.1))
    queries = rng.integers(0, 2, (QUERIES, CELLS)).astype(float)
    if constant:
        queries = np.vstack([queries, np.ones(CELLS)])
    table = np.full(CELLS, total / CELLS)
    chosen = []
    for _ in range(rounds):
        errors = queries @ (table - data)
        scores = np.rint(sign * np.abs(errors) * 2**20).astype(np.int64)
        i = noise.exponential_choice(scores, rate=Fraction(300, 2**20))
        chosen.append(i)
        table *= np.exp(-queries[i] * errors[i] / (2 * total))
        table *= total / table.sum()
    return float(np.abs(queries[:QUERIES] @ (table / total - data)).max()), chosen


ONE = Schema((Table(name="T", attributes=("x",)),), (Attribute(name="x", range=(0, 7)),))
"""A single table: Algorithm 2 alone, with sensitivity one."""


COUNT_AND_CELLS = dj.Workload.marginals(ONE, [(), ("x",)])


def one_table(each: Fraction) -> tuple[Curator, Bound]:
    """A Curator of 400 rows with x = 0 and 100 with x = 1, for six rounds of Algorithm 2."""
    engine, budget = BruteEngine(ONE, {"T": [{"x": 0}] * 400 + [{"x": 1}] * 100}), dj.Budget(epsilon=50.0, delta=1e-6)
    curator = Curator(engine, Split(budget=budget, paper=True))
    curator.reserve_rounds(12, Pure(each), Approximate(Fraction(49), HALF / 10**6))
    bound = curator.public_bound()
    assert bound is not None
    return curator, bound


def test_the_exponential_mechanism_must_prefer_large_errors() -> None:
    """With the paper's minus sign the best-fitted queries are measured again and again; ours learns."""
    curator, bound = one_table(Fraction(1))
    model = [np.array([500]), np.array([400, 100, 0, 200, 0, 0, 0, 0])]  # the fourth cell is off by 200
    assert curator.worst_query(COUNT_AND_CELLS.groups, model, bound, Pure(Fraction(1))) == (1, 3)
    papers, ours = learning(sign=-1)[0], learning(sign=1)[0]
    start = learning(sign=1, rounds=0)[0]
    assert papers > 0.9 * start
    assert ours < 0.5 * start


def test_a_shifted_size_and_a_constant_query_stop_learning() -> None:
    """The count's error is the shift, for ever, and it is chosen for ever. Ours: no shift, no constant queries."""
    curator, bound = one_table(Fraction(1))
    model = [np.array([10**6]), np.array([400, 100, 0, 0, 0, 0, 0, 0])]  # all is right but the count
    assert {curator.worst_query(COUNT_AND_CELLS.groups, model, bound, Pure(Fraction(1)))[0] for _ in range(6)} == {1}
    papers, chosen = learning(sign=1, total=2.0, constant=True)
    ours, other = learning(sign=1)
    assert sum(i == QUERIES for i in chosen) > 0.9 * len(chosen)
    assert len(set(other)) > 5
    assert ours < 0.5 * papers


def test_the_average_must_begin_with_the_first_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof bounds F_0 … F_{k-1}. For k = 1: F_0 is exact, the bound is 0, and one noisy update makes F_1 wrong."""
    data, query = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    first = np.array([0.5, 0.5])
    measured = float(query @ data) + 0.3
    second = first * np.exp(query * (measured - query @ first) / 2)
    second /= second.sum()
    bound = abs(query @ first - query @ data)
    assert abs(query @ second - query @ data) > bound  # avg of F_1 … F_k
    assert abs(query @ first - query @ data) <= bound  # avg of F_0 … F_{k-1}
    monkeypatch.setattr(alg2_pmw, "paper_rounds", lambda **_: 1)
    tables = {"T": pa.table({"x": [0] * 400 + [1] * 100})}
    cells = dj.release(ONE, dj.Workload.marginals(ONE, 1), tables, BUDGET, profile="paper").answer()
    assert cells == pytest.approx(np.full(8, cells.sum() / 8))


def drop(data: np.ndarray, table: np.ndarray, query: np.ndarray, eta: float) -> float:
    """By how much one update brings the table nearer to the data, in relative entropy of distributions."""
    moved = table * np.exp(query * eta)
    p, f, g = data / data.sum(), table / table.sum(), moved / moved.sum()
    return float(np.sum(p * np.log(g / f)))


def test_the_potential_step_of_the_proof_is_wrong_and_the_mended_one_holds() -> None:
    """(n/n̂)·log β is replaced by log β, which is larger when β < 1. Scaled data J̄ = J·n̂/n repair it."""
    n, total = 1.0, 2.0
    data, table, query = np.array([0.02, 0.98]) * n, np.array([0.9, 0.1]) * total, np.array([1.0, 0.0])
    eta = (query @ data - query @ table) / (2 * total)
    beta = float(np.exp(query * eta) @ table / total)
    true = float(query @ data) * eta / total - n / total * math.log(beta)
    stated = float(query @ data) * eta / total - math.log(beta)
    assert true < stated  # "≥ stated" does not follow
    rng = np.random.default_rng(1)
    for _ in range(500):
        size, total = rng.uniform(0.5, 3, 2)
        data, table = rng.dirichlet(np.full(6, 0.3)) * size, rng.dirichlet(np.full(6, 0.3)) * total + 1e-9
        table *= total / table.sum()
        query = rng.uniform(-1, 1, 6)
        measured = float(np.clip(query @ data + rng.normal(0, 0.3), -total, total))
        eta = (measured - query @ table) / (2 * total)
        scaled = data * total / size
        error, off = float(query @ scaled - query @ table), float(measured - query @ scaled)
        assert drop(data + 1e-300, table, query, eta) >= (error**2 - off**2) / (4 * total**2) - 1e-9


def test_measurements_must_be_clamped() -> None:
    """exp(x) <= 1 + x + x² needs x <= 1.79: an answer 6 n̂ too large gives x = 3. Clamped to [-n̂, n̂], |x| <= 1."""
    total = 10.0
    for measured, holds in ((60.0, False), (float(np.clip(60.0, -total, total)), True)):
        x = (measured - 0.0) / (2 * total)
        assert (math.exp(x) <= 1 + x + x * x) == holds
    steps = {}
    for each in (Fraction(1, 10**5), Fraction(1)):  # noise of 100,000 and of 1
        curator, bound = one_table(each)
        groups = COUNT_AND_CELLS.groups
        rounds = Rounds(curator, groups, Iterate(domain_of(COUNT_AND_CELLS), 500.0, [(), ("x",)]), bound, Pure(each))
        steps[each] = [rounds.ask().step for _ in range(6)]
    assert max(np.abs(steps[Fraction(1, 10**5)])) <= 1
    assert steps[Fraction(1)] == pytest.approx([(400 - 500 / 8) / 1000] * 6, abs=0.05)


def test_the_lemma_on_choices_needs_the_logarithm() -> None:
    """lem:error's display: a gap beyond (2c+2)/ε' at most with probability |Q|^-c. 1000 candidates: nearly surely."""
    queries, c, each = 1000, 1, 1.0
    without = (2 * c + 2) / each
    wrong = (queries - 1) * math.exp(-each * without / 2)
    assert wrong / (1 + wrong) > 0.99 > queries**-c
    with_it = without * math.log(queries)
    right = (queries - 1) * math.exp(-each * with_it / 2)
    assert right / (1 + right) <= queries**-c


def least_laplace(epsilon: Fraction, delta: Fraction) -> int:
    """The least half-width of truncated Laplace noise that spends at most delta."""
    return next(s for s in itertools.count(1) if laplace_delta(epsilon=epsilon, sensitivity=1, half_width=s) <= delta)


def test_truncated_laplace_pays_twice_its_delta() -> None:
    """The paper's half-width spends half of δ; rounding it down would spend too much; the least one is between."""
    epsilon, delta = Fraction(1), Fraction(1, 10**6)
    papers = paper_laplace_half_width(epsilon=epsilon, delta=delta, sensitivity=1)
    least = least_laplace(epsilon, delta)
    assert least == 14
    assert laplace_delta(epsilon=epsilon, sensitivity=1, half_width=papers) < 0.6 * delta
    continuous = math.log1p(math.expm1(1) / (2e-6))
    assert laplace_delta(epsilon=epsilon, sensitivity=1, half_width=int(continuous)) > delta
    assert laplace_delta(epsilon=epsilon, sensitivity=1, half_width=least) <= delta


def test_gaussian_noise_of_the_same_cost_shifts_less() -> None:
    """ε₁ = 0.1, δ₁ = 1e-7: a truncated Laplace shift of 132 or more; a Gaussian of the same ρ = ε₁²/2 about half."""
    epsilon, delta = Fraction(1, 10), Fraction(1, 10**7)
    laplace = least_laplace(epsilon, delta)
    gauss = half_width(ZERO_CONCENTRATED, epsilon**2 / 2, delta, moves=1)
    assert gauss < 0.6 * laplace


@pytest.mark.parametrize("rounds", [10, 50, 200])
def test_the_papers_rounds_are_noisier_than_they_need_be(rounds: int) -> None:
    """Measurement noise at (1, 1e-6): more than 20 times what ρ-accounting needs for the same guarantee."""
    each = (0.5 / 2) / (16 * math.sqrt(rounds * math.log(4e6)))
    papers = math.sqrt(2) / each
    used = advanced_composition_epsilon(count=2 * rounds, epsilon_each=Fraction(each), delta=Fraction(1, 4 * 10**6))
    assert used < Fraction(1, 4)  # sound, and not tight
    rho, _ = largest_rho(epsilon=Fraction(1), delta=Fraction(9, 10**7))
    ours = math.sqrt(rounds / (2 * 0.85 * 0.8 * float(rho)))
    assert papers > 20 * ours


def test_the_papers_number_of_rounds_does_not_minimise_its_own_bound() -> None:
    """2·n̂·sqrt(ln D/k) + 5·Δ̃·ln Q·16·sqrt(k·ln(1/δ))/ε is smaller at k/40 than at the paper's k."""
    total, bound, cells, queries = 1e7, 50, 1024, 300
    k = paper_rounds(total=total / 100, bound=bound, epsilon=1.0, delta=1e-6, cells=cells, queries=queries)

    def stated(rounds: float) -> float:
        noisy = 5 * bound * math.log(queries) * 16 * math.sqrt(rounds * math.log(1e6))
        return 2 * total / 100 * math.sqrt(math.log(cells) / rounds) + noisy

    assert stated(k / 40) < 0.5 * stated(k)


def test_the_residual_bound_is_inflated_by_its_noise() -> None:
    """Algorithm 3 multiplies by exp(noise): 7.7 times at (1, 1e-6) on average. The gauge adds: 1.1 times here."""
    b = star((1000, 1000, 1000))
    beta = 1 / Task(budget=BUDGET, cells=2, queries=2, norm=1).lam
    papers = float(residual_sensitivity(b, Fraction(beta))) * math.exp(beta * (largest_shift(0.5, 5e-7, 0.5) - 1))
    ours = gauge_bound(b, gauge(b) + 39)
    assert papers > 7 * local_sensitivity(b)
    assert local_sensitivity(b) <= ours < 1.5 * local_sensitivity(b)


def test_residual_sensitivity_can_be_below_one_and_zero() -> None:
    """Empty tables: 0.37 at β = 1, where the logarithm is negative; an empty public table: 0, where it is undefined."""
    assert residual_sensitivity(star((0, 0)), Fraction(1)) == pytest.approx(math.exp(-1))
    none = star((0, 0), private=(1,))
    assert residual_sensitivity(none, Fraction(1)) == 0
    assert gauge_bound(none, gauge(none) + 5) >= local_sensitivity(none)


# -- partitions ----------------------------------------------------------------------------------------------------


def test_a_first_bucket_narrower_than_the_noise_tells_who_is_present() -> None:
    """Algorithm 5 with γ₁ = 2λ < 2τ and noise for present values only: listed or not tells degree 1 from 0."""
    lam, width = math.log(1e6), paper_laplace_half_width(epsilon=Fraction(1), delta=Fraction(1, 10**6), sensitivity=1)
    assert 2 * lam > width  # a typical noisy degree is in the first bucket, and many are not
    assert 2 * lam < 2 * width

    def listed(threshold: float) -> object:
        def mechanism(degree: int) -> bool:
            if degree == 0:
                return False  # absent: no noise is drawn
            return degree + noise.DiscreteLaplace(Fraction(1), width).one() > threshold

        return mechanism

    papers, ours = listed(width), listed(2 * width)
    assert distinguishing_violations(papers, 1, 0, budget=BUDGET, runs=60) != []  # type: ignore[arg-type]
    assert distinguishing_violations(ours, 1, 0, budget=BUDGET, runs=60) == []  # type: ignore[arg-type]
    instance = hard.conforming([(500, 1)])
    workload = dj.Workload.marginals(instance.schema, 1)
    release = dj.release(instance.schema, workload, instance.arrow(), BUDGET, method="uniformize", profile="paper")
    assert [part["values"] for part in release.facts["parts"]] == ["all that are not listed"]


def test_sub_instances_must_be_zero_elsewhere() -> None:
    """As the text has it (R^i(t) = R(t) otherwise) every part is the whole join; with 0 the parts add up to it."""
    first, second = hard.figure_3(6).arrow().values()
    rows = [(a, b) for a in first["B"].to_pylist() for b in second["B"].to_pylist() if a == b]
    parts = [set(range(3)), set(range(3, 6))]
    assert sum(sum(1 for a, _ in rows if a in part) for part in parts) == len(rows)
    assert sum(len(rows) for _ in parts) == 2 * len(rows)
    instance, budget = hard.conforming([(500, 1), (5, 900)]), dj.Budget(epsilon=20.0, delta=1e-6)
    workload = dj.Workload.marginals(instance.schema, 1)
    release = dj.release(instance.schema, workload, instance.arrow(), budget, method="uniformize", profile="paper")
    first, second = (part["size"] for part in release.facts["parts"])
    assert 500 <= first < 1000 < 4500 <= second


def test_noise_can_move_a_value_by_more_than_one_bucket() -> None:
    """Proof of Theorem 4.4: B₁^i ⊆ B₂^i ∪ B₂^(i+1). At (1, 1e-6) degree 1 with noise 2τ is two buckets up."""
    lam = math.log(1e6)
    most = 2 * paper_laplace_half_width(epsilon=HALF, delta=HALF / 10**6, sensitivity=1)
    assert level_of(1, lam) == 1
    assert level_of(1 + most, lam) == 3
    assert level_of(1, most) == level_of(1 + most / 2, most) == 1  # ours: the first bucket reaches to 2s


def test_degrees_in_the_first_bucket_are_not_of_its_size() -> None:
    """Lemma 4.10, third property: a noisy degree of 3 is in bucket 1 and not in (λ, 2λ]; only the cap can be used."""
    lam = math.log(1e6)
    assert level_of(3, lam) == 1
    assert not lam < 3
    assert lam * 2 >= 3


def papers_copies(levels: int) -> tuple[int, int]:
    """Algorithms 6 and 7 to the letter on R1(A, B), R2(A, C): in how many degrees and parts one row of R2 is counted.

    Decompose by B cuts R1 into its levels and copies R2 into each part; Decompose by C then noises R2's degrees in
    every part.
    """
    first = {a: 2**a for a in range(levels)}
    second = dict.fromkeys(range(levels), 1)
    parts = [({a: d for a, d in first.items() if level_of(d, 0.5) == i}, dict(second)) for i in range(1, levels + 2)]
    parts = [part for part in parts if part[0]]
    return sum(0 in copied for _, copied in parts), len(parts)


def test_a_row_is_counted_in_more_degrees_than_its_attributes() -> None:
    """Lemma 4.11 charges |x_2| = 2 degrees; with 12 levels a row of R2 is in 12, and in 12 parts. Ours: one part."""
    degrees, parts = papers_copies(12)
    assert degrees == parts == 12
    instance = hard.by_degrees([(2**i, 1) for i in range(12)], values=8)
    known = facts(instance.schema, instance.arrow(), public=True)
    assert copies_of(known, 0.5) == 1
    assert sum(c.join_size for c in configurations(known, 0.5)) == instance.join_size


def test_a_table_inside_another_needs_a_node_of_its_own() -> None:
    """Lemma 4.8 on R1(A), R2(A, B) with five equal rows in R1: T_1 = 5 is of no attribute; a virtual leaf has it."""
    tables = (Table(name="R1", attributes=("A",)), Table(name="R2", attributes=("A", "B")))
    schema = Schema(tables, tuple(Attribute(name=a, range=(0, 3)) for a in "AB"))
    known = facts(schema, {"R1": pa.table({"A": [1] * 5}), "R2": pa.table({"A": [1, 1], "B": [0, 1]})}, public=True)
    (found,) = configurations(known, 1.0)
    root = attribute_tree(schema)
    assert root is not None
    named = {node.tables for node in root.walk() if not node.virtual and node is not root}
    alone = frozenset({"R1"})
    assert known.boundaries.values[alone] == 5
    assert math.prod(cap for held, cap in found.caps.items() if held <= alone and held in named) == 1 < 5
    assert found.boundary(alone) >= 5


def test_a_guarantee_that_grows_with_n_is_none() -> None:
    """Lemma 4.11: (O(log^c n)·ε, …). Neighbours of unequal size get unequal promises; ours is the budget, exactly."""
    instance = hard.conforming([(30, 3)])
    schema, workload = instance.schema, dj.Workload.marginals(instance.schema, 1)
    release = dj.release(schema, workload, instance.arrow(), BUDGET, method="hierarchical", profile="paper")
    assert release.ledger.epsilon <= BUDGET.exact.epsilon
    assert release.ledger.delta <= BUDGET.exact.delta
    assert math.log2(2 * 31) > math.log2(2 * 30)


def test_rows_in_several_parts_share_the_budget() -> None:
    """Lemma 4.11 on R1(A,B,D), R2(A,B,F), R3(A,C): a row of R3 is in a part for every type of B, and pays for all."""
    letters, rng = {"R1": "ABD", "R2": "ABF", "R3": "AC"}, np.random.default_rng(0)
    tables = tuple(Table(name=name, attributes=tuple(of)) for name, of in letters.items())
    schema = Schema(tables, tuple(Attribute(name=a, range=(0, 3)) for a in "ABCDF"))
    hot = {a: np.where(rng.random(400) < 0.9, 0, rng.integers(0, 4, 400)) for a in "AB"}
    rows = {name: pa.table({a: hot.get(a, rng.integers(0, 4, 400)) for a in of}) for name, of in letters.items()}
    budget = dj.Budget(epsilon=20.0, delta=1e-6)
    given = (schema, dj.Workload.marginals(schema, 1), rows, budget)
    release = dj.release(*given, method="hierarchical", profile="paper")
    assert (release.ledger.epsilon, release.ledger.delta) == (budget.exact.epsilon, budget.exact.delta)
    bounds = [e.cost.epsilon for e in release.ledger.events if e.purpose == "sensitivity bound"]  # type: ignore[union-attr]
    # Half of the budget is for the parts, half of that for each one's bound; no row is in all of them.
    times = budget.exact.epsilon / 4 / bounds[0]
    assert times.denominator == 1
    assert 1 < times < len(bounds) == len(release.facts["parts"])


# -- definitions, examples, lower bounds ---------------------------------------------------------------------------


def test_substitution_costs_more_delta_than_twice() -> None:
    """Footnote 1: (2ε, 2δ) does not follow from (ε, δ) for add/remove; (2ε, (1 + e^ε)·δ) does, and is attained."""
    epsilon, delta = 1.0, 1e-3
    grown = (1 + math.exp(epsilon)) * delta
    with_one, without, with_other = (grown, 1 - grown), (delta, 1 - delta), (0.0, 1.0)

    def excess(p: tuple[float, float], q: tuple[float, float], e: float) -> float:
        return sum(max(0.0, a - math.exp(e) * b) for a, b in zip(p, q, strict=True))

    for p, q in ((with_one, without), (without, with_one), (without, with_other), (with_other, without)):
        assert excess(p, q, epsilon) <= delta * (1 + 1e-12)
    assert excess(with_one, with_other, 2 * epsilon) == pytest.approx(grown)
    assert grown > 2 * delta


def test_the_papers_multi_table_reduction_does_not_keep_the_sensitivity() -> None:
    """Theorem 1.6 on a path: a row of R3 shares nothing with R1, so it joins all n rows of T. Ours keeps Δ."""
    papers = hard.reduction("path", (20, 10), 2, carried=False)
    ours = hard.reduction("path", (20, 10), 2)
    found = [facts(i.schema, i.arrow(), public=True) for i in (papers, ours)]
    assert [k.join_size for k in found] == [120, 120]
    assert [k.local for k in found] == [30, 4]  # stated: Δ = 2² = 4


def test_lambda_is_not_a_constant() -> None:
    """Example 4.2 and Appendix B: δ = 1/n^c makes λ = c·ln(n)/ε, not Θ(1)."""
    lam = [Task(budget=dj.Budget(epsilon=1.0, delta=n**-2.0), cells=2, queries=2, norm=1).lam for n in (10, 100, 1000)]
    assert lam == pytest.approx([2 * math.log(n) for n in (10, 100, 1000)])


def test_the_examples_sizes_are_not_the_stated_ones() -> None:
    """Example 4.2 at k = 512: n > 2 k² and OUT < 2 k², where the paper has n <= 2 k² and OUT = 6 k²."""
    k = 512
    instance = hard.example_gap(k)
    assert instance.rows > 2 * k**2
    assert instance.join_size < 2 * k**2 < 2 / 3 * k**2 * math.log2(k)


def test_the_join_is_not_a_function_on_whole_numbers_only() -> None:
    """Section 1.1 promises F: × D_i → N; Algorithm 2 returns an average. Rows drawn from it are whole."""
    schema = abc_schema(2, 2, 2)
    tables = {"R1": pa.table({"A": [1, 2, 2], "B": [1, 1, 1]}), "R2": pa.table({"B": [1], "C": [2]})}
    release = dj.release(schema, dj.Workload.marginals(schema, 1), tables, BUDGET, method="two_table", profile="paper")
    answers = np.asarray(release.answer())
    assert np.abs(answers - np.rint(answers)).max() > 1e-6
    assert release.sample(10, seed=1).num_rows == 10
