"""Bounds: against numbers worked out otherwise, between each other, and around what releases get."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.errors import SpecError
from dpjoin.privacy.residual import star
from dpjoin.theory import Facts, PrivateBounds, PrivateFacts, Task, bounds, facts, flawed, hard, lower, upper
from dpjoin.theory.exponents import worst_case_error_exponent
from dpjoin.theory.facts import configurations, copies_of, level_of, uniform_partition
from dpjoin.theory.reproduce import Case, asked, main, slope
from support.brute import BruteEngine
from support.paths import ROOT
from theory import LARGEST, between, families

BUDGET = dj.Budget(epsilon=1.0, delta=1e-6)


TASK = Task(budget=BUDGET, cells=1024, queries=300, norm=75)


def known_of(instance: hard.Instance) -> Facts:
    return facts(instance.schema, instance.arrow(), public=True)


# -- private and public --------------------------------------------------------------------------------------------


def test_what_private_tables_say_is_private() -> None:
    """Facts and bounds of private tables print as PRIVATE; of made-up ones they do not."""
    instance = hard.figure_3(4)
    tables = instance.arrow()
    private = facts(instance.schema, tables)
    assert isinstance(private, PrivateFacts)
    assert repr(private).startswith("PRIVATE")
    found = bounds(instance.schema, tables)
    assert isinstance(found, PrivateBounds)
    assert repr(found).startswith("PRIVATE")
    assert "PRIVATE" not in repr(bounds(instance.schema, tables, public=True))
    assert "PRIVATE" not in repr(facts(instance.schema, tables, public=True))
    assert "PRIVATE" not in repr(upper.worst_case(instance.schema, 100))


def test_a_release_is_compared_with_its_own_bounds() -> None:
    """Lower bound, what the release got, upper bound; of a method without a theorem those of the join as one table."""
    instance = hard.uniform("two_table", keys=50, degree=20, size=16, rng=np.random.default_rng(1))
    workload = dj.Workload.marginals(instance.schema, 2)
    release = dj.release(instance.schema, workload, instance.arrow(), BUDGET, method="two_table")
    found = bounds(instance.schema, instance.arrow(), release, public=True)
    assert found.join_size == instance.join_size
    assert found.measured == dj.evaluate(release, instance.arrow()).max_error
    assert found.neighbours == 10
    assert found.neighbours <= found.measured <= found.proved


def schema_of(tables: dict[str, str], public: str = "") -> dj.Schema:
    """Tables by their attributes, one letter and four values each."""
    made = (dj.Table(name=n, attributes=tuple(a), private=n not in public) for n, a in tables.items())
    return dj.Schema(
        tuple(made), tuple(dj.Attribute(name=a, range=(0, 3)) for a in sorted(set("".join(tables.values()))))
    )


def rows_of(schema: dj.Schema, count: int, seed: int = 0) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    return {t.name: pa.table({a: rng.integers(0, 4, count) for a in t.attributes}) for t in schema.tables}


SHAPES = {
    "one table": {"r": "ab"},
    "a cross product": {"r": "a", "s": "b"},
    "two joins": {"r": "ab", "s": "bc", "t": "de", "u": "ef"},
    "a table inside another": {"r": "b", "s": "bc"},
    "equal tables": {"r": "bc", "s": "bc"},
    "a cycle": {"r": "ab", "s": "bc", "t": "cd", "u": "da"},
    "a star of four": {"r": "ab", "s": "ac", "t": "ad", "u": "ae"},
}


@pytest.mark.parametrize("public", ["", "s"])
@pytest.mark.parametrize("count", [0, 12])
@pytest.mark.parametrize("shape", SHAPES)
def test_facts_of_any_join_are_those_of_brute_force(shape: str, count: int, public: str) -> None:
    """OUT and LS by adding and removing every row of every private table, for joins that the paper does not draw."""
    schema = schema_of(SHAPES[shape], public)
    tables = rows_of(schema, count)
    rows = {name: table.to_pylist() for name, table in tables.items()}

    def size(changed: dict[str, list[dict[str, int]]]) -> int:
        return BruteEngine(schema, changed).exact_join_size()

    here, changes = size(rows), [0]
    for table in schema.tables:
        if table.private:
            own, values = rows[table.name], product(range(4), repeat=len(table.attributes))
            more = [size({**rows, table.name: [*own, dict(zip(table.attributes, v, strict=True))]}) for v in values]
            less = [size({**rows, table.name: own[:i] + own[i + 1 :]}) for i in range(len(own))]
            changes += [abs(other - here) for other in (*more, *less)]
    found = bounds(schema, tables, public=True)
    assert (found.join_size, 2 * found.neighbours) == (here, max(changes))
    assert found.lower <= max(found.theorem, found.join_size)


@pytest.mark.parametrize("profile", ["paper", "tight"])
@pytest.mark.parametrize("method", ["two_table", "multi_table", "uniformize", "hierarchical"])
@pytest.mark.parametrize("public", ["", "t"])
def test_empty_joins_have_bounds_that_hold(public: str, method: str, profile: str) -> None:
    """Releases of nothing are noise, and the proved bound is above it: never 0."""
    two = method in ("two_table", "uniformize")
    schema = schema_of({"r": "ab", "t": "ac"} if two else {"r": "ab", "s": "ac", "t": "ad"}, public)
    tables, workload = rows_of(schema, 0), dj.Workload.marginals(schema, 1)
    if public and method == "uniformize":
        with pytest.raises(SpecError, match=r"^method 'uniformize' must have two tables, both private; leave it out"):
            bounds(schema, tables, method=method)
        return
    release = dj.release(schema, workload, tables, BUDGET, method=method, profile=profile)
    found = bounds(schema, tables, release, public=True)
    assert found.measured is not None
    assert 0 == found.neighbours <= found.measured <= found.proved


@pytest.mark.parametrize("profile", ["paper", "tight"])
@pytest.mark.parametrize("method", ["uniformize", "hierarchical"])
@pytest.mark.parametrize("hot", ["r", "s"])
def test_hot_values_without_partners_are_in_the_bounds(hot: str, method: str, profile: str) -> None:
    """A value that only one table has gives no results, but a part with noise for its degree: 20,000 rows of b = 3."""
    schema, rng = schema_of({"r": "ab", "s": "bc"}), np.random.default_rng(0)
    rows = {t.name: {x: rng.integers(0, 3, 5) for x in t.attributes} for t in schema.tables}
    rows[hot] = {x: np.append(v, np.full(20_000, 3)) for x, v in rows[hot].items()}
    tables, workload = {n: pa.table(of) for n, of in rows.items()}, dj.Workload.marginals(schema, 1)
    release = dj.release(schema, workload, tables, BUDGET, method=method, profile=profile)
    found = bounds(schema, tables, release, public=True)
    assert found.measured is not None
    assert max(found.measured, found.neighbours) <= found.proved
    assert found.neighbours <= found.theorem


def test_public_tables_have_no_rows_to_hide() -> None:
    """Half the sensitivity and the levels' lower bound are about rows of private tables only."""
    tables, rows = {"r": "ab", "s": "bc"}, {"a": [0] * 3, "b": [0] * 3, "c": [0]}
    given = {"r": pa.table({a: rows[a] for a in "ab"}), "s": pa.table({"b": [0], "c": [0]})}
    both, one = (bounds(schema_of(tables, p), given, public=True, method="hierarchical") for p in ("", "s"))
    assert (both.neighbours, one.neighbours) == (1.5, 0.5)
    private, public = (facts(schema_of(tables, p), given, public=True) for p in ("", "s"))
    # Levels by units of 1: degree 3 lies in (2, 4], degree 1 in (1/2·2, 2].
    assert [c.local for k in (private, public) for c in configurations(k, 1.0)] == [4.0, 2.0]


