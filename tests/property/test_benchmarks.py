"""The baselines of the benchmarks: a yardstick that is wrong flatters the release beside it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
import fading
import report
from baselines import Elastic, PerTable
from dpjoin import constants
from support.benchmarks import SHAPES, Rows, arrow, instance
from support.brute import BruteEngine


def join_size(rows: Rows) -> int:
    return sum(all(a[k] == b[k] for a, b in ((p, q), (q, s), (s, p)) for k in a.keys() & b.keys())
               for p in rows["r"] for q in rows["s"] for s in rows["t"])  # fmt: skip


def all_rows(keys: str) -> list[dict[str, int]]:
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(range(3), repeat=len(keys))]


@pytest.mark.parametrize("shape", SHAPES)
def test_per_table_without_noise_is_the_join(shape: str) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        schema, rows = instance(rng, shape)
        workload = dj.Workload.marginals(schema, (1, 2))
        baseline = PerTable(schema, workload, arrow(rows))
        exact = BruteEngine(schema, rows).exact_answers(workload.groups)
        for clip in (True, False):
            answers = baseline.answers(1e30, rng, clip=clip)
            for group, answer, truth in zip(workload.groups, answers, exact, strict=True):
                if group.scope != ("a", "b"):  # both of one table: raked, not exact
                    np.testing.assert_allclose(answer, np.asarray(truth, dtype=float), atol=1e-6)
                assert answer.sum() == pytest.approx(join_size(rows), abs=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_elastic_sensitivity_bounds_every_change(shape: str) -> None:
    """S_0 is at least the local sensitivity, sometimes equal, and S_{k+1} at least the neighbour's S_k."""
    rng = np.random.default_rng(2)
    tight = 0
    for _ in range(20):
        schema, rows = instance(rng, shape)
        elastic = Elastic(schema, arrow(rows))
        table = schema.tables[rng.integers(3)]
        row = {a: int(rng.integers(3)) for a in table.attributes}
        more = {**rows, table.name: [*rows[table.name], row]}
        local = max(join_size({**rows, t: [one]}) for t, keys in SHAPES[shape].items() for one in all_rows(keys))
        assert local <= elastic.at(0)
        tight += local == elastic.at(0)
        other = Elastic(schema, arrow(more))
        for k in range(4):
            assert other.at(k) <= elastic.at(k + 1)
            assert elastic.at(k) <= other.at(k + 1)
        beta = 0.3
        assert abs(math.log(other.smooth(beta) / elastic.smooth(beta))) <= beta + 1e-9
        assert elastic.smooth(beta) == max(math.exp(-beta * k) * elastic.at(k) for k in range(50))
    assert tight, "the bound is never reached: is it the elastic sensitivity at all?"


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


def test_fading_quick_run_shows_that_fading_loses_less(
    quick_run: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fading.queries, "load", lambda: iter(()))
    assert "| 30k-10k-zipf.5 |" in quick_run(fading)
    degrees = fading.instances()["30k-10k-zipf.5"]
    for bound in (20, 60, 135):
        assert fading.lost(degrees, bound, constants.FADE_PRICES[0]) < 0.9 * fading.lost(degrees, bound, None)
