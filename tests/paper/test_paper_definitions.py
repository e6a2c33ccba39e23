"""The paper's definitions by hand, and its algorithms as the ledger of a release with its constants shows them."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.privacy.residual import local_sensitivity, residual_sensitivity, star
from dpjoin.privacy.truncated import laplace_delta, paper_laplace_half_width
from dpjoin.released.release import Release
from dpjoin.spec.hypergraph import attribute_tree, boundary, residual_components
from dpjoin.theory import Task, facts, hard, lower, upper
from dpjoin.theory.facts import configurations, copies_of
from dpjoin.theory.reproduce import Case
from support.brute import BruteEngine
from support.gauge import ls_at_by_loops

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


HALF, QUARTER = (Fraction(1, n) for n in (2, 4))


def small() -> tuple[dj.Schema, dict[str, list[dict[str, int]]]]:
    """R1(A, B), R2(B, C): (a0, b0) twice, (a1, b0), (a1, b1) and (b0, c0), (b0, c1), (b1, c1)."""
    schema = hard.shape_schema("two_table", {"A": 2, "B": 2, "C": 2})
    first = [{"A": a, "B": b} for a, b in ((0, 0), (0, 0), (1, 0), (1, 1))]
    return schema, {"R1": first, "R2": [{"B": b, "C": c} for b, c in ((0, 0), (0, 1), (1, 1))]}


@cache
def released(shape: str, method: str, degree: int = 20) -> tuple[hard.Instance, Release]:
    instance = hard.uniform(shape, keys=20, degree=degree, size=8, rng=np.random.default_rng(0))
    workload = dj.Workload.marginals(instance.schema, 1)
    return instance, dj.release(instance.schema, workload, instance.arrow(), BUDGET, method=method, profile="paper")


# -- definitions ---------------------------------------------------------------------------------------------------


def test_join_size_and_linear_queries_by_hand() -> None:
    """Section 1.1: multiplicities multiply; 3·2 + 1·1 = 7 results; a query weighs each by the product of its parts."""
    schema, rows = small()
    engine = BruteEngine(schema, rows)
    assert engine.exact_join_size() == 7
    weights = {"R1": (("A",), [[1.0, 0.5]]), "R2": (("C",), [[0.0, 1.0]])}
    (group,) = dj.Workload.products(schema, weights).groups
    (answer,) = engine.exact_answers([group])
    # c1 at b0: a0 twice, a1 once (half); at b1: a1 (half).
    assert float(answer[0] * group.unit) == 2 + 0.5 + 0.5


def test_neighbours_differ_by_one_row_of_one_table() -> None:
    """Definition 1.1, and the local sensitivity is the largest change of the join size over them."""
    schema, rows = small()
    size = BruteEngine(schema, rows).exact_join_size()
    changes = []
    for name, own in rows.items():
        for i in range(len(own)):
            changes.append(size - BruteEngine(schema, {**rows, name: own[:i] + own[i + 1 :]}).exact_join_size())
        for value in range(4):
            row = dict(zip(own[0], divmod(value, 2), strict=True))
            changes.append(BruteEngine(schema, {**rows, name: [*own, row]}).exact_join_size() - size)
    tables = {n: pa.Table.from_pylist(r) for n, r in rows.items()}
    assert max(changes) == facts(schema, tables, public=True).local == 3


def test_differential_privacy_of_the_papers_noise_by_enumeration() -> None:
    """Definition 1.2 for truncated Laplace noise (Section 2): the excess of one law over e^ε of the other is δ."""
    epsilon, half_width = 0.7, 9
    law = np.exp(-epsilon * np.abs(np.arange(2 * half_width + 1) - half_width))
    law /= law.sum()
    one, two = np.append(law, 0), np.append(0, law)
    excess = max(float(np.maximum(0, p - math.exp(epsilon) * q).sum()) for p, q in ((one, two), (two, one)))
    stated = float(laplace_delta(epsilon=Fraction(epsilon), sensitivity=1, half_width=half_width))
    assert excess == pytest.approx(stated, rel=1e-9)


def test_boundary_values_by_hand() -> None:
    """Equation 1: T_1 = 3 rows of R1 at b0, T_2 = 2 rows of R2 at b0, T of nothing = 1."""
    schema, rows = small()
    engine = BruteEngine(schema, rows)
    assert [engine.exact_boundary(frozenset(e)) for e in ({"R1"}, {"R2"}, ())] == [3, 2, 1]
    assert boundary(schema, frozenset({"R1"})) == ("B",)


def test_residual_sensitivity_by_hand() -> None:
    """Definition 3.6 for T = (3, 2): LŜ^k = 3 + k, so the maximum of e^(-βk)(3 + k) is at k = 1/β - 3."""
    b = star((3, 2))
    assert local_sensitivity(b) == 3
    assert [ls_at_by_loops(b, k) for k in range(4)] == [3, 4, 5, 6]
    beta = Fraction(1, 10)
    assert float(residual_sensitivity(b, beta)) == pytest.approx(max(math.exp(-k / 10) * (3 + k) for k in range(100)))


def test_q_aggregate_queries_fall_into_components() -> None:
    """Definition 4.6 and its cases: T_E of a star's two leaves is at most the product of its components' values."""
    instance = hard.uniform("star", keys=3, degree=2, size=8, rng=np.random.default_rng(0))
    known = facts(instance.schema, instance.arrow(), public=True)
    two, values = frozenset({"R1", "R2"}), known.boundaries.values
    parts = residual_components(instance.schema, two)
    assert set(parts) == {frozenset({"R1"}), frozenset({"R2"})}
    assert values[two] <= math.prod(values[p] for p in parts)


def test_maximum_degrees_belong_to_nodes_of_the_tree() -> None:
    """Definition 4.7, Lemma 4.8, Definition 4.9: a configuration has a cap for every node but the root, no other."""
    instance = hard.uniform("star", keys=3, degree=5, size=8, rng=np.random.default_rng(0))
    known = facts(instance.schema, instance.arrow(), public=True)
    root = attribute_tree(instance.schema)
    assert root is not None
    (found,) = configurations(known, 1.0)
    assert set(found.caps) == {node.tables for node in root.walk() if node is not root}
    assert set(found.caps.values()) == {8.0}  # the level (4, 8] holds degree 5
    assert found.local == 64


# -- algorithms ----------------------------------------------------------------------------------------------------


def test_algorithm_1_bounds_the_degree_with_half_the_budget() -> None:
    """Line 1: Δ + TLap with scale 2/ε and τ(ε/2, δ/2, 1); line 2: PMW with (ε/2, δ/2, Δ̃). Lemma 3.2: (ε, δ) in all."""
    instance, release = released("two_table", "two_table")
    first = release.ledger.events[0]
    width = paper_laplace_half_width(epsilon=HALF, delta=BUDGET.exact.delta / 2, sensitivity=1)
    assert first.parameters == {"scale": 2, "half_width": width}
    assert instance.sensitivity <= release.facts["sensitivity_bound"] <= instance.sensitivity + 2 * width
    assert (release.ledger.epsilon, release.ledger.delta) == (BUDGET.exact.epsilon, BUDGET.exact.delta)


def test_algorithm_2_is_what_the_ledger_says() -> None:
    """n̂ with scale 2Δ̃/ε, then k rounds of a choice and a Laplace measurement with ε/(16·sqrt(k·ln(1/δ))) each."""
    _, release = released("two_table", "two_table")
    bound = release.facts["sensitivity_bound"]
    size, rounds = release.ledger.events[1:3]
    assert size.parameters["scale"] == bound / QUARTER
    count = int(rounds.parameters["count"]) // 2
    logs = math.sqrt(math.log(64)) / (math.log(16) * math.sqrt(math.log(2 / BUDGET.delta)))
    assert count == int(release.facts["join_size"] * 0.5 / bound * logs) > 1
    each = 0.5 / (16 * math.sqrt(count * math.log(1 / (BUDGET.delta / 2))))
    assert float(rounds.parameters["epsilon_each"]) == pytest.approx(each, rel=1e-9)
    kinds = [e.mechanism for e in release.ledger.events[3:]]
    assert kinds == ["exponential mechanism", "discrete Laplace"] * count
    assert {e.moves for e in release.ledger.events[3:]} == {bound}


@pytest.mark.parametrize("shape", ["star", "path", "triangle"])
def test_algorithm_3_bounds_the_residual_sensitivity(shape: str) -> None:
    """β = 1/λ; Δ̃ = RS·exp(TLap) on a grid of 16 steps for each β. Lemma 3.7: (ε, δ) in all."""
    instance, release = released(shape, "multi_table", 6)
    first = release.ledger.events[0]
    assert float(first.parameters["beta"]) == pytest.approx(BUDGET.epsilon / math.log(1 / BUDGET.delta), rel=1e-5)
    known = facts(instance.schema, instance.arrow(), public=True)
    beta, bound = float(first.parameters["beta"]), release.facts["sensitivity_bound"]
    most = 2 * float(first.parameters["half_width"]) / 16 + 1 / 16
    assert known.residual(beta) * 0.99 <= bound <= known.residual(beta) * math.exp(beta * most)
    assert (release.ledger.epsilon, release.ledger.delta) == (BUDGET.exact.epsilon, BUDGET.exact.delta)


def test_algorithms_4_and_5_partition_by_noisy_degrees() -> None:
    """Half the budget on degrees, each with TLap of scale 2/ε; then Algorithm 1 in every bucket. Lemmas 4.1 and C.1."""
    instance, release = released("two_table", "uniformize", 60)
    degrees = [e for e in release.ledger.events if e.purpose.startswith("degrees")]
    assert {e.part for e in degrees} == {"degrees of R1", "degrees of R2"}
    assert {e.cost.epsilon for e in degrees} == {HALF}  # type: ignore[union-attr]
    assert len(release.facts["parts"]) == 2
    assert release.facts["parts"][0]["values"] == "all that are not listed"
    assert release.facts["parts"][1]["values"] == "20 listed"
    assert all(p["sensitivity_bound"] >= 1 for p in release.facts["parts"])
    assert (release.ledger.epsilon, release.ledger.delta) == (BUDGET.exact.epsilon, BUDGET.exact.delta)
    assert instance.sensitivity == 60


def test_algorithms_6_and_7_go_up_the_tree() -> None:
    """A question for every node but the root, then every part; Lemmas 4.10 and 4.11 with the budget exactly."""
    _, release = released("star", "hierarchical", 6)
    degrees = {e.part for e in release.ledger.events if e.purpose.startswith("degrees")}
    assert degrees == {f"rows of R{i} per A" for i in (1, 2, 3)}
    assert (release.ledger.epsilon, release.ledger.delta) == (BUDGET.exact.epsilon, BUDGET.exact.delta)


def test_parts_of_a_hierarchical_join_are_its_partition() -> None:
    """Lemma 4.10: the parts' joins add up to the join; a row of a star is in one part only."""
    rows = {
        f"R{i}": [{"A": a, x: j % 4} for a in range(6) for j in range(a + i)] for i, x in ((1, "B"), (2, "C"), (3, "D"))
    }
    schema = hard.shape_schema("star", {"B": 4, "C": 4, "D": 4})
    known = facts(schema, {n: pa.Table.from_pylist(r) for n, r in rows.items()}, public=True)
    found = configurations(known, 1.0)
    assert len(found) > 2
    assert sum(c.join_size for c in found) == BruteEngine(schema, rows).exact_join_size()
    assert copies_of(known, 1.0) == 1


