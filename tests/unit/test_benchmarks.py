"""The baselines of the benchmarks: a yardstick that is wrong flatters the release beside it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
import kernel
import large
import methods
import peers
import report
import unseen
import wide
from baselines import Elastic, elastic_beta, elastic_gaussian, mean_total_variation
from support.benchmarks import arrow, instance


def test_elastic_sensitivity_of_a_star_by_hand() -> None:
    """Largest frequencies 1, 2 and 3: S_k = (2 + k)(3 + k)."""
    schema, _ = instance(np.random.default_rng(0), "star")
    one = {t.name: dict.fromkeys(t.attributes, 0) for t in schema.tables}
    elastic = Elastic(schema, arrow({"r": [one["r"]], "s": [one["s"]] * 2, "t": [one["t"]] * 3}))
    assert [elastic.at(k) for k in range(4)] == [6, 12, 20, 30]


def test_elastic_noise_is_larger_when_the_bound_is_paid_for() -> None:
    budget = dj.Budget(epsilon=1.0, delta=1e-6)
    assert elastic_beta(budget) == pytest.approx(1 / 29.0, rel=1e-2)
    rng = np.random.default_rng(3)
    exact = [np.full(1000, 1e9)]
    free, paid = (elastic_gaussian(exact, 100.0, budget, rng, free=f)[0].std() for f in (True, False))
    assert free == pytest.approx(100 / math.sqrt(2 * 0.02436), rel=0.1)
    assert paid > free
    assert mean_total_variation(exact, exact) == 0
    assert mean_total_variation([np.zeros(4)], [np.ones(4)]) == 1


def test_methods_quick_run_has_every_column_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each method that serves the small instance beats the uniform distribution, which knows the true size."""
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(methods, "RESULTS", tmp_path)
    found = {}
    measure = methods.measure

    def noted(row: methods.Row, name: str, runs: int, most: int | None) -> dict[str, Any]:
        found[name] = measure(row, name, runs, most)
        return found[name]

    monkeypatch.setattr(methods, "measure", noted)
    assert methods.main(["--quick"]) == 0
    assert list(found) == list(methods.COLUMNS)
    for name in ("as_one", "uniformize", "per_table", "per_table_numpy", "heavy_light", "auto"):
        assert found[name]["tv"] < found["uniform"]["tv"]
    assert "auto within" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.fixture
def quick_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Any], str]:
    """What a benchmark's quick run shows; it writes nothing."""

    def shown(benchmark: Any) -> str:
        monkeypatch.setattr(report, "RESULTS", tmp_path)
        assert benchmark.main(["--quick"]) == 0
        assert not list(tmp_path.iterdir())
        return capsys.readouterr().out

    return shown


def test_large_quick_run_needs_no_peer(quick_run: Callable[[Any], str]) -> None:
    text = quick_run(large)
    assert "| 10^12 | dpjoin |" in text
    assert "no peer was run" in text


def test_wide_quick_run_meets_its_targets(quick_run: Callable[[Any], str]) -> None:
    text = quick_run(wide)
    assert text.count("below 2000 MB: met") == 2
    assert "| 10^30 |" in text


def test_unseen_quick_run_has_every_method_and_draws_the_same_again(quick_run: Callable[[Any], str]) -> None:
    text = quick_run(unseen)
    assert "| tables | auto | two_table | capped | clipped | heavy_light | per_table |" in text
    assert "| tables | auto | multi_table | capped | clipped | heavy_light | per_table |" in text
    assert text.count("90 % bars of auto cover") == len(unseen.DRAW)
    for draw in unseen.DRAW.values():
        first, again = (draw(7, largest=3.3) for _ in range(2))
        assert first.words == again.words
        assert all(first.tables[t].equals(again.tables[t]) for t in first.tables)


def test_large_keeps_rows_resumes_and_reports_peers_that_did_not_finish(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Figures are made up: dpjoin takes a second, AIM is stopped, MWEM+PGM takes 30 and has half the largest error."""
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(large, "draw", lambda _: None)
    elsewhere = ("opendp", "smartnoise")
    monkeypatch.setattr(large, "_interpreter", lambda system, _: None if system.startswith(elsewhere) else "python")
    asked = []

    def measure(system: str, size: str, *_: object) -> dict[str, Any]:
        asked.append((system, size))
        if system in ("aim", "all_pairs"):
            return {"none": "stopped after 1,800 s, 1,900 CPU s", "spent": 1900.0}
        cpu, most, mean = {"dpjoin": (1.0, 60.0, 9.0), "mwem": (30.0, 30.0, 12.0)}[system]
        run = {"cpu": cpu, "wall": cpu, "peak_mb": 300.0, "max": most, "mean": mean}
        return {**run, "strategy": "all", "covered": 0.9, "runs": [run]}

    monkeypatch.setattr(large, "measure", measure)
    assert large.main([]) == 0
    assert len(asked) == 4 * len(large.SIZES)
    text = (tmp_path / "large.md").read_text()
    assert "AIM on mbi, 10^12: stopped after 1,800 s" in text
    assert "| 30.0 (MWEM+PGM on mbi): met |" in text
    assert "| 2.00 (MWEM+PGM on mbi): **not met** |" in text
    assert "earlier command" not in text
    asked.clear()
    assert large.main(["--systems", "dpjoin", "--sizes", "8^5"]) == 0
    assert asked == [("dpjoin", "8^5")]
    assert (tmp_path / "large.md").read_text().count("kept from an earlier command") == 4 * len(large.SIZES) - 1
    asked.clear()
    assert large.main(["--resume", "--sizes", "8^5"]) == 0
    assert asked == [(s, "8^5") for s in ("mwem", "aim", "all_pairs")]
    only_stopped = {"dpjoin": {"cpu": 1.0}, "aim": {"spent": 1900.0}}
    assert large.targets("8^5", only_stopped, large.ADAPTIVE) == {
        "cpu": ("more than 1900.0 (AIM on mbi, stopped)", True)
    }


def test_budget_of_the_peers_is_that_of_the_release() -> None:
    """(1, 1e-6) is worth rho 0.0243, and a round of AIM spends what it is given."""
    assert peers.total_rho() == pytest.approx(0.02436, rel=1e-3)
    sigma, epsilon = peers._scales(0.01)
    assert 1 / (2 * sigma**2) + epsilon**2 / 8 == pytest.approx(0.01)


def test_kernel_quick_run_has_every_part_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The incremental rounds equal the plain ones in the benchmark, too, and all choices are made."""
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    found = {}
    measure = kernel.measure

    def noted(*, quick: bool) -> dict[str, Any]:
        found.update(measure(quick=quick))
        return found

    monkeypatch.setattr(kernel, "measure", noted)
    assert kernel.main(["--quick"]) == 0
    assert found["equal"]["largest_relative_difference"] < 1e-12
    assert found["equal"]["rounds_with_other_scores"] == 0
    assert [p["weights"] for p in found["product"]] == ["0/1", "16-bit", "0/1"]
    assert set(found["select"]) == set(kernel.SHAPES)
    assert "Exact selection" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
