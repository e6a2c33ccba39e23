"""heavy_light and per_table: heavy values table by table, joins of models are exact, a row pays in one part only."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dpjoin as dj
from dpjoin.engine.duck import DuckEngine
from dpjoin.engine.interface import Labels, Value
from dpjoin.measure.join import domain_of
from dpjoin.methods import heavy_light
from dpjoin.methods.common_key import common_attributes, everywhere
from dpjoin.methods.table_models import kept_attributes
from dpjoin.model.joined import Joined
from dpjoin.model.model import Model
from dpjoin.spec.workload import CELLS, Workload, kronecker
from support.audit import (
    Recorder,
    Replayer,
    Tape,
)
from support.brute import BruteEngine
from support.heavy_light import (
    ANY,
    DECLARED,
    KEY,
    arrow_of,
    hot_rows,
    run_on,
    schema_of,
    told,
)
from support.skewed import SHAPES as COMMON


@pytest.mark.parametrize(
    ("method", "shape"),
    [*(("heavy_light", s) for s in COMMON), *(("per_table", s) for s in ANY)],
    ids=lambda name: name,
)
def test_both_engines_publish_the_same(method: str, shape: str) -> None:
    """What the brute-force engine answered, replayed on DuckDB with the same rows: nothing moves at all."""
    rng = np.random.default_rng([9, len(shape)])
    for turn in range(3):
        schema = schema_of(shape, DECLARED if method == "per_table" or turn % 2 else KEY)
        rows = hot_rows(schema, rng)
        tape = Tape()
        outcome, _ = run_on(method, BruteEngine(schema, rows), Recorder, tape, turn)
        duck = DuckEngine(schema, arrow_of(schema, rows), attributes=schema.queryable)
        again, replayer = run_on(method, duck, Replayer, tape, turn)
        assert np.array_equal(told(outcome), told(again), equal_nan=True)
        assert replayer.__dict__["position"] == len(tape.entries)
        assert not any(squared for _, squared in replayer.__dict__["moved"])


def exact_model(engine: BruteEngine) -> Model:
    """A table alone as a model without noise."""
    schema = engine.schema
    group = kronecker(schema, dict.fromkeys(schema.queryable, CELLS))
    domain = domain_of(Workload(schema, (group,)))
    assert domain.attributes == group.scope
    cells = np.asarray(engine.exact_answers([group])[0], dtype=np.float64)
    return Model(domain, float(cells.sum()), plain=cells.reshape(domain.rows, domain.columns))


KEYS = {
    "key": KEY,
    "range": DECLARED,
    "values": dj.Attribute(name="A", values=(3, 1, 0), other=True),
    "bins": dj.Attribute(name="A", bins=(0, 1.5, 3)),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("shape", COMMON)
def test_heavy_and_light_values_add_up_to_the_join(shape: str, key: str) -> None:
    """Exact tables at heavy values, joined, and the exact join of light values: marginals, A's cells among them.

    Heavy values are any, also ones that no table has or that have no code. Several may share a cell of A.
    """
    rng = np.random.default_rng([3, len(shape), list(KEYS).index(key)])
    sizes = []
    for _ in range(12):
        schema = schema_of(shape, KEYS[key])
        workload = Workload.marginals(schema, (1, 2) if len(schema.queryable) > 1 else 1)
        common = common_attributes(schema)
        assert common == ("A",)
        engine = BruteEngine(schema, hot_rows(schema, rng))
        heavy: list[Value] = [(int(v),) for v in rng.permutation(6)[: rng.integers(2, 5)]]
        labels = Labels("heavy", common, dict.fromkeys(heavy, 1))
        alone = [
            engine.one_table(t.name, common, heavy, kept_attributes(workload, t.name, common)) for t in schema.tables
        ]
        joined = heavy_light.joined_heavy(workload, tuple(exact_model(e) for e in alone), common, heavy)
        light = engine.restricted(everywhere(schema, labels, 0))
        for group, some, every in zip(
            workload.groups, light.exact_answers(workload.groups), engine.exact_answers(workload.groups), strict=True
        ):
            assert (joined.answer(group) + some).tolist() == every.tolist(), group.name
        # Light values have nothing where the algorithm says that they cannot.
        support = heavy_light.cells_of(workload, everywhere(schema, labels, 0))
        if support is not None:
            whole = kronecker(schema, dict.fromkeys(workload.attributes, CELLS))
            assert not light.exact_answers([whole])[0].reshape(support.shape)[~support].any()
        assert support is None or key == "range"
        if key == "range" and not {(0,), (1,), (2,), (3,)} <= set(heavy):
            assert support is not None
            assert bool(support.all()) == all(v > 3 for (v,) in heavy)
        assert joined.total + light.exact_join_size() == engine.exact_join_size()
        sizes.append((joined.total, light.exact_join_size()))
    assert any(a for a, _ in sizes)
    assert any(b for _, b in sizes)


@pytest.mark.parametrize("shape", ANY)
def test_tables_alone_join_to_the_join(shape: str) -> None:
    """Exact tables with their join attributes, joined, are the join."""
    rng = np.random.default_rng([4, len(shape)])
    for turn in range(4):
        schema = schema_of(shape, DECLARED)
        some = [s for s in itertools.combinations(schema.queryable, 2) if rng.random() < 0.4 or s[0] == "A"]
        workload = Workload.marginals(schema, (1, 2) if turn % 2 else some)
        engine = BruteEngine(schema, hot_rows(schema, rng))
        alone = [engine.one_table(t.name, (), [], kept_attributes(workload, t.name, ())) for t in schema.tables]
        joined = Joined(domain_of(workload), tuple(exact_model(e) for e in alone))
        for group, exact in zip(workload.groups, engine.exact_answers(workload.groups), strict=True):
            assert joined.answer(group).tolist() == exact.tolist(), group.name
        assert joined.total == engine.exact_join_size()