# -- theorems about one table, and what follows from them ----------------------------------------------------------


def test_a_single_table_has_sensitivity_one() -> None:
    """Theorem 1.3: with one table nothing is spent on a bound; PMW has the whole budget."""
    schema = dj.Schema((dj.Table(name="T", attributes=("x",)),), (dj.Attribute(name="x", range=(0, 7)),))
    table = {"T": pa.table({"x": [0] * 400 + [1] * 100})}
    release = dj.release(schema, dj.Workload.marginals(schema, 1), table, BUDGET, profile="paper")
    assert release.facts["sensitivity_bound"] == 1
    assert release.ledger.events[0].purpose == "join size"
    assert release.ledger.events[0].cost.epsilon == HALF  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", hard.SHAPES)
def test_lower_bounds_scale_as_the_reductions_do(shape: str) -> None:
    """Theorems 1.4, 1.6 and 3.5: amplifying a single table by Δ amplifies what min{n, sqrt(n)·f} says by Δ."""
    task = Task(budget=BUDGET, cells=1024, queries=300, norm=75)
    instance = hard.reduction(shape, (12, 12), 3)
    known = facts(instance.schema, instance.arrow(), public=True)
    single = min(24, math.sqrt(24) * task.f_lower)
    assert lower.theorem(known, task, upper.as_one(len(instance.tables))) == pytest.approx(single * known.local)