def test_a_single_table_has_the_theorems_about_single_tables() -> None:
    """Theorem 1.3: sqrt(n)·f_upper; Theorem 1.4: min{n, sqrt(n)·f_lower}; sensitivity one."""
    schema = schema_of({"r": "ab"})
    found = bounds(schema, rows_of(schema, 50), public=True)
    task = Task.of(dj.Workload.marginals(schema, 2), BUDGET)
    assert found.theorem == pytest.approx(math.sqrt(50) * task.f_upper)
    assert found.lower == pytest.approx(min(50, math.sqrt(50) * task.f_lower))
    assert found.neighbours == 0.5


def test_joins_of_keys_alone_have_bounds_of_the_join_size() -> None:
    """The hard instances as the paper draws them have nothing to ask about but how many results there are."""
    instance = hard.reduction("path", (2, 1), 2)
    found = bounds(instance.schema, instance.arrow(), public=True)
    assert (found.join_size, found.neighbours) == (instance.join_size, instance.sensitivity / 2)


def test_bounds_know_the_weights_of_queries() -> None:
    """Four prefixes of one attribute: a result is in all four at worst. Products of signs are twice as wide."""
    schema = schema_of({"r": "ab", "s": "bc"})
    signs = dj.Workload.products(schema, {"r": (("a",), [[1, -1, 1, -1], [0.5, 0, 0, 0.5]])})
    cells, prefixes, ranges = (dj.Workload.marginals(schema, 1), dj.Workload.prefixes, dj.Workload.ranges)
    tasks = [Task.of(w, BUDGET) for w in (cells, prefixes(schema, ["a"]), ranges(schema, ["a"]), signs)]
    # Ranges: the second of four values lies in 2·3 of them. Signs: halves of widths 2 and 0.5, squared.
    assert [(t.norm, t.width) for t in tasks] == [(3, 1), (4, 1), (6, 1), (1 + 0.25**2, 2)]
    both = [upper.tight_part(100.0, 50.0, replace(TASK, width=w), 0.02, 0.001, 0.05) for w in (1.0, 2.0)]
    assert both[0] < both[1] <= 2 * both[0]


