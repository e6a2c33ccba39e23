"""The ledger that travels in a release adds up to the budget, whoever adds."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from audit import ledger_violations, numeric_zcdp_delta
from dpjoin.privacy.ledger import Ledger


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


def _dp_accounting_epsilon(rho: float, delta: float, epsilon: float) -> float:
    """What dp-accounting says: zCDP through Rényi orders, many of them near the best one for this epsilon."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from dp_accounting import dp_event
        from dp_accounting.rdp import RdpAccountant
    near = 1 + epsilon / (2 * rho) * np.linspace(0.3, 1.7, 20001)
    accountant = RdpAccountant(orders=[*np.geomspace(1.01, 2000, 200), *near])
    accountant.compose(dp_event.ZCDpEvent(rho))
    return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize("budget", [(1.0, 1e-6), (0.1, 1e-9), (4.0, 1e-5)])
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
    left = asked.delta - float(ledger.delta)
    epsilon = _dp_accounting_epsilon(float(ledger.rho), left, asked.epsilon)
    assert 0.98 * asked.epsilon <= epsilon <= asked.epsilon * (1 + 1e-7)
    assert 0.98 * asked.delta <= float(ledger.delta) + numeric_zcdp_delta(float(ledger.rho), asked.epsilon)


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
        again = Ledger.from_json(ledger.to_json())
        assert again.to_json() == ledger.to_json()
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
