"""Broken mechanisms, each caught by an audit that lets the correct algorithm pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpjoin.errors import BudgetError
from dpjoin.measure.progress import silent
from dpjoin.measure.shares import tight_shares
from dpjoin.methods.as_one import as_one_tight
from dpjoin.privacy import noise
from dpjoin.privacy.accounting import Budget, Concentrated, Split
from dpjoin.privacy.curator import Bound, Curator
from dpjoin.privacy.ledger import Event
from dpjoin.privacy.mechanisms import DiscreteGaussian
from dpjoin.privacy.numbers import Numbers
from dpjoin.privacy.truncated import paper_laplace_half_width
from dpjoin.spec.workload import Group, Workload
from support.audit import (
    OwnDraws,
    Tape,
    attach,
    distinguishing_violations,
    ledger_violations,
    replay_violations,
    scale_violations,
)
from support.brute import BruteEngine
from support.figures import Tables, abc_schema, figure_1
from support.replay import runner

BUDGET = Budget(epsilon=1.0, delta=1e-6)


N = 12


SCHEMA = abc_schema(N, N, N)


WORKLOAD = Workload.marginals(SCHEMA, [1, 2])


FULL, EMPTY = figure_1(N)


def run_with(change: Callable[[type[Curator]], type[Curator]]) -> Any:
    """The tight algorithm with a changed Curator, as a `Run`."""

    def run(kind: type[Curator], tables: Tables, tape: Tape) -> Any:
        shares = tight_shares(BUDGET, noisy_bound=True)
        curator = attach(change(kind)(BruteEngine(SCHEMA, tables), shares.split), tape)
        return as_one_tight(curator, WORKLOAD, shares, silent).model.table

    return run


def caught(violations: list[str], word: str) -> bool:
    return any(word in v for v in violations)


@pytest.mark.parametrize("pair", [(FULL, EMPTY), (EMPTY, FULL)])
@pytest.mark.parametrize("profile", ["tight", "paper"])
def test_the_correct_algorithm_is_not_flagged_by_replay(pair: tuple[Tables, Tables], profile: str) -> None:
    """Both profiles pass on the paper's neighbouring pair, in both directions."""
    assert replay_violations(runner(SCHEMA, WORKLOAD, profile), *pair) == []


def test_sensitivity_one_is_caught() -> None:
    """A join treated as a single table: declared moves of one row are too small."""

    def change(kind: type[Curator]) -> type[Curator]:
        class SensitivityOne(kind):  # type: ignore[valid-type,misc]
            def sensitivity_bound(self, cost: Any, *, half_width: int | None = None) -> Bound:
                return self._mint(Bound(1))

        return SensitivityOne

    assert caught(replay_violations(run_with(change), FULL, EMPTY), "sensitivity")


def test_true_sensitivity_without_noise_is_caught() -> None:
    """The largest degree itself, used as the bound: the questions' declared moves differ between neighbours."""

    def change(kind: type[Curator]) -> type[Curator]:
        class TrueBound(kind):  # type: ignore[valid-type,misc]
            def sensitivity_bound(self, cost: Any, *, half_width: int | None = None) -> Bound:
                return self._mint(Bound(max(self._engine.exact_boundary(frozenset({t})) for t in ("R1", "R2"))))

        return TrueBound

    smaller = {"R1": FULL["R1"][:-1], "R2": FULL["R2"]}
    assert caught(replay_violations(run_with(change), FULL, smaller), "control flow")


def test_observed_domain_is_caught() -> None:
    """Only the values that occur are measured: how many there are differs between neighbours."""

    def change(kind: type[Curator]) -> type[Curator]:
        class ObservedDomain(kind):  # type: ignore[valid-type,misc]
            def add(self, exact: Numbers, draw: Any, event: Event) -> Numbers:
                if not event.purpose.startswith("measure"):
                    return super().add(exact, draw, event)
                seen = np.flatnonzero(exact)
                noisy = np.zeros(len(exact), dtype=np.int64)
                noisy[seen] = super().add(exact[seen], draw, event)
                return noisy

        return ObservedDomain

    assert caught(replay_violations(run_with(change), FULL, EMPTY), "shape")


