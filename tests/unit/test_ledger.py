"""The ledger that travels in a release adds up to the budget, whoever adds."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.measure.shares import without_choices
from dpjoin.privacy.accounting import OPTION_SHARE, Concentrated, Split, laplace_cost
from dpjoin.privacy.curator import Curator
from dpjoin.privacy.ledger import Event, Ledger, Part
from dpjoin.privacy.parts import OneTable, Question
from dpjoin.released.ledger_json import ledger_from_json, ledger_to_json
from support.audit import ledger_violations, numeric_gaussian_delta, numeric_zcdp_delta


def _tables(rng: np.random.Generator) -> dict[str, pa.Table]:
    r = pa.table({"k": rng.integers(0, 50, 400), "a": rng.integers(0, 3, 400)})
    return {"r": r, "s": pa.table({"k": rng.integers(0, 50, 300), "b": rng.integers(0, 4, 300)})}


def _schema(*, second_private: bool = True) -> dj.Schema:
    return dj.Schema(
        (
            dj.Table(name="r", attributes=("k", "a")),
            dj.Table(name="s", attributes=("k", "b"), private=second_private),
        ),
        (
            dj.Attribute(name="k", key=True),
            dj.Attribute(name="a", range=(0, 2)),
            dj.Attribute(name="b", range=(0, 3)),
        ),
    )


def _dp_accounting_epsilon(ledger: Ledger, delta: float, epsilon: float) -> float:
    """What dp-accounting says: of Gaussians their privacy loss distribution, of zCDP many orders near the best one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dp_accounting import dp_event
        from dp_accounting.pld import PLDAccountant
        from dp_accounting.rdp import RdpAccountant
    rho = float(ledger.rho)
    if ledger.composition == "Gaussian":
        exact = PLDAccountant(value_discretization_interval=1e-5 * epsilon)
        exact.compose(dp_event.GaussianDpEvent(1 / math.sqrt(2 * rho)))
        return float(exact.get_epsilon(delta))
    near = 1 + epsilon / (2 * rho) * np.linspace(0.3, 1.7, 20001)
    accountant = RdpAccountant(orders=[*np.geomspace(1.01, 2000, 200), *near])
    accountant.compose(dp_event.ZCDpEvent(rho))
    return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize("budget", [(1.0, 1e-6), (0.1, 1e-9), (0.5, 1e-3), (4.0, 1e-5)])
@pytest.mark.parametrize("second_private", [True, False])
def test_a_saved_ledger_adds_up_to_the_request(
    budget: tuple[float, float], second_private: bool, tmp_path: Path
) -> None:
    """Recomputed from the saved file, epsilon is at most what was asked, and at least 0.98 of it."""
    schema = _schema(second_private=second_private)
    asked = dj.Budget(epsilon=budget[0], delta=budget[1])
    release = dj.release(schema, dj.Workload.marginals(schema, 2), _tables(np.random.default_rng(0)), asked)
    ledger = dj.load(release.save(tmp_path / "out")).ledger
    assert ledger_violations(ledger, asked) == []
    if not second_private:  # a public bound, and few marginals: Laplace noise alone
        assert (ledger.epsilon, ledger.rho, ledger.delta) == (asked.exact.epsilon, 0, 0)
        return
    # Large budgets and large deltas are not for Gaussian composition.
    assert ledger.composition == ("Gaussian" if asked.delta < 1e-4 and asked.epsilon < 2 else "zero-concentrated")
    assert not ledger.options
    left = float(ledger.conversion_delta(asked.exact.delta))
    rest = asked.epsilon - float(ledger.epsilon)
    epsilon = _dp_accounting_epsilon(ledger, left, rest)
    assert 0.98 * rest <= epsilon <= rest * (1 + 1e-7)
    convert = numeric_gaussian_delta if ledger.composition == "Gaussian" else numeric_zcdp_delta
    # Gaussian composition sets a sixty-fourth aside, for rounding and for tails.
    assert 0.965 * left <= convert(float(ledger.rho), rest)


@pytest.mark.parametrize("way", ["at once", "after a look", "not at all"])
def test_a_reader_can_add_up_an_exchange(way: str) -> None:
    """The file says which exchanges there might have been, which one was, and what delta each case had."""
    schema, asked = _schema(), dj.Budget(epsilon=1.0, delta=1e-6)
    budget = replace(without_choices(asked), options=(Fraction(9, 10), Fraction(3, 4)))
    curator = Curator(
        DuckEngine(schema, _tables(np.random.default_rng(0)), attributes=("a", "b")), Split(budget=budget)
    )
    before = {"at once": min, "after a look": max}.get(way)
    if before is not None:
        look = before(option.rho for option in curator.options)
        (ranks,) = curator.noisy_ranks(
            "ranks", [Question(name="ranks", rules={"r": {}}, by=("k",))], [1, 2], Concentrated(look)
        )
        assert ranks
        curator.exchange()
    alone = {"r": OneTable("r", ("a",))}
    (part,) = curator.restrict("tables", alone, [Concentrated(curator.rho_left, epsilon=curator.laplace_left)])
    bound = part.public_bound()
    assert bound is not None
    part.join_size(bound, laplace_cost(part.laplace_left) if part.laplace_left else Concentrated(part.rho_left))
    saved = ledger_from_json(json.loads(json.dumps(ledger_to_json(curator.ledger))))
    assert ledger_to_json(saved) == ledger_to_json(curator.ledger)
    assert saved.options == (Fraction(9, 10), Fraction(3, 4))
    assert saved.exchanged == {"at once": Fraction(9, 10), "after a look": Fraction(3, 4)}.get(way)
    left = saved.conversion_delta(asked.exact.delta)
    assert left == asked.exact.delta * (1 - 2 * OPTION_SHARE if way == "not at all" else OPTION_SHARE)
    rest = asked.epsilon - float(saved.epsilon)
    epsilon = _dp_accounting_epsilon(saved, float(left), rest)
    assert 0.97 * rest <= epsilon <= rest * (1 + 1e-7)


