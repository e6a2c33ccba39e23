"""Goldens: under fixed noise every method and profile releases what it did before, to the last charge.

A change of shape must leave them alone. A change of results must say so: `pytest tests/unit/test_goldens.py
--update-goldens` writes them anew, and the diff of `fixtures/goldens.json` shows what moved.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.privacy.ledger import Ledger
from dpjoin.released.ledger_json import ledger_to_json
from support.bits import BITS
from support.paths import FIXTURES

FILE = FIXTURES / "goldens.json"


TOLERANCE = 1e-3
"""Of the join size: what another processor's rounding may move in an answer of a fitted model."""
SIZE_TOLERANCE = 1e-4
"""The same of the join size itself, which some methods add up from fitted models."""


Case = tuple[dj.Schema, dj.Workload, dict[str, Any], dict[str, Any]]


def _tables(
    *shapes: str, rows: int = 2000, keys: int = 24, declared: bool = False, skew: float = 1.0, **options: Any
) -> tuple[dj.Schema, dict[str, Any]]:
    """Tables named r, s, t … over keys (capital letters) with an attribute of each one's own, and their rows."""
    rng = np.random.default_rng(len(shapes))
    names = [chr(ord("r") + i) for i in range(len(shapes))]
    letters = sorted(set("".join(shapes)))
    frequency = np.arange(1, keys + 1, dtype=float) ** -skew
    made: list[dj.Table] = []
    tables: dict[str, Any] = {}
    for name, shape in zip(names, shapes, strict=True):
        made.append(dj.Table(name=name, attributes=(*shape, f"{name}0"), **options.get(name, {})))
        drawn = {key: rng.choice(keys, rows, p=frequency / frequency.sum()) for key in shape}
        first = next(iter(drawn.values())) if drawn else np.zeros(rows, dtype=int)
        drawn[f"{name}0"] = (first + rng.integers(0, 3, rows)) % 5
        tables[name] = {column: values.tolist() for column, values in drawn.items()}
    domains = [
        dj.Attribute(name=x, range=(0, keys - 1)) if declared else dj.Attribute(name=x, key=True) for x in letters
    ]
    domains += [dj.Attribute(name=f"{name}0", range=(0, 4)) for name in names]
    return dj.Schema(tuple(made), tuple(domains), options.get("unit", ())), tables


def _marginals(method: str, profile: str, *shapes: str, **options: Any) -> Callable[[], Case]:
    def case() -> Case:
        schema, tables = _tables(*shapes, **options)
        own = [a for a in schema.queryable if a.endswith("0")]
        workload = dj.Workload.marginals(schema, list(combinations(own, min(2, len(own)))))
        return schema, workload, tables, {"method": method, "profile": profile}

    return case


def _products(method: str, profile: str, *shapes: str, **options: Any) -> Callable[[], Case]:
    def case() -> Case:
        schema, tables = _tables(*shapes, **options)
        rng = np.random.default_rng(3)
        weights = {t.name: ([f"{t.name}0"], rng.uniform(-1, 1, (12, 5))) for t in schema.tables}
        return schema, dj.Workload.products(schema, weights), tables, {"method": method, "profile": profile}

    return case


def _learned(method: str) -> Callable[[], Case]:
    """A list of numbers and bins of others, learned; the rest as usual."""

    def case() -> Case:
        schema, tables = _tables(*PAIR, rows=4000)
        tables["r"]["r0"] = [["a", "b", "c", "d", "e"][x] for x in tables["r"]["r0"]]
        tables["s"]["s0"] = [x * 1.5 + n % 7 for n, x in enumerate(tables["s"]["s0"])]
        learned = {"r0": dj.Attribute(name="r0", learn=True), "s0": dj.Attribute(name="s0", learn={"bins": 4})}
        schema = dj.Schema(schema.tables, tuple(learned.get(a.name, a) for a in schema.attributes))
        return schema, dj.Workload.marginals(schema, 2), tables, {"method": method}

    return case


def _bound(by: str, limit: int) -> dj.DegreeBound:
    return dj.DegreeBound(attributes=tuple(by), limit=limit)


PAIR, STAR, PATH, TRIANGLE = ("A", "A"), ("A", "A", "A"), ("A", "AB", "B"), ("AB", "BC", "CA")


DECLARED = {"r": {"bounds": (_bound("A", 90),)}, "s": {"bounds": (_bound("A", 90),)}}


ENFORCED = {name: {**options, "enforce": True} for name, options in DECLARED.items()}


PAPER = ("two_table", "uniformize", "hierarchical")


