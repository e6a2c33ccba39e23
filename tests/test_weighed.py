"""Weighed sums over listed values: the same queries as terms, the same model after folding, and less noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpjoin as dj
from dpjoin.measure import weighted_sums as weighed
from dpjoin.measure.weighted_sums import best_share, cut_weights, sum_terms, weighed_noise, weighed_sums
from dpjoin.methods import table_models as alone
from dpjoin.model.fit import Evidence, learn, relearn_prior, start
from dpjoin.model.terms import Domain, Terms, WeightedSums
from dpjoin.privacy.parts import LISTED
from dpjoin.privacy.sensitivity import squared_norm
from dpjoin.spec.workload import WEIGHT_BITS, product_group
from support.naive import table_of


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
    terms = _terms(group.factors[0].row, {"a": a, "c": c}, (), (("a", "c"),))
    assert terms.answers(table.reshape(values, a * c)) == pytest.approx(expected)


def _terms(
    row: Sequence[int], sizes: dict[str, int], cliques: tuple[tuple[str, ...], ...], summed: tuple[tuple[str, ...], ...]
) -> Terms:
    domain = Domain((LISTED,), tuple(sizes), {LISTED: len(row), **sizes})
    return Terms(domain, cliques, sums=WeightedSums(np.array(row) / 2**WEIGHT_BITS, summed))


def test_a_row_moves_one_sum_by_at_most_one() -> None:
    (group,) = weighed_sums(_schema(3, 4, 1), [("a",)], np.array([7.0, 2.0, 3.0]))
    assert squared_norm(group) * group.unit**2 == 1


CLIQUES: tuple[tuple[str, ...], ...] = ((LISTED,), ("a",), ("c",), (LISTED, "a"), (LISTED, "c"))


@given(st.integers(0, 2**32 - 1))
def test_folding_leaves_the_model_as_it_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    terms = _terms(rng.integers(1, 2**WEIGHT_BITS, 4).tolist(), {"a": 3, "c": 2}, CLIQUES, (("a",), ("c",)))
    potentials = rng.standard_normal(terms.size)
    plain = Terms(terms.domain, CLIQUES)
    assert plain.table(terms.folded(potentials), 100.0) == pytest.approx(terms.table(potentials, 100.0))


@given(st.integers(0, 2**32 - 1))
def test_logits_answers_and_curvature_are_those_of_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    row = rng.integers(1, 2**WEIGHT_BITS, 3).tolist()
    terms = _terms(row, {"a": 2, "c": 2}, CLIQUES, (("c",), ("a", "c")))
    table, potentials = rng.uniform(0, 9, (3, 4)), rng.standard_normal(terms.size)
    # Every term as a weight for every cell, in loops.
    features = []
    for scope in CLIQUES:
        for cell in np.ndindex(*(terms.domain.sizes[a] for a in scope)):
            at = dict(zip(scope, cell, strict=True))
            features.append([float(_lies(v, i, j, at)) for v, i, j in np.ndindex(3, 2, 2)])
    for scope in terms.sums.scopes:
        for cell in np.ndindex(*(2 for _ in scope)):
            at = dict(zip(scope, cell, strict=True))
            features.append([row[v] / 2**WEIGHT_BITS * _lies(v, i, j, at) for v, i, j in np.ndindex(3, 2, 2)])
    weights, cells = np.array(features), table.reshape(-1)
    assert terms.size == len(weights)
    assert terms.answers(table) == pytest.approx(weights @ cells)
    assert terms.logits(potentials, np.empty_like(table)).reshape(-1) == pytest.approx(potentials @ weights)
    expected = weights**2 @ cells - (weights @ cells) ** 2 / cells.sum()
    found = terms.answers(table, power=2) - terms.answers(table) ** 2 / cells.sum()
    assert found == pytest.approx(expected, abs=1e-9)


def _lies(listed: int, a: int, c: int, where: dict[str, int]) -> bool:
    here = {LISTED: listed, "a": a, "c": c}
    return all(here[name] == value for name, value in where.items())


def test_sums_beside_product_queries_or_without_weights_are_refused() -> None:
    domain = Domain((LISTED,), ("a",), {LISTED: 3, "a": 2})
    with pytest.raises(ValueError, match="must have 3 weights"):
        Terms(domain, ((LISTED,),), sums=WeightedSums(np.ones(2), (("a",),)))
    query = product_group(_schema(3, 2, 1), {"t": (("a",), [[1.0, 0.0]])})
    with pytest.raises(ValueError, match="no product queries"):
        Terms(domain, ((LISTED,),), (query,), sums=WeightedSums(np.ones(3), (("a",),)))


@given(st.lists(st.floats(1.0, 1e6), min_size=1, max_size=12))
def test_weights_are_cut_where_noise_is_least(weights: list[float]) -> None:
    """By brute force: no other level leaves less of level² + the squares of what it cuts off."""
    exact = np.array(weights)

    def noise(level: float) -> float:
        return float(level**2 + (np.maximum(exact - level, 0.0) ** 2).sum())

    cut = cut_weights(exact)
    level = float(cut.max())
    assert cut == pytest.approx(np.minimum(exact, level))
    tried = [noise(float(exact.max()) * share) for share in np.linspace(0.01, 1.0, 400)]
    assert noise(level) <= min(tried) * (1 + 1e-9)


def test_a_single_large_weight_is_cut_in_half() -> None:
    assert cut_weights(np.array([100.0, 1.0, 1.0])) == pytest.approx([50.0, 1.0, 1.0])
    assert cut_weights(np.array([10.0] * 99)) == pytest.approx([9.9] * 99)


def test_sums_get_more_where_values_are_alike() -> None:
    schema = _schema(4, 3, 1)
    weights = np.array([4.0, 2.0, 2.0, 1.0])
    (group,) = weighed_sums(schema, [("a",)], weights)
    own = dj.Workload.marginals(schema, [(LISTED, "a")])
    terms = sum_terms(own, [(LISTED,), ("a",), (LISTED, "a")], [group])
    assert terms.sums.weights == pytest.approx([1.0, 0.5, 0.5, 0.25])
    alike, unlike = (best_share(terms, weights, np.array([1.0, 1.0, tau, 1.0])) for tau in (0.1, 2.0))
    level = 2.0  # = 4 - 2, all that is cut off
    for tau, found in ((0.1, alike), (2.0, unlike)):
        rest = 2.0**2 + tau**2 * (16 + 4 + 4 + 1)
        shares = np.linspace(0.001, 0.999, 9981)
        assert found == pytest.approx(shares[np.argmin(level**2 / shares + rest / (1 - shares))], abs=0.001)
    assert unlike < 0.3 < alike


def test_priors_of_free_cliques_stay_wide() -> None:
    terms = Terms(Domain.split({LISTED: 3, "a": 2}), ((LISTED,), ("a",), (LISTED, "a")))
    evidence = Evidence.none(terms.size).add(terms.slices[2], np.full(6, 10.0), 1.0)
    evidence = evidence.add(terms.slices[0], np.full(3, 20.0), 1.0)
    free, usual = (start(terms, 60.0, free=some) for some in ([(LISTED,)], []))
    assert relearn_prior(free, evidence).tau[0] == free.tau[0]
    assert relearn_prior(usual, evidence).tau[0] != usual.tau[0]
    assert table_of(learn(free, evidence)) == pytest.approx(np.full((3, 2), 10.0), rel=0.01)


def test_forecast_of_sums() -> None:
    alike = weighed_noise(np.full(20, 4.0))
    assert alike[0] == 4.0, "a single value is no worse than by itself"
    assert np.all(alike <= np.cumsum(np.full(20, 4.0)))
    assert alike[-1] < 0.5 * 20 * 4.0, "what twenty values have in common is measured together"
    share = weighed.USUAL_SHARE
    assert alike[-1] == pytest.approx(4.0 / share + weighed.SHAPES_DIFFER * 80.0 / (1 - share))


def test_forecast_of_sums_with_one_large_weight() -> None:
    """The large one is cut, in the forecast as in the sums: about half of it is left in them."""
    each = np.array([100.0**2, *[10.0**2] * 30])
    uncut = 100.0**2 / weighed.USUAL_SHARE + weighed.SHAPES_DIFFER * each.sum() / (1 - weighed.USUAL_SHARE)
    assert weighed_noise(each)[-1] < 0.65 * uncut
    assert np.all(np.diff(weighed_noise(each)) >= 0), "no value more makes an answer better"


def _many_heavy_values(seed: int) -> tuple[dj.Schema, dj.Workload, dict[str, pa.Table], np.ndarray]:
    """Forty values with about a hundred rows in each table; in a third of the rows the value moves the shape."""
    rng = np.random.default_rng(seed)
    shape = np.array([0.5, 0.2, 0.1, 0.1, 0.06, 0.04])
    move = rng.integers(0, 6, 40)
    tables, counts = {}, []
    for table, x in (("r", "a"), ("s", "c")):
        key, drawn = rng.integers(0, 40, 4000), rng.choice(6, 4000, p=shape)
        column = (drawn + np.where(rng.random(4000) < 1 / 3, move[key], 0)) % 6
        tables[table] = pa.table({"k": key, x: column})
        counts.append(np.zeros((40, 6)))
        np.add.at(counts[-1], (key, column), 1)
    schema = dj.Schema(
        (dj.Table(name="r", attributes=("k", "a")), dj.Table(name="s", attributes=("k", "c"))),
        (dj.Attribute(name="k", range=(0, 39)), *(dj.Attribute(name=x, range=(0, 5)) for x in ("a", "c"))),
    )
    exact = counts[0].T @ counts[1]
    truth = np.concatenate([exact.sum(axis=1), exact.sum(axis=0)]) / exact.sum()
    return schema, dj.Workload.marginals(schema, [("a",), ("c",)]), tables, truth


def test_sums_make_answers_about_many_values_more_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, workload, tables, truth = _many_heavy_values(1)
    # All values are heavy, so that only the models of listed values are compared.
    monkeypatch.setattr("dpjoin.methods.keyed.best_choice", _all_heavy)

    def error() -> float:
        released = dj.release(schema, workload, tables, dj.Budget(epsilon=1.0, delta=1e-6), method="keyed")
        assert "heavy values table by table" in released.facts["strategy"]
        answers = released.answer()
        return float(np.abs(answers / answers[:6].sum() - truth).sum())

    with_sums = np.mean([error() for _ in range(10)])
    monkeypatch.setattr(alone, "measure_weighed", _without_sums)
    without = np.mean([error() for _ in range(10)])
    print(with_sums, without)
    assert with_sums < 0.87 * without


def _all_heavy(*_: object, **__: object) -> object:
    from dpjoin.measure.ranks import EDGES
    from dpjoin.methods.keyed import Choice

    return Choice(40, EDGES[0], np.zeros(len(EDGES)), 0.0, 0.0, 1.0)


def _without_sums(curator, workload, scopes, weights, bound, total, progress, *, seed):  # type: ignore[no-untyped-def]
    return alone.measure_join(curator, workload, bound, total, progress, seed=seed)[0]
