"""After a look, what is left of rho may be exchanged for Laplace noise: by noisy numbers, and never for more."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin import constants
from dpjoin.auto.plan import plan
from dpjoin.constants import EARLY_LAPLACE, LAPLACE_SHARE
from dpjoin.errors import BudgetError, SpecError
from dpjoin.measure.ranks import combined_ranks
from dpjoin.measure.shares import with_laplace_options, without_choices
from dpjoin.methods.method import gaussian_only
from dpjoin.methods.remainder import Remainder, laplace_remainder
from dpjoin.methods.remainder import after_look_budget as optional
from dpjoin.privacy.accounting import (
    OPTION_SHARE,
    Accountant,
    Budget,
    Concentrated,
    Split,
    accountant_of,
    laplace_cost,
)
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.parts import NoisyRanks, OneTable, Question
from dpjoin.spec.schema import DegreeBound
from dpjoin.spec.toml import Spec
from support.audit import ledger_violations
from support.auto import declared
from support.brute import BruteEngine
from support.remainder import BUDGET


def limit_of(accountant: Accountant) -> Concentrated:
    assert isinstance(accountant.limit, Concentrated)
    return accountant.limit


# The accountant ------------------------------------------------------------------------------------------------------


def test_an_exchange_leaves_what_its_own_part_of_delta_buys() -> None:
    budget = without_choices(BUDGET)
    accountant = accountant_of(Split(budget=with_laplace_options(budget, [Fraction(3, 4)])))
    whole, part = budget.composition, BUDGET.exact.delta * OPTION_SHARE
    assert limit_of(accountant).rho == whole.largest_rho(epsilon=Fraction(1), delta=BUDGET.exact.delta - part)
    before = whole.largest_rho(epsilon=Fraction(1, 4), delta=part)
    assert accountant.offer == Concentrated(before, epsilon=Fraction(3, 4))
    with pytest.raises(BudgetError):
        accountant.spend(laplace_cost(Fraction(1, 100)))
    accountant.spend(Concentrated(before / 2))
    assert accountant.offer == Concentrated(before / 2, epsilon=Fraction(3, 4))
    accountant.exchange()
    assert accountant.left == Concentrated(before / 2, epsilon=Fraction(3, 4))
    assert accountant.offer is None
    with pytest.raises(BudgetError, match="exceeds"):
        accountant.spend(Concentrated(before * Fraction(51, 100)))
    accountant.spend(laplace_cost(Fraction(3, 4)))
    accountant.spend(Concentrated(before / 2))
    with pytest.raises(BudgetError, match="must be exchanged"):
        accountant.exchange()


def test_it_is_too_late_once_more_is_spent() -> None:
    accountant = accountant_of(Split(budget=with_laplace_options(BUDGET, [Fraction(3, 4)])))
    assert accountant.offer is not None
    accountant.spend(Concentrated(accountant.offer.rho * Fraction(101, 100)))
    assert accountant.offer is None
    with pytest.raises(BudgetError, match="must be exchanged"):
        accountant.exchange()
    assert limit_of(accountant).epsilon == 0


def test_of_several_options_the_best_that_is_left_is_taken() -> None:
    budget = with_laplace_options(BUDGET, [Fraction(9, 10), Fraction(1, 2)])
    early, late = accountant_of(Split(budget=budget)).options
    assert early.rho < late.rho
    assert budget.rho() < with_laplace_options(BUDGET, [Fraction(1, 2)]).rho() < BUDGET.rho()
    for spent, taken in ((early.rho, early), (early.rho * Fraction(101, 100), late), (late.rho, late)):
        accountant = accountant_of(Split(budget=budget))
        accountant.spend(Concentrated(spent))
        accountant.exchange()
        assert limit_of(accountant) == taken
        assert accountant.options == ()


@pytest.mark.parametrize("options", [(Fraction(-1, 10), Fraction(1, 2)), (Fraction(0),), (Fraction(11, 10),)])
def test_options_are_a_part_of_epsilon(options: tuple[Fraction, ...]) -> None:
    """A negative one would buy more rho than there is."""
    with pytest.raises(SpecError, match="Laplace noise"):
        replace(BUDGET, options=options)


@pytest.mark.parametrize("epsilon", [0.004, 0.01, 0.05, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-6, 0.1])
def test_options_serve_every_budget_or_are_not_there(epsilon: float, delta: float) -> None:
    """Whatever the budget, there is an accountant; what an exchange leaves is less than there was."""
    for budget in (Budget(epsilon=epsilon, delta=delta), without_choices(Budget(epsilon=epsilon, delta=delta))):
        accountant = accountant_of(Split(budget=with_laplace_options(budget, (EARLY_LAPLACE, LAPLACE_SHARE))))
        assert all(0 < option.rho < limit_of(accountant).rho for option in accountant.options)


def test_only_the_whole_instance_exchanges() -> None:
    schema = declared("two")
    engine = BruteEngine(schema, {t.name: [] for t in schema.tables})
    curator = Curator(engine, Split(budget=with_laplace_options(BUDGET, [Fraction(3, 4)])))
    names = [t.name for t in schema.tables]
    (part, *_) = curator.restrict(
        "tables", {n: OneTable(n, schema.table(n).attributes) for n in names}, [Concentrated(Fraction(1, 10**4))] * 2
    )
    with pytest.raises(BudgetError, match="whole instance"):
        part.exchange()
    assert part.offer is None
    with pytest.raises(BudgetError, match="no rho"):
        Curator(engine, Split(budget=BUDGET, paper=True)).exchange()
    # A sub-instance cannot have Laplace noise that the whole has not got.
    with pytest.raises(BudgetError, match="exceeds"):
        curator.restrict("more", {"x": OneTable(names[0], ("A",))}, [laplace_cost(Fraction(1, 10))])


def test_without_an_option_there_is_no_exchange() -> None:
    accountant = accountant_of(Split(budget=BUDGET))
    assert accountant.offer is None
    with pytest.raises(BudgetError):
        accountant.exchange()
    small = Budget(epsilon=0.003, delta=1e-9)
    assert with_laplace_options(small, [Fraction(3, 4)]) is small, "the rest would buy nothing"


# The decision --------------------------------------------------------------------------------------------------------


def two_attributes(keys: int, rows: int, power: float, seed: int) -> tuple[dj.Schema, dict[str, pa.Table]]:
    """r(k, a) and s(k, b) with the same popular keys."""
    rng = np.random.default_rng(seed)
    popular = 1 / np.arange(1, keys + 1) ** power
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "b"))),
        (dj.Attribute(name="k", range=(0, keys - 1)), *(dj.Attribute(name=x, range=(0, 4)) for x in "ab")),
    )
    tables = {
        t: pa.table({"k": rng.choice(keys, rows, p=popular / popular.sum()), x: rng.integers(0, 5, rows) % 4})
        for t, x in (("r", "a"), ("s", "b"))
    }
    return schema, tables


def exact_of(tables: dict[str, pa.Table], keys: int) -> Any:
    counts = [
        np.bincount(tables[t]["k"].to_numpy() * 5 + tables[t][x].to_numpy(), minlength=5 * keys).reshape(keys, 5)
        for t, x in (("r", "a"), ("s", "b"))
    ]
    return (counts[0].T @ counts[1]).ravel()


def test_heavy_keys_are_better_off_with_laplace_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """By far: and bars tell how far off it is."""
    schema, tables = two_attributes(32, 4_000, 1.0, 0)
    workload = dj.Workload.marginals(schema, [("a", "b")])
    exact = exact_of(tables, 32)
    off: dict[str, list[float]] = {"with": [], "without": []}
    inside = []
    for kind, errors in off.items():
        if kind == "without":
            monkeypatch.setattr("dpjoin.methods.remainder.with_laplace_options", lambda budget, _: budget)
        for _ in range(8):
            release = dj.release(schema, workload, tables, BUDGET)
            assert (release.ledger.epsilon > 0) == (kind == "with")
            assert ledger_violations(release.ledger, BUDGET) == []
            miss = np.abs(release.answer() - exact)
            errors.append(float(miss.sum() / exact.sum()))
            if kind == "with":
                inside.append((miss <= release.error(coverage=0.9)).mean())
    assert np.median(off["with"]) < 0.75 * np.median(off["without"])
    assert np.mean(inside) > 0.75


def test_many_marginals_have_no_option() -> None:
    """And pay nothing for one: all of delta buys rho."""
    schema = declared("two")
    few = dj.Workload.marginals(schema, [1, 2])
    assert optional(BUDGET, few).options == (EARLY_LAPLACE, LAPLACE_SHARE)
    hidden = dj.Schema(schema.tables, (dj.Attribute(name="A", key=True), *schema.attributes[1:]))
    assert not optional(BUDGET, dj.Workload.marginals(hidden, [1, 2])).options, "nothing could make use of it"
    tables = (dj.Table(name="r", attributes=("k", "a", "b", "c", "d")), dj.Table(name="s", attributes=("k", "e")))
    names = [dj.Attribute(name=x, range=(0, 3)) for x in "abcde"]
    many = dj.Schema(tables, (dj.Attribute(name="k", key=True), *names))
    workload = dj.Workload.marginals(many, [1, 2])
    assert not optional(BUDGET, workload).options
    assert optional(BUDGET, workload).rho() == gaussian_only(BUDGET, workload).rho()
    # Two attributes of one table, keys declared: stages are worth more than Laplace noise.
    tables = (dj.Table(name="r", attributes=("k", "a", "b")), dj.Table(name="s", attributes=("k", "e")))
    two = dj.Schema(tables, tuple(dj.Attribute(name=x, range=(0, 3)) for x in "kabe"))
    assert not optional(BUDGET, dj.Workload.marginals(two, [("a", "b")])).options


def test_worth_falls_with_the_number_of_marginals() -> None:
    schema = declared("two")
    pairs = [("A", "p"), ("A", "q"), ("p", "q")]
    one, three = (dj.Workload.marginals(schema, some) for some in (pairs[:1], pairs))
    first, second = (laplace_remainder(w, Fraction(3, 4)) for w in (one, three))
    assert first.as_one == 3 * second.as_one
    assert first.capped == first.as_one / 2
    assert first.laplace
    assert not Remainder(Fraction(1), Fraction(1), Fraction(1)).laplace


def test_the_plan_names_the_option() -> None:
    schema = declared("two")
    planned = plan(Spec(schema, dj.Workload.marginals(schema, [1, 2]), BUDGET, "auto", "tight"))
    assert any("Laplace noise with 75% of epsilon (90% if" in note for note in planned.notes)
    assert sum(s.share for s in planned.stages) == pytest.approx(1.0)


# A first look --------------------------------------------------------------------------------------------------------


def test_two_looks_at_ranks_are_better_than_one() -> None:
    question = Question(name="ranks", rules={"r": {}}, by=("k",))
    first = NoisyRanks(question, (1, 2), (100, 50, 0), 10.0)
    second = NoisyRanks(question, (1, 2), (110, 40, 10), 5.0)
    both = combined_ranks(first, second)
    assert both.noisy == (108, 42, 8)
    assert both.deviation == pytest.approx(20**0.5)


@pytest.mark.parametrize(
    ("keys", "rows", "power", "clear"), [(40, 20_000, 1.0, True), (16, 20_000, 1.0, True), (2_000, 4_000, 0.5, False)]
)
def test_clear_tables_need_no_second_look(keys: int, rows: int, power: float, clear: bool) -> None:
    """Few keys with many rows: all but a tenth of epsilon goes to the tables. Many with few: a closer look."""
    schema, tables = two_attributes(keys, rows, power, 1)
    workload = dj.Workload.marginals(schema, [("a", "b")])
    release = dj.release(schema, workload, tables, BUDGET)
    assert ledger_violations(release.ledger, BUDGET) == []
    assert (release.ledger.epsilon == BUDGET.exact.epsilon * EARLY_LAPLACE) == clear
    if clear:
        assert release.method == "per_table"
        exact = exact_of(tables, keys)
        assert np.abs(release.answer() - exact).sum() < 0.02 * exact.sum()


def skewed_pair(keys: int, rows: tuple[int, int], powers: tuple[float, float]) -> tuple[dj.Schema, dict[str, pa.Table]]:
    schema, _ = two_attributes(keys, 10, 0.0, 0)
    rng, tables = np.random.default_rng(2), {}
    for (name, x), count, power in zip((("r", "a"), ("s", "b")), rows, powers, strict=True):
        popular = 1 / np.arange(1, keys + 1) ** power
        chosen = rng.choice(keys, count, p=popular / popular.sum())
        moved = np.where(rng.random(count) < 0.3, chosen, 0)
        tables[name] = pa.table({"k": chosen, x: (rng.integers(0, 5, count) % 4 + moved) % 5})
    return schema, tables


@pytest.mark.parametrize(
    ("keys", "rows", "powers", "method"),
    [
        (5_000, (30_000, 30_000), (0.5, 0.5), "heavy_light"),  # some heavy keys, and most results at light ones
        (
            16_000,
            (6_000, 6_000),
            (1.3, 1.0),
            "heavy_light",
        ),  # noise hides most cells, of which a model of all would make rows
        (1_000, (4_000, 4_000), (1.0, 1.0), "per_table"),
    ],
)
def test_a_first_look_settles_what_is_clear(
    keys: int, rows: tuple[int, int], powers: tuple[float, float], method: str
) -> None:
    """Mostly: with nine tenths of epsilon, and the join has the size it says."""
    schema, tables = skewed_pair(keys, rows, powers)
    workload = dj.Workload.marginals(schema, [("a", "b")])
    exact = exact_of(tables, keys)
    ran, off = [], []
    for _ in range(5):
        release = dj.release(schema, workload, tables, BUDGET)
        assert ledger_violations(release.ledger, BUDGET) == []
        ran.append((release.method, release.ledger.epsilon == BUDGET.exact.epsilon * EARLY_LAPLACE))
        off.append(abs(release.answer().sum() / exact.sum() - 1))
    assert ran.count((method, True)) >= 3
    assert np.median(off) < 0.05


def test_declared_bounds_are_taken_at_once_where_they_promise_most() -> None:
    """Small ones, with degrees near them: nothing is to be found out, and no row is cut."""
    schema, tables = two_attributes(400, 20_000, 0.3, 1)
    limits = {t: int(np.bincount(tables[t]["k"].to_numpy()).max()) + 5 for t in "rs"}
    bounds = {t: (DegreeBound(attributes=("k",), limit=limit),) for t, limit in limits.items()}
    known = dj.Schema(tuple(replace(t, bounds=bounds[t.name]) for t in schema.tables), schema.attributes)
    workload = dj.Workload.marginals(known, [("a", "b")])
    ran = []
    for _ in range(5):
        release = dj.release(known, workload, tables, BUDGET)
        assert ledger_violations(release.ledger, BUDGET) == []
        ran.append((release.method, release.ledger.epsilon == BUDGET.exact.epsilon * EARLY_LAPLACE))
    assert ran.count(("two_table", True)) >= 3
    far = {t: (DegreeBound(attributes=("k",), limit=20_000),) for t in limits}
    loose = dj.Schema(tuple(replace(t, bounds=far[t.name]) for t in schema.tables), schema.attributes)
    assert dj.release(loose, dj.Workload.marginals(loose, [("a", "b")]), tables, BUDGET).method != "two_table"


@pytest.mark.parametrize("guard", ["CLEAR_ERROR", "MISCOUNTED", "NOISE_OVER_TABLE"])
def test_every_guard_of_a_first_look_asks_for_a_closer_one(guard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that are off, a size that is off, or too many hidden cells: any of them is enough."""
    schema, tables = two_attributes(40, 20_000, 1.0, 1)
    workload = dj.Workload.marginals(schema, [("a", "b")])

    def at_once() -> bool:
        release = dj.release(schema, workload, tables, BUDGET, method="per_table")
        return release.ledger.epsilon == BUDGET.exact.epsilon * EARLY_LAPLACE

    assert at_once()
    monkeypatch.setattr(constants, guard, 0.0)
    assert not at_once()