CASES: dict[str, Callable[[], Case]] = {
    **{f"{m} tight": _marginals(m, "tight", *PAIR) for m in (*PAPER, "heavy_light")},
    **{f"{m} paper": _marginals(m, "paper", *PAIR) for m in PAPER},
    **{f"{m} pair": _marginals(m, "tight", *PAIR) for m in ("capped", "auto")},
    **{
        f"{m} declared keys": _marginals(m, "tight", *PAIR, declared=True) for m in ("per_table", "heavy_light", "auto")
    },
    "single_table tight": _marginals("auto", "tight", ""),
    "single_table paper": _marginals("auto", "paper", ""),
    "products tight": _products("two_table", "tight", *PAIR),
    "products paper": _products("two_table", "paper", *PAIR),
    "products auto": _products("auto", "tight", *PAIR),
    "multi_table star": _marginals("multi_table", "tight", *STAR),
    "multi_table triangle": _marginals("multi_table", "tight", *TRIANGLE, keys=8),
    "multi_table paper": _marginals("multi_table", "paper", *TRIANGLE, keys=8),
    "hierarchical nested": _marginals("hierarchical", "tight", "AB", "A", "AB", keys=8),
    "hierarchical nested paper": _marginals("hierarchical", "paper", "AB", "A", "AB", keys=8),
    "auto path": _marginals("auto", "tight", *PATH),
    "auto star": _marginals("auto", "tight", *STAR),
    "auto triangle": _marginals("auto", "tight", *TRIANGLE, keys=8),
    "promised bounds": _marginals("auto", "tight", *PAIR, **DECLARED, skew=0.3),
    "enforced bounds": _marginals("two_table", "tight", *PAIR, **ENFORCED, skew=0.3),
    "auto public": _marginals("auto", "tight", *PAIR, s={"private": False}),
    "auto star public": _marginals("auto", "tight", *STAR, t={"private": False}),
    "clipped pair": _marginals("clipped", "tight", *PAIR),
    "clipped person": _marginals("auto", "tight", *STAR, unit=("A",)),
    "learned domains": _learned("auto"),
    "per_table declared star": _marginals("per_table", "tight", *STAR, declared=True, keys=12),
}


def released(name: str) -> dict[str, Any]:
    """What the case releases, as JSON keeps it."""
    schema, workload, tables, options = CASES[name]()
    import pandas as pd

    frames = {table: pd.DataFrame(columns) for table, columns in tables.items()}
    BITS.begin(f"golden {name}")
    release = dj.release(schema, workload, frames, dj.Budget(epsilon=1.0, delta=1e-6), **options)
    return {
        "method": release.method,
        "sensitivity": release.facts["sensitivity_bound"],
        "join size": release.join_size,
        "answers": [float(f"{x:.4g}") for x in release.answer()],
        "bars": [float(f"{x:.4g}") for x in release.error()],
        "ledger": _summary(release.ledger),
    }


def _summary(ledger: Ledger) -> dict[str, Any]:
    """What was spent, how often each mechanism ran, and a hash of every line."""
    events = Counter(e.mechanism for e in ledger.events)
    spent = {"rho": str(ledger.rho), "epsilon": str(ledger.epsilon), "delta": str(ledger.delta)}
    text = json.dumps(ledger_to_json(ledger), sort_keys=True)
    return {"events": dict(events), **spent, "sha256": sha256(text.encode()).hexdigest()[:16]}


@pytest.fixture(scope="module")
def goldens(request: pytest.FixtureRequest) -> Any:
    if request.config.getoption("--fresh"):
        pytest.skip("goldens need noise that repeats")
    return json.loads(FILE.read_text()) if FILE.exists() else {}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::dpjoin.JoinedTableWarning")
def test_golden(name: str, goldens: Any, request: pytest.FixtureRequest) -> None:
    """The same ledger, and the same answers but for rounding."""
    found = released(name)
    if request.config.getoption("--update-goldens"):
        goldens[name] = found
        lines = [f"{json.dumps(key)}: {json.dumps(goldens[key])}" for key in CASES if key in goldens]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return
    wanted = goldens[name]
    assert {k: found[k] for k in ("method", "sensitivity")} == {k: wanted[k] for k in ("method", "sensitivity")}
    assert found["join size"] == pytest.approx(wanted["join size"], rel=SIZE_TOLERANCE)
    assert found["ledger"] == wanted["ledger"]
    for what in ("answers", "bars"):
        slack = TOLERANCE * max(1, abs(wanted["join size"]))
        np.testing.assert_allclose(found[what], wanted[what], rtol=TOLERANCE, atol=slack, err_msg=what)