def test_rounds_from_the_true_size_are_caught() -> None:
    """A loop count taken from the exact join size."""

    def run(kind: type[Curator], tables: Tables, tape: Tape) -> Any:
        engine = BruteEngine(SCHEMA, tables)
        shares = tight_shares(BUDGET, noisy_bound=True)
        curator = attach(kind(engine, shares.split), tape)
        bound = curator.sensitivity_bound(shares.bound, half_width=shares.half_width)
        rounds = 1 + engine.exact_join_size() // 4
        return [curator.join_size(bound, Concentrated(Fraction(1, 1000) / rounds)) for _ in range(rounds)]

    assert caught(replay_violations(run, FULL, EMPTY), "control flow")


def test_a_skipped_empty_instance_is_caught() -> None:
    """Returning early because the join is empty tells that it is."""

    def run(kind: type[Curator], tables: Tables, tape: Tape) -> Any:
        if BruteEngine(SCHEMA, tables).exact_join_size() == 0:
            return np.zeros(1)
        return runner(SCHEMA, WORKLOAD, "tight")(kind, tables, tape)

    assert replay_violations(run, FULL, EMPTY) != []


def test_a_marginal_noised_like_one_scalar_query_is_caught() -> None:
    """Half the sensitivity is right for a centred number, not for a whole marginal."""

    def change(kind: type[Curator]) -> type[Curator]:
        class Halved(kind):  # type: ignore[valid-type,misc]
            def add(self, exact: Numbers, draw: Any, event: Event) -> Numbers:
                if event.purpose.startswith("measure"):
                    event = replace(event, moves=event.moves / 2)
                return super().add(exact, draw, event)

        return Halved

    # The bound must be close to the true degree for the difference to show: many partners, little noise.
    wide = abc_schema(2000, 1, 1)
    full, empty = figure_1(2000)

    def run(kind: type[Curator], tables: Tables, tape: Tape) -> Any:
        shares = tight_shares(BUDGET, noisy_bound=True)
        curator = attach(change(kind)(BruteEngine(wide, tables), shares.split), tape)
        return as_one_tight(curator, Workload.marginals(wide, [("C",)]), shares, silent).model.table

    assert caught(replay_violations(run, full, empty), "sensitivity")


def _measurement(curator_class: type[Curator], runs: int) -> list[str]:
    """Measure one marginal many times, and compare the noise with the declared variance."""
    engine = BruteEngine(SCHEMA, FULL)
    group: Group = WORKLOAD.groups[0]
    (exact,) = engine.exact_answers([group])

    def measure() -> tuple[Numbers, Fraction]:
        curator = curator_class(engine, Split(budget=BUDGET, truncation_delta=Fraction(1, 10**7)))
        bound = curator._mint(Bound(5))
        found = curator.measure(group, bound, Concentrated(Fraction(1, 100)))
        return found.noisy, found.variance

    return scale_violations(measure, exact, runs)


@pytest.mark.parametrize(("factor", "bad"), [(0.8, True), (1.2, True), (1.0, False)])
def test_noise_of_the_wrong_scale_is_caught(factor: float, bad: bool) -> None:
    """A Curator that draws 0.8 or 1.2 times what it declares is found out; the true one is not."""

    class Scaled(OwnDraws):
        def add(self, exact: Numbers, draw: Any, event: Event) -> Numbers:
            return exact + np.rint(draw(len(exact)) * factor).astype(np.int64)

    assert bool(_measurement(Scaled, 300)) is bad


def test_a_ledger_that_undercharges_is_caught() -> None:
    """An event whose variance does not fit its rho, or a total beyond the budget."""
    shares = tight_shares(BUDGET, noisy_bound=True)
    curator = Curator(BruteEngine(SCHEMA, FULL), shares.split)
    as_one_tight(curator, WORKLOAD, shares, silent)
    assert ledger_violations(curator.ledger, BUDGET) == []
    last = curator.ledger.events[-1]
    assert isinstance(last.cost, Concentrated)
    cheap = replace(last, cost=Concentrated(last.cost.rho / 2))
    assert caught(
        ledger_violations(replace(curator.ledger, events=(*curator.ledger.events[:-1], cheap)), BUDGET), "rho"
    )
    twice = replace(curator.ledger, events=curator.ledger.events * 2)
    assert caught(ledger_violations(twice, BUDGET), "total")


# -- black-box audits on the neighbouring pair of Figure 1 ----------------------------------------------------


def _multiplicative_weights_on_the_join(size: int, domain: int) -> np.ndarray[Any, Any]:
    """Single-table PMW that keeps the exact total, concentrated on the cells it should find."""
    table = np.full(domain, size / domain)
    if size:
        for _ in range(20):
            measured = size + noise.DiscreteLaplace(Fraction(1)).one()
            table[:size] *= math.exp((measured - table[:size].sum()) / (2 * size))
            table *= size / table.sum()
    return table