def test_gaussians_one_by_one_add_up_to_the_request() -> None:
    """Each event's own noise, put together by dp-accounting's privacy loss distributions, is within the request."""
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    schema, asked = _schema(), dj.Budget(epsilon=1.0, delta=1e-6)
    tables, workload = _tables(np.random.default_rng(2)), dj.Workload.marginals(schema, 2)
    ledger = dj.release(schema, workload, tables, asked, method="two_table").ledger
    accountant = PLDAccountant(value_discretization_interval=1e-5)
    for event in ledger.events:
        accountant.compose(dp_event.GaussianDpEvent(math.sqrt(Fraction(event.parameters["variance"])) / event.moves))
    epsilon = accountant.get_epsilon(asked.delta - float(ledger.delta))
    # Below by what rounding to whole numbers costs, and no more.
    assert 0.97 * asked.epsilon <= epsilon <= asked.epsilon * (1 + 1e-4)


def test_choices_add_up_otherwise() -> None:
    """A workload that may need the exponential mechanism has zero-concentrated composition, and a Gaussian refuses."""
    schema, asked = _schema(), dj.Budget(epsilon=1.0, delta=1e-6)
    rng = np.random.default_rng(3)
    weights = {"r": (("a",), rng.integers(0, 2, (20, 3))), "s": (("b",), rng.integers(0, 2, (20, 4)))}
    workload = dj.Workload.products(schema, weights)
    release = dj.release(schema, workload, _tables(rng), asked)
    assert release.ledger.composition == "zero-concentrated"
    assert ledger_violations(release.ledger, asked) == []

    engine = DuckEngine(schema, _tables(rng), attributes=workload.attributes)
    split = Split(budget=without_choices(asked), truncation_delta=Fraction(1, 10**7))
    curator, group = Curator(engine, split), workload.groups[0]
    bound = curator.sensitivity_bound(Concentrated(Fraction(1, 1000), Fraction(1, 10**7)), half_width=200)
    before = curator.rho_left
    with pytest.raises(dj.BudgetError, match="does not go with Gaussian composition"):
        curator.worst_query([group], [np.zeros(len(group), dtype=np.int64)], bound, Concentrated(Fraction(1, 1000)))
    assert curator.rho_left == before


def test_the_paper_profile_spends_exactly_the_request(tmp_path: Path) -> None:
    """The paper's stages add up to epsilon and delta exactly, and each stage's noise fits its share."""
    schema = _schema()
    asked = dj.Budget(epsilon=1.0, delta=1e-6)
    workload = dj.Workload.marginals(schema, 2)
    release = dj.release(schema, workload, _tables(np.random.default_rng(1)), asked, profile="paper")
    ledger = dj.load(release.save(tmp_path / "out")).ledger
    assert ledger_violations(ledger, asked) == []
    assert (ledger.epsilon, ledger.delta) == (asked.exact.epsilon, asked.exact.delta)


def test_a_ledger_survives_json() -> None:
    """Fractions travel exactly."""
    schema = _schema()
    asked = dj.Budget(epsilon=1.0, delta=1e-6)
    for profile in ("tight", "paper"):
        workload = dj.Workload.marginals(schema, 1)
        ledger = dj.release(schema, workload, _tables(np.random.default_rng(2)), asked, profile=profile).ledger
        again = ledger_from_json(ledger_to_json(ledger))
        assert ledger_to_json(again) == ledger_to_json(ledger)
        assert (again.rho, again.epsilon, again.delta) == (ledger.rho, ledger.epsilon, ledger.delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, float("nan"), float("inf"), 51.0])
def test_an_epsilon_out_of_range_is_refused(epsilon: float) -> None:
    """The message names the value and the rule."""
    with pytest.raises(dj.SpecError, match=r"epsilon \(.*\) must be greater than 0"):
        dj.Budget(epsilon=epsilon, delta=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, 2.0, float("nan")])
def test_a_delta_out_of_range_is_refused(delta: float) -> None:
    """The message names the value and the rule."""
    with pytest.raises(dj.SpecError, match=r"delta \(.*\) must lie between"):
        dj.Budget(epsilon=1.0, delta=delta)


@pytest.mark.parametrize(
    "line",
    [
        Event(mechanism="m", purpose="p", cost=Concentrated(Fraction(1)), moves=Fraction(1), parameters={}),
        Part(name="part", stage="stage", places=({},)),
        Ledger("concentrated"),
    ],
)
def test_lines_of_a_ledger_cannot_be_changed(line: object) -> None:
    """What ran stays written as it was."""
    for name in vars(line):
        with pytest.raises(FrozenInstanceError):
            setattr(line, name, None)
