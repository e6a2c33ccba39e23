"""The spec as a file: what is written is read back, in TOML and in a release's manifest."""

from __future__ import annotations

import json
import tomllib

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpjoin.privacy.accounting import Budget
from dpjoin.spec.plain import schema_from_dict, schema_to_dict, workload_from_dict, workload_to_dict
from dpjoin.spec.toml import Spec
from support import strategies
from support.spec import same_workload


@settings(max_examples=150, deadline=None)
@example(158, 1.0, 1e-6)
@given(st.integers(0, 2**32 - 1), st.floats(0.01, 20), st.floats(1e-12, 0.01))
def test_random_specs_survive_toml_and_json(seed, epsilon, delta):
    """Schema, workload and budget are the same after a round trip through TOML and through JSON."""
    rng = np.random.default_rng(seed)
    schema = strategies.random_schema(rng)
    workload = strategies.random_workload(rng, schema)
    if not workload.groups:
        return
    spec = Spec(schema, workload, Budget(epsilon=epsilon, delta=delta))
    again = Spec.from_dict(tomllib.loads(spec.to_toml()))
    assert again.schema == schema
    assert again.budget == spec.budget
    assert same_workload(again.workload, workload)
    stored = json.loads(json.dumps({"schema": schema_to_dict(schema), "workload": workload_to_dict(workload)}))
    assert same_workload(workload_from_dict(schema_from_dict(stored["schema"]), stored["workload"]), workload)
