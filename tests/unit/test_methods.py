"""Every method through the front door: planned, released, saved, read back, asked; refused where it cannot serve."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.auto.plan import plan
from dpjoin.auto.registry import chosen_method
from dpjoin.constants import EARLY_LAPLACE, LAPLACE_SHARE
from dpjoin.errors import SpecError
from dpjoin.privacy.accounting import OPTION_SHARE
from dpjoin.released.files import load
from dpjoin.spec.toml import METHOD_NAMES, Spec
from support.audit import ledger_violations, numeric_gaussian_delta

BUDGET = dj.Budget(epsilon=2.0, delta=1e-5)


JOINS = {
    "one": {"r": "Cpquvwx"},
    "two": {"r": "Ap", "s": "Aq"},
    "star": {"r": "Ap", "s": "Aq", "t": "Au"},
    "path": {"r": "pA", "s": "AB", "t": "Bq"},
    "declared": {"r": "pC", "s": "Cq"},
}


SERVES = {
    "single_table": ["one"],
    "two_table": ["two"],
    "multi_table": ["two", "star", "path"],
    "uniformize": ["two", "star"],
    "hierarchical": ["two", "star"],
    "heavy_light": ["two", "star", "declared"],
    "capped": ["two", "star", "path", "declared"],
    "clipped": ["two", "star", "declared"],
    "per_table": ["declared"],
}


PAPER = ("single_table", "two_table", "multi_table", "uniformize", "hierarchical")


def join(name: str) -> tuple[dj.Schema, dict[str, pa.Table]]:
    """Two thousand rows a table, one hot key among fifty."""
    rng = np.random.default_rng(len(name))
    tables = JOINS[name]
    attributes = sorted({a for x in tables.values() for a in x})
    schema = dj.Schema(
        tuple(dj.Table(name=t, attributes=tuple(x)) for t, x in tables.items()),
        tuple(
            dj.Attribute(name=a, key=True) if a in "AB" else dj.Attribute(name=a, range=(0, 29 if a == "C" else 2))
            for a in attributes
        ),
    )
    rows = {}
    for t, x in tables.items():
        columns = {}
        for a in x:
            keys = np.where(rng.random(2000) < 0.4, 7, rng.integers(0, 50, 2000))
            columns[a] = keys if a in "AB" else rng.integers(0, 30 if a == "C" else 3, 2000)
        rows[t] = pa.table(columns)
    return schema, rows


CASES = [(m, j, "tight") for m, joins in SERVES.items() for j in joins]


CASES += [(m, SERVES[m][-1], "paper") for m in PAPER]


@pytest.mark.parametrize(("method", "name", "profile"), CASES)
def test_a_method_from_plan_to_answers(method: str, name: str, profile: str, tmp_path: Path) -> None:
    """The plan's shares are the whole budget, the ledger adds up to it exactly, and a saved release answers alike."""
    schema, rows = join(name)
    workload = dj.Workload.marginals(schema, [1, 2])
    planned = plan(Spec(schema, workload, BUDGET, method, profile))
    assert planned.method == method
    assert sum(stage.share for stage in planned.stages) == pytest.approx(1.0, abs=1e-6)

    made = dj.release(schema, workload, rows, BUDGET, method=method, profile=profile)
    assert made.method == method
    assert ledger_violations(made.ledger, BUDGET) == []
    if profile == "paper":
        assert (made.ledger.epsilon, made.ledger.delta) == (Fraction(2), Fraction(1e-5))
    else:
        # What is left of delta buys the rho that was spent, and hardly any more.
        assert made.ledger.composition == "Gaussian"
        left, epsilon = BUDGET.delta - float(made.ledger.delta), BUDGET.epsilon - float(made.ledger.epsilon)
        if made.ledger.epsilon:  # rho was exchanged for Laplace noise
            left *= float(OPTION_SHARE)
            assert made.ledger.epsilon / BUDGET.exact.epsilon in (EARLY_LAPLACE, LAPLACE_SHARE)
        assert numeric_gaussian_delta(float(made.ledger.rho), epsilon) <= left
        assert numeric_gaussian_delta(float(made.ledger.rho) * 1.02, epsilon) > left
    again = load(made.save(tmp_path / "out"))
    assert np.array_equal(again.answer(), made.answer())
    assert np.array_equal(again.error(), made.error(), equal_nan=True)
    assert again.ledger == made.ledger
    assert (made.answer() >= 0).all()
    assert made.synthetic.num_rows > 0


@pytest.mark.parametrize("method", SERVES)
def test_a_method_is_refused_where_it_cannot_serve(method: str) -> None:
    for name in set(JOINS) - set(SERVES[method]) - {"declared", "one"}:
        with pytest.raises(SpecError, match=method):
            chosen_method(join(name)[0], method)


def test_every_method_of_a_spec_exists() -> None:
    assert set(METHOD_NAMES) == {"auto", *SERVES}


@pytest.mark.parametrize("method", sorted(set(SERVES) - set(PAPER)))
def test_methods_beyond_the_paper_have_no_paper_profile(method: str) -> None:
    with pytest.raises(SpecError, match="profile tight"):
        chosen_method(join(SERVES[method][-1])[0], method, "paper")


@pytest.mark.parametrize(
    ("method", "joins"),
    [
        ("per_table", ("two", "path", "public")),
        ("heavy_light", ("path", "public")),
        ("uniformize", ("path",)),
    ],
)
def test_a_refusal_names_a_method_that_serves(method: str, joins: tuple[str, ...]) -> None:
    """Of these methods `auto` is the best advice: it looks, and falls back on what the join allows."""
    for name in joins:
        schema = join("two" if name == "public" else name)[0]
        if name == "public":
            schema = dj.Schema((schema.tables[0], replace(schema.tables[1], private=False)), schema.attributes)
        with pytest.raises(SpecError, match="use method 'auto'"):
            chosen_method(schema, method)
        chosen_method(schema, "auto")


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        ({"key": True}, "has key = true"),
        ({"bins": (0, 1, 2)}, "has bins"),
        ({"range": (0, 9), "other": True}, "has other = true"),
    ],
)
def test_a_refusal_says_what_hides_values(domain: dict[str, Any], words: str) -> None:
    """Values that are told apart by no code are named with the key of the spec that is to blame."""
    schema = join("declared")[0]
    attributes = tuple(dj.Attribute(name=a.name, **domain) if a.name == "C" else a for a in schema.attributes)
    with pytest.raises(SpecError, match=f"join attribute 'C', which {words}; declare its values or range"):
        chosen_method(dj.Schema(schema.tables, attributes), "per_table")
