"""heavy_light on declared keys. Degrees of all values, heavy ones table by table, light ones capped."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import dpjoin as dj
from dpjoin.errors import BudgetError
from dpjoin.measure.ranks import EDGES
from dpjoin.methods.heavy_light import (
    Choice,
    best_choice,
    degrees_with,
    heavy_light_shares,
    is_declared,
)
from dpjoin.methods.remainder import Remainder
from dpjoin.privacy.accounting import Concentrated, Split
from dpjoin.privacy.curator import Curator
from support.brute import BruteEngine
from support.heavy_declared import BLUNT, schema_of
from support.skewed import skewed_rows


def test_labels_without_degrees_give_no_caps() -> None:
    """A public list of values is a partition like any other, but says nothing of degrees."""
    schema = schema_of("two")
    rows = skewed_rows(schema, np.random.default_rng(0))
    curator = Curator(BruteEngine(schema, rows), Split(budget=BLUNT))
    labels = curator.labels("some", [], {(0,): 1}, attributes=("A",))
    (part,) = curator.restrict("parts", {"one": {"r": {labels: 1}, "s": {labels: 1}}}, [Concentrated(curator.rho_left)])
    with pytest.raises(BudgetError, match="no caps"):
        part.part_bound()
    with pytest.raises(BudgetError, match="name their attributes"):
        curator.labels("others", [], {(0,): 1})


def zipf(rng: np.random.Generator, rows: int, keys: int, power: float) -> dict[str, pa.Table]:
    weights = 1 / np.arange(1, keys + 1) ** power
    names = rng.permutation(keys)
    found = [names[rng.choice(keys, rows, p=weights / weights.sum())] for _ in "rs"]
    values = [(rng.integers(0, 3, rows) + (k % 2) * (rng.random(rows) < 0.4)) % 3 for k in found]
    return {t: pa.table({"A": k, a: v}) for t, a, k, v in zip("rs", "pq", found, values, strict=True)}


def test_it_is_better_than_capping_alone_where_some_values_are_heavy() -> None:
    """3,000 rows, 1,000 keys, Zipf 1; both have the same look at ranks."""
    schema = schema_of("two", values=999)
    tables = zipf(np.random.default_rng(0), 3_000, 1_000, 1.0)
    workload = dj.Workload.marginals(schema, [("p", "q")])
    errors = {}
    for method in ("heavy_light", "capped"):
        made = [dj.release(schema, workload, tables, BLUNT, method=method) for _ in range(11)]
        errors[method] = np.median([dj.evaluate(m, tables).mean_total_variation or 0.0 for m in made])
    assert errors["heavy_light"] < errors["capped"]


def test_the_choice_follows_the_degrees() -> None:
    """Nothing is heavy where all values are light; where two are hot, they are, and the others are capped far below."""
    schema = schema_of("two", values=999)
    workload = dj.Workload.marginals(schema, [("p", "q")])
    shares = heavy_light_shares(BLUNT, schema)
    rho = shares.split.rho / 2

    def choice(degrees: list[float]) -> Choice:
        sequences = dict.fromkeys("rs", np.array(degrees))
        return best_choice(workload, sequences, degrees_with(shares, Remainder(rho, rho, rho)))

    assert choice([3.0] * 1000).heavy == 0
    hot = choice([5000.0, 5000.0, *[3.0] * 998])
    assert 2 <= hot.heavy <= 20
    assert hot.cap <= 30


def test_a_table_with_far_larger_degrees_is_not_cut_unawares() -> None:
    """One cap serves both tables, so it says nothing that their typical degrees are below it."""
    schema = schema_of("two", values=999)
    workload = dj.Workload.marginals(schema, [("p", "q")])
    shares = heavy_light_shares(BLUNT, schema)
    sequences = {"r": 20_000.0 / np.arange(1, 1001) ** 1.3, "s": np.full(1000, 60.0)}
    rho = shares.split.rho / 2
    chosen = best_choice(workload, sequences, degrees_with(shares, Remainder(rho, rho, rho)))
    left_at = EDGES.index(chosen.cap)
    light = sequences["r"][chosen.heavy :]
    lost = float((np.maximum(light - chosen.cap, 0.0) * 60.0).sum())
    size = float((sequences["r"] * 60.0).sum())
    assert lost - chosen.lost[left_at] < 0.01 * size, "what the cap cuts of the larger table is foreseen"
    assert lost < 0.2 * size


def test_bars_hold_where_one_table_has_hot_values_and_the_other_none() -> None:
    """17,000 rows of a value here and a hundred there: a cap between the two once made the join half as large."""
    rng = np.random.default_rng(7)
    weights = 1 / np.arange(1, 501) ** 1.3
    keys = {"r": rng.choice(500, 40_000, p=weights / weights.sum()), "s": rng.integers(0, 500, 20_000)}
    tables = {
        t: pa.table({"A": k, a: rng.integers(0, 3, len(k))}) for (t, k), a in zip(keys.items(), "pq", strict=True)
    }
    schema = schema_of("two", values=499)
    workload = dj.Workload.marginals(schema, [("p",), ("q",), ("p", "q")])
    exact = int((np.bincount(keys["r"], minlength=500) * np.bincount(keys["s"], minlength=500)).sum())
    made = [dj.release(schema, workload, tables, BLUNT, method="heavy_light") for _ in range(15)]
    assert np.median([m.answer()[:3].sum() for m in made]) == pytest.approx(exact, rel=0.08)
    assert np.mean([dj.evaluate(m, tables).covered for m in made]) >= 0.7


@pytest.mark.parametrize("method", ["heavy_light", "auto"])
def test_product_queries_over_what_seems_empty_are_answered(method: str) -> None:
    """Noisy ranks may show a join of size 0, and then the budget is half spent: that is no time to divide by it."""
    schema = schema_of("two", 40)
    products = dj.Workload.products(schema, {"r": (["p"], [[1, -1, 0], [0, 1, 1]])})
    workload = dj.Workload.marginals(schema, 1) + products
    empty = {t.name: pa.table({a: pa.array([], pa.int64()) for a in t.attributes}) for t in schema.tables}
    for _ in range(3):
        released = dj.release(schema, workload, empty, dj.Budget(epsilon=1.0, delta=1e-6), method=method)
        assert np.isfinite(released.answer()).all()


def test_too_many_values_count_as_undeclared() -> None:
    assert is_declared(schema_of("two"))
    assert not is_declared(schema_of("two", values=2**21))