def test_flawed_idea_one_is_caught() -> None:
    """PMW on the join result keeps its size, so an empty join shows."""

    def released_something(tables: Tables) -> bool:
        size = BruteEngine(SCHEMA, tables).exact_join_size()
        return bool(_multiplicative_weights_on_the_join(size, N * N).sum() > 0.5)

    assert distinguishing_violations(released_something, FULL, EMPTY, budget=BUDGET, runs=60) != []


def test_flawed_idea_two_is_caught() -> None:
    """Padding with dummy tuples afterwards leaves the region of the join empty too often."""
    n = 100
    full, empty = figure_1(n)
    schema = abc_schema(n, n, n)
    half, rng = Fraction(1, 2), np.random.default_rng(2)  # of what noise leaves to chance: the same verdict every time

    def region_is_empty(tables: Tables) -> bool:
        engine = BruteEngine(schema, tables)
        size = engine.exact_join_size()
        degree = max(engine.exact_boundary(frozenset({t})) for t in ("R1", "R2"))
        width = paper_laplace_half_width(epsilon=half, delta=Fraction(5, 10**7), sensitivity=1)
        bound = degree + noise.DiscreteLaplace(1 / half, width).one()
        width = paper_laplace_half_width(epsilon=half, delta=Fraction(5, 10**7), sensitivity=bound)
        padding = noise.DiscreteLaplace(bound / half, width).one()
        in_region = _multiplicative_weights_on_the_join(size, n**3)[:n].sum() if size else 0.0
        dummies = rng.binomial(padding, n / n**3)
        return bool(in_region + dummies < 0.5)

    assert distinguishing_violations(region_is_empty, full, empty, budget=BUDGET, runs=60) != []


def test_integer_noise_on_half_integers_is_caught() -> None:
    """q - count/2 plus integer noise shows the parity of the count."""
    smaller = {"R1": FULL["R1"][:-1], "R2": FULL["R2"]}

    def is_whole(tables: Tables) -> bool:
        count = BruteEngine(SCHEMA, tables).exact_join_size()
        noisy = Fraction(3) - Fraction(count, 2) + noise.DiscreteGaussian(Fraction(10000)).one()
        return noisy.denominator == 1

    assert distinguishing_violations(is_whole, FULL, smaller, budget=BUDGET, runs=60) != []


@pytest.mark.parametrize("event", ["something", "region", "whole"])
def test_the_correct_algorithm_is_not_flagged_by_black_box_audits(event: str) -> None:
    """The same events do not tell the neighbours apart when the algorithm is the real one."""
    workload = Workload.marginals(SCHEMA, [1])

    def happened(tables: Tables) -> bool:
        shares = tight_shares(BUDGET, noisy_bound=True)
        curator = Curator(BruteEngine(SCHEMA, tables), shares.split)
        outcome = as_one_tight(curator, workload, shares, silent)
        if event == "something":
            return outcome.noisy_total > 1
        if event == "region":
            return bool(outcome.model.table.sum() < 0.5)
        return outcome.noisy_total % 2 == 0

    assert distinguishing_violations(happened, FULL, EMPTY, budget=BUDGET, runs=40) == []


# -- the guards ------------------------------------------------------------------------------------------------


def test_a_bound_cannot_be_made_up() -> None:
    """A bound that the Curator did not mint is refused, before anything is charged."""
    shares = tight_shares(BUDGET, noisy_bound=True)
    curator = Curator(BruteEngine(SCHEMA, FULL), shares.split)
    with pytest.raises(BudgetError, match="minted"):
        curator.join_size(Bound(1), shares.count)
    assert curator.ledger.events == ()


def test_overspending_is_refused_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A charge beyond the budget raises, draws nothing and leaves the ledger as it was."""
    shares = tight_shares(BUDGET, noisy_bound=True)
    curator = Curator(BruteEngine(SCHEMA, FULL), shares.split)
    bound = curator.sensitivity_bound(shares.bound, half_width=shares.half_width)
    before = curator.ledger
    monkeypatch.setattr(DiscreteGaussian, "one", lambda _: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetError, match="exceeds what is left"):
        curator.join_size(bound, Concentrated(shares.split.rho))
    assert curator.ledger is before
