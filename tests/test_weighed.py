"""Weighed sums over listed values: the same queries as terms, the same model after folding, and less noise."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpjoin as dj
from dpjoin.algorithms import alone, weighed
from dpjoin.algorithms.weighed import SUMS_SHARE, as_products, folded, weighed_noise, weighed_sums
from dpjoin.model.fit import Evidence, learn, relearn_prior, start, table_of
from dpjoin.model.terms import Domain, Terms
from dpjoin.privacy.partition import LISTED
from dpjoin.privacy.sensitivity import squared_norm
from dpjoin.workload import WEIGHT_BITS


def _schema(values: int, a: int, c: int) -> dj.Schema:
    sizes = {LISTED: values, "a": a, "c": c}
    return dj.Schema(
        (dj.Table(name="t", attributes=tuple(sizes)),),
        tuple(dj.Attribute(name=n, range=(0, size - 1)) for n, size in sizes.items()),
    )


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_a_sum_is_the_weighted_marginal_both_as_a_query_and_as_terms(values: int, a: int, c: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.uniform(1.0, 50.0, values)
    table = rng.integers(0, 9, (values, a, c)).astype(np.float64)
    (group,) = weighed_sums(_schema(values, a, c), [("a", "c")], weights)
    # The weights as whole numbers, in loops.
    rounded = [round(w / max(weights) * 2**WEIGHT_BITS) / 2**WEIGHT_BITS for w in weights]
    expected = [sum(rounded[v] * table[v, i, j] for v in range(values)) for i in range(a) for j in range(c)]
    assert group.apply(table) * float(group.unit) == pytest.approx(expected)
    products = as_products(group)
    assert products.apply(table) * float(products.unit) == pytest.approx(expected)
    domain = Domain.split({LISTED: values, "a": a, "c": c}, [products])
    terms = Terms(domain, (), (products,))
    assert terms.answers(table.reshape(domain.rows, domain.columns)) == pytest.approx(expected)


def test_a_row_moves_one_sum_by_at_most_one() -> None:
    (group,) = weighed_sums(_schema(3, 4, 1), [("a",)], np.array([7.0, 2.0, 3.0]))
    assert squared_norm(group) * group.unit**2 == 1


@given(st.integers(0, 2**32 - 1))
def test_folding_leaves_the_model_as_it_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    schema = _schema(4, 3, 2)
    sums = weighed_sums(schema, [("a",), ("c",)], rng.uniform(1, 9, 4))
    products = tuple(map(as_products, sums))
    cliques = ((LISTED,), ("a",), ("c",), (LISTED, "a"), (LISTED, "c"))
    terms = Terms(Domain.split({LISTED: 4, "a": 3, "c": 2}, products), cliques, products)
    potentials = rng.standard_normal(terms.size)
    plain = Terms(terms.domain, cliques)
    assert table_of(plain, folded(terms, potentials), 100.0) == pytest.approx(table_of(terms, potentials, 100.0))


def test_priors_of_free_cliques_stay_wide() -> None:
    terms = Terms(Domain.split({LISTED: 3, "a": 2}), ((LISTED,), ("a",), (LISTED, "a")))
    evidence = Evidence.none(terms.size).add(terms.slices[2], np.full(6, 10.0), 1.0)
    evidence = evidence.add(terms.slices[0], np.full(3, 20.0), 1.0)
    free, usual = (start(terms, 60.0, free=some) for some in ([(LISTED,)], []))
    assert free.tau[0] > usual.tau[0]
    assert relearn_prior(free, evidence).tau[0] == free.tau[0]
    assert relearn_prior(usual, evidence).tau[0] != usual.tau[0]
    assert learn(free, evidence).table == pytest.approx(np.full((3, 2), 10.0), rel=0.01)


def test_forecast_of_sums() -> None:
    alike = weighed_noise(np.full(20, 4.0))
    assert alike[0] == 4.0, "a single value is no worse than by itself"
    assert np.all(alike <= np.cumsum(np.full(20, 4.0)))
    assert alike[-1] < 0.5 * 20 * 4.0, "what twenty values have in common is measured together"
    share = float(SUMS_SHARE)
    assert alike[-1] == pytest.approx(4.0 / share + weighed.SHAPES_DIFFER * 80.0 / (1 - share))


def _many_heavy_values(seed: int) -> tuple[dj.Schema, dj.Workload, dict[str, pa.Table], np.ndarray]:
    """Forty values with about a hundred rows in each table, of one shape."""
    rng = np.random.default_rng(seed)
    shapes = {"a": np.array([0.5, 0.2, 0.1, 0.1, 0.06, 0.04]), "c": np.array([0.1, 0.1, 0.1, 0.2, 0.2, 0.3])}
    columns = {x: rng.choice(6, 4000, p=p) for x, p in shapes.items()}
    keys = {x: rng.integers(0, 40, 4000) for x in shapes}
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "c"))),
        (dj.Attribute(name="k", range=(0, 39)), *(dj.Attribute(name=x, range=(0, 5)) for x in shapes)),
    )
    tables = {t: pa.table({"k": keys[x], x: columns[x]}) for t, x in (("r", "a"), ("s", "c"))}
    counts = [np.zeros((40, 6)), np.zeros((40, 6))]
    for found, x in zip(counts, shapes, strict=True):
        np.add.at(found, (keys[x], columns[x]), 1)
    return schema, dj.Workload.marginals(schema, [("a",), ("c",)]), tables, counts[0].T @ counts[1]


def test_sums_make_answers_about_many_values_more_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, workload, tables, exact = _many_heavy_values(1)
    truth = np.concatenate([exact.sum(axis=1), exact.sum(axis=0)])
    # All values are heavy, so that only the models of listed values are compared.
    monkeypatch.setattr("dpjoin.algorithms.keyed.best_choice", _all_heavy)

    def error() -> float:
        released = dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6), method="keyed")
        assert "heavy values table by table" in released.facts["strategy"]
        return float(np.abs(released.answer() - truth).sum())

    with_sums = np.median([error() for _ in range(7)])
    monkeypatch.setattr(alone, "measure_weighed", _without_sums)
    without = np.median([error() for _ in range(7)])
    assert with_sums < 0.75 * without


def _all_heavy(*_: object, **__: object) -> object:
    from dpjoin.algorithms.keyed import Choice
    from dpjoin.algorithms.ranks import EDGES

    return Choice(40, EDGES[0], np.zeros(len(EDGES)), 0.0, 0.0)


def _without_sums(curator, workload, sums, bound, total, progress, *, seed):  # type: ignore[no-untyped-def]
    return alone.measure_join(curator, workload, bound, total, progress, seed=seed)[0]