@pytest.mark.parametrize("profile", ["paper", "tight"])
def test_ranges_lie_below_their_bound(profile: str) -> None:
    """32 values have 528 ranges, 272 of them at one cell: measured together they cost more than a marginal does."""
    instance = hard.uniform("two_table", keys=200, degree=30, size=32, rng=np.random.default_rng(1))
    workload = dj.Workload.ranges(instance.schema, ["v1"])
    given = (instance.schema, workload, instance.arrow(), BUDGET)
    release = dj.release(*given, method="two_table", profile=profile)
    found = bounds(instance.schema, instance.arrow(), release, public=True)
    assert found.measured is not None
    assert found.neighbours <= found.measured <= found.proved
    assert Task.of(workload, BUDGET).norm == 16 * 17


REFUSED = {
    "profile ('papper') must be one of tight, paper; did you mean 'paper'?": {"profile": "papper"},
    "method ('capped') must be one of single_table, two_table": {"method": "capped"},
    "method 'single_table' must have one table; leave it out": {"method": "single_table"},
    "budget (a tuple) must be a Budget": {"budget": (pa.table({"a": [1]}),)},
    "release ('out') must be a Release": {"release": "out"},
    "budget (0) must be a Budget": {"budget": 0},
    "workload (()) must be a Workload": {"workload": ()},
    "method ('') must be one of single_table, two_table": {"method": ""},
    "weights of 'sum of a' (3) must lie in [-1, 1]; leave the group out": {
        "workload": dj.Workload.sums(schema_of({"r": "ab", "s": "bc"}), ["a"])
    },
    "bounds must be of a release, or of a workload and a budget, not both": {"release": "x", "budget": BUDGET},
    "workload ('all') must be a Workload": {"workload": "all"},
    "the workload, or the release, must be of the schema": {
        "workload": dj.Workload.marginals(schema_of({"x": "pq", "y": "qz"}), 1)
    },
    "public ('no') must be true or false": {"public": "no"},
    "tables must map each table's name to its rows, not be list": {"tables": [pa.table({"a": [1]})]},
    "schema (None) must be a Schema": {"schema": None},
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_cannot_be_compared_gets_one_line(words: str) -> None:
    """Wrong arguments: what, the value where it is no row of a table, and what is right."""
    schema = schema_of({"r": "ab", "s": "bc"})
    given = {"schema": schema, "tables": rows_of(schema, 3), **REFUSED[words]}
    with pytest.raises(SpecError, match=f"^{re.escape(words)}") as caught:
        bounds(given.pop("schema"), given.pop("tables"), **given)
    assert "\n" not in str(caught.value)


def test_theorems_are_about_rows_and_known_domains() -> None:
    """Persons and learned domains are refused: no theorem of the paper is about them."""
    schema = schema_of({"r": "ab", "s": "bc"})
    persons = replace(schema, unit=("b",))
    with pytest.raises(SpecError, match=r"^the unit of privacy must be one row"):
        facts(persons, rows_of(schema, 3))
    learned = dj.Schema(schema.tables, (dj.Attribute(name="a", learn=True), *schema.attributes[1:]))
    with pytest.raises(SpecError, match=r"^domains must be declared, not learned"):
        facts(learned, rows_of(schema, 3))


@pytest.mark.parametrize(("method", "shape"), [("hierarchical", "a cycle"), ("uniformize", "a star of four")])
def test_methods_beyond_their_theorem_are_refused(method: str, shape: str) -> None:
    """And a release by such a method is compared with the bounds of the join as one table."""
    with pytest.raises(SpecError, match=f"^method '{method}' must have two .*; leave it out to take the join as one"):
        bounds((schema := schema_of(SHAPES[shape])), rows_of(schema, 3), method=method)
    star = schema_of({"r": "ab", "s": "ac", "t": "ad"})
    tables, workload = rows_of(star, 3), dj.Workload.marginals(star, 1)
    release = dj.release(star, workload, tables, BUDGET, method="uniformize")
    found = bounds(star, tables, release, public=True)
    as_one = bounds(star, tables, workload=workload, method="multi_table", public=True)
    assert replace(found, measured=None) == as_one


# -- statistics ----------------------------------------------------------------------------------------------------


def test_the_uniform_partition_adds_up() -> None:
    """Definition 4.3: levels by the larger degree; the parts' sizes sum to the join size."""
    instance = hard.conforming([(7, 3), (5, 20), (2, 90)])
    known = known_of(instance)
    assert uniform_partition(known, 5.0) == {1: 21, 2: 100, 5: 180}
    assert [level_of(d, 5.0) for d in (0, 1, 5, 10, 11, 20, 21)] == [1, 1, 1, 1, 2, 2, 3]
    with pytest.raises(SpecError, match="two tables"):
        uniform_partition(known_of(hard.reduction("star", (2,), 2)), 5.0)


FIGURE_4 = {"x1": "ABD", "x2": "ABF", "x3": "ABGK", "x4": "ABGL", "x5": "AC"}


def figure_4_instance(rng: np.random.Generator) -> tuple[dj.Schema, dict[str, list[dict[str, int]]]]:
    names = sorted(set("".join(FIGURE_4.values())))
    schema = dj.Schema(
        tuple(dj.Table(name=n, attributes=tuple(a)) for n, a in FIGURE_4.items()),
        tuple(dj.Attribute(name=a, range=(0, 1)) for a in names),
    )
    rows = {n: [{a: int(rng.integers(2)) for a in letters} for _ in range(9)] for n, letters in FIGURE_4.items()}
    return schema, rows


@pytest.mark.parametrize("seed", range(4))
def test_configurations_cut_the_join_and_their_caps_hold(seed: int) -> None:
    """Lemmas 4.8 and 4.10 on Figure 4's join: the parts' sizes sum to the join's, and T_E <= T^sigma_E in each."""
    import pyarrow as pa

    schema, rows = figure_4_instance(np.random.default_rng(seed))
    known = facts(schema, {n: pa.Table.from_pylist(r) for n, r in rows.items()}, public=True)
    found = configurations(known, 1.0)
    assert sum(c.join_size for c in found) == BruteEngine(schema, rows).exact_join_size()
    assert len(found) > 1
    (whole,) = configurations(known, 1e6)
    true = BruteEngine(schema, rows)
    for subset in known.boundaries.values:
        assert true.exact_boundary(subset) <= whole.boundary(subset)
    # Figure 4: T_345 is bounded by mdeg_5(A) · mdeg_34(AB) · mdeg_3(ABG) · mdeg_4(ABG).
    parts = [{"x5"}, {"x3", "x4"}, {"x3"}, {"x4"}]
    assert whole.boundary(frozenset({"x3", "x4", "x5"})) == math.prod(whole.caps[frozenset(p)] for p in parts)
    assert whole.local <= whole.residual(0.1)
    assert copies_of(known, 1e6) == 1


def test_only_hierarchical_joins_have_configurations() -> None:
    with pytest.raises(SpecError, match="hierarchical"):
        configurations(known_of(hard.reduction("path", (2,), 2)), 1.0)


# -- the theorems' formulas ----------------------------------------------------------------------------------------


def test_upper_bounds_are_the_formulas() -> None:
    """Worked by hand: OUT = 10^6, Delta = 100, lambda = 13.8155, |D| = 1024, |Q| = 300."""
    known = Facts(rows=20_000, join_size=10**6, boundaries=star((100, 100)), schema=hard.figure_2().schema, degrees={})
    f_upper = math.sqrt(math.sqrt(math.log(1024))) * math.sqrt(math.log(300) * math.log(1e6))
    assert upper.theorem(known, TASK, "two_table") == pytest.approx(
        (math.sqrt(1e6 * 113.8155) + 113.8155 * math.sqrt(13.8155)) * f_upper, rel=1e-5
    )
    # Two tables of degree 100: residual sensitivity at beta = 1/13.8 is attained at k = 0.
    assert upper.theorem(known, TASK, "multi_table") == pytest.approx(
        (math.sqrt(1e6 * 100) + 100 * math.sqrt(13.8155)) * f_upper, rel=1e-5
    )
    assert lower.theorem(known, TASK, "two_table") == pytest.approx(math.sqrt(1e8) * math.log(1024) ** 0.25, rel=1e-9)


def test_uniformized_bounds_are_no_worse_up_to_lambda_and_better_on_the_gap() -> None:
    """Equation 2: by Cauchy-Schwarz at most TwoTable's; on Example 4.2 the sum of square roots grows more slowly."""
    sums = []
    for k in (8, 64, 512):
        known = known_of(hard.example_gap(k))
        parts = uniform_partition(known, TASK.lam)
        summed = sum(math.sqrt(size * 2**i * TASK.lam) for i, size in parts.items())
        widest = 2 ** max(parts) * TASK.lam
        assert summed <= math.sqrt(known.join_size) * math.sqrt(2 * widest) + 1e-6
        sums.append(summed / math.sqrt(known.join_size * (known.local + TASK.lam)))
    assert sums[2] < sums[1] < sums[0]


def test_hierarchical_bounds_of_two_tables_lie_around_the_two_table_ones() -> None:
    """Theorems C.2 and C.3 on a two-table join, which is hierarchical too."""
    known = known_of(hard.uniform("two_table", keys=20, degree=30, size=8, rng=np.random.default_rng(0)))
    assert lower.theorem(known, TASK, "hierarchical") >= lower.theorem(known, TASK, "two_table")
    assert upper.theorem(known, TASK, "hierarchical") >= upper.theorem(known, TASK, "two_table")


@pytest.mark.parametrize("method", upper.BOUNDED_METHODS)
@pytest.mark.parametrize("profile", ["paper", "tight"])
def test_proved_bounds_are_never_below_the_lower_ones(method: str, profile: str) -> None:
    """And at most the (noisy) size of the join and its parts."""
    known = known_of(hard.uniform("two_table", keys=60, degree=30, size=8, rng=np.random.default_rng(0)))
    found = upper.proved(known, TASK, method, profile)
    assert lower.neighbours(known.local, epsilon=1.0, delta=1e-6)[0] < found


def test_worst_case_exponents() -> None:
    """Appendix B: n^1.5 for two tables, n^1.25 for the triangle (rho = 3/2 and 1), n^(m - 1/2) with repeated rows."""
    for shape, exponent in (("two_table", 1.5), ("star", 2.5), ("path", 2.0), ("triangle", 1.25)):
        schema = hard.shape_schema(shape, {})
        assert float(worst_case_error_exponent(schema)) == exponent
        assert upper.worst_case(schema, 100) == pytest.approx(100**exponent)
        assert upper.worst_case(schema, 100, repeated_rows=True) == pytest.approx(100 ** (len(schema.tables) - 0.5))


# -- lower bounds with constants -----------------------------------------------------------------------------------


def test_neighbours_bound_is_attained_by_the_best_mechanism_for_two_worlds() -> None:
    """Theorem 3.4: randomised response between two sizes errs with probability 1/(1 + e^eps): exactly the bound."""
    error, probability = lower.neighbours(10, epsilon=1.0, delta=0.0)
    assert error == 5
    assert probability == pytest.approx(1 / (1 + math.e))
    assert lower.neighbours(10, epsilon=1.0, delta=1e-6, rows=3)[0] == 15
    assert lower.neighbours(1, epsilon=0.1, delta=0.9)[1] == pytest.approx(0.1 / (1 + math.exp(0.1)))


def test_the_fingerprinting_lemma_by_enumeration() -> None:
    """E[f(X) Σ(X_i - P)] = 2 E[P f(X)] for uniform P, and the lemma's sum is at least 1/3; n = 3, random f."""
    rng = np.random.default_rng(0)
    signs = np.array([[2 * (i >> j & 1) - 1 for j in range(3)] for i in range(8)])
    grid = (np.arange(4000) + 0.5) / 2000 - 1
    law = np.stack([np.prod((1 + signs * p) / 2, axis=1) for p in grid])
    for _ in range(5):
        f = rng.uniform(-1, 1, 8)
        left = np.mean(np.sum(law * f * (signs.sum(axis=1) - 3 * grid[:, None]), axis=1))
        assert left == pytest.approx(np.mean(2 * grid * (law @ f)), abs=1e-5)
        squared = np.mean(law @ (f - signs.mean(axis=1)) ** 2)
        assert left + squared >= 1 / 3 - 1e-5


def test_fingerprinting_needs_more_bits_than_people() -> None:
    """Zero where it says nothing; never more than n/2 of a count; grows with the bits, scales with the sensitivity."""
    bound = lower.fingerprinting
    assert bound(100, 10, epsilon=1.0, delta=1e-9) == 0
    few, many = (bound(20, d, epsilon=1.0, delta=1e-9) for d in (300, 3000))
    assert 0 < few < many < 10
    assert bound(20, 3000, epsilon=1.0, delta=1e-9, sensitivity=7) == pytest.approx(7 * many)


# -- measured errors lie between -----------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["paper", "tight"])
def test_hard_families_lie_between_their_bounds(profile: str) -> None:
    """One run on every family and method of the benchmark (few bits): proved lower <= measured <= proved."""
    seen = set()
    for case, method, budget, traced in ((b.case, b.method, b.budget, b.traced) for b in families(4)):
        known, task = facts(case.schema, case.tables, public=True), Task.of(case.workload, budget)
        least = max(traced, lower.neighbours(known.local, epsilon=budget.epsilon, delta=budget.delta)[0])
        if profile == "paper" and case.workload.cells > LARGEST:
            continue
        (error,) = case.errors(1, budget=budget, method=method, profile=profile)
        assert least <= error <= upper.proved(known, task, method, profile), case.name
        seen.add(method)
    assert seen == set(upper.BOUNDED_METHODS) - {"single_table"}


@pytest.mark.parametrize("method", ["uniformize", "hierarchical"])
@pytest.mark.parametrize("profile", ["paper", "tight"])
def test_partitioned_releases_lie_between_their_bounds(profile: str, method: str) -> None:
    """Theorem 4.4 and C.2 with constants, on a family with two levels: the median of three runs."""
    instance = hard.with_bits(hard.conforming([(100, 20), (20, 200)]), 4, np.random.default_rng(2))
    case = Case("", instance.schema, instance.arrow(), dj.Workload.marginals(instance.schema, 1))
    known, task = facts(case.schema, case.tables, public=True), Task.of(case.workload, BUDGET)
    error = median(case.errors(3, method=method, profile=profile))
    assert lower.neighbours(known.local, epsilon=1.0, delta=1e-6)[0] <= error
    assert error <= upper.proved(known, task, method, profile)


def test_tracing_says_more_than_half_the_sensitivity_from_145_bits_on() -> None:
    """At (1, 1e-6); with 5 people. So no family with tracing at ε = 1 fits `paper`, which holds all 2^bits cells."""
    best = {d: max(lower.fingerprinting(n, d, epsilon=1.0, delta=1e-6) for n in range(1, 50)) for d in (144, 145)}
    assert best[144] < 0.5 < best[145] == lower.fingerprinting(5, 145, epsilon=1.0, delta=1e-6)
    assert LARGEST == 2**20
    # At ε = 0.1 twelve bits are enough: a family with tracing for both profiles.
    assert lower.fingerprinting(24, 12, epsilon=0.1, delta=1e-6) > 5 * 0.5


@pytest.mark.parametrize("profile", ["paper", "tight"])
def test_a_real_join_lies_between_its_bounds(profile: str) -> None:
    """Flights and weather of the demo, carriers and delays alone: half the sensitivity <= measured <= proved."""
    spec = dj.Spec.from_toml(ROOT / "src" / "dpjoin" / "data" / "demo.toml")
    workload = dj.Workload.marginals(spec.schema, [("carrier",), ("delay",)])
    release = dj.release(spec.schema, workload, spec.sources(), BUDGET, method="two_table", profile=profile)
    found = bounds(spec.schema, spec.sources(), release)
    assert repr(found).startswith("PRIVATE")
    assert found.measured is not None
    assert found.neighbours <= found.measured <= found.proved


def test_the_committed_results_lie_between_their_bounds() -> None:
    """Every hard family and every real join on the page of results: medians, and the releases one by one."""
    text = (ROOT / "docs" / "figures" / "theory-between.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\| tables \|[^\n]*\n\|[ -|]*\n((?:\|.*\n)*)", text, flags=re.MULTILINE)
    hardest, real = ([[c.strip() for c in line.strip("|").split("|")] for line in t.splitlines()] for t in tables)
    assert [row[0] for row in hardest] == [b.case.name for b in families(2)]
    assert len(real) == 16  # all queries of the development data
    outside = every = 0
    for name, *numbers, inside in hardest + real:
        _, _, least, _, *pairs, auto = (float(n.replace(",", "") or "nan") for n in numbers)
        for measured, most in zip(pairs[::2], pairs[1::2], strict=True):
            assert least <= measured <= most or (math.isnan(measured) and name.endswith("many bits")), name
        assert least <= auto, name
        within, made = map(int, inside.split(" of "))
        assert made == (7 if name.endswith("many bits") else 14)
        outside, every = outside + made - within, every + made
    assert outside <= 0.05 * every  # each bound may fail once in twenty


# -- attacks, fits, the command ------------------------------------------------------------------------------------


def test_both_flawed_ideas_are_told_apart_more_often_than_privacy_allows() -> None:
    """Figure 1 at n = 200: right guesses beyond (e^eps + delta)/(1 + e^eps)."""
    allowed = flawed.best_guess(BUDGET)
    assert allowed == pytest.approx(0.7311, abs=1e-4)
    assert flawed.success(flawed.idea_one, 5, BUDGET, 20) == 1
    assert flawed.success(flawed.idea_two, 300, BUDGET, 40) > allowed + 0.1


def test_slopes_have_intervals() -> None:
    """A power law with noise: the exponent lies in its 95 % interval."""
    rng = np.random.default_rng(3)
    points = [
        (float(x), 3 * x**0.5 * math.exp(0.1 * rng.standard_normal())) for x in np.repeat((10, 30, 90, 270, 810), 7)
    ]
    found, width = slope(points)
    assert abs(found - 0.5) <= width < 0.05


def test_the_reproduction_runs(tmp_path: Path) -> None:
    """Its quick size writes every figure and the page of results."""
    assert main(["--quick", "--to", str(tmp_path)]) == 0
    figures = {f.name for f in tmp_path.iterdir()}
    assert figures == {
        *(f"theory-{n}.svg" for n in ("two_table", "bounds", "gap", "attacks", "time")),
        "theory-results.md",
    }
    for figure in tmp_path.glob("*.svg"):
        import xml.etree.ElementTree as xml

        assert xml.parse(figure).getroot().tag.endswith("svg")


def test_the_queries_of_a_case_are_nested() -> None:
    """More queries hold the fewer ones, so that errors against |Q| compare like with like."""
    instance = hard.uniform("star", keys=2, degree=2, size=8, rng=np.random.default_rng(0))
    few, many = (asked("", instance, n).workload.groups[0] for n in (3, 9))
    assert all((a[1] == b[1][:3]).all() for a, b in zip(few.parts, many.parts, strict=True))  # type: ignore[union-attr]
    assert between("", [], 1).count("inside") == 1