def test_the_instance_optimal_lower_bound_is_the_worst_level() -> None:
    """Theorems 4.5 and C.3: the largest of the levels' bounds, each with its own sensitivity."""
    task = Task(budget=BUDGET, cells=1024, queries=300, norm=75)
    known = facts((i := hard.conforming([(500, 20), (30, 200)])).schema, i.arrow(), public=True)
    levels = {level: (size, 2**level * task.lam) for level, size in ((1, 10_000), (4, 6_000))}
    each = [min(size, math.sqrt(size * bound) * task.f_lower) for size, bound in levels.values()]
    assert lower.theorem(known, task, "uniformize") == pytest.approx(max(each))
    assert lower.theorem(known, task, "hierarchical") > 0


def test_pmw_is_as_private_on_neighbours_as_stated_and_learns() -> None:
    """Theorem A.1 and Lemma A.2 on made-up data: the proved bound holds, and the error is below the uniform guess's."""
    instance = hard.uniform("two_table", keys=400, degree=60, size=8, rng=np.random.default_rng(7))
    workload = dj.Workload.marginals(instance.schema, 1)
    release = dj.release(instance.schema, workload, instance.arrow(), BUDGET, method="two_table", profile="paper")
    known = facts(instance.schema, instance.arrow(), public=True)
    error = dj.evaluate(release, instance.arrow()).max_error
    assert error <= upper.proved(known, Task.of(workload, BUDGET), "two_table", "paper")
    exact = Case("", instance.schema, instance.arrow(), workload).exact()
    assert error < 0.7 * np.abs(exact - instance.join_size / 8).max()
